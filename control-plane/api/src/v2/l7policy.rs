//! `/l7policies`.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change;
use lb_model::spec::{L7PolicyCreate, L7PolicyUpdate};
use lb_model::{Graph, L7PolicyId, LoadBalancerId, Resource};
use lb_store::{L7PolicyRow, Query, Store};
use serde_json::Value;

use super::collection::{self, Child, Collection, Stored};
use super::listener::Listeners;
use crate::fault::Result;
use crate::request::Request;
use crate::view;

pub(super) struct L7Policies;

impl Collection for L7Policies {
    type Row = L7PolicyRow;
    const RESOURCE: Resource = Resource::L7Policy;
    const ONE: &'static str = "l7policy";
    const MANY: &'static str = "l7policies";

    async fn rows(&self, store: &Store, query: &Query) -> Stored<Vec<Self::Row>> {
        store.list_l7policies(query).await
    }

    fn project_id(row: &Self::Row) -> Option<&str> {
        Some(&row.l7policy.project_id)
    }

    fn view(row: &Self::Row) -> Value {
        view::l7policy(&row.l7policy, row.listener_id, &row.rule_ids)
    }
}

impl Child for L7Policies {
    type Id = L7PolicyId;

    async fn owner(store: &Store, id: Self::Id) -> Stored<Option<LoadBalancerId>> {
        store.load_balancer_of_l7policy(id).await
    }

    fn view_in(graph: &Graph, id: Self::Id) -> Option<Value> {
        graph.listener_of_policy(id).map(|(listener, policy)| {
            let rules: Vec<_> = policy.rules.iter().map(|rule| rule.id).collect();
            view::l7policy(policy, listener.id, &rules)
        })
    }
}

pub(super) async fn create(request: &Request) -> Result<Response<Body>> {
    let spec = L7PolicyCreate::decode(&request.json("l7policy")?)?;
    let listener = spec.listener_id;
    let target = collection::existing::<Listeners>(request, &listener.to_string())
        .await?
        .with(L7PolicyId::random());
    collection::write::<L7Policies>(
        request,
        StatusCode::CREATED,
        target,
        |graph, id, rules, now| {
            change::create_l7policy(graph, listener, &spec.l7policy, id, rules, now)
        },
    )
    .await
}

pub(super) async fn update(request: &Request, text: &str) -> Result<Response<Body>> {
    let spec = L7PolicyUpdate::decode(&request.json("l7policy")?)?;
    let target = collection::existing::<L7Policies>(request, text).await?;
    collection::write::<L7Policies>(request, StatusCode::OK, target, |graph, id, rules, now| {
        change::update_l7policy(graph, id, &spec, rules, now)
    })
    .await
}

pub(super) async fn delete(request: &Request, text: &str) -> Result<Response<Body>> {
    let target = collection::existing::<L7Policies>(request, text).await?;
    collection::write_silently(
        request,
        StatusCode::NO_CONTENT,
        target,
        change::delete_l7policy,
    )
    .await
}
