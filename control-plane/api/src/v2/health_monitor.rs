//! `/healthmonitors`.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change;
use lb_model::spec::{HealthMonitorCreate, HealthMonitorUpdate};
use lb_model::{Fault, Graph, HealthMonitorId, LoadBalancerId, Resource};
use serde_json::{Value, json};

use super::{by_id, commit, written};
use crate::fault::{Result, answer, empty};
use crate::page::{self, Page, list_fault};
use crate::request::{Request, id};
use crate::{policy, view};

const RESOURCE: Resource = Resource::HealthMonitor;

pub(super) async fn list(request: &Request) -> Result<Response<Body>> {
    let page = Page::parse(request)?;
    let rows = request
        .state
        .store
        .list_health_monitors(&page.query)
        .await
        .map_err(|error| list_fault(error, &page.query))?;
    let items = rows
        .iter()
        .map(|row| view::health_monitor(&row.health_monitor, row.pool_id))
        .collect();
    Ok(answer(
        StatusCode::OK,
        &page.answer(request, "healthmonitors", items),
    ))
}

pub(super) async fn show(request: &Request, text: &str) -> Result<Response<Body>> {
    let id: HealthMonitorId = id(RESOURCE, text)?;
    let rows = request.state.store.list_health_monitors(&by_id(id)).await?;
    let row = rows
        .first()
        .ok_or_else(|| Fault::not_found(RESOURCE, text))?;
    policy::allow_project(&request.caller, &row.health_monitor.project_id)?;
    let item = view::health_monitor(&row.health_monitor, row.pool_id);
    Ok(answer(
        StatusCode::OK,
        &page::show(request, "healthmonitor", item),
    ))
}

pub(super) async fn create(request: &Request) -> Result<Response<Body>> {
    let spec = HealthMonitorCreate::decode(&request.json("healthmonitor")?)?;
    let state = &request.state;
    let pool = spec.pool_id;
    let missing = || Fault::not_found(Resource::Pool, pool);
    let lb = state
        .store
        .load_balancer_of_pool(pool)
        .await?
        .ok_or_else(missing)?;
    policy::allow_load_balancer(state, &request.caller, lb).await?;
    let id = HealthMonitorId::random();
    let now = state.now();
    let ((), graph) = commit(state, lb, missing, |graph| {
        change::create_health_monitor(
            graph,
            pool,
            &spec.health_monitor,
            id,
            &state.config.rules,
            now,
        )
    })
    .await?;
    let body = json!({"healthmonitor": written(view_of(&graph, id))?});
    Ok(answer(StatusCode::CREATED, &body))
}

pub(super) async fn update(request: &Request, text: &str) -> Result<Response<Body>> {
    let spec = HealthMonitorUpdate::decode(&request.json("healthmonitor")?)?;
    let (id, lb) = existing(request, text).await?;
    let state = &request.state;
    let now = state.now();
    let missing = || Fault::not_found(RESOURCE, text);
    let ((), graph) = commit(state, lb, missing, |graph| {
        change::update_health_monitor(graph, id, &spec, &state.config.rules, now)
    })
    .await?;
    let body = json!({"healthmonitor": written(view_of(&graph, id))?});
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn delete(request: &Request, text: &str) -> Result<Response<Body>> {
    let (id, lb) = existing(request, text).await?;
    let now = request.state.now();
    let missing = || Fault::not_found(RESOURCE, text);
    commit(&request.state, lb, missing, |graph| {
        change::delete_health_monitor(graph, id, now)
    })
    .await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

fn view_of(graph: &Graph, id: HealthMonitorId) -> Option<Value> {
    graph
        .pool_of_monitor(id)
        .map(|(pool, monitor)| view::health_monitor(monitor, pool.id))
}

async fn existing(request: &Request, text: &str) -> Result<(HealthMonitorId, LoadBalancerId)> {
    let id: HealthMonitorId = id(RESOURCE, text)?;
    let lb = request
        .state
        .store
        .load_balancer_of_health_monitor(id)
        .await?
        .ok_or_else(|| Fault::not_found(RESOURCE, text))?;
    policy::allow_load_balancer(&request.state, &request.caller, lb).await?;
    Ok((id, lb))
}
