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

use crate::fault::{ApiFault, Result, empty};
use crate::request::Request;
use crate::{ApiState, Route, RouteKind, query_string, v2};

/// Bytes; as `oslo_middleware.max_request_body_size`.
const MAX_BODY: usize = 114_688;
/// A body that takes longer is given up.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
const REQUEST_ID: &str = "x-openstack-request-id";

/// The whole API as one service.
pub fn router(state: ApiState) -> Router {
    Router::new().fallback(serve).with_state(state)
}

async fn serve(
    State(state): State<ApiState>,
    request: axum::http::Request<Body>,
) -> Response<Body> {
    let request_id = format!("req-{}", Uuid::new_v4());
    let span = tracing::info_span!(
        "request",
        request_id,
        method = %request.method(),
        path = request.uri().path(),
        global_request_id = global_request_id(request.headers()),
    );
    let result = respond(state, request).instrument(span.clone()).await;
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
}

/// The id a caller gave to a chain of requests.
fn global_request_id(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|id| id.starts_with("req-") && id.len() <= 64)
}

async fn respond(state: ApiState, request: axum::http::Request<Body>) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    if parts.method == Method::OPTIONS {
        return Ok(empty(StatusCode::OK));
    }
    let body = read(body).await?;
    let route = Route::parse(parts.uri.path())
        .filter(|route| !route.is_network_service() || state.config.serve_network_lookups);
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

/// Where links start: as configured, else as the client called us.
fn origin(state: &ApiState, headers: &HeaderMap) -> String {
    if let Some(base) = &state.config.base_uri {
        return base.trim_end_matches('/').to_owned();
    }
    let host = headers
        .get(HOST)
        .and_then(|value| value.to_str().ok())
        .filter(|host| {
            host.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte))
        })
        .unwrap_or("localhost");
    format!("http://{host}")
}
