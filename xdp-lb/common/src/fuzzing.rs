//! The data path with the promises it makes about any bytes at all, for the fuzz target and for the
//! tests below. Panics when a promise is broken.

use std::net::IpAddr;

use crate::address::{Address, Be16};
use crate::env::{Action, Route, route_status};
use crate::table::{Interface, Member, Service, ServiceKey, algorithm, interface_flag};
use crate::twin::Twin;

/// The only port of the VIPs that is served to everybody; the one above is for few.
pub const PORT: u16 = 80;
/// VIP, member, client and source address towards members, for each family.
pub const ADDRESSES: [[&str; 4]; 2] = [
    ["10.1.0.100", "10.2.0.10", "10.1.0.2", "10.2.0.1"],
    ["fd01::100", "fd02::10", "fd01::2", "fd02::1"],
];

/// Frames from the wire, each preceded by its length in one byte. They share one flow table, so that
/// a later frame meets the flows that earlier ones opened.
///
/// Whatever comes: a frame that is not forwarded is not changed, and the flow table has both entries
/// of a flow or none.
pub fn frames(data: &[u8]) {
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
}

/// A twin with TCP and UDP services for one VIP of each family.
fn twin() -> Twin {
    let mut twin = Twin::default();
    twin.ring = vec![0, 1];
    for (slot, addresses) in (0u32..).zip(ADDRESSES) {
        let [vip, member, client, source] =
            addresses.map(|text| Address::from(text.parse::<IpAddr>().expect("literal")));
        twin.allowed.insert(slot + 1, vec![(client, 128)]);
        for protocol in [6, 17] {
            for (port, allowed) in [(PORT, 0), (PORT + 1, slot + 1)] {
                twin.services.insert(
                    ServiceKey {
                        vip,
                        port: Be16::new(port),
                        protocol,
                    },
                    Service {
                        ring_offset: slot,
                        ring_length: 1,
                        algorithm: algorithm::SOURCE_IP,
                        allowed,
                        ..Service::default()
                    },
                );
            }
        }
        twin.members.insert(
            slot,
            Member {
                id: [1; 16],
                address: member,
                port: Be16::new(PORT),
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
        let interface = twin.interfaces.entry(2).or_insert(Interface {
            mtu: 1500,
            ..Interface::default()
        });
        if source.is_v4() {
            interface.snat_v4 = source;
            interface.flags |= interface_flag::SNAT_V4;
        } else {
            interface.snat_v6 = source;
            interface.flags |= interface_flag::SNAT_V6;
        }
    }
    twin
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame without checksums, which the data path does not verify.
    fn frame(family: usize, back: bool, protocol: u8, fragment: u16, l4: &[u8]) -> Vec<u8> {
        let [vip, member, client, source] =
            ADDRESSES[family].map(|text| text.parse::<IpAddr>().expect("literal"));
        let (from, to) = if back {
            (member, source)
        } else {
            (client, vip)
        };
        let mut frame = vec![2; 12];
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let length = u16::try_from(20 + l4.len()).expect("short");
                frame.extend_from_slice(&[0x08, 0x00, 0x45, 0]);
                frame.extend_from_slice(&length.to_be_bytes());
                frame.extend_from_slice(&[0, 7]);
                frame.extend_from_slice(&fragment.to_be_bytes());
                frame.extend_from_slice(&[64, protocol, 0, 0]);
                frame.extend_from_slice(&from.octets());
                frame.extend_from_slice(&to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let header = if fragment == 0 { 0 } else { 8 };
                let length = u16::try_from(header + l4.len()).expect("short");
                let next = if fragment == 0 { protocol } else { 44 };
                frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend_from_slice(&length.to_be_bytes());
                frame.extend_from_slice(&[next, 64]);
                frame.extend_from_slice(&from.octets());
                frame.extend_from_slice(&to.octets());
                if fragment != 0 {
                    let place = fragment << 3 | fragment >> 13 & 1;
                    frame.extend_from_slice(&[protocol, 0]);
                    frame.extend_from_slice(&place.to_be_bytes());
                    frame.extend_from_slice(&[0, 0, 0, 7]);
                }
            }
            _ => unreachable!("one family in a row"),
        }
        frame.extend_from_slice(l4);
        frame
    }

    /// Frames that mean something: openings, answers, pieces, ICMP errors that quote them.
    fn meaningful() -> impl Strategy<Value = Vec<u8>> {
        let l4 = (
            any::<bool>(),
            prop_oneof![Just(PORT), Just(PORT + 1), 1024u16..1028],
            prop_oneof![Just(0x02u8), Just(0x10), Just(0x11), Just(0x04), Just(0x12)],
            prop::collection::vec(any::<u8>(), 0..24),
        );
        let fragment = prop_oneof![4 => Just(0u16), 1 => Just(0x2000), 1 => 1u16..9];
        (0usize..2, any::<bool>(), fragment, l4, any::<bool>()).prop_map(
            |(family, back, fragment, (udp, port, flags, payload), error)| {
                let ports = if back { [PORT, port] } else { [4000, port] };
                let mut l4: Vec<u8> = ports.into_iter().flat_map(u16::to_be_bytes).collect();
                if udp {
                    let length = u16::try_from(8 + payload.len()).expect("short");
                    l4.extend_from_slice(&length.to_be_bytes());
                    l4.extend_from_slice(&[1, 1]);
                } else {
                    l4.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 1, 1, 0, 0]);
                }
                l4.extend_from_slice(&payload);
                let quoted = frame(family, back, if udp { 17 } else { 6 }, fragment, &l4);
                if !error {
                    return quoted;
                }
                let (protocol, kind) = if family == 0 { (1, 3) } else { (58, 2) };
                let mut icmp = vec![kind, 4, 1, 1, 0, 0, 5, 0];
                icmp.extend_from_slice(&quoted[14..]);
                frame(family, back, protocol, 0, &icmp)
            },
        )
    }

    fn damaged() -> impl Strategy<Value = Vec<u8>> {
        let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
        (meaningful(), damage).prop_map(|(mut frame, damage)| {
            for (at, value) in damage {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            frame
        })
    }

    /// As many cases again as an hour of fuzzing would not have, but enough to see a slip at once.
    fn cases() -> ProptestConfig {
        let soak = std::env::var_os("LB_SOAK").is_some();
        ProptestConfig::with_cases(if soak { 50_000 } else { 2_000 })
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn any_frames_keep_the_promises(sent in prop::collection::vec(damaged(), 1..8)) {
            let mut data = Vec::new();
            for frame in sent {
                let frame = &frame[..frame.len().min(255)];
                data.push(u8::try_from(frame.len()).expect("cut"));
                data.extend_from_slice(frame);
            }
            frames(&data);
        }

        #[test]
        fn any_bytes_keep_the_promises(data in prop::collection::vec(any::<u8>(), 0..600)) {
            frames(&data);
        }
    }

    /// The frames above are not all refused: what is to be tested is reached.
    #[test]
    fn the_frames_reach_every_part() {
        use crate::verdict::Verdict;
        let syn = [
            0x0f, 0xa0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0,
        ];
        let udp = [0x0f, 0xa0, 0, 80, 0, 40, 0, 0];
        let mut twin = twin();
        for family in 0..2 {
            for (fragment, l4) in [(0, &syn[..]), (0x2000, &udp[..]), (3, &udp[..])] {
                let protocol = if l4.len() == 8 { 17 } else { 6 };
                let action = twin.run(&mut frame(family, false, protocol, fragment, l4));
                assert!(!matches!(action, Action::Pass | Action::Drop), "{fragment}");
            }
        }
        assert_eq!(twin.verdict(Verdict::ForwardToMember), 4);
        assert_eq!(twin.verdict(Verdict::ForwardFragment), 2);
    }
}
