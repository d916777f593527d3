//! The table.

use std::net::IpAddr;

use xdp_lb_common::limits::{SNAT_PORT_FIRST, SNAT_PORT_LAST};
use xdp_lb_common::verdict::Verdict;

use crate::kernel::{Kernel, Program};
use crate::rig::{CLIENT, Fate, GUARDED_PORT, MEMBER, MEMBER_PORT, PORT, Rig, SNAT, VIP, twin};
use crate::wire::{
    ACK, CLIENT_MAC, End, FIN, L4, MEMBER_MAC, RST, SYN, Seen, Spec, end, frame, icmp_error,
    pieces, read, read_l3, whole,
};

const CLIENT_PORT: u16 = 40_000;

fn client(family: usize, port: u16) -> End {
    end(CLIENT[family], port)
}

fn vip(family: usize) -> End {
    end(VIP[family], PORT)
}

fn member(family: usize) -> End {
    end(MEMBER[family], MEMBER_PORT)
}

/// Runs a packet that must be forwarded with this verdict.
fn sent(rig: &mut dyn Rig, what: &str, packet: &[u8], verdict: Verdict) -> Seen {
    let before = rig.counted(verdict);
    let (fate, out) = rig.send(packet);
    assert_eq!(fate, Fate::Sent, "{what} through {}", rig.name());
    assert_eq!(
        rig.counted(verdict),
        before + 1,
        "{what} through {}",
        rig.name()
    );
    assert_eq!(out.len(), packet.len(), "{what} through {}", rig.name());
    read(&out)
}

/// Runs a packet that must not be forwarded, and must come out as it went in.
fn refused(rig: &mut dyn Rig, what: &str, packet: &[u8], fate: Fate, verdict: Verdict) {
    let before = rig.counted(verdict);
    let (seen, out) = rig.send(packet);
    assert_eq!(seen, fate, "{what} through {}", rig.name());
    assert_eq!(
        rig.counted(verdict),
        before + 1,
        "{what} through {}",
        rig.name()
    );
    assert!(out == packet, "{what} through {} was changed", rig.name());
}

/// Opens a flow and says which source port it got.
fn open(rig: &mut dyn Rig, first: &Spec) -> u16 {
    let family = usize::from(first.source.address.is_ipv6());
    let seen = sent(
        rig,
        "first packet",
        &first.frame(),
        Verdict::ForwardToMember,
    );
    assert_eq!(
        seen.source.address,
        SNAT[family].parse::<IpAddr>().expect("literal")
    );
    assert!((SNAT_PORT_FIRST..=SNAT_PORT_LAST).contains(&seen.source.port));
    assert_eq!(seen.destination, member(family));
    assert_eq!(seen.destination_mac, MEMBER_MAC);
    assert_eq!(seen.ttl, first.ttl - 1);
    assert_eq!(seen.payload, first.payload);
    seen.source.port
}

fn tcp_both_ways(rig: &mut dyn Rig) {
    for (family, ours) in SNAT.into_iter().enumerate() {
        let (from, to) = (client(family, CLIENT_PORT), vip(family));
        let port = open(rig, &Spec::tcp(from, to, SYN, b""));
        let snat = end(ours, port);
        let answer = Spec::tcp(member(family), snat, SYN | ACK, b"");
        let seen = sent(rig, "SYN-ACK", &answer.frame(), Verdict::ForwardToClient);
        assert_eq!((seen.source, seen.destination), (to, from));
        assert_eq!(seen.destination_mac, CLIENT_MAC);
        let data = Spec::tcp(from, to, ACK, b"odd payload");
        let seen = sent(rig, "data", &data.frame(), Verdict::ForwardToMember);
        assert_eq!((seen.source, seen.destination), (snat, member(family)));
        assert_eq!(seen.payload, b"odd payload");
        // A retransmitted SYN belongs to the same flow.
        let again = Spec::tcp(from, to, SYN, b"");
        let seen = sent(rig, "SYN again", &again.frame(), Verdict::ForwardToMember);
        assert_eq!(seen.source, snat);
    }
}

fn udp_both_ways(rig: &mut dyn Rig) {
    for (family, ours) in SNAT.into_iter().enumerate() {
        let (from, to) = (client(family, CLIENT_PORT), vip(family));
        let port = open(rig, &Spec::udp(from, to, b"question"));
        let answer = Spec::udp(member(family), end(ours, port), b"answer");
        let seen = sent(rig, "answer", &answer.frame(), Verdict::ForwardToClient);
        assert_eq!((seen.source, seen.destination), (to, from));
    }
    let mut none = Spec::udp(client(0, 41_000), vip(0), b"no checksum");
    none.l4 = L4::Udp { checksum: false };
    let seen = sent(
        rig,
        "UDP without checksum",
        &none.frame(),
        Verdict::ForwardToMember,
    );
    assert_eq!(seen.l4[6..8], [0, 0]);
}

fn a_syn_after_the_end_opens_a_new_flow(rig: &mut dyn Rig) {
    for (index, closing) in [(0u16, RST), (1, FIN | ACK)] {
        let (from, to) = (client(0, 42_000 + index), vip(0));
        let syn = Spec::tcp(from, to, SYN, b"");
        let port = open(rig, &syn);
        let end_of_flow = Spec::tcp(from, to, closing, b"");
        sent(rig, "end", &end_of_flow.frame(), Verdict::ForwardToMember);
        assert_ne!(open(rig, &syn), port, "closed by {closing:#x}");
    }
}

fn options_and_extension_headers(rig: &mut dyn Rig) {
    let mut options = Spec::tcp(client(0, 43_000), vip(0), SYN, b"");
    options.options = vec![1; 12];
    open(rig, &options);
    let mut extensions = Spec::tcp(client(1, 43_000), vip(1), SYN, b"");
    extensions.extensions = vec![(0, vec![0; 8]), (60, vec![0; 16])];
    open(rig, &extensions);
}

fn what_is_not_ours(rig: &mut dyn Rig) {
    let other = Spec::tcp(client(0, CLIENT_PORT), end(VIP[0], 81), SYN, b"");
    refused(
        rig,
        "other port",
        &other.frame(),
        Fate::Pass,
        Verdict::PassNotService,
    );
    let stray = Spec::tcp(client(0, 44_000), vip(0), ACK, b"x");
    refused(
        rig,
        "no flow",
        &stray.frame(),
        Fate::Pass,
        Verdict::PassNoFlow,
    );
    let mut arp = Spec::tcp(client(0, 44_000), vip(0), SYN, b"").frame();
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    refused(rig, "ARP", &arp, Fate::Pass, Verdict::PassNotIp);
    let reply = Spec::tcp(member(0), end(SNAT[0], 40_000), SYN | ACK, b"");
    refused(
        rig,
        "reply to the proxy",
        &reply.frame(),
        Fate::Pass,
        Verdict::PassNotService,
    );
    let echo = icmp_error(
        CLIENT[0].parse().expect("literal"),
        VIP[0].parse().expect("literal"),
        8,
        0,
        &[0; 40],
    );
    refused(rig, "ping", &echo, Fate::Pass, Verdict::PassNotService);
}

fn malformed(rig: &mut dyn Rig) {
    let syn = Spec::tcp(client(0, 45_000), vip(0), SYN, b"payload").frame();
    let change = |what: &[(usize, u8)]| {
        let mut packet = syn.clone();
        for (at, value) in what {
            packet[*at] = *value;
        }
        packet
    };
    let table: &[(&str, Vec<u8>, Verdict)] = &[
        ("IHL 4", change(&[(14, 0x44)]), Verdict::PassMalformed),
        ("IHL 15", change(&[(14, 0x4f)]), Verdict::PassMalformed),
        ("version 5", change(&[(14, 0x55)]), Verdict::PassMalformed),
        (
            "length beyond the end",
            change(&[(16, 0xff)]),
            Verdict::PassMalformed,
        ),
        (
            "length below the header",
            change(&[(17, 10)]),
            Verdict::PassMalformed,
        ),
        (
            "data offset 4",
            change(&[(46, 0x40)]),
            Verdict::PassMalformed,
        ),
        (
            "data offset 15",
            change(&[(46, 0xf0)]),
            Verdict::PassMalformed,
        ),
        (
            "later fragment without a first",
            change(&[(21, 0x08)]),
            Verdict::PassFragment,
        ),
    ];
    for (what, packet, verdict) in table {
        refused(rig, what, packet, Fate::Pass, *verdict);
    }
    let mut udp = Spec::udp(client(0, 45_000), vip(0), b"payload").frame();
    udp[39] = 200;
    refused(rig, "UDP length", &udp, Fate::Pass, Verdict::PassMalformed);
    let mut fragment = Spec::udp(client(1, 45_000), vip(1), b"payload");
    fragment.extensions = vec![(44, vec![0, 0, 0, 8, 0, 0, 0, 1])];
    refused(
        rig,
        "later IPv6 fragment without a first",
        &fragment.frame(),
        Fate::Pass,
        Verdict::PassFragment,
    );
    let mut endless = Spec::udp(client(1, 45_000), vip(1), b"payload");
    endless.extensions = vec![(60, vec![0; 8]); 7];
    refused(
        rig,
        "seven extension headers",
        &endless.frame(),
        Fate::Pass,
        Verdict::PassNotService,
    );
    // A tag inside the frame. The test harness of the classifier would take it for a header.
    if rig.name() != "classifier" {
        let mut tagged = syn[..12].to_vec();
        tagged.extend_from_slice(&[0x81, 0, 0, 7]);
        tagged.extend_from_slice(&syn[12..]);
        refused(rig, "VLAN", &tagged, Fate::Pass, Verdict::PassVlan);
    }
}

fn truncated_at_every_length(rig: &mut dyn Rig) {
    let packets = [
        Spec::tcp(client(0, 46_000), vip(0), SYN, b"payload").frame(),
        Spec::udp(client(1, 46_000), vip(1), b"payload").frame(),
    ];
    for (packet, is_v4) in packets.into_iter().zip([true, false]) {
        for length in rig.shortest(is_v4)..packet.len() {
            let (fate, out) = rig.send(&packet[..length]);
            assert_eq!(fate, Fate::Pass, "{length} bytes through {}", rig.name());
            assert!(
                out == packet[..length],
                "{length} bytes through {}",
                rig.name()
            );
        }
    }
}

fn drops(rig: &mut dyn Rig) {
    let mut old = Spec::tcp(client(0, 47_000), vip(0), SYN, b"");
    old.ttl = 1;
    refused(
        rig,
        "TTL 1",
        &old.frame(),
        Fate::Drop,
        Verdict::DropTtlExpired,
    );
    let from = client(0, 47_001);
    open(rig, &Spec::udp(from, vip(0), b"small"));
    let large = Spec::udp(from, vip(0), &[0; 1473]);
    refused(
        rig,
        "1501 bytes",
        &large.frame(),
        Fate::Drop,
        Verdict::DropTooBig,
    );
    let fits = Spec::udp(from, vip(0), &[0; 1472]);
    sent(rig, "1500 bytes", &fits.frame(), Verdict::ForwardToMember);
}

fn icmp_errors_find_the_other_side(rig: &mut dyn Rig) {
    let router: [IpAddr; 2] = ["10.77.0.1", "fd77::1"].map(|text| text.parse().expect("literal"));
    for family in 0..2 {
        let (kind, code) = if family == 0 { (3, 4) } else { (2, 0) };
        for udp in [false, true] {
            let (from, to) = (client(family, 48_000 + u16::from(udp)), vip(family));
            let make = |a, b| {
                if udp {
                    Spec::udp(a, b, b"payload of some length")
                } else {
                    Spec::tcp(a, b, SYN, b"")
                }
            };
            let port = open(rig, &make(from, to));
            let snat = end(SNAT[family], port);
            // A router near the member complains about what we sent there; the client must know.
            let quoted = make(snat, member(family)).l3();
            for cut in [quoted.len(), (if family == 0 { 20 } else { 40 }) + 8] {
                let error = icmp_error(router[family], snat.address, kind, code, &quoted[..cut]);
                let seen = sent(
                    rig,
                    "error from the member's side",
                    &error,
                    Verdict::ForwardIcmpError,
                );
                assert_eq!(seen.destination.address, from.address);
                assert_eq!(seen.source.address, to.address);
                assert_eq!(seen.destination_mac, CLIENT_MAC);
                let inner = read_l3(&seen.payload, cut == quoted.len());
                assert_eq!((inner.source, inner.destination), (from, to));
            }
            // And a router near the client about what we sent there.
            let quoted = make(to, from).l3();
            let error = icmp_error(router[family], to.address, kind, code, &quoted);
            let seen = sent(
                rig,
                "error from the client's side",
                &error,
                Verdict::ForwardIcmpError,
            );
            assert_eq!(seen.destination.address, member(family).address);
            assert_eq!(seen.source.address, snat.address);
            let inner = read_l3(&seen.payload, true);
            assert_eq!((inner.source, inner.destination), (member(family), snat));
        }
        let unknown = Spec::udp(end(SNAT[family], 5), end(MEMBER[family], 7), b"x").l3();
        let error = icmp_error(
            router[family],
            SNAT[family].parse().expect("literal"),
            kind,
            code,
            &unknown,
        );
        refused(
            rig,
            "error about no flow",
            &error,
            Fate::Pass,
            Verdict::PassNotService,
        );
        let short = icmp_error(
            router[family],
            SNAT[family].parse().expect("literal"),
            kind,
            code,
            &unknown[..4],
        );
        refused(
            rig,
            "error that quotes too little",
            &short,
            Fate::Pass,
            Verdict::PassNotService,
        );
    }
}

/// Sends a datagram in pieces; what came out, whole again.
fn sent_in_pieces(rig: &mut dyn Rig, spec: &Spec, size: usize, id: u16, first: Verdict) -> Seen {
    let is_v4 = spec.source.address.is_ipv4();
    let mut out = Vec::new();
    for (index, piece) in pieces(&spec.l3(), size, id).into_iter().enumerate() {
        let verdict = if index == 0 {
            first
        } else {
            Verdict::ForwardFragment
        };
        let before = rig.counted(verdict);
        let (fate, bytes) = rig.send(&frame(&piece, is_v4));
        assert_eq!(fate, Fate::Sent, "piece {index} through {}", rig.name());
        assert_eq!(rig.counted(verdict), before + 1, "piece {index}");
        out.push(bytes[14..].to_vec());
    }
    read_l3(&whole(&out), true)
}

fn datagrams_in_pieces(rig: &mut dyn Rig) {
    for (family, ours) in SNAT.into_iter().enumerate() {
        let (from, to) = (client(family, 49_000), vip(family));
        let question: Vec<u8> = (0..4000u32).map(|n| n as u8).collect();
        // Two datagrams of one flow, the first of which opens it, and one back.
        let spec = Spec::udp(from, to, &question);
        let mut port = 0;
        for id in [7, 8] {
            let seen = sent_in_pieces(rig, &spec, 1440, id, Verdict::ForwardToMember);
            assert_eq!(seen.destination, member(family));
            assert_eq!(seen.payload, question);
            assert!(port == 0 || port == seen.source.port);
            port = seen.source.port;
        }
        let answer = Spec::udp(member(family), end(ours, port), &question);
        let seen = sent_in_pieces(rig, &answer, 1208, 7, Verdict::ForwardToClient);
        assert_eq!((seen.source, seen.destination), (to, from));
        assert_eq!(seen.payload, question);
        // TCP does it rarely, but may.
        let (from, data) = (client(family, 49_001), vec![5u8; 900]);
        open(rig, &Spec::tcp(from, to, SYN, b""));
        let data = Spec::tcp(from, to, ACK, &data);
        let seen = sent_in_pieces(rig, &data, 512, 9, Verdict::ForwardToMember);
        assert_eq!(seen.payload, data.payload);
        // Others' pieces, and one of ours that lost its first, are the stack's.
        for (id, to) in [(10, vip(family)), (7, end(VIP[family], PORT + 1))] {
            let mut others = pieces(
                &Spec::udp(client(family, 49_002), to, &question).l3(),
                1440,
                id,
            );
            if id == 10 {
                others.remove(0);
            } else {
                others.truncate(1);
            }
            let verdict = if id == 10 {
                Verdict::PassFragment
            } else {
                Verdict::PassNotService
            };
            for piece in others {
                let piece = frame(&piece, family == 0);
                refused(rig, "others' piece", &piece, Fate::Pass, verdict);
            }
        }
        // An ICMP message in pieces is never ours.
        let mut echo = icmp_error(from.address, to.address, 8, 0, &[0; 64]);
        if family == 0 {
            echo[20] = 0x20;
            refused(
                rig,
                "ICMP in pieces",
                &echo,
                Fate::Pass,
                Verdict::PassFragment,
            );
        }
    }
}

fn allowed_clients(rig: &mut dyn Rig) {
    for (family, strangers) in [
        ["10.1.0.4", "10.1.0.9", "192.0.2.1"],
        ["fd01::4", "fd01::1:2", "2001:db8::1"],
    ]
    .into_iter()
    .enumerate()
    {
        let to = end(VIP[family], GUARDED_PORT);
        for stranger in strangers {
            let syn = Spec::tcp(end(stranger, 50_000), to, SYN, b"");
            let (what, verdict) = ("a stranger", Verdict::DropNotAllowed);
            refused(rig, what, &syn.frame(), Fate::Drop, verdict);
        }
        open(rig, &Spec::tcp(client(family, 50_000), to, SYN, b""));
    }
}

type Case = fn(&mut dyn Rig);

const TABLE: &[(&str, Case)] = &[
    ("TCP both ways", tcp_both_ways),
    ("UDP both ways", udp_both_ways),
    (
        "a SYN after the end opens a new flow",
        a_syn_after_the_end_opens_a_new_flow,
    ),
    (
        "options and extension headers",
        options_and_extension_headers,
    ),
    ("what is not ours", what_is_not_ours),
    ("malformed", malformed),
    ("truncated at every length", truncated_at_every_length),
    ("drops", drops),
    ("datagrams in pieces", datagrams_in_pieces),
    ("allowed clients", allowed_clients),
    (
        "ICMP errors find the other side",
        icmp_errors_find_the_other_side,
    ),
];

fn run_all(rig: &mut dyn Rig) {
    for (name, case) in TABLE {
        eprintln!("{}: {name}", rig.name());
        case(rig);
    }
}

#[test]
fn every_case_holds_in_the_twin() {
    run_all(&mut twin());
}

#[test]
fn lab_every_case_holds_in_the_classifier() {
    run_all(&mut Kernel::new(Program::Classifier));
}

#[test]
fn lab_every_case_holds_in_xdp() {
    run_all(&mut Kernel::new(Program::Xdp));
}

/// The frame builder itself, once: what it builds is what it reads.
#[test]
fn the_builder_agrees_with_the_reader() {
    for family in 0..2 {
        let spec = Spec::udp(client(family, 1), vip(family), b"abc");
        let seen = read(&frame(&spec.l3(), family == 0));
        assert_eq!(
            (seen.source, seen.destination),
            (spec.source, spec.destination)
        );
        assert_eq!(seen.payload, b"abc");
    }
}
