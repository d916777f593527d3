//! Addresses and ports as they are on the wire.

/// A 16-bit number in network byte order.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Be16(pub u16);

impl Be16 {
    /// From a host-order number.
    #[inline(always)]
    #[must_use]
    pub const fn new(host: u16) -> Self {
        Self(host.to_be())
    }

    /// To a host-order number.
    #[inline(always)]
    #[must_use]
    pub const fn host(self) -> u16 {
        u16::from_be(self.0)
    }
}

/// An IPv6 address, or an IPv4 address in its mapped form (`::ffff:a.b.c.d`), as four words whose
/// bytes lie in network order.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Address(pub [u32; 4]);

const _: () = assert!(size_of::<Address>() == 16);

const MAPPED: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);

impl Address {
    /// The mapped form of an IPv4 address given as its word in network order.
    #[inline(always)]
    #[must_use]
    pub const fn v4(word: u32) -> Self {
        Self([0, 0, MAPPED, word])
    }

    /// The IPv4 word in network order; meaningless for an IPv6 address.
    #[inline(always)]
    #[must_use]
    pub const fn v4_word(self) -> u32 {
        self.0[3]
    }

    /// Whether this is a mapped IPv4 address.
    #[inline(always)]
    #[must_use]
    pub const fn is_v4(self) -> bool {
        self.0[0] == 0 && self.0[1] == 0 && self.0[2] == MAPPED
    }
}

#[cfg(any(test, feature = "user"))]
mod user {
    use super::Address;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    impl From<Ipv4Addr> for Address {
        fn from(address: Ipv4Addr) -> Self {
            Self::v4(u32::from_ne_bytes(address.octets()))
        }
    }

    impl From<Ipv6Addr> for Address {
        fn from(address: Ipv6Addr) -> Self {
            let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = address.octets();
            Self([
                u32::from_ne_bytes([a, b, c, d]),
                u32::from_ne_bytes([e, f, g, h]),
                u32::from_ne_bytes([i, j, k, l]),
                u32::from_ne_bytes([m, n, o, p]),
            ])
        }
    }

    impl From<IpAddr> for Address {
        fn from(address: IpAddr) -> Self {
            match address {
                IpAddr::V4(v4) => v4.into(),
                IpAddr::V6(v6) => v6.into(),
            }
        }
    }

    impl From<Address> for IpAddr {
        fn from(address: Address) -> Self {
            if address.is_v4() {
                return IpAddr::V4(Ipv4Addr::from(address.v4_word().to_ne_bytes()));
            }
            let mut octets = [0u8; 16];
            for (chunk, word) in octets.chunks_exact_mut(4).zip(address.0) {
                chunk.copy_from_slice(&word.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn addresses_survive_the_way_through_words() {
        for text in [
            "10.1.2.3",
            "0.0.0.0",
            "2001:db8::1",
            "::1",
            "fe80::ffff:1:2",
        ] {
            let address: IpAddr = text.parse().expect("literal");
            let words = Address::from(address);
            assert_eq!(IpAddr::from(words), address);
            assert_eq!(words.is_v4(), address.is_ipv4());
        }
    }
}
