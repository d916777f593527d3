//! Rules of a listener, and what a null in its update means.

use serde_json::{Value, json};

use super::{LATER, active, create, text};
use crate::Rules;
use crate::change::update_listener;
use crate::sample;
use crate::spec::ListenerUpdate;

/// P73, P76, P101
#[test]
fn rules_of_a_listener() {
    let pools = active();
    let (http_pool, tcp_pool) = (pools.pools[0].id, pools.pools[1].id);
    let unknown = sample::uuid(0xdead);
    let cases: Vec<(Value, String)> = vec![
        (json!({}), "ok".into()),
        (json!({"protocol_port": "8080"}), "ok".into()),
        (json!({"protocol": "UDP", "protocol_port": 80}), "ok".into()),
        (json!({"protocol_port": 80}), "Another Listener on this Load Balancer is already using protocol HTTP and protocol_port 80".into()),
        (json!({"default_pool_id": tcp_pool}), "ok".into()),
        (json!({"default_pool_id": http_pool}), "ok".into()),
        (json!({"protocol": "HTTP", "default_pool_id": tcp_pool}), "Validation failure: The pool protocol 'TCP' is invalid while the listener protocol is 'HTTP'.".into()),
        (json!({"protocol": "UDP", "default_pool_id": tcp_pool}), "Validation failure: The pool protocol 'TCP' is invalid while the listener protocol is 'UDP'.".into()),
        (json!({"default_pool_id": unknown}), format!("Pool {unknown} not found.")),
        (json!({"protocol": "PROMETHEUS", "default_pool_id": tcp_pool}), "Protocol PROMETHEUS listeners can not have child objects.".into()),
        (json!({"protocol": "HTTP", "insert_headers": {"X-Forwarded-For": "true"}}), "ok".into()),
        (json!({"insert_headers": {"X-Forwarded-For": "true"}}), "X-Forwarded-For for a TCP listener is not a valid option for insert_headers".into()),
        (json!({"protocol": "HTTP", "insert_headers": {"x-forwarded-for": "true"}}), "x-forwarded-for is not a valid option for insert_headers".into()),
        (json!({"protocol": "HTTP", "insert_headers": {"X-SSL-Issuer": "true"}}), "X-SSL-Issuer for a HTTP listener is not a valid option for insert_headers".into()),
        (json!({"protocol": "HTTP", "insert_headers": {"X-Forwarded-For": true}}), "Invalid input for field/attribute insert_headers. Value: '{\"X-Forwarded-For\":true}'. Value of X-Forwarded-For should be a string".into()),
        (json!({"default_tls_container_ref": "ref"}), "Validation failure: Certificate container references are not allowed on TCP protocol listeners.".into()),
        (json!({"protocol": "TERMINATED_HTTPS"}), "Validation failure: An SNI or default certificate container reference must be provided with TERMINATED_HTTPS listeners.".into()),
        (json!({"protocol": "TERMINATED_HTTPS", "sni_container_refs": ["ref"]}), "Provider 'amphora' does not support a requested option: TERMINATED_HTTPS protocol listener".into()),
        (json!({"protocol": "SCTP"}), "Provider 'amphora' does not support a requested option: SCTP protocol listener".into()),
        (json!({"client_authentication": "OPTIONAL"}), "Validation failure: Client authentication setting OPTIONAL requires a client CA container reference.".into()),
        (json!({"client_crl_container_ref": "ref"}), "Validation failure: A client authentication CA reference is required to specify a client authentication revocation list.".into()),
        (json!({"tls_ciphers": "AES\r\nbind"}), "Validation failure: tls_ciphers has characters that are not allowed in an OpenSSL cipher list".into()),
        (json!({"tls_versions": []}), "Validation failure: Empty TLS version list".into()),
        (json!({"alpn_protocols": []}), "Validation failure: Empty ALPN protocol list".into()),
        (json!({"hsts_max_age": 0}), "Validation failure: HSTS is only supported on TERMINATED_HTTPS listeners.".into()),
        (json!({"hsts_preload": true}), "Validation failure: HSTS configuration options hsts_include_subdomains and hsts_preload only make sense if hsts_max_age is set as well.".into()),
        (json!({"allowed_cidrs": ["10.0.0.0/8"]}), "ok".into()),
        (json!({"allowed_cidrs": []}), "ok".into()),
        (json!({"allowed_cidrs": ["10.0.0.0/8", "2001:db8::/32"]}), "Validation failure: Allowed CIDR 2001:db8::/32 is of an address family that no VIP of the load balancer has.".into()),
        (json!({"connection_limit": -2}), "Invalid input for field/attribute connection_limit. Value: '-2'. Value should be greater or equal to -1".into()),
        (json!({"timeout_client_data": 2_073_600_001_u64}), "Invalid input for field/attribute timeout_client_data. Value: '2073600001'. Value should be lower or equal to 2073600000".into()),
        (json!({"default_pool": {"name": "x"}}), "Validation failure: default_pool can only be given within a fully populated load balancer create".into()),
        (json!({"colour": 1}), "Unknown attribute for argument listener: colour".into()),
        (json!({"protocol": null}), "Invalid input for field/attribute protocol. Value: 'None'. Mandatory field missing.".into()),
    ];
    for (fields, expected) in cases {
        let mut graph = active();
        assert_eq!(
            text(create(&mut graph, fields.clone())),
            expected,
            "{fields}"
        );
    }
}

#[test]
fn a_null_in_a_listener_update_resets_to_the_default() {
    let mut graph = active();
    let id = graph.listeners[0].id;
    let stored = &mut graph.listeners[0];
    stored.connection_limit = 10;
    stored.timeout_client_data = 1;
    stored.description = "old".into();
    stored.tags = vec!["kept".into()];
    stored.insert_headers = [("X-Forwarded-For".to_owned(), "true".to_owned())].into();
    stored.allowed_cidrs = Some(vec!["10.0.0.0/8".parse().unwrap()]);
    let spec = ListenerUpdate::decode(&json!({"listener": {
        "name": null, "description": null, "admin_state_up": null, "connection_limit": null,
        "timeout_client_data": null, "insert_headers": null, "allowed_cidrs": null,
        "default_pool_id": null, "tags": null, "tls_versions": null,
    }}))
    .unwrap();
    update_listener(&mut graph, id, &spec, &Rules::default(), LATER).unwrap();
    let listener = &graph.listeners[0];
    assert_eq!(
        (listener.name.as_str(), listener.description.as_str()),
        ("", "")
    );
    assert!(!listener.admin_state_up);
    assert_eq!(
        (listener.connection_limit, listener.timeout_client_data),
        (-1, 50_000)
    );
    assert!(listener.insert_headers.is_empty());
    assert_eq!(
        (&listener.allowed_cidrs, listener.default_pool_id),
        (&None, None)
    );
    assert_eq!(listener.tags, ["kept"]);
    assert_eq!(
        listener.tls_versions.as_deref(),
        Some(["TLSv1.2".to_owned(), "TLSv1.3".to_owned()].as_slice())
    );
}
