//! Calls to Keystone: a token of our own, and what it says of others' tokens.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::KeystoneConfig;
use super::token::Token;
use crate::Secret;
use crate::http::{CallError, Service, ServiceError};

const SUBJECT_TOKEN: HeaderName = HeaderName::from_static("x-subject-token");
const AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// A token document without its catalog is some kilobytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// Before the first retry of a failed connection; doubled with each further one.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// The own token is renewed so long before it expires, or when nine tenths of its life are over.
const RENEWAL_MARGIN: Duration = Duration::from_secs(120);
/// After a refusal the service user does not try again for so long, lest its account be locked.
const REFUSAL_PAUSE: Duration = Duration::from_secs(5);

pub(super) struct Client {
    service: Service,
    /// Path of the tokens.
    path: String,
    credentials: Secret,
    retries: u32,
    /// Held while a token is fetched, so that one is.
    own: tokio::sync::Mutex<Own>,
}

/// What is known of the own token.
enum Own {
    Absent,
    Present {
        token: HeaderValue,
        renew_at: Instant,
    },
    Refused {
        until: Instant,
        status: StatusCode,
    },
}

/// What Keystone says of a token.
pub(super) enum Question {
    Valid(Token),
    Invalid,
}

/// Why Keystone did not say.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error(transparent)]
    Call(#[from] CallError),

    /// Credentials or project of the service user are wrong.
    #[error("the service user gets no token: status {0}")]
    ServiceUserRefused(StatusCode),

    /// It has no role that may validate tokens.
    #[error("the service user may not validate tokens: status {0}")]
    NotAllowed(StatusCode),

    #[error("validate a token: status {0}")]
    Status(StatusCode),

    #[error("fetch a token for the service user: status {0}")]
    AuthenticationStatus(StatusCode),

    #[error("{0}")]
    Document(String),

    #[error("build a request")]
    Request(#[from] hyper::http::Error),
}

impl Client {
    pub(super) fn new(config: &KeystoneConfig) -> Result<Self, ServiceError> {
        let service = Service::new(
            &config.auth_url,
            config.cafile.as_deref(),
            config.http_connect_timeout,
        )?;
        let prefix = service.prefix();
        let path = if prefix.ends_with("/v3") {
            format!("{prefix}/auth/tokens")
        } else {
            format!("{prefix}/v3/auth/tokens")
        };
        Ok(Self {
            service,
            path,
            credentials: config.credentials.request(),
            retries: config.http_request_max_retries,
            own: tokio::sync::Mutex::new(Own::Absent),
        })
    }

    /// `token` is printable ASCII.
    pub(super) async fn validate(&self, token: &str) -> Result<Question, ClientError> {
        let subject = sensitive(token)?;
        let mut own = self.own_token(None).await?;
        let mut answer = self.ask(&own, &subject).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            // Revoked, or Keystone's keys changed: once more with a new one.
            own = self.own_token(Some(&own)).await?;
            answer = self.ask(&own, &subject).await?;
        }
        match answer.status() {
            StatusCode::OK => Token::parse(answer.body())
                .map(Question::Valid)
                .map_err(ClientError::Document),
            StatusCode::NOT_FOUND => Ok(Question::Invalid),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(ClientError::NotAllowed(status))
            }
            status => Err(ClientError::Status(status)),
        }
    }

    async fn ask(
        &self,
        own: &HeaderValue,
        subject: &HeaderValue,
    ) -> Result<Response<Bytes>, ClientError> {
        let request = || {
            self.request(Method::GET, &format!("{}?nocatalog", self.path))
                .header(AUTH_TOKEN, own)
                .header(SUBJECT_TOKEN, subject)
                .body(Full::default())
        };
        self.send(request).await
    }

    /// The token in use, but not `refused`.
    async fn own_token(&self, refused: Option<&HeaderValue>) -> Result<HeaderValue, ClientError> {
        let mut own = self.own.lock().await;
        let now = Instant::now();
        match &*own {
            Own::Present { token, renew_at } if now < *renew_at && Some(token) != refused => {
                return Ok(token.clone());
            }
            Own::Refused { until, status } if now < *until => {
                return Err(ClientError::ServiceUserRefused(*status));
            }
            Own::Absent | Own::Present { .. } | Own::Refused { .. } => {}
        }
        match self.fetch().await {
            Ok((token, renew_at)) => {
                *own = Own::Present {
                    token: token.clone(),
                    renew_at,
                };
                Ok(token)
            }
            Err(error) => {
                if let ClientError::ServiceUserRefused(status) = error {
                    *own = Own::Refused {
                        until: now + REFUSAL_PAUSE,
                        status,
                    };
                }
                Err(error)
            }
        }
    }

    async fn fetch(&self) -> Result<(HeaderValue, Instant), ClientError> {
        let request = || {
            self.request(Method::POST, &format!("{}?nocatalog", self.path))
                .header(header::CONTENT_TYPE, "application/json")
                .body(Full::from(self.credentials.expose().to_owned()))
        };
        let answer = self.send(request).await?;
        match answer.status() {
            StatusCode::CREATED | StatusCode::OK => {}
            status @ (StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::BAD_REQUEST) => return Err(ClientError::ServiceUserRefused(status)),
            status => return Err(ClientError::AuthenticationStatus(status)),
        }
        let mut token = answer
            .headers()
            .get(SUBJECT_TOKEN)
            .cloned()
            .ok_or_else(|| {
                ClientError::Document(
                    "the service user's token is missing in the answer".to_owned(),
                )
            })?;
        token.set_sensitive(true);
        let left = Token::parse(answer.body())
            .map_err(ClientError::Document)?
            .time_left();
        let margin = RENEWAL_MARGIN.min(left / 10);
        Ok((token, Instant::now() + left.saturating_sub(margin)))
    }

    fn request(&self, method: Method, path: &str) -> hyper::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, "application/json")
            .header(
                header::USER_AGENT,
                concat!("octavia-control-plane/", env!("CARGO_PKG_VERSION")),
            )
    }

    /// Tries again when no connection is made; a request that was sent is not repeated.
    async fn send<F>(&self, request: F) -> Result<Response<Bytes>, ClientError>
    where
        F: Fn() -> Result<Request<Full<Bytes>>, hyper::http::Error>,
    {
        let mut delay = RETRY_DELAY;
        for _ in 0..self.retries {
            match self.service.call(request()?, MAX_ANSWER_BYTES).await {
                Err(CallError::Connect { .. } | CallError::ConnectTimeout { .. }) => {
                    tokio::time::sleep(delay).await;
                    delay = delay.saturating_mul(2);
                }
                answered => return Ok(answered?),
            }
        }
        Ok(self.service.call(request()?, MAX_ANSWER_BYTES).await?)
    }
}

fn sensitive(token: &str) -> Result<HeaderValue, ClientError> {
    let mut value = HeaderValue::from_str(token).map_err(hyper::http::Error::from)?;
    value.set_sensitive(true);
    Ok(value)
}
