//! `/pools`.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change;
use lb_model::spec::{PoolCreate, PoolUpdate};
use lb_model::{Fault, Graph, LoadBalancerId, PoolId, Resource};
use lb_store::{PoolRow, Query, Store};
use serde_json::Value;

use super::collection::{self, Child, Collection, Stored};
use crate::fault::Result;
use crate::request::Request;
use crate::view;

pub(super) struct Pools;

impl Collection for Pools {
    type Row = PoolRow;
    const RESOURCE: Resource = Resource::Pool;
    const ONE: &'static str = "pool";
    const MANY: &'static str = "pools";

    async fn rows(&self, store: &Store, query: &Query) -> Stored<Vec<Self::Row>> {
        store.list_pools(query).await
    }

    fn project_id(row: &Self::Row) -> Option<&str> {
        Some(&row.pool.project_id)
    }

    fn view(row: &Self::Row) -> Value {
        view::pool(row)
    }
}

impl Child for Pools {
    type Id = PoolId;

    async fn owner(store: &Store, id: Self::Id) -> Stored<Option<LoadBalancerId>> {
        store.load_balancer_of_pool(id).await
    }

    fn view_in(graph: &Graph, id: Self::Id) -> Option<Value> {
        view::pool_of(graph, id)
    }
}

pub(super) async fn create(request: &Request) -> Result<Response<Body>> {
    let spec = PoolCreate::decode(&request.json("pool")?)?;
    let lb = parent(request, &spec).await?;
    let target = collection::in_load_balancer(request, lb, PoolId::random()).await?;
    collection::write::<Pools>(
        request,
        StatusCode::CREATED,
        target,
        |graph, id, rules, now| {
            change::create_pool(graph, &spec.pool, id, spec.listener_id, rules, now)
        },
    )
    .await
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
    let target = collection::existing::<Pools>(request, text).await?;
    collection::write::<Pools>(request, StatusCode::OK, target, |graph, id, rules, now| {
        change::update_pool(graph, id, &spec, rules, now)
    })
    .await
}

pub(super) async fn delete(request: &Request, text: &str) -> Result<Response<Body>> {
    let target = collection::existing::<Pools>(request, text).await?;
    collection::write_silently(request, StatusCode::NO_CONTENT, target, change::delete_pool).await
}
