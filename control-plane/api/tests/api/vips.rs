//! Which VIP a create request gets.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::support::{
    ABSENT, Answer, Api, NETWORK, OTHER_NETWORK, OTHER_SUBNET, SUBNET, SUBNET6, id_of,
};

async fn create(api: &Api, fields: Value) -> Answer {
    api.post("/v2/lbaas/loadbalancers", json!({"loadbalancer": fields}))
        .await
}

fn vip(answer: &Answer) -> (&str, &str, &str) {
    let lb = &answer.body["loadbalancer"];
    let text = |key: &str| lb[key].as_str().unwrap_or_default();
    (
        text("vip_network_id"),
        text("vip_subnet_id"),
        text("vip_address"),
    )
}

/// P95
#[tokio::test]
async fn network_subnet_and_address_are_found_from_what_is_given() {
    let cases: Vec<(Value, (&str, &str, &str))> = vec![
        (
            json!({"vip_subnet_id": SUBNET}),
            (NETWORK, SUBNET, "10.0.0.2"),
        ),
        (
            json!({"vip_subnet_id": SUBNET, "vip_address": "10.0.0.77"}),
            (NETWORK, SUBNET, "10.0.0.77"),
        ),
        (
            json!({"vip_network_id": NETWORK}),
            (NETWORK, SUBNET, "10.0.0.2"),
        ),
        (
            json!({"vip_network_id": NETWORK, "vip_address": "2001:db8::7"}),
            (NETWORK, SUBNET6, "2001:db8::7"),
        ),
        (
            json!({"vip_network_id": NETWORK, "vip_subnet_id": SUBNET6}),
            (NETWORK, SUBNET6, "2001:db8::1"),
        ),
    ];
    for (fields, expected) in cases {
        let api = Api::new().await;
        let answer = create(&api, fields.clone()).await;
        assert_eq!(answer.status, 201, "{fields}: {}", answer.text);
        assert_eq!(vip(&answer), expected, "{fields}");
    }
}

/// P95
#[tokio::test]
async fn what_cannot_be_a_vip_is_refused_and_leaves_no_port() {
    let api = Api::new().await;
    let cases: Vec<(Value, u16, &str)> = vec![
        (
            json!({}),
            400,
            "Validation failure: VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.",
        ),
        (
            json!({"vip_subnet_id": ABSENT}),
            400,
            "Subnet 99999999-9999-4999-8999-999999999999 not found.",
        ),
        (
            json!({"vip_network_id": ABSENT}),
            400,
            "Network 99999999-9999-4999-8999-999999999999 not found.",
        ),
        (
            json!({"vip_port_id": ABSENT}),
            400,
            "Port 99999999-9999-4999-8999-999999999999 not found.",
        ),
        (
            json!({"vip_network_id": NETWORK, "vip_subnet_id": OTHER_SUBNET}),
            400,
            "Subnet 55555555-5555-4555-8555-555555555555 not found.",
        ),
        (
            json!({"vip_network_id": NETWORK, "vip_address": "192.0.2.1"}),
            400,
            "Validation failure: Supplied VIP address 192.0.2.1 is not in any subnet",
        ),
        (
            json!({"vip_network_id": OTHER_NETWORK}),
            400,
            "Validation failure: no subnet of network 44444444-4444-4444-8444-444444444444 has enough free addresses",
        ),
        (
            json!({"vip_subnet_id": SUBNET, "vip_address": "192.0.2.1"}),
            400,
            "Validation failure: address 192.0.2.1 cannot be used in subnet",
        ),
        (
            json!({"vip_subnet_id": SUBNET, "vip_address": "here"}),
            400,
            "Invalid input for field/attribute vip_address.",
        ),
        (
            json!({"vip_subnet_id": SUBNET, "additional_vips": [{"subnet_id": SUBNET}]}),
            400,
            "Validation failure: Duplicate VIP subnet(s)",
        ),
        (
            json!({"vip_subnet_id": SUBNET, "additional_vips": [{"subnet_id": OTHER_SUBNET}]}),
            400,
            "Validation failure: Subnet 55555555-5555-4555-8555-555555555555 of an additional VIP is not in the network",
        ),
        (
            json!({"vip_subnet_id": "x"}),
            400,
            "Invalid input for field/attribute vip_subnet_id.",
        ),
    ];
    for (fields, status, fault) in cases {
        let answer = create(&api, fields.clone()).await;
        assert_eq!(answer.status, status, "{fields}: {}", answer.text);
        assert!(
            answer.fault().starts_with(fault),
            "{fields}: {}",
            answer.text
        );
    }
    assert!(api.network.ports().is_empty());
}

#[tokio::test]
async fn an_address_in_use_is_a_conflict() {
    let api = Api::new().await;
    let fields = json!({"vip_subnet_id": SUBNET, "vip_address": "10.0.0.5"});
    assert_eq!(create(&api, fields.clone()).await.status, 201);
    let answer = create(&api, fields).await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (409, "IP address 10.0.0.5 is already in use")
    );
    assert_eq!(api.network.ports().len(), 1);
}

/// P62
#[tokio::test]
async fn additional_vips_are_addresses_of_the_same_port() {
    let api = Api::new().await;
    let fields = json!({"vip_subnet_id": SUBNET, "additional_vips": [{"subnet_id": SUBNET6, "ip_address": "2001:db8::5"}],
        "listeners": [{"protocol": "TCP", "protocol_port": 80, "allowed_cidrs": ["2001:db8::/32", "10.0.0.0/8"]}]});
    let answer = create(&api, fields).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let lb = &answer.body["loadbalancer"];
    assert_eq!(
        lb["additional_vips"],
        json!([{"subnet_id": SUBNET6, "ip_address": "2001:db8::5", "port_id": lb["vip_port_id"]}])
    );
    assert_eq!(api.network.ports().len(), 1);
}

#[tokio::test]
async fn a_tenants_own_port_is_used_as_it_is() {
    let api = Api::new().await;
    let port = api.network.add_tenant_port(&[(SUBNET, "10.0.0.50")], "");
    let before = api.network.ports();
    let answer = create(&api, json!({"vip_port_id": port})).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(vip(&answer), (NETWORK, SUBNET, "10.0.0.50"));
    assert_eq!(api.network.ports(), before);
    let id = id_of(&answer.body["loadbalancer"]).parse().unwrap();
    let graph = api.store.load_graph(id).await.unwrap().unwrap();
    assert!(!graph.load_balancer.vip.port_is_ours);

    let again = create(&api, json!({"vip_port_id": port})).await;
    assert_eq!(again.status, 400);
    let used = api
        .network
        .add_tenant_port(&[(SUBNET, "10.0.0.51")], "some-server");
    assert_eq!(create(&api, json!({"vip_port_id": used})).await.status, 400);
    let two = api
        .network
        .add_tenant_port(&[(SUBNET, "10.0.0.52"), (SUBNET6, "2001:db8::52")], "");
    assert_eq!(create(&api, json!({"vip_port_id": two})).await.status, 400);
    let answer = create(
        &api,
        json!({"vip_port_id": two, "vip_address": "10.0.0.99"}),
    )
    .await;
    assert_eq!(answer.status, 400);
    let answer = create(&api, json!({"vip_port_id": two, "vip_subnet_id": SUBNET6})).await;
    assert_eq!(vip(&answer), (NETWORK, SUBNET6, "2001:db8::52"));
}

/// P97
#[tokio::test]
async fn a_network_service_that_is_away_is_a_503_that_may_be_tried_again() {
    let api = Api::new().await;
    api.network.away.store(true, Ordering::SeqCst);
    let answer = create(&api, json!({"vip_subnet_id": SUBNET})).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.body["faultcode"], "Server");
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn without_its_row_a_vip_port_is_removed_again() {
    let api = Api::new().await;
    api.store.close().await;
    let answer = create(&api, json!({"vip_subnet_id": SUBNET})).await;
    assert!(answer.status.is_server_error(), "{}", answer.text);
    assert!(!answer.text.contains("sqlite"), "{}", answer.text);
    assert!(api.network.ports().is_empty());
}
