//! `/listeners`.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change;
use lb_model::spec::{ListenerCreate, ListenerUpdate};
use lb_model::{Graph, ListenerId, LoadBalancerId, Resource};
use lb_store::{ListenerRow, Query, Store};
use serde_json::Value;

use super::collection::{self, Child, Collection, Stored};
use crate::fault::{Result, answer};
use crate::page;
use crate::request::Request;
use crate::view;

pub(super) struct Listeners;

impl Collection for Listeners {
    type Row = ListenerRow;
    const RESOURCE: Resource = Resource::Listener;
    const ONE: &'static str = "listener";
    const MANY: &'static str = "listeners";

    async fn rows(&self, store: &Store, query: &Query) -> Stored<Vec<Self::Row>> {
        store.list_listeners(query).await
    }

    fn project_id(row: &Self::Row) -> Option<&str> {
        Some(&row.listener.project_id)
    }

    fn view(row: &Self::Row) -> Value {
        view::listener(&row.listener, row.load_balancer_id, &row.l7policy_ids)
    }
}

impl Child for Listeners {
    type Id = ListenerId;

    async fn owner(store: &Store, id: Self::Id) -> Stored<Option<LoadBalancerId>> {
        store.load_balancer_of_listener(id).await
    }

    fn view_in(graph: &Graph, id: Self::Id) -> Option<Value> {
        graph.listener(id).map(|listener| {
            let policies: Vec<_> = listener.l7policies.iter().map(|policy| policy.id).collect();
            view::listener(listener, graph.load_balancer.id, &policies)
        })
    }
}

pub(super) async fn create(request: &Request) -> Result<Response<Body>> {
    let spec = ListenerCreate::decode(&request.json("listener")?)?;
    let lb = spec.load_balancer_id;
    let target = collection::in_load_balancer(request, lb, ListenerId::random()).await?;
    collection::write::<Listeners>(
        request,
        StatusCode::CREATED,
        target,
        |graph, id, rules, now| change::create_listener(graph, &spec.listener, id, rules, now),
    )
    .await
}

pub(super) async fn update(request: &Request, text: &str) -> Result<Response<Body>> {
    let spec = ListenerUpdate::decode(&request.json("listener")?)?;
    let target = collection::existing::<Listeners>(request, text).await?;
    collection::write::<Listeners>(request, StatusCode::OK, target, |graph, id, rules, now| {
        change::update_listener(graph, id, &spec, rules, now)
    })
    .await
}

pub(super) async fn delete(request: &Request, text: &str) -> Result<Response<Body>> {
    let target = collection::existing::<Listeners>(request, text).await?;
    collection::write_silently(
        request,
        StatusCode::NO_CONTENT,
        target,
        change::delete_listener,
    )
    .await
}

pub(super) async fn stats(request: &Request, text: &str) -> Result<Response<Body>> {
    let target = collection::existing::<Listeners>(request, text).await?;
    let stats = request.state.store.listener_stats(target.id).await?;
    let body = page::show(request, "stats", view::statistics(&stats));
    Ok(answer(StatusCode::OK, &body))
}
