//! The one place where errors become answers. `docs/errors.md` lists them.

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use lb_drivers::{DriverError, IdentityError};
use lb_model::{Fault, FaultKind};
use lb_store::StoreError;
use serde_json::{Value, json};

use crate::audit::CreatedId;
use crate::policy::Rule;

/// An answer that is not the one asked for.
#[derive(Debug)]
pub(crate) struct ApiFault {
    status: StatusCode,
    body: Shape,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// The bodies an error can have.
#[derive(Debug)]
enum Shape {
    /// `{"faultcode","faultstring","debuginfo"}`: from within a resource.
    Resource(String),
    /// `{"code","title","description"}`: from routing, or before a resource is reached.
    Routing(&'static str, String),
    /// `{"error":{"code","title","message"}}`: from the identity layer.
    Identity(String),
    /// `{"NeutronError":{"type","message","detail"}}`: from the network look-ups.
    Network(&'static str, String),
    Text(&'static str),
}

pub(crate) type Result<T> = std::result::Result<T, ApiFault>;

impl ApiFault {
    fn new(status: StatusCode, body: Shape) -> Self {
        Self {
            status,
            body,
            headers: Vec::new(),
        }
    }

    pub(crate) fn resource(status: StatusCode, text: impl Into<String>) -> Self {
        Self::new(status, Shape::Resource(text.into()))
    }

    pub(crate) fn routing(status: StatusCode, description: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self::new(status, Shape::Routing(title, description.into()))
    }

    /// A missing parent in a nested path: 404 under the title of a bad request, as Octavia has it.
    pub(crate) fn missing_parent(name: &str, id: &str) -> Self {
        let id: String = id.chars().take(255).collect();
        Self::new(
            StatusCode::NOT_FOUND,
            Shape::Routing("Bad Request", format!("{name} {id} not found.")),
        )
    }

    pub(crate) fn unknown_path() -> Self {
        Self::routing(StatusCode::NOT_FOUND, "The resource could not be found.")
    }

    pub(crate) fn method_not_allowed(method: &Method, allowed: &[Method]) -> Self {
        let mut fault = Self::routing(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("The method {method} is not allowed for this resource."),
        );
        let names: Vec<&str> = allowed.iter().map(Method::as_str).collect();
        if let Ok(value) = HeaderValue::from_str(&names.join(", ")) {
            fault.headers.push((ALLOW, value));
        }
        fault
    }

    pub(crate) fn too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            Shape::Text("Request is too large."),
        )
    }

    /// Where there is no JSON.
    pub(crate) fn method_not_allowed_as_text(allowed: &[Method]) -> Self {
        let mut fault = Self::method_not_allowed(&Method::GET, allowed);
        fault.body = Shape::Text("Method Not Allowed");
        fault
    }

    /// Names the rule, so that who is refused knows what to ask for.
    pub(crate) fn forbidden(rule: Option<Rule>) -> Self {
        let text = "Policy does not allow this request to be performed.";
        Self::resource(
            StatusCode::FORBIDDEN,
            match rule {
                Some(rule) => format!("{text} It needs {}.", rule.name()),
                None => text.to_owned(),
            },
        )
    }

    pub(crate) fn network_not_found(kind: &'static str, id: &str) -> Self {
        let noun = kind.trim_end_matches("NotFound");
        Self::new(
            StatusCode::NOT_FOUND,
            Shape::Network(kind, format!("{noun} {id} could not be found.")),
        )
    }

    pub(crate) fn network_invalid(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            Shape::Network("InvalidInput", message.into()),
        )
    }

    /// Try again soon.
    fn unavailable(text: &str) -> Self {
        let mut fault = Self::resource(StatusCode::SERVICE_UNAVAILABLE, text);
        fault
            .headers
            .push((RETRY_AFTER, HeaderValue::from_static("1")));
        fault
    }

    /// The cause is logged here, where it is handled, and not shown.
    fn internal(error: &dyn std::error::Error) -> Self {
        tracing::error!(error = %Chain(error), "request failed");
        Self::resource(
            StatusCode::INTERNAL_SERVER_ERROR,
            "An unexpected error occurred; it has been logged.",
        )
    }

    pub(crate) const fn has_request_id(&self) -> bool {
        !matches!(self.body, Shape::Text(_) | Shape::Identity(_))
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let code = self.status.as_u16();
        let (content_type, body) = match self.body {
            Shape::Resource(text) => {
                let faultcode = if self.status.is_server_error() {
                    "Server"
                } else {
                    "Client"
                };
                json_body(&json!({"faultcode": faultcode, "faultstring": text, "debuginfo": null}))
            }
            Shape::Routing(title, description) => {
                json_body(&json!({"code": code, "title": title, "description": description}))
            }
            Shape::Identity(message) => json_body(&json!({"error": {
                "code": code,
                "title": self.status.canonical_reason().unwrap_or("Error"),
                "message": message,
            }})),
            Shape::Network(kind, message) => json_body(
                &json!({"NeutronError": {"type": kind, "message": message, "detail": ""}}),
            ),
            Shape::Text(text) => ("text/plain", text.to_owned()),
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.headers);
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    }
}

fn json_body(value: &Value) -> (&'static str, String) {
    ("application/json", value.to_string())
}

/// A JSON answer; one of 201 is `{"<root>": {"id": …}}`, or has a name where that is what the object is known by.
pub(crate) fn answer(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    if status == StatusCode::CREATED
        && let Some(created) = value.as_object().and_then(|root| root.values().next())
        && let Some(id) = created["id"].as_str().or(created["name"].as_str())
    {
        response.extensions_mut().insert(CreatedId(id.to_owned()));
    }
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    if status != StatusCode::NO_CONTENT {
        response
            .headers_mut()
            .insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    response
}

impl From<Fault> for ApiFault {
    fn from(fault: Fault) -> Self {
        let status = match fault.kind() {
            FaultKind::Invalid => StatusCode::BAD_REQUEST,
            FaultKind::Forbidden => StatusCode::FORBIDDEN,
            FaultKind::NotFound => StatusCode::NOT_FOUND,
            FaultKind::Conflict => StatusCode::CONFLICT,
            FaultKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        };
        Self::resource(status, fault.to_string())
    }
}

impl From<StoreError> for ApiFault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UnknownColumn(_) | StoreError::InvalidFilter { .. } => Self::resource(
                StatusCode::BAD_REQUEST,
                "One or more arguments are either duplicate or invalid",
            ),
            StoreError::UnknownMarker(_) => invalid_marker(),
            unknown @ StoreError::OutcomeUnknown(_) => {
                tracing::warn!(error = %Chain(&unknown), "database was lost in a commit");
                Self::unavailable(
                    "The database was lost while it wrote the change; look whether it is there before trying again.",
                )
            }
            StoreError::BrokenReference => Self::resource(
                StatusCode::CONFLICT,
                "An object named in the request was removed meanwhile.",
            ),
            StoreError::QuotaReached(resource) => Fault::QuotaReached(resource).into(),
            StoreError::KeyUsed => Self::resource(
                StatusCode::CONFLICT,
                "Another request has used the Idempotency-Key meanwhile.",
            ),
            other if other.is_transient() => {
                tracing::warn!(error = %Chain(&other), "database is away or busy");
                Self::unavailable("The database is busy or away; try again.")
            }
            other => Self::internal(&other),
        }
    }
}

pub(crate) fn invalid_marker() -> ApiFault {
    ApiFault::resource(
        StatusCode::BAD_REQUEST,
        "Supplied pagination marker is not valid.",
    )
}

impl From<DriverError> for ApiFault {
    fn from(error: DriverError) -> Self {
        let invalid = |error: &DriverError| {
            Self::resource(
                StatusCode::BAD_REQUEST,
                format!("Validation failure: {error}."),
            )
        };
        let unknown = |resource, id: String| Fault::InvalidReference { resource, id }.into();
        match error {
            DriverError::AddressInUse { address } => Fault::AddressInUse(address).into(),
            DriverError::PortConflict { .. } => {
                Self::resource(StatusCode::CONFLICT, error.to_string())
            }
            DriverError::AddressOutsideSubnet { .. } | DriverError::NoFreeAddress { .. } => {
                invalid(&error)
            }
            DriverError::UnknownNetwork(id) => unknown("Network", id.to_string()),
            DriverError::UnknownSubnet(id) => unknown("Subnet", id.to_string()),
            DriverError::UnknownPort(id) => unknown("Port", id.to_string()),
            other if other.is_transient() => {
                tracing::warn!(error = %Chain(&other), "network service is away");
                Self::unavailable("The network service does not answer; try again.")
            }
            other => Self::internal(&other),
        }
    }
}

impl From<IdentityError> for ApiFault {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::Unauthenticated { challenge } => {
                let mut fault = Self::new(
                    StatusCode::UNAUTHORIZED,
                    Shape::Identity(
                        "The request you have made requires authentication.".to_owned(),
                    ),
                );
                let challenge = HeaderValue::from_str(&challenge)
                    .unwrap_or(HeaderValue::from_static("Keystone"));
                fault.headers.push((WWW_AUTHENTICATE, challenge));
                fault
            }
            IdentityError::Unavailable { .. } => {
                tracing::warn!(error = %Chain(&error), "identity service is away");
                Self::unavailable("The identity service does not answer; try again.")
            }
        }
    }
}

/// An error with its causes, on one line.
pub(crate) struct Chain<'a>(pub(crate) &'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
