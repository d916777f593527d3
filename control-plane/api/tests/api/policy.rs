//! Every route and method by every set of roles: who is let through. And what policy promises besides.

use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Method, Request};
use lb_api::Route;
use lb_api::policy::{Defaults, Policy, PolicySettings, Rule};
use lb_drivers::{Caller, Identity, IdentityError};
use lb_model::OfferKind;
use serde_json::{Value, json};

use crate::support::{ABSENT, Answer, Api, SUBNET, id_of};

/// The token is who calls: `project/role,role`.
struct ByToken;

#[async_trait]
impl Identity for ByToken {
    async fn authenticate(&self, token: Option<&str>) -> Result<Arc<Caller>, IdentityError> {
        let unauthenticated = || IdentityError::Unauthenticated {
            challenge: "Keystone".to_owned(),
        };
        let (project, roles) = token
            .and_then(|token| token.split_once('/'))
            .ok_or_else(unauthenticated)?;
        Ok(Arc::new(Caller {
            user_id: Some("alice".to_owned()),
            project_id: Some(project.to_owned()),
            roles: roles.split(',').map(str::to_owned).collect(),
            ..Caller::default()
        }))
    }
}

async fn send(api: &Api, token: &str, method: &Method, path: &str, body: Option<Value>) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("x-auth-token", token)
        .header("content-type", "application/json");
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    api.send(request.body(body).unwrap()).await
}

/// A load balancer of project `blue` with one of each below it, by the worker made ACTIVE.
struct Scene {
    api: Api,
    lb: String,
    listener: String,
    pool: String,
    member: String,
    monitor: String,
    l7policy: String,
    l7rule: String,
    flavor: String,
    flavor_profile: String,
    zone_profile: String,
}

/// An availability zone, known by its name.
const ZONE: &str = "zone-1";

impl Scene {
    async fn new(policy: Policy) -> Self {
        let api = Api::governed(policy, Arc::new(ByToken)).await;
        let create = async |path: String, root: &str, object: Value| {
            let body = Some(json!({root: object}));
            let answer = send(&api, "blue/admin", &Method::POST, &path, body).await;
            assert_eq!(answer.status, 201, "{}", answer.text);
            let made = answer.body[root].clone();
            if root == "loadbalancer" {
                api.settle(id_of(&made)).await;
            }
            id_of(&made).to_owned()
        };
        let lb = create(
            "/v2/lbaas/loadbalancers".to_owned(),
            "loadbalancer",
            json!({"vip_subnet_id": SUBNET}),
        )
        .await;
        let object = json!({"loadbalancer_id": lb, "protocol": "HTTP", "protocol_port": 80});
        let listener = create("/v2/lbaas/listeners".to_owned(), "listener", object).await;
        api.settle(&lb).await;
        let object =
            json!({"loadbalancer_id": lb, "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN"});
        let pool = create("/v2/lbaas/pools".to_owned(), "pool", object).await;
        api.settle(&lb).await;
        let object = json!({"address": "10.0.0.9", "protocol_port": 80});
        let member = create(format!("/v2/lbaas/pools/{pool}/members"), "member", object).await;
        api.settle(&lb).await;
        let object =
            json!({"pool_id": pool, "type": "PING", "delay": 5, "timeout": 2, "max_retries": 2});
        let monitor = create(
            "/v2/lbaas/healthmonitors".to_owned(),
            "healthmonitor",
            object,
        )
        .await;
        api.settle(&lb).await;
        let object = json!({"listener_id": listener, "action": "REJECT"});
        let l7policy = create("/v2/lbaas/l7policies".to_owned(), "l7policy", object).await;
        api.settle(&lb).await;
        let object = json!({"type": "PATH", "compare_type": "STARTS_WITH", "value": "/x"});
        let path = format!("/v2/lbaas/l7policies/{l7policy}/rules");
        let l7rule = create(path, "rule", object).await;
        api.settle(&lb).await;
        let object = json!({"name": "p", "provider_name": "amphora", "flavor_data": "{}"});
        let path = "/v2/lbaas/flavorprofiles".to_owned();
        let flavor_profile = create(path, "flavorprofile", object).await;
        let object = json!({"name": "f", "flavor_profile_id": flavor_profile});
        let flavor = create("/v2/lbaas/flavors".to_owned(), "flavor", object).await;
        let object =
            json!({"name": "p", "provider_name": "amphora", "availability_zone_data": "{}"});
        let path = "/v2/lbaas/availabilityzoneprofiles".to_owned();
        let zone_profile = create(path, "availability_zone_profile", object).await;
        let zone = json!({"name": ZONE, "availability_zone_profile_id": zone_profile});
        let body = Some(json!({"availability_zone": zone}));
        let path = "/v2/lbaas/availabilityzones";
        let answer = send(&api, "blue/admin", &Method::POST, path, body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        Self {
            api,
            lb,
            listener,
            pool,
            member,
            monitor,
            l7policy,
            l7rule,
            flavor,
            flavor_profile,
            zone_profile,
        }
    }

    fn ids(&self) -> [&String; 5] {
        [
            &self.lb,
            &self.listener,
            &self.pool,
            &self.monitor,
            &self.l7policy,
        ]
    }

    /// The path of a route with the ids of what is there, and a body its method takes.
    fn call(&self, route: &Route, path: &str, method: &Method) -> (String, Option<Value>) {
        let id: &str = match route {
            Route::Listener(_) | Route::ListenerStats(_) => &self.listener,
            Route::Pool(_) | Route::Members(_) => &self.pool,
            Route::HealthMonitor(_) => &self.monitor,
            Route::L7Policy(_) | Route::L7Rules(_) => &self.l7policy,
            Route::L7Rule(..) => {
                let path = format!(
                    "/v2/lbaas/l7policies/{}/rules/{}",
                    self.l7policy, self.l7rule
                );
                return (path, body_for(route, method, self));
            }
            Route::Member(..) => {
                let path = format!("/v2/lbaas/pools/{}/members/{}", self.pool, self.member);
                return (path, body_for(route, method, self));
            }
            Route::Quota(_) | Route::QuotaDefault(_) => "blue",
            Route::ProviderOptions(..) => "amphora",
            Route::Offer(OfferKind::Flavor, _) => &self.flavor,
            Route::Offer(OfferKind::AvailabilityZone, _) => ZONE,
            Route::Profile(OfferKind::Flavor, _) => &self.flavor_profile,
            Route::Profile(OfferKind::AvailabilityZone, _) => &self.zone_profile,
            _ => &self.lb,
        };
        (path.replace(ABSENT, id), body_for(route, method, self))
    }
}

fn body_for(route: &Route, method: &Method, scene: &Scene) -> Option<Value> {
    let body = match (route, method) {
        (_, &Method::GET | &Method::DELETE) => return None,
        (Route::LoadBalancers, _) => {
            json!({"loadbalancer": {"vip_subnet_id": SUBNET, "project_id": "blue"}})
        }
        (Route::LoadBalancer(_), _) => json!({"loadbalancer": {}}),
        (Route::Listeners, _) => json!({"listener": {
            "loadbalancer_id": scene.lb, "protocol": "HTTP", "protocol_port": 81,
        }}),
        (Route::Listener(_), _) => json!({"listener": {}}),
        (Route::Pools, _) => json!({"pool": {
            "loadbalancer_id": scene.lb, "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN",
        }}),
        (Route::Pool(_), _) => json!({"pool": {}}),
        (Route::Members(_), &Method::POST) => {
            json!({"member": {"address": "10.0.0.10", "protocol_port": 80}})
        }
        (Route::Members(_), _) => json!({"members": []}),
        (Route::Member(..), _) => json!({"member": {}}),
        (Route::HealthMonitors, _) => json!({"healthmonitor": {
            "pool_id": scene.pool, "type": "PING", "delay": 5, "timeout": 2, "max_retries": 2,
        }}),
        (Route::L7Policies, _) => json!({"l7policy": {
            "listener_id": scene.listener, "action": "REJECT",
        }}),
        (Route::L7Policy(_), _) => json!({"l7policy": {"name": "n"}}),
        (Route::L7Rules(_), _) => json!({"rule": {
            "type": "PATH", "compare_type": "STARTS_WITH", "value": "/y",
        }}),
        (Route::L7Rule(..), _) => json!({"rule": {"value": "/z"}}),
        (Route::HealthMonitor(_), _) => json!({"healthmonitor": {}}),
        (Route::Quota(_), _) => json!({"quota": {"pool": 5}}),
        _ => return None,
    };
    Some(body)
}

/// What a kind of caller may do, by what the rule is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Admin,
}

fn kind(rule: Rule) -> Kind {
    match (rule.resource(), rule.action()) {
        (
            "amphora"
            | "provider-flavor"
            | "provider-availability-zone"
            | "flavor-profile"
            | "availability-zone-profile",
            _,
        )
        | (_, "put_failover" | "get_reconcile") => Kind::Admin,
        (_, action) if action.starts_with("get") => Kind::Read,
        ("quota" | "flavor" | "availability-zone", _) => Kind::Admin,
        _ => Kind::Write,
    }
}

/// Token, and whether it may read, write, administer what belongs to `blue`.
type Persona = (&'static str, bool, bool, bool);

async fn check(policy: impl Fn() -> Policy, personas: &[Persona]) {
    for (token, read, write, admin) in personas {
        let scene = Scene::new(policy()).await;
        for (route, path) in Route::samples(ABSENT) {
            for method in route.methods() {
                let Some(rule) = route.rule(method) else {
                    continue;
                };
                let (path, body) = scene.call(&route, &path, method);
                let before = state_of(&scene).await;
                let answer = send(&scene.api, token, method, &path, body).await;
                let kind = kind(rule);
                let allowed = match kind {
                    Kind::Read => *read,
                    Kind::Write => *write,
                    Kind::Admin => *admin,
                } || (rule.resource() == "quota" && token.ends_with("quota_admin"));
                // An amphora of that id is not there: nobody is told more.
                let absent = rule.resource() == "amphora" && path.contains(&scene.lb);
                // Others see lists of their own project, which are empty, and what belongs to none.
                let own = token.starts_with("red/")
                    && kind == Kind::Read
                    && !path.contains("/blue")
                    && scene.ids().iter().all(|id| !path.contains(*id));
                let what = format!("{token}: {method} {path}: {}", answer.text);
                if absent {
                    assert_eq!(answer.status, 404, "{what}");
                } else if own {
                    let reader = !token.ends_with("/nothing");
                    assert_eq!(answer.status.is_success(), reader, "{what}");
                } else if allowed {
                    assert_ne!(answer.status, 403, "{what}");
                    assert_ne!(answer.status, 401, "{what}");
                    assert!(!answer.status.is_server_error(), "{what}");
                } else {
                    assert_eq!(answer.status, 403, "{what}");
                    // P90: the answer says which rule is wanting.
                    assert!(answer.fault().contains("os_load-balancer_api:"), "{what}");
                }
                if answer.status == 403 {
                    assert_eq!(state_of(&scene).await, before, "{what}");
                }
            }
        }
    }
}

async fn state_of(scene: &Scene) -> lb_model::Graph {
    let id = scene.lb.parse().unwrap();
    scene.api.store.load_graph(id).await.unwrap().unwrap()
}

// P90
#[tokio::test]
async fn keystones_default_roles_open_the_routes_they_should() {
    check(
        Policy::default,
        &[
            ("blue/nothing", false, false, false),
            ("blue/load-balancer_member", false, false, false),
            ("blue/reader", true, false, false),
            ("blue/member,reader", true, true, false),
            ("red/reader", false, false, false),
            ("red/member,reader", false, false, false),
            ("red/admin,member,reader", true, true, true),
            ("blue/admin,member,reader", true, true, true),
        ],
    )
    .await;
}

// P90
#[tokio::test]
async fn the_load_balancer_roles_open_the_routes_they_should() {
    let both = || {
        Policy::load(PolicySettings {
            defaults: Defaults::KeystoneAndAdvanced,
            ..PolicySettings::default()
        })
        .unwrap()
    };
    check(
        both,
        &[
            ("blue/nothing", false, false, false),
            ("blue/load-balancer_observer", true, false, false),
            ("blue/load-balancer_member", true, true, false),
            ("red/load-balancer_member", false, false, false),
            ("blue/load-balancer_quota_admin", false, false, false),
            ("blue/load-balancer_admin", true, true, true),
        ],
    )
    .await;
}

#[tokio::test]
async fn who_sees_all_lists_all_and_others_only_their_own() {
    let scene = Scene::new(Policy::default()).await;
    let list = async |token: &str, query: &str| {
        let path = format!("/v2/lbaas/loadbalancers{query}");
        let answer = send(&scene.api, token, &Method::GET, &path, None).await;
        let count = answer.body["loadbalancers"].as_array().map(Vec::len);
        (answer.status.as_u16(), count)
    };
    for (token, query, expected) in [
        ("red/admin", "", (200, Some(1))),
        ("red/admin", "?project_id=blue", (200, Some(1))),
        ("red/admin", "?project_id=red", (200, Some(0))),
        ("blue/reader", "", (200, Some(1))),
        ("blue/reader", "?project_id=blue", (200, Some(1))),
        ("blue/reader", "?project_id=red", (403, None)),
        ("red/member", "", (200, Some(0))),
        ("red/member", "?project_id=blue", (403, None)),
        ("blue/nothing", "", (403, None)),
    ] {
        assert_eq!(list(token, query).await, expected, "{token} {query}");
    }
}

#[tokio::test]
async fn a_load_balancer_is_made_in_the_project_of_the_token_or_by_an_admin_in_any() {
    let scene = Scene::new(Policy::default()).await;
    for (token, fields, expected) in [
        ("red/member", json!({}), Ok("red")),
        ("red/member", json!({"project_id": "red"}), Ok("red")),
        ("red/member", json!({"tenant_id": "red"}), Ok("red")),
        ("red/member", json!({"project_id": "blue"}), Err(403)),
        ("red/member", json!({"tenant_id": "blue"}), Err(403)),
        // The old name wins where they differ.
        (
            "red/member",
            json!({"project_id": "blue", "tenant_id": "red"}),
            Ok("red"),
        ),
        (
            "red/member",
            json!({"project_id": "red", "tenant_id": "blue"}),
            Err(403),
        ),
        ("red/admin", json!({}), Ok("red")),
        ("red/admin", json!({"project_id": "blue"}), Ok("blue")),
        ("red/reader", json!({}), Err(403)),
    ] {
        let mut object = json!({"vip_subnet_id": SUBNET});
        crate::support::merge(&mut object, fields.clone());
        let body = Some(json!({"loadbalancer": object}));
        let path = "/v2/lbaas/loadbalancers";
        let answer = send(&scene.api, token, &Method::POST, path, body).await;
        let lb = &answer.body["loadbalancer"];
        let found = match lb["project_id"].as_str() {
            Some(project) => {
                assert_eq!(lb["tenant_id"], project);
                Ok(project)
            }
            None => Err(answer.status.as_u16()),
        };
        assert_eq!(found, expected, "{token} {fields}");
    }
}

#[tokio::test]
async fn children_belong_to_the_project_of_their_load_balancer_whoever_makes_them() {
    let scene = Scene::new(Policy::default()).await;
    let object = json!({"loadbalancer_id": scene.lb, "protocol": "TCP", "protocol_port": 7,
        "project_id": "red"});
    let path = "/v2/lbaas/listeners";
    let body = Some(json!({"listener": object}));
    let answer = send(&scene.api, "red/admin", &Method::POST, path, body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(answer.body["listener"]["project_id"], "blue");
}

#[tokio::test]
async fn what_is_not_there_is_404_to_whoever_may_not_see_it_either() {
    let scene = Scene::new(Policy::default()).await;
    for (route, path) in Route::samples(ABSENT) {
        let governed = route.rule(&Method::GET).is_some();
        // What belongs to no project is refused without a look at it; every project has quotas.
        let looks = !matches!(
            route,
            Route::LoadBalancerReconcile(_)
                | Route::Quota(_)
                | Route::QuotaDefault(_)
                | Route::ProviderOptions(..)
                | Route::Offer(..)
                | Route::Profile(..)
        );
        if !governed || !path.contains(ABSENT) || !looks {
            continue;
        }
        let answer = send(&scene.api, "red/nothing", &Method::GET, &path, None).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_batch_asks_for_creating_and_deleting_too_unless_it_only_adds() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.yaml");
    std::fs::write(
        &file,
        "\"os_load-balancer_api:member:delete\": \"role:boss\"\n",
    )
    .unwrap();
    let policy = Policy::load(PolicySettings {
        file: Some(file),
        ..PolicySettings::default()
    })
    .unwrap();
    let scene = Scene::new(policy).await;
    let path = format!("/v2/lbaas/pools/{}/members", scene.pool);
    for (query, status) in [("", 403), ("?additive_only=true", 202)] {
        let body = Some(json!({"members": []}));
        let path = format!("{path}{query}");
        let answer = send(&scene.api, "blue/member", &Method::PUT, &path, body).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.text);
    }
}
