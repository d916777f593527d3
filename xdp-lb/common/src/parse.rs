//! From bytes to the few facts the data path needs. Reads only what a window has proved to be there.

use crate::address::{Address, Be16};
use crate::flow::FlowKey;
use crate::limits::{MAX_EXTENSION_HEADERS, MAX_L4_OFFSET};
use crate::packet::Packet;
use crate::verdict::Verdict;

/// Length of the Ethernet header; the L3 header begins here.
pub const L3: usize = 14;

/// IP protocol numbers.
pub mod protocol {
    pub const ICMP: u32 = 1;
    pub const TCP: u32 = 6;
    pub const UDP: u32 = 17;
    pub const ICMPV6: u32 = 58;
}

const ETHERTYPE_V4: u16 = 0x0800u16.to_be();
const ETHERTYPE_V6: u16 = 0x86ddu16.to_be();
const ETHERTYPE_VLAN: u16 = 0x8100u16.to_be();
const ETHERTYPE_QINQ: u16 = 0x88a8u16.to_be();

const V6_HOP_BY_HOP: u32 = 0;
const V6_ROUTING: u32 = 43;
const V6_FRAGMENT: u32 = 44;
const V6_DESTINATION: u32 = 60;

/// What a well-formed TCP, UDP or ICMP packet says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    pub is_v4: bool,
    /// The five-tuple, as the flow table wants it: built once, in place. Ports are 0 for ICMP.
    pub key: FlowKey,
    /// 0 unless TCP.
    pub tcp_flags: u8,
    pub ttl: u8,
    /// Offset of the TCP, UDP or ICMP header.
    pub l4: usize,
    /// Bytes of the L3 packet, header included.
    pub l3_length: u32,
    /// Bytes after the L4 header; of a later fragment, all.
    pub payload: u32,
    pub piece: Piece,
}

/// What part of a datagram a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    Whole,
    /// The fragment with the L4 header.
    First {
        id: u32,
    },
    /// A fragment without: ports, flags and L4 header are not there.
    Later {
        id: u32,
    },
}

/// Reads the headers of a whole datagram, or says why the packet is left to the stack.
///
/// # Errors
///
/// The verdict to count: always one of the `Pass…` verdicts.
#[inline(always)]
pub fn parse<P: Packet>(packet: &P) -> Result<Headers, Verdict> {
    parse_any::<P, false>(packet)
}

/// As [`parse`], but takes fragments, too.
///
/// # Errors
///
/// As there.
#[inline(always)]
pub fn parse_piece<P: Packet>(packet: &P) -> Result<Headers, Verdict> {
    parse_any::<P, true>(packet)
}

#[inline(always)]
fn parse_any<P: Packet, const PIECES: bool>(packet: &P) -> Result<Headers, Verdict> {
    let ethernet = packet.window::<L3>(0).ok_or(Verdict::PassMalformed)?;
    match ethernet.u16::<12>() {
        ETHERTYPE_V4 => parse_v4::<P, PIECES>(packet),
        ETHERTYPE_V6 => parse_v6::<P, PIECES>(packet),
        ETHERTYPE_VLAN | ETHERTYPE_QINQ => Err(Verdict::PassVlan),
        _ => Err(Verdict::PassNotIp),
    }
}

#[inline(always)]
fn parse_v4<P: Packet, const PIECES: bool>(packet: &P) -> Result<Headers, Verdict> {
    let ip = packet.window::<20>(L3).ok_or(Verdict::PassMalformed)?;
    let first = ip.u8::<0>();
    let header = ((first & 0x0f) as usize) * 4;
    let total = u16::from_be(ip.u16::<2>()) as usize;
    if first >> 4 != 4 || header < 20 || total < header || !packet.holds(L3 + total) {
        return Err(Verdict::PassMalformed);
    }
    // More fragments, or an offset (RFC 791): ports are in the first fragment only.
    let fragment = ip.u16::<6>() & 0x3fffu16.to_be();
    let id = ip.u16::<4>() as u32;
    let piece = if fragment == 0 {
        Piece::Whole
    } else if !PIECES {
        return Err(Verdict::PassFragment);
    } else if fragment & 0x1fffu16.to_be() == 0 {
        Piece::First { id }
    } else {
        Piece::Later { id }
    };
    let headers = Headers {
        is_v4: true,
        key: FlowKey {
            source: Address::v4(ip.u32::<12>()),
            destination: Address::v4(ip.u32::<16>()),
            source_port: Be16(0),
            destination_port: Be16(0),
            protocol: ip.u8::<9>() as u32,
        },
        tcp_flags: 0,
        ttl: ip.u8::<8>(),
        // Without options the offset is a constant, for the compiler and the verifier alike.
        l4: if header == 20 {
            L3 + 20
        } else {
            packet.launder(L3 + header)
        },
        l3_length: total as u32,
        payload: 0,
        piece,
    };
    parse_l4(packet, headers, total - header)
}

#[inline(always)]
fn parse_v6<P: Packet, const PIECES: bool>(packet: &P) -> Result<Headers, Verdict> {
    let ip = packet.window::<40>(L3).ok_or(Verdict::PassMalformed)?;
    let mut rest = u16::from_be(ip.u16::<4>()) as usize;
    if ip.u8::<0>() >> 4 != 6 || !packet.holds(L3 + 40 + rest) {
        return Err(Verdict::PassMalformed);
    }
    let mut headers = Headers {
        is_v4: false,
        key: FlowKey {
            source: Address([
                ip.u32::<8>(),
                ip.u32::<12>(),
                ip.u32::<16>(),
                ip.u32::<20>(),
            ]),
            destination: Address([
                ip.u32::<24>(),
                ip.u32::<28>(),
                ip.u32::<32>(),
                ip.u32::<36>(),
            ]),
            source_port: Be16(0),
            destination_port: Be16(0),
            protocol: ip.u8::<6>() as u32,
        },
        tcp_flags: 0,
        ttl: ip.u8::<7>(),
        l4: L3 + 40,
        l3_length: rest as u32 + 40,
        payload: 0,
        piece: Piece::Whole,
    };
    for _ in 0..MAX_EXTENSION_HEADERS {
        match headers.key.protocol {
            V6_HOP_BY_HOP | V6_ROUTING | V6_DESTINATION => {
                let extension = packet
                    .window::<8>(headers.l4)
                    .ok_or(Verdict::PassMalformed)?;
                let length = (extension.u8::<1>() as usize + 1) * 8;
                if length > rest {
                    return Err(Verdict::PassMalformed);
                }
                headers.key.protocol = extension.u8::<0>() as u32;
                headers.l4 += length;
                rest -= length;
            }
            V6_FRAGMENT if PIECES => {
                let fragment = packet
                    .window::<8>(headers.l4)
                    .ok_or(Verdict::PassMalformed)?;
                if rest < 8 {
                    return Err(Verdict::PassMalformed);
                }
                headers.key.protocol = fragment.u8::<0>() as u32;
                headers.l4 += 8;
                rest -= 8;
                let id = fragment.u32::<4>();
                if fragment.u16::<2>() & 0xfff8u16.to_be() != 0 {
                    headers.piece = Piece::Later { id };
                    break;
                }
                headers.piece = Piece::First { id };
            }
            V6_FRAGMENT => return Err(Verdict::PassFragment),
            _ => break,
        }
    }
    if headers.l4 != L3 + 40 {
        if headers.l4 > MAX_L4_OFFSET {
            return Err(Verdict::PassMalformed);
        }
        headers.l4 = packet.launder(headers.l4);
    }
    parse_l4(packet, headers, rest)
}

#[inline(always)]
fn parse_l4<P: Packet>(packet: &P, mut headers: Headers, rest: usize) -> Result<Headers, Verdict> {
    if let Piece::Later { .. } = headers.piece {
        headers.payload = rest as u32;
        return Ok(headers);
    }
    match headers.key.protocol {
        protocol::TCP => {
            let tcp = packet
                .window::<20>(headers.l4)
                .ok_or(Verdict::PassMalformed)?;
            let header = ((tcp.u8::<12>() >> 4) as usize) * 4;
            if header < 20 || header > rest {
                return Err(Verdict::PassMalformed);
            }
            headers.key.source_port = Be16(tcp.u16::<0>());
            headers.key.destination_port = Be16(tcp.u16::<2>());
            headers.tcp_flags = tcp.u8::<13>();
            headers.payload = (rest - header) as u32;
            Ok(headers)
        }
        protocol::UDP => {
            let udp = packet
                .window::<8>(headers.l4)
                .ok_or(Verdict::PassMalformed)?;
            let length = u16::from_be(udp.u16::<4>()) as usize;
            // The rest of it comes in later fragments.
            let in_pieces = matches!(headers.piece, Piece::First { .. });
            if rest < 8 || length < 8 || (length > rest && !in_pieces) {
                return Err(Verdict::PassMalformed);
            }
            let length = if in_pieces { rest } else { length };
            headers.key.source_port = Be16(udp.u16::<0>());
            headers.key.destination_port = Be16(udp.u16::<2>());
            headers.payload = (length - 8) as u32;
            Ok(headers)
        }
        protocol::ICMP | protocol::ICMPV6 => {
            if rest < 8 {
                return Err(Verdict::PassMalformed);
            }
            headers.payload = (rest - 8) as u32;
            Ok(headers)
        }
        _ => Err(Verdict::PassNotService),
    }
}

/// The packet quoted by an ICMP error: perhaps cut after eight bytes of L4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quoted {
    pub protocol: u32,
    pub source: Address,
    pub destination: Address,
    pub source_port: Be16,
    pub destination_port: Be16,
    /// Offset of the quoted TCP or UDP header.
    pub l4: usize,
}

/// Reads the packet quoted at `at`; nothing when it is no TCP or UDP packet we could know.
#[inline(always)]
#[must_use]
pub fn parse_quoted<P: Packet>(packet: &P, is_v4: bool, at: usize) -> Option<Quoted> {
    let mut quoted = if is_v4 {
        let ip = packet.window::<20>(at)?;
        let first = ip.u8::<0>();
        let header = ((first & 0x0f) as usize) * 4;
        // A later fragment quotes no ports.
        if first >> 4 != 4 || header < 20 || ip.u16::<6>() & 0x1fffu16.to_be() != 0 {
            return None;
        }
        Quoted {
            protocol: ip.u8::<9>() as u32,
            source: Address::v4(ip.u32::<12>()),
            destination: Address::v4(ip.u32::<16>()),
            source_port: Be16(0),
            destination_port: Be16(0),
            l4: at + header,
        }
    } else {
        let ip = packet.window::<40>(at)?;
        if ip.u8::<0>() >> 4 != 6 {
            return None;
        }
        Quoted {
            protocol: ip.u8::<6>() as u32,
            source: Address([
                ip.u32::<8>(),
                ip.u32::<12>(),
                ip.u32::<16>(),
                ip.u32::<20>(),
            ]),
            destination: Address([
                ip.u32::<24>(),
                ip.u32::<28>(),
                ip.u32::<32>(),
                ip.u32::<36>(),
            ]),
            source_port: Be16(0),
            destination_port: Be16(0),
            l4: at + 40,
        }
    };
    if quoted.protocol != protocol::TCP && quoted.protocol != protocol::UDP {
        return None;
    }
    let ports = packet.window::<8>(quoted.l4)?;
    quoted.source_port = Be16(ports.u16::<0>());
    quoted.destination_port = Be16(ports.u16::<2>());
    Some(quoted)
}
