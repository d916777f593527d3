//! Full NAT on a packet whose flow is known: frame addresses, IP addresses, ports, checksums, TTL.

use crate::checksum::Delta;
use crate::flow::FlowRef;
use crate::packet::Packet;
use crate::parse::{Headers, L3, protocol};

/// Rewrites the packet; false, with nothing written, when a header is not there.
#[inline(always)]
#[must_use]
pub(crate) fn rewrite<P: Packet>(packet: &mut P, headers: &Headers, flow: FlowRef) -> bool {
    let Some(ports) = packet.window::<4>(headers.l4) else {
        return false;
    };
    if !rewrite_outside(packet, headers, flow) {
        return false;
    }
    ports.set_u16::<0>(flow.source_port().0);
    ports.set_u16::<2>(flow.destination_port().0);
    // Last, since it may move the packet in memory.
    let udp = headers.key.protocol == protocol::UDP;
    let field = headers.l4 + if udp { 6 } else { 16 };
    packet.update_checksum(field, flow.address_delta(), flow.port_delta(), udp)
}

/// As [`rewrite`], of a piece without an L4 header.
#[inline(always)]
#[must_use]
pub(crate) fn rewrite_later<P: Packet>(packet: &mut P, headers: &Headers, flow: FlowRef) -> bool {
    rewrite_outside(packet, headers, flow)
}

/// Frame and IP header.
#[inline(always)]
fn rewrite_outside<P: Packet>(packet: &P, headers: &Headers, flow: FlowRef) -> bool {
    let Some(frame) = packet.window::<12>(0) else {
        return false;
    };
    let (source, destination) = (flow.source(), flow.destination());
    if headers.is_v4 {
        let Some(ip) = packet.window::<20>(L3) else {
            return false;
        };
        let old = ip.u16::<8>();
        ip.set_u8::<8>(headers.ttl.wrapping_sub(1));
        let delta = Delta::from_folded(flow.address_delta()).word16(old, ip.u16::<8>());
        ip.set_u16::<10>(delta.apply(ip.u16::<10>()));
        ip.set_u32::<12>(source.v4_word());
        ip.set_u32::<16>(destination.v4_word());
    } else {
        let Some(ip) = packet.window::<40>(L3) else {
            return false;
        };
        ip.set_u8::<7>(headers.ttl.wrapping_sub(1));
        ip.set_u32::<8>(source.0[0]);
        ip.set_u32::<12>(source.0[1]);
        ip.set_u32::<16>(source.0[2]);
        ip.set_u32::<20>(source.0[3]);
        ip.set_u32::<24>(destination.0[0]);
        ip.set_u32::<28>(destination.0[1]);
        ip.set_u32::<32>(destination.0[2]);
        ip.set_u32::<36>(destination.0[3]);
    }
    let link = flow.link();
    frame.set_u32::<0>(link[0]);
    frame.set_u32::<4>(link[1]);
    frame.set_u32::<8>(link[2]);
    true
}
