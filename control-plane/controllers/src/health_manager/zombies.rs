//! Servers that outlived their amphora: each is asked to be deleted once, and not when there are suspiciously many.

use std::collections::HashMap;

use lb_model::{AmphoraId, Timestamp};

/// Senders remembered at most; further ones are only counted.
const REMEMBERED: usize = 4096;
/// A deletion that did not work is asked for again after this.
const AGAIN_MILLIS: i64 = 60_000;
/// More senders without a row than this, and more than there are amphorae, mean a database that lost its rows.
const SUSPICIOUS: usize = 5;

/// What the database says of such a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    Deleted,
    Absent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Asked,
    Failed(Timestamp),
}

#[derive(Debug, Default)]
pub(super) struct Zombies(HashMap<AmphoraId, (Row, State)>);

impl Zombies {
    /// Such a sender was heard. True: its server is to be deleted now.
    pub(super) fn heard(
        &mut self,
        id: AmphoraId,
        row: Row,
        known_amphorae: usize,
        now: Timestamp,
    ) -> bool {
        match self.0.get(&id) {
            Some((_, State::Asked)) => return false,
            Some((_, State::Failed(at))) if now.millis_since(*at) < AGAIN_MILLIS => return false,
            Some((_, State::Failed(_))) => {}
            None if self.0.len() >= REMEMBERED => return false,
            None => {
                let absent = self.0.values().filter(|(row, _)| *row == Row::Absent);
                if row == Row::Absent && absent.count() >= SUSPICIOUS.max(known_amphorae) {
                    return false;
                }
            }
        }
        self.0.insert(id, (row, State::Asked));
        true
    }

    pub(super) fn deletion_failed(&mut self, id: AmphoraId, now: Timestamp) {
        if let Some((_, state)) = self.0.get_mut(&id) {
            *state = State::Failed(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(0).plus_millis(seconds * 1000)
    }

    #[test]
    fn a_deletion_is_asked_for_once_and_again_only_after_it_failed() {
        let mut zombies = Zombies::default();
        let id = AmphoraId::random();
        assert!(zombies.heard(id, Row::Absent, 10, at(0)));
        assert!(!zombies.heard(id, Row::Absent, 10, at(1000)));
        zombies.deletion_failed(id, at(1000));
        assert!(!zombies.heard(id, Row::Absent, 10, at(1059)));
        assert!(zombies.heard(id, Row::Absent, 10, at(1060)));
        assert!(!zombies.heard(id, Row::Absent, 10, at(1061)));
    }

    #[test]
    fn a_crowd_of_unknown_senders_is_left_alone() {
        let mut zombies = Zombies::default();
        let asked = (0..100)
            .filter(|_| zombies.heard(AmphoraId::random(), Row::Absent, 2, at(0)))
            .count();
        assert_eq!(asked, SUSPICIOUS);
        assert!(zombies.heard(AmphoraId::random(), Row::Deleted, 2, at(0)));
    }
}
