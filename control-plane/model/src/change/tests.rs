//! What each call checks and writes, as tables.

use serde_json::{Value, json};

use super::*;
use crate::sample::{self, NOW};
use crate::spec::{
    HealthMonitorCreate, HealthMonitorUpdate, ListenerCreate, ListenerUpdate, LoadBalancerCreate,
    LoadBalancerUpdate, MemberBatch, MemberCreate, MemberUpdate, PoolCreate, PoolUpdate,
};
use crate::{
    AmphoraId, AmphoraStatus, HealthMonitorId, LoadBalancerId, MemberId, OperatingStatus,
    ProvisioningStatus as Status, Rules,
};

const LATER: Timestamp = NOW.plus_millis(5_000);

/// An ACTIVE load balancer: listener HTTP/80 -> pool (HTTP) with two members and a monitor; a second pool (TCP) alone.
fn active() -> Graph {
    let mut pool = sample::pool(1, crate::PoolProtocol::Http);
    pool.members = vec![member_at(21), member_at(22)];
    pool.health_monitor = Some(sample::health_monitor(1, crate::MonitorType::Http));
    let spare = sample::pool(2, crate::PoolProtocol::Tcp);
    let mut graph = sample::graph(1);
    graph.listeners = vec![sample::listener(
        1,
        crate::ListenerProtocol::Http,
        80,
        Some(pool.id),
    )];
    graph.pools = vec![pool, spare];
    sample::set_status(&mut graph, Status::Active);
    graph
}

fn member_at(last: u8) -> crate::Member {
    let mut member = sample::member(last, None);
    member.address = std::net::IpAddr::from([10, 0, 0, last]);
    member
}

fn listener_spec(fields: Value) -> Result<ListenerCreate, Fault> {
    let mut object =
        json!({"loadbalancer_id": sample::uuid(1), "protocol": "TCP", "protocol_port": 443});
    merge(&mut object, fields);
    ListenerCreate::decode(&json!({"listener": object}))
}

fn merge(object: &mut Value, fields: Value) {
    for (key, value) in fields.as_object().unwrap() {
        object[key] = value.clone();
    }
}

fn create(graph: &mut Graph, fields: Value) -> Result<(), Fault> {
    let spec = listener_spec(fields)?;
    create_listener(
        graph,
        &spec.listener,
        ListenerId::random(),
        &Rules::default(),
        LATER,
    )
}

fn create_pool_with(graph: &mut Graph, fields: Value) -> Result<(), Fault> {
    let mut object = json!({"loadbalancer_id": sample::uuid(1), "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN"});
    merge(&mut object, fields);
    let spec = PoolCreate::decode(&json!({"pool": object}))?;
    create_pool(
        graph,
        &spec.pool,
        PoolId::random(),
        spec.listener_id,
        &Rules::default(),
        LATER,
    )
}

fn create_monitor_with(graph: &mut Graph, pool: PoolId, fields: Value) -> Result<(), Fault> {
    let mut object =
        json!({"pool_id": pool, "type": "HTTP", "delay": 5, "timeout": 5, "max_retries": 3});
    merge(&mut object, fields);
    let spec = HealthMonitorCreate::decode(&json!({"healthmonitor": object}))?;
    create_health_monitor(
        graph,
        spec.pool_id,
        &spec.health_monitor,
        HealthMonitorId::random(),
        &Rules::default(),
        LATER,
    )
}

fn batch(graph: &mut Graph, members: Value, additive_only: bool) -> Result<(), Fault> {
    let pool = graph.pools[0].id;
    let batch = MemberBatch::decode(&json!({"members": members}), additive_only)?;
    batch_update_members(
        graph,
        pool,
        &batch,
        &mut MemberId::random,
        &Rules::default(),
        LATER,
    )
    .map(drop)
}

fn text(result: Result<(), Fault>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(fault) => fault.to_string(),
    }
}

/// Provisioning status of load balancer, listener, first pool, second pool, each member, monitor.
fn statuses(graph: &Graph) -> String {
    let mut words = vec![graph.load_balancer.provisioning_status];
    words.extend(graph.listeners.iter().map(|item| item.provisioning_status));
    for pool in &graph.pools {
        words.push(pool.provisioning_status);
        words.extend(pool.members.iter().map(|item| item.provisioning_status));
        words.extend(
            pool.health_monitor
                .iter()
                .map(|item| item.provisioning_status),
        );
    }
    words
        .into_iter()
        .map(|status| match status {
            Status::Active => '.',
            Status::PendingCreate => 'C',
            Status::PendingUpdate => 'U',
            Status::PendingDelete => 'D',
            Status::Error => 'E',
            Status::Deleted => 'X',
        })
        .collect()
}

type Change = fn(&mut Graph) -> Result<(), Fault>;

/// Every call that writes, with the statuses it leaves: LB, listener, pool 1, its members and monitor, pool 2, and
/// what was added at the end of its list.
const CALLS: &[(&str, Change, &str)] = &[
    (
        "PUT load balancer",
        |g| {
            let spec = LoadBalancerUpdate::decode(&json!({"loadbalancer": {}}))?;
            update_load_balancer(g, &spec, LATER)
        },
        "U......",
    ),
    (
        "DELETE load balancer, cascade",
        |g| delete_load_balancer(g, true, LATER),
        "D......",
    ),
    (
        "PUT load balancer failover",
        |g| request_failover(g, LATER),
        "U......",
    ),
    ("POST listener", |g| create(g, json!({})), "U.C....."),
    (
        "PUT listener",
        |g| {
            let spec = ListenerUpdate::decode(&json!({"listener": {}}))?;
            let id = g.listeners[0].id;
            update_listener(g, id, &spec, &Rules::default(), LATER)
        },
        "UU.....",
    ),
    (
        "DELETE listener",
        |g| {
            let id = g.listeners[0].id;
            delete_listener(g, id, LATER)
        },
        "UD.....",
    ),
    ("POST pool", |g| create_pool_with(g, json!({})), "U......C"),
    (
        "PUT pool",
        |g| {
            let spec = PoolUpdate::decode(&json!({"pool": {}}))?;
            let id = g.pools[0].id;
            update_pool(g, id, &spec, &Rules::default(), LATER)
        },
        "UUU....",
    ),
    (
        "PUT unattached pool",
        |g| {
            let spec = PoolUpdate::decode(&json!({"pool": {}}))?;
            let id = g.pools[1].id;
            update_pool(g, id, &spec, &Rules::default(), LATER)
        },
        "U.....U",
    ),
    (
        "DELETE pool",
        |g| {
            let id = g.pools[0].id;
            delete_pool(g, id, LATER)
        },
        "UUD....",
    ),
    (
        "POST member",
        |g| {
            let spec = MemberCreate::decode(
                &json!({"member": {"address": "10.0.0.23", "protocol_port": 80}}),
            )?;
            let id = g.pools[0].id;
            create_member(g, id, &spec, MemberId::random(), &Rules::default(), LATER)
        },
        "UUU..C..",
    ),
    (
        "PUT member",
        |g| {
            let spec = MemberUpdate::decode(&json!({"member": {}}))?;
            let (pool, id) = (g.pools[0].id, g.pools[0].members[0].id);
            update_member(g, pool, id, &spec, LATER)
        },
        "UUUU...",
    ),
    (
        "DELETE member",
        |g| {
            let (pool, id) = (g.pools[0].id, g.pools[0].members[0].id);
            delete_member(g, pool, id, LATER)
        },
        "UUUD...",
    ),
    (
        "PUT members",
        |g| {
            batch(
                g,
                json!([
                    {"address": "10.0.0.22", "protocol_port": 80, "weight": 7},
                    {"address": "10.0.0.23", "protocol_port": 80},
                ]),
                false,
            )
        },
        "UUUDUC..",
    ),
    (
        "POST health monitor",
        |g| {
            let id = g.pools[1].id;
            create_monitor_with(g, id, json!({"type": "TCP"}))
        },
        "U.....UC",
    ),
    (
        "PUT health monitor",
        |g| {
            let id = g.pools[0].health_monitor.as_ref().unwrap().id;
            let spec = HealthMonitorUpdate::decode(&json!({"healthmonitor": {}}))?;
            update_health_monitor(g, id, &spec, &Rules::default(), LATER)
        },
        "UUU..U.",
    ),
    (
        "DELETE health monitor",
        |g| {
            let id = g.pools[0].health_monitor.as_ref().unwrap().id;
            delete_health_monitor(g, id, LATER)
        },
        "UUU..D.",
    ),
];

#[test]
fn each_call_writes_exactly_the_statuses_of_its_row() {
    for (name, call, expected) in CALLS {
        let mut graph = active();
        assert_eq!(text(call(&mut graph)), "ok", "{name}");
        assert_eq!(statuses(&graph), *expected, "{name}");
        assert_eq!(graph.load_balancer.updated_at, Some(LATER), "{name}");
    }
}

#[test]
fn only_an_active_load_balancer_is_changed_and_only_active_or_error_is_deleted_or_failed_over() {
    for status in Status::ALL {
        for (name, call, _) in CALLS {
            let mut graph = active();
            graph.load_balancer.provisioning_status = *status;
            let own = name.contains("load balancer");
            let may = *status == Status::Active
                || *status == Status::Error
                    && (name.contains("DELETE load") || name.contains("failover"));
            let id = graph.load_balancer.id;
            let expected = match (may, own) {
                (true, _) => "ok".to_owned(),
                (false, true) => format!("Invalid state {status} of loadbalancer resource {id}"),
                (false, false) => {
                    format!("Load Balancer {id} is immutable and cannot be updated.")
                }
            };
            assert_eq!(text(call(&mut graph)), expected, "{name} while {status}");
        }
    }
}

#[test]
fn members_and_monitors_need_their_pool_active_and_the_pool_itself_does_not() {
    for (name, call, _) in CALLS {
        let mut graph = active();
        for pool in &mut graph.pools {
            pool.provisioning_status = Status::Error;
        }
        let needs_pool = name.contains("member") || name.contains("monitor");
        let result = text(call(&mut graph));
        if needs_pool {
            let pool = if *name == "POST health monitor" { 1 } else { 0 };
            let expected = format!(
                "Pool {} is immutable and cannot be updated.",
                active().pools[pool].id
            );
            assert_eq!(result, expected, "{name}");
        } else {
            assert_eq!(result, "ok", "{name}");
        }
    }
}

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

#[test]
fn immutable_attributes_are_unknown_to_an_update() {
    type Decode = fn(&Value) -> Result<(), Fault>;
    let cases: &[(&str, Decode)] = &[
        ("listener.protocol", |v| ListenerUpdate::decode(v).map(drop)),
        ("listener.protocol_port", |v| {
            ListenerUpdate::decode(v).map(drop)
        }),
        ("listener.loadbalancer_id", |v| {
            ListenerUpdate::decode(v).map(drop)
        }),
        ("pool.protocol", |v| PoolUpdate::decode(v).map(drop)),
        ("member.address", |v| MemberUpdate::decode(v).map(drop)),
        ("member.subnet_id", |v| MemberUpdate::decode(v).map(drop)),
        ("healthmonitor.type", |v| {
            HealthMonitorUpdate::decode(v).map(drop)
        }),
        ("loadbalancer.vip_address", |v| {
            LoadBalancerUpdate::decode(v).map(drop)
        }),
        ("loadbalancer.provider", |v| {
            LoadBalancerUpdate::decode(v).map(drop)
        }),
    ];
    for (path, decode) in cases {
        let (root, attribute) = path.split_once('.').unwrap();
        let body = json!({root: {attribute: "x"}});
        assert_eq!(
            text(decode(&body)),
            format!("Unknown attribute for argument {root}: {attribute}")
        );
    }
}

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
        (json!({"session_persistence": {"type": "SOURCE_IP"}}), "Provider 'amphora' does not support a requested option: session_persistence".into()),
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

#[test]
fn rules_of_a_member() {
    let cases: Vec<(Value, &str)> = vec![
        (json!({}), "ok"),
        (json!({"subnet_id": ""}), "ok"),
        (json!({"weight": 256}), "ok"),
        (
            json!({"weight": 257}),
            "Invalid input for field/attribute weight. Value: '257'. Value should be lower or equal to 256",
        ),
        (
            json!({"address": "10.0.0.21"}),
            "Another member on this pool is already using ip 10.0.0.21 on protocol_port 80",
        ),
        (json!({"address": "10.0.0.21", "protocol_port": 81}), "ok"),
        (
            json!({"address": "169.254.169.254"}),
            "169.254.169.254 is not a valid option for member address",
        ),
        (
            json!({"address": "::ffff:169.254.169.254"}),
            "::ffff:169.254.169.254 is not a valid option for member address",
        ),
        (
            json!({"address": "web1"}),
            "Invalid input for field/attribute address. Value: 'web1'. Value should be IPv4 or IPv6 format",
        ),
        (
            json!({"request_sriov": true}),
            "Validation failure: The flavor of the load balancer does not allow SR-IOV members.",
        ),
        (
            json!({"subnet_id": "x"}),
            "Invalid input for field/attribute subnet_id. Value: 'x'. Value should be UUID format",
        ),
    ];
    for (fields, expected) in cases {
        let mut graph = active();
        let mut object = json!({"address": "10.0.0.30", "protocol_port": 80});
        merge(&mut object, fields.clone());
        let pool = graph.pools[0].id;
        let result = MemberCreate::decode(&json!({"member": object})).and_then(|spec| {
            create_member(
                &mut graph,
                pool,
                &spec,
                MemberId::random(),
                &Rules::default(),
                LATER,
            )
        });
        assert_eq!(text(result), expected, "{fields}");
    }
}

#[test]
fn a_new_member_is_offline_when_its_pool_is_monitored_and_no_monitor_otherwise() {
    for (monitored, expected) in [
        (true, OperatingStatus::Offline),
        (false, OperatingStatus::NoMonitor),
    ] {
        let mut graph = active();
        if !monitored {
            graph.pools[0].health_monitor = None;
        }
        let pool = graph.pools[0].id;
        let spec =
            MemberCreate::decode(&json!({"member": {"address": "10.0.0.30", "protocol_port": 80}}))
                .unwrap();
        create_member(
            &mut graph,
            pool,
            &spec,
            MemberId::random(),
            &Rules::default(),
            LATER,
        )
        .unwrap();
        assert_eq!(graph.pools[0].members[2].operating_status, expected);
    }
}

#[test]
fn a_batch_resets_what_it_leaves_out_and_keeps_name_and_tags() {
    let mut graph = active();
    let member = &mut graph.pools[0].members[0];
    member.weight = 9;
    member.backup = true;
    member.monitor_port = Some(99);
    member.tags = vec!["t".into()];
    let name = member.name.clone();
    batch(
        &mut graph,
        json!([{"address": "10.0.0.21", "protocol_port": 80}]),
        true,
    )
    .unwrap();
    let member = &graph.pools[0].members[0];
    assert_eq!(
        (member.weight, member.backup, member.monitor_port),
        (1, false, None)
    );
    assert_eq!(
        (&member.name, member.tags.as_slice()),
        (&name, ["t".to_owned()].as_slice())
    );
    assert_eq!(statuses(&graph), "UUUU...");
}

#[test]
fn a_batch_that_asks_for_what_is_there_changes_nothing() {
    let mut graph = active();
    let before = graph.clone();
    batch(
        &mut graph,
        json!([
            {"address": "10.0.0.21", "protocol_port": 80},
            {"address": "10.0.0.22", "protocol_port": 80},
        ]),
        false,
    )
    .unwrap();
    assert_eq!(graph, before);
}

#[test]
fn an_empty_batch_deletes_every_member_unless_it_only_adds() {
    let mut graph = active();
    batch(&mut graph, json!([]), true).unwrap();
    assert_eq!(statuses(&graph), ".......");
    batch(&mut graph, json!([]), false).unwrap();
    assert_eq!(statuses(&graph), "UUUDD..");
}

#[test]
fn the_same_member_twice_in_a_batch_is_refused_and_nothing_changes() {
    let old = json!({"address": "10.0.0.21", "protocol_port": 80});
    let new = json!({"address": "10.0.0.99", "protocol_port": 80});
    for (members, twice) in [
        (json!([old, old]), "10.0.0.21:80"),
        (json!([new, new]), "10.0.0.99:80"),
        (json!([old, new, old]), "10.0.0.21:80"),
    ] {
        let mut graph = active();
        let before = graph.clone();
        assert_eq!(
            text(batch(&mut graph, members, false)),
            format!("Validation failure: Member {twice} is given more than once.")
        );
        assert_eq!(graph, before);
    }
}

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
            "Provider 'amphora' does not support a requested option: health monitor of type HTTPS",
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
            "Validation failure: loadbalancer.listeners.l7policies is not supported",
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

#[test]
fn failover_marks_every_amphora_that_is_not_on_its_way_out() {
    for status in AmphoraStatus::ALL {
        let leaving = matches!(
            status,
            AmphoraStatus::PendingDelete | AmphoraStatus::Deleted
        );
        let mut graph = active();
        let mut amphora = sample_amphora(&graph);
        amphora.status = *status;
        graph.amphorae = vec![amphora];
        request_failover(&mut graph, LATER).unwrap();
        assert_eq!(graph.amphorae[0].failover_requested, !leaving, "{status}");
    }
}

#[test]
fn failover_of_an_amphora_needs_it_there_and_its_load_balancer_active() {
    let mut graph = active();
    let amphora = sample_amphora(&graph);
    let id = amphora.id;
    let lb = graph.load_balancer.id;
    assert_eq!(
        text(request_amphora_failover(&mut graph, id, LATER)),
        format!("Amphora {id} not found.")
    );
    graph.amphorae = vec![amphora];
    graph.load_balancer.provisioning_status = Status::Error;
    assert_eq!(
        text(request_amphora_failover(&mut graph, id, LATER)),
        format!("Load Balancer {lb} is immutable and cannot be updated.")
    );
    graph.load_balancer.provisioning_status = Status::Active;
    request_amphora_failover(&mut graph, id, LATER).unwrap();
    assert!(graph.amphorae[0].failover_requested);
    assert_eq!(
        graph.load_balancer.provisioning_status,
        Status::PendingUpdate
    );
}

fn sample_amphora(graph: &Graph) -> crate::Amphora {
    crate::Amphora {
        id: AmphoraId(sample::uuid(0xa1)),
        load_balancer_id: graph.load_balancer.id,
        status: AmphoraStatus::Allocated,
        role: None,
        compute_id: None,
        lb_network_ip: None,
        vrrp_ip: None,
        ha_ip: None,
        vrrp_port_id: None,
        ha_port_id: None,
        vrrp_interface: None,
        vrrp_id: None,
        vrrp_priority: None,
        cert_expiration: None,
        cert_busy: false,
        cached_zone: None,
        image_id: None,
        compute_flavor: None,
        failover_requested: false,
        config_generation: 0,
        created_at: NOW,
        updated_at: None,
    }
}
