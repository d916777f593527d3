//! `/healthmonitors`.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change;
use lb_model::spec::{HealthMonitorCreate, HealthMonitorUpdate};
use lb_model::{Graph, HealthMonitorId, LoadBalancerId, Resource};
use lb_store::{HealthMonitorRow, Query, Store};
use serde_json::Value;

use super::collection::{self, Child, Collection, Stored};
use super::pool::Pools;
use crate::fault::Result;
use crate::request::Request;
use crate::view;

pub(super) struct HealthMonitors;

impl Collection for HealthMonitors {
    type Row = HealthMonitorRow;
    const RESOURCE: Resource = Resource::HealthMonitor;
    const ONE: &'static str = "healthmonitor";
    const MANY: &'static str = "healthmonitors";

    async fn rows(&self, store: &Store, query: &Query) -> Stored<Vec<Self::Row>> {
        store.list_health_monitors(query).await
    }

    fn project_id(row: &Self::Row) -> Option<&str> {
        Some(&row.health_monitor.project_id)
    }

    fn view(row: &Self::Row) -> Value {
        view::health_monitor(&row.health_monitor, row.pool_id)
    }
}

impl Child for HealthMonitors {
    type Id = HealthMonitorId;

    async fn owner(store: &Store, id: Self::Id) -> Stored<Option<LoadBalancerId>> {
        store.load_balancer_of_health_monitor(id).await
    }

    fn view_in(graph: &Graph, id: Self::Id) -> Option<Value> {
        graph
            .pool_of_monitor(id)
            .map(|(pool, monitor)| view::health_monitor(monitor, pool.id))
    }
}

pub(super) async fn create(request: &Request) -> Result<Response<Body>> {
    let spec = HealthMonitorCreate::decode(&request.json("healthmonitor")?)?;
    let pool = spec.pool_id;
    let target = collection::existing::<Pools>(request, &pool.to_string())
        .await?
        .with(HealthMonitorId::random());
    collection::write::<HealthMonitors>(
        request,
        StatusCode::CREATED,
        target,
        |graph, id, rules, now| {
            change::create_health_monitor(graph, pool, &spec.health_monitor, id, rules, now)
        },
    )
    .await
}

pub(super) async fn update(request: &Request, text: &str) -> Result<Response<Body>> {
    let spec = HealthMonitorUpdate::decode(&request.json("healthmonitor")?)?;
    let target = collection::existing::<HealthMonitors>(request, text).await?;
    collection::write::<HealthMonitors>(request, StatusCode::OK, target, |graph, id, rules, now| {
        change::update_health_monitor(graph, id, &spec, rules, now)
    })
    .await
}

pub(super) async fn delete(request: &Request, text: &str) -> Result<Response<Body>> {
    let target = collection::existing::<HealthMonitors>(request, text).await?;
    collection::write_silently(
        request,
        StatusCode::NO_CONTENT,
        target,
        change::delete_health_monitor,
    )
    .await
}
