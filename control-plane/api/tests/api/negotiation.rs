//! Headers, bodies and hostile input.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use crate::support::{Api, MemberOf, SUBNET};

async fn with_headers(
    api: &Api,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> crate::support::Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    api.send(request.body(Body::from(body.to_owned())).unwrap())
        .await
}

#[tokio::test]
async fn json_is_answered_to_whoever_takes_it() {
    let api = Api::new().await;
    for (accept, status) in [
        (None, 200),
        (Some(""), 200),
        (Some("*/*"), 200),
        (Some("application/json"), 200),
        (Some("text/html, application/json;q=0.9"), 200),
        (Some("application/xml"), 406),
        (Some("text/html"), 406),
    ] {
        let headers: Vec<(&str, &str)> = accept.iter().map(|value| ("accept", *value)).collect();
        let answer = with_headers(&api, "GET", "/v2/lbaas/pools", &headers, "").await;
        assert_eq!(answer.status, status, "{accept:?}");
        assert_eq!(answer.headers["content-type"], "application/json");
    }
}

#[tokio::test]
async fn bodies_that_are_no_json_object_are_refused_with_the_right_answer() {
    let api = Api::new().await;
    let path = "/v2/lbaas/loadbalancers";
    let json = ("content-type", "application/json; charset=utf-8");
    let cases = [
        (json, "", 400, "Missing argument: \"loadbalancer\""),
        (json, "{}", 400, "Missing argument: \"loadbalancer\""),
        (json, "{", 400, "Malformed request body"),
        (json, "[]", 400, "Malformed request body"),
        (json, "\"x\"", 400, "Malformed request body"),
        (json, "\u{0}", 400, "Malformed request body"),
        (json, "{\"loadbalancers\": {}}", 400, "Unknown attribute"),
        (
            json,
            "{\"loadbalancer\": {\"vip\": 1}}",
            400,
            "Unknown attribute for argument loadbalancer: vip",
        ),
        (
            ("content-type", "text/plain"),
            "{\"loadbalancer\": {}}",
            415,
            "Unknown mimetype: text/plain",
        ),
    ];
    for (header, body, status, fault) in cases {
        let answer = with_headers(&api, "POST", path, &[header], body).await;
        assert_eq!(answer.status, status, "{body:?}: {}", answer.text);
        assert!(
            answer.fault().starts_with(fault),
            "{body:?}: {}",
            answer.text
        );
        assert_eq!(answer.body["faultcode"], "Client");
        assert_eq!(answer.body["debuginfo"], json!(null));
        let id = answer.headers["x-openstack-request-id"].to_str().unwrap();
        assert!(id.starts_with("req-") && id.len() == 40, "{id}");
    }
    let deep = "[".repeat(100_000);
    let answer = with_headers(&api, "POST", path, &[json], &deep).await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_and_one_at_the_limit_is_read() {
    let api = Api::new().await;
    let path = "/v2/lbaas/loadbalancers";
    let json = ("content-type", "application/json");
    let over = with_headers(&api, "POST", path, &[json], &" ".repeat(114_689)).await;
    assert_eq!(over.status, 413);
    assert_eq!(over.headers["content-type"], "text/plain");
    assert!(!over.headers.contains_key("x-openstack-request-id"));
    let at = with_headers(&api, "POST", path, &[json], &" ".repeat(114_688)).await;
    assert_eq!(at.status, 400, "{}", at.text);
}

#[tokio::test]
async fn options_is_answered_anywhere() {
    let api = Api::new().await;
    let answer = with_headers(&api, "OPTIONS", "/v2/lbaas/loadbalancers", &[], "").await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, ""));
}

#[tokio::test]
async fn a_bad_token_is_401_everywhere_but_at_discovery() {
    let api = Api::with(|_| {}, Arc::new(MemberOf("blue"))).await;
    let bad = [("x-auth-token", "bad")];
    let answer = with_headers(&api, "GET", "/v2/lbaas/pools", &bad, "").await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.body["error"]["title"], "Unauthorized");
    assert_eq!(
        answer.headers["www-authenticate"],
        "Keystone uri=\"http://keystone\""
    );
    assert_eq!(with_headers(&api, "GET", "/", &bad, "").await.status, 200);
}

#[tokio::test]
async fn another_projects_objects_are_403_and_unchanged_and_not_listed() {
    let api = Api::with(|_| {}, Arc::new(MemberOf("blue"))).await;
    let own = api.load_balancer(json!({"name": "own"})).await;
    assert_eq!(own["project_id"], "blue");
    let foreign = json!({"loadbalancer": {"vip_subnet_id": SUBNET, "project_id": "red"}});
    assert_eq!(
        api.post("/v2/lbaas/loadbalancers", foreign).await.status,
        403
    );
    let id = crate::support::id_of(&own);
    api.edit(id, |graph| {
        graph.load_balancer.project_id = "red".to_owned()
    })
    .await;
    let path = format!("/v2/lbaas/loadbalancers/{id}");
    assert_eq!(api.get(&path).await.status, 403);
    assert_eq!(
        api.put(&path, json!({"loadbalancer": {"name": "mine"}}))
            .await
            .status,
        403
    );
    assert_eq!(api.delete(&path).await.status, 403);
    assert_eq!(api.get(&format!("{path}/status")).await.status, 403);
    assert_eq!(api.get(&format!("{path}/stats")).await.status, 403);
    let listener =
        json!({"listener": {"loadbalancer_id": id, "protocol": "TCP", "protocol_port": 1}});
    assert_eq!(api.post("/v2/lbaas/listeners", listener).await.status, 403);
    assert_eq!(
        api.get("/v2/lbaas/loadbalancers").await.body["loadbalancers"],
        json!([])
    );
    assert_eq!(
        api.get("/v2/lbaas/loadbalancers?project_id=red")
            .await
            .status,
        403
    );
    assert_eq!(api.get("/v2/octavia/amphorae").await.status, 403);
    let graph = api
        .store
        .load_graph(id.parse().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(graph.load_balancer.name, "own");
    assert!(graph.listeners.is_empty());
}

#[tokio::test]
async fn links_start_as_the_first_proxy_was_called_where_proxies_are_trusted() {
    let headers = [
        ("host", "internal:9876"),
        ("x-forwarded-proto", "https, http"),
        ("x-forwarded-host", "lb.example"),
        ("x-forwarded-prefix", "/load-balancer/"),
    ];
    for (trusted, expected) in [
        (true, "https://lb.example/load-balancer/v2"),
        (false, "http://internal:9876/v2"),
    ] {
        let configure = |config: &mut lb_api::ApiConfig| config.trust_proxy_headers = trusted;
        let api = Api::with(configure, Arc::new(lb_drivers::identity::NoIdentity)).await;
        let answer = with_headers(&api, "GET", "/", &headers, "").await;
        let versions = answer.body["versions"].as_array().unwrap();
        assert_eq!(versions.len(), 31);
        assert_eq!(versions[30]["links"][0]["href"], expected);
    }
    let hostile = [
        ("host", "a"),
        ("x-forwarded-host", "evil/\"x"),
        ("x-forwarded-proto", "ftp"),
    ];
    let configure = |config: &mut lb_api::ApiConfig| config.trust_proxy_headers = true;
    let api = Api::with(configure, Arc::new(lb_drivers::identity::NoIdentity)).await;
    let answer = with_headers(&api, "GET", "/", &hostile, "").await;
    assert_eq!(
        answer.body["versions"][0]["links"][0]["href"],
        "http://a/v2"
    );
}

#[tokio::test]
async fn head_is_a_method_lists_do_not_have() {
    let api = Api::new().await;
    for path in [
        "/v2/lbaas/loadbalancers",
        "/v2/lbaas/flavors",
        "/v2/lbaas/quotas",
    ] {
        let answer = api.call("HEAD", path, None).await;
        assert_eq!(answer.status, 405, "{path}");
        assert!(answer.headers.contains_key("allow"), "{path}");
    }
}
