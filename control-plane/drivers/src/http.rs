//! One HTTP exchange at a time, bounded in size and time, over TCP or TLS.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where distributions keep the authorities they trust.
const SYSTEM_BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("exchange with the server")]
    Http(#[from] hyper::Error),

    #[error("the answer is longer than {limit} bytes")]
    TooLong { limit: usize },
}

/// Sends a request on a fresh connection and reads the whole answer, up to `limit` bytes of it.
pub(crate) async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<Response<Bytes>, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let _driven = AbortOnDrop(tokio::spawn(async move {
        // What goes wrong shows in the exchange.
        let _ = connection.await;
    }));
    read(sender.send_request(request).await?, limit).await
}

async fn read(answer: Response<Incoming>, limit: usize) -> Result<Response<Bytes>, ExchangeError> {
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, limit).collect().await.map_err(|error| {
        match error.downcast::<hyper::Error>() {
            Ok(error) => ExchangeError::Http(*error),
            Err(_) => ExchangeError::TooLong { limit },
        }
    })?;
    Ok(Response::from_parts(parts, body.to_bytes()))
}

/// Ends the connection's task with the call it serves.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A web service: where it is and whom to trust there.
pub(crate) struct Service {
    host: String,
    port: u16,
    /// Path that all requests begin with, without a slash at its end.
    prefix: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    connect_timeout: Duration,
}

/// Why a service cannot be called at all.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("{url}: not a URL of the form http[s]://host[:port][/path]")]
    Url { url: String },

    #[error("read the certificate authorities in {path}")]
    Authorities {
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    #[error("{path} holds no usable certificate authority")]
    NoAuthorities { path: PathBuf },

    #[error("no bundle of certificate authorities was found on this machine; name one")]
    NoBundle,

    #[error("set up TLS")]
    Tls(#[from] rustls::Error),
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("connect to {host}:{port}")]
    Connect {
        host: String,
        port: u16,
        #[source]
        source: io::Error,
    },

    #[error("connect to {host}:{port}: no answer within {limit:?}")]
    ConnectTimeout {
        host: String,
        port: u16,
        limit: Duration,
    },

    #[error(transparent)]
    Exchange(#[from] ExchangeError),
}

impl Service {
    /// `cafile` stands instead of the system's authorities.
    pub(crate) fn new(
        url: &str,
        cafile: Option<&Path>,
        connect_timeout: Duration,
    ) -> Result<Self, ServiceError> {
        let malformed = || ServiceError::Url {
            url: url.to_owned(),
        };
        let uri: Uri = url.parse().map_err(|_| malformed())?;
        let authority = uri.authority().ok_or_else(malformed)?;
        let host = authority.host();
        if host.is_empty() || authority.as_str().contains('@') || uri.query().is_some() {
            return Err(malformed());
        }
        // An IPv6 address stands in brackets in a URL, and nowhere else.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let (tls, default_port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => {
                let name = ServerName::try_from(host.to_owned()).map_err(|_| malformed())?;
                (Some((connector(cafile)?, name)), 443)
            }
            _ => return Err(malformed()),
        };
        Ok(Self {
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(default_port),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            tls,
            connect_timeout,
        })
    }

    /// Path that all requests begin with, without a slash at its end.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Value of the `Host` header.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// One request on a connection of its own. The caller bounds the time of the exchange.
    pub(crate) async fn call(
        &self,
        mut request: Request<Full<Bytes>>,
        limit: usize,
    ) -> Result<Response<Bytes>, CallError> {
        let headers = request.headers_mut();
        if let Ok(host) = header::HeaderValue::from_str(&self.authority()) {
            headers.insert(header::HOST, host);
        }
        headers.insert(
            header::CONNECTION,
            header::HeaderValue::from_static("close"),
        );
        let failed = |source| CallError::Connect {
            host: self.host.clone(),
            port: self.port,
            source,
        };
        let connect = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            // Requests are written whole; nothing is gained by waiting for more. A failure costs time only.
            let _ = stream.set_nodelay(true);
            match &self.tls {
                None => Ok(Stream::Plain(stream)),
                Some((connector, name)) => connector
                    .connect(name.clone(), stream)
                    .await
                    .map(|stream| Stream::Tls(Box::new(stream))),
            }
        };
        let stream = tokio::time::timeout(self.connect_timeout, connect)
            .await
            .map_err(|_| CallError::ConnectTimeout {
                host: self.host.clone(),
                port: self.port,
                limit: self.connect_timeout,
            })?
            .map_err(failed)?;
        Ok(match stream {
            Stream::Plain(stream) => exchange(stream, request, limit).await?,
            Stream::Tls(stream) => exchange(*stream, request, limit).await?,
        })
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

fn connector(cafile: Option<&Path>) -> Result<TlsConnector, ServiceError> {
    let path = match cafile {
        Some(path) => path,
        None => SYSTEM_BUNDLES
            .iter()
            .map(Path::new)
            .find(|path| path.exists())
            .ok_or(ServiceError::NoBundle)?,
    };
    let text = std::fs::read(path).map_err(|source| ServiceError::Authorities {
        path: path.to_owned(),
        source,
    })?;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok);
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(ServiceError::NoAuthorities {
            path: path.to_owned(),
        });
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(url: &str) -> Result<Service, ServiceError> {
        Service::new(url, None, Duration::from_secs(1))
    }

    #[test]
    fn a_url_is_taken_apart_into_host_port_and_prefix() {
        for (url, authority, prefix) in [
            ("http://keystone", "keystone:80", ""),
            ("http://keystone:5000/", "keystone:5000", ""),
            ("http://cloud/identity/v3/", "cloud:80", "/identity/v3"),
            ("http://[::1]:5000/v3", "[::1]:5000", "/v3"),
        ] {
            let service = service(url).unwrap();
            assert_eq!(service.authority(), authority, "{url}");
            assert_eq!(service.prefix(), prefix, "{url}");
            assert!(service.tls.is_none(), "{url}");
        }
    }

    #[test]
    fn what_is_no_url_of_a_web_service_is_refused_by_name() {
        for url in [
            "",
            "keystone:5000",
            "/v3",
            "ftp://keystone",
            "http://",
            "http://user:secret@keystone",
            "http://keystone/?x=1",
        ] {
            let error = service(url).err().unwrap();
            assert!(matches!(error, ServiceError::Url { .. }), "{url}: {error}");
        }
    }

    #[test]
    fn a_file_without_an_authority_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        let make = || Service::new("https://keystone", Some(&path), Duration::from_secs(1));
        assert!(matches!(
            make().err(),
            Some(ServiceError::Authorities { .. })
        ));
        std::fs::write(&path, "no certificate").unwrap();
        assert!(matches!(
            make().err(),
            Some(ServiceError::NoAuthorities { .. })
        ));
    }
}
