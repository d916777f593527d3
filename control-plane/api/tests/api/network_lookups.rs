//! The look-ups of a client that is given one endpoint for everything.

use std::sync::Arc;

use lb_drivers::identity::NoIdentity;
use serde_json::json;

use crate::support::{Api, NETWORK, SUBNET, SUBNET6, id_of};

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
