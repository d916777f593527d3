//! `Idempotency-Key`: a create that is sent again, because its answer was lost, creates nothing.
//!
//! The key is remembered with the object it made, in the transaction that made it. The same request again is answered
//! with that object as it is now, and with the same status; another request under the same key is refused.

use std::fmt::Display;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Response, StatusCode};
use lb_model::Fault;
use lb_store::Receipt;
use sha2::{Digest, Sha256};

use crate::fault::{ApiFault, Result};
use crate::request::Request;
use crate::{Route, v2};

const HEADER: &str = "idempotency-key";
const MAX_KEY: usize = 255;

/// The key of a create, and what tells the request from others.
pub(crate) struct Once {
    key: String,
    fingerprint: String,
}

/// `None`: the request has no key.
pub(crate) fn read(
    headers: &HeaderMap,
    route: &Route,
    body: &[u8],
) -> std::result::Result<Option<Once>, Fault> {
    let key = key(headers)?;
    Ok(key.map(|key| Once {
        key,
        fingerprint: fingerprint(route, body),
    }))
}

fn key(headers: &HeaderMap) -> std::result::Result<Option<String>, Fault> {
    let Some(value) = headers.get(HEADER) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if plain && (1..=MAX_KEY).contains(&text.len()) {
        return Ok(Some(text.into_owned()));
    }
    Err(Fault::InvalidInput {
        field: "Idempotency-Key".to_owned(),
        value: text.chars().take(MAX_KEY).collect(),
        reason: format!("Value should be 1 to {MAX_KEY} printable ASCII characters"),
    })
}

/// What will be remembered of this request when it has created an object.
pub(crate) fn receipt(request: &Request, kind: &str, id: impl Display) -> Option<Receipt> {
    let once = request.once.as_ref()?;
    Some(Receipt {
        project_id: scope(request),
        key: once.key.clone(),
        fingerprint: once.fingerprint.clone(),
        location: format!("{kind}/{id}"),
    })
}

/// Keys are a matter of the caller's project.
fn scope(request: &Request) -> String {
    request.caller.project_id.clone().unwrap_or_default()
}

/// Of the path, without regard to how it is spelled, and the body to the byte.
fn fingerprint(route: &Route, body: &[u8]) -> String {
    let mut digest = Sha256::new();
    digest.update(format!("{route:?}\n"));
    digest.update(body);
    hex::encode(digest.finalize())
}

/// A `POST` with a key.
pub(crate) async fn create(
    request: &Request,
    route: &Route,
    once: &Once,
) -> Result<Response<Body>> {
    if let Some(receipt) = find(request, once).await? {
        return answer_again(request, once, &receipt).await;
    }
    match v2::dispatch(request, route, &Method::POST).await {
        Ok(response) => Ok(response),
        // Perhaps because the same request, sent at the same time, was faster.
        Err(fault) => match find(request, once).await? {
            Some(receipt) => answer_again(request, once, &receipt).await,
            None => Err(fault),
        },
    }
}

async fn find(request: &Request, once: &Once) -> Result<Option<Receipt>> {
    let state = &request.state;
    let scope = scope(request);
    let receipt = state.store.receipt(&scope, &once.key, state.now());
    Ok(receipt.await?)
}

async fn answer_again(request: &Request, once: &Once, receipt: &Receipt) -> Result<Response<Body>> {
    if receipt.fingerprint != once.fingerprint {
        return Err(ApiFault::resource(
            StatusCode::CONFLICT,
            format!(
                "Idempotency-Key '{}' was used for another request.",
                receipt.key
            ),
        ));
    }
    let mut response = v2::show_created(request, &receipt.location).await?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}
