//! The look-ups of a client that is given one endpoint for everything.

use std::sync::Arc;

use lb_drivers::identity::NoIdentity;
use lb_drivers::noop::NoopNetwork;
use serde_json::json;

use crate::support::{Api, MemberOf, NETWORK, PROJECT, SUBNET, SUBNET6, id_of};

#[tokio::test]
async fn networks_subnets_and_ports_are_found_by_name_and_by_id() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let port = lb["vip_port_id"].as_str().unwrap();
    let cases = [
        ("/v2.0/networks?name=front", "networks", NETWORK),
        (&format!("/v2/networks?id={NETWORK}"), "networks", NETWORK),
        ("/v2.0/subnets?name=front6", "subnets", SUBNET6),
        (
            &format!("/v2.0/subnets?network_id={NETWORK}&ip_version=4"),
            "subnets",
            SUBNET,
        ),
        (
            &format!("/v2.0/ports?device_id=lb-{}", id_of(&lb)),
            "ports",
            port,
        ),
        ("/v2.0/ports?fixed_ips=ip_address%3D10.0.0.2", "ports", port),
    ];
    for (path, root, id) in cases {
        let answer = api.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let items = answer.body[root].as_array().unwrap();
        assert_eq!(items.len(), 1, "{path}: {}", answer.text);
        assert_eq!(items[0]["id"], id, "{path}");
        let shown = api.get(&format!("/v2.0/{root}/{id}")).await;
        assert_eq!(shown.body[root.trim_end_matches('s')], items[0], "{path}");
    }
    assert_eq!(
        api.get("/v2.0/networks?name=nowhere").await.body,
        json!({"networks": []})
    );
    assert_eq!(api.get("/v2.0/networks/front").await.status, 404);
    assert_eq!(api.get("/v2.0/networks?colour=red").await.status, 400);
    assert_eq!(
        api.get("/v2.0/networks?limit=1&fields=id").await.body,
        json!({"networks": [{"id": NETWORK}]})
    );
    assert_eq!(
        api.get("/v2.0/extensions").await.body,
        json!({"extensions": []})
    );
}

/// The stock client finds an id by a list with a filter. The no-op driver lists nothing, and has every id.
#[tokio::test]
async fn an_id_is_found_in_a_list_also_where_the_driver_lists_nothing() {
    let api = Api::new()
        .await
        .on_network(Arc::new(NoopNetwork::default()));
    for root in ["networks", "subnets", "ports"] {
        let all = api.get(&format!("/v2.0/{root}")).await;
        assert_eq!(all.body, json!({ root: [] }));
        let query = format!("/v2.0/{root}?id={SUBNET}&id={NETWORK}&id={SUBNET}&fields=id");
        let found = api.get(&query).await;
        assert_eq!(
            found.body,
            json!({ root: [{"id": NETWORK}, {"id": SUBNET}] })
        );
        let none = api.get(&format!("/v2.0/{root}?id=front")).await;
        assert_eq!(none.body, json!({ root: [] }));
        let other = api
            .get(&format!("/v2.0/{root}?id={SUBNET}&name=front"))
            .await;
        assert_eq!(other.body, json!({ root: [] }));
    }
}

#[tokio::test]
async fn a_port_of_another_project_is_not_there() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let port = lb["vip_port_id"].as_str().unwrap();
    for (project, seen) in [(PROJECT, 1), ("other", 0)] {
        let api = api.as_caller(Arc::new(MemberOf(project)));
        for query in [String::new(), format!("?id={port}")] {
            let ports = api.get(&format!("/v2.0/ports{query}")).await;
            assert_eq!(ports.body["ports"].as_array().unwrap().len(), seen);
        }
        let shown = api.get(&format!("/v2.0/ports/{port}")).await;
        assert_eq!(shown.status, if seen == 1 { 200 } else { 404 });
        let networks = api.get("/v2.0/networks?name=front").await;
        assert_eq!(networks.body["networks"][0]["id"], NETWORK);
    }
}

#[tokio::test]
async fn a_list_of_too_many_ids_is_refused() {
    let api = Api::new().await;
    let ids = |count: u128| -> String {
        let ids: Vec<String> = (0..count)
            .map(|id| format!("id={}", uuid::Uuid::from_u128(id)))
            .collect();
        ids.join("&")
    };
    let query = format!("/v2.0/subnets?{}", ids(100));
    assert_eq!(api.get(&query).await.status, 200);
    let query = format!("/v2.0/subnets?{}", ids(101));
    assert_eq!(api.get(&query).await.status, 400);
}

#[tokio::test]
async fn they_are_read_only_and_absent_beside_a_real_network_service() {
    let api = Api::new().await;
    assert_eq!(
        api.post("/v2.0/ports", json!({"port": {}})).await.status,
        405
    );
    let api = Api::with(
        |config| config.serve_network_lookups = false,
        Arc::new(NoIdentity),
    )
    .await;
    for path in [
        "/v2.0/networks",
        "/v2.0/subnets",
        "/v2.0/ports",
        "/v2.0/extensions",
    ] {
        assert_eq!(api.get(path).await.status, 404, "{path}");
    }
}
