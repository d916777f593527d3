//! Which well-signed messages are refused, and why.

use amphora_api::HeartbeatMessage;

/// Why a well-signed message was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    #[error("message was seen before or is older than one seen")]
    Replayed,
    #[error("message waited too long to be worked off")]
    Late,
    #[error("messages come faster than they are worked off")]
    Overflow,
    #[error("sender is no amphora of ours")]
    UnknownAmphora,
}

/// How far a sequence may run ahead for a message to count as the next one although its clock went back.
const NEXT: u64 = 16;

/// The newest message of one amphora.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Newest {
    seq: u64,
    sent_at_ms: Option<u64>,
}

impl Newest {
    pub(super) const fn of(message: &HeartbeatMessage) -> Self {
        Self {
            seq: message.seq,
            sent_at_ms: message.sent_at_ms,
        }
    }

    /// Takes a newer message in, and tells how many between the two were lost.
    ///
    /// An agent that restarts counts `seq` from zero while its clock goes on. A clock that is set back is followed as
    /// long as `seq` goes on closely. Upstream senders have no clock in the message: of them only the very same number
    /// again is refused, for a lower one may be a restart.
    pub(super) fn advance(&mut self, message: &HeartbeatMessage) -> Result<u64, Refusal> {
        let follows = message.seq > self.seq;
        let close = follows && message.seq - self.seq <= NEXT;
        let newer = match (self.sent_at_ms, message.sent_at_ms) {
            (Some(before), Some(now)) => now > before || (now == before && follows) || close,
            // A sender that told its clock once keeps doing so.
            (Some(_), None) => false,
            (None, _) => message.seq != self.seq,
        };
        if !newer {
            return Err(Refusal::Replayed);
        }
        let lost = if follows {
            message.seq - self.seq - 1
        } else {
            0
        };
        *self = Self::of(message);
        Ok(lost)
    }
}
