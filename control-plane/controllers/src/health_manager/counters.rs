//! What the health manager counts.

use amphora_api::HeartbeatError;

use super::Refusal;

/// Since the start of the process. Every datagram that came in is in `accepted` or in one of the refusals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    pub received: u64,
    pub accepted: u64,
    pub refused_too_short: u64,
    pub refused_too_long: u64,
    pub refused_bad_hmac: u64,
    pub refused_bad_compression: u64,
    pub refused_too_large: u64,
    pub refused_bad_message: u64,
    /// Seen before (by any health manager), or overtaken by a later one.
    pub refused_replayed: u64,
    /// Waited in the queue for longer than a heartbeat interval.
    pub refused_late: u64,
    /// Messages came faster than they were worked off.
    pub refused_overflow: u64,
    /// Sender is no amphora of ours, or a deleted one.
    pub refused_unknown_amphora: u64,
    /// Of those accepted: the amphora serves other listeners than it should.
    pub listener_mismatches: u64,
    /// Datagrams that were sent and did not arrive, by the gaps between sequence numbers.
    pub lost: u64,
    pub receive_errors: u64,
    pub database_errors: u64,
    pub failovers_requested: u64,
    /// Scans in which the circuit breaker held automatic failover back.
    pub scans_held_back: u64,
    pub zombie_deletions_requested: u64,
}

impl Counters {
    /// Datagrams refused, for whatever reason.
    pub fn refused_total(&self) -> u64 {
        self.refused_too_short
            + self.refused_too_long
            + self.refused_bad_hmac
            + self.refused_bad_compression
            + self.refused_too_large
            + self.refused_bad_message
            + self.refused_replayed
            + self.refused_late
            + self.refused_overflow
            + self.refused_unknown_amphora
    }

    pub(super) fn undecodable(&mut self, error: HeartbeatError) {
        *match error {
            HeartbeatError::TooShort => &mut self.refused_too_short,
            HeartbeatError::TooLong => &mut self.refused_too_long,
            HeartbeatError::BadHmac => &mut self.refused_bad_hmac,
            HeartbeatError::BadCompression => &mut self.refused_bad_compression,
            HeartbeatError::TooLarge => &mut self.refused_too_large,
            HeartbeatError::BadMessage => &mut self.refused_bad_message,
        } += 1;
    }

    pub(super) fn refused(&mut self, refusal: Refusal) {
        *match refusal {
            Refusal::Replayed => &mut self.refused_replayed,
            Refusal::Late => &mut self.refused_late,
            Refusal::Overflow => &mut self.refused_overflow,
            Refusal::UnknownAmphora => &mut self.refused_unknown_amphora,
        } += 1;
    }
}
