//! Who was heard when, and what silence means.
//!
//! ```text
//!   datagram -> admit (replay?) -> waiting -> worked off: heard | not heard
//!                                                |
//!                              batch -> database |          database's stale ones
//!                                                v                    |
//!   judge: in grace? -> mass silence? -> neither waiting nor heard -> fail over the longest silent
//! ```
//!
//! The database is what all health managers share, so only an amphora stale there is looked at; what this process
//! heard and has not written yet counts as well. It also has the newest message of each sender, which the first one
//! that this process hears must be newer than. So what is written may be forgotten at any time: memory is bounded, and
//! its bound costs nobody their life. No IO, no clock.

use std::collections::HashMap;
use std::time::Duration;

use amphora_api::HeartbeatMessage;
use lb_model::{AmphoraId, AmphoraStatus, LoadBalancerId, Timestamp};
use lb_store::{Heard, MessageMark, StaleAmphora};

use super::Refusal;
use super::replay::{lost_since, mark};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivenessSettings {
    /// Silence after which an amphora is replaced (`[health_manager] heartbeat_timeout`).
    pub heartbeat_timeout: Duration,
    /// A message that waited longer than this is not worked off (`heartbeat_interval`).
    pub heartbeat_interval: Duration,
    /// Time between two scans (`health_check_interval`). A much longer one means that this process stood still.
    pub scan_interval: Duration,
    /// Stale amphorae from which on no failover starts (`failover_threshold`).
    pub failover_threshold: Option<usize>,
    /// Without a threshold: so many stale amphorae at least, and more than half of all, are taken for an outage of the
    /// network or of this process, not of the amphorae.
    pub mass_silence: usize,
    /// Failovers started in one scan (`failover_threads`).
    pub failovers_per_scan: usize,
    /// Senders remembered at most; a sender has to sign its messages to be remembered at all.
    pub remembered: usize,
}

impl Default for LivenessSettings {
    fn default() -> Self {
        Self {
            heartbeat_timeout: Duration::from_secs(60),
            heartbeat_interval: Duration::from_secs(10),
            scan_interval: Duration::from_secs(3),
            failover_threshold: None,
            mass_silence: 5,
            failovers_per_scan: 10,
            remembered: 200_000,
        }
    }
}

/// What one scan is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Too early to tell: after the start, after an outage of the database, after this process stood still.
    Grace { until: Timestamp },
    /// So many are silent that something else is broken: mark these, fail nothing over.
    HoldBack { stale: usize, mark: Vec<AmphoraId> },
    /// Replace these, longest silent first; and take the mark from those that are heard again.
    Act {
        fail_over: Vec<AmphoraId>,
        unmark: Vec<AmphoraId>,
    },
}

#[derive(Debug, Clone, Copy)]
struct Sender {
    newest: MessageMark,
    /// When the last message came in.
    seen: Timestamp,
    /// A message of this sender was newer than the newest one in the database.
    proven: bool,
    /// Latest message that is not worked off yet.
    waiting: Option<Timestamp>,
    heard: Option<Timestamp>,
    /// `heard` is not in the database yet.
    unwritten: bool,
}

#[derive(Debug)]
pub struct Liveness {
    settings: LivenessSettings,
    senders: HashMap<AmphoraId, Sender>,
    never_heard: HashMap<LoadBalancerId, NeverHeard>,
    grace_until: Timestamp,
    last_scan: Timestamp,
    database_is_down: bool,
}

/// Replacing an amphora that was never heard may not help: its heartbeats may go where nobody listens. The next
/// replacement of the same load balancer waits twice as long each time.
#[derive(Debug, Clone, Copy)]
struct NeverHeard {
    replaced: u32,
    not_before: Timestamp,
}

/// Doublings of that wait, at most.
const DOUBLINGS: u32 = 6;

impl Liveness {
    pub fn new(settings: LivenessSettings, now: Timestamp) -> Self {
        let grace_until = plus(now, settings.heartbeat_timeout);
        Self {
            settings,
            senders: HashMap::new(),
            never_heard: HashMap::new(),
            grace_until,
            last_scan: now,
            database_is_down: false,
        }
    }

    /// A well-signed message came in. `Ok`: to be worked off, with how many before it were lost.
    pub fn admit(&mut self, message: &HeartbeatMessage, now: Timestamp) -> Result<u64, Refusal> {
        let id = AmphoraId(message.id);
        if let Some(sender) = self.senders.get_mut(&id) {
            let lost = lost_since(&sender.newest, message)?;
            sender.newest = mark(message);
            sender.seen = now;
            sender.waiting = Some(now);
            return Ok(lost);
        }
        if self.senders.len() >= self.settings.remembered {
            self.senders
                .retain(|_, sender| sender.unwritten || sender.waiting.is_some());
            // Full of what only this process knows: the database does not answer, and nobody is judged meanwhile.
            if self.senders.len() >= self.settings.remembered {
                return Err(Refusal::Overflow);
            }
        }
        self.senders.insert(
            id,
            Sender {
                newest: mark(message),
                seen: now,
                proven: false,
                waiting: Some(now),
                heard: None,
                unwritten: false,
            },
        );
        Ok(0)
    }

    /// The database knows the sender of a message of `received`, and the newest one of it that was heard before, by
    /// whatever process. An older one is a replay, though it was the first that this process heard.
    pub fn prove(
        &mut self,
        message: &HeartbeatMessage,
        received: Timestamp,
        on_record: Option<MessageMark>,
    ) -> Result<(), Refusal> {
        let id = AmphoraId(message.id);
        let sender = self.senders.get_mut(&id);
        if sender.as_ref().is_some_and(|sender| sender.proven) {
            return Ok(());
        }
        let newer = on_record.map_or(Ok(0), |newest| lost_since(&newest, message));
        match newer {
            Ok(_) => {
                if let Some(sender) = sender {
                    sender.proven = true;
                }
                Ok(())
            }
            Err(refusal) => {
                self.worked_off(id, received, false);
                Err(refusal)
            }
        }
    }

    /// A message that was received at `received` gets its turn at `now`.
    pub fn take_up(&self, received: Timestamp, now: Timestamp) -> Result<(), Refusal> {
        if now.millis_since(received) >= millis(self.settings.heartbeat_interval) {
            return Err(Refusal::Late);
        }
        Ok(())
    }

    /// The message of `received` is worked off. `alive`: it counts as a sign of life.
    pub fn worked_off(&mut self, id: AmphoraId, received: Timestamp, alive: bool) {
        let Some(sender) = self.senders.get_mut(&id) else {
            return;
        };
        if sender.waiting.is_some_and(|waiting| waiting <= received) {
            sender.waiting = None;
        }
        if alive && sender.heard.is_none_or(|heard| heard < received) {
            sender.heard = Some(received);
            sender.unwritten = true;
        }
    }

    /// The sender turned out to be no amphora of ours.
    pub fn forget(&mut self, id: AmphoraId) {
        self.senders.remove(&id);
    }

    /// Forgets senders that have been silent for a timeout: what there is to know of them is in the database.
    pub fn prune(&mut self, now: Timestamp) {
        let deadline = self.deadline(now);
        self.senders
            .retain(|_, sender| sender.unwritten || sender.seen >= deadline);
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.senders.len()
    }

    /// Signs of life that are not in the database yet.
    pub fn unwritten(&self) -> Vec<Heard> {
        self.senders
            .iter()
            .filter(|(_, sender)| sender.unwritten)
            .filter_map(|(id, sender)| {
                Some(Heard {
                    amphora_id: *id,
                    at: sender.heard?,
                    newest: sender.newest,
                })
            })
            .collect()
    }

    /// These are in the database now.
    pub fn written(&mut self, batch: &[Heard]) {
        for heard in batch {
            if let Some(sender) = self.senders.get_mut(&heard.amphora_id)
                && sender.heard == Some(heard.at)
            {
                sender.unwritten = false;
            }
        }
    }

    /// The database did not answer: what it will say afterwards is old.
    pub fn database_failed(&mut self) {
        self.database_is_down = true;
    }

    /// The database answers. True when it had not before: silence then counts anew.
    pub fn database_answered(&mut self, now: Timestamp) -> bool {
        let recovered = std::mem::take(&mut self.database_is_down);
        if recovered {
            self.start_grace(now);
        }
        recovered
    }

    /// Stale are, in the database, those not heard since this.
    pub fn deadline(&self, now: Timestamp) -> Timestamp {
        now.plus_millis(-millis(self.settings.heartbeat_timeout))
    }

    /// What to do about `stale` (from the database, as of [`Liveness::deadline`]), given how many amphorae there are
    /// and which ones automatic failover is held back for.
    pub fn judge(
        &mut self,
        stale: &[StaleAmphora],
        watched: usize,
        marked: &[AmphoraId],
        now: Timestamp,
    ) -> Verdict {
        let since = now.millis_since(self.last_scan);
        self.last_scan = now;
        let stood_still = (millis(self.settings.heartbeat_timeout) / 2)
            .max(millis(self.settings.scan_interval).saturating_mul(3));
        if since > stood_still || since < 0 {
            self.start_grace(now);
        }
        if now < self.grace_until || self.database_is_down {
            return Verdict::Grace {
                until: self.grace_until,
            };
        }
        let deadline = self.deadline(now);
        let mut silent: Vec<&StaleAmphora> = stale
            .iter()
            .filter(|stale| !self.is_alive(stale.amphora_id, deadline))
            .collect();
        if self.is_outage(silent.len(), watched) {
            return Verdict::HoldBack {
                stale: silent.len(),
                mark: silent
                    .iter()
                    .filter(|stale| stale.status == AmphoraStatus::Allocated)
                    .map(|stale| stale.amphora_id)
                    .collect(),
            };
        }
        let unmark = marked
            .iter()
            .copied()
            .filter(|id| !silent.iter().any(|stale| stale.amphora_id == *id))
            .collect();
        silent.retain(|stale| {
            !stale.busy && stale.provisioning_status.may_fail_over() && self.may_help(stale, now)
        });
        silent.sort_by_key(|stale| (stale.last_update, stale.amphora_id));
        silent.truncate(self.settings.failovers_per_scan);
        for stale in &silent {
            self.note_replacement(stale, now);
        }
        Verdict::Act {
            fail_over: silent.iter().map(|stale| stale.amphora_id).collect(),
            unmark,
        }
    }

    fn may_help(&self, stale: &StaleAmphora, now: Timestamp) -> bool {
        stale.last_update.is_some()
            || self
                .never_heard
                .get(&stale.load_balancer_id)
                .is_none_or(|earlier| now >= earlier.not_before)
    }

    fn note_replacement(&mut self, stale: &StaleAmphora, now: Timestamp) {
        let timeout = millis(self.settings.heartbeat_timeout);
        // One that served for long after its wait was over was heard in between.
        let forgotten = now.plus_millis(-timeout.saturating_mul(1 << DOUBLINGS));
        self.never_heard
            .retain(|_, earlier| earlier.not_before > forgotten);
        if stale.last_update.is_some() {
            self.never_heard.remove(&stale.load_balancer_id);
            return;
        }
        let replaced = self
            .never_heard
            .get(&stale.load_balancer_id)
            .map_or(0, |earlier| earlier.replaced)
            .saturating_add(1)
            .min(DOUBLINGS);
        self.never_heard.insert(
            stale.load_balancer_id,
            NeverHeard {
                replaced,
                not_before: now.plus_millis(timeout.saturating_mul(1 << replaced)),
            },
        );
    }

    fn is_alive(&self, id: AmphoraId, deadline: Timestamp) -> bool {
        self.senders.get(&id).is_some_and(|sender| {
            sender.waiting.is_some_and(|at| at >= deadline)
                || sender.heard.is_some_and(|at| at >= deadline)
        })
    }

    fn is_outage(&self, silent: usize, watched: usize) -> bool {
        match self.settings.failover_threshold {
            Some(threshold) => silent >= threshold.max(1),
            None => silent >= self.settings.mass_silence.max(1) && silent > watched / 2,
        }
    }

    fn start_grace(&mut self, now: Timestamp) {
        self.grace_until = plus(now, self.settings.heartbeat_timeout);
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn plus(moment: Timestamp, duration: Duration) -> Timestamp {
    moment.plus_millis(millis(duration))
}
