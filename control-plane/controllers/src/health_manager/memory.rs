//! What the last message of each amphora came to, so that one that says the same again costs no write.
//!
//! Only a cache: what is forgotten is looked at and written once more. Amphorae that fell silent are forgotten.

use std::collections::HashMap;

use lb_model::{AmphoraId, Timestamp};
use lb_store::{Reading, StatsSample};

/// An amphora is forgotten after so long a silence.
const KEPT_MILLIS: i64 = 300_000;
/// Time between looks for those.
const SWEEP_MILLIS: i64 = 60_000;

/// The same message on the same graph comes to the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) revision: u64,
    pub(super) fingerprint: u64,
    pub(super) alive: bool,
}

#[derive(Debug)]
struct Entry {
    heard: Timestamp,
    seen: Option<Seen>,
    samples: Vec<StatsSample>,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    entries: HashMap<AmphoraId, Entry>,
    swept: Option<Timestamp>,
}

impl Memory {
    /// Whether such a message on such a graph counts as a sign of life, when that is known.
    pub(super) fn is_alive(&self, id: AmphoraId, revision: u64, fingerprint: u64) -> Option<bool> {
        let seen = self.entries.get(&id)?.seen?;
        (seen.revision == revision && seen.fingerprint == fingerprint).then_some(seen.alive)
    }

    pub(super) fn note(&mut self, id: AmphoraId, seen: Seen, now: Timestamp) {
        self.entry(id, now).seen = Some(seen);
    }

    /// Whether these are to be written: not when they repeat the last ones. Deltas never repeat.
    pub(super) fn are_news(
        &mut self,
        id: AmphoraId,
        samples: &[StatsSample],
        now: Timestamp,
    ) -> bool {
        let absolute = samples
            .iter()
            .all(|sample| matches!(sample.reading, Reading::Totals { .. }));
        let entry = self.entry(id, now);
        if absolute && entry.samples == samples {
            return false;
        }
        entry.samples = samples.to_vec();
        true
    }

    pub(super) fn forget(&mut self, id: AmphoraId) {
        self.entries.remove(&id);
    }

    /// After an error nobody knows which samples were written: the next ones are, whether they differ or not.
    pub(super) fn forget_samples(&mut self) {
        for entry in self.entries.values_mut() {
            entry.samples.clear();
        }
    }

    /// Forgets those that fell silent; does nothing more often than once a minute.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let last = *self.swept.get_or_insert(now);
        let since = now.millis_since(last);
        if (0..SWEEP_MILLIS).contains(&since) {
            return;
        }
        self.swept = Some(now);
        let kept = now.plus_millis(-KEPT_MILLIS);
        self.entries.retain(|_, entry| entry.heard >= kept);
    }

    fn entry(&mut self, id: AmphoraId, now: Timestamp) -> &mut Entry {
        let entry = self.entries.entry(id).or_insert(Entry {
            heard: now,
            seen: None,
            samples: Vec::new(),
        });
        entry.heard = now;
        entry
    }
}

#[cfg(test)]
mod tests {
    use lb_model::ListenerId;
    use lb_store::Statistics;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(0).plus_millis(seconds * 1000)
    }

    fn sample(amphora_id: AmphoraId, reading: Reading) -> [StatsSample; 1] {
        [StatsSample {
            listener_id: ListenerId(amphora_id.0),
            amphora_id,
            reading,
        }]
    }

    fn totals(total_connections: u64) -> Reading {
        Reading::Totals {
            epoch: 1,
            counters: Statistics {
                total_connections,
                ..Statistics::default()
            },
        }
    }

    #[test]
    fn the_same_message_on_the_same_graph_is_known() {
        let (mut memory, id) = (Memory::default(), AmphoraId::random());
        assert_eq!(memory.is_alive(id, 1, 7), None);
        let seen = Seen {
            revision: 1,
            fingerprint: 7,
            alive: false,
        };
        memory.note(id, seen, at(0));
        assert_eq!(memory.is_alive(id, 1, 7), Some(false));
        assert_eq!(memory.is_alive(id, 2, 7), None);
        assert_eq!(memory.is_alive(id, 1, 8), None);
    }

    #[test]
    fn only_absolute_samples_repeat() {
        let (mut memory, id) = (Memory::default(), AmphoraId::random());
        let (five, six) = (sample(id, totals(5)), sample(id, totals(6)));
        let deltas = sample(id, Reading::Deltas(Statistics::default()));
        for (samples, news) in [
            (five, true),
            (five, false),
            (six, true),
            (deltas, true),
            (deltas, true),
        ] {
            assert_eq!(memory.are_news(id, &samples, at(0)), news);
        }
        assert!(memory.are_news(id, &six, at(0)));
        memory.forget_samples();
        assert!(memory.are_news(id, &six, at(0)));
    }

    #[test]
    fn amphorae_that_fell_silent_are_forgotten_whether_they_speak_again_or_not() {
        let mut memory = Memory::default();
        let beating = AmphoraId::random();
        for second in (0..3600).step_by(10) {
            // One that is replaced every ten seconds, and never heard of again.
            let gone = AmphoraId::random();
            for id in [beating, gone] {
                memory.are_news(id, &sample(id, totals(1)), at(second));
            }
            memory.sweep(at(second));
            let most = usize::try_from((KEPT_MILLIS + SWEEP_MILLIS) / 10_000 + 2).unwrap();
            assert!(memory.entries.len() <= most, "{}", memory.entries.len());
        }
        assert!(memory.entries.contains_key(&beating));
        memory.sweep(at(10_000));
        assert!(memory.entries.is_empty());
    }
}
