//! Under a provider that serves everything: every protocol, type and option there is, with its defaults and refusals.

use serde_json::{Value, json};

use super::{
    LATER, active, create_listener_under, create_monitor_under, create_pool_under, everything, text,
};
use crate::change::{update_listener, update_pool};
use crate::sample;
use crate::spec::{ListenerUpdate, PoolUpdate};
use crate::{
    Fault, Graph, LbAlgorithm, Listener, ListenerProtocol, MonitorType, Pool, PoolProtocol, Rules,
};

fn listener(fields: Value) -> Result<Listener, Fault> {
    let mut graph = active();
    create_listener_under(&everything(), &mut graph, fields)?;
    Ok(graph.listeners.remove(1))
}

fn pool(fields: Value) -> Result<Pool, Fault> {
    let mut graph = active();
    create_pool_under(&everything(), &mut graph, fields)?;
    Ok(graph.pools.remove(2))
}

fn fault<T>(result: Result<T, Fault>) -> String {
    text(result.map(drop))
}

#[test]
fn which_pool_protocols_a_listener_can_have() {
    use PoolProtocol::{Http, Https, Proxy, ProxyV2, Sctp, Tcp, Udp};
    for protocol in ListenerProtocol::ALL {
        let allowed: &[PoolProtocol] = match protocol {
            ListenerProtocol::Tcp => &[Http, Https, Proxy, ProxyV2, Tcp],
            ListenerProtocol::Http | ListenerProtocol::TerminatedHttps => &[Http, Proxy, ProxyV2],
            ListenerProtocol::Https => &[Https, Proxy, ProxyV2, Tcp],
            ListenerProtocol::Udp => &[Udp],
            ListenerProtocol::Sctp => &[Sctp],
            ListenerProtocol::Prometheus => &[],
        };
        for pool in PoolProtocol::ALL {
            let expected = if *protocol == ListenerProtocol::Prometheus {
                "Protocol PROMETHEUS listeners can not have child objects.".to_owned()
            } else if allowed.contains(pool) {
                "ok".to_owned()
            } else {
                format!(
                    "Validation failure: The pool protocol '{pool}' is invalid while the listener protocol is '{protocol}'."
                )
            };
            let mut graph = active();
            graph.pools[1] = sample::pool(2, *pool);
            let mut fields = json!({"protocol": protocol, "default_pool_id": graph.pools[1].id});
            if *protocol == ListenerProtocol::TerminatedHttps {
                fields["default_tls_container_ref"] = json!("ref");
            }
            let result = create_listener_under(&everything(), &mut graph, fields);
            assert_eq!(text(result), expected, "{protocol} -> {pool}");

            // The same from the pool's side.
            let mut graph = active();
            graph.listeners[0].protocol = *protocol;
            graph.listeners[0].default_pool_id = None;
            let fields = json!({"listener_id": graph.listeners[0].id, "protocol": pool});
            let result = create_pool_under(&everything(), &mut graph, fields);
            assert_eq!(text(result), expected, "{pool} <- {protocol}");
        }
    }
}

#[test]
fn tls_options_have_defaults_on_listeners_that_end_tls_and_nowhere_else() {
    let tls = listener(json!({"protocol": "TERMINATED_HTTPS", "sni_container_refs": ["a", "b"]}))
        .unwrap();
    assert_eq!(
        tls.tls_versions.as_deref(),
        Some(["TLSv1.2".to_owned(), "TLSv1.3".to_owned()].as_slice())
    );
    assert_eq!(
        tls.alpn_protocols.as_deref(),
        Some(
            [
                "h2".to_owned(),
                "http/1.1".to_owned(),
                "http/1.0".to_owned()
            ]
            .as_slice()
        )
    );
    assert_eq!(
        tls.tls_ciphers.as_deref(),
        Some(Rules::default().default_ciphers.as_str())
    );
    for protocol in ListenerProtocol::ALL {
        if *protocol == ListenerProtocol::TerminatedHttps {
            continue;
        }
        let plain = listener(json!({"protocol": protocol})).unwrap();
        assert_eq!(
            (plain.tls_ciphers, plain.tls_versions, plain.alpn_protocols),
            (None, None, None),
            "{protocol}"
        );
    }
    let pool_with = |fields: Value| pool(fields).unwrap();
    let plain = pool_with(json!({}));
    assert_eq!(
        (plain.tls_ciphers, plain.tls_versions, plain.alpn_protocols),
        (None, None, None)
    );
    let tls = pool_with(json!({"tls_enabled": "true"}));
    assert!(tls.tls_ciphers.is_some() && tls.tls_versions.is_some());
    assert_eq!(tls.alpn_protocols.map(|names| names.len()), Some(3));
}

#[test]
fn certificates_go_with_the_protocols_that_use_them() {
    let cases: Vec<(Value, &str)> = vec![
        (
            json!({"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": "ref", "client_ca_tls_container_ref": "ca",
                "client_authentication": "MANDATORY", "client_crl_container_ref": "crl"}),
            "ok",
        ),
        (
            json!({"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": "ref", "client_authentication": "OPTIONAL"}),
            "Validation failure: Client authentication setting OPTIONAL requires a client CA container reference.",
        ),
        (
            json!({"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": "ref", "client_crl_container_ref": "crl"}),
            "Validation failure: A client authentication CA reference is required to specify a client authentication revocation list.",
        ),
        (json!({"protocol": "PROMETHEUS"}), "ok"),
        (
            json!({"protocol": "PROMETHEUS", "default_tls_container_ref": "ref", "client_ca_tls_container_ref": "ca"}),
            "ok",
        ),
        (
            json!({"protocol": "PROMETHEUS", "client_ca_tls_container_ref": "ca"}),
            "Validation failure: A client authentication CA reference is specified but not a default certificate or SNI certificate.",
        ),
        (
            json!({"protocol": "UDP", "sni_container_refs": ["ref"]}),
            "Validation failure: Certificate container references are not allowed on UDP protocol listeners.",
        ),
        (
            json!({"protocol": "SCTP", "client_ca_tls_container_ref": "ca"}),
            "Validation failure: Certificate container references are not allowed on SCTP protocol listeners.",
        ),
        (
            json!({"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": "ref", "insert_headers": {"X-SSL-Client-CN": "true", "X-Real-IP": "no"}}),
            "ok",
        ),
        (
            json!({"protocol": "SCTP", "insert_headers": {"X-Forwarded-For": "true"}}),
            "X-Forwarded-For for a SCTP listener is not a valid option for insert_headers",
        ),
        (
            json!({"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": "ref", "tls_versions": ["TLSv1.4"]}),
            "Invalid input for field/attribute tls_versions. Value: '[\"TLSv1.4\"]'. Value should be one of: SSLv3, TLSv1, TLSv1.1, TLSv1.2, TLSv1.3",
        ),
        (
            json!({"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": "ref", "tls_versions": ["SSLv3", "TLSv1.3"]}),
            "ok",
        ),
        (
            json!({"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": "ref", "alpn_protocols": ["spdy/3"]}),
            "Invalid input for field/attribute alpn_protocols. Value: '[\"spdy/3\"]'. Value should be one of: h2, http/1.1, http/1.0",
        ),
    ];
    for (fields, expected) in cases {
        assert_eq!(fault(listener(fields.clone())), expected, "{fields}");
    }
}

#[test]
fn what_the_operator_forbids_is_refused_and_named() {
    type Forbid = fn(&mut Rules);
    let cases: Vec<(Forbid, Value, &str)> = vec![
        (
            |rules| rules.allow_tls_terminated_listeners = false,
            json!({"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": "ref"}),
            "The selected protocol is not allowed in this deployment: TERMINATED_HTTPS",
        ),
        (
            |rules| rules.allow_prometheus_listeners = false,
            json!({"protocol": "PROMETHEUS"}),
            "The selected protocol is not allowed in this deployment: PROMETHEUS",
        ),
        (
            |rules| rules.minimum_tls_version = Some("TLSv1.2".to_owned()),
            json!({"tls_versions": ["TLSv1.1", "TLSv1.2"]}),
            "Validation failure: Requested TLS versions are less than the minimum: TLSv1.1",
        ),
        (
            |rules| rules.prohibited_ciphers = vec!["RC4-SHA".to_owned()],
            json!({"tls_ciphers": "AES128-SHA:RC4-SHA"}),
            "Validation failure: The following ciphers have been prohibited by an administrator: RC4-SHA",
        ),
    ];
    for (forbid, fields, expected) in cases {
        let mut rules = everything();
        forbid(&mut rules);
        let result = create_listener_under(&rules, &mut active(), fields.clone());
        assert_eq!(text(result), expected, "{fields}");
    }
    let mut rules = everything();
    rules.allow_ping_health_monitors = false;
    let mut graph = active();
    let pool = graph.pools[1].id;
    let result = create_monitor_under(&rules, &mut graph, pool, json!({"type": "PING"}));
    assert_eq!(
        text(result),
        "The selected type is not allowed in this deployment: PING"
    );
}

#[test]
fn hsts_is_for_tls_and_its_flags_need_an_age_when_they_are_turned_on() {
    let tls = |fields: Value| {
        let mut object =
            json!({"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": "ref"});
        super::merge(&mut object, fields);
        object
    };
    let flags = "Validation failure: HSTS configuration options hsts_include_subdomains and hsts_preload only make sense if hsts_max_age is set as well.";
    for (fields, expected) in [
        (json!({"hsts_max_age": 0}), "ok"),
        (
            json!({"hsts_max_age": 31_536_000, "hsts_preload": true, "hsts_include_subdomains": true}),
            "ok",
        ),
        (json!({"hsts_include_subdomains": true}), flags),
        (
            json!({"hsts_max_age": -1}),
            "Invalid input for field/attribute hsts_max_age. Value: '-1'. Value should be greater or equal to 0",
        ),
    ] {
        assert_eq!(fault(listener(tls(fields.clone()))), expected, "{fields}");
    }
    // Stored: an age and a flag.
    let mut graph = active();
    create_listener_under(
        &everything(),
        &mut graph,
        tls(json!({"hsts_max_age": 5, "hsts_preload": true})),
    )
    .unwrap();
    let id = graph.listeners[1].id;
    for (fields, expected) in [
        (json!({"hsts_max_age": null}), "ok"),
        (
            json!({"hsts_max_age": null, "hsts_include_subdomains": true}),
            flags,
        ),
        (json!({"hsts_include_subdomains": true}), "ok"),
        (json!({"hsts_preload": null}), "ok"),
        (
            json!({"default_tls_container_ref": null}),
            "Validation failure: An SNI or default certificate container reference must be provided with TERMINATED_HTTPS listeners.",
        ),
        (
            json!({"default_tls_container_ref": null, "sni_container_refs": ["x"]}),
            "ok",
        ),
    ] {
        let mut graph = graph.clone();
        sample::set_status(&mut graph, crate::ProvisioningStatus::Active);
        let spec = ListenerUpdate::decode(&json!({"listener": fields})).unwrap();
        let result = update_listener(&mut graph, id, &spec, &everything(), LATER);
        assert_eq!(text(result), expected, "{fields}");
    }
}

#[test]
fn every_algorithm_and_session_persistence_is_stored_as_it_is_sent() {
    for algorithm in LbAlgorithm::ALL {
        let stored = pool(json!({"lb_algorithm": algorithm})).unwrap();
        assert_eq!(stored.lb_algorithm, *algorithm);
    }
    let cases: Vec<(Value, Value)> = vec![
        (json!({"protocol": "HTTP"}), json!({"type": "SOURCE_IP"})),
        (json!({"protocol": "HTTP"}), json!({"type": "HTTP_COOKIE"})),
        (
            json!({"protocol": "PROXYV2"}),
            json!({"type": "APP_COOKIE", "cookie_name": "JSESSIONID"}),
        ),
        (
            json!({"protocol": "UDP"}),
            json!({"type": "SOURCE_IP", "persistence_timeout": 5, "persistence_granularity": "255.255.0.0"}),
        ),
        (
            json!({"protocol": "SCTP"}),
            json!({"type": "SOURCE_IP", "persistence_timeout": "5", "persistence_granularity": "ffff::"}),
        ),
    ];
    for (mut fields, persistence) in cases {
        fields["session_persistence"] = persistence.clone();
        let stored = pool(fields).unwrap().session_persistence.unwrap();
        assert_eq!(json!(stored.kind), persistence["type"]);
        assert_eq!(json!(stored.cookie_name), persistence["cookie_name"]);
    }
}

#[test]
fn an_update_of_session_persistence_keeps_the_type_and_nothing_else() {
    let with = |persistence: Value| {
        let mut graph = active();
        create_pool_under(
            &everything(),
            &mut graph,
            json!({"session_persistence": persistence}),
        )
        .unwrap();
        sample::set_status(&mut graph, crate::ProvisioningStatus::Active);
        graph
    };
    let update = |graph: &mut Graph, fields: Value| {
        let id = graph.pools[2].id;
        let spec = PoolUpdate::decode(&json!({"pool": fields}))?;
        update_pool(graph, id, &spec, &everything(), LATER)?;
        Ok::<_, Fault>(graph.pools[2].session_persistence.clone())
    };
    let app = json!({"type": "APP_COOKIE", "cookie_name": "a"});
    let http = json!({"type": "HTTP_COOKIE"});
    let needs_name =
        "Validation failure: Field cookie_name must be provided for APP_COOKIE session persistence";
    // Stored, sent, the stored type or the refusal.
    let cases: Vec<(&Value, Value, &str)> = vec![
        (&http, json!({}), "HTTP_COOKIE"),
        (&app, json!({}), needs_name),
        (&app, json!({"cookie_name": "b"}), "APP_COOKIE"),
        (&app, json!({"type": "HTTP_COOKIE"}), "HTTP_COOKIE"),
        (&http, json!({"type": "APP_COOKIE"}), needs_name),
        (
            &http,
            json!({"cookie_name": "b"}),
            "Validation failure: Field cookie_name can not be specified with HTTP_COOKIE session persistence",
        ),
        (&http, json!(null), "none"),
        (
            &json!(null),
            json!({}),
            "Invalid input for field/attribute type. Value: 'None'. Mandatory field missing.",
        ),
    ];
    for (stored, sent, expected) in cases {
        let mut graph = with(stored.clone());
        let found = match update(&mut graph, json!({"session_persistence": sent})) {
            Ok(None) => "none".to_owned(),
            Ok(Some(persistence)) => persistence.kind.to_string(),
            Err(fault) => fault.to_string(),
        };
        assert_eq!(found, expected, "{stored} then {sent}");
    }
}

#[test]
fn a_revocation_list_needs_its_authority_on_pools_too() {
    let needs =
        "Validation failure: A CA certificate reference is required to specify a revocation list.";
    let full = json!({"tls_enabled": true, "tls_container_ref": "c", "ca_tls_container_ref": "ca", "crl_container_ref": "crl"});
    let mut graph = active();
    create_pool_under(&everything(), &mut graph, full).unwrap();
    let id = graph.pools[2].id;
    for (fields, expected) in [
        (json!({"ca_tls_container_ref": null}), needs),
        (
            json!({"ca_tls_container_ref": null, "crl_container_ref": null}),
            "ok",
        ),
        (json!({"crl_container_ref": null}), "ok"),
        (
            json!({"tls_enabled": null, "alpn_protocols": null, "tls_versions": null, "tls_ciphers": null}),
            "ok",
        ),
    ] {
        let mut graph = graph.clone();
        sample::set_status(&mut graph, crate::ProvisioningStatus::Active);
        let spec = PoolUpdate::decode(&json!({"pool": fields})).unwrap();
        let result = update_pool(&mut graph, id, &spec, &everything(), LATER);
        assert_eq!(text(result), expected, "{fields}");
        if fields.get("tls_enabled").is_some() {
            let pool = &graph.pools[2];
            assert!(!pool.tls_enabled && pool.alpn_protocols.is_none());
            assert!(pool.tls_versions.is_some() && pool.tls_ciphers.is_some());
        }
    }
}

#[test]
fn which_monitor_types_a_pool_can_have() {
    for protocol in PoolProtocol::ALL {
        for kind in MonitorType::ALL {
            let datagram = matches!(protocol, PoolProtocol::Udp | PoolProtocol::Sctp);
            let fits = match kind {
                MonitorType::UdpConnect | MonitorType::Sctp => datagram,
                MonitorType::Tcp | MonitorType::Http => true,
                MonitorType::Https | MonitorType::Ping | MonitorType::TlsHello => !datagram,
            };
            let mut graph = active();
            graph.pools[1] = sample::pool(2, *protocol);
            graph.pools[1].provisioning_status = crate::ProvisioningStatus::Active;
            let pool = graph.pools[1].id;
            let result =
                create_monitor_under(&everything(), &mut graph, pool, json!({"type": kind}));
            let expected = if fits {
                "ok".to_owned()
            } else {
                format!(
                    "Validation failure: The associated pool protocol is {protocol}, a health monitor of type {kind} is not allowed."
                )
            };
            assert_eq!(text(result), expected, "{protocol} {kind}");
            let Some(monitor) = &graph.pools[1].health_monitor else {
                continue;
            };
            let http = matches!(kind, MonitorType::Http | MonitorType::Https);
            let found = (
                monitor.http_method.as_deref(),
                monitor.url_path.as_deref(),
                monitor.expected_codes.as_ref().map(|codes| codes.as_str()),
                monitor.max_retries_down,
            );
            let expected = if http {
                (Some("GET"), Some("/"), Some("200"), 3)
            } else {
                (None, None, None, 3)
            };
            assert_eq!(found, expected, "{kind}");
        }
    }
}
