use std::future::Future;
use std::net::SocketAddr;

use lb_model::AmphoraId;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream as ServerStream;

use super::*;

struct Rig {
    _dir: tempfile::TempDir,
    authority: Arc<CertificateAuthority>,
    amphora: AmphoraId,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::load_or_create(&dir.path().join("ca")).unwrap();
        Self {
            _dir: dir,
            authority: Arc::new(authority),
            amphora: AmphoraId::random(),
        }
    }

    fn driver(&self) -> HttpsAmphoraDriver {
        HttpsAmphoraDriver::new(Arc::clone(&self.authority))
    }

    fn endpoint(&self, address: SocketAddr) -> Endpoint {
        Endpoint {
            amphora_id: self.amphora,
            address,
        }
    }

    /// An agent's TLS: its own certificate, and clients of `trusted` only.
    fn acceptor(&self, trusted: &CertificateAuthority) -> TlsAcceptor {
        let pem = self.authority.issue_server(self.amphora).unwrap().pem;
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(trusted.client_ca_pem().as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                CertificateDer::pem_slice_iter(pem.expose().as_bytes())
                    .collect::<Result<_, _>>()
                    .unwrap(),
                PrivateKeyDer::from_pem_slice(pem.expose().as_bytes()).unwrap(),
            )
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Serves one connection by a script, and gives its address.
    async fn serve<F, Fut>(&self, script: F) -> SocketAddr
    where
        F: FnOnce(ServerStream<TcpStream>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = self.acceptor(&self.authority);
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                script(stream).await;
            }
        });
        address
    }

    /// One connection that is answered like this, after the whole request was read.
    async fn answering(&self, status: &'static str, body: &'static str) -> SocketAddr {
        self.serve(move |mut stream| async move {
            read_head(&mut stream).await;
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            let _ = stream.shutdown().await;
        })
        .await
    }
}

async fn read_head(stream: &mut ServerStream<TcpStream>) -> String {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut chunk).await.unwrap();
        assert!(length > 0, "the client closed before its request was whole");
        head.extend_from_slice(&chunk[..length]);
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn an_answer_is_parsed_over_mutual_tls() {
    let rig = Rig::new();
    let address = rig
        .answering(
            "200 OK",
            r#"{"listeners":{},"members":{},"verdicts":{"pass":3}}"#,
        )
        .await;
    let stats = rig.driver().stats(&rig.endpoint(address)).await.unwrap();
    assert_eq!(stats.verdicts.get("pass"), Some(&3));
}

#[tokio::test]
async fn the_request_names_the_amphora_and_the_path() {
    let rig = Rig::new();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let address = rig
        .serve(move |mut stream| async move {
            sender.send(read_head(&mut stream).await).unwrap();
        })
        .await;
    let error = rig.driver().info(&rig.endpoint(address)).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let head = receiver.await.unwrap();
    assert!(head.starts_with("GET /2.0/info HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains(&format!("host: {}\r\n", rig.amphora)),
        "{head}"
    );
}

#[tokio::test]
async fn an_agent_of_another_amphora_is_not_talked_to() {
    let rig = Rig::new();
    let address = rig.answering("200 OK", "{}").await;
    let other = Endpoint {
        amphora_id: AmphoraId::random(),
        address,
    };
    let error = rig.driver().info(&other).await.unwrap_err();
    assert!(
        matches!(error, AmphoraError::Handshake { .. }) && !error.is_transient(),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_agent_of_a_foreign_authority_is_not_talked_to() {
    let (rig, foreign) = (Rig::new(), Rig::new());
    let address = foreign.answering("200 OK", "{}").await;
    let endpoint = foreign.endpoint(address);
    let error = rig.driver().info(&endpoint).await.unwrap_err();
    assert!(matches!(error, AmphoraError::Handshake { .. }), "{error:?}");
}

#[tokio::test]
async fn an_agent_that_does_not_trust_us_is_a_failed_handshake() {
    let (rig, foreign) = (Rig::new(), Rig::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = rig.acceptor(&foreign.authority);
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        assert!(acceptor.accept(stream).await.is_err());
    });
    let error = rig.driver().info(&rig.endpoint(address)).await.unwrap_err();
    assert!(matches!(error, AmphoraError::Handshake { .. }), "{error:?}");
}

#[tokio::test]
async fn nobody_listening_is_unreachable_and_transient() {
    let rig = Rig::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = rig.driver().info(&rig.endpoint(address)).await.unwrap_err();
    assert!(
        matches!(error, AmphoraError::Unreachable { .. }) && error.is_transient(),
        "{error:?}"
    );
}

#[tokio::test]
async fn silence_before_and_after_the_handshake_ends_in_time() {
    let rig = Rig::new();
    let short = Timeouts {
        connect: Duration::from_millis(300),
        total: Duration::from_secs(30),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute = listener.local_addr().unwrap();
    let driver = rig.driver().with_timeouts(short);
    let error = driver.info(&rig.endpoint(mute)).await.unwrap_err();
    assert!(
        matches!(
            error,
            AmphoraError::TimedOut {
                operation: "connect",
                ..
            }
        ) && error.is_transient(),
        "{error:?}"
    );

    let address = rig
        .serve(|mut stream| async move {
            read_head(&mut stream).await;
            std::future::pending::<()>().await;
        })
        .await;
    let short = Timeouts {
        connect: Duration::from_secs(30),
        total: Duration::from_millis(500),
    };
    let driver = rig.driver().with_timeouts(short);
    let error = driver.info(&rig.endpoint(address)).await.unwrap_err();
    assert!(
        matches!(
            error,
            AmphoraError::TimedOut {
                operation: "answer",
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn refusals_tell_what_a_retry_would_bring() {
    let rig = Rig::new();
    let fault = r#"{"message":"no","details":"generation 3 is older than 4"}"#;
    let cases = [
        ("409 Conflict", fault, false, "generation 3 is older than 4"),
        ("400 Bad Request", fault, false, "400"),
        ("413 Content Too Large", "too long", false, "too long"),
        ("500 Internal Server Error", fault, true, "500"),
        ("503 Service Unavailable", "<html>", true, "<html>"),
        ("200 OK", "{\"listeners\":", false, "understand the answer"),
    ];
    for (status, body, transient, text) in cases {
        let address = rig.answering(status, body).await;
        let error = rig
            .driver()
            .stats(&rig.endpoint(address))
            .await
            .unwrap_err();
        assert_eq!(error.is_transient(), transient, "{status}: {error:?}");
        assert!(error.to_string().contains(text), "{status}: {error}");
        assert_eq!(
            matches!(error, AmphoraError::OutOfDate { .. }),
            status.starts_with("409"),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let rig = Rig::new();
    let address = rig
        .serve(|mut stream| async move {
            read_head(&mut stream).await;
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head).await.unwrap();
            let mut chunk = b"10000\r\n".to_vec();
            chunk.resize(chunk.len() + 0x10000, b' ');
            chunk.extend_from_slice(b"\r\n");
            while stream.write_all(&chunk).await.is_ok() {}
        })
        .await;
    let error = rig
        .driver()
        .stats(&rig.endpoint(address))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, AmphoraError::Protocol { reason, .. } if reason.contains("longer than")),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_a_protocol_error() {
    let rig = Rig::new();
    let address = rig
        .serve(|mut stream| async move {
            read_head(&mut stream).await;
            stream
                .write_all(b"SSH-2.0-OpenSSH_9\r\n\r\n")
                .await
                .unwrap();
            let _ = stream.shutdown().await;
        })
        .await;
    let error = rig
        .driver()
        .stats(&rig.endpoint(address))
        .await
        .unwrap_err();
    assert!(matches!(error, AmphoraError::Protocol { .. }), "{error:?}");
}
