//! The member with the fewest requests in flight for its weight.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Remembers where to start, so that equals take turns.
#[derive(Debug, Default)]
pub(crate) struct LeastConnections {
    start: AtomicUsize,
}

impl LeastConnections {
    /// `load(index)` gives (in flight, weight) of a usable member; weights are not 0.
    pub(crate) fn next(&self, len: usize, load: impl Fn(usize) -> (u64, u16)) -> Option<usize> {
        if len == 0 {
            return None;
        }
        let start = self.start.fetch_add(1, Relaxed) % len;
        let mut best: Option<(usize, u64, u16)> = None;
        for index in (start..len).chain(0..start) {
            let (active, weight) = load(index);
            // active / weight < best_active / best_weight, without dividing.
            if best.is_none_or(|(_, best_active, best_weight)| {
                u128::from(active) * u128::from(best_weight)
                    < u128::from(best_active) * u128::from(weight)
            }) {
                best = Some((index, active, weight));
            }
        }
        best.map(|(index, ..)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_counts_relative_to_weight() {
        let balance = LeastConnections::default();
        let loads = [(4, 2), (1, 1), (3, 2)];
        for _ in 0..3 {
            assert_eq!(balance.next(3, |i| loads[i]), Some(1));
        }
        assert_eq!(balance.next(0, |_| (0, 1)), None);
    }

    #[test]
    fn equals_take_turns() {
        let balance = LeastConnections::default();
        let mut counts = [0; 3];
        for _ in 0..30 {
            counts[balance.next(3, |_| (0, 1)).unwrap()] += 1;
        }
        assert_eq!(counts, [10, 10, 10]);
    }
}
