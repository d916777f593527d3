//! `/pools/{pool}/members`.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change;
use lb_model::spec::{MemberBatch, MemberCreate, MemberUpdate};
use lb_model::{Fault, Graph, LoadBalancerId, MemberId, PoolId, Resource};
use serde_json::{Value, json};

use super::{by_id, commit, written};
use crate::fault::{ApiFault, Result, answer, empty};
use crate::page::{self, Page, list_fault};
use crate::request::{Request, id};
use crate::{policy, view, vip};

const RESOURCE: Resource = Resource::Member;

pub(super) async fn list(request: &Request, pool: &str) -> Result<Response<Body>> {
    let (pool, _) = parent(request, pool).await?;
    let page = Page::parse_nested(request)?;
    let rows = request
        .state
        .store
        .list_members(pool, &page.query)
        .await
        .map_err(|error| list_fault(error, &page.query))?;
    let items = rows.iter().map(|row| view::member(&row.member)).collect();
    Ok(answer(
        StatusCode::OK,
        &page.answer(request, "members", items),
    ))
}

pub(super) async fn show(request: &Request, pool: &str, text: &str) -> Result<Response<Body>> {
    let (pool, _) = parent(request, pool).await?;
    let id: MemberId = id(RESOURCE, text)?;
    let rows = request.state.store.list_members(pool, &by_id(id)).await?;
    let row = rows
        .first()
        .ok_or_else(|| Fault::not_found(RESOURCE, text))?;
    Ok(answer(
        StatusCode::OK,
        &page::show(request, "member", view::member(&row.member)),
    ))
}

pub(super) async fn create(request: &Request, pool: &str) -> Result<Response<Body>> {
    let spec = MemberCreate::decode(&request.json("member")?)?;
    let (pool, lb) = parent(request, pool).await?;
    let state = &request.state;
    vip::check_member_subnets(state, &request.caller, None, spec.subnet_id.into_iter()).await?;
    let id = MemberId::random();
    let now = state.now();
    let missing = || Fault::not_found(Resource::Pool, pool);
    let ((), graph) = commit(state, lb, missing, |graph| {
        change::create_member(graph, pool, &spec, id, &state.config.rules, now)
    })
    .await?;
    let body = json!({"member": written(view_of(&graph, pool, id))?});
    Ok(answer(StatusCode::CREATED, &body))
}

pub(super) async fn update(request: &Request, pool: &str, text: &str) -> Result<Response<Body>> {
    let spec = MemberUpdate::decode(&request.json("member")?)?;
    let (pool, lb) = parent(request, pool).await?;
    let id: MemberId = id(RESOURCE, text)?;
    let now = request.state.now();
    let missing = || Fault::not_found(RESOURCE, text);
    let ((), graph) = commit(&request.state, lb, missing, |graph| {
        change::update_member(graph, pool, id, &spec, now)
    })
    .await?;
    let body = json!({"member": written(view_of(&graph, pool, id))?});
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn delete(request: &Request, pool: &str, text: &str) -> Result<Response<Body>> {
    let (pool, lb) = parent(request, pool).await?;
    let id: MemberId = id(RESOURCE, text)?;
    let now = request.state.now();
    let missing = || Fault::not_found(RESOURCE, text);
    commit(&request.state, lb, missing, |graph| {
        change::delete_member(graph, pool, id, now)
    })
    .await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// What stops a batch from being written.
enum Stop {
    Fault(Fault),
    /// It asks for what is there: no lock, no new generation.
    Unchanged,
}

pub(super) async fn batch(request: &Request, pool: &str) -> Result<Response<Body>> {
    let batch = MemberBatch::decode(&request.json("members")?, request.flag("additive_only"))?;
    let (pool, lb) = parent(request, pool).await?;
    let state = &request.state;
    let subnets = batch.members.iter().filter_map(|member| member.subnet_id);
    vip::check_member_subnets(state, &request.caller, None, subnets).await?;
    let now = state.now();
    let rules = &state.config.rules;
    let answer = state
        .store
        .change_graph(lb, now, |graph| {
            let mut ids = MemberId::random;
            match change::batch_update_members(graph, pool, &batch, &mut ids, rules, now) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Stop::Unchanged),
                Err(fault) => Err(Stop::Fault(fault)),
            }
        })
        .await?;
    match answer {
        None => Err(Fault::not_found(Resource::Pool, pool).into()),
        Some(Err(Stop::Fault(fault))) => Err(fault.into()),
        Some(Ok(_) | Err(Stop::Unchanged)) => Ok(empty(StatusCode::ACCEPTED)),
    }
}

fn view_of(graph: &Graph, pool: PoolId, id: MemberId) -> Option<Value> {
    graph
        .pool(pool)?
        .members
        .iter()
        .find(|member| member.id == id)
        .map(view::member)
}

/// A pool that is not there is a routing error here.
async fn parent(request: &Request, text: &str) -> Result<(PoolId, LoadBalancerId)> {
    let missing = |fault: Fault| ApiFault::missing_parent(&fault);
    let pool: PoolId = id(Resource::Pool, text).map_err(missing)?;
    let lb = request
        .state
        .store
        .load_balancer_of_pool(pool)
        .await?
        .ok_or_else(|| missing(Fault::not_found(Resource::Pool, text)))?;
    policy::allow_load_balancer(&request.state, &request.caller, lb).await?;
    Ok((pool, lb))
}
