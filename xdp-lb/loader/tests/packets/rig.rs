//! Where a packet can be run: the twin here, the programs in `kernel`.

use std::time::Duration;

use uuid::Uuid;
use xdp_lb::{Algorithm, Member, Protocol, Service};
use xdp_lb_common::address::{Address, Be16};
use xdp_lb_common::env::{Action, Route, route_status};
use xdp_lb_common::flow::link_words;
use xdp_lb_common::table::{self, ServiceKey, interface_flag};
use xdp_lb_common::twin::Twin;
use xdp_lb_common::verdict::Verdict;

use crate::wire::{CLIENT_MAC, MEMBER_MAC, OUR_MAC};

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    Drop,
    Sent,
}

pub(crate) const CLIENT: [&str; 2] = ["10.1.0.2", "fd01::2"];
pub(crate) const VIP: [&str; 2] = ["10.1.0.100", "fd01::100"];
pub(crate) const SNAT: [&str; 2] = ["10.2.0.1", "fd02::1"];
pub(crate) const MEMBER: [&str; 2] = ["10.2.0.10", "fd02::10"];
pub(crate) const PORT: u16 = 8080;
/// Only [`CLIENT`] and two neighbours may come here.
pub(crate) const GUARDED_PORT: u16 = 8090;
pub(crate) const MEMBER_PORT: u16 = 9090;
pub(crate) const MTU: u32 = 1500;

pub(crate) trait Rig {
    fn name(&self) -> &'static str;
    /// Runs a packet that arrived from the clients' side.
    fn send(&mut self, packet: &[u8]) -> (Fate, Vec<u8>);
    fn counted(&self, verdict: Verdict) -> u64;
    /// The shortest packet this rig takes.
    fn shortest(&self, is_v4: bool) -> usize;
}

/// The services of every rig: TCP and UDP, one member of each family; TCP for few clients.
pub(crate) fn services() -> Vec<Service> {
    let few = ["10.1.0.0/30", "fd01::/126"]
        .map(|network| network.parse::<ipnet::IpNet>().expect("literal"));
    [
        (1, Protocol::Tcp, PORT, Vec::new()),
        (2, Protocol::Udp, PORT, Vec::new()),
        (3, Protocol::Tcp, GUARDED_PORT, few.into()),
    ]
    .into_iter()
    .map(|(id, protocol, port, allowed)| Service {
        id: Uuid::from_u128(id),
        vips: VIP
            .iter()
            .map(|vip| vip.parse().expect("literal"))
            .collect(),
        port,
        protocol,
        algorithm: Algorithm::RoundRobin,
        idle_timeout: Duration::from_secs(50),
        connection_limit: None,
        allowed,
        members: MEMBER
            .iter()
            .zip(10u128..)
            .map(|(address, id)| Member {
                id: Uuid::from_u128(id),
                address: address.parse().expect("literal"),
                port: MEMBER_PORT,
                weight: 1,
                backup: false,
                up: true,
            })
            .collect(),
    })
    .collect()
}

fn address(text: &str) -> Address {
    text.parse::<std::net::IpAddr>().expect("literal").into()
}

impl Rig for Twin {
    fn name(&self) -> &'static str {
        "twin"
    }

    fn send(&mut self, packet: &[u8]) -> (Fate, Vec<u8>) {
        let mut bytes = packet.to_vec();
        let fate = match Twin::run(self, &mut bytes) {
            Action::Pass => Fate::Pass,
            Action::Drop => Fate::Drop,
            Action::Redirect { .. } | Action::RedirectNeighbour { .. } => Fate::Sent,
        };
        (fate, bytes)
    }

    fn counted(&self, verdict: Verdict) -> u64 {
        self.verdict(verdict)
    }

    fn shortest(&self, _is_v4: bool) -> usize {
        0
    }
}

/// A twin configured as the programs are for the same services.
pub(crate) fn twin() -> Twin {
    let mut twin = Twin::default();
    twin.ingress = 2;
    twin.ring = (0..6).collect();
    twin.allowed = [(1, "10.1.0.0"), (2, "fd01::")]
        .map(|(set, network)| (set, vec![(address(network), 126)]))
        .into();
    for (service, protocol, port) in [(0u32, 6u16, PORT), (1, 17, PORT), (2, 6, GUARDED_PORT)] {
        for family in 0..2u32 {
            let slot = service * 2 + family;
            let index = usize::try_from(family).expect("two families");
            twin.services.insert(
                ServiceKey {
                    vip: address(VIP[index]),
                    port: Be16::new(port),
                    protocol,
                },
                table::Service {
                    slot: service,
                    algorithm: table::algorithm::ROUND_ROBIN,
                    ring_offset: slot,
                    ring_length: 1,
                    connection_limit: 0,
                    allowed: if service == 2 { family + 1 } else { 0 },
                },
            );
            twin.members.insert(
                slot,
                table::Member {
                    id: [1; 16],
                    address: address(MEMBER[index]),
                    port: Be16::new(MEMBER_PORT),
                    service,
                    generation: 1,
                    weight: 1,
                    ..table::Member::default()
                },
            );
        }
    }
    twin.interfaces.insert(
        3,
        table::Interface {
            snat_v4: address(SNAT[0]),
            snat_v6: address(SNAT[1]),
            mtu: MTU,
            flags: interface_flag::SNAT_V4 | interface_flag::SNAT_V6,
            mac: OUR_MAC,
            ..table::Interface::default()
        },
    );
    for (destination, mac, ifindex) in [
        (MEMBER[0], MEMBER_MAC, 3),
        (MEMBER[1], MEMBER_MAC, 3),
        (CLIENT[0], CLIENT_MAC, 2),
        (CLIENT[1], CLIENT_MAC, 2),
    ] {
        let destination = address(destination);
        twin.routes.insert(
            destination,
            Route {
                next_hop: destination,
                link: link_words(mac, OUR_MAC),
                ifindex,
                mtu: MTU,
                status: route_status::RESOLVED,
            },
        );
    }
    twin
}
