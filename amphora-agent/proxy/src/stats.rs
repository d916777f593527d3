//! Counters of the proxy.
//!
//! Written by the worker threads, each into a shard of its own (no cache line is shared on the
//! request path), summed by [`crate::Proxy::stats`]. Totals only grow while a listener or member
//! stays in the configuration; one that was removed is forgotten once its last connection ended.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use uuid::Uuid;

/// A reading of every counter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    pub listeners: Vec<ListenerStats>,
    pub members: Vec<MemberStats>,
    /// One entry for every [`Refusal`], also those that are zero.
    pub refusals: Vec<(Refusal, u64)>,
}

impl Stats {
    pub fn listener(&self, id: Uuid) -> Option<&ListenerStats> {
        self.listeners.iter().find(|stats| stats.id == id)
    }

    /// Sums of a member over the pools it is in.
    pub fn member(&self, pool: Uuid, member: Uuid) -> Option<&MemberStats> {
        self.members
            .iter()
            .find(|stats| stats.pool == pool && stats.id == member)
    }

    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refusals
            .iter()
            .find(|(reason, _)| *reason == refusal)
            .map_or(0, |(_, count)| *count)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenerStats {
    pub id: Uuid,
    /// TCP payload bytes received from clients.
    pub bytes_in: u64,
    /// TCP payload bytes sent to clients.
    pub bytes_out: u64,
    pub active_connections: u64,
    /// Client connections accepted.
    pub total_connections: u64,
    /// Requests the client broke: malformed, too large, too slow, or ended half way.
    pub request_errors: u64,
    /// Well-formed requests (HTTP listeners).
    pub requests: u64,
    /// Whether the listener holds as many connections as its limit allows.
    pub full: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberStats {
    pub pool: Uuid,
    pub id: Uuid,
    /// TCP payload bytes sent to the member.
    pub bytes_in: u64,
    /// TCP payload bytes received from the member.
    pub bytes_out: u64,
    /// Requests (HTTP) or connections (TCP) in flight.
    pub active_connections: u64,
    /// Connections made to the member.
    pub total_connections: u64,
    /// Requests the member did not answer properly.
    pub request_errors: u64,
    /// Requests sent (HTTP listeners); a repeated request counts again.
    pub requests: u64,
    pub connect_failures: u64,
}

/// Why the proxy itself answered, or ended, something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// 400: not HTTP/1, or framing that two parsers could read differently.
    MalformedRequest,
    /// 414 or 431: the request head is longer than a buffer, or has too many lines.
    HeadTooLarge,
    /// 405, 501 or 505: a method, transfer coding or version the proxy does not speak.
    NotSupported,
    /// 408: the client did not finish its request in time.
    ClientTimeout,
    /// 503: no pool, or no usable member in it.
    NoMember,
    /// 503: members refused or did not answer the connect.
    ConnectFailed,
    /// 502: the member's answer was broken or ended before its head was complete.
    BadResponse,
    /// 504: the member did not answer in time.
    MemberTimeout,
    /// A connection could not be accepted (out of file descriptors, mostly).
    AcceptFailed,
    /// The client is in none of the networks the address is restricted to.
    NotAllowed,
}

impl Refusal {
    pub const ALL: [Refusal; 10] = [
        Refusal::MalformedRequest,
        Refusal::HeadTooLarge,
        Refusal::NotSupported,
        Refusal::ClientTimeout,
        Refusal::NoMember,
        Refusal::ConnectFailed,
        Refusal::BadResponse,
        Refusal::MemberTimeout,
        Refusal::AcceptFailed,
        Refusal::NotAllowed,
    ];

    /// The name for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::MalformedRequest => "malformed_request",
            Refusal::HeadTooLarge => "head_too_large",
            Refusal::NotSupported => "not_supported",
            Refusal::ClientTimeout => "client_timeout",
            Refusal::NoMember => "no_member",
            Refusal::ConnectFailed => "connect_failed",
            Refusal::BadResponse => "bad_response",
            Refusal::MemberTimeout => "member_timeout",
            Refusal::AcceptFailed => "accept_failed",
            Refusal::NotAllowed => "not_allowed",
        }
    }
}

/// One thread's part of the counters of a listener or a member.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Shard {
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) opened: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) request_errors: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) connect_failures: AtomicU64,
}

/// Adds without a locked instruction where only one thread writes: a shard has one writer.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// The sum of a set of shards.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sum {
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) active: u64,
    pub(crate) connections: u64,
    pub(crate) request_errors: u64,
    pub(crate) requests: u64,
    pub(crate) connect_failures: u64,
}

/// Counters of one listener or member, one shard a thread.
#[derive(Debug)]
pub(crate) struct Counters {
    shards: Box<[Shard]>,
}

impl Counters {
    pub(crate) fn new(threads: usize) -> Self {
        Counters {
            shards: (0..threads.max(1)).map(|_| Shard::default()).collect(),
        }
    }

    /// The shard that thread `index` alone writes.
    pub(crate) fn shard(&self, index: usize) -> &Shard {
        self.shards.get(index).unwrap_or(&self.shards[0])
    }

    pub(crate) fn active(&self) -> u64 {
        // Closed is read first, so that an end seen always has its begin seen.
        let closed: u64 = self.shards.iter().map(|s| s.closed.load(Relaxed)).sum();
        let opened: u64 = self.shards.iter().map(|s| s.opened.load(Relaxed)).sum();
        opened.saturating_sub(closed)
    }

    pub(crate) fn sum(&self) -> Sum {
        let mut sum = Sum {
            active: self.active(),
            ..Sum::default()
        };
        for shard in &self.shards {
            sum.bytes_in += shard.bytes_in.load(Relaxed);
            sum.bytes_out += shard.bytes_out.load(Relaxed);
            sum.connections += shard.connections.load(Relaxed);
            sum.request_errors += shard.request_errors.load(Relaxed);
            sum.requests += shard.requests.load(Relaxed);
            sum.connect_failures += shard.connect_failures.load(Relaxed);
        }
        sum
    }
}

/// Process-wide refusal counters.
#[derive(Debug, Default)]
pub(crate) struct Refusals([AtomicU64; Refusal::ALL.len()]);

impl Refusals {
    pub(crate) fn count(&self, refusal: Refusal) {
        // `ALL` and the enum list the same variants in the same order.
        if let Some(counter) = self.0.get(refusal as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Vec<(Refusal, u64)> {
        Refusal::ALL
            .into_iter()
            .zip(self.0.iter().map(|counter| counter.load(Relaxed)))
            .collect()
    }
}
