//! Well-formed resources for tests, with fixed ids: change what a test is about and keep the rest.
//!
//! Compiled for this crate's own tests and, behind the feature `sample`, for those of others; never in a product.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use uuid::Uuid;

use crate::{
    Amphora, AmphoraId, AmphoraRole, AmphoraStatus, ClientAuthentication, Graph, HealthMonitor,
    HealthMonitorId, L7Policy, L7PolicyAction, L7PolicyId, L7Rule, L7RuleCompareType, L7RuleId,
    L7RuleType, LbAlgorithm, Listener, ListenerId, ListenerProtocol, LoadBalancer, LoadBalancerId,
    Member, MemberId, MonitorType, NetworkId, OperatingStatus, Pool, PoolId, PoolProtocol, PortId,
    ProvisioningStatus, SubnetId, Timestamp, Topology, Vip, VnicType,
};

/// A readable id: the last digits are `number`.
pub const fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(0xaaaa_aaaa_0000_4000_8000_0000_0000_0000 | number)
}

pub const NETWORK: NetworkId = NetworkId(uuid(0xe01));
pub const SUBNET: SubnetId = SubnetId(uuid(0x501));
pub const NOW: Timestamp = Timestamp::from_micros(1_769_784_558_000_000);
pub const PROJECT: &str = "8a2ce9b1d4d04e6b8f1f5d2f6f0d9c11";

/// A load balancer that was just asked for, without children or amphorae; VIP 10.0.0.10.
pub fn load_balancer(number: u128) -> LoadBalancer {
    LoadBalancer {
        id: LoadBalancerId(uuid(0x1b00 + number)),
        project_id: PROJECT.to_owned(),
        name: format!("lb{number}"),
        description: String::new(),
        admin_state_up: true,
        provisioning_status: ProvisioningStatus::PendingCreate,
        operating_status: OperatingStatus::Offline,
        provider: "amphora".to_owned(),
        topology: Topology::Single,
        vip: Vip {
            address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 10)),
            port_id: PortId(uuid(0x9000 + number)),
            subnet_id: SUBNET,
            network_id: NETWORK,
            qos_policy_id: None,
            vnic_type: VnicType::Normal,
            sg_ids: Vec::new(),
            port_is_ours: true,
        },
        additional_vips: Vec::new(),
        flavor_id: None,
        availability_zone: None,
        tags: Vec::new(),
        created_at: NOW,
        updated_at: None,
        generation: 1,
        error_reason: None,
    }
}

/// A load balancer alone.
pub fn graph(number: u128) -> Graph {
    Graph {
        load_balancer: load_balancer(number),
        listeners: Vec::new(),
        pools: Vec::new(),
        amphorae: Vec::new(),
    }
}

pub fn listener(
    number: u128,
    protocol: ListenerProtocol,
    port: u16,
    pool: Option<PoolId>,
) -> Listener {
    Listener {
        id: ListenerId(uuid(0x1100 + number)),
        project_id: PROJECT.to_owned(),
        name: format!("listener{number}"),
        description: String::new(),
        admin_state_up: true,
        provisioning_status: ProvisioningStatus::PendingCreate,
        operating_status: OperatingStatus::Offline,
        protocol,
        protocol_port: port,
        connection_limit: -1,
        default_pool_id: pool,
        default_tls_container_ref: None,
        sni_container_refs: Vec::new(),
        insert_headers: BTreeMap::new(),
        timeout_client_data: 50_000,
        timeout_member_connect: 5_000,
        timeout_member_data: 50_000,
        timeout_tcp_inspect: 0,
        client_ca_tls_container_ref: None,
        client_authentication: ClientAuthentication::None,
        client_crl_container_ref: None,
        allowed_cidrs: None,
        tls_ciphers: None,
        tls_versions: None,
        alpn_protocols: None,
        hsts_max_age: None,
        hsts_include_subdomains: false,
        hsts_preload: false,
        tags: Vec::new(),
        created_at: NOW,
        updated_at: None,
        l7policies: Vec::new(),
    }
}

pub fn pool(number: u128, protocol: PoolProtocol) -> Pool {
    Pool {
        id: PoolId(uuid(0x2200 + number)),
        project_id: PROJECT.to_owned(),
        name: format!("pool{number}"),
        description: String::new(),
        admin_state_up: true,
        provisioning_status: ProvisioningStatus::PendingCreate,
        operating_status: OperatingStatus::Offline,
        protocol,
        lb_algorithm: LbAlgorithm::RoundRobin,
        session_persistence: None,
        tls_container_ref: None,
        ca_tls_container_ref: None,
        crl_container_ref: None,
        tls_enabled: false,
        tls_ciphers: None,
        tls_versions: None,
        alpn_protocols: None,
        tags: Vec::new(),
        created_at: NOW,
        updated_at: None,
        members: Vec::new(),
        health_monitor: None,
    }
}

/// A member at 10.0.1.`number`, port 80.
pub fn member(number: u8, subnet: Option<SubnetId>) -> Member {
    Member {
        id: MemberId(uuid(0x3300 + u128::from(number))),
        project_id: PROJECT.to_owned(),
        name: format!("member{number}"),
        admin_state_up: true,
        provisioning_status: ProvisioningStatus::PendingCreate,
        operating_status: OperatingStatus::NoMonitor,
        address: IpAddr::V4(Ipv4Addr::new(10, 0, 1, number)).into(),
        protocol_port: 80,
        weight: 1,
        backup: false,
        subnet_id: subnet,
        monitor_address: None,
        monitor_port: None,
        vnic_type: VnicType::Normal,
        tags: Vec::new(),
        created_at: NOW,
        updated_at: None,
    }
}

pub fn health_monitor(number: u128, kind: MonitorType) -> HealthMonitor {
    HealthMonitor {
        id: HealthMonitorId(uuid(0x4400 + number)),
        project_id: PROJECT.to_owned(),
        name: format!("monitor{number}"),
        admin_state_up: true,
        provisioning_status: ProvisioningStatus::PendingCreate,
        operating_status: OperatingStatus::Offline,
        kind,
        delay: 5,
        timeout: 3,
        max_retries: 2,
        max_retries_down: 3,
        http_method: None,
        url_path: None,
        expected_codes: None,
        http_version: None,
        domain_name: None,
        tags: Vec::new(),
        created_at: NOW,
        updated_at: None,
    }
}

/// A policy without rules, at position 1; nothing to redirect to.
pub fn l7policy(number: u128, action: L7PolicyAction) -> L7Policy {
    L7Policy {
        id: L7PolicyId(uuid(0x5500 + number)),
        project_id: PROJECT.to_owned(),
        name: format!("policy{number}"),
        description: String::new(),
        admin_state_up: true,
        provisioning_status: ProvisioningStatus::PendingCreate,
        operating_status: OperatingStatus::Offline,
        action,
        redirect_pool_id: None,
        redirect_url: None,
        redirect_prefix: None,
        redirect_http_code: None,
        position: 1,
        tags: Vec::new(),
        created_at: NOW,
        updated_at: None,
        rules: Vec::new(),
    }
}

/// Paths that start with `/number`.
pub fn l7rule(number: u128) -> L7Rule {
    L7Rule {
        id: L7RuleId(uuid(0x6600 + number)),
        project_id: PROJECT.to_owned(),
        admin_state_up: true,
        provisioning_status: ProvisioningStatus::PendingCreate,
        operating_status: OperatingStatus::Offline,
        kind: L7RuleType::Path,
        compare_type: L7RuleCompareType::StartsWith,
        key: None,
        value: format!("/{number}"),
        invert: false,
        tags: Vec::new(),
        created_at: NOW,
        updated_at: None,
    }
}

/// The only amphora of a load balancer, in service; nothing is known of its server or ports.
pub fn amphora(load_balancer: LoadBalancerId) -> Amphora {
    Amphora {
        id: AmphoraId(uuid(0xa000)),
        load_balancer_id: load_balancer,
        status: AmphoraStatus::Allocated,
        role: Some(AmphoraRole::Standalone),
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

/// Writes one provisioning status to everything but the amphorae.
pub fn set_status(graph: &mut Graph, status: ProvisioningStatus) {
    graph.load_balancer.provisioning_status = status;
    for listener in &mut graph.listeners {
        listener.provisioning_status = status;
        for policy in &mut listener.l7policies {
            policy.provisioning_status = status;
            for rule in &mut policy.rules {
                rule.provisioning_status = status;
            }
        }
    }
    for pool in &mut graph.pools {
        pool.provisioning_status = status;
        for member in &mut pool.members {
            member.provisioning_status = status;
        }
        if let Some(monitor) = &mut pool.health_monitor {
            monitor.provisioning_status = status;
        }
    }
}
