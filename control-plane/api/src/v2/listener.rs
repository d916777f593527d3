//! `/listeners`.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change;
use lb_model::spec::{ListenerCreate, ListenerUpdate};
use lb_model::{Fault, Graph, ListenerId, LoadBalancerId, Resource};
use serde_json::{Value, json};

use super::{by_id, commit, written};
use crate::fault::{Result, answer, empty};
use crate::page::{self, Page, list_fault};
use crate::request::{Request, id};
use crate::{policy, view};

const RESOURCE: Resource = Resource::Listener;

pub(super) async fn list(request: &Request) -> Result<Response<Body>> {
    let page = Page::parse(request)?;
    let rows = request
        .state
        .store
        .list_listeners(&page.query)
        .await
        .map_err(|error| list_fault(error, &page.query))?;
    let items = rows
        .iter()
        .map(|row| view::listener(&row.listener, row.load_balancer_id))
        .collect();
    Ok(answer(
        StatusCode::OK,
        &page.answer(request, "listeners", items),
    ))
}

pub(super) async fn show(request: &Request, text: &str) -> Result<Response<Body>> {
    let id: ListenerId = id(RESOURCE, text)?;
    let rows = request.state.store.list_listeners(&by_id(id)).await?;
    let row = rows
        .first()
        .ok_or_else(|| Fault::not_found(RESOURCE, text))?;
    policy::allow_project(&request.caller, &row.listener.project_id)?;
    let item = view::listener(&row.listener, row.load_balancer_id);
    Ok(answer(
        StatusCode::OK,
        &page::show(request, "listener", item),
    ))
}

pub(super) async fn create(request: &Request) -> Result<Response<Body>> {
    let spec = ListenerCreate::decode(&request.json("listener")?)?;
    let state = &request.state;
    let lb = spec.load_balancer_id;
    policy::allow_load_balancer(state, &request.caller, lb).await?;
    let id = ListenerId::random();
    let now = state.now();
    let missing = || Fault::not_found(Resource::LoadBalancer, lb);
    let ((), graph) = commit(state, lb, missing, |graph| {
        change::create_listener(graph, &spec.listener, id, &state.config.rules, now)
    })
    .await?;
    let body = json!({"listener": written(view_of(&graph, id))?});
    Ok(answer(StatusCode::CREATED, &body))
}

pub(super) async fn update(request: &Request, text: &str) -> Result<Response<Body>> {
    let spec = ListenerUpdate::decode(&request.json("listener")?)?;
    let (id, lb) = existing(request, text).await?;
    let state = &request.state;
    let now = state.now();
    let missing = || Fault::not_found(RESOURCE, text);
    let ((), graph) = commit(state, lb, missing, |graph| {
        change::update_listener(graph, id, &spec, &state.config.rules, now)
    })
    .await?;
    let body = json!({"listener": written(view_of(&graph, id))?});
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn delete(request: &Request, text: &str) -> Result<Response<Body>> {
    let (id, lb) = existing(request, text).await?;
    let now = request.state.now();
    let missing = || Fault::not_found(RESOURCE, text);
    commit(&request.state, lb, missing, |graph| {
        change::delete_listener(graph, id, now)
    })
    .await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn stats(request: &Request, text: &str) -> Result<Response<Body>> {
    let (id, _) = existing(request, text).await?;
    let stats = request.state.store.listener_stats(id).await?;
    let body = page::show(request, "stats", view::statistics(&stats));
    Ok(answer(StatusCode::OK, &body))
}

fn view_of(graph: &Graph, id: ListenerId) -> Option<Value> {
    graph
        .listener(id)
        .map(|listener| view::listener(listener, graph.load_balancer.id))
}

async fn existing(request: &Request, text: &str) -> Result<(ListenerId, LoadBalancerId)> {
    let id: ListenerId = id(RESOURCE, text)?;
    let lb = request
        .state
        .store
        .load_balancer_of_listener(id)
        .await?
        .ok_or_else(|| Fault::not_found(RESOURCE, text))?;
    policy::allow_load_balancer(&request.state, &request.caller, lb).await?;
    Ok((id, lb))
}
