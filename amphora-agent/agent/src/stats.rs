//! Absolute counters that only grow.
//!
//! The fast path counts in pinned maps, which outlive the agent; the proxy counts in its memory, which does not. Each
//! is a [`Source`]: what it counted in earlier lives, plus its last reading. A reading smaller than the last means
//! that the source began anew. All of it is kept in `stats_counters.json`, together with what the last heartbeat
//! said, so that neither the absolute counters nor the heartbeat's deltas jump when the agent is restarted.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use amphora_api::{
    AmphoraConfig, AmphoraStats, HeartbeatListenerStats, HeartbeatTotals, ListenerStats,
    MemberStats,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ledger::{Sync, replace_file};

/// Every counter of this amphora since its first start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    #[serde(default)]
    fast: Source,
    #[serde(default)]
    proxy: Source,
    /// What the last heartbeat said of each listener, absolute.
    #[serde(default)]
    reported: BTreeMap<Uuid, ListenerStats>,
    /// When the counters of each listener began (milliseconds since the epoch).
    #[serde(default)]
    epochs: BTreeMap<Uuid, u64>,
}

/// What a heartbeat says of the counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Since the last report; `conns` is the current number.
    pub deltas: BTreeMap<Uuid, HeartbeatListenerStats>,
    pub totals: BTreeMap<Uuid, HeartbeatTotals>,
}

/// One counting engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Source {
    /// Sums of earlier lives.
    base: AmphoraStats,
    /// The last reading of this life.
    last: AmphoraStats,
}

impl Totals {
    /// What was saved last; the proxy's life ended with the process that saved it.
    pub fn load(directory: &Path) -> io::Result<Self> {
        let bytes = match std::fs::read(file(directory)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Totals::default()),
            Err(error) => return Err(error),
        };
        let mut totals: Totals = serde_json::from_slice(&bytes)?;
        totals.proxy.restart();
        Ok(totals)
    }

    /// Survives the end of the process, not a loss of power: counters are not worth a sync a second.
    pub fn save(&self, directory: &Path) -> io::Result<()> {
        replace_file(&file(directory), &serde_json::to_vec(self)?, Sync::No)
    }

    pub fn read_fast(&mut self, reading: AmphoraStats) {
        self.fast.read(reading);
    }

    pub fn read_proxy(&mut self, reading: AmphoraStats) {
        self.proxy.read(reading);
    }

    /// Forgets listeners and members that neither the document nor an engine has any more. (An engine may still count
    /// the last connections of a removed listener, and goes on counting when it comes back.)
    pub fn retain(&mut self, document: &AmphoraConfig) {
        let mut listeners: HashSet<_> = document.listeners.iter().map(|l| l.id).collect();
        let mut members: HashSet<_> = document
            .pools
            .iter()
            .flat_map(|pool| pool.members.iter().map(|member| member.id))
            .collect();
        for source in [&self.fast, &self.proxy] {
            listeners.extend(source.last.listeners.keys());
            members.extend(source.last.members.keys());
        }
        for source in [&mut self.fast, &mut self.proxy] {
            source.base.listeners.retain(|id, _| listeners.contains(id));
            source.base.members.retain(|id, _| members.contains(id));
        }
        self.reported.retain(|id, _| listeners.contains(id));
        self.epochs.retain(|id, _| listeners.contains(id));
    }

    /// All sources and lives together.
    pub fn absolute(&self) -> AmphoraStats {
        let mut sum = AmphoraStats::default();
        for stats in [
            &self.fast.base,
            &self.fast.last,
            &self.proxy.base,
            &self.proxy.last,
        ] {
            add(&mut sum, stats);
        }
        sum
    }

    /// What happened since the last call, and since the beginning, for each listener named.
    pub fn report(&mut self, listeners: impl IntoIterator<Item = Uuid>, now_ms: u64) -> Report {
        let absolute = self.absolute();
        let mut report = Report::default();
        for id in listeners {
            let counters = absolute.listeners.get(&id).copied().unwrap_or_default();
            let last = self.reported.insert(id, counters).unwrap_or_default();
            report.deltas.insert(id, delta(&counters, &last));
            let epoch = self.epoch(id, now_ms);
            report
                .totals
                .insert(id, HeartbeatTotals { epoch, counters });
        }
        report
    }

    /// [`Totals::absolute`] with an entry and an epoch for each listener named.
    pub fn tell(&mut self, listeners: impl IntoIterator<Item = Uuid>, now_ms: u64) -> AmphoraStats {
        let mut stats = self.absolute();
        for id in listeners {
            stats.listeners.entry(id).or_default();
            stats.epochs.insert(id, self.epoch(id, now_ms));
        }
        stats
    }

    fn epoch(&mut self, listener: Uuid, now_ms: u64) -> u64 {
        *self.epochs.entry(listener).or_insert(now_ms)
    }
}

/// Octavia's rule: current minus last; what went backwards began anew, so the current value is all news.
fn delta(now: &ListenerStats, last: &ListenerStats) -> HeartbeatListenerStats {
    let since = |now: u64, last: u64| now.checked_sub(last).unwrap_or(now);
    HeartbeatListenerStats {
        tx: since(now.bytes_out, last.bytes_out),
        rx: since(now.bytes_in, last.bytes_in),
        conns: now.active_connections,
        totconns: since(now.total_connections, last.total_connections),
        ereq: since(now.request_errors, last.request_errors),
    }
}

impl Source {
    fn restart(&mut self) {
        let mut ended = std::mem::take(&mut self.last);
        close_connections(&mut ended);
        add(&mut self.base, &ended);
    }

    fn read(&mut self, reading: AmphoraStats) {
        let mut ended = AmphoraStats::default();
        for (id, last) in &self.last.listeners {
            let now = reading.listeners.get(id).copied().unwrap_or_default();
            if went_back(&listener_counters(last), &listener_counters(&now)) {
                ended.listeners.insert(*id, *last);
            }
        }
        for (id, last) in &self.last.members {
            let now = reading.members.get(id).copied().unwrap_or_default();
            if went_back(&member_counters(last), &member_counters(&now)) {
                ended.members.insert(*id, *last);
            }
        }
        for (name, last) in &self.last.verdicts {
            if reading.verdicts.get(name).copied().unwrap_or_default() < *last {
                ended.verdicts.insert(name.clone(), *last);
            }
        }
        close_connections(&mut ended);
        add(&mut self.base, &ended);
        self.last = reading;
    }
}

fn file(directory: &Path) -> PathBuf {
    directory.join("stats_counters.json")
}

fn listener_counters(stats: &ListenerStats) -> [u64; 4] {
    [
        stats.bytes_in,
        stats.bytes_out,
        stats.total_connections,
        stats.request_errors,
    ]
}

fn member_counters(stats: &MemberStats) -> [u64; 4] {
    [
        stats.bytes_in,
        stats.bytes_out,
        stats.total_connections,
        stats.connect_failures,
    ]
}

fn went_back(last: &[u64; 4], now: &[u64; 4]) -> bool {
    last.iter().zip(now).any(|(last, now)| now < last)
}

/// Connections are counted as they are, not summed over lives.
fn close_connections(stats: &mut AmphoraStats) {
    for listener in stats.listeners.values_mut() {
        listener.active_connections = 0;
    }
    for member in stats.members.values_mut() {
        member.active_connections = 0;
    }
}

fn add(sum: &mut AmphoraStats, stats: &AmphoraStats) {
    for (id, from) in &stats.listeners {
        let ListenerStats {
            bytes_in,
            bytes_out,
            active_connections,
            total_connections,
            request_errors,
        } = sum.listeners.entry(*id).or_default();
        *bytes_in = bytes_in.saturating_add(from.bytes_in);
        *bytes_out = bytes_out.saturating_add(from.bytes_out);
        *active_connections = active_connections.saturating_add(from.active_connections);
        *total_connections = total_connections.saturating_add(from.total_connections);
        *request_errors = request_errors.saturating_add(from.request_errors);
    }
    for (id, from) in &stats.members {
        let MemberStats {
            bytes_in,
            bytes_out,
            active_connections,
            total_connections,
            connect_failures,
        } = sum.members.entry(*id).or_default();
        *bytes_in = bytes_in.saturating_add(from.bytes_in);
        *bytes_out = bytes_out.saturating_add(from.bytes_out);
        *active_connections = active_connections.saturating_add(from.active_connections);
        *total_connections = total_connections.saturating_add(from.total_connections);
        *connect_failures = connect_failures.saturating_add(from.connect_failures);
    }
    for (name, count) in &stats.verdicts {
        let total = sum.verdicts.entry(name.clone()).or_default();
        *total = total.saturating_add(*count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    const L: Uuid = samples::TCP_LISTENER;

    fn reading(connections: u64, active: u64) -> AmphoraStats {
        AmphoraStats {
            listeners: BTreeMap::from([(
                L,
                ListenerStats {
                    bytes_in: connections * 10,
                    bytes_out: connections * 100,
                    active_connections: active,
                    total_connections: connections,
                    request_errors: 0,
                },
            )]),
            verdicts: BTreeMap::from([("forwarded".to_owned(), connections * 7)]),
            ..AmphoraStats::default()
        }
    }

    fn connections(totals: &Totals) -> (u64, u64) {
        let listener = totals.absolute().listeners[&L];
        (listener.total_connections, listener.active_connections)
    }

    #[test]
    fn a_source_that_begins_anew_never_makes_a_counter_fall() {
        let mut totals = Totals::default();
        for (counted, active, wanted) in [
            (5, 2, (5, 2)),
            (9, 1, (9, 1)),
            (3, 3, (12, 3)),
            (4, 0, (13, 0)),
            (0, 0, (13, 0)),
        ] {
            totals.read_fast(reading(counted, active));
            assert_eq!(connections(&totals), wanted);
        }
        assert_eq!(totals.absolute().verdicts["forwarded"], 13 * 7);
    }

    #[test]
    fn both_engines_are_summed() {
        let mut totals = Totals::default();
        totals.read_fast(reading(5, 1));
        totals.read_proxy(reading(7, 2));
        assert_eq!(connections(&totals), (12, 3));
    }

    #[test]
    fn a_restart_ends_the_proxys_life_and_not_the_fast_paths() {
        let directory = tempfile::tempdir().unwrap();
        let mut totals = Totals::default();
        totals.read_fast(reading(5, 1));
        totals.read_proxy(reading(7, 2));
        totals.report([L], 7);
        totals.save(directory.path()).unwrap();

        let mut totals = Totals::load(directory.path()).unwrap();
        // The proxy counts from zero and is past its old count already; the fast path goes on.
        totals.read_fast(reading(6, 1));
        totals.read_proxy(reading(8, 1));
        assert_eq!(connections(&totals), (6 + 7 + 8, 2));
        let report = totals.report([L], 9);
        assert_eq!(report.deltas[&L].totconns, 9);
        assert_eq!(report.totals[&L].epoch, 7, "the counters go on");
        assert_eq!(report.totals[&L].counters.total_connections, 21);
    }

    #[test]
    fn heartbeats_carry_what_is_new_and_current_connections() {
        let mut totals = Totals::default();
        totals.read_fast(reading(5, 2));
        let first = totals.report([L], 9).deltas[&L];
        assert_eq!(
            first,
            HeartbeatListenerStats {
                tx: 500,
                rx: 50,
                conns: 2,
                totconns: 5,
                ereq: 0
            }
        );
        totals.read_fast(reading(6, 1));
        let second = totals.report([L], 9).deltas[&L];
        assert_eq!((second.totconns, second.conns, second.tx), (1, 1, 100));
        assert_eq!(totals.report([L], 9).deltas[&L].totconns, 0);
    }

    #[test]
    fn what_is_told_on_request_has_the_epoch_of_the_heartbeats() {
        let mut totals = Totals::default();
        totals.read_proxy(reading(5, 2));
        let told = totals.tell([L], 7);
        assert_eq!(told.epochs, BTreeMap::from([(L, 7)]));
        let reported = totals.report([L], 9).totals[&L];
        assert_eq!(reported.epoch, 7);
        assert_eq!(reported.counters, told.listeners[&L]);
    }

    #[test]
    fn a_listener_that_was_never_seen_reports_zeros() {
        assert_eq!(
            Totals::default().report([L], 9).deltas[&L],
            HeartbeatListenerStats::default()
        );
    }

    #[test]
    fn what_went_backwards_is_all_news() {
        let last = reading(9, 0).listeners[&L];
        let now = reading(4, 1).listeners[&L];
        assert_eq!(delta(&now, &last).totconns, 4);
    }

    #[test]
    fn removed_listeners_are_forgotten_when_no_engine_counts_them_any_more() {
        let mut totals = Totals::default();
        totals.read_fast(reading(5, 2));
        totals.report([L], 7);
        let mut document = samples::document(1);
        document.listeners.clear();
        totals.retain(&document);
        assert_eq!(connections(&totals), (5, 2));
        assert_eq!(totals.report([L], 8).totals[&L].epoch, 7);

        totals.read_fast(AmphoraStats::default());
        totals.retain(&document);
        assert!(totals.absolute().listeners.is_empty());
        assert_eq!(totals.report([L], 9).totals[&L].epoch, 9);
    }

    #[test]
    fn a_corrupt_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(file(directory.path()), "{\"fast\": 1}").unwrap();
        assert!(Totals::load(directory.path()).is_err());
    }
}
