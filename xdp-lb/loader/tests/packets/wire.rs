//! Builds and checks packets, independently of the code under test.

use std::net::IpAddr;

use xdp_lb_common::address::Address;
use xdp_lb_common::checksum::{full, pseudo_header};

pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xc];
pub(crate) const MEMBER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xe];
pub(crate) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

pub(crate) const SYN: u8 = 0x02;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const RST: u8 = 0x04;
pub(crate) const FIN: u8 = 0x01;

/// One end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

pub(crate) fn end(address: &str, port: u16) -> End {
    End {
        address: address.parse().expect("literal"),
        port,
    }
}

/// A packet to build.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) source: End,
    pub(crate) destination: End,
    pub(crate) l4: L4,
    pub(crate) ttl: u8,
    /// IPv4 options, a multiple of four.
    pub(crate) options: Vec<u8>,
    /// IPv6 extension headers: (type, bytes), each a multiple of eight.
    pub(crate) extensions: Vec<(u8, Vec<u8>)>,
    pub(crate) payload: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum L4 {
    Tcp(u8),
    Udp { checksum: bool },
}

impl Spec {
    pub(crate) fn tcp(source: End, destination: End, flags: u8, payload: &[u8]) -> Self {
        Self {
            source,
            destination,
            l4: L4::Tcp(flags),
            ttl: 64,
            options: Vec::new(),
            extensions: Vec::new(),
            payload: payload.to_vec(),
        }
    }

    pub(crate) fn udp(source: End, destination: End, payload: &[u8]) -> Self {
        Self {
            l4: L4::Udp { checksum: true },
            ..Self::tcp(source, destination, 0, payload)
        }
    }

    /// The L3 packet and above.
    pub(crate) fn l3(&self) -> Vec<u8> {
        let (protocol, mut l4) = match self.l4 {
            L4::Tcp(flags) => {
                let mut header = vec![0u8; 20];
                header[12] = 5 << 4;
                header[13] = flags;
                header[14..16].copy_from_slice(&[0x20, 0]);
                (6u8, header)
            }
            L4::Udp { .. } => {
                let length = u16::try_from(8 + self.payload.len()).expect("small");
                let mut header = vec![0u8; 8];
                header[4..6].copy_from_slice(&length.to_be_bytes());
                (17u8, header)
            }
        };
        l4[0..2].copy_from_slice(&self.source.port.to_be_bytes());
        l4[2..4].copy_from_slice(&self.destination.port.to_be_bytes());
        l4.extend_from_slice(&self.payload);
        if self.l4 != (L4::Udp { checksum: false }) {
            let sum = pseudo_header(
                Address::from(self.source.address),
                Address::from(self.destination.address),
                protocol,
                u16::try_from(l4.len()).expect("small"),
            );
            let field = if protocol == 6 { 16 } else { 6 };
            let checksum = full(sum, &l4);
            l4[field..field + 2].copy_from_slice(&checksum.to_ne_bytes());
        }
        ip(
            self.source.address,
            self.destination.address,
            protocol,
            self.ttl,
            &self.options,
            &self.extensions,
            &l4,
        )
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        frame(&self.l3(), self.source.address.is_ipv4())
    }
}

fn ip(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ttl: u8,
    options: &[u8],
    extensions: &[(u8, Vec<u8>)],
    l4: &[u8],
) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = 20 + options.len();
            let mut ip = vec![0u8; 20];
            ip[0] = 0x40 | u8::try_from(header / 4).expect("short");
            let total = u16::try_from(header + l4.len()).expect("small");
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            ip[8] = ttl;
            ip[9] = protocol;
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
            ip.extend_from_slice(options);
            let checksum = full(0, &ip);
            ip[10..12].copy_from_slice(&checksum.to_ne_bytes());
            ip.extend_from_slice(l4);
            ip
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut next = protocol;
            let mut rest = l4.to_vec();
            for (kind, bytes) in extensions.iter().rev() {
                let mut extension = bytes.clone();
                extension[0] = next;
                extension[1] = u8::try_from(bytes.len() / 8 - 1).expect("short");
                extension.extend_from_slice(&rest);
                rest = extension;
                next = *kind;
            }
            let mut ip = vec![0u8; 40];
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&u16::try_from(rest.len()).expect("small").to_be_bytes());
            ip[6] = next;
            ip[7] = ttl;
            ip[8..24].copy_from_slice(&source.octets());
            ip[24..40].copy_from_slice(&destination.octets());
            ip.extend_from_slice(&rest);
            ip
        }
        _ => panic!("one family per packet"),
    }
}

pub(crate) fn frame(l3: &[u8], is_v4: bool) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&OUR_MAC);
    frame.extend_from_slice(&CLIENT_MAC);
    frame.extend_from_slice(if is_v4 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
    frame.extend_from_slice(l3);
    frame
}

/// An L3 packet without options or extension headers in pieces of `size` bytes of payload, a multiple
/// of eight, all with this id.
pub(crate) fn pieces(l3: &[u8], size: usize, id: u16) -> Vec<Vec<u8>> {
    let is_v4 = l3[0] >> 4 == 4;
    let header = if is_v4 { 20 } else { 40 };
    let (header, payload) = l3.split_at(header);
    let count = payload.chunks(size).count();
    payload
        .chunks(size)
        .enumerate()
        .map(|(index, chunk)| {
            let at = u16::try_from(index * size / 8).expect("small");
            let more = index + 1 < count;
            let mut piece = header.to_vec();
            if is_v4 {
                let total = u16::try_from(20 + chunk.len()).expect("small");
                piece[2..4].copy_from_slice(&total.to_be_bytes());
                piece[4..6].copy_from_slice(&id.to_be_bytes());
                piece[6..8].copy_from_slice(&(at | u16::from(more) << 13).to_be_bytes());
                piece[10..12].fill(0);
                let checksum = full(0, &piece);
                piece[10..12].copy_from_slice(&checksum.to_ne_bytes());
            } else {
                let rest = u16::try_from(8 + chunk.len()).expect("small");
                piece[4..6].copy_from_slice(&rest.to_be_bytes());
                let protocol = std::mem::replace(&mut piece[6], 44);
                piece.extend_from_slice(&[protocol, 0]);
                piece.extend_from_slice(&(at << 3 | u16::from(more)).to_be_bytes());
                piece.extend_from_slice(&u32::from(id).to_be_bytes());
            }
            piece.extend_from_slice(chunk);
            piece
        })
        .collect()
}

/// The L3 packet that pieces in order, with the same addresses and id, make up.
pub(crate) fn whole(pieces: &[Vec<u8>]) -> Vec<u8> {
    let is_v4 = pieces[0][0] >> 4 == 4;
    let (header, same) = if is_v4 { (20, 12..20) } else { (48, 8..40) };
    let id = if is_v4 { 4..6 } else { 44..48 };
    let mut payload = Vec::new();
    for piece in pieces {
        assert_eq!(piece[same.clone()], pieces[0][same.clone()], "addresses");
        assert_eq!(piece[id.clone()], pieces[0][id.clone()], "id");
        if is_v4 {
            assert_eq!(full(0, &piece[..20]), 0, "IPv4 header checksum");
        }
        payload.extend_from_slice(&piece[header..]);
    }
    let mut l3 = pieces[0][..if is_v4 { 20 } else { 40 }].to_vec();
    if is_v4 {
        let total = u16::try_from(20 + payload.len()).expect("small");
        l3[2..4].copy_from_slice(&total.to_be_bytes());
        l3[6..8].fill(0);
        l3[10..12].fill(0);
        let checksum = full(0, &l3);
        l3[10..12].copy_from_slice(&checksum.to_ne_bytes());
    } else {
        let rest = u16::try_from(payload.len()).expect("small");
        l3[4..6].copy_from_slice(&rest.to_be_bytes());
        l3[6] = pieces[0][40];
    }
    l3.extend_from_slice(&payload);
    l3
}

/// An ICMP error about `quoted` (an L3 packet, cut as given).
pub(crate) fn icmp_error(from: IpAddr, to: IpAddr, kind: u8, code: u8, quoted: &[u8]) -> Vec<u8> {
    let mut icmp = vec![kind, code, 0, 0, 0, 0, 0x05, 0x14];
    icmp.extend_from_slice(quoted);
    let is_v4 = from.is_ipv4();
    let protocol = if is_v4 { 1 } else { 58 };
    let start = if is_v4 {
        0
    } else {
        let length = u16::try_from(icmp.len()).expect("small");
        pseudo_header(from.into(), to.into(), protocol, length)
    };
    let checksum = full(start, &icmp);
    icmp[2..4].copy_from_slice(&checksum.to_ne_bytes());
    frame(&ip(from, to, protocol, 64, &[], &[], &icmp), is_v4)
}

/// What is to be seen in a packet, checksums verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) source: End,
    pub(crate) destination: End,
    pub(crate) protocol: u8,
    pub(crate) ttl: u8,
    pub(crate) l4: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) destination_mac: [u8; 6],
}

/// Reads a frame back; panics on any wrong checksum.
pub(crate) fn read(frame: &[u8]) -> Seen {
    let mut seen = read_l3(&frame[14..], true);
    seen.destination_mac = frame[0..6].try_into().expect("six bytes");
    seen
}

/// Reads an L3 packet back. A quoted packet may be cut: then its L4 checksum is not verified.
pub(crate) fn read_l3(l3: &[u8], whole: bool) -> Seen {
    let (source, destination, mut protocol, ttl, mut l4): (IpAddr, IpAddr, u8, u8, &[u8]);
    if l3[0] >> 4 == 4 {
        let header = usize::from(l3[0] & 15) * 4;
        assert_eq!(full(0, &l3[..header]), 0, "IPv4 header checksum");
        source = IpAddr::from(<[u8; 4]>::try_from(&l3[12..16]).expect("four bytes"));
        destination = IpAddr::from(<[u8; 4]>::try_from(&l3[16..20]).expect("four bytes"));
        protocol = l3[9];
        ttl = l3[8];
        l4 = &l3[header..];
    } else {
        source = IpAddr::from(<[u8; 16]>::try_from(&l3[8..24]).expect("sixteen bytes"));
        destination = IpAddr::from(<[u8; 16]>::try_from(&l3[24..40]).expect("sixteen bytes"));
        protocol = l3[6];
        ttl = l3[7];
        l4 = &l3[40..];
        while [0, 43, 60].contains(&protocol) {
            protocol = l4[0];
            l4 = &l4[8 * (usize::from(l4[1]) + 1)..];
        }
    }
    if whole && !(protocol == 17 && l4[6..8] == [0, 0]) {
        let length = u16::try_from(l4.len()).expect("small");
        let start = if protocol == 1 {
            0
        } else {
            pseudo_header(source.into(), destination.into(), protocol, length)
        };
        assert_eq!(full(start, l4), 0, "checksum of protocol {protocol}");
    }
    let (ports, header) = match protocol {
        6 => (true, 20),
        17 => (true, 8),
        _ => (false, 8),
    };
    let port = |at: usize| {
        if ports {
            u16::from_be_bytes([l4[at], l4[at + 1]])
        } else {
            0
        }
    };
    Seen {
        source: End {
            address: source,
            port: port(0),
        },
        destination: End {
            address: destination,
            port: port(2),
        },
        protocol,
        ttl,
        l4: l4.to_vec(),
        payload: l4.get(header..).unwrap_or_default().to_vec(),
        destination_mac: [0; 6],
    }
}
