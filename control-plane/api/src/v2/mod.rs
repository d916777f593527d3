//! One file a resource; here the paths are handed to them.

mod amphora;
mod health_monitor;
mod listener;
mod load_balancer;
mod member;
mod pool;
mod provider;
mod reconcile;

use axum::body::Body;
use axum::http::{Method, Response, StatusCode};
use lb_model::{Fault, Graph, LoadBalancerId};
use lb_store::{Filter, Query};
use serde_json::Value;

use crate::fault::{ApiFault, Result, answer};
use crate::request::Request;
use crate::{ApiState, Route, discovery, network_lookup};

/// Answers a request whose method the route has.
pub(crate) async fn handle(
    request: &Request,
    route: &Route,
    method: &Method,
) -> Result<Response<Body>> {
    match route {
        Route::Discovery => {
            let base = format!("{}{}", request.origin, request.path.trim_end_matches('/'));
            Ok(answer(StatusCode::OK, &discovery::document(&base)))
        }
        Route::V2 => Ok(answer(StatusCode::OK, &Value::from("v2"))),
        Route::LoadBalancers => match *method {
            Method::POST => load_balancer::create(request).await,
            _ => load_balancer::list(request).await,
        },
        Route::LoadBalancer(id) => match *method {
            Method::PUT => load_balancer::update(request, id).await,
            Method::DELETE => load_balancer::delete(request, id).await,
            _ => load_balancer::show(request, id).await,
        },
        Route::LoadBalancerStats(id) => load_balancer::stats(request, id).await,
        Route::LoadBalancerStatus(id) => load_balancer::status(request, id).await,
        Route::LoadBalancerFailover(id) => load_balancer::failover(request, id).await,
        Route::LoadBalancerReconcile(id) => reconcile::show(request, id).await,
        Route::Listeners => match *method {
            Method::POST => listener::create(request).await,
            _ => listener::list(request).await,
        },
        Route::Listener(id) => match *method {
            Method::PUT => listener::update(request, id).await,
            Method::DELETE => listener::delete(request, id).await,
            _ => listener::show(request, id).await,
        },
        Route::ListenerStats(id) => listener::stats(request, id).await,
        Route::Pools => match *method {
            Method::POST => pool::create(request).await,
            _ => pool::list(request).await,
        },
        Route::Pool(id) => match *method {
            Method::PUT => pool::update(request, id).await,
            Method::DELETE => pool::delete(request, id).await,
            _ => pool::show(request, id).await,
        },
        Route::Members(pool) => match *method {
            Method::POST => member::create(request, pool).await,
            Method::PUT => member::batch(request, pool).await,
            _ => member::list(request, pool).await,
        },
        Route::Member(pool, id) => match *method {
            Method::PUT => member::update(request, pool, id).await,
            Method::DELETE => member::delete(request, pool, id).await,
            _ => member::show(request, pool, id).await,
        },
        Route::HealthMonitors => match *method {
            Method::POST => health_monitor::create(request).await,
            _ => health_monitor::list(request).await,
        },
        Route::HealthMonitor(id) => match *method {
            Method::PUT => health_monitor::update(request, id).await,
            Method::DELETE => health_monitor::delete(request, id).await,
            _ => health_monitor::show(request, id).await,
        },
        Route::Amphorae => amphora::list(request).await,
        Route::Amphora(id) => amphora::show(request, id).await,
        Route::AmphoraStats(id) => amphora::stats(request, id).await,
        Route::AmphoraFailover(id) => amphora::failover(request, id).await,
        Route::Providers => provider::list(request),
        Route::Networks
        | Route::Network(_)
        | Route::Subnets
        | Route::Subnet(_)
        | Route::Ports
        | Route::Port(_)
        | Route::Extensions => network_lookup::handle(request, route).await,
    }
}

/// One transaction under the load balancer's lock; `missing` is the answer when it is gone.
async fn commit<T, F>(
    state: &ApiState,
    id: LoadBalancerId,
    missing: impl FnOnce() -> Fault,
    f: F,
) -> Result<(T, Graph)>
where
    F: FnMut(&mut Graph) -> std::result::Result<T, Fault> + Send,
    T: Send,
{
    match state.store.change_graph(id, state.now(), f).await? {
        None => Err(missing().into()),
        Some(answer) => Ok(answer?),
    }
}

/// The query for one object by its id.
fn by_id(id: impl std::fmt::Display) -> Query {
    Query {
        filters: vec![Filter {
            column: "id".to_owned(),
            value: id.to_string(),
        }],
        limit: Some(1),
        ..Query::default()
    }
}

/// An object that was just written is in the graph that came back.
fn written(view: Option<Value>) -> Result<Value> {
    view.ok_or_else(|| {
        ApiFault::resource(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The object was removed while it was written.",
        )
    })
}
