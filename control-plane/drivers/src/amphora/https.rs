//! The agent's REST interface over mutual TLS, one connection a call.
//!
//! The agent must present a certificate of our server authority with the amphora's id as DNS name; we present the
//! client certificate. Answers are read up to a bound, and a call ends within its time whatever the other side does.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use amphora_api::{AgentFault, AmphoraConfig, AmphoraInfo, AmphoraStats, ApplyReport};
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode, header};
use rustls_pki_types::ServerName;
use serde::de::DeserializeOwned;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{AmphoraDriver, AmphoraError, Endpoint};
use crate::CertificateAuthority;
use crate::http::{ExchangeError, exchange};
use crate::local::{Netns, blocking};

/// An answer may be so long; statistics of a large load balancer are about a tenth of it.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// So much of an answer that is no fault document goes into the error.
const MAX_DETAILS_CHARS: usize = 300;

/// How long a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the TLS handshake is done (`[haproxy_amphora] rest_request_conn_timeout`).
    pub connect: Duration,
    /// The whole call (`[haproxy_amphora] rest_request_read_timeout`).
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            total: Duration::from_secs(30),
        }
    }
}

/// Talks to agents.
#[derive(Debug, Clone)]
pub struct HttpsAmphoraDriver {
    authority: Arc<CertificateAuthority>,
    /// Where sockets are made; `None` is where this process is.
    netns: Option<Netns>,
    timeouts: Timeouts,
}

impl HttpsAmphoraDriver {
    pub fn new(authority: Arc<CertificateAuthority>) -> Self {
        Self {
            authority,
            netns: None,
            timeouts: Timeouts::default(),
        }
    }

    /// Makes its connections inside a network namespace.
    #[must_use]
    pub fn in_netns(self, netns: Netns) -> Self {
        Self {
            netns: Some(netns),
            ..self
        }
    }

    #[must_use]
    pub fn with_timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, ..self }
    }

    async fn call<T: DeserializeOwned>(
        &self,
        endpoint: &Endpoint,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, AmphoraError> {
        let address = endpoint.address;
        let timed_out = |operation| AmphoraError::TimedOut { operation, address };
        let whole_call = async {
            let stream = tokio::time::timeout(self.timeouts.connect, self.connect(endpoint))
                .await
                .map_err(|_| timed_out("connect"))??;
            self.exchange(endpoint, stream, method, path, body).await
        };
        let (status, answer) = tokio::time::timeout(self.timeouts.total, whole_call)
            .await
            .map_err(|_| timed_out("answer"))??;
        if status.is_success() {
            serde_json::from_slice(&answer).map_err(|error| AmphoraError::Protocol {
                address,
                reason: error.to_string(),
            })
        } else {
            Err(refusal(status, &answer))
        }
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<TlsStream<TcpStream>, AmphoraError> {
        let address = endpoint.address;
        let socket = self.socket(endpoint).await?;
        let stream = socket
            .connect(address)
            .await
            .map_err(|source| AmphoraError::Unreachable { address, source })?;
        // Requests are written whole; nothing is gained by waiting for more. A failure costs time only.
        let _ = stream.set_nodelay(true);
        let config = self
            .authority
            .client_config()
            .map_err(|error| AmphoraError::Local {
                reason: error.to_string(),
            })?;
        let name = ServerName::try_from(endpoint.amphora_id.to_string()).map_err(|error| {
            AmphoraError::Local {
                reason: error.to_string(),
            }
        })?;
        TlsConnector::from(config)
            .connect(name, stream)
            .await
            .map_err(|source| connection_error(endpoint, source))
    }

    async fn socket(&self, endpoint: &Endpoint) -> Result<TcpSocket, AmphoraError> {
        let local = |reason: String| AmphoraError::Local { reason };
        let v4 = endpoint.address.is_ipv4();
        let make = move || {
            if v4 {
                TcpSocket::new_v4()
            } else {
                TcpSocket::new_v6()
            }
        };
        match self.netns.clone() {
            None => make().map_err(|error| local(error.to_string())),
            Some(netns) => blocking(move || netns.run_in(make))
                .await
                .map_err(|error| local(crate::error::chain(&error)))?
                .map_err(|error| local(error.to_string())),
        }
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        stream: TlsStream<TcpStream>,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), AmphoraError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, endpoint.amphora_id.to_string())
            .header(
                header::USER_AGENT,
                concat!("octavia-control-plane/", env!("CARGO_PKG_VERSION")),
            )
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| AmphoraError::Local {
                reason: error.to_string(),
            })?;
        let answer =
            exchange(stream, request, MAX_ANSWER_BYTES)
                .await
                .map_err(|error| match error {
                    ExchangeError::Http(error) => http_error(endpoint, error),
                    error @ ExchangeError::TooLong { .. } => AmphoraError::Protocol {
                        address: endpoint.address,
                        reason: error.to_string(),
                    },
                })?;
        Ok((answer.status(), answer.into_body()))
    }
}

#[async_trait]
impl AmphoraDriver for HttpsAmphoraDriver {
    async fn put_config(
        &self,
        endpoint: &Endpoint,
        config: &AmphoraConfig,
    ) -> Result<ApplyReport, AmphoraError> {
        let body = serde_json::to_vec(config).map_err(|error| AmphoraError::Local {
            reason: error.to_string(),
        })?;
        self.call(endpoint, Method::PUT, "/2.0/config", body).await
    }

    async fn info(&self, endpoint: &Endpoint) -> Result<AmphoraInfo, AmphoraError> {
        self.call(endpoint, Method::GET, "/2.0/info", Vec::new())
            .await
    }

    async fn stats(&self, endpoint: &Endpoint) -> Result<AmphoraStats, AmphoraError> {
        self.call(endpoint, Method::GET, "/2.0/stats", Vec::new())
            .await
    }
}

fn refusal(status: StatusCode, answer: &[u8]) -> AmphoraError {
    let fault = serde_json::from_slice::<AgentFault>(answer).unwrap_or_else(|_| AgentFault {
        message: status
            .canonical_reason()
            .unwrap_or("unknown status")
            .to_owned(),
        details: String::from_utf8_lossy(answer)
            .chars()
            .filter(|character| !character.is_control())
            .take(MAX_DETAILS_CHARS)
            .collect(),
    });
    match status.as_u16() {
        409 => AmphoraError::OutOfDate { fault },
        status @ 400..=499 => AmphoraError::Refused { status, fault },
        status => AmphoraError::Failed { status, fault },
    }
}

/// With TLS 1.3 a server that refuses our certificate says so only when we read from it.
fn http_error(endpoint: &Endpoint, error: hyper::Error) -> AmphoraError {
    let address = endpoint.address;
    if error.is_parse() || error.is_parse_status() {
        return AmphoraError::Protocol {
            address,
            reason: error.to_string(),
        };
    }
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        if let Some(inner) = inner.downcast_ref::<io::Error>() {
            // The original is borrowed; kind and text are what can be kept of it.
            let source = io::Error::new(inner.kind(), inner.to_string());
            return if is_tls(inner) {
                AmphoraError::Handshake { address, source }
            } else {
                AmphoraError::Unreachable { address, source }
            };
        }
        cause = inner.source();
    }
    AmphoraError::Unreachable {
        address,
        source: io::Error::new(io::ErrorKind::ConnectionAborted, error.to_string()),
    }
}

/// Tells a failed handshake from a lost connection: only the former has a TLS error within.
fn connection_error(endpoint: &Endpoint, source: io::Error) -> AmphoraError {
    let address = endpoint.address;
    if is_tls(&source) {
        AmphoraError::Handshake { address, source }
    } else {
        AmphoraError::Unreachable { address, source }
    }
}

fn is_tls(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

#[cfg(test)]
mod tests;
