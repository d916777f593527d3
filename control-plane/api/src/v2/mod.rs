//! One file a resource; here the paths are handed to them.

mod amphora;
mod collection;
mod health_monitor;
mod l7policy;
mod l7rule;
mod listener;
mod load_balancer;
mod member;
mod pool;
mod provider;
mod reconcile;

use axum::body::Body;
use axum::http::{Method, Response, StatusCode};
use serde_json::Value;

use self::health_monitor::HealthMonitors;
use self::l7policy::L7Policies;
use self::listener::Listeners;
use self::load_balancer::LoadBalancers;
use self::pool::Pools;
use crate::fault::{Result, answer};
use crate::page::Page;
use crate::request::Request;
use crate::{Route, discovery, network_lookup};

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
            _ => collection::list(request, &LoadBalancers, Page::parse(request)?).await,
        },
        Route::LoadBalancer(id) => match *method {
            Method::PUT => load_balancer::update(request, id).await,
            Method::DELETE => load_balancer::delete(request, id).await,
            _ => collection::show(request, &LoadBalancers, id).await,
        },
        Route::LoadBalancerStats(id) => load_balancer::stats(request, id).await,
        Route::LoadBalancerStatus(id) => load_balancer::status(request, id).await,
        Route::LoadBalancerFailover(id) => load_balancer::failover(request, id).await,
        Route::LoadBalancerReconcile(id) => reconcile::show(request, id).await,
        Route::Listeners => match *method {
            Method::POST => listener::create(request).await,
            _ => collection::list(request, &Listeners, Page::parse(request)?).await,
        },
        Route::Listener(id) => match *method {
            Method::PUT => listener::update(request, id).await,
            Method::DELETE => listener::delete(request, id).await,
            _ => collection::show(request, &Listeners, id).await,
        },
        Route::ListenerStats(id) => listener::stats(request, id).await,
        Route::Pools => match *method {
            Method::POST => pool::create(request).await,
            _ => collection::list(request, &Pools, Page::parse(request)?).await,
        },
        Route::Pool(id) => match *method {
            Method::PUT => pool::update(request, id).await,
            Method::DELETE => pool::delete(request, id).await,
            _ => collection::show(request, &Pools, id).await,
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
            _ => collection::list(request, &HealthMonitors, Page::parse(request)?).await,
        },
        Route::HealthMonitor(id) => match *method {
            Method::PUT => health_monitor::update(request, id).await,
            Method::DELETE => health_monitor::delete(request, id).await,
            _ => collection::show(request, &HealthMonitors, id).await,
        },
        Route::L7Policies => match *method {
            Method::POST => l7policy::create(request).await,
            _ => collection::list(request, &L7Policies, Page::parse(request)?).await,
        },
        Route::L7Policy(id) => match *method {
            Method::PUT => l7policy::update(request, id).await,
            Method::DELETE => l7policy::delete(request, id).await,
            _ => collection::show(request, &L7Policies, id).await,
        },
        Route::L7Rules(policy) => match *method {
            Method::POST => l7rule::create(request, policy).await,
            _ => l7rule::list(request, policy).await,
        },
        Route::L7Rule(policy, id) => match *method {
            Method::PUT => l7rule::update(request, policy, id).await,
            Method::DELETE => l7rule::delete(request, policy, id).await,
            _ => l7rule::show(request, policy, id).await,
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
