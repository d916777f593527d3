//! The schedules that programs read: which member has which turn. Pure; built by the loader.

use crate::hash;
use crate::limits::MAX_RING_LENGTH;

/// A member that may get new flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub slot: u32,
    /// Above 0.
    pub weight: u32,
    /// Stays the same for the member's life; orders and hashes it.
    pub identity: u128,
}

/// Smooth weighted round robin, one full cycle: each member has `weight` turns, spread evenly.
///
/// Weights are reduced by their greatest common divisor; if the cycle would still be longer than
/// [`MAX_RING_LENGTH`], shares are rounded to it, each member keeping at least one turn.
#[must_use]
pub fn round_robin(candidates: &[Candidate]) -> Vec<u32> {
    let weights = reduce(candidates);
    let total: i64 = weights.iter().sum();
    let mut current = vec![0i64; weights.len()];
    let mut ring = Vec::new();
    for _ in 0..total {
        // nginx's algorithm: everyone gains its weight, the richest takes the turn and pays the total.
        let mut best: Option<usize> = None;
        for (index, weight) in weights.iter().enumerate() {
            current[index] += weight;
            if best.is_none_or(|b| current[index] > current[b]) {
                best = Some(index);
            }
        }
        if let Some(best) = best {
            current[best] -= total;
            ring.push(candidates[best].slot);
        }
    }
    ring
}

fn reduce(candidates: &[Candidate]) -> Vec<i64> {
    let divisor = candidates
        .iter()
        .fold(0, |divisor, candidate| gcd(divisor, candidate.weight))
        .max(1);
    let weights: Vec<u64> = candidates
        .iter()
        .map(|candidate| u64::from(candidate.weight / divisor))
        .collect();
    let total: u64 = weights.iter().sum();
    let limit = u64::from(MAX_RING_LENGTH);
    weights
        .into_iter()
        .map(|weight| {
            let scaled = if total > limit {
                // Rounding up to one turn at most adds a turn per member.
                (weight * limit.saturating_sub(candidates.len() as u64) / total).max(1)
            } else {
                weight
            };
            i64::try_from(scaled).unwrap_or(1)
        })
        .collect()
}

const fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Each member once, in a stable order.
#[must_use]
pub fn each_once(candidates: &[Candidate]) -> Vec<u32> {
    candidates.iter().map(|candidate| candidate.slot).collect()
}

/// A Maglev table (Eisenbud and others, NSDI 2016): a client's hash picks an entry, and a change of
/// one member moves few entries of the others. A member's share of entries follows its weight.
#[must_use]
pub fn maglev(candidates: &[Candidate]) -> Vec<u32> {
    if candidates.is_empty() {
        return Vec::new();
    }
    // Primes, so that every step visits every entry; about a hundred entries for each member.
    let size: u32 = match candidates.len() {
        0..=10 => 1021,
        11..=40 => 4093,
        _ => 8191,
    };
    let heaviest = candidates.iter().map(|c| c.weight).max().unwrap_or(1);
    struct Walk {
        at: u32,
        step: u32,
        credit: u64,
    }
    let mut walks: Vec<Walk> = candidates
        .iter()
        .map(|candidate| {
            let words = [
                (candidate.identity >> 96) as u32,
                (candidate.identity >> 64) as u32,
                (candidate.identity >> 32) as u32,
                candidate.identity as u32,
            ];
            let seed = words.into_iter().fold(0x9e37_79b9, hash::pair);
            Walk {
                at: hash::pair(seed, 1) % size,
                step: hash::pair(seed, 2) % (size - 1) + 1,
                credit: 0,
            }
        })
        .collect();
    let mut table = vec![None; size as usize];
    let mut free = size;
    while free > 0 {
        for (candidate, walk) in candidates.iter().zip(&mut walks) {
            walk.credit += u64::from(candidate.weight);
            if walk.credit < u64::from(heaviest) {
                continue;
            }
            walk.credit -= u64::from(heaviest);
            while table[walk.at as usize].is_some() {
                walk.at = (walk.at + walk.step) % size;
            }
            table[walk.at as usize] = Some(candidate.slot);
            free -= 1;
            if free == 0 {
                break;
            }
        }
    }
    table.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn candidates(weights: &[u32]) -> Vec<Candidate> {
        weights
            .iter()
            .enumerate()
            .map(|(index, weight)| Candidate {
                slot: u32::try_from(index).expect("few"),
                weight: *weight,
                identity: (index as u128 + 1)
                    .wrapping_mul(0x1234_5678_9abc_def0_1122_3344_5566_7789),
            })
            .collect()
    }

    fn shares(ring: &[u32]) -> HashMap<u32, usize> {
        let mut shares = HashMap::new();
        for slot in ring {
            *shares.entry(*slot).or_default() += 1;
        }
        shares
    }

    #[test]
    fn one_two_one_takes_turns_smoothly() {
        assert_eq!(round_robin(&candidates(&[1, 2, 1])), [1, 0, 2, 1]);
        assert_eq!(round_robin(&candidates(&[10, 20, 10])), [1, 0, 2, 1]);
    }

    #[test]
    fn no_candidates_make_no_schedule() {
        assert!(round_robin(&[]).is_empty());
        assert!(maglev(&[]).is_empty());
        assert!(each_once(&[]).is_empty());
    }

    #[test]
    fn many_heavy_members_fit_the_longest_schedule() {
        let weights: Vec<u32> = (0..1000).map(|n| 255 + n % 2).collect();
        let ring = round_robin(&candidates(&weights));
        assert!(ring.len() <= MAX_RING_LENGTH as usize);
        assert_eq!(shares(&ring).len(), 1000);
    }

    #[test]
    fn removing_a_member_moves_few_clients_of_the_others() {
        let all = candidates(&[1; 8]);
        let fewer: Vec<Candidate> = all.iter().copied().filter(|c| c.slot != 3).collect();
        let (before, after) = (maglev(&all), maglev(&fewer));
        assert_eq!(before.len(), after.len());
        let moved = before
            .iter()
            .zip(&after)
            .filter(|(old, new)| **old != 3 && old != new)
            .count();
        assert!(moved * 10 < before.len(), "{moved} of {}", before.len());
    }

    #[test]
    fn maglev_shares_follow_weights() {
        let shares = shares(&maglev(&candidates(&[1, 2, 1])));
        let double = shares[&1] as f64;
        let single = (shares[&0] + shares[&2]) as f64;
        assert!((double / single - 1.0).abs() < 0.02, "{shares:?}");
    }

    proptest! {
        #[test]
        fn shares_are_exact_over_one_cycle(weights in prop::collection::vec(1u32..=256, 1..12)) {
            let ring = round_robin(&candidates(&weights));
            prop_assert!(!ring.is_empty());
            let shares = shares(&ring);
            let total: u32 = weights.iter().sum();
            for (index, weight) in weights.iter().enumerate() {
                let share = shares[&u32::try_from(index).expect("few")];
                prop_assert_eq!(share * total as usize, ring.len() * *weight as usize);
            }
        }
    }
}
