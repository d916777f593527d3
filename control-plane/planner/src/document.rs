//! The document of one amphora, compiled from the graph and from what is plugged in.
//!
//! Left out: what is disabled or on its way out. What this data plane cannot serve yet is left out too, and
//! reported with a reason, so that it never disappears silently.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use amphora_api as wire;
use ipnet::IpNet;
use lb_model::{
    AmphoraId, Graph, HealthMonitor, HttpVersion, LbAlgorithm, Listener, ListenerProtocol, Member,
    MonitorType, Pool, PoolId, PoolProtocol, ProvisioningStatus, SessionPersistenceType, SpelledIp,
    SubnetId, Unserved, UnservedObject,
};

use crate::step::VIP_INTERFACE;
use crate::{PortView, Settings, SubnetFacts, WantedNetwork, World, wanted_networks};

/// A document, and what it could not carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub config: wire::AmphoraConfig,
    pub unserved: Vec<Unserved>,
}

/// Why there can be no document yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    #[error("amphora {0} has no base port")]
    NoBasePort(AmphoraId),
    #[error("subnet {0} does not exist")]
    NoSubnet(SubnetId),
}

/// The document of an amphora with every VIP in the state `vips`.
pub fn document(
    graph: &Graph,
    amphora: AmphoraId,
    world: &World,
    settings: &Settings,
    generation: u64,
    vips: &wire::VipState,
) -> Result<Document, DocumentError> {
    let lb = &graph.load_balancer;
    let (networks, mut unserved) = wanted_networks(graph, world);
    let base = world
        .base_port(amphora)
        .ok_or(DocumentError::NoBasePort(amphora))?;
    let interfaces = interfaces(amphora, base, &networks, world)?;
    let (listeners, pools) = if lb.admin_state_up {
        compile(graph, &mut unserved)
    } else {
        (Vec::new(), Vec::new())
    };
    let vips = lb
        .vip_addresses()
        .map(|address| wire::Vip {
            address,
            interface_mac: base.mac_address.clone(),
            state: vips.clone(),
        })
        .collect();
    let config = wire::AmphoraConfig {
        generation,
        amphora_id: amphora.0,
        load_balancer_id: lb.id.0,
        project_id: lb.project_id.clone(),
        heartbeat: wire::Heartbeat {
            controllers: settings.heartbeat_controllers.clone(),
            interval_ms: millis(settings.heartbeat_interval),
        },
        interfaces,
        vips,
        listeners,
        pools,
    };
    Ok(Document { config, unserved })
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn interfaces(
    amphora: AmphoraId,
    base: &PortView,
    networks: &[WantedNetwork],
    world: &World,
) -> Result<Vec<wire::Interface>, DocumentError> {
    let mut named = vec![(base, VIP_INTERFACE.to_owned())];
    let mut members: Vec<&PortView> = world
        .member_ports(amphora)
        .filter(|port| {
            networks
                .iter()
                .skip(1)
                .any(|network| network.network_id == port.network_id)
        })
        .collect();
    members.sort_by_key(|port| port.id);
    named.extend(member_names(amphora, members, world));
    named
        .into_iter()
        .map(|(port, name)| {
            let subnets = networks
                .iter()
                .find(|network| network.network_id == port.network_id)
                .map_or(&[][..], |network| &network.subnets);
            interface(port, name, subnets, world)
        })
        .collect()
}

/// Names once given stay: an interface keeps the name the agent reports, new ones get the lowest free number.
fn member_names<'a>(
    amphora: AmphoraId,
    ports: Vec<&'a PortView>,
    world: &World,
) -> Vec<(&'a PortView, String)> {
    let reported = |port: &PortView| {
        let name = world.agent(amphora)?.interfaces.get(&port.mac_address)?;
        let number: u16 = name.strip_prefix("eth")?.parse().ok()?;
        (2..10_000).contains(&number).then_some(number)
    };
    let mut taken: BTreeSet<u16> = ports.iter().filter_map(|port| reported(port)).collect();
    ports
        .into_iter()
        .map(|port| {
            let number = reported(port).unwrap_or_else(|| {
                let free = (2..).find(|number| !taken.contains(number)).unwrap_or(2);
                taken.insert(free);
                free
            });
            (port, format!("eth{number}"))
        })
        .collect()
}

fn interface(
    port: &PortView,
    name: String,
    subnets: &[SubnetId],
    world: &World,
) -> Result<wire::Interface, DocumentError> {
    let carries_vips = name == VIP_INTERFACE;
    let mut addresses = Vec::new();
    let mut gateways: Vec<IpAddr> = Vec::new();
    let mut routes: Vec<wire::Route> = Vec::new();
    for subnet_id in subnets {
        let facts = world
            .subnets
            .get(subnet_id)
            .ok_or(DocumentError::NoSubnet(*subnet_id))?;
        // An amphora that goes is not given what came after it.
        let Some(address) = address_in(port, *subnet_id) else {
            continue;
        };
        addresses.push(with_prefix(address, facts));
        if let Some(gateway) = facts.gateway
            && carries_vips
            && !gateways
                .iter()
                .any(|known| known.is_ipv4() == gateway.is_ipv4())
        {
            gateways.push(gateway);
        }
        for (destination, nexthop) in &facts.host_routes {
            let route = wire::Route {
                destination: *destination,
                nexthop: *nexthop,
            };
            if !routes.contains(&route) {
                routes.push(route);
            }
        }
    }
    Ok(wire::Interface {
        mac_address: port.mac_address.clone(),
        name,
        addresses,
        gateways,
        routes,
        mtu_bytes: world
            .mtu_bytes
            .get(&port.network_id)
            .copied()
            .unwrap_or_default(),
    })
}

/// The first address a port has in a subnet.
pub(crate) fn address_in(port: &PortView, subnet: SubnetId) -> Option<IpAddr> {
    port.fixed_ips
        .iter()
        .find(|(id, _)| *id == subnet)
        .map(|(_, address)| *address)
}

fn with_prefix(address: IpAddr, subnet: &SubnetFacts) -> IpNet {
    IpNet::new(address, subnet.cidr.prefix_len()).unwrap_or_else(|_| IpNet::from(address))
}

fn compile(graph: &Graph, unserved: &mut Vec<Unserved>) -> (Vec<wire::Listener>, Vec<wire::Pool>) {
    let mut listeners = Vec::new();
    let mut used: BTreeMap<PoolId, &Pool> = BTreeMap::new();
    for listener in &graph.listeners {
        if !listener.admin_state_up
            || listener.provisioning_status == ProvisioningStatus::PendingDelete
        {
            continue;
        }
        let pool = listener
            .default_pool_id
            .and_then(|id| graph.pool(id))
            .filter(|pool| {
                pool.admin_state_up && pool.provisioning_status != ProvisioningStatus::PendingDelete
            });
        match compile_listener(listener, pool) {
            Ok(compiled) => {
                listeners.push(compiled);
                used.extend(pool.map(|pool| (pool.id, pool)));
            }
            Err(reason) => unserved.push(Unserved {
                object: UnservedObject::Listener(listener.id),
                reason,
            }),
        }
    }
    let pools = used
        .into_values()
        .filter_map(|pool| compile_pool(pool, unserved).ok())
        .collect();
    (listeners, pools)
}

fn compile_listener(listener: &Listener, pool: Option<&Pool>) -> Result<wire::Listener, String> {
    let protocol = match listener.protocol {
        ListenerProtocol::Tcp => wire::ListenerProtocol::Tcp,
        ListenerProtocol::Udp => wire::ListenerProtocol::Udp,
        ListenerProtocol::Http => wire::ListenerProtocol::Http,
        ListenerProtocol::Https => wire::ListenerProtocol::Https,
        ListenerProtocol::TerminatedHttps
        | ListenerProtocol::Sctp
        | ListenerProtocol::Prometheus => {
            return Err(format!("protocol {} is not served yet", listener.protocol));
        }
    };
    let policies = listener.l7policies.iter().any(|policy| {
        policy.admin_state_up && policy.provisioning_status != ProvisioningStatus::PendingDelete
    });
    if policies {
        return Err("L7 policies are not served yet".to_owned());
    }
    if let Some(pool) = pool {
        compile_pool(pool, &mut Vec::new())?;
    }
    let asked = |header: &str| {
        listener.insert_headers.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case(header) && value.eq_ignore_ascii_case("true")
        })
    };
    Ok(wire::Listener {
        id: listener.id.0,
        protocol,
        protocol_port: listener.protocol_port,
        connection_limit: u32::try_from(listener.connection_limit)
            .ok()
            .filter(|limit| *limit > 0),
        default_pool: pool.map(|pool| pool.id.0),
        x_forwarded_for: asked("X-Forwarded-For"),
        x_forwarded_port: asked("X-Forwarded-Port"),
        x_forwarded_proto: asked("X-Forwarded-Proto"),
        timeout_client_data_ms: or_default(listener.timeout_client_data, 50_000),
        timeout_member_connect_ms: or_default(listener.timeout_member_connect, 5_000),
        timeout_member_data_ms: or_default(listener.timeout_member_data, 50_000),
        allowed_cidrs: listener.allowed_cidrs.clone().unwrap_or_default(),
    })
}

fn or_default(millis: u32, default: u64) -> u64 {
    match millis {
        0 => default,
        set => u64::from(set),
    }
}

fn compile_pool(pool: &Pool, unserved: &mut Vec<Unserved>) -> Result<wire::Pool, String> {
    let protocol = match pool.protocol {
        PoolProtocol::Tcp => wire::PoolProtocol::Tcp,
        PoolProtocol::Udp => wire::PoolProtocol::Udp,
        PoolProtocol::Http => wire::PoolProtocol::Http,
        PoolProtocol::Https => wire::PoolProtocol::Https,
        PoolProtocol::Proxy => wire::PoolProtocol::Proxy,
        PoolProtocol::ProxyV2 => wire::PoolProtocol::ProxyV2,
        PoolProtocol::Sctp => return Err(not_yet(pool, "protocol SCTP")),
    };
    let lb_algorithm = match pool.lb_algorithm {
        LbAlgorithm::RoundRobin => wire::LbAlgorithm::RoundRobin,
        LbAlgorithm::LeastConnections => wire::LbAlgorithm::LeastConnections,
        LbAlgorithm::SourceIp => wire::LbAlgorithm::SourceIp,
        LbAlgorithm::SourceIpPort => return Err(not_yet(pool, "algorithm SOURCE_IP_PORT")),
    };
    let session_persistence = match &pool.session_persistence {
        None => None,
        Some(persistence) => match persistence.kind {
            SessionPersistenceType::SourceIp => Some(wire::SessionPersistence::SourceIp),
            kind @ (SessionPersistenceType::HttpCookie | SessionPersistenceType::AppCookie) => {
                return Err(not_yet(pool, &format!("session persistence {kind}")));
            }
        },
    };
    if pool.tls_enabled {
        return Err(not_yet(pool, "TLS to members"));
    }
    let monitor = match &pool.health_monitor {
        Some(monitor)
            if monitor.admin_state_up
                && monitor.provisioning_status != ProvisioningStatus::PendingDelete =>
        {
            let compiled = compile_monitor(monitor);
            if compiled.is_none() {
                unserved.push(Unserved {
                    object: UnservedObject::HealthMonitor(monitor.id),
                    reason: format!("type {} is not served yet", monitor.kind),
                });
            }
            compiled
        }
        Some(_) | None => None,
    };
    Ok(wire::Pool {
        id: pool.id.0,
        protocol,
        lb_algorithm,
        session_persistence,
        monitor,
        members: pool
            .members
            .iter()
            .filter(|member| member.provisioning_status != ProvisioningStatus::PendingDelete)
            .map(compile_member)
            .collect(),
    })
}

fn not_yet(pool: &Pool, what: &str) -> String {
    format!("pool {}: {what} is not served yet", pool.id)
}

fn compile_member(member: &Member) -> wire::Member {
    wire::Member {
        id: member.id.0,
        address: member.address.ip(),
        protocol_port: member.protocol_port,
        weight: member.weight,
        backup: member.backup,
        enabled: member.admin_state_up,
        monitor_address: member.monitor_address.as_ref().map(SpelledIp::ip),
        monitor_port: member.monitor_port,
    }
}

/// `None` for a type that is not served yet.
fn compile_monitor(monitor: &HealthMonitor) -> Option<wire::Monitor> {
    let check = match monitor.kind {
        MonitorType::Tcp => wire::Check::Tcp,
        MonitorType::UdpConnect => wire::Check::UdpConnect,
        MonitorType::Ping => wire::Check::Ping,
        MonitorType::Http => {
            let http_1_1 = match monitor.http_version {
                Some(HttpVersion::V1_1) => true,
                Some(HttpVersion::V1_0) | None => false,
            };
            wire::Check::Http {
                method: monitor.http_method.clone().unwrap_or("GET".to_owned()),
                path: monitor.url_path.clone().unwrap_or("/".to_owned()),
                host: monitor.domain_name.clone().filter(|_| http_1_1),
                http_1_1,
                expected: monitor
                    .expected_codes
                    .as_ref()
                    .map_or(vec![(200, 200)], |codes| codes.ranges().to_vec()),
            }
        }
        MonitorType::Https | MonitorType::TlsHello | MonitorType::Sctp => return None,
    };
    Some(wire::Monitor {
        id: monitor.id.0,
        check,
        delay_ms: u64::from(monitor.delay) * 1000,
        timeout_ms: u64::from(monitor.timeout) * 1000,
        rise: u32::from(monitor.max_retries).max(1),
        fall: u32::from(monitor.max_retries_down).max(1),
    })
}
