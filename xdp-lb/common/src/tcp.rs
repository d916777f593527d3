//! States of a flow.
//!
//! ```text
//!            SYN (client)            SYN-ACK (member)          ACK (client)
//!   (none) ---------------> SYN_SENT ---------------> SYN_RECEIVED ---------------> ESTABLISHED
//!                              |                          |                          |  FIN: a bit per side
//!                              +------------ RST ---------+-------- RST, both FIN ---+----> CLOSED
//!   SYN on CLOSED, or on a flow with a FIN: a new flow with a new member choice
//!   UDP flows are in DATAGRAM until they are idle
//! ```
//!
//! A connection counts when the client's last ACK of the handshake is seen: retransmitted SYNs,
//! scans and SYN floods never count.

/// Client's SYN seen.
pub const SYN_SENT: u32 = 1;
/// Member's SYN-ACK seen.
pub const SYN_RECEIVED: u32 = 2;
/// Handshake complete; FIN bits may be added.
pub const ESTABLISHED: u32 = 3;
/// Reset, or both sides have sent FIN.
pub const CLOSED: u32 = 4;
/// UDP.
pub const DATAGRAM: u32 = 5;

/// State without the FIN bits.
pub const STATE_MASK: u32 = 0xff;
/// Client has sent FIN.
pub const FIN_CLIENT: u32 = 0x100;
/// Member has sent FIN.
pub const FIN_MEMBER: u32 = 0x200;
/// Both sides have sent FIN.
pub const FIN_BOTH: u32 = FIN_CLIENT | FIN_MEMBER;

/// TCP header flag bits.
pub mod flag {
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const ACK: u8 = 0x10;
}

/// Whether the flags are those of a connection's first segment.
#[inline(always)]
#[must_use]
pub const fn is_opening(flags: u8) -> bool {
    flags & (flag::SYN | flag::ACK | flag::RST | flag::FIN) == flag::SYN
}

/// Idle time after which a flow in `state` is forgotten.
#[must_use]
pub const fn timeout_ns(state: u32, idle_timeout_ns: u64) -> u64 {
    match state & STATE_MASK {
        SYN_SENT | SYN_RECEIVED => crate::limits::HANDSHAKE_TIMEOUT_NS,
        CLOSED => crate::limits::CLOSED_TIMEOUT_NS,
        _ => idle_timeout_ns,
    }
}
