//! Every path there is, once.
//!
//! `/v2` and `/v2.0` are the same, with and without `/lbaas`; a trailing slash and a `.json` suffix do not matter.

use axum::http::Method;
use lb_model::OfferKind;

use crate::policy::Rule;
use crate::query_string;

/// A path that exists. Ids are as sent: what is no UUID is not found, like any other unknown id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    Discovery,
    Healthcheck,
    /// The description of the API; not of Octavia.
    OpenApi,
    V2,
    LoadBalancers,
    LoadBalancer(String),
    LoadBalancerStats(String),
    LoadBalancerStatus(String),
    LoadBalancerFailover(String),
    /// What the control plane last did for a load balancer; for operators, not of Octavia.
    LoadBalancerReconcile(String),
    Listeners,
    Listener(String),
    ListenerStats(String),
    Pools,
    Pool(String),
    Members(String),
    Member(String, String),
    HealthMonitors,
    HealthMonitor(String),
    L7Policies,
    L7Policy(String),
    L7Rules(String),
    L7Rule(String, String),
    Amphorae,
    Amphora(String),
    AmphoraStats(String),
    AmphoraFailover(String),
    AmphoraConfig(String),
    Quotas,
    /// The limits of projects that have none of their own.
    QuotaDefaults,
    /// By project.
    Quota(String),
    QuotaDefault(String),
    Providers,
    /// What the profiles of a provider may set.
    ProviderOptions(String, OfferKind),
    Offers(OfferKind),
    /// A flavor by its id, an availability zone by its name.
    Offer(OfferKind, String),
    Profiles(OfferKind),
    Profile(OfferKind, String),
    /// Look-ups in the network service; only where the API answers for it.
    Networks,
    Network(String),
    Subnets,
    Subnet(String),
    Ports,
    Port(String),
    Extensions,
}

/// How a path answers to methods it does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteKind {
    /// `PUT` and `DELETE` miss their argument.
    Collection,
    /// `POST` has an argument too many.
    Item,
    Other,
}

impl Route {
    /// `None`: no such path.
    pub fn parse(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.is_empty() || path == "load-balancer" {
            return Some(Self::Discovery);
        }
        if path == "healthcheck" || path == "load-balancer/healthcheck" {
            return Some(Self::Healthcheck);
        }
        if path == "openapi.json" || path == "load-balancer/openapi.json" {
            return Some(Self::OpenApi);
        }
        let mut segments: Vec<String> = path
            .split('/')
            .map(|segment| query_string::decode(segment, false))
            .collect();
        // No database is asked for what not every one can hold.
        if segments.iter().any(|segment| segment.contains('\0')) {
            return None;
        }
        if let Some(last) = segments.last_mut()
            && let Some(stem) = last.strip_suffix(".json")
        {
            *last = stem.to_owned();
        }
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["v2" | "v2.0", rest @ ..] => match rest {
                [] | ["lbaas" | "octavia"] => Some(Self::V2),
                ["octavia", rest @ ..] => Self::admin(rest),
                ["lbaas", rest @ ..] => Self::resource(rest),
                rest => Self::resource(rest).or_else(|| Self::network_service(rest)),
            },
            _ => None,
        }
    }

    fn resource(segments: &[&str]) -> Option<Self> {
        let id = |text: &str| text.to_owned();
        Some(match segments {
            ["loadbalancers"] => Self::LoadBalancers,
            ["loadbalancers", lb] => Self::LoadBalancer(id(lb)),
            ["loadbalancers", lb, "stats"] => Self::LoadBalancerStats(id(lb)),
            ["loadbalancers", lb, "status" | "statuses"] => Self::LoadBalancerStatus(id(lb)),
            ["loadbalancers", lb, "failover"] => Self::LoadBalancerFailover(id(lb)),
            ["listeners"] => Self::Listeners,
            ["listeners", listener] => Self::Listener(id(listener)),
            ["listeners", listener, "stats"] => Self::ListenerStats(id(listener)),
            ["pools"] => Self::Pools,
            ["pools", pool] => Self::Pool(id(pool)),
            ["pools", pool, "members"] => Self::Members(id(pool)),
            ["pools", pool, "members", member] => Self::Member(id(pool), id(member)),
            ["healthmonitors"] => Self::HealthMonitors,
            ["healthmonitors", monitor] => Self::HealthMonitor(id(monitor)),
            ["l7policies"] => Self::L7Policies,
            ["l7policies", policy] => Self::L7Policy(id(policy)),
            ["l7policies", policy, "rules"] => Self::L7Rules(id(policy)),
            ["l7policies", policy, "rules", rule] => Self::L7Rule(id(policy), id(rule)),
            ["quotas"] => Self::Quotas,
            ["quotas", "defaults"] => Self::QuotaDefaults,
            ["quotas", project] if !project.is_empty() => Self::Quota(id(project)),
            ["quotas", project, "default"] => Self::QuotaDefault(id(project)),
            ["providers"] => Self::Providers,
            ["providers", provider, "flavor_capabilities"] => {
                Self::ProviderOptions(id(provider), OfferKind::Flavor)
            }
            ["providers", provider, "availability_zone_capabilities"] => {
                Self::ProviderOptions(id(provider), OfferKind::AvailabilityZone)
            }
            ["flavors"] => Self::Offers(OfferKind::Flavor),
            ["flavors", flavor] => Self::Offer(OfferKind::Flavor, id(flavor)),
            ["flavorprofiles"] => Self::Profiles(OfferKind::Flavor),
            ["flavorprofiles", profile] => Self::Profile(OfferKind::Flavor, id(profile)),
            ["availabilityzones"] => Self::Offers(OfferKind::AvailabilityZone),
            ["availabilityzones", zone] => Self::Offer(OfferKind::AvailabilityZone, id(zone)),
            ["availabilityzoneprofiles"] => Self::Profiles(OfferKind::AvailabilityZone),
            ["availabilityzoneprofiles", profile] => {
                Self::Profile(OfferKind::AvailabilityZone, id(profile))
            }
            _ => return None,
        })
    }

    fn admin(segments: &[&str]) -> Option<Self> {
        let id = |text: &str| text.to_owned();
        Some(match segments {
            ["amphorae"] => Self::Amphorae,
            ["amphorae", amphora] => Self::Amphora(id(amphora)),
            ["amphorae", amphora, "stats"] => Self::AmphoraStats(id(amphora)),
            ["amphorae", amphora, "failover"] => Self::AmphoraFailover(id(amphora)),
            ["amphorae", amphora, "config"] => Self::AmphoraConfig(id(amphora)),
            ["loadbalancers", lb, "reconcile"] => Self::LoadBalancerReconcile(id(lb)),
            _ => return None,
        })
    }

    fn network_service(segments: &[&str]) -> Option<Self> {
        let id = |text: &str| text.to_owned();
        Some(match segments {
            ["networks"] => Self::Networks,
            ["networks", network] => Self::Network(id(network)),
            ["subnets"] => Self::Subnets,
            ["subnets", subnet] => Self::Subnet(id(subnet)),
            ["ports"] => Self::Ports,
            ["ports", port] => Self::Port(id(port)),
            ["extensions"] => Self::Extensions,
            _ => return None,
        })
    }

    /// One of each, for tests that go through all.
    pub fn samples(id: &str) -> Vec<(Self, String)> {
        let paths = [
            "/".to_owned(),
            "/healthcheck".to_owned(),
            "/openapi.json".to_owned(),
            "/v2".to_owned(),
            "/v2/lbaas/loadbalancers".to_owned(),
            format!("/v2/lbaas/loadbalancers/{id}"),
            format!("/v2/lbaas/loadbalancers/{id}/stats"),
            format!("/v2/lbaas/loadbalancers/{id}/status"),
            format!("/v2/lbaas/loadbalancers/{id}/failover"),
            format!("/v2/octavia/loadbalancers/{id}/reconcile"),
            "/v2/lbaas/listeners".to_owned(),
            format!("/v2/lbaas/listeners/{id}"),
            format!("/v2/lbaas/listeners/{id}/stats"),
            "/v2/lbaas/pools".to_owned(),
            format!("/v2/lbaas/pools/{id}"),
            format!("/v2/lbaas/pools/{id}/members"),
            format!("/v2/lbaas/pools/{id}/members/{id}"),
            "/v2/lbaas/healthmonitors".to_owned(),
            format!("/v2/lbaas/healthmonitors/{id}"),
            "/v2/lbaas/l7policies".to_owned(),
            format!("/v2/lbaas/l7policies/{id}"),
            format!("/v2/lbaas/l7policies/{id}/rules"),
            format!("/v2/lbaas/l7policies/{id}/rules/{id}"),
            "/v2/octavia/amphorae".to_owned(),
            format!("/v2/octavia/amphorae/{id}"),
            format!("/v2/octavia/amphorae/{id}/stats"),
            format!("/v2/octavia/amphorae/{id}/failover"),
            format!("/v2/octavia/amphorae/{id}/config"),
            "/v2/lbaas/quotas".to_owned(),
            "/v2/lbaas/quotas/defaults".to_owned(),
            format!("/v2/lbaas/quotas/{id}"),
            format!("/v2/lbaas/quotas/{id}/default"),
            "/v2/lbaas/providers".to_owned(),
            format!("/v2/lbaas/providers/{id}/flavor_capabilities"),
            format!("/v2/lbaas/providers/{id}/availability_zone_capabilities"),
            "/v2/lbaas/flavors".to_owned(),
            format!("/v2/lbaas/flavors/{id}"),
            "/v2/lbaas/flavorprofiles".to_owned(),
            format!("/v2/lbaas/flavorprofiles/{id}"),
            "/v2/lbaas/availabilityzones".to_owned(),
            format!("/v2/lbaas/availabilityzones/{id}"),
            "/v2/lbaas/availabilityzoneprofiles".to_owned(),
            format!("/v2/lbaas/availabilityzoneprofiles/{id}"),
            "/v2.0/networks".to_owned(),
            format!("/v2.0/networks/{id}"),
            "/v2.0/subnets".to_owned(),
            format!("/v2.0/subnets/{id}"),
            "/v2.0/ports".to_owned(),
            format!("/v2.0/ports/{id}"),
            "/v2.0/extensions".to_owned(),
        ];
        paths
            .into_iter()
            .filter_map(|path| Self::parse(&path).map(|route| (route, path)))
            .collect()
    }

    pub fn methods(&self) -> &'static [Method] {
        const GET: &[Method] = &[Method::GET];
        const LOOK: &[Method] = &[Method::GET, Method::HEAD];
        const PUT: &[Method] = &[Method::PUT];
        const COLLECTION: &[Method] = &[Method::GET, Method::POST];
        const ITEM: &[Method] = &[Method::GET, Method::PUT, Method::DELETE];
        const AMPHORA: &[Method] = &[Method::GET, Method::DELETE];
        const BATCH: &[Method] = &[Method::GET, Method::POST, Method::PUT];
        match self {
            Self::LoadBalancers
            | Self::Listeners
            | Self::Pools
            | Self::HealthMonitors
            | Self::L7Policies
            | Self::L7Rules(_)
            | Self::Offers(_)
            | Self::Profiles(_) => COLLECTION,
            Self::Members(_) => BATCH,
            Self::LoadBalancer(_)
            | Self::Listener(_)
            | Self::Pool(_)
            | Self::Member(..)
            | Self::HealthMonitor(_)
            | Self::L7Policy(_)
            | Self::L7Rule(..)
            | Self::Offer(..)
            | Self::Profile(..)
            | Self::Quota(_) => ITEM,
            Self::LoadBalancerFailover(_) | Self::AmphoraFailover(_) | Self::AmphoraConfig(_) => {
                PUT
            }
            Self::Amphora(_) => AMPHORA,
            Self::Healthcheck => LOOK,
            Self::Discovery
            | Self::OpenApi
            | Self::V2
            | Self::LoadBalancerStats(_)
            | Self::LoadBalancerStatus(_)
            | Self::LoadBalancerReconcile(_)
            | Self::ListenerStats(_)
            | Self::Amphorae
            | Self::AmphoraStats(_)
            | Self::Quotas
            | Self::QuotaDefaults
            | Self::QuotaDefault(_)
            | Self::Providers
            | Self::ProviderOptions(..)
            | Self::Networks
            | Self::Network(_)
            | Self::Subnets
            | Self::Subnet(_)
            | Self::Ports
            | Self::Port(_)
            | Self::Extensions => GET,
        }
    }

    /// What policy decides on; `None` for what it does not govern.
    pub fn rule(&self, method: &Method) -> Option<Rule> {
        let of = |get, post, put, delete| match *method {
            Method::GET => get,
            Method::POST => post,
            Method::PUT => put,
            Method::DELETE => delete,
            _ => None,
        };
        let list = |get, post| of(Some(get), Some(post), None, None);
        let item = |get, put, delete| of(Some(get), None, Some(put), Some(delete));
        let get = |get| of(Some(get), None, None, None);
        let put = |put| of(None, None, Some(put), None);
        match self {
            Self::LoadBalancers => list(Rule::LoadBalancerGetAll, Rule::LoadBalancerPost),
            Self::LoadBalancer(_) => item(
                Rule::LoadBalancerGetOne,
                Rule::LoadBalancerPut,
                Rule::LoadBalancerDelete,
            ),
            Self::LoadBalancerStats(_) => get(Rule::LoadBalancerGetStats),
            Self::LoadBalancerStatus(_) => get(Rule::LoadBalancerGetStatus),
            Self::LoadBalancerFailover(_) => put(Rule::LoadBalancerPutFailover),
            Self::LoadBalancerReconcile(_) => get(Rule::LoadBalancerGetReconcile),
            Self::Listeners => list(Rule::ListenerGetAll, Rule::ListenerPost),
            Self::Listener(_) => item(
                Rule::ListenerGetOne,
                Rule::ListenerPut,
                Rule::ListenerDelete,
            ),
            Self::ListenerStats(_) => get(Rule::ListenerGetStats),
            Self::Pools => list(Rule::PoolGetAll, Rule::PoolPost),
            Self::Pool(_) => item(Rule::PoolGetOne, Rule::PoolPut, Rule::PoolDelete),
            Self::Members(_) => of(
                Some(Rule::MemberGetAll),
                Some(Rule::MemberPost),
                Some(Rule::MemberPut),
                None,
            ),
            Self::Member(..) => item(Rule::MemberGetOne, Rule::MemberPut, Rule::MemberDelete),
            Self::HealthMonitors => list(Rule::HealthMonitorGetAll, Rule::HealthMonitorPost),
            Self::HealthMonitor(_) => item(
                Rule::HealthMonitorGetOne,
                Rule::HealthMonitorPut,
                Rule::HealthMonitorDelete,
            ),
            Self::L7Policies => list(Rule::L7PolicyGetAll, Rule::L7PolicyPost),
            Self::L7Policy(_) => item(
                Rule::L7PolicyGetOne,
                Rule::L7PolicyPut,
                Rule::L7PolicyDelete,
            ),
            Self::L7Rules(_) => list(Rule::L7RuleGetAll, Rule::L7RulePost),
            Self::L7Rule(..) => item(Rule::L7RuleGetOne, Rule::L7RulePut, Rule::L7RuleDelete),
            Self::Quotas => get(Rule::QuotaGetAll),
            Self::QuotaDefaults | Self::QuotaDefault(_) => get(Rule::QuotaGetDefaults),
            Self::Quota(_) => item(Rule::QuotaGetOne, Rule::QuotaPut, Rule::QuotaDelete),
            Self::Amphorae => get(Rule::AmphoraGetAll),
            Self::Amphora(_) => of(
                Some(Rule::AmphoraGetOne),
                None,
                None,
                Some(Rule::AmphoraDelete),
            ),
            Self::AmphoraConfig(_) => put(Rule::AmphoraPutConfig),
            Self::AmphoraStats(_) => get(Rule::AmphoraGetStats),
            Self::AmphoraFailover(_) => put(Rule::AmphoraPutFailover),
            Self::Providers => get(Rule::ProviderGetAll),
            Self::ProviderOptions(_, OfferKind::Flavor) => get(Rule::ProviderFlavorGetAll),
            Self::ProviderOptions(_, OfferKind::AvailabilityZone) => {
                get(Rule::ProviderAvailabilityZoneGetAll)
            }
            Self::Offers(OfferKind::Flavor) => list(Rule::FlavorGetAll, Rule::FlavorPost),
            Self::Offer(OfferKind::Flavor, _) => {
                item(Rule::FlavorGetOne, Rule::FlavorPut, Rule::FlavorDelete)
            }
            Self::Profiles(OfferKind::Flavor) => {
                list(Rule::FlavorProfileGetAll, Rule::FlavorProfilePost)
            }
            Self::Profile(OfferKind::Flavor, _) => item(
                Rule::FlavorProfileGetOne,
                Rule::FlavorProfilePut,
                Rule::FlavorProfileDelete,
            ),
            Self::Offers(OfferKind::AvailabilityZone) => {
                list(Rule::AvailabilityZoneGetAll, Rule::AvailabilityZonePost)
            }
            Self::Offer(OfferKind::AvailabilityZone, _) => item(
                Rule::AvailabilityZoneGetOne,
                Rule::AvailabilityZonePut,
                Rule::AvailabilityZoneDelete,
            ),
            Self::Profiles(OfferKind::AvailabilityZone) => list(
                Rule::AvailabilityZoneProfileGetAll,
                Rule::AvailabilityZoneProfilePost,
            ),
            Self::Profile(OfferKind::AvailabilityZone, _) => item(
                Rule::AvailabilityZoneProfileGetOne,
                Rule::AvailabilityZoneProfilePut,
                Rule::AvailabilityZoneProfileDelete,
            ),
            Self::Discovery
            | Self::Healthcheck
            | Self::OpenApi
            | Self::V2
            | Self::Networks
            | Self::Network(_)
            | Self::Subnets
            | Self::Subnet(_)
            | Self::Ports
            | Self::Port(_)
            | Self::Extensions => None,
        }
    }

    pub fn kind(&self) -> RouteKind {
        match self.methods() {
            [Method::GET, Method::POST, ..] => RouteKind::Collection,
            [Method::GET, Method::PUT, Method::DELETE] => RouteKind::Item,
            _ => RouteKind::Other,
        }
    }

    pub fn is_network_service(&self) -> bool {
        matches!(
            self,
            Self::Networks
                | Self::Network(_)
                | Self::Subnets
                | Self::Subnet(_)
                | Self::Ports
                | Self::Port(_)
                | Self::Extensions
        )
    }

    pub(crate) fn needs_authentication(&self) -> bool {
        !matches!(self, Self::Discovery | Self::Healthcheck | Self::OpenApi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_is_the_same_route() {
        let id = "8f2b7a4e-1c3d-4e5f-8a9b-0c1d2e3f4a5b";
        let expected = Some(Route::Member(id.to_owned(), "m".to_owned()));
        for prefix in ["/v2", "/v2.0", "/v2/lbaas", "/v2.0/lbaas"] {
            for suffix in ["", "/", ".json"] {
                let path = format!("{prefix}/pools/{id}/members/m{suffix}");
                assert_eq!(Route::parse(&path), expected, "{path}");
            }
        }
        for path in ["/v2", "/v2/", "/v2.0", "/v2/lbaas", "/v2/octavia/"] {
            assert_eq!(Route::parse(path), Some(Route::V2), "{path}");
        }
        for path in ["", "/", "/load-balancer", "/load-balancer/"] {
            assert_eq!(Route::parse(path), Some(Route::Discovery), "{path}");
        }
        for path in [
            "/healthcheck",
            "/healthcheck/",
            "/load-balancer/healthcheck",
        ] {
            assert_eq!(Route::parse(path), Some(Route::Healthcheck), "{path}");
        }
    }

    #[test]
    fn what_is_not_there_yet_is_no_path() {
        for path in [
            "/v1",
            "/v2.1/lbaas/loadbalancers",
            "/v2/lbaas/amphorae",
            "/v2/octavia/loadbalancers",
            "/v2/lbaas/networks",
            "/v2/lbaas/providers/amphora",
            "/v2/lbaas/loadbalancers//stats/x",
            "//v2",
            "/v2/lbaas/quotas/a%00b",
            "/v2/lbaas/availabilityzones/%00",
        ] {
            assert_eq!(Route::parse(path), None, "{path}");
        }
    }

    #[test]
    fn the_samples_are_every_route_once() {
        let samples = Route::samples("x");
        assert_eq!(samples.len(), 50);
        for (index, (route, _)) in samples.iter().enumerate() {
            let same = samples.iter().position(|(other, _)| other == route);
            assert_eq!(same, Some(index), "{route:?}");
        }
    }
}
