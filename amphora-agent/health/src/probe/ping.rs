//! PING checks: an ICMP or ICMPv6 echo and its reply (RFC 792, RFC 4443 section 4).
//!
//! On a raw socket where the process may have one (CAP_NET_RAW), else on a datagram ICMP socket
//! where `net.ipv4.ping_group_range` lets it.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::Failure;
use crate::target::Target;

const ECHO_V4: u8 = 8;
const REPLY_V4: u8 = 0;
const ECHO_V6: u8 = 128;
const REPLY_V6: u8 = 129;
const HEADER: usize = 8;

pub(super) async fn make(target: &Target) -> Result<(), Failure> {
    let echo = Echo::new(target.address.is_ipv4());
    let socket = open(target).map_err(Failure::Connect)?;
    let exchange = async {
        socket.0.send(&echo.request()).await?;
        let mut packet = [0; 1500];
        loop {
            let len = socket.0.recv(&mut packet).await?;
            if echo.is_answered_by(packet.get(..len).unwrap_or_default(), socket.1) {
                return io::Result::Ok(());
            }
        }
    };
    match timeout(target.timeout, exchange).await {
        Ok(answered) => answered.map_err(Failure::Exchange),
        Err(_) => Err(Failure::Timeout),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// IPv4 packets come with their IP header.
    Raw,
    /// The kernel chooses the identifier.
    Datagram,
}

/// An ICMP socket in the clothes of a UDP one: once it is connected, sending and receiving are the
/// same system calls.
struct PingSocket(UdpSocket, Kind);

/// Connected, so that the kernel passes only what comes from the member.
fn open(target: &Target) -> io::Result<PingSocket> {
    let mut address = target.address;
    address.set_port(0);
    let (domain, protocol) = if address.is_ipv4() {
        (Domain::IPV4, Protocol::ICMPV4)
    } else {
        (Domain::IPV6, Protocol::ICMPV6)
    };
    let (socket, kind) = match Socket::new(domain, Type::RAW, Some(protocol)) {
        Ok(socket) => (socket, Kind::Raw),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => (
            Socket::new(domain, Type::DGRAM, Some(protocol))?,
            Kind::Datagram,
        ),
        Err(error) => return Err(error),
    };
    socket.set_nonblocking(true)?;
    socket.connect(&address.into())?;
    Ok(PingSocket(UdpSocket::from_std(socket.into())?, kind))
}

struct Echo {
    is_v4: bool,
    /// Distinguishes this echo from others of this process and of this machine.
    identifier: u16,
    sequence: u16,
    payload: [u8; 8],
}

impl Echo {
    fn new(is_v4: bool) -> Echo {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let [_, _, a, b] = number.to_be_bytes();
        let [_, _, c, d] = pid.to_be_bytes();
        let mut payload = [0; 8];
        payload[..4].copy_from_slice(&pid.to_be_bytes());
        payload[4..].copy_from_slice(&number.to_be_bytes());
        Echo {
            is_v4,
            identifier: u16::from_be_bytes([c, d]),
            sequence: u16::from_be_bytes([a, b]),
            payload,
        }
    }

    fn message(&self, kind: u8) -> [u8; HEADER + 8] {
        let mut message = [0; HEADER + 8];
        message[0] = kind;
        message[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        message[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        message[HEADER..].copy_from_slice(&self.payload);
        message
    }

    fn request(&self) -> [u8; HEADER + 8] {
        let mut message = self.message(if self.is_v4 { ECHO_V4 } else { ECHO_V6 });
        if self.is_v4 {
            // The kernel fills in ICMPv6's, which covers the addresses.
            let sum = checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        message
    }

    fn is_answered_by(&self, packet: &[u8], kind: Kind) -> bool {
        let message = if self.is_v4 && kind == Kind::Raw {
            let words = packet.first().map_or(0, |byte| usize::from(byte & 0x0f));
            packet.get(words * 4..).unwrap_or_default()
        } else {
            packet
        };
        let want = self.message(if self.is_v4 { REPLY_V4 } else { REPLY_V6 });
        let same_identifier = kind == Kind::Datagram || message.get(4..6) == want.get(4..6);
        same_identifier && message.get(..2) == want.get(..2) && message.get(6..) == want.get(6..)
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| match pair {
            [a, b] => u32::from(u16::from_be_bytes([*a, *b])),
            [a] => u32::from(*a) << 8,
            _ => 0,
        })
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_carries_a_checksum_that_sums_to_zero() {
        assert_eq!(checksum(&Echo::new(true).request()), 0);
        assert_eq!(checksum(&[0x45, 0x00, 0x00]), !0x4500);
    }

    #[test]
    fn only_the_reply_to_this_echo_counts() {
        let (echo, other) = (Echo::new(true), Echo::new(true));
        let mut reply = vec![0x45];
        reply.resize(20, 0);
        reply.extend_from_slice(&echo.message(REPLY_V4));
        assert!(echo.is_answered_by(&reply, Kind::Raw));
        assert!(!other.is_answered_by(&reply, Kind::Raw));
        assert!(echo.is_answered_by(&reply[20..], Kind::Datagram));
        for len in 0..reply.len() {
            assert!(!echo.is_answered_by(&reply[..len], Kind::Raw), "{len}");
        }
        let mut request = vec![0x45];
        request.resize(20, 0);
        request.extend_from_slice(&echo.request());
        assert!(
            !echo.is_answered_by(&request, Kind::Raw),
            "our own echo on loopback"
        );
        let six = Echo::new(false);
        assert!(six.is_answered_by(&six.message(REPLY_V6), Kind::Raw));
    }
}
