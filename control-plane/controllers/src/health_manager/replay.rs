//! Which well-signed messages are refused, and why.

use amphora_api::HeartbeatMessage;
use lb_store::MessageMark;

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

pub(super) const fn mark(message: &HeartbeatMessage) -> MessageMark {
    MessageMark {
        seq: message.seq,
        sent_at_ms: message.sent_at_ms,
    }
}

/// How many messages were lost between `newest` and this one, when this one is newer.
///
/// An agent that restarts counts `seq` from zero while its clock goes on. A clock that is set back is followed as
/// long as `seq` goes on closely. Upstream senders have no clock in the message: of them only the very same number
/// again is refused, for a lower one may be a restart.
pub(super) fn lost_since(newest: &MessageMark, message: &HeartbeatMessage) -> Result<u64, Refusal> {
    let ahead = message.seq.checked_sub(newest.seq).filter(|n| *n > 0);
    let close = ahead.is_some_and(|ahead| ahead <= NEXT);
    let newer = match (newest.sent_at_ms, message.sent_at_ms) {
        (Some(before), Some(now)) => now > before || (now == before && ahead.is_some()) || close,
        // A sender that told its clock once keeps doing so.
        (Some(_), None) => false,
        (None, _) => message.seq != newest.seq,
    };
    if !newer {
        return Err(Refusal::Replayed);
    }
    Ok(ahead.map_or(0, |ahead| ahead - 1))
}
