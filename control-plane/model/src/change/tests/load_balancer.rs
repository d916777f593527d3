//! Deletion with children, and the fully populated create.

use serde_json::{Value, json};

use super::{LATER, active, merge, statuses, text};
use crate::change::{GraphSeed, ResolvedVip, build_graph, delete_load_balancer};
use crate::sample::{self, NOW};
use crate::spec::LoadBalancerCreate;
use crate::{Fault, Graph, LoadBalancerId, OperatingStatus, Rules};

#[test]
fn deleting_a_load_balancer_with_children_needs_cascade() {
    let mut graph = active();
    let id = graph.load_balancer.id;
    assert_eq!(
        text(delete_load_balancer(&mut graph, false, LATER)),
        format!("Validation failure: Cannot delete Load Balancer {id} - it has children")
    );
    graph.listeners.clear();
    graph.pools.clear();
    assert_eq!(text(delete_load_balancer(&mut graph, false, LATER)), "ok");
}

fn build(fields: Value) -> Result<Graph, Fault> {
    let spec = LoadBalancerCreate::decode(&json!({"loadbalancer": fields}))?;
    let lb = sample::load_balancer(1);
    let seed = GraphSeed {
        id: LoadBalancerId::random(),
        project_id: sample::PROJECT.to_owned(),
        provider: "amphora".to_owned(),
        topology: lb.topology,
        vip: ResolvedVip {
            vip: lb.vip,
            additional: Vec::new(),
        },
    };
    build_graph(&spec, seed, &Rules::default(), NOW)
}

fn built(fields: Value) -> String {
    text(build(fields).map(drop))
}

#[test]
fn a_fully_populated_create_makes_the_whole_tree_pending_create() {
    let graph = build(json!({
        "name": "kube", "tags": ["a", "a", ""],
        "listeners": [
            {"name": "l0", "protocol": "TCP", "protocol_port": 80, "allowed_cidrs": ["0.0.0.0/0"], "l7policies": [],
             "default_pool": {"name": "p0", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
                "members": [{"address": "10.0.0.21", "protocol_port": 30080, "subnet_id": null}],
                "healthmonitor": {"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1}}},
            {"name": "l1", "protocol": "UDP", "protocol_port": 80, "default_pool": {"name": "p1"}},
            {"name": "l2", "protocol": "TCP", "protocol_port": 81, "default_pool": {"name": "p0"}},
        ],
        "pools": [{"name": "p1", "protocol": "UDP", "lb_algorithm": "SOURCE_IP", "members": []}],
    }))
    .unwrap();
    assert_eq!(statuses(&graph), "CCCCCCCC");
    assert_eq!(graph.pools.len(), 2);
    let pool = |name: &str| {
        graph
            .pools
            .iter()
            .find(|pool| pool.name == name)
            .unwrap()
            .id
    };
    assert_eq!(graph.listeners[0].default_pool_id, Some(pool("p0")));
    assert_eq!(graph.listeners[1].default_pool_id, Some(pool("p1")));
    assert_eq!(graph.listeners[2].default_pool_id, Some(pool("p0")));
    assert_eq!(graph.load_balancer.tags, ["a", ""]);
    let nested = graph.pool(pool("p0")).unwrap();
    assert_eq!(nested.members[0].operating_status, OperatingStatus::Offline);
}

#[test]
fn one_bad_leaf_refuses_the_whole_create() {
    let pool = |fields: Value| {
        let mut object = json!({"name": "p", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"});
        merge(&mut object, fields);
        object
    };
    let listener = |fields: Value| {
        let mut object = json!({"protocol": "TCP", "protocol_port": 80});
        merge(&mut object, fields);
        json!([object])
    };
    let cases: Vec<(Value, &str)> = vec![
        (
            json!({"pools": [{"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}]}),
            "Validation failure: Pools must be named when creating a fully populated loadbalancer.",
        ),
        (
            json!({"pools": [pool(json!({})), pool(json!({}))]}),
            "Validation failure: Pool name \"p\" is used for more than one pool definition; pool names must be unique within the request.",
        ),
        (
            json!({"pools": [{"name": "p", "protocol": "TCP"}]}),
            "Invalid input for field/attribute lb_algorithm. Value: 'None'. Mandatory field missing.",
        ),
        (
            json!({"pools": [{"name": "nowhere"}]}),
            "Validation failure: Pool nowhere is referenced by name and defined nowhere in the request.",
        ),
        (
            json!({"listeners": listener(json!({"default_pool": {"name": "nowhere"}}))}),
            "Validation failure: Pool nowhere is referenced by name and defined nowhere in the request.",
        ),
        (
            json!({"listeners": listener(json!({"protocol": "UDP", "default_pool": pool(json!({}))}))}),
            "Validation failure: The pool protocol 'TCP' is invalid while the listener protocol is 'UDP'.",
        ),
        (
            json!({"listeners": listener(json!({"l7policies": [{"action": "REJECT"}]}))}),
            "Validation failure: L7 policies are not allowed on TCP protocol listeners.",
        ),
        (
            json!({"listeners": listener(json!({"loadbalancer_id": "x"}))}),
            "Unknown attribute for argument loadbalancer.listeners: loadbalancer_id",
        ),
        (
            json!({"listeners": [{"protocol": "TCP", "protocol_port": 80}, {"protocol": "HTTP", "protocol_port": 80}]}),
            "Another Listener on this Load Balancer is already using protocol TCP and protocol_port 80",
        ),
        (
            json!({"pools": [pool(json!({"members": [{"address": "10.0.0.1", "protocol_port": 1}, {"address": "10.0.0.1", "protocol_port": 1}]}))]}),
            "Another member on this pool is already using ip 10.0.0.1 on protocol_port 1",
        ),
        (
            json!({"pools": [pool(json!({"members": [{"address": "10.0.0.1", "protocol_port": 1, "size": 1}]}))]}),
            "Unknown attribute for argument loadbalancer.pools.members: size",
        ),
        (
            json!({"pools": [pool(json!({"healthmonitor": {"type": "SCTP", "delay": 5, "timeout": 5, "max_retries": 1}}))]}),
            "Validation failure: The associated pool protocol is TCP, a health monitor of type SCTP is not allowed.",
        ),
        (
            json!({"additional_vips": [{"ip_address": "10.0.0.1"}]}),
            "Invalid input for field/attribute subnet_id. Value: 'None'. Mandatory field missing.",
        ),
    ];
    for (fields, expected) in cases {
        assert_eq!(built(fields.clone()), expected, "{fields}");
    }
}
