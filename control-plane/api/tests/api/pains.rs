//! What hurt users of Octavia, and must not here: rows that no other test of a resource covers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::support::{Api, MemberOf, NETWORK, OTHER_NETWORK, OTHER_SUBNET, SUBNET, id_of};

const LOAD_BALANCERS: &str = "/v2/lbaas/loadbalancers";

/// P91
#[tokio::test]
async fn subnets_and_networks_of_another_project_are_as_good_as_absent() {
    let api = Api::with(|_| {}, Arc::new(MemberOf("mine"))).await;
    api.network.belongs_to_another.store(true, Ordering::SeqCst);
    for (fields, kind, id) in [
        (json!({"vip_subnet_id": SUBNET}), "Subnet", SUBNET),
        (json!({"vip_network_id": NETWORK}), "Network", NETWORK),
    ] {
        let answer = api
            .post(LOAD_BALANCERS, json!({"loadbalancer": fields}))
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.fault()),
            (400, format!("{kind} {id} not found.").as_str())
        );
    }
    assert!(api.network.ports().is_empty());

    api.network
        .belongs_to_another
        .store(false, Ordering::SeqCst);
    let lb = api.load_balancer(json!({})).await;
    let lb = id_of(&lb);
    let pool = json!({"loadbalancer_id": lb, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"});
    let pool = api.create("/v2/lbaas/pools", "pool", lb, pool).await;
    api.network.belongs_to_another.store(true, Ordering::SeqCst);
    let members = format!("/v2/lbaas/pools/{}/members", id_of(&pool));
    let member = json!({"address": "10.9.0.2", "protocol_port": 80, "subnet_id": OTHER_SUBNET});
    for (method, body) in [
        ("POST", json!({"member": member})),
        ("PUT", json!({"members": [member]})),
    ] {
        let answer = api.call(method, &members, Some(body)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.fault()),
            (400, format!("Subnet {OTHER_SUBNET} not found.").as_str())
        );
    }
    assert_eq!(api.get(&members).await.body["members"], json!([]));
}

/// P94
#[tokio::test]
async fn a_thousand_cidrs_of_any_family_of_any_vip_are_taken_each_once() {
    let api = Api::new().await;
    let fields = json!({"additional_vips": [{"subnet_id": crate::support::SUBNET6}]});
    let lb = api.load_balancer(fields).await;
    let id = id_of(&lb);
    let mut cidrs: Vec<String> = (0..1000)
        .map(|number| format!("10.{}.{}.0/24", number / 250, number % 250))
        .collect();
    cidrs.push("2001:db8:1::1/64".to_owned());
    let mut sent = cidrs.clone();
    sent.push("10.0.0.77/24".to_owned());
    let listener = json!({"loadbalancer_id": id, "protocol": "TCP", "protocol_port": 80, "allowed_cidrs": sent});
    let listener = api
        .create("/v2/lbaas/listeners", "listener", id, listener)
        .await;
    *cidrs.last_mut().unwrap() = "2001:db8:1::/64".to_owned();
    assert_eq!(listener["allowed_cidrs"], json!(cidrs));
}

/// P95
#[tokio::test]
async fn networks_the_operator_does_not_allow_are_refused_before_anything_is_built() {
    let refusal = "Validation failure: Supplied VIP network_id is not allowed by the configuration of this deployment.";
    let network = |text: &str| text.parse::<lb_model::NetworkId>().unwrap();
    let valid = Api::with(
        |config| config.valid_vip_networks = vec![network(OTHER_NETWORK)],
        Arc::new(lb_drivers::identity::NoIdentity),
    )
    .await;
    let denied = Api::with(
        |config| config.denylist_vip_networks = vec![network(NETWORK)],
        Arc::new(lb_drivers::identity::NoIdentity),
    )
    .await;
    for api in [valid, denied] {
        let body = json!({"loadbalancer": {"vip_subnet_id": SUBNET}});
        let answer = api.post(LOAD_BALANCERS, body).await;
        assert_eq!((answer.status.as_u16(), answer.fault()), (400, refusal));
        assert!(api.network.ports().is_empty());
        let body = json!({"loadbalancer": {"vip_subnet_id": OTHER_SUBNET}});
        assert_eq!(api.post(LOAD_BALANCERS, body).await.status, 201);
    }
}

/// P99
#[tokio::test]
async fn a_name_is_matched_exactly_within_the_own_project_and_may_be_there_twice() {
    let api = Api::with(|_| {}, Arc::new(MemberOf("mine"))).await;
    let first = api.load_balancer(json!({"name": "kube"})).await;
    let second = api.load_balancer(json!({"name": "kube"})).await;
    api.load_balancer(json!({"name": "kube2"})).await;
    let other = api.load_balancer(json!({"name": "kube"})).await;
    api.edit(id_of(&other), |graph| {
        graph.load_balancer.project_id = "theirs".to_owned();
    })
    .await;
    let answer = api.get(&format!("{LOAD_BALANCERS}?name=kube")).await;
    let found: Vec<&Value> = answer.body["loadbalancers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lb| &lb["id"])
        .collect();
    assert_eq!(found, [&first["id"], &second["id"]]);
}

/// P101
#[tokio::test]
async fn an_attribute_nobody_knows_is_named_with_its_path() {
    let api = Api::new().await;
    let body = json!({"loadbalancer": {"vip_subnet_id": SUBNET, "listeners": [
        {"protocol": "TCP", "protocol_port": 80, "default_pool": {"name": "p", "protocol": "TCP",
            "lb_algorithm": "ROUND_ROBIN", "members": [{"adress": "10.0.0.1"}]}}]}});
    let answer = api.post(LOAD_BALANCERS, body).await;
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.body,
        json!({"faultcode": "Client", "debuginfo": null,
            "faultstring": "Unknown attribute for argument loadbalancer.listeners.default_pool.members: adress"})
    );
}
