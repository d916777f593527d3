//! From a document and the members' states to what each engine is told. Pure.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use amphora_api::{
    AmphoraConfig, Check, Interface, LbAlgorithm, Listener, ListenerInfo, ListenerPath,
    ListenerProtocol, Member, Monitor, Pool, VipState, parse_mac,
};
use amphora_health::{ExpectedCodes, HttpVersion, State, Status, Target, TargetKey};
use ipnet::IpNet;
use uuid::Uuid;

use crate::heartbeat::DEFAULT_CONNECTION_LIMIT;
use crate::observed::{Link, Place};
use crate::path::{Surroundings, listener_path};

/// Octavia's defaults, for a listener that says 0.
const DEFAULT_DATA_TIMEOUT: Duration = Duration::from_secs(50);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Compiled {
    pub fast: xdp_lb::Config,
    pub proxy: amphora_proxy::Snapshot,
    /// Clients that may connect, by listening address of the proxy; all may where nothing is said.
    pub restrictions: HashMap<SocketAddr, Vec<IpNet>>,
    pub listeners: Vec<ListenerInfo>,
    /// Listeners no engine can serve, with the reason.
    pub failed: BTreeMap<Uuid, String>,
}

/// What the engines are told for this document, these links and these states.
pub fn compile(
    document: &AmphoraConfig,
    links: &[Link],
    states: &BTreeMap<TargetKey, Status>,
    fast_path_down: Option<&str>,
) -> Compiled {
    let vips: Vec<_> = document.vips.iter().map(|vip| vip.address).collect();
    // Two amphorae know the VIPs, and the other one has them.
    let draining = !document.vips.is_empty()
        && document
            .vips
            .iter()
            .all(|vip| matches!(vip.state, VipState::Passive));
    let around = Surroundings {
        vips: &vips,
        fast_path_down,
    };
    let mut compiled = Compiled {
        fast: xdp_lb::Config {
            interfaces: interfaces(document, links),
            services: Vec::new(),
        },
        proxy: amphora_proxy::Snapshot::default(),
        restrictions: HashMap::new(),
        listeners: Vec::new(),
        failed: BTreeMap::new(),
    };
    for listener in &document.listeners {
        let pool = listener
            .default_pool
            .and_then(|id| document.pools.iter().find(|pool| pool.id == id));
        let (path, reason) = match listener_path(listener, pool, around) {
            Ok(choice) => choice,
            Err(reason) => {
                compiled.failed.insert(listener.id, reason);
                continue;
            }
        };
        match (path, pool) {
            (ListenerPath::Fast, None) => {}
            (ListenerPath::Fast, Some(pool)) => compiled
                .fast
                .services
                .push(service(listener, pool, &vips, states)),
            (ListenerPath::Proxy, pool) => {
                let served = proxy_listener(listener, &vips, draining);
                if !listener.allowed_cidrs.is_empty() {
                    for bind in &served.binds {
                        compiled
                            .restrictions
                            .insert(*bind, listener.allowed_cidrs.clone());
                    }
                }
                compiled.proxy.listeners.push(served);
                if let Some(pool) = pool
                    && !compiled.proxy.pools.iter().any(|had| had.id == pool.id)
                {
                    compiled.proxy.pools.push(proxy_pool(pool, states));
                }
            }
        }
        compiled.listeners.push(ListenerInfo {
            id: listener.id,
            path,
            reason,
        });
    }
    compiled
}

/// Every enabled member of a monitored pool.
pub fn targets(document: &AmphoraConfig) -> Vec<Target> {
    let mut targets = Vec::new();
    for pool in &document.pools {
        let Some(monitor) = &pool.monitor else {
            continue;
        };
        for member in pool.members.iter().filter(|member| member.enabled) {
            targets.push(target(pool.id, member, monitor));
        }
    }
    targets
}

fn target(pool: Uuid, member: &Member, monitor: &Monitor) -> Target {
    Target {
        key: TargetKey {
            pool,
            member: member.id,
        },
        address: member.monitor_target(),
        check: match &monitor.check {
            Check::Tcp => amphora_health::Check::Tcp,
            Check::UdpConnect => amphora_health::Check::UdpConnect,
            Check::Ping => amphora_health::Check::Ping,
            Check::Http {
                method,
                path,
                host,
                http_1_1,
                expected,
            } => amphora_health::Check::Http {
                method: method.clone(),
                path: path.clone(),
                version: if *http_1_1 {
                    HttpVersion::Http11
                } else {
                    HttpVersion::Http10
                },
                host: host.clone(),
                expected: expected_codes(expected),
            },
        },
        // A delay of 0 would be a busy loop.
        delay: Duration::from_millis(monitor.delay_ms.max(10)),
        timeout: Duration::from_millis(monitor.timeout_ms.max(10)),
        rise: monitor.rise,
        fall: monitor.fall,
    }
}

fn expected_codes(ranges: &[(u16, u16)]) -> ExpectedCodes {
    match ranges {
        [(first, last)] => ExpectedCodes::Range {
            first: *first,
            last: *last,
        },
        ranges => ExpectedCodes::List(
            ranges
                .iter()
                // Statuses have three digits: no range makes the list long.
                .flat_map(|(first, last)| *first.max(&100)..=*last.min(&999))
                .collect(),
        ),
    }
}

fn interfaces(document: &AmphoraConfig, links: &[Link]) -> Vec<xdp_lb::Interface> {
    let mut interfaces = Vec::new();
    for interface in &document.interfaces {
        let Some(mac) = parse_mac(&interface.mac_address) else {
            continue;
        };
        let Some(link) = links
            .iter()
            .find(|link| link.place == Place::Tenant && link.mac == mac)
        else {
            continue;
        };
        interfaces.push(xdp_lb::Interface {
            ifindex: link.index,
            name: link.name.clone(),
            mac,
            mtu: link.mtu_bytes,
            mode: xdp_lb::AttachMode::Auto,
            snat_v4: interface
                .addresses
                .iter()
                .find_map(|address| match address.addr() {
                    IpAddr::V4(address) => Some(address),
                    IpAddr::V6(_) => None,
                }),
            snat_v6: interface
                .addresses
                .iter()
                .find_map(|address| match address.addr() {
                    IpAddr::V6(address) => Some(address),
                    IpAddr::V4(_) => None,
                }),
            handover_mac: handover_mac(document, interface),
        });
    }
    interfaces
}

fn handover_mac(document: &AmphoraConfig, interface: &Interface) -> Option<[u8; 6]> {
    document
        .vips
        .iter()
        .filter(|vip| vip.interface_mac == interface.mac_address)
        .find_map(|vip| match &vip.state {
            VipState::Active { handover_mac } => parse_mac(handover_mac.as_deref()?),
            VipState::Passive => None,
        })
}

fn service(
    listener: &Listener,
    pool: &Pool,
    vips: &[IpAddr],
    states: &BTreeMap<TargetKey, Status>,
) -> xdp_lb::Service {
    let idle = timeout(listener.timeout_client_data_ms, DEFAULT_DATA_TIMEOUT).max(timeout(
        listener.timeout_member_data_ms,
        DEFAULT_DATA_TIMEOUT,
    ));
    xdp_lb::Service {
        id: listener.id,
        vips: vips.to_vec(),
        port: listener.protocol_port,
        protocol: match listener.protocol {
            ListenerProtocol::Udp => xdp_lb::Protocol::Udp,
            ListenerProtocol::Tcp | ListenerProtocol::Https | ListenerProtocol::Http => {
                xdp_lb::Protocol::Tcp
            }
        },
        algorithm: match algorithm(pool) {
            LbAlgorithm::RoundRobin => xdp_lb::Algorithm::RoundRobin,
            LbAlgorithm::LeastConnections => xdp_lb::Algorithm::LeastConnections,
            LbAlgorithm::SourceIp => xdp_lb::Algorithm::SourceIp,
        },
        idle_timeout: idle,
        connection_limit: listener.connection_limit,
        allowed: listener.allowed_cidrs.clone(),
        members: pool
            .members
            .iter()
            .filter(|member| member.enabled)
            .map(|member| xdp_lb::Member {
                id: member.id,
                address: member.address,
                port: member.protocol_port,
                weight: member.weight,
                backup: member.backup,
                up: is_up(pool.id, member, states),
            })
            .collect(),
    }
}

fn proxy_listener(listener: &Listener, vips: &[IpAddr], draining: bool) -> amphora_proxy::Listener {
    amphora_proxy::Listener {
        id: listener.id,
        binds: vips
            .iter()
            .map(|vip| SocketAddr::new(*vip, listener.protocol_port))
            .collect(),
        protocol: match listener.protocol {
            ListenerProtocol::Http => amphora_proxy::Protocol::Http,
            ListenerProtocol::Tcp | ListenerProtocol::Https | ListenerProtocol::Udp => {
                amphora_proxy::Protocol::Tcp
            }
        },
        default_pool: listener.default_pool,
        connection_limit: listener.connection_limit.or(Some(DEFAULT_CONNECTION_LIMIT)),
        insert_headers: amphora_proxy::InsertHeaders {
            x_forwarded_for: listener.x_forwarded_for,
            x_forwarded_port: listener.x_forwarded_port,
            x_forwarded_proto: listener.x_forwarded_proto,
        },
        timeout_client_data: timeout(listener.timeout_client_data_ms, DEFAULT_DATA_TIMEOUT),
        timeout_member_connect: timeout(
            listener.timeout_member_connect_ms,
            DEFAULT_CONNECT_TIMEOUT,
        ),
        timeout_member_data: timeout(listener.timeout_member_data_ms, DEFAULT_DATA_TIMEOUT),
        draining,
    }
}

fn proxy_pool(pool: &Pool, states: &BTreeMap<TargetKey, Status>) -> amphora_proxy::Pool {
    amphora_proxy::Pool {
        id: pool.id,
        algorithm: match algorithm(pool) {
            LbAlgorithm::RoundRobin => amphora_proxy::Algorithm::RoundRobin,
            LbAlgorithm::LeastConnections => amphora_proxy::Algorithm::LeastConnections,
            LbAlgorithm::SourceIp => amphora_proxy::Algorithm::SourceIp,
        },
        members: pool
            .members
            .iter()
            .filter(|member| member.enabled)
            .map(|member| amphora_proxy::Member {
                id: member.id,
                address: SocketAddr::new(member.address, member.protocol_port),
                weight: member.weight,
                backup: member.backup,
                up: is_up(pool.id, member, states),
            })
            .collect(),
    }
}

/// Source persistence is what a hash of the source gives.
fn algorithm(pool: &Pool) -> LbAlgorithm {
    match pool.session_persistence {
        Some(amphora_api::SessionPersistence::SourceIp) => LbAlgorithm::SourceIp,
        None => pool.lb_algorithm,
    }
}

/// A member without a monitor, or whose first check has not ended, is up.
fn is_up(pool: Uuid, member: &Member, states: &BTreeMap<TargetKey, Status>) -> bool {
    let key = TargetKey {
        pool,
        member: member.id,
    };
    states
        .get(&key)
        .is_none_or(|status| status.state == State::Up)
}

fn timeout(ms: u64, default: Duration) -> Duration {
    match ms {
        0 => default,
        ms => Duration::from_millis(ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn links() -> Vec<Link> {
        vec![Link {
            place: Place::Tenant,
            index: 7,
            name: "eth1".into(),
            mac: [0xfa, 0x16, 0x3e, 0, 0, 1],
            mtu_bytes: 1450,
            up: true,
            addresses: vec![],
        }]
    }

    fn compiled(document: &AmphoraConfig, states: &BTreeMap<TargetKey, Status>) -> Compiled {
        compile(document, &links(), states, None)
    }

    fn down(pool: Uuid, n: u8) -> BTreeMap<TargetKey, Status> {
        let key = TargetKey {
            pool,
            member: samples::member_id(n),
        };
        let status = Status {
            state: State::Down,
            against: 0,
            needed: 2,
            checked: true,
        };
        BTreeMap::from([(key, status)])
    }

    #[test]
    fn each_listener_goes_to_one_engine() {
        let compiled = compiled(&samples::document(1), &BTreeMap::new());
        let services: Vec<_> = compiled.fast.services.iter().map(|s| s.id).collect();
        assert_eq!(services, [samples::TCP_LISTENER, samples::UDP_LISTENER]);
        assert_eq!(compiled.proxy.listeners.len(), 1);
        assert_eq!(
            compiled.proxy.listeners[0].binds,
            ["10.0.0.100:80".parse().unwrap()]
        );
        assert_eq!(compiled.proxy.pools.len(), 1);
        assert!(compiled.failed.is_empty());
        let interface = &compiled.fast.interfaces[0];
        assert_eq!((interface.ifindex, interface.mtu), (7, 1450));
        assert_eq!(interface.snat_v4, Some("10.0.0.5".parse().unwrap()));
        assert_eq!(interface.snat_v6, None);
    }

    #[test]
    fn a_member_that_is_down_is_told_to_both_engines() {
        let document = samples::document(1);
        let fast = compiled(&document, &down(samples::TCP_POOL, 2));
        let up: Vec<_> = fast.fast.services[0].members.iter().map(|m| m.up).collect();
        assert_eq!(up, [true, false]);
        let proxy = compiled(&document, &down(samples::HTTP_POOL, 5));
        let up: Vec<_> = proxy.proxy.pools[0].members.iter().map(|m| m.up).collect();
        assert_eq!(up, [false, true]);
    }

    #[test]
    fn disabled_members_are_neither_used_nor_checked() {
        let mut document = samples::document(1);
        document.pools[0].monitor = Some(samples::monitor());
        document.pools[0].members[0].enabled = false;
        let compiled = compiled(&document, &BTreeMap::new());
        assert_eq!(compiled.fast.services[0].members.len(), 1);
        let targets = targets(&document);
        assert_eq!(targets.len(), 1);
        assert_eq!(targets[0].key.member, samples::member_id(2));
        assert_eq!(targets[0].address, "10.0.0.22:8080".parse().unwrap());
    }

    #[test]
    fn passive_vips_drain_the_proxy_and_carry_no_handover() {
        let mut document = samples::document(1);
        document.vips[0].state = VipState::Active {
            handover_mac: Some("fa:16:3e:00:00:09".into()),
        };
        let active = compiled(&document, &BTreeMap::new());
        assert!(!active.proxy.listeners[0].draining);
        assert_eq!(
            active.fast.interfaces[0].handover_mac,
            Some([0xfa, 0x16, 0x3e, 0, 0, 9])
        );
        document.vips[0].state = VipState::Passive;
        let passive = compiled(&document, &BTreeMap::new());
        assert!(passive.proxy.listeners[0].draining);
        assert_eq!(passive.fast.interfaces[0].handover_mac, None);
        assert_eq!(passive.fast.services.len(), 2);
    }

    #[test]
    fn without_a_fast_path_streams_are_proxied_and_datagrams_refused() {
        let compiled = compile(
            &samples::document(1),
            &links(),
            &BTreeMap::new(),
            Some("no bpffs"),
        );
        assert!(compiled.fast.services.is_empty());
        assert_eq!(compiled.proxy.listeners.len(), 2);
        assert_eq!(
            compiled.proxy.listeners[0].protocol,
            amphora_proxy::Protocol::Tcp
        );
        assert!(compiled.failed[&samples::UDP_LISTENER].contains("no bpffs"));
    }

    #[test]
    fn a_listener_without_pool_reaches_no_engine_unless_it_is_http() {
        let mut document = samples::document(1);
        for listener in &mut document.listeners {
            listener.default_pool = None;
        }
        document.pools.clear();
        let compiled = compiled(&document, &BTreeMap::new());
        assert!(compiled.fast.services.is_empty());
        assert_eq!(compiled.proxy.listeners.len(), 1);
        assert_eq!(compiled.listeners.len(), 3);
        assert!(compiled.listeners[0].reason.contains("RST"));
    }

    #[test]
    fn allowed_cidrs_reach_the_engine_of_each_listener() {
        let mut document = samples::document(1);
        let networks: Vec<IpNet> = vec!["192.0.2.0/24".parse().unwrap()];
        for listener in &mut document.listeners {
            listener.allowed_cidrs = networks.clone();
        }
        let compiled = compiled(&document, &BTreeMap::new());
        assert_eq!(compiled.fast.services.len(), 2);
        for service in &compiled.fast.services {
            assert_eq!(service.allowed, networks);
        }
        let binds = &compiled.proxy.listeners[0].binds;
        assert_eq!(
            compiled.restrictions,
            binds.iter().map(|bind| (*bind, networks.clone())).collect()
        );
    }

    #[test]
    fn zero_timeouts_are_octavias_defaults() {
        let mut document = samples::document(1);
        for listener in &mut document.listeners {
            listener.timeout_client_data_ms = 0;
            listener.timeout_member_data_ms = 60_000;
            listener.timeout_member_connect_ms = 0;
        }
        let compiled = compiled(&document, &BTreeMap::new());
        assert_eq!(
            compiled.fast.services[0].idle_timeout,
            Duration::from_secs(60)
        );
        let listener = &compiled.proxy.listeners[0];
        assert_eq!(listener.timeout_client_data, Duration::from_secs(50));
        assert_eq!(listener.timeout_member_connect, Duration::from_secs(5));
    }

    #[test]
    fn expected_codes_keep_their_meaning() {
        assert!(expected_codes(&[(200, 299)]).contains(204));
        let several = expected_codes(&[(200, 200), (300, 302)]);
        for (code, wanted) in [(200, true), (201, false), (301, true), (303, false)] {
            assert_eq!(several.contains(code), wanted, "{code}");
        }
        let wide = expected_codes(&[(0, u16::MAX), (7, 3)]);
        assert!(wide.contains(999) && !wide.contains(1000));
    }
}
