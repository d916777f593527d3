//! `/quotas`, and what they refuse.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::{Api, MemberOf, PROJECT, SUBNET, id_of, keys};

const KEYS: [&str; 11] = [
    "health_monitor",
    "healthmonitor",
    "l7policy",
    "l7rule",
    "listener",
    "load_balancer",
    "loadbalancer",
    "member",
    "pool",
    "project_id",
    "tenant_id",
];

async fn set(api: &Api, quota: Value) {
    let path = format!("/v2/lbaas/quotas/{PROJECT}");
    let answer = api.put(&path, json!({ "quota": quota })).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
}

#[tokio::test]
async fn a_project_without_limits_of_its_own_has_the_defaults() {
    let api = Api::new().await;
    for (path, project) in [
        ("/v2/lbaas/quotas/defaults", "defaults"),
        ("/v2.0/quotas/nobody", "nobody"),
        ("/v2.0/lbaas/quotas/nobody/default", "nobody"),
    ] {
        let answer = api.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        let quota = &answer.body["quota"];
        assert_eq!(keys(quota), KEYS, "{path}");
        assert_eq!(quota["project_id"], project, "{path}");
        assert_eq!(quota["tenant_id"], project, "{path}");
        assert_eq!(quota["health_monitor"], -1, "{path}");
    }
    let list = api.get("/v2/lbaas/quotas").await;
    assert_eq!(list.body, json!({"quotas": [], "quotas_links": []}));
}

#[tokio::test]
async fn limits_are_set_and_given_back_with_202() {
    let api = Api::new().await;
    let path = "/v2.0/quotas/p1";
    let missing = api.delete(path).await;
    assert_eq!(missing.status, 404);
    assert_eq!(missing.fault(), "Quotas p1 not found.");
    let answer = api
        .put(
            path,
            json!({"quota": {"load_balancer": 3, "healthmonitor": 4}}),
        )
        .await;
    assert_eq!(answer.status, 202);
    for name in ["loadbalancer", "load_balancer"] {
        assert_eq!(answer.body["quota"][name], 3);
    }
    assert_eq!(answer.body["quota"]["health_monitor"], 4);
    let empty = api.put(path, json!({"quota": {}})).await;
    assert_eq!((empty.status.as_u16(), &empty.body), (202, &answer.body));
    assert_eq!(api.get(path).await.body, answer.body);
    let null = api
        .put(path, json!({"quota": {"loadbalancer": null}}))
        .await;
    assert_eq!(null.body["quota"]["loadbalancer"], -1);
    let reset = api.delete(path).await;
    assert_eq!((reset.status.as_u16(), reset.text.as_str()), (202, ""));
    assert_eq!(api.get(path).await.body["quota"]["healthmonitor"], -1);
    for quota in [json!({"pool": -2}), json!({"pool": "x"}), json!({"id": 1})] {
        let refused = api.put(path, json!({ "quota": quota })).await;
        assert_eq!(refused.status, 400, "{quota}");
    }
    let long = format!("/v2/quotas/{}", "p".repeat(37));
    assert_eq!(api.put(&long, json!({"quota": {}})).await.status, 400);
}

#[tokio::test]
async fn projects_with_a_row_are_listed_in_pages_marked_by_project() {
    let api = Api::new().await;
    for project in ["a", "b", "c"] {
        api.put(
            &format!("/v2/quotas/{project}"),
            json!({"quota": {"pool": 1}}),
        )
        .await;
    }
    let page = api.get("/v2/quotas?limit=2").await;
    let projects: Vec<&str> = page.body["quotas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|quota| quota["project_id"].as_str().unwrap())
        .collect();
    assert_eq!(projects, ["a", "b"]);
    let next = page.body["quotas_links"][0]["href"].as_str().unwrap();
    assert!(next.ends_with("/v2/quotas?limit=2&marker=b"), "{next}");
    let rest = api.get("/v2/quotas?limit=2&marker=b").await;
    assert_eq!(rest.body["quotas"][0]["project_id"], "c");
    assert_eq!(api.get("/v2/quotas?marker=x").await.status, 400);
    let whole = api.get("/v2/quotas?fields=pool").await;
    assert_eq!(keys(&whole.body["quotas"][0]), KEYS);
    let one = api.get("/v2/quotas?project_id=b").await;
    assert_eq!(one.body["quotas"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_project_reads_its_own_limits_and_changes_none() {
    let api = Api::with(|_| {}, Arc::new(MemberOf(PROJECT))).await;
    let own = format!("/v2/lbaas/quotas/{PROJECT}");
    assert_eq!(api.get(&own).await.status, 200);
    assert_eq!(api.get("/v2/lbaas/quotas/other").await.status, 403);
    assert_eq!(api.get("/v2/lbaas/quotas/defaults").await.status, 200);
    assert_eq!(api.get("/v2/lbaas/quotas").await.status, 200);
    assert_eq!(
        api.put(&own, json!({"quota": {"pool": 1}})).await.status,
        403
    );
    assert_eq!(api.delete(&own).await.status, 403);
}

// P89
#[tokio::test]
async fn every_way_to_create_something_is_refused_at_the_limit() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let lb = id_of(&lb);
    let listener = json!({"loadbalancer_id": lb, "protocol": "HTTP", "protocol_port": 80});
    let pool = json!({"loadbalancer_id": lb, "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN"});
    let stored = api
        .create("/v2/lbaas/pools", "pool", lb, pool.clone())
        .await;
    let members = format!("/v2/lbaas/pools/{}/members", id_of(&stored));
    let monitor = json!({
        "pool_id": stored["id"], "type": "HTTP", "delay": 5, "timeout": 2, "max_retries": 3,
    });
    let member = json!({"address": "10.0.0.9", "protocol_port": 80});
    set(
        &api,
        json!({"loadbalancer": 1, "listener": 0, "pool": 1, "member": 0, "healthmonitor": 0}),
    )
    .await;
    for (path, root, object, resource) in [
        (
            "/v2/lbaas/loadbalancers",
            "loadbalancer",
            json!({"vip_subnet_id": SUBNET}),
            "Load Balancer",
        ),
        ("/v2/lbaas/listeners", "listener", listener, "Listener"),
        ("/v2/lbaas/pools", "pool", pool, "Pool"),
        (members.as_str(), "member", member.clone(), "Member"),
        (
            "/v2/lbaas/healthmonitors",
            "healthmonitor",
            monitor,
            "Health Monitor",
        ),
    ] {
        let refused = api.post(path, json!({ root: object })).await;
        assert_eq!(refused.status, 403, "{path}: {}", refused.text);
        assert_eq!(
            refused.fault(),
            format!("Quota has been met for resources: {resource}")
        );
    }
    let batch = api.put(&members, json!({"members": [member]})).await;
    assert_eq!(batch.status, 403, "{}", batch.text);
    // Nothing was changed, so nothing is locked.
    let path = format!("/v2/lbaas/loadbalancers/{lb}");
    assert_eq!(api.status_of(&path, "loadbalancer").await, "ACTIVE");
    assert_eq!(api.network.ports().len(), 1);
}

#[tokio::test]
async fn a_fully_populated_create_is_counted_as_a_whole() {
    let api = Api::new().await;
    set(&api, json!({"member": 1})).await;
    let member = |port: u16| json!({"address": "10.0.0.9", "protocol_port": port});
    let pool = |members: Value| {
        json!({"loadbalancer": {
            "vip_subnet_id": SUBNET,
            "pools": [{
                "name": "p", "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN", "members": members,
            }],
        }})
    };
    let path = "/v2/lbaas/loadbalancers";
    let refused = api.post(path, pool(json!([member(1), member(2)]))).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert_eq!(api.network.ports().len(), 0);
    assert_eq!(api.get(path).await.body["loadbalancers"], json!([]));
    assert_eq!(api.post(path, pool(json!([member(1)]))).await.status, 201);
}

#[tokio::test]
async fn a_batch_at_the_limit_may_replace_members() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let lb = id_of(&lb);
    let pool = json!({"loadbalancer_id": lb, "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN"});
    let pool = api.create("/v2/lbaas/pools", "pool", lb, pool).await;
    let members = format!("/v2/lbaas/pools/{}/members", id_of(&pool));
    let batch = |ports: &[u16]| {
        let members: Vec<Value> = ports
            .iter()
            .map(|port| json!({"address": "10.0.0.9", "protocol_port": port}))
            .collect();
        json!({ "members": members })
    };
    set(&api, json!({"member": 2})).await;
    assert_eq!(api.put(&members, batch(&[1, 2])).await.status, 202);
    api.settle(lb).await;
    assert_eq!(api.put(&members, batch(&[3, 4])).await.status, 202);
    api.settle(lb).await;
    assert_eq!(api.put(&members, batch(&[3, 4, 5])).await.status, 403);
    let additive = format!("{members}?additive_only=true");
    assert_eq!(api.put(&additive, batch(&[5])).await.status, 403);
}
