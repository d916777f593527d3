//! `/l7policies/{policy}/rules`.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change;
use lb_model::spec::{L7RuleUpdate, NewL7Rule};
use lb_model::{Graph, L7PolicyId, L7Rule, L7RuleId, LoadBalancerId, Resource};
use lb_store::{Query, Store};
use serde_json::Value;

use super::collection::{self, Child, Collection, Stored, Target};
use super::l7policy::L7Policies;
use crate::fault::Result;
use crate::page::Page;
use crate::request::{Request, id};
use crate::view;

/// Rules of one policy.
pub(super) struct L7Rules(L7PolicyId);

impl Collection for L7Rules {
    type Row = L7Rule;
    const RESOURCE: Resource = Resource::L7Rule;
    const ONE: &'static str = "rule";
    const MANY: &'static str = "rules";

    async fn rows(&self, store: &Store, query: &Query) -> Stored<Vec<Self::Row>> {
        store.list_l7rules(self.0, query).await
    }

    fn project_id(row: &Self::Row) -> Option<&str> {
        Some(&row.project_id)
    }

    fn view(row: &Self::Row) -> Value {
        view::l7rule(row)
    }
}

impl Child for L7Rules {
    type Id = L7RuleId;

    async fn owner(store: &Store, id: Self::Id) -> Stored<Option<LoadBalancerId>> {
        store.load_balancer_of_l7rule(id).await
    }

    fn view_in(graph: &Graph, id: Self::Id) -> Option<Value> {
        graph
            .listeners
            .iter()
            .flat_map(|listener| &listener.l7policies)
            .flat_map(|policy| &policy.rules)
            .find(|rule| rule.id == id)
            .map(view::l7rule)
    }
}

pub(super) async fn list(request: &Request, policy: &str) -> Result<Response<Body>> {
    let policy = parent(request, policy).await?.id;
    collection::list(request, &L7Rules(policy), Page::parse_nested(request)?).await
}

pub(super) async fn show(request: &Request, policy: &str, text: &str) -> Result<Response<Body>> {
    let policy = parent(request, policy).await?.id;
    collection::show(request, &L7Rules(policy), text).await
}

pub(super) async fn create(request: &Request, policy: &str) -> Result<Response<Body>> {
    let spec = NewL7Rule::decode(&request.json("rule")?)?;
    let parent = parent(request, policy).await?;
    let policy = parent.id;
    let target = parent.with(L7RuleId::random());
    collection::write::<L7Rules>(
        request,
        StatusCode::CREATED,
        target,
        |graph, id, rules, now| change::create_l7rule(graph, policy, &spec, id, rules, now),
    )
    .await
}

pub(super) async fn update(request: &Request, policy: &str, text: &str) -> Result<Response<Body>> {
    let spec = L7RuleUpdate::decode(&request.json("rule")?)?;
    let parent = parent(request, policy).await?;
    let policy = parent.id;
    let target = parent.with(id(Resource::L7Rule, text)?);
    collection::write::<L7Rules>(request, StatusCode::OK, target, |graph, id, rules, now| {
        change::update_l7rule(graph, policy, id, &spec, rules, now)
    })
    .await
}

pub(super) async fn delete(request: &Request, policy: &str, text: &str) -> Result<Response<Body>> {
    let parent = parent(request, policy).await?;
    let policy = parent.id;
    let target = parent.with(id(Resource::L7Rule, text)?);
    collection::write_silently(request, StatusCode::NO_CONTENT, target, |graph, id, now| {
        change::delete_l7rule(graph, policy, id, now)
    })
    .await
}

/// Named without a space when it is missing, as Octavia does.
async fn parent(request: &Request, text: &str) -> Result<Target<L7PolicyId>> {
    collection::parent::<L7Policies>(request, "L7Policy", text).await
}
