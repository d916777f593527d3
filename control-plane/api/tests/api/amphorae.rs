//! `/octavia/amphorae`.

use lb_model::{Amphora, AmphoraId, AmphoraRole, AmphoraStatus, Timestamp};
use serde_json::json;
use uuid::Uuid;

use crate::support::{Api, id_of, keys};

const PATH: &str = "/v2/octavia/amphorae";

async fn with_amphora(api: &Api) -> (String, String) {
    let lb = api.load_balancer(json!({})).await;
    let lb = id_of(&lb).to_owned();
    let id = AmphoraId(Uuid::new_v4());
    let load_balancer_id = lb.parse().unwrap();
    api.edit(&lb, |graph| {
        graph.amphorae.push(Amphora {
            id,
            load_balancer_id,
            status: AmphoraStatus::Allocated,
            role: Some(AmphoraRole::Standalone),
            compute_id: Some("server".to_owned()),
            lb_network_ip: Some("198.18.0.5".parse().unwrap()),
            vrrp_ip: Some("10.0.0.9".parse().unwrap()),
            ha_ip: Some("10.0.0.2".parse().unwrap()),
            vrrp_port_id: None,
            ha_port_id: None,
            vrrp_interface: Some("eth1".to_owned()),
            vrrp_id: Some(1),
            vrrp_priority: Some(100),
            cert_expiration: Some(Timestamp::from_micros(1_769_784_558_000_000)),
            cert_busy: false,
            cached_zone: None,
            image_id: None,
            compute_flavor: None,
            failover_requested: false,
            config_generation: 1,
            created_at: Timestamp::from_micros(1_769_784_558_000_000),
            updated_at: None,
        });
    })
    .await;
    (lb, id.to_string())
}

#[tokio::test]
async fn an_amphora_is_listed_by_its_load_balancer_and_shown() {
    let api = Api::new().await;
    let (lb, id) = with_amphora(&api).await;
    for query in [
        format!("loadbalancer_id={lb}"),
        format!("load_balancer_id={lb}&status=ALLOCATED"),
        "project_id=demo&role=STANDALONE".to_owned(),
    ] {
        let answer = api.get(&format!("{PATH}?{query}")).await;
        assert_eq!(
            answer.body["amphorae"][0]["id"], id,
            "{query}: {}",
            answer.text
        );
    }
    assert_eq!(
        api.get(&format!("{PATH}?status=ERROR")).await.body["amphorae"],
        json!([])
    );
    let answer = api.get(&format!("{PATH}/{id}")).await;
    let object = &answer.body["amphora"];
    assert_eq!(
        keys(object),
        [
            "cached_zone",
            "cert_busy",
            "cert_expiration",
            "compute_flavor",
            "compute_id",
            "created_at",
            "ha_ip",
            "ha_port_id",
            "id",
            "image_id",
            "lb_network_ip",
            "loadbalancer_id",
            "role",
            "status",
            "updated_at",
            "vrrp_id",
            "vrrp_interface",
            "vrrp_ip",
            "vrrp_port_id",
            "vrrp_priority",
        ]
    );
    assert_eq!(object["cert_expiration"], "2026-01-30T14:49:18");
    assert_eq!(object["loadbalancer_id"], lb);
}

#[tokio::test]
async fn an_amphora_that_reported_nothing_has_no_statistics() {
    let api = Api::new().await;
    let (_, id) = with_amphora(&api).await;
    assert_eq!(api.get(&format!("{PATH}/{id}/stats")).await.status, 404);
}

#[tokio::test]
async fn failover_of_an_amphora_marks_it_and_locks_its_load_balancer() {
    let api = Api::new().await;
    let (lb, id) = with_amphora(&api).await;
    let path = format!("{PATH}/{id}/failover");
    let answer = api.call("PUT", &path, None).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (202, ""));
    let graph = api
        .store
        .load_graph(lb.parse().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert!(graph.amphorae[0].failover_requested);
    let answer = api.call("PUT", &path, None).await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (
            409,
            format!("Load Balancer {lb} is immutable and cannot be updated.").as_str()
        )
    );
}

#[tokio::test]
async fn only_an_amphora_in_error_is_deleted_and_its_load_balancer_stays_as_it_is() {
    let api = Api::new().await;
    let (lb, id) = with_amphora(&api).await;
    let path = format!("{PATH}/{id}");
    let refused = api.delete(&path).await;
    assert_eq!(refused.status, 409);
    assert_eq!(
        refused.fault(),
        format!("Amphora {id} is immutable and cannot be updated.")
    );
    api.edit(&lb, |graph| graph.amphorae[0].status = AmphoraStatus::Error)
        .await;
    let deleted = api.delete(&path).await;
    assert_eq!((deleted.status.as_u16(), deleted.text.as_str()), (204, ""));
    let shown = api.get(&path).await;
    assert_eq!(shown.body["amphora"]["status"], "PENDING_DELETE");
    assert_eq!(api.delete(&path).await.status, 409);
    let lb_path = format!("/v2/lbaas/loadbalancers/{lb}");
    assert_eq!(api.status_of(&lb_path, "loadbalancer").await, "ACTIVE");
    let absent = format!("{PATH}/{}", crate::support::ABSENT);
    assert_eq!(api.delete(&absent).await.status, 404);
    assert_eq!(api.call("PUT", &absent, None).await.status, 405);
}

#[tokio::test]
async fn configuring_an_amphora_makes_work_for_a_worker_and_changes_no_status() {
    let api = Api::new().await;
    let (lb, id) = with_amphora(&api).await;
    let path = format!("{PATH}/{id}/config");
    let changed = api.store.changed();
    let before = *changed.borrow();
    let answer = api.call("PUT", &path, None).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (202, ""));
    assert_ne!(*changed.borrow(), before);
    let lb_path = format!("/v2/lbaas/loadbalancers/{lb}");
    assert_eq!(api.status_of(&lb_path, "loadbalancer").await, "ACTIVE");
    let shown = api.get(&format!("{PATH}/{id}")).await;
    assert_eq!(shown.body["amphora"]["status"], "ALLOCATED");
    let absent = format!("{PATH}/{}/config", crate::support::ABSENT);
    assert_eq!(api.call("PUT", &absent, None).await.status, 404);
}
