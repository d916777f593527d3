//! One file a resource; here the paths are handed to them.

mod amphora;
mod collection;
mod health_monitor;
mod l7policy;
mod l7rule;
mod listener;
mod load_balancer;
mod member;
mod offer;
mod pool;
mod profile;
mod provider;
mod quota;
mod reconcile;

use axum::body::Body;
use axum::http::{Method, Response, StatusCode};
use lb_model::OfferKind;
use serde_json::Value;

use self::collection::Collection;
use self::health_monitor::HealthMonitors;
use self::l7policy::L7Policies;
use self::l7rule::L7Rules;
use self::listener::Listeners;
use self::load_balancer::LoadBalancers;
use self::member::Members;
use self::pool::Pools;
use crate::fault::{ApiFault, Result, answer};
use crate::once;
use crate::page::Page;
use crate::request::Request;
use crate::{Route, discovery, network_lookup, openapi};
pub(crate) use provider::enabled as enabled_provider;

/// Answers a request whose method the route has.
pub(crate) async fn handle(
    request: &Request,
    route: &Route,
    method: &Method,
) -> Result<Response<Body>> {
    match &request.once {
        Some(once) => once::create(request, route, once).await,
        None => dispatch(request, route, method).await,
    }
}

/// An object that an earlier request created, as `POST` answers it; `location` is its kind and id.
pub(crate) async fn show_created(request: &Request, location: &str) -> Result<Response<Body>> {
    let (kind, id) = location.split_once('/').unwrap_or((location, ""));
    match kind {
        LoadBalancers::MANY => load_balancer::show_created(request, id).await,
        Listeners::MANY => collection::show_created::<Listeners>(request, id).await,
        Pools::MANY => collection::show_created::<Pools>(request, id).await,
        Members::MANY => collection::show_created::<Members>(request, id).await,
        HealthMonitors::MANY => collection::show_created::<HealthMonitors>(request, id).await,
        L7Policies::MANY => collection::show_created::<L7Policies>(request, id).await,
        L7Rules::MANY => collection::show_created::<L7Rules>(request, id).await,
        kind => {
            for offers in [OfferKind::Flavor, OfferKind::AvailabilityZone] {
                if kind == offers.root() {
                    return offer::show(request, offers, id).await;
                }
                if kind == offers.profile_root() {
                    return profile::show(request, offers, id).await;
                }
            }
            Err(ApiFault::unknown_path())
        }
    }
}

pub(crate) async fn dispatch(
    request: &Request,
    route: &Route,
    method: &Method,
) -> Result<Response<Body>> {
    match route {
        Route::Discovery => {
            let base = format!("{}{}", request.origin, request.path.trim_end_matches('/'));
            Ok(answer(StatusCode::OK, &discovery::document(&base)))
        }
        // Answered before, by the process rather than by a resource.
        Route::Healthcheck => Err(ApiFault::unknown_path()),
        Route::OpenApi => Ok(openapi::answer()),
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
        Route::Amphora(id) => match *method {
            Method::DELETE => amphora::delete(request, id).await,
            _ => amphora::show(request, id).await,
        },
        Route::AmphoraStats(id) => amphora::stats(request, id).await,
        Route::AmphoraConfig(id) => amphora::configure(request, id).await,
        Route::AmphoraFailover(id) => amphora::failover(request, id).await,
        Route::Quotas => quota::list(request).await,
        Route::QuotaDefaults => quota::defaults(request),
        Route::QuotaDefault(project) => quota::default_of(request, project),
        Route::Quota(project) => match *method {
            Method::PUT => quota::update(request, project).await,
            Method::DELETE => quota::delete(request, project).await,
            _ => quota::show(request, project).await,
        },
        Route::Providers => provider::list(request),
        Route::ProviderOptions(name, kind) => provider::options(request, name, *kind),
        Route::Offers(kind) => match *method {
            Method::POST => offer::create(request, *kind).await,
            _ => offer::list(request, *kind).await,
        },
        Route::Offer(kind, named) => match *method {
            Method::PUT => offer::update(request, *kind, named).await,
            Method::DELETE => offer::delete(request, *kind, named).await,
            _ => offer::show(request, *kind, named).await,
        },
        Route::Profiles(kind) => match *method {
            Method::POST => profile::create(request, *kind).await,
            _ => profile::list(request, *kind).await,
        },
        Route::Profile(kind, id) => match *method {
            Method::PUT => profile::update(request, *kind, id).await,
            Method::DELETE => profile::delete(request, *kind, id).await,
            _ => profile::show(request, *kind, id).await,
        },
        Route::Networks
        | Route::Network(_)
        | Route::Subnets
        | Route::Subnet(_)
        | Route::Ports
        | Route::Port(_)
        | Route::Extensions => network_lookup::handle(request, route).await,
    }
}
