//! Counters that packets change, seen through references that other CPUs share.

#![allow(
    unsafe_code,
    reason = "map values are shared with other CPUs: every access is atomic"
)]

use crate::atomic;
use crate::table::{MemberState, ServiceState, Traffic};

/// Flows of a slot so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub opened: u64,
    pub closed: u64,
}

impl Tally {
    /// Flows alive, given those that ended unseen.
    #[inline(always)]
    #[must_use]
    pub const fn active(self, lost: u64) -> u64 {
        let active = self.opened.wrapping_sub(self.closed).wrapping_sub(lost);
        // Counters are read one after the other: a flow that ended in between is not "minus one".
        if active > u64::MAX / 2 { 0 } else { active }
    }
}

macro_rules! reference {
    ($(#[$doc:meta])* $name:ident, $target:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name(*mut $target);

        impl $name {
            /// # Safety
            ///
            /// The pointer must be valid, aligned, and stay so while this value is used; everyone
            /// else must access it atomically.
            #[inline(always)]
            #[must_use]
            pub const unsafe fn new(target: *mut $target) -> Self {
                Self(target)
            }
        }
    };
}

macro_rules! load {
    ($self:ident.$field:ident) => {
        // SAFETY: `new` promises a valid, aligned target that is accessed atomically.
        unsafe { atomic::load64(&raw mut (*$self.0).$field) }
    };
}

macro_rules! add {
    ($self:ident.$field:ident) => {
        // SAFETY: as for `load`.
        unsafe { atomic::add64(&raw mut (*$self.0).$field, 1) }
    };
}

reference! {
    /// A [`ServiceState`] in its map.
    ServiceStateRef, ServiceState
}
reference! {
    /// A [`MemberState`] in its map.
    MemberStateRef, MemberState
}
reference! {
    /// A [`Traffic`] of this CPU.
    TrafficRef, Traffic
}

macro_rules! tally {
    ($name:ident) => {
        impl $name {
            /// Adds a flow; the tally before.
            #[inline(always)]
            pub fn open(self) -> Tally {
                let opened = add!(self.opened);
                let closed = load!(self.closed);
                Tally { opened, closed }
            }

            /// Takes a flow away.
            #[inline(always)]
            pub fn close(self) {
                add!(self.closed);
            }

            #[inline(always)]
            #[must_use]
            pub fn tally(self) -> Tally {
                let closed = load!(self.closed);
                let opened = load!(self.opened);
                Tally { opened, closed }
            }
        }
    };
}

tally!(ServiceStateRef);
tally!(MemberStateRef);

impl ServiceStateRef {
    /// Takes the next turn of the family's schedule.
    #[inline(always)]
    #[must_use]
    pub fn next_turn(self, is_v4: bool) -> u64 {
        // SAFETY: `new` promises a valid, aligned target that is accessed atomically.
        unsafe {
            let turns = &raw mut (*self.0).turn;
            if is_v4 {
                atomic::add64(&raw mut (*turns)[0], 1)
            } else {
                atomic::add64(&raw mut (*turns)[1], 1)
            }
        }
    }
}

impl MemberStateRef {
    /// Takes the next turn of the source port allocation.
    #[inline(always)]
    #[must_use]
    pub fn next_port(self) -> u64 {
        add!(self.next_port)
    }
}

macro_rules! bump {
    ($self:ident.$field:ident, $by:expr) => {{
        // One CPU writes, user space reads: no locked instruction needed.
        let value = load!($self.$field).wrapping_add($by);
        // SAFETY: as for `load`.
        unsafe { atomic::store64(&raw mut (*$self.0).$field, value) };
    }};
}

impl TrafficRef {
    /// Counts a forwarded packet with `bytes` of payload.
    #[inline(always)]
    pub fn count_packet(self, to_client: bool, bytes: u64) {
        if to_client {
            bump!(self.packets_out, 1);
            bump!(self.bytes_out, bytes);
        } else {
            bump!(self.packets_in, 1);
            bump!(self.bytes_in, bytes);
        }
    }

    #[inline(always)]
    pub fn count_connection(self) {
        bump!(self.connections, 1);
    }

    #[inline(always)]
    pub fn count_refusal(self) {
        bump!(self.refused, 1);
    }
}
