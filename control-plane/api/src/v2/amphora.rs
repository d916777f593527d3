//! `/octavia/amphorae`, for administrators.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change;
use lb_model::{AmphoraId, Fault, LoadBalancerId, Resource};
use serde_json::{Value, json};

use super::{by_id, commit};
use crate::fault::{Result, answer, empty};
use crate::page::{self, Page, list_fault};
use crate::request::{Request, id};
use crate::{policy, view};

const RESOURCE: Resource = Resource::Amphora;

pub(super) async fn list(request: &Request) -> Result<Response<Body>> {
    policy::allow_admin(&request.caller)?;
    let page = Page::parse(request)?;
    let rows = request
        .state
        .store
        .list_amphorae(&page.query)
        .await
        .map_err(|error| list_fault(error, &page.query))?;
    let items = rows.iter().map(view::amphora).collect();
    Ok(answer(
        StatusCode::OK,
        &page.answer(request, "amphorae", items),
    ))
}

pub(super) async fn show(request: &Request, text: &str) -> Result<Response<Body>> {
    policy::allow_admin(&request.caller)?;
    let id: AmphoraId = id(RESOURCE, text)?;
    let rows = request.state.store.list_amphorae(&by_id(id)).await?;
    let row = rows
        .first()
        .ok_or_else(|| Fault::not_found(RESOURCE, text))?;
    Ok(answer(
        StatusCode::OK,
        &page::show(request, "amphora", view::amphora(row)),
    ))
}

pub(super) async fn stats(request: &Request, text: &str) -> Result<Response<Body>> {
    let (id, lb) = existing(request, text).await?;
    let rows = request.state.store.amphora_stats(id).await?;
    if rows.is_empty() {
        return Err(Fault::not_found(RESOURCE, text).into());
    }
    let items: Vec<Value> = rows
        .iter()
        .map(|(listener, stats)| {
            let mut item = view::statistics(stats);
            item["id"] = json!(id);
            item["listener_id"] = json!(listener);
            item["loadbalancer_id"] = json!(lb);
            item
        })
        .collect();
    Ok(answer(StatusCode::OK, &json!({"amphora_stats": items})))
}

pub(super) async fn failover(request: &Request, text: &str) -> Result<Response<Body>> {
    let (id, lb) = existing(request, text).await?;
    let now = request.state.now();
    let missing = || Fault::not_found(RESOURCE, text);
    commit(&request.state, lb, missing, |graph| {
        change::request_amphora_failover(graph, id, now)
    })
    .await?;
    Ok(empty(StatusCode::ACCEPTED))
}

async fn existing(request: &Request, text: &str) -> Result<(AmphoraId, LoadBalancerId)> {
    policy::allow_admin(&request.caller)?;
    let id: AmphoraId = id(RESOURCE, text)?;
    let lb = request
        .state
        .store
        .load_balancer_of_amphora(id)
        .await?
        .ok_or_else(|| Fault::not_found(RESOURCE, text))?;
    Ok((id, lb))
}
