//! `/listeners`.

use serde_json::{Value, json};

use crate::support::{ABSENT, Api, id_of, keys, merge};

const PATH: &str = "/v2/lbaas/listeners";

fn listener(lb: &str, fields: Value) -> Value {
    let mut object = json!({"loadbalancer_id": lb, "protocol": "HTTP", "protocol_port": 80});
    merge(&mut object, fields);
    json!({"listener": object})
}

#[tokio::test]
async fn a_new_listener_has_every_field_and_locks_its_load_balancer() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let id = id_of(&lb);
    let answer = api
        .post(
            PATH,
            listener(id, json!({"insert_headers": {"X-Forwarded-For": "true"}})),
        )
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let object = &answer.body["listener"];
    assert_eq!(
        keys(object),
        [
            "admin_state_up",
            "allowed_cidrs",
            "alpn_protocols",
            "client_authentication",
            "client_ca_tls_container_ref",
            "client_crl_container_ref",
            "connection_limit",
            "created_at",
            "default_pool_id",
            "default_tls_container_ref",
            "description",
            "hsts_include_subdomains",
            "hsts_max_age",
            "hsts_preload",
            "id",
            "insert_headers",
            "l7policies",
            "loadbalancers",
            "name",
            "operating_status",
            "project_id",
            "protocol",
            "protocol_port",
            "provisioning_status",
            "sni_container_refs",
            "tags",
            "tenant_id",
            "timeout_client_data",
            "timeout_member_connect",
            "timeout_member_data",
            "timeout_tcp_inspect",
            "tls_ciphers",
            "tls_versions",
            "updated_at",
        ]
    );
    assert_eq!(object["loadbalancers"], json!([{"id": id}]));
    assert_eq!(object["connection_limit"], -1);
    assert_eq!(object["timeout_client_data"], 50000);
    assert_eq!(object["insert_headers"], json!({"X-Forwarded-For": "true"}));
    assert_eq!(object["allowed_cidrs"], json!(null));
    assert_eq!(object["tls_versions"], json!(null));
    assert_eq!(object["project_id"], lb["project_id"]);
    let path = format!("{PATH}/{}", id_of(object));
    assert_eq!(&api.get(&path).await.body["listener"], object);
    let lb_path = format!("/v2/lbaas/loadbalancers/{id}");
    assert_eq!(
        api.status_of(&lb_path, "loadbalancer").await,
        "PENDING_UPDATE"
    );
    assert_eq!(
        api.post(PATH, listener(id, json!({"protocol_port": 81})))
            .await
            .status,
        409
    );
}

/// P60
#[tokio::test]
async fn a_port_may_be_used_once_for_each_transport() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let id = id_of(&lb);
    api.create(
        PATH,
        "listener",
        id,
        listener(id, json!({"protocol": "TCP"}))["listener"].clone(),
    )
    .await;
    let answer = api
        .post(PATH, listener(id, json!({"protocol": "HTTP"})))
        .await;
    assert_eq!(answer.status, 409);
    assert_eq!(
        answer.fault(),
        "Another Listener on this Load Balancer is already using protocol TCP and protocol_port 80"
    );
    api.create(
        PATH,
        "listener",
        id,
        listener(id, json!({"protocol": "UDP"}))["listener"].clone(),
    )
    .await;
}

#[tokio::test]
async fn an_update_keeps_what_is_absent_and_resets_what_is_null() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let id = id_of(&lb);
    let fields = json!({"name": "a", "allowed_cidrs": ["10.1.2.3/8", "10.0.0.0/8"], "connection_limit": 5, "tags": ["t"]});
    let object = api
        .create(
            PATH,
            "listener",
            id,
            listener(id, fields)["listener"].clone(),
        )
        .await;
    assert_eq!(object["allowed_cidrs"], json!(["10.0.0.0/8"]));
    let path = format!("{PATH}/{}", id_of(&object));
    let answer = api
        .put(
            &path,
            json!({"listener": {"allowed_cidrs": null, "connection_limit": null}}),
        )
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let updated = &answer.body["listener"];
    assert_eq!(updated["provisioning_status"], "PENDING_UPDATE");
    assert_eq!(updated["allowed_cidrs"], json!(null));
    assert_eq!(updated["connection_limit"], -1);
    assert_eq!(
        (&updated["name"], &updated["tags"]),
        (&json!("a"), &json!(["t"]))
    );
    let answer = api
        .put(&path, json!({"listener": {"protocol": "TCP"}}))
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (400, "Unknown attribute for argument listener: protocol")
    );
}

#[tokio::test]
async fn a_deleted_listener_is_visible_until_the_worker_is_done() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let id = id_of(&lb);
    let object = api
        .create(
            PATH,
            "listener",
            id,
            listener(id, json!({}))["listener"].clone(),
        )
        .await;
    let path = format!("{PATH}/{}", id_of(&object));
    assert_eq!(api.delete(&path).await.status, 204);
    assert_eq!(api.status_of(&path, "listener").await, "PENDING_DELETE");
    api.settle(id).await;
    assert_eq!(api.get(&path).await.status, 404);
}

#[tokio::test]
async fn parents_that_do_not_exist_are_404() {
    let api = Api::new().await;
    let answer = api.post(PATH, listener(ABSENT, json!({}))).await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (404, format!("Load Balancer {ABSENT} not found.").as_str())
    );
    let lb = api.load_balancer(json!({})).await;
    let answer = api
        .post(
            PATH,
            listener(id_of(&lb), json!({"default_pool_id": ABSENT})),
        )
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (404, format!("Pool {ABSENT} not found.").as_str())
    );
}
