//! `/pools`.

use serde_json::{Value, json};

use crate::support::{ABSENT, Api, id_of, keys, merge};

const PATH: &str = "/v2/lbaas/pools";

fn pool(fields: Value) -> Value {
    let mut object = json!({"protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN"});
    merge(&mut object, fields);
    object
}

#[tokio::test]
async fn a_pool_made_under_a_listener_is_its_default_pool_and_has_no_monitor_key() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let id = id_of(&lb);
    let listener = api
        .create(
            "/v2/lbaas/listeners",
            "listener",
            id,
            json!({"loadbalancer_id": id, "protocol": "HTTP", "protocol_port": 80}),
        )
        .await;
    let answer = api
        .post(
            PATH,
            json!({"pool": pool(json!({"listener_id": listener["id"]}))}),
        )
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let object = &answer.body["pool"];
    assert_eq!(
        keys(object),
        [
            "admin_state_up",
            "alpn_protocols",
            "ca_tls_container_ref",
            "created_at",
            "crl_container_ref",
            "description",
            "id",
            "lb_algorithm",
            "listeners",
            "loadbalancers",
            "members",
            "name",
            "operating_status",
            "project_id",
            "protocol",
            "provisioning_status",
            "session_persistence",
            "tags",
            "tenant_id",
            "tls_ciphers",
            "tls_container_ref",
            "tls_enabled",
            "tls_versions",
            "updated_at",
        ]
    );
    assert_eq!(object["listeners"], json!([{"id": listener["id"]}]));
    assert_eq!(object["loadbalancers"], json!([{"id": id}]));
    let path = format!("{PATH}/{}", id_of(object));
    assert_eq!(&api.get(&path).await.body["pool"], object);
    let listener_path = format!("/v2/lbaas/listeners/{}", id_of(&listener));
    assert_eq!(
        api.get(&listener_path).await.body["listener"]["default_pool_id"],
        object["id"]
    );
    assert_eq!(
        api.status_of(&listener_path, "listener").await,
        "PENDING_UPDATE"
    );
    api.settle(id).await;
    let answer = api
        .post(
            PATH,
            json!({"pool": pool(json!({"listener_id": listener["id"]}))}),
        )
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (409, "This listener already has a default pool")
    );

    assert_eq!(api.delete(&path).await.status, 204);
    api.settle(id).await;
    assert_eq!(api.get(&path).await.status, 404);
    assert_eq!(
        api.get(&listener_path).await.body["listener"]["default_pool_id"],
        json!(null)
    );
}

#[tokio::test]
async fn a_pool_needs_a_parent_that_exists() {
    let api = Api::new().await;
    for (fields, status, fault) in [
        (
            json!({}),
            400,
            "Validation failure: Must provide at least one of: loadbalancer_id, listener_id",
        ),
        (
            json!({"loadbalancer_id": ABSENT}),
            404,
            "Load Balancer 99999999-9999-4999-8999-999999999999 not found.",
        ),
        (
            json!({"listener_id": ABSENT}),
            404,
            "Listener 99999999-9999-4999-8999-999999999999 not found.",
        ),
    ] {
        let answer = api.post(PATH, json!({"pool": pool(fields)})).await;
        assert_eq!((answer.status.as_u16(), answer.fault()), (status, fault));
    }
}

#[tokio::test]
async fn an_update_changes_the_algorithm_and_refuses_null_for_it() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let id = id_of(&lb);
    let object = api
        .create(
            PATH,
            "pool",
            id,
            pool(json!({"loadbalancer_id": id, "name": "p"})),
        )
        .await;
    let path = format!("{PATH}/{}", id_of(&object));
    let answer = api
        .put(
            &path,
            json!({"pool": {"lb_algorithm": "LEAST_CONNECTIONS"}}),
        )
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["pool"]["lb_algorithm"], "LEAST_CONNECTIONS");
    assert_eq!(answer.body["pool"]["name"], "p");
    assert_eq!(answer.body["pool"]["provisioning_status"], "PENDING_UPDATE");
    let answer = api
        .put(&path, json!({"pool": {"lb_algorithm": null}}))
        .await;
    assert_eq!(answer.status, 400, "{}", answer.text);
}
