//! Any bytes at all through the twin: no panic, nothing half done.

use proptest::prelude::*;

use crate::rig::{CLIENT, Fate, PORT, Rig, VIP, twin};
use crate::wire::{ACK, SYN, Spec, end, read};

fn valid() -> impl Strategy<Value = Vec<u8>> {
    (
        0usize..2,
        any::<u16>(),
        any::<bool>(),
        prop::collection::vec(any::<u8>(), 0..64),
    )
        .prop_map(|(family, port, udp, payload)| {
            let (from, to) = (end(CLIENT[family], port), end(VIP[family], PORT));
            if udp {
                Spec::udp(from, to, &payload).frame()
            } else {
                Spec::tcp(from, to, SYN, &payload).frame()
            }
        })
}

proptest! {
    #[test]
    fn random_bytes_pass_untouched(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (fate, out) = twin().send(&bytes);
        // That random bytes are a SYN to the VIP is beyond belief.
        prop_assert_eq!(fate, Fate::Pass);
        prop_assert_eq!(out, bytes);
    }

    #[test]
    fn a_damaged_packet_is_forwarded_whole_or_left_alone(
        mut packet in valid(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        for (at, value) in damage {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        packet.truncate(cut.index(packet.len() + 1));
        let mut twin = twin();
        let (fate, out) = twin.send(&packet);
        prop_assert_eq!(out.len(), packet.len());
        if fate != Fate::Sent {
            prop_assert_eq!(out, packet);
        } else {
            prop_assert_eq!(twin.flows().len(), 2);
        }
    }

    #[test]
    fn a_whole_packet_is_forwarded_with_right_checksums(packet in valid()) {
        let mut twin = twin();
        let (fate, out) = twin.send(&packet);
        prop_assert_eq!(fate, Fate::Sent);
        let (before, after) = (read(&packet), read(&out));
        prop_assert_eq!(before.payload, after.payload);
        // And back again.
        let reply = if before.protocol == 6 {
            Spec::tcp(after.destination, after.source, SYN | ACK, b"")
        } else {
            Spec::udp(after.destination, after.source, b"reply")
        };
        let (fate, out) = twin.send(&reply.frame());
        prop_assert_eq!(fate, Fate::Sent);
        let back = read(&out);
        prop_assert_eq!((back.source, back.destination), (before.destination, before.source));
    }
}
