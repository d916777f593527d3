//! `/pools`.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change;
use lb_model::spec::{PoolCreate, PoolUpdate};
use lb_model::{Fault, LoadBalancerId, PoolId, Resource};
use serde_json::json;

use super::{by_id, commit, written};
use crate::fault::{Result, answer, empty};
use crate::page::{self, Page, list_fault};
use crate::request::{Request, id};
use crate::{policy, view};

const RESOURCE: Resource = Resource::Pool;

pub(super) async fn list(request: &Request) -> Result<Response<Body>> {
    let page = Page::parse(request)?;
    let rows = request
        .state
        .store
        .list_pools(&page.query)
        .await
        .map_err(|error| list_fault(error, &page.query))?;
    let items = rows.iter().map(view::pool).collect();
    Ok(answer(
        StatusCode::OK,
        &page.answer(request, "pools", items),
    ))
}

pub(super) async fn show(request: &Request, text: &str) -> Result<Response<Body>> {
    let id: PoolId = id(RESOURCE, text)?;
    let rows = request.state.store.list_pools(&by_id(id)).await?;
    let row = rows
        .first()
        .ok_or_else(|| Fault::not_found(RESOURCE, text))?;
    policy::allow_project(&request.caller, &row.pool.project_id)?;
    Ok(answer(
        StatusCode::OK,
        &page::show(request, "pool", view::pool(row)),
    ))
}

pub(super) async fn create(request: &Request) -> Result<Response<Body>> {
    let spec = PoolCreate::decode(&request.json("pool")?)?;
    let state = &request.state;
    let lb = parent(request, &spec).await?;
    policy::allow_load_balancer(state, &request.caller, lb).await?;
    let id = PoolId::random();
    let now = state.now();
    let missing = || Fault::not_found(Resource::LoadBalancer, lb);
    let ((), graph) = commit(state, lb, missing, |graph| {
        change::create_pool(
            graph,
            &spec.pool,
            id,
            spec.listener_id,
            &state.config.rules,
            now,
        )
    })
    .await?;
    let body = json!({"pool": written(view::pool_of(&graph, id))?});
    Ok(answer(StatusCode::CREATED, &body))
}

/// A listener decides the load balancer; one that is named besides must be the same.
async fn parent(request: &Request, spec: &PoolCreate) -> Result<LoadBalancerId> {
    let of_listener = match spec.listener_id {
        None => None,
        Some(listener) => Some(
            request
                .state
                .store
                .load_balancer_of_listener(listener)
                .await?
                .ok_or_else(|| Fault::not_found(Resource::Listener, listener))?,
        ),
    };
    match (of_listener, spec.load_balancer_id) {
        (Some(found), Some(named)) if found != named => Err(Fault::Validation(
            "listener_id and loadbalancer_id belong to different load balancers.".to_owned(),
        )
        .into()),
        (Some(lb), _) | (None, Some(lb)) => Ok(lb),
        (None, None) => Err(Fault::MissingArgument("loadbalancer_id".to_owned()).into()),
    }
}

pub(super) async fn update(request: &Request, text: &str) -> Result<Response<Body>> {
    let spec = PoolUpdate::decode(&request.json("pool")?)?;
    let (id, lb) = existing(request, text).await?;
    let state = &request.state;
    let now = state.now();
    let missing = || Fault::not_found(RESOURCE, text);
    let ((), graph) = commit(state, lb, missing, |graph| {
        change::update_pool(graph, id, &spec, &state.config.rules, now)
    })
    .await?;
    let body = json!({"pool": written(view::pool_of(&graph, id))?});
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn delete(request: &Request, text: &str) -> Result<Response<Body>> {
    let (id, lb) = existing(request, text).await?;
    let now = request.state.now();
    let missing = || Fault::not_found(RESOURCE, text);
    commit(&request.state, lb, missing, |graph| {
        change::delete_pool(graph, id, now)
    })
    .await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

async fn existing(request: &Request, text: &str) -> Result<(PoolId, LoadBalancerId)> {
    let id: PoolId = id(RESOURCE, text)?;
    let lb = request
        .state
        .store
        .load_balancer_of_pool(id)
        .await?
        .ok_or_else(|| Fault::not_found(RESOURCE, text))?;
    policy::allow_load_balancer(&request.state, &request.caller, lb).await?;
    Ok((id, lb))
}
