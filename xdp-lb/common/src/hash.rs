//! Small integer hashes, the same in the kernel and in user space.

use crate::address::Address;

/// Mixes 32 bits well (finaliser of `MurmurHash3`).
#[inline(always)]
#[must_use]
pub const fn mix(mut value: u32) -> u32 {
    value ^= value >> 16;
    value = value.wrapping_mul(0x85eb_ca6b);
    value ^= value >> 13;
    value = value.wrapping_mul(0xc2b2_ae35);
    value ^ (value >> 16)
}

/// Mixes two words.
#[inline(always)]
#[must_use]
pub const fn pair(a: u32, b: u32) -> u32 {
    mix(a ^ mix(b.wrapping_add(0x9e37_79b9)))
}

/// Hash of an address, for choosing a member by client.
#[inline(always)]
#[must_use]
pub const fn address(address: Address) -> u32 {
    let [a, b, c, d] = address.0;
    pair(pair(a, b), pair(c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_addresses_spread_evenly() {
        let mut buckets = [0u32; 16];
        for host in 0u32..16_000 {
            let word = (0x0a00_0000 | host).to_be();
            buckets[(super::address(Address::v4(word)) % 16) as usize] += 1;
        }
        for count in buckets {
            assert!((850..1150).contains(&count), "{buckets:?}");
        }
    }
}
