//! A request that is routed, read and authenticated.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use lb_drivers::Caller;
use lb_model::Fault;
use lb_model::spec::parse_uuid;
use serde_json::Value;
use uuid::Uuid;

use crate::ApiState;
use crate::fault::{ApiFault, Result};
use crate::once::Once;
use crate::policy::Rule;

pub(crate) struct Request {
    pub(crate) state: ApiState,
    pub(crate) caller: Arc<Caller>,
    /// What the route and method are to policy.
    pub(crate) rule: Option<Rule>,
    /// Path as sent, for links.
    pub(crate) path: String,
    /// Scheme and authority links start with.
    pub(crate) origin: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// Of a create that is to be made once.
    pub(crate) once: Option<Once>,
    /// The body claims to be something else than JSON.
    pub(crate) foreign_content_type: Option<String>,
}

impl Request {
    /// The JSON body of a request that needs one; `root` is what a missing body is reported as.
    pub(crate) fn json(&self, root: &str) -> Result<Value> {
        if self.body.is_empty() {
            return Err(Fault::MissingArgument(root.to_owned()).into());
        }
        if let Some(content_type) = &self.foreign_content_type {
            return Err(ApiFault::resource(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("Unknown mimetype: {content_type}"),
            ));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| Fault::Malformed(error.to_string()).into())
    }

    /// The last value of a query parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// A query parameter that is yes or no; anything else is no.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.parameter(name)
            .and_then(lb_model::spec::lenient_bool)
            .unwrap_or(false)
    }
}

/// An id of a path. What is no UUID is the id of nothing.
pub(crate) fn id<T: From<Uuid>>(
    resource: lb_model::Resource,
    text: &str,
) -> std::result::Result<T, Fault> {
    parse_uuid(text)
        .map(T::from)
        .ok_or_else(|| Fault::not_found(resource, text))
}
