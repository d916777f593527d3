//! Which members are down, on disk.
//!
//! The file (`members_down.json` in the state directory) outlives the process: a new one sends nothing to these members
//! before they were checked again. Members that are up need not be in it, for that is what a new member is assumed
//! to be.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use amphora_health::{State, Status, TargetKey};
use uuid::Uuid;

use crate::ledger::{Sync, replace_file};

/// What the file says.
#[derive(Debug)]
pub struct DownMembers {
    path: PathBuf,
    keys: BTreeSet<TargetKey>,
}

impl DownMembers {
    /// What was saved last; nothing when there is no file, or none that can be read.
    pub fn load(directory: &Path) -> Self {
        let path = directory.join("members_down.json");
        let keys = read(&path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "states of members are lost");
            BTreeSet::new()
        });
        DownMembers { path, keys }
    }

    pub fn keys(&self) -> impl Iterator<Item = TargetKey> + '_ {
        self.keys.iter().copied()
    }

    /// Brings the file to these states, when it differs.
    pub fn save(&mut self, states: &BTreeMap<TargetKey, Status>) {
        let keys: BTreeSet<TargetKey> = states
            .iter()
            .filter(|(_, status)| status.state == State::Down)
            .map(|(key, _)| *key)
            .collect();
        if keys == self.keys {
            return;
        }
        match self.write(&keys) {
            Ok(()) => self.keys = keys,
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "states of members not saved");
            }
        }
    }

    fn write(&self, keys: &BTreeSet<TargetKey>) -> io::Result<()> {
        let pairs: Vec<(Uuid, Uuid)> = keys.iter().map(|key| (key.pool, key.member)).collect();
        replace_file(&self.path, &serde_json::to_vec(&pairs)?, Sync::No)
    }
}

fn read(path: &Path) -> io::Result<BTreeSet<TargetKey>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(error),
    };
    let pairs: Vec<(Uuid, Uuid)> = serde_json::from_slice(&bytes)?;
    Ok(pairs
        .into_iter()
        .map(|(pool, member)| TargetKey { pool, member })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u128) -> TargetKey {
        TargetKey {
            pool: Uuid::from_u128(1),
            member: Uuid::from_u128(n),
        }
    }

    fn states(down: &[u128]) -> BTreeMap<TargetKey, Status> {
        (1..=4)
            .map(|n| {
                let state = if down.contains(&n) {
                    State::Down
                } else {
                    State::Up
                };
                let status = Status {
                    state,
                    against: 0,
                    needed: 1,
                    checked: true,
                };
                (key(n), status)
            })
            .collect()
    }

    #[test]
    fn the_next_process_knows_who_was_down_last() {
        let directory = tempfile::tempdir().unwrap();
        let mut down = DownMembers::load(directory.path());
        assert_eq!(down.keys().count(), 0);
        for members in [&[1, 3][..], &[3], &[]] {
            down.save(&states(members));
            let next = DownMembers::load(directory.path());
            let found: Vec<_> = next.keys().collect();
            let expected: Vec<_> = members.iter().map(|n| key(*n)).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_corrupt_file_is_none_and_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("members_down.json"), "[1").unwrap();
        let mut down = DownMembers::load(directory.path());
        assert_eq!(down.keys().count(), 0);
        down.save(&states(&[2]));
        let next = DownMembers::load(directory.path());
        assert_eq!(next.keys().collect::<Vec<_>>(), [key(2)]);
    }
}
