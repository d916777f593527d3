//! Every route once: what is absent, which methods there are, every spelling.

use axum::http::Method;
use lb_api::{Route, RouteKind};
use serde_json::{Value, json};

use crate::support::{ABSENT, Api};

#[tokio::test]
async fn every_route_with_an_id_answers_404_for_an_absent_object_on_each_method() {
    let api = Api::new().await;
    for id in [ABSENT, "no-uuid"] {
        for (route, path) in Route::samples(id) {
            // Quotas are there for every project, and a provider that is not enabled is a wrong argument.
            let other = matches!(
                route,
                Route::Quota(_) | Route::QuotaDefault(_) | Route::ProviderOptions(..)
            );
            if !path.contains(id) || other {
                continue;
            }
            for method in route.methods() {
                let body = body_for(&route, method);
                let answer = api.call(method.as_str(), &path, body).await;
                assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text);
                let shape = if route.is_network_service() {
                    answer.body["NeutronError"].is_object()
                } else if is_nested(&route) {
                    answer.body["code"] == 404 && answer.body["title"] == "Bad Request"
                } else {
                    answer.body["faultcode"] == "Client" && answer.fault().contains(id)
                };
                assert!(shape, "{method} {path}: {}", answer.text);
            }
        }
    }
}

fn is_nested(route: &Route) -> bool {
    matches!(
        route,
        Route::Members(_) | Route::Member(..) | Route::L7Rules(_) | Route::L7Rule(..)
    )
}

fn body_for(route: &Route, method: &Method) -> Option<Value> {
    if ![Method::PUT, Method::POST].contains(method) {
        return None;
    }
    let member = json!({"address": "10.0.0.9", "protocol_port": 80});
    match route {
        Route::LoadBalancer(_) => Some(json!({"loadbalancer": {}})),
        Route::Listener(_) => Some(json!({"listener": {}})),
        Route::Pool(_) => Some(json!({"pool": {}})),
        Route::HealthMonitor(_) => Some(json!({"healthmonitor": {}})),
        Route::L7Policy(_) => Some(json!({"l7policy": {"name": "x"}})),
        Route::L7Rules(_) => {
            Some(json!({"rule": {"type": "PATH", "compare_type": "EQUAL_TO", "value": "/"}}))
        }
        Route::L7Rule(..) => Some(json!({"rule": {}})),
        Route::Member(..) => Some(json!({"member": {}})),
        Route::Offer(kind, _) => Some(json!({kind.root(): {}})),
        Route::Profile(kind, _) => Some(json!({kind.profile_root(): {}})),
        Route::Members(_) if method == Method::PUT => Some(json!({"members": []})),
        Route::Members(_) => Some(json!({"member": member})),
        _ => None,
    }
}

#[tokio::test]
async fn a_method_a_route_does_not_have_is_refused_by_its_kind() {
    let api = Api::new().await;
    for (route, path) in Route::samples(ABSENT) {
        // Not there unless it is configured; then it answers in its own way.
        if route == Route::Healthcheck {
            continue;
        }
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            if route.methods().contains(&method) {
                continue;
            }
            let answer = api.call(method.as_str(), &path, None).await;
            let expected = match (route.kind(), method.as_str()) {
                (RouteKind::Collection, "PUT" | "DELETE") | (RouteKind::Item, "POST") => 400,
                _ => 405,
            };
            assert_eq!(answer.status, expected, "{method} {path}: {}", answer.text);
            if expected == 405 {
                let allow = answer.headers["allow"].to_str().unwrap();
                let methods: Vec<&str> = route.methods().iter().map(Method::as_str).collect();
                assert_eq!(allow, methods.join(", "), "{path}");
            }
        }
    }
}

/// P87
#[tokio::test]
async fn lists_and_roots_answer_under_every_prefix_with_and_without_a_slash() {
    let api = Api::new().await;
    for prefix in ["/v2", "/v2.0", "/v2/lbaas", "/v2.0/lbaas"] {
        for name in [
            "loadbalancers",
            "listeners",
            "pools",
            "healthmonitors",
            "l7policies",
        ] {
            for suffix in ["", "/", ".json"] {
                let path = format!("{prefix}/{name}{suffix}");
                let answer = api.get(&path).await;
                assert_eq!(answer.status, 200, "{path}");
                assert_eq!(
                    answer.body,
                    json!({name: [], format!("{name}_links"): []}),
                    "{path}"
                );
            }
        }
        let providers = api.get(&format!("{prefix}/providers")).await;
        assert_eq!(providers.body["providers"][0]["name"], "amphora");
        assert_eq!(providers.body["providers"][1]["name"], "octavia");
    }
    for path in ["/v2", "/v2/", "/v2.0", "/v2/lbaas", "/v2/octavia"] {
        let answer = api.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.text.as_str()),
            (200, "\"v2\""),
            "{path}"
        );
    }
    let amphorae = api.get("/v2.0/octavia/amphorae").await;
    assert_eq!(amphorae.body, json!({"amphorae": [], "amphorae_links": []}));
}

#[tokio::test]
async fn discovery_lists_31_versions_and_only_the_last_is_current() {
    let api = Api::new().await;
    for (path, base) in [
        ("/", "http://lb.example:9876"),
        ("/load-balancer/", "http://lb.example:9876/load-balancer"),
    ] {
        let answer = api.get(path).await;
        let versions = answer.body["versions"].as_array().unwrap();
        assert_eq!(versions.len(), 31);
        for (index, version) in versions.iter().enumerate() {
            assert_eq!(version["id"], format!("v2.{index}"));
            let status = if index == 30 { "CURRENT" } else { "SUPPORTED" };
            assert_eq!(version["status"], status);
            assert_eq!(
                version["links"],
                json!([{"href": format!("{base}/v2"), "rel": "self"}])
            );
        }
    }
}

#[tokio::test]
async fn what_is_not_there_answers_404_and_nothing_invented() {
    let api = Api::new().await;
    for path in ["/v2/lbaas/quota", "/healthcheck", "/v1", "/nowhere"] {
        let answer = api.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.body["code"], 404, "{path}");
        assert_eq!(answer.body["title"], "Not Found", "{path}");
    }
}
