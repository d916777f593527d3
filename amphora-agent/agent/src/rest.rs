//! The REST interface: HTTPS with mutual TLS, in the agent's own network namespace.
//!
//! | call | answer |
//! |---|---|
//! | `GET /` | `{"api_version":"2.0"}` |
//! | `PUT /2.0/config` | what was done |
//! | `GET /2.0/info`, `GET /2.0/stats` | |
//!
//! Promises: nobody without a certificate of our CA gets past the handshake; no request makes the agent hold more
//! than [`MAX_BODY_BYTES`] for it; no more than [`MAX_CONNECTIONS`] connections at once, each with its deadlines. An
//! apply, once begun, is carried through even when the client goes away.

pub mod tls;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use amphora_api::{API_VERSION, AgentFault, AmphoraConfig};
use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, put};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::agent::{Agent, PutError, chain};

/// Largest request body; a document of a thousand members is about 300 KB.
pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;

/// Connections at once, handshakes included; more wait in the kernel's queue.
pub const MAX_CONNECTIONS: usize = 64;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// For a whole request head, and for an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// A bound socket that serves nothing yet.
pub struct Server {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    agent: Arc<Agent>,
}

impl Server {
    pub async fn bind(
        address: SocketAddr,
        tls: Arc<rustls::ServerConfig>,
        agent: Arc<Agent>,
    ) -> std::io::Result<Self> {
        Ok(Server {
            listener: TcpListener::bind(address).await?,
            acceptor: TlsAcceptor::from(tls),
            agent,
        })
    }

    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is dropped.
    pub async fn run(self) -> Infallible {
        let router = router(Arc::clone(&self.agent));
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            // The semaphore is never closed.
            let permit = Arc::clone(&room).acquire_owned().await.ok();
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accept a connection of the control plane");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (acceptor, agent, router) = (
                self.acceptor.clone(),
                Arc::clone(&self.agent),
                router.clone(),
            );
            tokio::spawn(async move {
                serve(acceptor, stream, peer, &agent, router).await;
                drop(permit);
            });
        }
    }
}

async fn serve(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
    agent: &Agent,
    router: Router,
) {
    let _ = stream.set_nodelay(true);
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            agent.refusals.handshakes.fetch_add(1, Relaxed);
            tracing::info!(%peer, %error, "handshake refused");
            return;
        }
        Err(_) => {
            agent.refusals.handshakes.fetch_add(1, Relaxed);
            tracing::info!(%peer, "handshake took too long");
            return;
        }
    };
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%peer, %error, "connection ended");
    }
}

fn router(agent: Arc<Agent>) -> Router {
    Router::new()
        .route("/", get(version))
        .route("/2.0/config", put(put_config))
        .route("/2.0/info", get(info))
        .route("/2.0/stats", get(stats))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(
            Arc::clone(&agent),
            count_refusals,
        ))
        .with_state(agent)
}

async fn count_refusals(State(agent): State<Arc<Agent>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.status().is_client_error() {
        agent.refusals.requests.fetch_add(1, Relaxed);
    }
    response
}

async fn version() -> Response {
    Json(serde_json::json!({ "api_version": API_VERSION })).into_response()
}

async fn info(State(agent): State<Arc<Agent>>) -> Response {
    Json(agent.info()).into_response()
}

async fn stats(State(agent): State<Arc<Agent>>) -> Response {
    Json(agent.stats().await).into_response()
}

async fn put_config(State(agent): State<Arc<Agent>>, body: Body) -> Response {
    let document = match read_document(body).await {
        Ok(document) => document,
        Err(refusal) => return refusal,
    };
    // A task of its own: a client that hangs up does not leave a document half applied.
    let put = tokio::spawn(async move { agent.put_config(document).await }).await;
    match put {
        Ok(Ok(report)) => Json(report).into_response(),
        Ok(Err(error)) => {
            let status = match &error {
                PutError::Invalid(_) => StatusCode::BAD_REQUEST,
                PutError::Older { .. } | PutError::Conflict { .. } => StatusCode::CONFLICT,
                PutError::Ledger(_) => StatusCode::INSUFFICIENT_STORAGE,
                PutError::Incomplete { .. } => StatusCode::SERVICE_UNAVAILABLE,
            };
            let message = match &error {
                PutError::Invalid(_) => "document is not valid",
                PutError::Older { .. } => "document is older than the one in force",
                PutError::Conflict { .. } => "generation is in force with other content",
                PutError::Ledger(_) => "document cannot be stored; the old one stays in force",
                PutError::Incomplete { .. } => "document is in force in part",
            };
            tracing::warn!(error = chain(&error), "document not applied");
            let details = match &error {
                PutError::Invalid(fault) => fault.to_string(),
                PutError::Incomplete { problems, .. } => problems.join("; "),
                PutError::Older { .. } | PutError::Conflict { .. } | PutError::Ledger(_) => {
                    chain(&error)
                }
            };
            fault(status, message, details)
        }
        Err(error) => {
            tracing::error!(%error, "apply ended abnormally");
            fault(
                StatusCode::INTERNAL_SERVER_ERROR,
                "apply ended abnormally",
                String::new(),
            )
        }
    }
}

async fn read_document(body: Body) -> Result<AmphoraConfig, Response> {
    use http_body_util::LengthLimitError;

    let too_large = || {
        fault(
            StatusCode::PAYLOAD_TOO_LARGE,
            "request body is too large",
            format!("at most {MAX_BODY_BYTES} bytes"),
        )
    };
    // Said before it is sent: answer before the client has sent it all.
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    let bytes = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await;
    let bytes = match bytes {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => {
            let limit = std::error::Error::source(&error)
                .is_some_and(|cause| cause.is::<LengthLimitError>());
            return Err(if limit {
                too_large()
            } else {
                fault(
                    StatusCode::BAD_REQUEST,
                    "request body cannot be read",
                    chain(&error),
                )
            });
        }
        Err(_) => {
            return Err(fault(
                StatusCode::REQUEST_TIMEOUT,
                "request body took too long",
                String::new(),
            ));
        }
    };
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    let document = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        fault(
            StatusCode::BAD_REQUEST,
            "request body is not a document",
            error.to_string(),
        )
    })?;
    json.end().map_err(|error| {
        fault(
            StatusCode::BAD_REQUEST,
            "request body is not a document",
            error.to_string(),
        )
    })?;
    Ok(document)
}

async fn not_found(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(200).collect();
    fault(StatusCode::NOT_FOUND, "no such resource", path)
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let path: String = uri.path().chars().take(200).collect();
    fault(
        StatusCode::METHOD_NOT_ALLOWED,
        "method not allowed",
        format!("{method} {path}"),
    )
}

fn fault(status: StatusCode, message: &str, details: String) -> Response {
    let fault = AgentFault {
        message: message.to_owned(),
        details,
    };
    (status, Json(fault)).into_response()
}

#[cfg(test)]
mod tests;
