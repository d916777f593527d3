//! Cross-origin requests of browsers: the headers that let a page of another origin use the API.
//!
//! As oslo.middleware's CORS filter: what is not allowed is answered without the headers, and the browser refuses it.
//! A preflight is answered before anything else looks at the request.

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::fault::empty;

/// `[cors]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsConfig {
    /// `allowed_origin`: `scheme://host[:port]` as browsers send it, or `*` for any. None: no page may.
    pub allowed_origins: Vec<String>,
    /// `allow_credentials`; never with `*`.
    pub allow_credentials: bool,
    /// `max_age`: seconds a browser may remember a preflight.
    pub max_age_s: u32,
    /// `allow_methods`, besides those that every page may use.
    pub allow_methods: Vec<String>,
    /// `allow_headers`, besides those that every page may send.
    pub allow_headers: Vec<String>,
    /// `expose_headers`
    pub expose_headers: Vec<String>,
}

impl Default for CorsConfig {
    fn default() -> Self {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self {
            allowed_origins: Vec::new(),
            allow_credentials: true,
            max_age_s: 3600,
            allow_methods: words(&["GET", "PUT", "POST", "DELETE"]),
            allow_headers: words(&["X-Auth-Token", "X-Openstack-Request-Id", "Idempotency-Key"]),
            expose_headers: words(&["X-Auth-Token", "X-Openstack-Request-Id"]),
        }
    }
}

/// Methods and headers that a page may use unasked.
const SIMPLE_METHODS: [&str; 3] = ["GET", "HEAD", "POST"];
const SIMPLE_HEADERS: [&str; 8] = [
    "Accept",
    "Accept-Language",
    "Content-Type",
    "Cache-Control",
    "Content-Language",
    "Expires",
    "Last-Modified",
    "Pragma",
];

impl CorsConfig {
    /// The answer to `OPTIONS`: always 200 and empty.
    pub(crate) fn preflight(&self, asked: &HeaderMap) -> Response<Body> {
        let mut response = empty(StatusCode::OK);
        if let Some(allowed) = self.allow(asked) {
            response.headers_mut().extend(allowed);
        }
        response
    }

    /// The headers a preflight asks for; `None` when it asks for something that is not allowed.
    fn allow(&self, asked: &HeaderMap) -> Option<HeaderMap> {
        let mut headers = self.origin_headers(asked)?;
        let method = asked.get(ACCESS_CONTROL_REQUEST_METHOD)?;
        let may_use = |allowed: &[String], simple: &[&str], word: &str| {
            let allowed = allowed.iter().map(String::as_str);
            allowed
                .chain(simple.iter().copied())
                .any(|allowed| allowed.eq_ignore_ascii_case(word))
        };
        if !may_use(&self.allow_methods, &SIMPLE_METHODS, method.to_str().ok()?) {
            return None;
        }
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, method.clone());
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(self.max_age_s));
        if let Some(wanted) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            let names = wanted.to_str().ok()?.split(',').map(str::trim);
            let mut names = names.filter(|name| !name.is_empty());
            if !names.all(|name| may_use(&self.allow_headers, &SIMPLE_HEADERS, name)) {
                return None;
            }
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        Some(headers)
    }

    /// What any answer to a page of an allowed origin carries besides.
    pub(crate) fn answer_headers(&self, asked: &HeaderMap) -> Option<HeaderMap> {
        let mut headers = self.origin_headers(asked)?;
        if let Ok(exposed) = HeaderValue::from_str(&self.expose_headers.join(",")) {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
        Some(headers)
    }

    /// `None`: no page asks, or one that may not.
    fn origin_headers(&self, asked: &HeaderMap) -> Option<HeaderMap> {
        let origin = asked.get(ORIGIN)?;
        let known = |name: &[u8]| {
            let origins = self.allowed_origins.iter();
            origins.map(String::as_bytes).any(|origin| origin == name)
        };
        let mut headers = HeaderMap::new();
        let mut put = |name: HeaderName, value: HeaderValue| {
            headers.insert(name, value);
        };
        if known(origin.as_bytes()) {
            put(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            put(VARY, HeaderValue::from_static("Origin"));
            if self.allow_credentials {
                put(
                    ACCESS_CONTROL_ALLOW_CREDENTIALS,
                    HeaderValue::from_static("true"),
                );
            }
        } else if known(b"*") {
            put(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        } else {
            return None;
        }
        Some(headers)
    }
}
