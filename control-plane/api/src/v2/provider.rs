//! `/providers`.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::fault::{Result, answer};
use crate::page;
use crate::policy;
use crate::request::Request;

pub(super) fn list(request: &Request) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    let providers: Vec<Value> = request
        .state
        .config
        .rules
        .providers
        .iter()
        .map(|provider| {
            let item = json!({"name": provider.name, "description": provider.description});
            page::show(request, "item", item)["item"].take()
        })
        .collect();
    Ok(answer(StatusCode::OK, &json!({"providers": providers})))
}
