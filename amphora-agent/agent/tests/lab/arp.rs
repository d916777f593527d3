//! ARP as a neighbour of the amphora sees it, on a packet socket.

use std::io;
use std::net::Ipv4Addr;
use std::time::Instant;

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use crate::support::{DEADLINE, ip};

const ARP: u16 = 0x0806;

/// An open packet socket of one interface.
pub(crate) struct Neighbour {
    socket: Socket,
    mac: [u8; 6],
    address: Ipv4Addr,
}

impl Neighbour {
    /// Call on a thread of the namespace.
    pub(crate) fn open(namespace: &str, device: &str, address: Ipv4Addr) -> Self {
        let protocol = Protocol::from(i32::from(ARP.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).unwrap();
        let index = ip(&format!("-n {namespace} -o link show {device}"));
        let index: i32 = index.split(':').next().unwrap().trim().parse().unwrap();
        socket.bind(&packet_address(index)).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        let shown = ip(&format!("-n {namespace} -o link show {device}"));
        let mut words = shown.split_whitespace();
        words.find(|word| *word == "link/ether").unwrap();
        let mac = amphora_api::parse_mac(words.next().unwrap()).unwrap();
        Neighbour {
            socket,
            mac,
            address,
        }
    }

    /// Asks who has an address.
    pub(crate) fn ask(&self, address: Ipv4Addr) {
        let mut frame = Vec::new();
        frame.extend([0xff; 6]);
        frame.extend(self.mac);
        frame.extend(ARP.to_be_bytes());
        frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend(self.mac);
        frame.extend(self.address.octets());
        frame.extend([0; 6]);
        frame.extend(address.octets());
        self.socket.send(&frame).unwrap();
    }

    /// Sender MAC, sender address and target address of the next ARP packet that `wanted` holds for.
    pub(crate) fn hear(
        &self,
        what: &str,
        mut wanted: impl FnMut(&[u8; 6], Ipv4Addr, Ipv4Addr) -> bool,
    ) -> [u8; 6] {
        let deadline = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < deadline, "no ARP packet with {what}");
            let mut buffer = [0u8; 128];
            let length = io::Read::read(&mut &self.socket, &mut buffer)
                .unwrap_or_else(|error| panic!("no ARP packet with {what}: {error}"));
            if length < 42 {
                continue;
            }
            let mac: [u8; 6] = buffer[22..28].try_into().unwrap();
            let sender = Ipv4Addr::from(<[u8; 4]>::try_from(&buffer[28..32]).unwrap());
            let target = Ipv4Addr::from(<[u8; 4]>::try_from(&buffer[38..42]).unwrap());
            if wanted(&mac, sender, target) {
                return mac;
            }
        }
    }
}

fn packet_address(index: i32) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).unwrap();
    #[expect(
        unsafe_code,
        reason = "socket2 has no safe way to write a packet address"
    )]
    // SAFETY: sockaddr_ll is the layout of AF_PACKET and smaller than the zeroed storage.
    unsafe {
        let ll = storage.view_as::<libc::sockaddr_ll>();
        ll.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
        ll.sll_protocol = ARP.to_be();
        ll.sll_ifindex = index;
        SockAddr::new(storage, length)
    }
}
