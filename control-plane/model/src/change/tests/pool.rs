//! Rules of a pool, and its place under a listener.

use serde_json::{Value, json};

use super::{active, create_pool_with, text};
use crate::ProvisioningStatus as Status;
use crate::sample;

/// P53
#[test]
fn rules_of_a_pool() {
    let listener = active().listeners[0].id;
    let cases: Vec<(Value, String)> = vec![
        (json!({}), "ok".into()),
        (json!({"listener_id": listener}), "This listener already has a default pool".into()),
        (json!({"listener_id": sample::uuid(0xdead)}), format!("Listener {} not found.", sample::uuid(0xdead))),
        (json!({"loadbalancer_id": null}), "Validation failure: Must provide at least one of: loadbalancer_id, listener_id".into()),
        (json!({"lb_algorithm": "SOURCE_IP_PORT"}), "Provider 'amphora' does not support a requested option: SOURCE_IP_PORT lb_algorithm".into()),
        (json!({"protocol": "PROXY"}), "Provider 'amphora' does not support a requested option: PROXY protocol pool".into()),
        (json!({"session_persistence": {}}), "Invalid input for field/attribute type. Value: 'None'. Mandatory field missing.".into()),
        (json!({"session_persistence": {"type": "SOURCE_IP"}}), "Provider 'amphora' does not support a requested option: SOURCE_IP session_persistence".into()),
        (json!({"session_persistence": {"type": "APP_COOKIE"}}), "Validation failure: Field cookie_name must be provided for APP_COOKIE session persistence".into()),
        (json!({"session_persistence": {"type": "APP_COOKIE", "cookie_name": "a;b"}}), "Validation failure: Cookie name is not valid".into()),
        (json!({"session_persistence": {"type": "HTTP_COOKIE", "cookie_name": "a"}}), "Validation failure: Field cookie_name can not be specified with HTTP_COOKIE session persistence".into()),
        (json!({"session_persistence": {"type": "SOURCE_IP", "persistence_timeout": 5}}), "Validation failure: persistence_timeout and persistence_granularity are only for UDP and SCTP protocol pools".into()),
        (json!({"protocol": "UDP", "session_persistence": {"type": "HTTP_COOKIE"}}), "Validation failure: session_persistence of type HTTP_COOKIE is not supported for UDP protocol pools".into()),
        (json!({"crl_container_ref": "ref"}), "Validation failure: A CA certificate reference is required to specify a revocation list.".into()),
        (json!({"tls_enabled": true}), "Provider 'amphora' does not support a requested option: TLS to the members of a pool".into()),
        (json!({"members": [{}]}), "Validation failure: members can only be given within a fully populated load balancer create".into()),
    ];
    for (fields, expected) in cases {
        let mut graph = active();
        assert_eq!(
            text(create_pool_with(&mut graph, fields.clone())),
            expected,
            "{fields}"
        );
    }
}

#[test]
fn a_pool_made_under_a_listener_becomes_its_default_pool() {
    let mut graph = active();
    let id = graph.listeners[0].id;
    graph.listeners[0].default_pool_id = None;
    create_pool_with(&mut graph, json!({"listener_id": id, "name": "new"})).unwrap();
    assert_eq!(graph.listeners[0].default_pool_id, Some(graph.pools[2].id));
    assert_eq!(
        graph.listeners[0].provisioning_status,
        Status::PendingUpdate
    );
    graph = active();
    graph.listeners[0].default_pool_id = None;
    assert_eq!(
        text(create_pool_with(
            &mut graph,
            json!({"listener_id": id, "protocol": "UDP"})
        )),
        "Validation failure: The pool protocol 'UDP' is invalid while the listener protocol is 'HTTP'."
    );
}
