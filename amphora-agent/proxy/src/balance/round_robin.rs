//! Smooth weighted round robin, one for all threads.
//!
//! Every turn adds each member's weight to its credit, takes the richest, and has it pay the sum
//! of the weights. Shares are exact in every run of "sum of weights" turns, and spread as evenly
//! as they can be. Credits follow their members over a change of the pool.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::PoisonError;

use uuid::Uuid;

#[derive(Debug)]
pub(crate) struct RoundRobin {
    weights: Vec<i64>,
    credits: Mutex<Vec<i64>>,
}

impl RoundRobin {
    /// `members` are the usable ones with their weights; `before` holds the credits they had.
    pub(crate) fn new(members: &[(Uuid, u16)], before: &HashMap<Uuid, i64>) -> Self {
        let weights: Vec<i64> = members.iter().map(|(_, w)| i64::from(*w)).collect();
        let total: i64 = weights.iter().sum();
        let credits = members
            .iter()
            .map(|(id, _)| before.get(id).map_or(0, |c| (*c).clamp(-total, total)))
            .collect();
        RoundRobin {
            weights,
            credits: Mutex::new(credits),
        }
    }

    /// The index of the next member; `None` when there are none.
    pub(crate) fn next(&self) -> Option<usize> {
        let mut credits = self.credits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut best: Option<(usize, i64)> = None;
        let mut total = 0;
        for (index, (credit, weight)) in credits.iter_mut().zip(&self.weights).enumerate() {
            *credit += weight;
            total += weight;
            if best.is_none_or(|(_, most)| *credit > most) {
                best = Some((index, *credit));
            }
        }
        let (index, _) = best?;
        if let Some(credit) = credits.get_mut(index) {
            *credit -= total;
        }
        Some(index)
    }

    /// Whose turn it is but for `avoid`, without taking a turn: the member that failed has had its
    /// own, and the one that stands in for it is not to lose one.
    pub(crate) fn stand_in(&self, avoid: usize) -> Option<usize> {
        let credits = self.credits.lock().unwrap_or_else(PoisonError::into_inner);
        credits
            .iter()
            .zip(&self.weights)
            .map(|(credit, weight)| credit + weight)
            .enumerate()
            .filter(|(index, _)| *index != avoid)
            .max_by_key(|(_, credit)| *credit)
            .map(|(index, _)| index)
    }

    /// In the order of the members.
    pub(crate) fn credits(&self) -> Vec<i64> {
        self.credits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(weights: &[u16]) -> RoundRobin {
        let members: Vec<_> = weights
            .iter()
            .enumerate()
            .map(|(i, w)| (Uuid::from_u128(i as u128), *w))
            .collect();
        RoundRobin::new(&members, &HashMap::new())
    }

    #[test]
    fn turns_are_spread_and_not_bunched() {
        let ring = ring(&[1, 2, 1]);
        let turns: Vec<_> = (0..8).filter_map(|_| ring.next()).collect();
        assert_eq!(turns, [1, 0, 2, 1, 1, 0, 2, 1]);
        assert_eq!(RoundRobin::new(&[], &HashMap::new()).next(), None);
    }

    #[test]
    fn standing_in_costs_no_turn() {
        let ring = ring(&[1, 1]);
        for _ in 0..5 {
            assert_eq!(ring.next(), Some(0));
            assert_eq!(ring.stand_in(0), Some(1));
            assert_eq!(ring.next(), Some(1));
            assert_eq!(ring.stand_in(1), Some(0));
        }
        assert_eq!(self::ring(&[1]).stand_in(0), None);
    }

    #[test]
    fn threads_together_share_exactly() {
        let ring = ring(&[1, 2, 1]);
        let counts = Mutex::new([0; 3]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let turn = ring.next().unwrap();
                        counts.lock().unwrap()[turn] += 1;
                    }
                });
            }
        });
        assert_eq!(*counts.lock().unwrap(), [1000, 2000, 1000]);
    }

    #[test]
    fn rebuilding_with_the_credits_goes_on_where_it_was() {
        let members: Vec<_> = [1, 2, 1]
            .iter()
            .enumerate()
            .map(|(i, w)| (Uuid::from_u128(i as u128), *w))
            .collect();
        let mut current = RoundRobin::new(&members, &HashMap::new());
        let mut counts = [0; 3];
        for _ in 0..400 {
            counts[current.next().unwrap()] += 1;
            let credits = members
                .iter()
                .map(|(id, _)| *id)
                .zip(current.credits())
                .collect();
            current = RoundRobin::new(&members, &credits);
        }
        assert_eq!(counts, [100, 200, 100]);
    }

    proptest! {
        #[test]
        fn any_weights_get_their_share_within_one(
            weights in prop::collection::vec(1u16..=256, 1..8), turns in 1usize..2000) {
            let ring = ring(&weights);
            let mut counts = vec![0usize; weights.len()];
            for _ in 0..turns {
                counts[ring.next().unwrap()] += 1;
            }
            let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
            for (count, weight) in counts.iter().zip(&weights) {
                let share = turns as f64 * f64::from(*weight) / total;
                prop_assert!((*count as f64 - share).abs() <= weights.len() as f64 / 2.0 + 1.0,
                    "{counts:?} of {weights:?}");
            }
        }
    }
}
