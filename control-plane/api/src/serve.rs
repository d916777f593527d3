//! From an HTTP request to an answer: routing, negotiation, size, identity, request id, audit.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HOST};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use lb_model::Fault;
use tokio::sync::Semaphore;
use tracing::Instrument;
use uuid::Uuid;

use crate::audit::{self, Account, Act, RemoteAddress};
use crate::fault::{ApiFault, Result};
use crate::healthcheck::Health;
use crate::request::Request;
use crate::{ApiState, Route, RouteKind, once, query_string, v2};

/// Bytes; as `oslo_middleware.max_request_body_size`.
const MAX_BODY: usize = 114_688;
/// A body that takes longer is given up.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Writes under way; more wait, each with its connection.
const MAX_WRITES: usize = 1024;
const REQUEST_ID: &str = "x-openstack-request-id";

/// The whole API as one service.
pub fn router(state: ApiState) -> Router {
    let writes = Arc::new(Semaphore::new(MAX_WRITES));
    Router::new().fallback(serve).with_state(Server {
        state,
        health: Health::default(),
        writes,
    })
}

#[derive(Clone)]
struct Server {
    state: ApiState,
    /// What it last found of its own health.
    health: Health,
    /// For writes under way, whose callers may be gone.
    writes: Arc<Semaphore>,
}

async fn serve(State(server): State<Server>, request: axum::http::Request<Body>) -> Response<Body> {
    let config = Arc::clone(&server.state.config);
    if request.method() == Method::OPTIONS {
        return config.cors.preflight(request.headers());
    }
    let cors_headers = config.cors.answer_headers(request.headers());
    let request_id = format!("req-{}", Uuid::new_v4());
    // Of the level of an error, so that no line of the request lacks its ids whatever is logged.
    let span = tracing::error_span!(
        "request",
        request_id,
        method = %request.method(),
        path = audit::bounded(request.uri().path()),
        global_request_id = global_request_id(request.headers()),
    );
    let mut response = respond(server, request, request_id).instrument(span).await;
    response
        .headers_mut()
        .extend(cors_headers.into_iter().flatten());
    response
}

/// The id a caller gave to a chain of requests: `req-` and a UUID.
fn global_request_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let uuid = id.strip_prefix("req-")?;
    (uuid.len() == 36 && Uuid::try_parse(uuid).is_ok()).then_some(id)
}

/// A write goes on when its caller hangs up: what was begun is finished and recorded.
async fn respond(
    server: Server,
    request: axum::http::Request<Body>,
    request_id: String,
) -> Response<Body> {
    let Server {
        state,
        health,
        writes,
    } = server;
    let (parts, body) = request.into_parts();
    let body = match read(body).await {
        Ok(body) => body,
        Err(fault) => return finish(Err(fault), &request_id),
    };
    let is_write = audit::is_write(&parts.method);
    let remote = parts.extensions.get::<RemoteAddress>().copied();
    let work = async move {
        let mut account = Account::default();
        let result = handle(state, &health, parts, body, &mut account).await;
        let response = finish(result, &request_id);
        audit::record(&account, remote, &response);
        response
    };
    if !is_write {
        return work.await;
    }
    // The semaphore is never closed.
    let permit = writes.acquire_owned().await.ok();
    let task = tokio::spawn(
        async move {
            let response = work.await;
            drop(permit);
            response
        }
        .in_current_span(),
    );
    task.await.unwrap_or_else(|_| {
        ApiFault::resource(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The request was not finished.",
        )
        .into_response()
    })
}

/// The answer with the id of its request, where answers have one.
fn finish(result: Result<Response<Body>>, request_id: &str) -> Response<Body> {
    let (mut response, tagged) = match result {
        Ok(response) => (response, true),
        Err(fault) => {
            let tagged = fault.has_request_id();
            (fault.into_response(), tagged)
        }
    };
    tracing::debug!(status = response.status().as_u16(), "answered");
    if tagged && let Ok(value) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

async fn handle(
    state: ApiState,
    health: &Health,
    parts: Parts,
    body: Bytes,
    account: &mut Account,
) -> Result<Response<Body>> {
    let route = Route::parse(parts.uri.path())
        .filter(|route| !route.is_network_service() || state.config.serve_network_lookups);
    account.act = route
        .as_ref()
        .and_then(|route| Act::new(route, &parts.method, parts.uri.path()));
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
        Arc::default()
    };
    account.caller = Some(Arc::clone(&caller));
    let route = route.ok_or_else(ApiFault::unknown_path)?;
    check_accept(&parts.headers)?;
    check_method(&route, &parts.method)?;
    let request = Request {
        origin: origin(&state, &parts.headers),
        caller,
        rule: route.rule(&parts.method),
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
