//! Rules of a health monitor, and what a null in its update means.

use serde_json::{Value, json};

use super::{LATER, active, create_monitor_with, text};
use crate::change::update_health_monitor;
use crate::spec::HealthMonitorUpdate;
use crate::{Fault, Rules};

#[test]
fn rules_of_a_health_monitor() {
    let cases: Vec<(Value, &str)> = vec![
        (json!({"type": "TCP"}), "ok"),
        (json!({}), "ok"),
        (json!({"type": "PING"}), "ok"),
        (
            json!({"type": "TCP", "url_path": "/"}),
            "url_path is not a valid option for TCP health monitors",
        ),
        (
            json!({"type": "TCP", "http_method": "GET"}),
            "http_method is not a valid option for TCP health monitors",
        ),
        (
            json!({"type": "UDP-CONNECT"}),
            "Validation failure: The associated pool protocol is TCP, a health monitor of type UDP-CONNECT is not allowed.",
        ),
        (
            json!({"domain_name": "a.example"}),
            "Validation failure: http_version 1.1 is required to use domain_name.",
        ),
        (
            json!({"domain_name": "a.example", "http_version": 1.0}),
            "Validation failure: http_version 1.1 is required to use domain_name.",
        ),
        (
            json!({"domain_name": "a.example", "http_version": 1.1}),
            "ok",
        ),
        (
            json!({"domain_name": "a.example", "http_version": "1.1"}),
            "ok",
        ),
        (
            json!({"type": "HTTPS"}),
            "Provider 'amphora' does not support a requested option: HTTPS health monitor",
        ),
        (
            json!({"max_retries": 11}),
            "Invalid input for field/attribute max_retries. Value: '11'. Value should be lower or equal to 10",
        ),
        (json!({"timeout": 50}), "ok"),
        (
            json!({"expected_codes": "200,202-204"}),
            "Invalid input for field/attribute expected_codes. Value: '200,202-204'. Value should be a list of status codes or one range",
        ),
        (
            json!({"delay": null}),
            "Invalid input for field/attribute delay. Value: 'None'. Mandatory field missing.",
        ),
    ];
    for (fields, expected) in cases {
        let mut graph = active();
        let pool = graph.pools[1].id;
        assert_eq!(
            text(create_monitor_with(&mut graph, pool, fields.clone())),
            expected,
            "{fields}"
        );
    }
    let mut graph = active();
    let pool = graph.pools[0].id;
    assert_eq!(
        text(create_monitor_with(&mut graph, pool, json!({}))),
        "This pool already has a health monitor"
    );
}

#[test]
fn a_udp_connect_monitor_needs_a_delay_of_three_seconds() {
    for (delay, expected) in [
        (
            2,
            "Validation failure: The request delay value 2 should be larger than 3 for UDP-CONNECT health monitor type.",
        ),
        (3, "ok"),
    ] {
        let mut graph = active();
        graph.pools[1].protocol = crate::PoolProtocol::Udp;
        let pool = graph.pools[1].id;
        let fields = json!({"type": "UDP-CONNECT", "delay": delay});
        assert_eq!(
            text(create_monitor_with(&mut graph, pool, fields)),
            expected
        );
    }
}

#[test]
fn a_null_in_a_monitor_update_resets_or_is_refused() {
    let update = |fields: Value| {
        let mut graph = active();
        let id = graph.pools[0].health_monitor.as_ref().unwrap().id;
        let spec = HealthMonitorUpdate::decode(&json!({"healthmonitor": fields}))?;
        update_health_monitor(&mut graph, id, &spec, &Rules::default(), LATER)?;
        Ok::<_, Fault>(graph.pools[0].health_monitor.clone().unwrap())
    };
    for attribute in ["delay", "timeout", "max_retries"] {
        assert!(update(json!({attribute: null})).is_err(), "{attribute}");
    }
    let monitor = update(json!({"http_method": null, "url_path": null, "expected_codes": null, "max_retries_down": null})).unwrap();
    assert_eq!(monitor.http_method.as_deref(), Some("GET"));
    assert_eq!(monitor.url_path.as_deref(), Some("/"));
    assert_eq!(monitor.expected_codes.unwrap().as_str(), "200");
    assert_eq!(monitor.max_retries_down, 3);
}
