//! The content of documents.

mod support;

use amphora_api as wire;
use lb_model::{
    Graph, HttpVersion, LbAlgorithm, ListenerProtocol, MonitorType, PoolProtocol,
    ProvisioningStatus, SessionPersistence, SessionPersistenceType, sample,
};

use support::{OTHER_SUBNET, SECOND_SUBNET, Sim};

fn http() -> Graph {
    let mut graph = sample::graph(1);
    let mut pool = sample::pool(1, PoolProtocol::Http);
    pool.members = vec![
        sample::member(1, None),
        sample::member(2, Some(OTHER_SUBNET)),
        sample::member(3, Some(SECOND_SUBNET)),
    ];
    pool.health_monitor = Some(sample::health_monitor(1, MonitorType::Http));
    graph.listeners = vec![sample::listener(
        1,
        ListenerProtocol::Http,
        80,
        Some(pool.id),
    )];
    graph.pools = vec![pool];
    graph
}

/// The document in force after the graph was changed.
fn compiled(change: impl FnOnce(&mut Graph)) -> wire::AmphoraConfig {
    let mut graph = http();
    change(&mut graph);
    let mut sim = Sim::new(graph);
    sim.converge();
    let amphora = sim.only_amphora();
    let config = sim.servers[&amphora].config.clone();
    config.expect("the amphora has a document")
}

#[test]
fn the_vip_interface_has_an_address_in_each_subnet_of_its_network_and_the_only_gateway() {
    let document = compiled(|_| {});
    let names: Vec<_> = document
        .interfaces
        .iter()
        .map(|interface| interface.name.as_str())
        .collect();
    assert_eq!(names, ["eth1", "eth2"]);
    let vip = &document.interfaces[0];
    assert_eq!(vip.addresses.len(), 2);
    assert_eq!(vip.addresses[0].prefix_len(), 24);
    assert_eq!(
        vip.gateways,
        ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]
    );
    assert_eq!(vip.mtu_bytes, 1450);
    assert!(document.interfaces[1].gateways.is_empty());
    assert_eq!(document.vips[0].interface_mac, vip.mac_address);
}

#[test]
fn a_disabled_load_balancer_has_no_listeners_and_keeps_its_vip() {
    let document = compiled(|graph| graph.load_balancer.admin_state_up = false);
    assert!(document.listeners.is_empty() && document.pools.is_empty());
    assert_eq!(document.vips.len(), 1);
    assert_eq!(document.interfaces.len(), 2);
}

#[test]
fn what_is_disabled_or_goes_is_left_out() {
    type Change = fn(&mut Graph);
    let cases: [(&str, Change, [usize; 3]); 6] = [
        ("as it is", |_| {}, [1, 1, 3]),
        (
            "listener disabled",
            |graph| graph.listeners[0].admin_state_up = false,
            [0, 0, 0],
        ),
        (
            "pool disabled",
            |graph| graph.pools[0].admin_state_up = false,
            [1, 0, 0],
        ),
        (
            "member disabled",
            |graph| graph.pools[0].members[0].admin_state_up = false,
            [1, 1, 3],
        ),
        (
            "pool goes",
            |graph| graph.pools[0].provisioning_status = ProvisioningStatus::PendingDelete,
            [1, 0, 0],
        ),
        (
            "member goes",
            |graph| {
                graph.pools[0].members[0].provisioning_status = ProvisioningStatus::PendingDelete;
            },
            [1, 1, 2],
        ),
    ];
    for (name, change, expected) in cases {
        let document = compiled(change);
        let members = document.pools.iter().map(|pool| pool.members.len()).sum();
        assert_eq!(
            [document.listeners.len(), document.pools.len(), members],
            expected,
            "{name}"
        );
        let pool = document
            .listeners
            .first()
            .and_then(|listener| listener.default_pool);
        assert_eq!(pool.is_some(), expected[1] == 1, "{name}");
    }
    let document = compiled(|graph| graph.pools[0].members[0].admin_state_up = false);
    assert!(!document.pools[0].members[0].enabled);
}

#[test]
fn zero_means_the_default() {
    let document = compiled(|graph| {
        let listener = &mut graph.listeners[0];
        listener.connection_limit = 0;
        listener.timeout_client_data = 0;
        listener.timeout_member_connect = 0;
        listener.timeout_member_data = 0;
        listener
            .insert_headers
            .insert("x-forwarded-for".to_owned(), "True".to_owned());
        listener
            .insert_headers
            .insert("X-Forwarded-Port".to_owned(), "false".to_owned());
    });
    let listener = &document.listeners[0];
    assert_eq!(listener.connection_limit, None);
    assert_eq!(
        [
            listener.timeout_client_data_ms,
            listener.timeout_member_connect_ms,
            listener.timeout_member_data_ms
        ],
        [50_000, 5_000, 50_000]
    );
    assert!(listener.x_forwarded_for);
    assert!(!listener.x_forwarded_port && !listener.x_forwarded_proto);
    let limited = compiled(|graph| graph.listeners[0].connection_limit = 7);
    assert_eq!(limited.listeners[0].connection_limit, Some(7));
}

#[test]
fn an_http_monitor_names_a_host_only_with_http_1_1() {
    for (version, expected) in [
        (None, None),
        (Some(HttpVersion::V1_0), None),
        (Some(HttpVersion::V1_1), Some("www.example.org")),
    ] {
        let document = compiled(|graph| {
            let monitor = graph.pools[0].health_monitor.as_mut().unwrap();
            monitor.http_version = version;
            monitor.domain_name = Some("www.example.org".to_owned());
            monitor.expected_codes = Some("200-204".parse().unwrap());
        });
        let monitor = document.pools[0].monitor.as_ref().unwrap();
        assert_eq!((monitor.delay_ms, monitor.timeout_ms), (5000, 3000));
        assert_eq!((monitor.rise, monitor.fall), (2, 3));
        let wire::Check::Http {
            method,
            path,
            host,
            http_1_1,
            expected: codes,
        } = &monitor.check
        else {
            panic!("{:?}", monitor.check);
        };
        assert_eq!((method.as_str(), path.as_str()), ("GET", "/"));
        assert_eq!(host.as_deref(), expected);
        assert_eq!(*http_1_1, version == Some(HttpVersion::V1_1));
        assert_eq!(codes, &[(200, 204)]);
    }
    let disabled = compiled(|graph| {
        graph.pools[0]
            .health_monitor
            .as_mut()
            .unwrap()
            .admin_state_up = false;
    });
    assert_eq!(disabled.pools[0].monitor, None);
}

#[test]
fn a_pool_that_cannot_be_served_takes_its_listener_out_and_not_its_neighbour() {
    type Change = fn(&mut lb_model::Pool);
    let cases: [(&str, Change); 4] = [
        ("SCTP", |pool| pool.protocol = PoolProtocol::Sctp),
        ("SOURCE_IP_PORT", |pool| {
            pool.lb_algorithm = LbAlgorithm::SourceIpPort;
        }),
        ("APP_COOKIE", |pool| {
            pool.session_persistence = Some(SessionPersistence {
                kind: SessionPersistenceType::AppCookie,
                cookie_name: Some("sid".to_owned()),
                persistence_timeout: None,
                persistence_granularity: None,
            });
        }),
        ("TLS", |pool| pool.tls_enabled = true),
    ];
    for (word, change) in cases {
        let mut graph = http();
        change(&mut graph.pools[0]);
        graph
            .listeners
            .push(sample::listener(2, ListenerProtocol::Tcp, 81, None));
        let mut sim = Sim::new(graph);
        sim.converge();
        let plan = sim.plan();
        assert_eq!(plan.unserved.len(), 1, "{word}");
        assert!(
            plan.unserved[0].reason.contains(word),
            "{:?}",
            plan.unserved
        );
        let document = sim.servers[&sim.only_amphora()].config.as_ref().unwrap();
        assert_eq!(document.listeners.len(), 1, "{word}");
        assert!(document.pools.is_empty(), "{word}");
    }
}

#[test]
fn interfaces_keep_their_names_when_an_earlier_one_goes() {
    let mut graph = http();
    graph.pools[0]
        .members
        .push(sample::member(4, Some(support::THIRD_SUBNET)));
    let mut sim = Sim::new(graph);
    sim.finish();
    let amphora = sim.only_amphora();
    let names = |sim: &Sim| -> Vec<String> {
        let config = sim.servers[&amphora].config.as_ref().unwrap();
        config
            .interfaces
            .iter()
            .map(|interface| interface.name.clone())
            .collect()
    };
    assert_eq!(names(&sim), ["eth1", "eth2", "eth3"]);
    let second = sim.servers[&amphora].config.as_ref().unwrap().interfaces[1].clone();
    let gone = sim
        .ports
        .values()
        .find(|port| port.mac_address == second.mac_address)
        .unwrap()
        .network_id;
    sim.set_pending_update();
    for member in &mut sim.graph.pools[0].members {
        let in_gone = match member.subnet_id {
            Some(OTHER_SUBNET) => gone == support::OTHER_NETWORK,
            Some(support::THIRD_SUBNET) => gone == support::THIRD_NETWORK,
            _ => false,
        };
        if in_gone {
            member.provisioning_status = ProvisioningStatus::PendingDelete;
        }
    }
    sim.finish();
    assert_eq!(names(&sim), ["eth1", "eth3"]);
}
