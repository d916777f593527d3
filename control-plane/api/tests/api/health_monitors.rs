//! `/healthmonitors`.

use serde_json::{Value, json};

use crate::support::{ABSENT, Api, id_of, keys};

const PATH: &str = "/v2/lbaas/healthmonitors";

fn monitor(pool: &str, fields: Value) -> Value {
    let mut object =
        json!({"pool_id": pool, "type": "HTTP", "delay": 5, "timeout": 2, "max_retries": 3});
    crate::support::merge(&mut object, fields);
    object
}

#[tokio::test]
async fn a_monitor_is_created_shown_updated_and_deleted() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let id = id_of(&lb);
    let pool = json!({"loadbalancer_id": id, "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN"});
    let pool = api.create("/v2/lbaas/pools", "pool", id, pool).await;
    let pool = id_of(&pool);
    let object = api
        .create(
            PATH,
            "healthmonitor",
            id,
            monitor(
                pool,
                json!({"http_version": 1.1, "domain_name": "www.example.org"}),
            ),
        )
        .await;
    assert_eq!(
        keys(&object),
        [
            "admin_state_up",
            "created_at",
            "delay",
            "domain_name",
            "expected_codes",
            "http_method",
            "http_version",
            "id",
            "max_retries",
            "max_retries_down",
            "name",
            "operating_status",
            "pools",
            "project_id",
            "provisioning_status",
            "tags",
            "tenant_id",
            "timeout",
            "type",
            "updated_at",
            "url_path",
        ]
    );
    assert_eq!(object["http_version"], json!(1.1));
    assert_eq!(
        (
            &object["http_method"],
            &object["url_path"],
            &object["expected_codes"]
        ),
        (&json!("GET"), &json!("/"), &json!("200"))
    );
    assert_eq!(object["pools"], json!([{"id": pool}]));
    assert_eq!(object["max_retries_down"], 3);
    let shown = api.get(&format!("/v2/lbaas/pools/{pool}")).await;
    assert_eq!(shown.body["pool"]["healthmonitor_id"], object["id"]);
    let answer = api
        .post(PATH, json!({"healthmonitor": monitor(pool, json!({}))}))
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (409, "This pool already has a health monitor")
    );

    let path = format!("{PATH}/{}", id_of(&object));
    let answer = api
        .put(
            &path,
            json!({"healthmonitor": {"delay": 9, "expected_codes": "200-299"}}),
        )
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(
        (
            &answer.body["healthmonitor"]["delay"],
            &answer.body["healthmonitor"]["expected_codes"]
        ),
        (&json!(9), &json!("200-299"))
    );
    let pool_path = format!("/v2/lbaas/pools/{pool}");
    assert_eq!(api.status_of(&pool_path, "pool").await, "PENDING_UPDATE");
    api.settle(id).await;
    assert_eq!(api.delete(&path).await.status, 204);
    assert_eq!(
        api.status_of(&path, "healthmonitor").await,
        "PENDING_DELETE"
    );
    api.settle(id).await;
    assert_eq!(api.get(&path).await.status, 404);
    assert!(!keys(&api.get(&pool_path).await.body["pool"]).contains(&"healthmonitor_id"));
}

#[tokio::test]
async fn a_pool_that_does_not_exist_is_404() {
    let api = Api::new().await;
    let answer = api
        .post(PATH, json!({"healthmonitor": monitor(ABSENT, json!({}))}))
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (404, format!("Pool {ABSENT} not found.").as_str())
    );
}
