//! Internet checksum arithmetic (RFC 1071, RFC 1624) on words as they lie in memory.
//!
//! One's complement sums do not care for byte order as long as all words have the same, so nothing
//! here swaps bytes.

use crate::address::{Address, Be16};

/// A one's complement difference, not yet folded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delta(u32);

impl Delta {
    /// No change.
    pub const NONE: Self = Self(0);

    /// A difference folded earlier.
    #[inline(always)]
    #[must_use]
    pub const fn from_folded(folded: u16) -> Self {
        Self(folded as u32)
    }

    /// Adds another difference.
    #[inline(always)]
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// Adds the change of one 16-bit word.
    #[inline(always)]
    #[must_use]
    pub const fn word16(self, old: u16, new: u16) -> Self {
        Self(self.0 + (!old) as u32 + new as u32)
    }

    /// Adds the change of one 32-bit word.
    #[inline(always)]
    #[must_use]
    pub const fn word32(self, old: u32, new: u32) -> Self {
        let old = !old;
        Self(self.0 + (old & 0xffff) + (old >> 16) + (new & 0xffff) + (new >> 16))
    }

    /// Adds the change of an address.
    #[inline(always)]
    #[must_use]
    pub const fn address(self, old: Address, new: Address) -> Self {
        self.word32(old.0[0], new.0[0])
            .word32(old.0[1], new.0[1])
            .word32(old.0[2], new.0[2])
            .word32(old.0[3], new.0[3])
    }

    /// Adds the change of a port.
    #[inline(always)]
    #[must_use]
    pub const fn port(self, old: Be16, new: Be16) -> Self {
        self.word16(old.0, new.0)
    }

    /// Folds to 16 bits.
    #[inline(always)]
    #[must_use]
    pub const fn fold(self) -> u16 {
        let sum = (self.0 & 0xffff) + (self.0 >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    /// The checksum that `checksum` becomes by this difference.
    #[inline(always)]
    #[must_use]
    pub const fn apply(self, checksum: u16) -> u16 {
        !Self(self.0 + (!checksum) as u32).fold()
    }

    /// As [`Self::apply`] for UDP: 0 says "none" and stays, a computed 0 is sent as 0xffff (RFC 768).
    #[inline(always)]
    #[must_use]
    pub const fn apply_udp(self, checksum: u16) -> u16 {
        if checksum == 0 {
            return 0;
        }
        match self.apply(checksum) {
            0 => 0xffff,
            other => other,
        }
    }
}

/// Full checksum over bytes, with a start value from [`pseudo_header`]; for tests and builders.
#[cfg(any(test, feature = "user"))]
#[must_use]
pub fn full(start: u32, bytes: &[u8]) -> u16 {
    let mut sum = u64::from(start);
    let mut words = bytes.chunks_exact(2);
    for word in &mut words {
        if let [a, b] = word {
            sum += u64::from(u16::from_ne_bytes([*a, *b]));
        }
    }
    if let [last] = words.remainder() {
        sum += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Sum of the pseudo header of `length` bytes of `protocol`.
#[cfg(any(test, feature = "user"))]
#[must_use]
pub fn pseudo_header(source: Address, destination: Address, protocol: u8, length: u16) -> u32 {
    let mut sum = 0u32;
    let words = |address: Address| {
        if address.is_v4() {
            [0, 0, 0, address.v4_word()]
        } else {
            address.0
        }
    };
    for word in words(source).into_iter().chain(words(destination)) {
        sum += (word & 0xffff) + (word >> 16);
    }
    sum + u32::from(u16::from(protocol).to_be()) + u32::from(length.to_be())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_incremental_update_equals_a_full_sum(
            mut bytes in prop::collection::vec(any::<u8>(), 20..200),
            new in any::<[u8; 4]>(),
            at in 0usize..4,
        ) {
            bytes[0] |= 1; // an all-zero buffer has two checksums
            let before = full(0, &bytes);
            let at = at * 4;
            let old: [u8; 4] = bytes[at..at + 4].try_into().expect("four bytes");
            bytes[at..at + 4].copy_from_slice(&new);
            prop_assume!(bytes.iter().any(|b| *b != 0));
            let delta = Delta::NONE.word32(u32::from_ne_bytes(old), u32::from_ne_bytes(new));
            prop_assert_eq!(delta.apply(before), full(0, &bytes));
            let folded = Delta::from_folded(delta.fold());
            prop_assert_eq!(folded.apply(before), full(0, &bytes));
        }

        #[test]
        fn a_delta_and_its_inverse_cancel(old in any::<[u32; 4]>(), new in any::<[u32; 4]>(), sum in 1u16..0xffff) {
            let (old, new) = (Address(old), Address(new));
            let there = Delta::NONE.address(old, new).apply(sum);
            let back = Delta::NONE.address(new, old).apply(there);
            prop_assert!(back == sum || (back ^ sum) == 0xffff);
        }
    }

    #[test]
    fn udp_checksum_zero_stays_zero() {
        assert_eq!(Delta::NONE.word16(1, 2).apply_udp(0), 0);
    }

    #[test]
    fn udp_checksum_never_becomes_zero() {
        for new in 0..=u16::MAX {
            assert_ne!(Delta::NONE.word16(0x1234, new).apply_udp(0x4321), 0);
        }
    }
}
