//! When to check which member, and what the results mean. No IO, no clock.
//!
//! ```text
//!                    first result a failure
//!          +------------------------------------------+
//!          |                                          v
//!   UP (assumed) -- success --> UP -- fall failures -> DOWN
//!                                ^   in a row           |
//!                                +--- rise successes ---+
//!                                     in a row
//! ```
//!
//! A new member is assumed up and goes down with its very first failure; `fall` counts only after
//! a success (as HAProxy does it). A member that was down when a former scheduler ended is assumed down instead, and
//! its very first result decides, too. A member whose parameters change keeps its state and its count.
//! Checks of members that came together are spread over one interval. A member has at most one
//! check under way; a result that nobody waits for (removed, or asked of the member's former
//! address) is ignored.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::target::{Check, State, Status, Target, TargetKey};

/// Names one check that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeId(u64);

/// A check to make now. Exactly one result is to be given for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub id: ProbeId,
    pub target: Target,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// Why, for the log.
    Failure(String),
}

/// A member changed its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub key: TargetKey,
    pub state: State,
    /// Why it went down; empty when it came up.
    pub reason: String,
}

#[derive(Debug, Default)]
pub struct Scheduler {
    entries: HashMap<TargetKey, Entry>,
    under_way: HashMap<ProbeId, TargetKey>,
    last_id: u64,
    /// Were down in an earlier life, until the first targets are set.
    remembered: HashSet<TargetKey>,
}

#[derive(Debug)]
struct Entry {
    target: Target,
    state: State,
    /// Results in a row that contradict `state`.
    against: u32,
    checked: bool,
    due: Instant,
    probe: Option<ProbeId>,
}

impl Scheduler {
    pub fn new() -> Self {
        Scheduler::default()
    }

    /// Takes these to be down until they are checked, if they are among the first targets.
    pub fn remembering(down: impl IntoIterator<Item = TargetKey>) -> Self {
        Scheduler {
            remembered: down.into_iter().collect(),
            ..Scheduler::default()
        }
    }

    /// Checks these from now on, and no others. Of several with one key the last counts.
    pub fn set_targets(&mut self, targets: Vec<Target>, now: Instant) {
        let wanted: HashMap<TargetKey, Target> = targets
            .iter()
            .map(|target| (target.key, target.clone()))
            .collect();
        self.entries.retain(|key, _| wanted.contains_key(key));
        // In the order given, so that the spreading is the same each time.
        let mut fresh: Vec<TargetKey> = Vec::new();
        for Target { key, .. } in &targets {
            if !self.entries.contains_key(key) && !fresh.contains(key) {
                fresh.push(*key);
            }
        }
        let places = u32::try_from(fresh.len()).unwrap_or(u32::MAX).max(1);
        let place_of: HashMap<TargetKey, u32> = fresh.into_iter().zip(0..).collect();
        for (key, target) in wanted {
            match self.entries.get_mut(&key) {
                Some(entry) => entry.change(target, now),
                None => {
                    let place = place_of.get(&key).copied().unwrap_or_default();
                    let mut entry = Entry::new(target, place, places, now);
                    if self.remembered.contains(&key) {
                        entry.state = State::Down;
                    }
                    self.entries.insert(key, entry);
                }
            }
        }
        self.remembered.clear();
        self.under_way.retain(|id, key| {
            self.entries
                .get(key)
                .is_some_and(|entry| entry.probe == Some(*id))
        });
    }

    /// When [`Scheduler::poll`] has something next; `None` while there is nothing to wait for.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.entries
            .values()
            .filter(|entry| entry.probe.is_none())
            .map(|entry| entry.due)
            .min()
    }

    /// The checks that are due.
    pub fn poll(&mut self, now: Instant) -> Vec<Probe> {
        let mut probes = Vec::new();
        for (key, entry) in &mut self.entries {
            if entry.probe.is_none() && entry.due <= now {
                self.last_id += 1;
                let id = ProbeId(self.last_id);
                entry.probe = Some(id);
                entry.due = now + entry.target.delay;
                self.under_way.insert(id, *key);
                probes.push(Probe {
                    id,
                    target: entry.target.clone(),
                });
            }
        }
        probes
    }

    /// Takes a result. The next check comes one delay after the start of this one, or now if that
    /// is past.
    pub fn on_result(&mut self, id: ProbeId, outcome: Outcome, now: Instant) -> Option<Transition> {
        let key = self.under_way.remove(&id)?;
        let entry = self.entries.get_mut(&key)?;
        entry.probe = None;
        entry.due = entry.due.max(now);
        entry
            .take(outcome)
            .map(|(state, reason)| Transition { key, state, reason })
    }

    pub fn state(&self, key: &TargetKey) -> Option<Status> {
        self.entries.get(key).map(Entry::status)
    }

    /// All of them, and those that are remembered.
    pub fn states(&self) -> impl Iterator<Item = (TargetKey, Status)> {
        let remembered = Status {
            state: State::Down,
            against: 0,
            needed: 1,
            checked: false,
        };
        self.remembered
            .iter()
            .map(move |key| (*key, remembered))
            .chain(
                self.entries
                    .iter()
                    .map(|(key, entry)| (*key, entry.status())),
            )
    }
}

impl Entry {
    fn new(target: Target, place: u32, places: u32, now: Instant) -> Self {
        // An interval divided first cannot overflow.
        let due = now + target.delay / places * place;
        Entry {
            target,
            state: State::Up,
            against: 0,
            checked: false,
            due,
            probe: None,
        }
    }

    fn change(&mut self, target: Target, now: Instant) {
        let asks = |target: &Target| -> (std::net::SocketAddr, Check) {
            (target.address, target.check.clone())
        };
        if asks(&target) != asks(&self.target) {
            // The answer to the former question says nothing.
            self.probe = None;
            self.due = now;
        }
        self.due = self.due.min(now + target.delay);
        self.target = target;
    }

    fn needed(&self) -> u32 {
        match self.state {
            State::Up | State::Down if !self.checked => 1,
            State::Up => self.target.fall.max(1),
            State::Down => self.target.rise.max(1),
        }
    }

    fn status(&self) -> Status {
        Status {
            state: self.state,
            against: self.against,
            needed: self.needed(),
            checked: self.checked,
        }
    }

    /// One step of the machine in the module's picture.
    fn take(&mut self, outcome: Outcome) -> Option<(State, String)> {
        let needed = self.needed();
        self.checked = true;
        match (self.state, outcome) {
            (State::Up, Outcome::Success) | (State::Down, Outcome::Failure(_)) => {
                self.against = 0;
                None
            }
            (State::Up, Outcome::Failure(reason)) => {
                self.against += 1;
                (self.against >= needed).then(|| self.turn(State::Down, reason))
            }
            (State::Down, Outcome::Success) => {
                self.against += 1;
                (self.against >= needed).then(|| self.turn(State::Up, String::new()))
            }
        }
    }

    fn turn(&mut self, state: State, reason: String) -> (State, String) {
        self.state = state;
        self.against = 0;
        (state, reason)
    }
}

/// Keeps a check's connect from outliving its interval.
pub(crate) fn connect_limit(target: &Target) -> Duration {
    target.timeout.min(target.delay)
}

#[cfg(test)]
mod tests;
