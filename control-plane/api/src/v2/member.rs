//! `/pools/{pool}/members`.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change;
use lb_model::spec::{MemberBatch, MemberCreate, MemberUpdate};
use lb_model::{Fault, Graph, LoadBalancerId, MemberId, PoolId, Resource};
use lb_store::{MemberRow, Query, Store};
use serde_json::Value;

use super::collection::{self, Child, Collection, Stored, Target};
use super::pool::Pools;
use crate::fault::{Result, empty};
use crate::page::Page;
use crate::policy::{self, Rule};
use crate::request::{Request, id};
use crate::{view, vip};

/// Members of one pool.
pub(super) struct Members(PoolId);

impl Collection for Members {
    type Row = MemberRow;
    const RESOURCE: Resource = Resource::Member;
    const ONE: &'static str = "member";
    const MANY: &'static str = "members";

    async fn rows(&self, store: &Store, query: &Query) -> Stored<Vec<Self::Row>> {
        store.list_members(self.0, query).await
    }

    fn project_id(row: &Self::Row) -> Option<&str> {
        Some(&row.member.project_id)
    }

    fn view(row: &Self::Row) -> Value {
        view::member(&row.member)
    }
}

impl Child for Members {
    type Id = MemberId;

    async fn owner(store: &Store, id: Self::Id) -> Stored<Option<LoadBalancerId>> {
        store.load_balancer_of_member(id).await
    }

    fn view_in(graph: &Graph, id: Self::Id) -> Option<Value> {
        graph
            .pools
            .iter()
            .flat_map(|pool| &pool.members)
            .find(|member| member.id == id)
            .map(view::member)
    }
}

pub(super) async fn list(request: &Request, pool: &str) -> Result<Response<Body>> {
    let pool = parent(request, pool).await?.id;
    collection::list(request, &Members(pool), Page::parse_nested(request)?).await
}

pub(super) async fn show(request: &Request, pool: &str, text: &str) -> Result<Response<Body>> {
    let pool = parent(request, pool).await?.id;
    collection::show(request, &Members(pool), text).await
}

pub(super) async fn create(request: &Request, pool: &str) -> Result<Response<Body>> {
    let spec = MemberCreate::decode(&request.json("member")?)?;
    let parent = parent(request, pool).await?;
    let pool = parent.id;
    let subnets = spec.subnet_id.into_iter();
    vip::check_member_subnets(&request.state, &request.caller, None, subnets).await?;
    let target = parent.with(MemberId::random());
    collection::write::<Members>(
        request,
        StatusCode::CREATED,
        target,
        |graph, id, rules, now| change::create_member(graph, pool, &spec, id, rules, now),
    )
    .await
}

pub(super) async fn update(request: &Request, pool: &str, text: &str) -> Result<Response<Body>> {
    let spec = MemberUpdate::decode(&request.json("member")?)?;
    let parent = parent(request, pool).await?;
    let pool = parent.id;
    let target = parent.with(id(Resource::Member, text)?);
    collection::write::<Members>(request, StatusCode::OK, target, |graph, id, _, now| {
        change::update_member(graph, pool, id, &spec, now)
    })
    .await
}

pub(super) async fn delete(request: &Request, pool: &str, text: &str) -> Result<Response<Body>> {
    let parent = parent(request, pool).await?;
    let pool = parent.id;
    let target = parent.with(id(Resource::Member, text)?);
    collection::write_silently(request, StatusCode::NO_CONTENT, target, |graph, id, now| {
        change::delete_member(graph, pool, id, now)
    })
    .await
}

/// What stops a batch from being written.
enum Stop {
    Fault(Fault),
    /// It asks for what is there: no lock, no new generation.
    Unchanged,
}

pub(super) async fn batch(request: &Request, pool: &str) -> Result<Response<Body>> {
    let additive_only = request.flag("additive_only");
    let batch = MemberBatch::decode(&request.json("members")?, additive_only)?;
    let target = parent(request, pool).await?;
    let (pool, lb) = (target.id, target.load_balancer);
    // Whatever the content, a batch may create, change and, unless it only adds, delete.
    policy::allow_rule_in(request, Rule::MemberPost, lb).await?;
    if !additive_only {
        policy::allow_rule_in(request, Rule::MemberDelete, lb).await?;
    }
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

async fn parent(request: &Request, text: &str) -> Result<Target<PoolId>> {
    collection::parent::<Pools>(request, "Pool", text).await
}
