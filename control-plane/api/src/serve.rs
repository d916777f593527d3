//! From an HTTP request to an answer: routing, negotiation, size, identity, request id.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use lb_model::Fault;
use tracing::Instrument;
use uuid::Uuid;

use crate::fault::{ApiFault, Result};
use crate::healthcheck::Health;
use crate::request::Request;
use crate::{ApiState, Route, RouteKind, once, query_string, v2};

/// Bytes; as `oslo_middleware.max_request_body_size`.
const MAX_BODY: usize = 114_688;
/// A body that takes longer is given up.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
const REQUEST_ID: &str = "x-openstack-request-id";

/// The whole API as one service.
pub fn router(state: ApiState) -> Router {
    let service = Service {
        state,
        health: Health::default(),
    };
    Router::new().fallback(serve).with_state(service)
}

/// The API, and what it last found of its own health.
#[derive(Clone)]
struct Service {
    state: ApiState,
    health: Health,
}

async fn serve(
    State(service): State<Service>,
    request: axum::http::Request<Body>,
) -> Response<Body> {
    let cors = &service.state.config.cors;
    if request.method() == Method::OPTIONS {
        return cors.preflight(request.headers());
    }
    let cors_headers = cors.answer_headers(request.headers());
    let request_id = format!("req-{}", Uuid::new_v4());
    let span = tracing::info_span!(
        "request",
        request_id,
        method = %request.method(),
        path = request.uri().path(),
        global_request_id = global_request_id(request.headers()),
    );
    let result = respond(service, request).instrument(span.clone()).await;
    let (mut response, tagged) = match result {
        Ok(response) => (response, true),
        Err(fault) => {
            let tagged = fault.has_request_id();
            (fault.into_response(), tagged)
        }
    };
    span.in_scope(|| tracing::debug!(status = response.status().as_u16(), "answered"));
    if tagged && let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
        .headers_mut()
        .extend(cors_headers.into_iter().flatten());
    response
}

/// The id a caller gave to a chain of requests.
fn global_request_id(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|id| id.starts_with("req-") && id.len() <= 64)
}

async fn respond(service: Service, request: axum::http::Request<Body>) -> Result<Response<Body>> {
    let Service { state, health } = service;
    let (parts, body) = request.into_parts();
    let body = read(body).await?;
    let route = Route::parse(parts.uri.path())
        .filter(|route| !route.is_network_service() || state.config.serve_network_lookups);
    if route == Some(Route::Healthcheck) {
        let config = state.config.healthcheck.as_ref();
        let config = config.ok_or_else(ApiFault::unknown_path)?;
        let methods = Route::Healthcheck.methods();
        if !methods.contains(&parts.method) {
            return Err(ApiFault::method_not_allowed_as_text(methods));
        }
        let (method, headers) = (&parts.method, &parts.headers);
        return Ok(health.answer(config, &state.store, method, headers).await);
    }
    let authenticates = route.as_ref().is_none_or(Route::needs_authentication);
    let caller = if authenticates {
        let token = parts
            .headers
            .get("x-auth-token")
            .and_then(|value| value.to_str().ok());
        state.identity.authenticate(token).await?
    } else {
        lb_drivers::Caller {
            user_id: None,
            project_id: None,
            roles: Vec::new(),
            is_admin: false,
        }
    };
    let route = route.ok_or_else(ApiFault::unknown_path)?;
    check_accept(&parts.headers)?;
    check_method(&route, &parts.method)?;
    let request = Request {
        origin: origin(&state, &parts.headers),
        caller,
        path: parts.uri.path().to_owned(),
        query: parts
            .uri
            .query()
            .map(query_string::parse)
            .unwrap_or_default(),
        foreign_content_type: foreign_content_type(&parts.headers),
        once: match parts.method {
            Method::POST => once::read(&parts.headers, &route, &body)?,
            _ => None,
        },
        body,
        state,
    };
    v2::handle(&request, &route, &parts.method).await
}

async fn read(body: Body) -> Result<Bytes> {
    let limited = Limited::new(body, MAX_BODY).collect();
    match tokio::time::timeout(BODY_TIMEOUT, limited).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => {
            Err(ApiFault::too_large())
        }
        Ok(Err(_)) => Err(ApiFault::routing(
            StatusCode::BAD_REQUEST,
            "The request body could not be read.",
        )),
        Err(_) => Err(ApiFault::routing(
            StatusCode::REQUEST_TIMEOUT,
            "The request body did not arrive in time.",
        )),
    }
}

/// Absent, empty, or anything that takes JSON.
fn check_accept(headers: &HeaderMap) -> Result<()> {
    let mut given = false;
    for value in headers.get_all(ACCEPT) {
        let text = value.to_str().unwrap_or_default();
        for range in text.split(',') {
            let range = range.split(';').next().unwrap_or_default().trim();
            if range.is_empty() {
                continue;
            }
            given = true;
            if ["*/*", "application/*", "application/json"]
                .iter()
                .any(|accepted| range.eq_ignore_ascii_case(accepted))
            {
                return Ok(());
            }
        }
    }
    if given {
        Err(ApiFault::routing(
            StatusCode::NOT_ACCEPTABLE,
            "The resource is available as application/json only.",
        ))
    } else {
        Ok(())
    }
}

/// A collection misses the argument of `PUT` and `DELETE`, an item has one too many for `POST`; other methods that are
/// not there are refused as such.
fn check_method(route: &Route, method: &Method) -> Result<()> {
    if route.methods().contains(method) {
        return Ok(());
    }
    match (route.kind(), method) {
        (RouteKind::Collection, &Method::PUT | &Method::DELETE) => {
            Err(Fault::MissingArgument("id".to_owned()).into())
        }
        (RouteKind::Item, &Method::POST) => Err(ApiFault::resource(
            StatusCode::BAD_REQUEST,
            "An existing object cannot be created.",
        )),
        _ => Err(ApiFault::method_not_allowed(method, route.methods())),
    }
}

fn foreign_content_type(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(CONTENT_TYPE)?.to_str().unwrap_or("unreadable");
    let media = text.split(';').next().unwrap_or_default().trim();
    (!media.is_empty() && !media.eq_ignore_ascii_case("application/json"))
        .then(|| media.chars().take(255).collect())
}

/// Bytes of a host and port besides letters and digits.
const HOST_BYTES: &[u8] = b".-:[]_";

/// Where links start: as configured, else as the client called us.
fn origin(state: &ApiState, headers: &HeaderMap) -> String {
    if let Some(base) = &state.config.base_uri {
        return base.trim_end_matches('/').to_owned();
    }
    let plain = |name: &str, allowed: &[u8]| {
        let text = headers.get(name)?.to_str().ok()?;
        // Of several proxies the first one was called by the client.
        let text = text.split(',').next()?.trim();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || allowed.contains(&byte);
        (!text.is_empty() && text.bytes().all(plain)).then(|| text.to_owned())
    };
    let forwarded = |name: &str, allowed: &[u8]| {
        let trusted = state.config.trust_proxy_headers;
        trusted.then(|| plain(name, allowed)).flatten()
    };
    let scheme = forwarded("x-forwarded-proto", b"")
        .filter(|scheme| scheme == "https")
        .unwrap_or_else(|| "http".to_owned());
    let host = forwarded("x-forwarded-host", HOST_BYTES)
        .or_else(|| plain(HOST.as_str(), HOST_BYTES))
        .unwrap_or_else(|| "localhost".to_owned());
    let prefix = forwarded("x-forwarded-prefix", b"/-_.")
        .filter(|prefix| prefix.starts_with('/'))
        .unwrap_or_default();
    format!("{scheme}://{host}{}", prefix.trim_end_matches('/'))
}
