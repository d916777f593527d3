//! Load balancers and messages for tests.

use std::collections::BTreeMap;

use amphora_api::{HeartbeatListener, HeartbeatListenerStats, HeartbeatMessage, HeartbeatPool};
use lb_model::{
    Amphora, AmphoraId, AmphoraStatus, ClientAuthentication, Graph, LbAlgorithm, Listener,
    ListenerId, ListenerProtocol, LoadBalancer, LoadBalancerId, Member, MemberId, NetworkId,
    OperatingStatus, Pool, PoolId, PoolProtocol, PortId, ProvisioningStatus, SubnetId, Timestamp,
    Topology, Vip, VnicType,
};
use lb_store::Store;

/// So many milliseconds after the start of the test's time.
pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000).plus_millis(millis)
}

pub(super) struct Database {
    pub(super) store: Store,
    _directory: tempfile::TempDir,
}

pub(super) async fn database() -> Database {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", directory.path().join("lb.sqlite").display());
    let store = Store::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    Database {
        store,
        _directory: directory,
    }
}

/// One amphora, one listener, one pool with so many members.
pub(super) fn graph(members: usize) -> Graph {
    let id = LoadBalancerId::random();
    let pool = Pool {
        id: PoolId::random(),
        project_id: "p".into(),
        name: String::new(),
        description: String::new(),
        admin_state_up: true,
        provisioning_status: ProvisioningStatus::Active,
        operating_status: OperatingStatus::Offline,
        protocol: PoolProtocol::Tcp,
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
        created_at: at(0),
        updated_at: None,
        members: (0..members).map(|_| member()).collect(),
        health_monitor: None,
    };
    Graph {
        load_balancer: LoadBalancer {
            id,
            project_id: "p".into(),
            name: String::new(),
            description: String::new(),
            admin_state_up: true,
            provisioning_status: ProvisioningStatus::Active,
            operating_status: OperatingStatus::Offline,
            provider: "amphora".into(),
            topology: Topology::Single,
            vip: Vip {
                address: "10.0.0.5".parse().unwrap(),
                port_id: PortId::random(),
                subnet_id: SubnetId::random(),
                network_id: NetworkId::random(),
                qos_policy_id: None,
                vnic_type: VnicType::Normal,
                sg_ids: Vec::new(),
                port_is_ours: true,
            },
            additional_vips: Vec::new(),
            flavor_id: None,
            availability_zone: None,
            tags: Vec::new(),
            created_at: at(0),
            updated_at: None,
            generation: 1,
            error_reason: None,
        },
        listeners: vec![listener(Some(pool.id))],
        pools: vec![pool],
        amphorae: vec![amphora(id)],
    }
}

pub(super) fn listener(default_pool_id: Option<PoolId>) -> Listener {
    Listener {
        id: ListenerId::random(),
        project_id: "p".into(),
        name: String::new(),
        description: String::new(),
        admin_state_up: true,
        provisioning_status: ProvisioningStatus::Active,
        operating_status: OperatingStatus::Offline,
        protocol: ListenerProtocol::Tcp,
        protocol_port: 80,
        connection_limit: -1,
        default_pool_id,
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
        created_at: at(0),
        updated_at: None,
        l7policies: Vec::new(),
    }
}

pub(super) fn member() -> Member {
    Member {
        id: MemberId::random(),
        project_id: "p".into(),
        name: String::new(),
        admin_state_up: true,
        provisioning_status: ProvisioningStatus::Active,
        operating_status: OperatingStatus::Offline,
        address: "10.0.0.9".parse().unwrap(),
        protocol_port: 80,
        weight: 1,
        backup: false,
        subnet_id: None,
        monitor_address: None,
        monitor_port: None,
        vnic_type: VnicType::Normal,
        tags: Vec::new(),
        created_at: at(0),
        updated_at: None,
    }
}

pub(super) fn amphora(load_balancer_id: LoadBalancerId) -> Amphora {
    Amphora {
        id: AmphoraId::random(),
        load_balancer_id,
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
        created_at: at(0),
        updated_at: None,
    }
}

/// All is well: each listener `OPEN`, each pool `UP`, each member `UP`.
pub(super) fn healthy(graph: &Graph, seq: u64) -> HeartbeatMessage {
    HeartbeatMessage {
        id: graph.amphorae[0].id.0,
        seq,
        ver: 3,
        sent_at_ms: Some(1_000 + seq),
        generation: Some(1),
        listeners: graph
            .listeners
            .iter()
            .map(|listener| {
                (
                    listener.id.0,
                    HeartbeatListener {
                        status: "OPEN".into(),
                        stats: HeartbeatListenerStats::default(),
                    },
                )
            })
            .collect(),
        pools: graph
            .pools
            .iter()
            .map(|pool| {
                (
                    pool.id.to_string(),
                    HeartbeatPool {
                        status: "UP".into(),
                        members: pool
                            .members
                            .iter()
                            .map(|member| (member.id.0, "UP".into()))
                            .collect(),
                    },
                )
            })
            .collect(),
        totals: BTreeMap::new(),
    }
}
