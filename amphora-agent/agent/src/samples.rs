//! Documents for tests.

use std::net::IpAddr;

use amphora_api::{
    AmphoraConfig, Check, Heartbeat, Interface, LbAlgorithm, Listener, ListenerProtocol, Member,
    Monitor, Pool, PoolProtocol, Vip, VipState,
};
use uuid::Uuid;

pub(crate) const AMPHORA: Uuid = Uuid::from_u128(0xa);
pub(crate) const TCP_LISTENER: Uuid = Uuid::from_u128(0x11);
pub(crate) const UDP_LISTENER: Uuid = Uuid::from_u128(0x12);
pub(crate) const HTTP_LISTENER: Uuid = Uuid::from_u128(0x13);
pub(crate) const TCP_POOL: Uuid = Uuid::from_u128(0x21);
pub(crate) const UDP_POOL: Uuid = Uuid::from_u128(0x22);
pub(crate) const HTTP_POOL: Uuid = Uuid::from_u128(0x23);

pub(crate) fn document(generation: u64) -> AmphoraConfig {
    AmphoraConfig {
        generation,
        amphora_id: AMPHORA,
        load_balancer_id: Uuid::from_u128(0xb),
        project_id: "p".into(),
        heartbeat: Heartbeat {
            controllers: vec!["198.18.0.1:5555".parse().unwrap()],
            interval_ms: 1000,
        },
        interfaces: vec![Interface {
            mac_address: "fa:16:3e:00:00:01".into(),
            name: "eth1".into(),
            addresses: vec!["10.0.0.5/24".parse().unwrap()],
            gateways: vec!["10.0.0.1".parse().unwrap()],
            routes: vec![],
            mtu_bytes: 1450,
        }],
        vips: vec![Vip {
            address: "10.0.0.100".parse().unwrap(),
            interface_mac: "fa:16:3e:00:00:01".into(),
            state: VipState::Active { handover_mac: None },
        }],
        listeners: vec![
            listener(TCP_LISTENER, ListenerProtocol::Tcp, 5000, Some(TCP_POOL)),
            listener(UDP_LISTENER, ListenerProtocol::Udp, 5000, Some(UDP_POOL)),
            listener(HTTP_LISTENER, ListenerProtocol::Http, 80, Some(HTTP_POOL)),
        ],
        pools: vec![
            pool(TCP_POOL, PoolProtocol::Tcp, &[1, 2]),
            pool(UDP_POOL, PoolProtocol::Udp, &[3, 4]),
            pool(HTTP_POOL, PoolProtocol::Http, &[5, 6]),
        ],
    }
}

pub(crate) fn listener(
    id: Uuid,
    protocol: ListenerProtocol,
    port: u16,
    pool: Option<Uuid>,
) -> Listener {
    Listener {
        id,
        protocol,
        protocol_port: port,
        connection_limit: None,
        default_pool: pool,
        x_forwarded_for: false,
        x_forwarded_port: false,
        x_forwarded_proto: false,
        timeout_client_data_ms: 50_000,
        timeout_member_connect_ms: 5_000,
        timeout_member_data_ms: 50_000,
        allowed_cidrs: vec![],
    }
}

pub(crate) fn pool(id: Uuid, protocol: PoolProtocol, members: &[u8]) -> Pool {
    Pool {
        id,
        protocol,
        lb_algorithm: LbAlgorithm::RoundRobin,
        session_persistence: None,
        monitor: None,
        members: members.iter().map(|&n| member(n)).collect(),
    }
}

/// Member `n`: id `0x100 + n`, address `10.0.0.(20 + n)`, port 8080.
pub(crate) fn member(n: u8) -> Member {
    Member {
        id: member_id(n),
        address: IpAddr::from([10, 0, 0, 20 + n]),
        protocol_port: 8080,
        weight: 1,
        backup: false,
        enabled: true,
        monitor_address: None,
        monitor_port: None,
    }
}

pub(crate) fn member_id(n: u8) -> Uuid {
    Uuid::from_u128(0x100 + u128::from(n))
}

pub(crate) fn monitor() -> Monitor {
    Monitor {
        id: Uuid::from_u128(0x31),
        check: Check::Tcp,
        delay_ms: 1000,
        timeout_ms: 500,
        rise: 2,
        fall: 3,
    }
}
