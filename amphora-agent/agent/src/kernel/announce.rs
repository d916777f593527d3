//! Telling the neighbours who has an address now: gratuitous ARP (RFC 5227 section 3) and unsolicited neighbour
//! advertisements (RFC 4861 section 7.2.6), as whole Ethernet frames.
//!
//! Both ARP forms go out, request and reply: some stacks learn from one only. The first round goes out before
//! [`announce`] returns, two more follow within a second: a frame may be lost, and a switch port may be new.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};
use tokio::task::AbortHandle;

const BROADCAST: [u8; 6] = [0xff; 6];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];

const ARP_REQUEST: u16 = 1;
const ARP_REPLY: u16 = 2;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// Waits before the second and the third round.
const REPEATS: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(600)];

/// Call on a thread of the interface's namespace, within a runtime. The repeats that follow are to be aborted when the
/// address is given up: neighbours believe who spoke last.
pub(super) fn announce(index: u32, mac: [u8; 6], address: IpAddr) -> io::Result<AbortHandle> {
    let frames = frames(mac, address);
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
    socket.set_nonblocking(true)?;
    let to = link_address(index)?;
    send(&socket, &to, &frames)?;
    let repeats = tokio::spawn(async move {
        for wait in REPEATS {
            tokio::time::sleep(wait).await;
            if let Err(error) = send(&socket, &to, &frames) {
                tracing::debug!(%address, %error, "announcement not repeated");
            }
        }
    });
    Ok(repeats.abort_handle())
}

fn send(socket: &Socket, to: &SockAddr, frames: &[Vec<u8>]) -> io::Result<()> {
    for frame in frames {
        socket.send_to(frame, to)?;
    }
    Ok(())
}

fn frames(mac: [u8; 6], address: IpAddr) -> Vec<Vec<u8>> {
    match address {
        IpAddr::V4(address) => vec![
            gratuitous_arp(ARP_REQUEST, mac, address),
            gratuitous_arp(ARP_REPLY, mac, address),
        ],
        IpAddr::V6(address) => vec![unsolicited_advertisement(mac, address)],
    }
}

fn gratuitous_arp(operation: u16, mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let target_mac = match operation {
        ARP_REPLY => mac,
        _ => [0; 6],
    };
    let mut frame = Vec::with_capacity(42);
    frame.extend(BROADCAST);
    frame.extend(mac);
    frame.extend([0x08, 0x06]);
    // Ethernet and IPv4, with address lengths 6 and 4.
    frame.extend([0, 1, 0x08, 0x00, 6, 4]);
    frame.extend(operation.to_be_bytes());
    frame.extend(mac);
    frame.extend(address.octets());
    frame.extend(target_mac);
    frame.extend(address.octets());
    frame
}

fn unsolicited_advertisement(mac: [u8; 6], address: Ipv6Addr) -> Vec<u8> {
    let mut message = Vec::with_capacity(32);
    message.extend([NEIGHBOUR_ADVERTISEMENT, 0, 0, 0]);
    // Override, not solicited, not a router.
    message.extend([0x20, 0, 0, 0]);
    message.extend(address.octets());
    // Target link-layer address, one unit of 8 octets.
    message.extend([2, 1]);
    message.extend(mac);
    let checksum = icmpv6_checksum(address, ALL_NODES, &message);
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }

    let mut frame = Vec::with_capacity(86);
    frame.extend(ALL_NODES_MAC);
    frame.extend(mac);
    frame.extend([0x86, 0xdd]);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(32u16.to_be_bytes());
    // ICMPv6, hop limit 255 (a receiver drops anything less).
    frame.extend([58, 255]);
    frame.extend(address.octets());
    frame.extend(ALL_NODES.octets());
    frame.extend(message);
    frame
}

/// RFC 4443 section 2.3, over the pseudo-header of RFC 8200 section 8.1.
fn icmpv6_checksum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let pseudo = [
        &from.octets()[..],
        &to.octets(),
        &length.to_be_bytes(),
        &[0, 0, 0, 58],
    ]
    .concat();
    let mut sum: u32 = 0;
    for bytes in [&pseudo[..], message] {
        for pair in bytes.chunks(2) {
            let high = pair.first().copied().unwrap_or(0);
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u32::from(u16::from_be_bytes([high, low]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

/// Where a frame leaves: an interface by its index. The frame itself says to whom it goes.
fn link_address(index: u32) -> io::Result<SockAddr> {
    let index = i32::try_from(index).map_err(io::Error::other)?;
    let mut storage = SockAddrStorage::zeroed();
    let length =
        libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(io::Error::other)?;
    #[expect(
        unsafe_code,
        reason = "socket2 has no safe way to write a packet address"
    )]
    // SAFETY: sockaddr_ll is the layout of AF_PACKET, which the storage is marked as, and it is smaller than the
    // storage; all bytes were zero before, which is valid for each of its fields.
    let address = unsafe {
        let ll = storage.view_as::<libc::sockaddr_ll>();
        ll.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or_default();
        ll.sll_ifindex = index;
        ll.sll_halen = 6;
        SockAddr::new(storage, length)
    };
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0xfa, 0x16, 0x3e, 1, 2, 3];

    #[test]
    fn gratuitous_arp_names_the_address_as_sender_and_target() {
        let address = Ipv4Addr::new(10, 0, 0, 100);
        for (operation, target_mac) in [(ARP_REQUEST, [0; 6]), (ARP_REPLY, MAC)] {
            let frame = gratuitous_arp(operation, MAC, address);
            assert_eq!(frame.len(), 42);
            assert_eq!(frame[..6], BROADCAST);
            assert_eq!(frame[6..12], MAC);
            assert_eq!(frame[12..20], [8, 6, 0, 1, 8, 0, 6, 4]);
            assert_eq!(frame[20..22], operation.to_be_bytes());
            assert_eq!(frame[22..28], MAC);
            assert_eq!(frame[28..32], [10, 0, 0, 100]);
            assert_eq!(frame[32..38], target_mac);
            assert_eq!(frame[38..42], [10, 0, 0, 100]);
        }
    }

    #[test]
    fn an_unsolicited_advertisement_has_a_checksum_that_adds_up() {
        let address: Ipv6Addr = "fd00::100".parse().unwrap();
        let frame = unsolicited_advertisement(MAC, address);
        assert_eq!(frame.len(), 14 + 40 + 32);
        assert_eq!(frame[21], 255, "hop limit");
        assert_eq!(frame[54], 136);
        assert_eq!(frame[58] & 0xe0, 0x20, "override and nothing else");
        assert_eq!(frame[62..78], address.octets());
        assert_eq!(frame[80..86], MAC);
        // A sum over a message with its right checksum is zero.
        assert_eq!(icmpv6_checksum(address, ALL_NODES, &frame[54..]), 0);
    }

    #[test]
    fn an_ipv4_address_is_announced_in_both_forms() {
        assert_eq!(frames(MAC, "10.0.0.1".parse().unwrap()).len(), 2);
        assert_eq!(frames(MAC, "fd00::1".parse().unwrap()).len(), 1);
    }
}
