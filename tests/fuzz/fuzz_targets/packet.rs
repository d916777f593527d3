//! Frames from the wire through the data path's userspace twin.
//!
//! The input is a list of frames, each preceded by its length in one byte; they share one flow
//! table, so that a later frame meets the flows that earlier ones opened. Whatever comes: no panic,
//! a frame that is not forwarded is not changed, and the flow table has both entries or none.

#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use xdp_lb_common::address::{Address, Be16};
use xdp_lb_common::env::{Action, Route, route_status};
use xdp_lb_common::table::{Interface, Member, Service, ServiceKey, interface_flag};
use xdp_lb_common::twin::Twin;

fuzz_target!(|data: &[u8]| {
    let mut twin = twin();
    let mut rest = data;
    while let Some((length, tail)) = rest.split_first() {
        let (frame, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        let mut bytes = frame.to_vec();
        let action = twin.run(&mut bytes);
        if matches!(action, Action::Pass | Action::Drop) {
            assert_eq!(bytes, frame, "changed, but not forwarded");
        }
        let flows = twin.flows();
        for (key, flow) in &flows {
            assert!(
                flows.contains_key(&flow.sibling_key(key.protocol)),
                "one entry without the other"
            );
        }
    }
});

/// A twin with a TCP and a UDP service for one VIP of each family.
fn twin() -> Twin {
    let mut twin = Twin::default();
    twin.ring = vec![0, 1];
    for (slot, is_v4) in [(0u32, true), (1, false)] {
        let text = if is_v4 {
            ["10.1.0.100", "10.2.0.10", "10.1.0.2"]
        } else {
            ["fd01::100", "fd02::10", "fd01::2"]
        };
        let [vip, member, client] = text.map(|t| Address::from(t.parse::<IpAddr>().expect("literal")));
        for protocol in [6, 17] {
            twin.services.insert(
                ServiceKey {
                    vip,
                    port: Be16::new(80),
                    protocol,
                },
                Service {
                    ring_offset: slot,
                    ring_length: 1,
                    ..Service::default()
                },
            );
        }
        twin.members.insert(
            slot,
            Member {
                id: [1; 16],
                address: member,
                port: Be16::new(80),
                generation: 1,
                weight: 1,
                ..Member::default()
            },
        );
        for (address, ifindex) in [(member, 2), (client, 1)] {
            twin.routes.insert(
                address,
                Route {
                    next_hop: address,
                    ifindex,
                    mtu: 1500,
                    status: route_status::RESOLVED,
                    ..Route::default()
                },
            );
        }
    }
    twin.interfaces.insert(
        2,
        Interface {
            snat_v4: Address::from("10.2.0.1".parse::<IpAddr>().expect("literal")),
            snat_v6: Address::from("fd02::1".parse::<IpAddr>().expect("literal")),
            mtu: 1500,
            flags: interface_flag::SNAT_V4 | interface_flag::SNAT_V6,
            ..Interface::default()
        },
    );
    twin
}
