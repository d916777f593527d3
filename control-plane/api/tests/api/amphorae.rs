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
