//! The REST interface over real TLS on loopback, with CAs made for each test.

use std::io;

use amphora_api::{AmphoraInfo, AmphoraStats, ApplyReport};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::*;
use crate::agent::tests::Fixture;
use crate::config::TlsVersion;
use crate::samples;

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).unwrap();
        Authority {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Certificate and key, both PEM.
    fn issue(&self, name: &str, usages: &[ExtendedKeyUsagePurpose]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = usages.to_vec();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

struct Rig {
    fixture: Fixture,
    authority: Authority,
    address: SocketAddr,
    server: tokio::task::JoinHandle<Infallible>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Identity = Option<(String, String)>;

impl Rig {
    async fn new() -> Self {
        Rig::with_tls(TlsVersion::V1_2).await
    }

    async fn with_tls(min_tls: TlsVersion) -> Self {
        let fixture = Fixture::new();
        let authority = Authority::new("octavia CA");
        let (cert, key) = authority.issue(
            &samples::AMPHORA.to_string(),
            &[
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
        );
        let server_cert = fixture.directory.path().join("server.pem");
        let client_ca = fixture.directory.path().join("client_ca.pem");
        std::fs::write(&server_cert, cert + &key).unwrap();
        std::fs::write(&client_ca, &authority.pem).unwrap();
        let tls = tls::server_config(&server_cert, &client_ca, min_tls).unwrap();
        let server = Server::bind(
            "127.0.0.1:0".parse().unwrap(),
            tls,
            Arc::clone(&fixture.agent),
        )
        .await
        .unwrap();
        let address = server.local_addr().unwrap();
        Rig {
            fixture,
            authority,
            address,
            server: tokio::spawn(server.run()),
        }
    }

    fn control_plane(&self) -> Identity {
        Some(
            self.authority
                .issue("octavia-controller", &[ExtendedKeyUsagePurpose::ClientAuth]),
        )
    }

    async fn connect(
        &self,
        identity: Identity,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.authority.pem.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            Some((cert, key)) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(samples::AMPHORA.to_string()).unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }

    /// Status and body of one request by the control plane.
    async fn call(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        self.call_as(self.control_plane(), method, path, body)
            .await
            .unwrap()
    }

    async fn call_as(
        &self,
        identity: Identity,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> io::Result<(u16, Vec<u8>)> {
        let stream = self
            .connect(
                identity,
                &[&rustls::version::TLS13, &rustls::version::TLS12],
            )
            .await?;
        let (mut read, mut write) = tokio::io::split(stream);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let send = async {
            write.write_all(head.as_bytes()).await?;
            write.write_all(body).await?;
            write.flush().await
        };
        let mut answer = Vec::new();
        let receive = async {
            // A server that closes without having read all of a refused body resets the connection.
            let mut buffer = [0; 4096];
            loop {
                match read.read(&mut buffer).await {
                    Ok(0) => return Ok(()),
                    Ok(n) => answer.extend_from_slice(&buffer[..n]),
                    Err(error) if answer.is_empty() => return Err(error),
                    Err(_) => return Ok(()),
                }
            }
        };
        let (_, received) = tokio::join!(send, receive);
        received?;
        parse(&answer).ok_or_else(|| io::Error::other("no answer"))
    }

    async fn put(&self, document: &AmphoraConfig) -> (u16, Vec<u8>) {
        let body = serde_json::to_vec(document).unwrap();
        self.call("PUT", "/2.0/config", &body).await
    }
}

fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let status = std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()?;
    Some((status, answer[end + 4..].to_vec()))
}

fn json<T: DeserializeOwned>(body: &[u8]) -> T {
    serde_json::from_slice(body)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(body)))
}

#[tokio::test]
async fn the_control_plane_puts_a_document_and_reads_it_back() {
    let rig = Rig::new().await;
    let (status, body) = rig.call("GET", "/", b"").await;
    assert_eq!(
        (status, body.as_slice()),
        (200, &b"{\"api_version\":\"2.0\"}"[..])
    );

    let (status, body) = rig.put(&samples::document(3)).await;
    assert_eq!(status, 200);
    let report: ApplyReport = json(&body);
    assert_eq!((report.generation, report.changed), (3, true));

    let (status, body) = rig.call("GET", "/2.0/info", b"").await;
    assert_eq!(status, 200);
    assert_eq!(json::<AmphoraInfo>(&body).generation, Some(3));

    let (status, body) = rig.call("GET", "/2.0/stats", b"").await;
    assert_eq!(status, 200);
    assert_eq!(json::<AmphoraStats>(&body).listeners.len(), 3);
}

#[tokio::test]
async fn old_and_conflicting_documents_get_409_and_the_same_one_200() {
    let rig = Rig::new().await;
    assert_eq!(rig.put(&samples::document(3)).await.0, 200);
    let (status, body) = rig.put(&samples::document(2)).await;
    assert_eq!(status, 409);
    assert!(json::<AgentFault>(&body).details.contains("generation 2"));
    let mut other = samples::document(3);
    other.project_id = "q".into();
    assert_eq!(rig.put(&other).await.0, 409);
    let (status, body) = rig.put(&samples::document(3)).await;
    assert_eq!(status, 200);
    assert!(!json::<ApplyReport>(&body).changed);
}

#[tokio::test]
async fn malformed_documents_get_400_that_names_the_field() {
    let rig = Rig::new().await;
    let good = serde_json::to_value(samples::document(1)).unwrap();
    let edit = |edit: &dyn Fn(&mut serde_json::Value)| {
        let mut value = good.clone();
        edit(&mut value);
        serde_json::to_vec(&value).unwrap()
    };
    let mut trailing = serde_json::to_vec(&good).unwrap();
    trailing.extend_from_slice(b" {}");
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"".to_vec(), "EOF"),
        (b"{".to_vec(), "EOF"),
        (b"[1]".to_vec(), "AmphoraConfig"),
        (b"\xff\xfe".to_vec(), "expected value"),
        (trailing, "trailing"),
        (edit(&|v| v["generation"] = "x".into()), "generation"),
        (
            edit(&|v| v["listeners"][1]["protocol_port"] = 70_000.into()),
            "listeners[1].protocol_port",
        ),
        (
            edit(&|v| v["pools"][0]["members"][1]["address"] = "nowhere".into()),
            "pools[0].members[1].address",
        ),
        (edit(&|v| v["colour"] = "blue".into()), "colour"),
        (
            edit(&|v| v["listeners"][0]["protocol"] = "GOPHER".into()),
            "listeners[0].protocol",
        ),
        (
            edit(&|v| v["listeners"][0]["default_pool"] = uuid::Uuid::nil().to_string().into()),
            "listeners.default_pool",
        ),
        (
            edit(&|v| v["amphora_id"] = uuid::Uuid::nil().to_string().into()),
            "amphora_id",
        ),
    ];
    for (body, field) in cases {
        let (status, answer) = rig.call("PUT", "/2.0/config", &body).await;
        assert_eq!(status, 400, "{field}");
        let fault: AgentFault = json(&answer);
        let text = fault.to_string();
        assert!(text.contains(field), "{field} not in {text}");
    }
    assert_eq!(rig.fixture.agent.info().generation, None);
    let stats = rig.fixture.agent.stats().await;
    assert_eq!(stats.verdicts["agent_request_refused"], 12);
}

#[tokio::test]
async fn a_hundred_megabytes_get_413_and_are_not_kept() {
    let rig = Rig::new().await;
    let body = vec![b' '; 100 * 1024 * 1024];
    let (status, answer) = rig.call("PUT", "/2.0/config", &body).await;
    assert_eq!(status, 413);
    assert!(json::<AgentFault>(&answer).details.contains("8388608"));
    assert_eq!(rig.call("GET", "/", b"").await.0, 200);
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_faults_too() {
    let rig = Rig::new().await;
    for (method, path, wanted) in [
        ("GET", "/1.0/info", 404),
        ("GET", "/2.0", 404),
        ("DELETE", "/2.0/config", 405),
        ("GET", "/2.0/config", 405),
        ("POST", "/2.0/info", 405),
        ("PUT", "/", 405),
    ] {
        let (status, body) = rig.call(method, path, b"").await;
        assert_eq!(status, wanted, "{method} {path}");
        assert!(json::<AgentFault>(&body).details.contains(path));
    }
}

#[tokio::test]
async fn who_is_not_the_control_plane_is_refused_in_the_handshake() {
    let rig = Rig::new().await;
    let foreign = Authority::new("octavia CA");
    let client = [ExtendedKeyUsagePurpose::ClientAuth];
    let server = [ExtendedKeyUsagePurpose::ServerAuth];
    let amphora = uuid::Uuid::from_u128(0xbad).to_string();
    let both = [
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let cases: [(&str, Identity); 5] = [
        ("no certificate", None),
        (
            "another CA",
            Some(foreign.issue("octavia-controller", &client)),
        ),
        (
            "a server",
            Some(rig.authority.issue("octavia-controller", &server)),
        ),
        (
            "no usage",
            Some(rig.authority.issue("octavia-controller", &[])),
        ),
        ("an amphora", Some(rig.authority.issue(&amphora, &both))),
    ];
    let count = cases.len() as u64;
    for (who, identity) in cases {
        let document = serde_json::to_vec(&samples::document(1)).unwrap();
        let answer = rig.call_as(identity, "PUT", "/2.0/config", &document).await;
        assert!(answer.is_err(), "{who} got {answer:?}");
    }
    assert_eq!(rig.fixture.agent.info().generation, None);
    let stats = rig.fixture.agent.stats().await;
    assert_eq!(stats.verdicts["agent_handshake_refused"], count);
    assert_eq!(rig.call("GET", "/", b"").await.0, 200);
}

#[tokio::test]
async fn plain_text_and_rubbish_do_not_get_past_the_handshake() {
    let rig = Rig::new().await;
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        &[0x16, 3, 1, 0xff, 0xff],
        &[0; 3000],
    ] {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // Closed or reset; at most a TLS alert comes back.
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.len() < 16 && !answer.starts_with(b"HTTP"));
    }
    assert_eq!(rig.call("GET", "/", b"").await.0, 200);
}

#[tokio::test]
async fn tls_1_2_is_refused_where_1_3_is_asked_for() {
    let old = [&rustls::version::TLS12];
    let rig = Rig::new().await;
    assert!(rig.connect(rig.control_plane(), &old).await.is_ok());
    let rig = Rig::with_tls(TlsVersion::V1_3).await;
    assert!(rig.connect(rig.control_plane(), &old).await.is_err());
    assert_eq!(rig.call("GET", "/", b"").await.0, 200);
}

#[tokio::test]
async fn a_document_in_force_in_part_gets_503_with_the_reasons() {
    let rig = Rig::new().await;
    rig.fixture
        .plane
        .outcomes
        .lock()
        .unwrap()
        .push_back(crate::dataplane::Outcome {
            problems: vec!["interface fa:16:3e:00:00:01 is not here".into()],
            ..Default::default()
        });
    let (status, body) = rig.put(&samples::document(1)).await;
    assert_eq!(status, 503);
    assert!(json::<AgentFault>(&body).details.contains("fa:16:3e"));
    // The same document again: in force, and by now as a whole.
    let (status, body) = rig.put(&samples::document(1)).await;
    assert_eq!(status, 200);
    assert!(!json::<ApplyReport>(&body).changed);
}

#[tokio::test]
async fn unusable_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.pem");
    let missing = tls::server_config(&path, &path, TlsVersion::V1_2).unwrap_err();
    assert!(missing.to_string().contains("x.pem"));
    std::fs::write(&path, "rubbish").unwrap();
    let empty = tls::server_config(&path, &path, TlsVersion::V1_2).unwrap_err();
    assert!(matches!(empty, tls::TlsError::Empty { .. }));
}
