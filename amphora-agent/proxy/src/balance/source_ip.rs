//! The same member for the same client address, as long as the usable members stay the same.
//!
//! Hash of the address modulo the total weight. The hash is fixed, so that both amphorae of a load
//! balancer and every restart choose alike.

use std::net::IpAddr;

#[derive(Debug)]
pub(crate) struct SourceIp {
    /// Running sums of the weights of the usable members.
    sums: Vec<u64>,
}

impl SourceIp {
    pub(crate) fn new(weights: impl Iterator<Item = u16>) -> Self {
        let sums = weights
            .scan(0, |sum, weight| {
                *sum += u64::from(weight);
                Some(*sum)
            })
            .collect();
        SourceIp { sums }
    }

    pub(crate) fn pick(&self, client: IpAddr) -> Option<usize> {
        let total = self.sums.last().copied().filter(|total| *total > 0)?;
        let point = hash(client) % total;
        Some(self.sums.partition_point(|sum| *sum <= point))
    }
}

/// FNV-1a with a final mix: neighbouring addresses must not share their low bits.
fn hash(client: IpAddr) -> u64 {
    let fold = |bytes: &[u8]| {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    };
    let mut hash = match client.to_canonical() {
        IpAddr::V4(address) => fold(&address.octets()),
        IpAddr::V6(address) => fold(&address.octets()),
    };
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn clients_are_spread_by_weight_and_stay() {
        let balance = SourceIp::new([1, 2, 1].into_iter());
        let mut counts = [0u32; 3];
        for n in 0..4000u32 {
            let client = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n));
            let member = balance.pick(client).unwrap();
            assert_eq!(balance.pick(client), Some(member));
            counts[member] += 1;
        }
        for (count, share) in counts.iter().zip([1000u32, 2000, 1000]) {
            assert!(count.abs_diff(share) < 150, "{counts:?}");
        }
        assert_eq!(
            SourceIp::new([].into_iter()).pick(Ipv4Addr::LOCALHOST.into()),
            None
        );
    }
}
