//! `/loadbalancers`.

use lb_model::ProvisioningStatus;
use serde_json::{Value, json};

use crate::support::{ABSENT, Api, NETWORK, PROJECT, SUBNET, id_of, keys, merge};

const PATH: &str = "/v2/lbaas/loadbalancers";

/// P70, P93
#[tokio::test]
async fn a_new_load_balancer_has_every_field_and_its_vip() {
    let api = Api::new().await;
    let body = json!({"loadbalancer": {"name": "web", "vip_subnet_id": SUBNET, "tags": ["a"]}});
    let answer = api.post(PATH, body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let lb = &answer.body["loadbalancer"];
    assert_eq!(
        keys(lb),
        [
            "additional_vips",
            "admin_state_up",
            "availability_zone",
            "created_at",
            "description",
            "flavor_id",
            "id",
            "listeners",
            "name",
            "operating_status",
            "pools",
            "project_id",
            "provider",
            "provisioning_status",
            "tags",
            "tenant_id",
            "updated_at",
            "vip_address",
            "vip_network_id",
            "vip_port_id",
            "vip_qos_policy_id",
            "vip_sg_ids",
            "vip_subnet_id",
            "vip_vnic_type",
        ]
    );
    let expected = json!({
        "name": "web", "description": "", "admin_state_up": true, "project_id": PROJECT,
        "tenant_id": PROJECT, "provisioning_status": "PENDING_CREATE", "operating_status": "OFFLINE",
        "provider": "amphora", "vip_address": "10.0.0.2", "vip_subnet_id": SUBNET,
        "vip_network_id": NETWORK, "vip_qos_policy_id": null, "vip_vnic_type": "normal",
        "vip_sg_ids": [], "additional_vips": [], "flavor_id": null, "availability_zone": null,
        "tags": ["a"], "listeners": [], "pools": [], "updated_at": null,
        "created_at": "2026-01-30T14:49:18",
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&lb[key], value, "{key}");
    }
    let ports = api.network.ports();
    assert_eq!(ports.len(), 1);
    let id = id_of(lb);
    assert_eq!(lb["vip_port_id"], json!(ports[0].id));
    assert_eq!(ports[0].name, format!("octavia-lb-{id}"));
    assert_eq!(ports[0].device_id, format!("lb-{id}"));
    assert_eq!(ports[0].device_owner, "Octavia");
    assert_eq!(ports[0].project_id.as_deref(), Some(PROJECT));
    assert!(!ports[0].admin_state_up);
    let shown = api.get(&format!("{PATH}/{id}")).await;
    assert_eq!(&shown.body["loadbalancer"], lb);
}

/// What a Kubernetes cloud provider sends for a Service.
fn kubernetes_service() -> Value {
    let pool = |index: u16, protocol: &str, members: Value| {
        json!({
            "name": format!("pool_{index}_kube"), "protocol": protocol, "lb_algorithm": "ROUND_ROBIN",
            "session_persistence": null, "members": members,
            "healthmonitor": {"name": "monitor", "type": if protocol == "UDP" { "UDP-CONNECT" } else { "TCP" },
                "delay": 60, "timeout": 30, "max_retries": 1, "max_retries_down": 3},
        })
    };
    let listener = |index: u16, protocol: &str, port: u16, pool: Value| {
        json!({
            "name": format!("listener_{index}_kube"), "protocol": protocol, "protocol_port": port,
            "connection_limit": -1, "tags": ["kube"], "timeout_client_data": 50000,
            "timeout_member_connect": 5000, "timeout_member_data": 50000, "timeout_tcp_inspect": 0,
            "allowed_cidrs": ["0.0.0.0/0"], "default_pool": pool,
        })
    };
    json!({"loadbalancer": {
        "name": "kube", "description": "Kubernetes external service", "provider": "octavia",
        "tags": ["kube"], "vip_subnet_id": SUBNET,
        "listeners": [
            listener(0, "TCP", 80, pool(0, "TCP", json!([
                {"name": "n1", "address": "10.0.0.21", "protocol_port": 30080, "subnet_id": SUBNET},
                {"name": "n2", "address": "10.0.0.22", "protocol_port": 30080, "subnet_id": SUBNET, "monitor_port": 10256},
            ]))),
            listener(1, "UDP", 53, pool(1, "UDP", json!([]))),
        ],
    }})
}

/// P14
#[tokio::test]
async fn a_fully_populated_create_answers_the_whole_tree() {
    let api = Api::new().await;
    let answer = api.post(PATH, kubernetes_service()).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let lb = &answer.body["loadbalancer"];
    assert_eq!(lb["provider"], "octavia");
    let listener = &lb["listeners"][0];
    assert_eq!(listener["provisioning_status"], "PENDING_CREATE");
    assert_eq!(listener["allowed_cidrs"], json!(["0.0.0.0/0"]));
    assert_eq!(listener["l7policies"], json!([]));
    assert_eq!(listener["default_tls_container_ref"], json!(null));
    assert!(!keys(listener).contains(&"loadbalancers"));
    let pool = &lb["pools"][0];
    assert!(!keys(pool).contains(&"loadbalancers"));
    assert!(!keys(pool).contains(&"healthmonitor_id"));
    assert_eq!(pool["healthmonitor"]["type"], "TCP");
    assert_eq!(pool["members"][1]["monitor_port"], 10256);
    assert_eq!(pool["members"][0]["operating_status"], "OFFLINE");
    assert_eq!(listener["default_pool_id"], pool["id"]);

    let id = id_of(lb);
    let shown = api.get(&format!("{PATH}/{id}")).await;
    let listeners = shown.body["loadbalancer"]["listeners"].as_array().unwrap();
    assert_eq!(listeners.len(), 2);
    assert_eq!(keys(&listeners[0]), ["id"]);
    let pool = api.get(&format!("/v2/lbaas/pools/{}", id_of(pool))).await;
    let pool = &pool.body["pool"];
    assert_eq!(pool["loadbalancers"], json!([{"id": id}]));
    assert_eq!(pool["listeners"], json!([{"id": listener["id"]}]));
    assert!(pool["healthmonitor_id"].is_string());
}

/// P14
#[tokio::test]
async fn one_bad_leaf_refuses_the_create_and_leaves_no_port() {
    let api = Api::new().await;
    let with = |pointer: &str, value: Value| {
        let mut body = kubernetes_service();
        *body.pointer_mut(pointer).unwrap() = value;
        body
    };
    let pool = "/loadbalancer/listeners/0/default_pool";
    let cases = [
        (
            with("/loadbalancer/listeners/1/protocol_port", json!(0)),
            400,
            "Invalid input for field/attribute protocol_port.",
        ),
        (
            with("/loadbalancer/listeners/1/protocol", json!("QUIC")),
            400,
            "Invalid input for field/attribute protocol. Value: 'QUIC'. Value should be one of: ",
        ),
        (
            with(&format!("{pool}/members/0/subnet_id"), json!(ABSENT)),
            400,
            "Subnet 99999999-9999-4999-8999-999999999999 not found.",
        ),
        (
            with(
                &format!("{pool}/members/0/address"),
                json!("169.254.169.254"),
            ),
            400,
            "169.254.169.254 is not a valid option",
        ),
        (
            with(&format!("{pool}/lb_algorithm"), json!("SOURCE_IP_PORT")),
            501,
            "Provider 'octavia' does not support a requested option",
        ),
        (
            with(&format!("{pool}/name"), json!(null)),
            400,
            "Validation failure: Pools must be named",
        ),
        (
            with("/loadbalancer/listeners/0/tags", json!("kube")),
            400,
            "Invalid input for field/attribute tags.",
        ),
        (
            with("/loadbalancer/provider", json!("ovn")),
            400,
            "Provider 'ovn' is not enabled.",
        ),
    ];
    for (body, status, fault) in cases {
        let answer = api.post(PATH, body).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.fault().starts_with(fault), "{}", answer.text);
    }
    let mut body = kubernetes_service();
    body["loadbalancer"]["listeners"][0]["l7policies"] = json!([{"action": "REJECT"}]);
    let answer = api.post(PATH, body).await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (
            400,
            "Validation failure: L7 policies are not allowed on TCP protocol listeners."
        )
    );

    assert!(api.network.ports().is_empty());
    assert_eq!(api.get(PATH).await.body["loadbalancers"], json!([]));
}

#[tokio::test]
async fn an_update_answers_the_new_values_and_pending_update() {
    let api = Api::new().await;
    let lb = api
        .load_balancer(json!({"name": "old", "description": "d", "tags": ["x"]}))
        .await;
    let path = format!("{PATH}/{}", id_of(&lb));
    let fields = json!({"name": "new", "tags": ["a", "b"], "admin_state_up": "false"});
    let answer = api.put(&path, json!({"loadbalancer": fields})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let updated = &answer.body["loadbalancer"];
    assert_eq!(updated["name"], "new");
    assert_eq!(updated["description"], "d");
    assert_eq!(updated["tags"], json!(["a", "b"]));
    assert_eq!(updated["admin_state_up"], false);
    assert_eq!(updated["provisioning_status"], "PENDING_UPDATE");
    assert!(updated["updated_at"].is_string());
    api.settle(id_of(&lb)).await;

    let nulls = json!({"name": null, "tags": null, "admin_state_up": null, "vip_sg_ids": null});
    let answer = api.put(&path, json!({"loadbalancer": nulls})).await;
    let updated = &answer.body["loadbalancer"];
    assert_eq!(
        (&updated["name"], &updated["tags"]),
        (&json!(""), &json!(["a", "b"]))
    );
    api.settle(id_of(&lb)).await;
    let answer = api
        .put(&path, json!({"loadbalancer": {"tags": [""]}}))
        .await;
    assert_eq!(answer.body["loadbalancer"]["tags"], json!([""]));
    api.settle(id_of(&lb)).await;
    let answer = api.put(&path, json!({"loadbalancer": {}})).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["loadbalancer"]["tags"]),
        (200, &json!([""]))
    );
}

#[tokio::test]
async fn while_a_load_balancer_is_pending_or_in_error_writes_are_conflicts_that_say_why() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let id = id_of(&lb);
    let path = format!("{PATH}/{id}");
    let listener =
        json!({"listener": {"loadbalancer_id": id, "protocol": "TCP", "protocol_port": 80}});
    for (status, word, deletes) in [
        (ProvisioningStatus::PendingUpdate, "PENDING_UPDATE", false),
        (ProvisioningStatus::PendingDelete, "PENDING_DELETE", false),
        (ProvisioningStatus::Error, "ERROR", true),
    ] {
        let set = || api.edit(id, |graph| graph.load_balancer.provisioning_status = status);
        set().await;
        let own = format!("Invalid state {word} of loadbalancer resource {id}");
        let answer = api.put(&path, json!({"loadbalancer": {}})).await;
        assert_eq!(
            (answer.status.as_u16(), answer.fault()),
            (409, own.as_str())
        );
        let answer = api.post("/v2/lbaas/listeners", listener.clone()).await;
        let child = format!("Load Balancer {id} is immutable and cannot be updated.");
        assert_eq!(
            (answer.status.as_u16(), answer.fault()),
            (409, child.as_str())
        );
        let failover = api.call("PUT", &format!("{path}/failover"), None).await;
        assert_eq!(failover.status, if deletes { 202 } else { 409 });
        set().await;
        assert_eq!(
            api.delete(&path).await.status,
            if deletes { 204 } else { 409 }
        );
    }
}

#[tokio::test]
async fn deleting_needs_cascade_with_children_and_shows_pending_delete_until_it_is_gone() {
    let api = Api::new().await;
    let answer = api.post(PATH, kubernetes_service()).await;
    let lb = answer.body["loadbalancer"].clone();
    let id = id_of(&lb);
    api.settle(id).await;
    let path = format!("{PATH}/{id}");
    for query in ["", "?cascade=false", "?cascade=maybe"] {
        let answer = api.delete(&format!("{path}{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(
            answer.fault().ends_with("it has children"),
            "{}",
            answer.text
        );
    }
    let answer = api.delete(&format!("{path}?cascade=True")).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (204, ""));
    assert_eq!(api.status_of(&path, "loadbalancer").await, "PENDING_DELETE");
    api.settle(id).await;
    let answer = api.get(&path).await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (404, format!("Load Balancer {id} not found.").as_str())
    );
    assert_eq!(api.delete(&path).await.status, 404);
    assert_eq!(api.get(PATH).await.body["loadbalancers"], json!([]));
}

#[tokio::test]
async fn statistics_of_what_was_never_used_are_five_zeros() {
    let api = Api::new().await;
    let answer = api.post(PATH, kubernetes_service()).await;
    let lb = &answer.body["loadbalancer"];
    let zeros = json!({"stats": {"bytes_in": 0, "bytes_out": 0, "active_connections": 0, "total_connections": 0, "request_errors": 0}});
    assert_eq!(
        api.get(&format!("{PATH}/{}/stats", id_of(lb))).await.body,
        zeros
    );
    let listener = id_of(&lb["listeners"][0]);
    assert_eq!(
        api.get(&format!("/v2/lbaas/listeners/{listener}/stats"))
            .await
            .body,
        zeros
    );
}

/// P87
#[tokio::test]
async fn the_status_tree_has_listeners_with_their_pools_under_both_spellings() {
    let api = Api::new().await;
    let mut body = kubernetes_service();
    body["loadbalancer"]["pools"] =
        json!([{"name": "unused", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}]);
    body["loadbalancer"]["listeners"][1]["default_pool"]["healthmonitor"] = json!(null);
    let answer = api.post(PATH, body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let id = id_of(&answer.body["loadbalancer"]).to_owned();
    let tree = api.get(&format!("{PATH}/{id}/status")).await.body;
    assert_eq!(tree, api.get(&format!("{PATH}/{id}/statuses")).await.body);
    assert_eq!(keys(&tree), ["statuses"]);
    let lb = &tree["statuses"]["loadbalancer"];
    assert_eq!(
        keys(lb),
        [
            "id",
            "listeners",
            "name",
            "operating_status",
            "provisioning_status"
        ]
    );
    let listeners = lb["listeners"].as_array().unwrap();
    assert_eq!(listeners.len(), 2);
    let first = listeners
        .iter()
        .find(|item| item["name"] == "listener_0_kube")
        .unwrap();
    let pool = &first["pools"][0];
    assert_eq!(
        keys(pool),
        [
            "health_monitor",
            "id",
            "members",
            "name",
            "operating_status",
            "provisioning_status"
        ]
    );
    assert_eq!(
        keys(&pool["health_monitor"]),
        [
            "id",
            "name",
            "operating_status",
            "provisioning_status",
            "type"
        ]
    );
    assert_eq!(
        keys(&pool["members"][0]),
        [
            "address",
            "id",
            "name",
            "operating_status",
            "protocol_port",
            "provisioning_status"
        ]
    );
    let second = listeners
        .iter()
        .find(|item| item["name"] == "listener_1_kube")
        .unwrap();
    assert_eq!(second["pools"][0]["health_monitor"], json!(null));
    assert!(!tree.to_string().contains("unused"));
}

#[tokio::test]
async fn failover_is_accepted_with_an_empty_body_and_locks() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let path = format!("{PATH}/{}", id_of(&lb));
    let answer = api.call("PUT", &format!("{path}/failover"), None).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (202, ""));
    assert_eq!(answer.headers["content-length"], "0");
    assert_eq!(api.status_of(&path, "loadbalancer").await, "PENDING_UPDATE");
    assert_eq!(api.get(&format!("{path}/failover")).await.status, 405);
}

#[tokio::test]
async fn objects_of_services_that_are_not_there_do_not_exist() {
    let api = Api::new().await;
    for (fields, fault) in [
        (
            json!({"flavor_id": ABSENT}),
            "Flavor 99999999-9999-4999-8999-999999999999 not found.",
        ),
        (
            json!({"availability_zone": "az1"}),
            "Availability Zone az1 not found.",
        ),
        (
            json!({"vip_qos_policy_id": ABSENT}),
            "Validation failure: VIP QoS policy is not allowed in this deployment.",
        ),
        (
            json!({"vip_sg_ids": [ABSENT]}),
            "Security Group 99999999-9999-4999-8999-999999999999 not found.",
        ),
    ] {
        let mut object = json!({"vip_subnet_id": SUBNET});
        merge(&mut object, fields);
        let answer = api.post(PATH, json!({"loadbalancer": object})).await;
        assert_eq!((answer.status.as_u16(), answer.fault()), (400, fault));
    }
}

#[tokio::test]
async fn a_project_is_needed_and_tenant_id_wins() {
    let api = Api::with(
        |config| config.default_project_id = None,
        std::sync::Arc::new(lb_drivers::identity::NoIdentity),
    )
    .await;
    let create = |fields: Value| {
        let mut object = json!({"vip_subnet_id": SUBNET});
        merge(&mut object, fields);
        json!({"loadbalancer": object})
    };
    let answer = api.post(PATH, create(json!({}))).await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (400, "Missing project ID in request where one is required.")
    );
    let answer = api
        .post(PATH, create(json!({"project_id": "a", "tenant_id": "b"})))
        .await;
    assert_eq!(answer.body["loadbalancer"]["project_id"], "b");
}

#[tokio::test]
async fn the_reconcile_document_is_there_before_and_after_the_first_outcome() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let id = id_of(&lb);
    let answer = api
        .get(&format!("/v2/octavia/loadbalancers/{id}/reconcile"))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let document = &answer.body["reconcile"];
    assert_eq!(document["loadbalancer_id"], id);
    assert_eq!(document["provisioning_status"], "ACTIVE");
    assert_eq!(document["last"], json!(null));
    assert!(document["generation"].as_u64().unwrap() >= 1);
}
