//! `/octavia/amphorae`, for administrators.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change;
use lb_model::{Amphora, AmphoraId, Fault, Graph, Resource};
use lb_store::{Query, Store};
use serde_json::{Value, json};

use super::collection::{self, Collection, Stored, Target};
use crate::fault::{Result, answer};
use crate::page::Page;
use crate::request::{Request, id};
use crate::{policy, view};

const RESOURCE: Resource = Resource::Amphora;

pub(super) struct Amphorae;

impl Collection for Amphorae {
    type Row = Amphora;
    const RESOURCE: Resource = RESOURCE;
    const ONE: &'static str = "amphora";
    const MANY: &'static str = "amphorae";

    async fn rows(&self, store: &Store, query: &Query) -> Stored<Vec<Self::Row>> {
        store.list_amphorae(query).await
    }

    fn project_id(_: &Self::Row) -> Option<&str> {
        None
    }

    fn view(row: &Self::Row) -> Value {
        view::amphora(row)
    }
}

pub(super) async fn list(request: &Request) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    collection::list(request, &Amphorae, Page::parse_nested(request)?).await
}

pub(super) async fn show(request: &Request, text: &str) -> Result<Response<Body>> {
    collection::show(request, &Amphorae, text).await
}

pub(super) async fn stats(request: &Request, text: &str) -> Result<Response<Body>> {
    let Target {
        id,
        load_balancer: lb,
        ..
    } = existing(request, text).await?;
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
    let target = existing(request, text).await?;
    let change = change::request_amphora_failover;
    collection::write_silently(request, StatusCode::ACCEPTED, target, change).await
}

/// The worker removes it, with all that belongs to it.
pub(super) async fn delete(request: &Request, text: &str) -> Result<Response<Body>> {
    let target = existing(request, text).await?;
    let change = change::delete_amphora;
    collection::write_silently(request, StatusCode::NO_CONTENT, target, change).await
}

/// A worker looks at it again, and hands its agent what is not as it should be: the settings of the control plane
/// (where heartbeats go) are part of the agent's document. No status changes.
pub(super) async fn configure(request: &Request, text: &str) -> Result<Response<Body>> {
    let target = existing(request, text).await?;
    let change = |_: &mut Graph, _, _| Ok(());
    collection::write_silently(request, StatusCode::ACCEPTED, target, change).await
}

async fn existing(request: &Request, text: &str) -> Result<Target<AmphoraId>> {
    let id: AmphoraId = id(RESOURCE, text)?;
    let missing = Fault::not_found(RESOURCE, text);
    let owner = request.state.store.load_balancer_of_amphora(id).await?;
    let load_balancer = owner.ok_or_else(|| missing.clone())?;
    policy::allow_own(request)?;
    Ok(Target {
        load_balancer,
        id,
        missing,
    })
}
