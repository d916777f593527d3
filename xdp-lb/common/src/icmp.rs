//! ICMP errors about a flow: translated, quoted packet included, and passed to the side that caused it.
//!
//! The outer source becomes our own address on that side (VIP or SNAT): networks that check source
//! addresses drop a router's address coming from us.

use crate::address::Address;
use crate::checksum::Delta;
use crate::datapath::way_out;
use crate::env::{Action, Env};
use crate::flow::{FlowKey, FlowRef};
use crate::packet::Packet;
use crate::parse::{L3, Quoted, parse, parse_quoted, protocol};
use crate::verdict::Verdict;

/// Handles an ICMP packet; all but errors about our flows are the stack's.
///
/// # Errors
///
/// The verdict about the packet, not yet counted.
#[inline(always)]
pub fn forward_error<E: Env>(env: &E, packet: &mut E::Packet) -> Result<Action, Verdict> {
    let headers = &parse(packet)?;
    let icmp = packet
        .window::<8>(headers.l4)
        .ok_or(Verdict::PassMalformed)?;
    let kind = icmp.u8::<0>();
    let is_error = match headers.key.protocol {
        // Destination unreachable, time exceeded, parameter problem (RFC 792).
        protocol::ICMP => headers.is_v4 && matches!(kind, 3 | 11 | 12),
        // Destination unreachable, too big, time exceeded, parameter problem (RFC 4443).
        _ => !headers.is_v4 && matches!(kind, 1..=4),
    };
    if !is_error {
        return Err(Verdict::PassNotService);
    }
    let at = headers.l4 + 8;
    let quoted = parse_quoted(packet, headers.is_v4, at).ok_or(Verdict::PassNotService)?;
    // Whoever got the quoted packet would answer with this five-tuple.
    let answer = FlowKey {
        source: quoted.destination,
        destination: quoted.source,
        source_port: quoted.destination_port,
        destination_port: quoted.source_port,
        protocol: quoted.protocol,
    };
    if headers.key.destination != quoted.source {
        return Err(Verdict::PassNotService);
    }
    let flow = env.flow(&answer).ok_or(Verdict::PassNotService)?;
    let out = way_out(env, headers.is_v4, flow, false)?;
    if headers.ttl <= 1 {
        return Err(Verdict::DropTtlExpired);
    }
    if headers.l3_length > flow.mtu() {
        return Err(Verdict::DropTooBig);
    }
    let (source, destination) = (flow.source(), flow.destination());
    let mut delta =
        translate_quoted(packet, headers.is_v4, at, &quoted, flow).ok_or(Verdict::PassMalformed)?;
    let outer = Delta::NONE
        .address(headers.key.source, source)
        .address(headers.key.destination, destination);
    if headers.is_v4 {
        let ip = packet.window::<20>(L3).ok_or(Verdict::PassMalformed)?;
        let old = ip.u16::<8>();
        ip.set_u8::<8>(headers.ttl - 1);
        let change = Delta::from_folded(outer.fold()).word16(old, ip.u16::<8>());
        ip.set_u16::<10>(change.apply(ip.u16::<10>()));
        ip.set_u32::<12>(source.v4_word());
        ip.set_u32::<16>(destination.v4_word());
    } else {
        // ICMPv6 sums over a pseudo header (RFC 4443 section 2.3).
        delta = delta.plus(Delta::from_folded(outer.fold()));
        let ip = packet.window::<40>(L3).ok_or(Verdict::PassMalformed)?;
        ip.set_u8::<7>(headers.ttl - 1);
        let ip = packet.window::<32>(L3 + 8).ok_or(Verdict::PassMalformed)?;
        set_addresses(ip, source, destination);
    }
    let icmp = packet
        .window::<8>(headers.l4)
        .ok_or(Verdict::PassMalformed)?;
    icmp.set_u16::<2>(delta.apply(icmp.u16::<2>()));
    let link = flow.link();
    let frame = packet.window::<12>(0).ok_or(Verdict::PassMalformed)?;
    frame.set_u32::<0>(link[0]);
    frame.set_u32::<4>(link[1]);
    frame.set_u32::<8>(link[2]);
    env.count(Verdict::ForwardIcmpError);
    Ok(out)
}

/// Rewrites the quoted packet as its sender knew it; the change it makes to the ICMP checksum.
#[inline(always)]
fn translate_quoted<P: Packet>(
    packet: &P,
    is_v4: bool,
    at: usize,
    quoted: &Quoted,
    flow: FlowRef,
) -> Option<Delta> {
    // The answer's rewrite, mirrored: same words, other places, hence the same differences.
    let addresses = Delta::from_folded(flow.address_delta());
    let ports_delta = Delta::from_folded(flow.port_delta());
    let (source, destination) = (flow.destination(), flow.source());
    let ports = packet.window::<8>(quoted.l4)?;
    let mut delta = addresses.plus(ports_delta);
    if is_v4 {
        let ip = packet.window::<20>(at)?;
        let old = ip.u16::<10>();
        let new = addresses.apply(old);
        ip.set_u16::<10>(new);
        ip.set_u32::<12>(source.v4_word());
        ip.set_u32::<16>(destination.v4_word());
        delta = delta.word16(old, new);
    } else {
        set_addresses(packet.window::<32>(at + 8)?, source, destination);
    }
    ports.set_u16::<0>(flow.destination_port().0);
    ports.set_u16::<2>(flow.source_port().0);
    let change = addresses.plus(ports_delta);
    if quoted.protocol == protocol::UDP {
        let old = ports.u16::<6>();
        let new = change.apply_udp(old);
        ports.set_u16::<6>(new);
        delta = delta.word16(old, new);
    } else if let Some(tcp) = packet.window::<18>(quoted.l4) {
        let old = tcp.u16::<16>();
        let new = change.apply(old);
        tcp.set_u16::<16>(new);
        delta = delta.word16(old, new);
    }
    Some(Delta::from_folded(delta.fold()))
}

/// Writes the addresses of an IPv6 header, given from its eighth byte.
#[inline(always)]
fn set_addresses(ip: crate::packet::Window<'_, 32>, source: Address, destination: Address) {
    ip.set_u32::<0>(source.0[0]);
    ip.set_u32::<4>(source.0[1]);
    ip.set_u32::<8>(source.0[2]);
    ip.set_u32::<12>(source.0[3]);
    ip.set_u32::<16>(destination.0[0]);
    ip.set_u32::<20>(destination.0[1]);
    ip.set_u32::<24>(destination.0[2]);
    ip.set_u32::<28>(destination.0[3]);
}
