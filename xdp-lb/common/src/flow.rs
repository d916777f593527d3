//! The flow table: two entries per flow, one for each direction, each with everything a packet needs.
//!
//! ```text
//! client -> VIP:port      key of the forward entry    rewritten to   SNAT:port -> member:port
//! member -> SNAT:port     key of the reverse entry    rewritten to   VIP:port -> client
//! ```
//!
//! The forward entry carries the state of the flow; the reverse entry has a copy of "closed" only.

#![allow(
    unsafe_code,
    reason = "map values are shared with other CPUs: every access goes through FlowRef"
)]

use crate::address::{Address, Be16};
use crate::atomic;

/// Five-tuple of an arriving packet. Key of `FLOWS`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FlowKey {
    pub source: Address,
    pub destination: Address,
    pub source_port: Be16,
    pub destination_port: Be16,
    /// IP protocol number.
    pub protocol: u32,
}

/// What becomes of packets with a [`FlowKey`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    pub source: Address,
    pub destination: Address,
    pub source_port: Be16,
    pub destination_port: Be16,
    /// Checksum difference of the addresses, folded.
    pub address_delta: u16,
    /// Checksum difference of the ports, folded.
    pub port_delta: u16,
    /// Destination and source MAC as they go into the frame.
    pub link: [u32; 3],
    pub ifindex: u32,
    /// L3 MTU of the way out, bytes.
    pub mtu: u32,
    /// [`crate::table::Globals::epoch`] at the last check.
    pub epoch: u32,
    /// Tick of the last packet, ns.
    pub last_seen: u64,
    /// One of [`crate::tcp`]'s states.
    pub state: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    pub service: u32,
    pub member: u32,
    pub member_generation: u32,
    /// SYNs seen before an answer.
    pub syns: u32,
}

const _: () = assert!(size_of::<FlowKey>() == 40);
const _: () = assert!(size_of::<Flow>() == 96);
const _: () = assert!(core::mem::offset_of!(Flow, last_seen) == 64);

/// Bits of [`Flow::flags`].
pub mod flag {
    /// Member to client.
    pub const REVERSE: u32 = 1;
    /// The next hop's MAC was not known at the last look.
    pub const UNRESOLVED: u32 = 2;
}

impl Flow {
    /// The key of the other direction's entry.
    #[inline(always)]
    #[must_use]
    pub const fn sibling_key(&self, protocol: u32) -> FlowKey {
        FlowKey {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            protocol,
        }
    }

    /// Whether this is the member-to-client entry.
    #[inline(always)]
    #[must_use]
    pub const fn is_reverse(&self) -> bool {
        self.flags & flag::REVERSE != 0
    }
}

/// A flow in the table, which other CPUs may use at the same time.
///
/// What never changes after insertion is read plainly; the rest through relaxed atomics.
#[derive(Debug, Clone, Copy)]
pub struct FlowRef(*mut Flow);

macro_rules! constant {
    ($($field:ident: $type:ty),* $(,)?) => {
        $(
            #[inline(always)]
            #[must_use]
            pub fn $field(self) -> $type {
                // SAFETY: `new` promises a valid flow; this field is written before insertion only.
                unsafe { (*self.0).$field }
            }
        )*
    };
}

macro_rules! shared {
    ($($field:ident, $set:ident: $load:ident, $store:ident, $type:ty);* $(;)?) => {
        $(
            #[inline(always)]
            #[must_use]
            pub fn $field(self) -> $type {
                // SAFETY: `new` promises a valid, aligned flow; this field is only accessed atomically.
                unsafe { atomic::$load(&raw mut (*self.0).$field) }
            }

            #[inline(always)]
            pub fn $set(self, value: $type) {
                // SAFETY: as above.
                unsafe { atomic::$store(&raw mut (*self.0).$field, value) }
            }
        )*
    };
}

impl FlowRef {
    /// # Safety
    ///
    /// `flow` must be valid, aligned, and stay so while this value is used; anyone else must access
    /// the changing fields atomically.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn new(flow: *mut Flow) -> Self {
        Self(flow)
    }

    constant! {
        source: Address,
        destination: Address,
        source_port: Be16,
        destination_port: Be16,
        address_delta: u16,
        port_delta: u16,
        service: u32,
        member: u32,
        member_generation: u32,
    }

    shared! {
        ifindex, set_ifindex: load32, store32, u32;
        mtu, set_mtu: load32, store32, u32;
        epoch, set_epoch: load32, store32, u32;
        last_seen, set_last_seen: load64, store64, u64;
        state, set_state: load32, store32, u32;
        flags, set_flags: load32, store32, u32;
        syns, set_syns: load32, store32, u32;
    }

    /// Sets the state to `new` and returns the one before.
    #[inline(always)]
    pub fn swap_state(self, new: u32) -> u32 {
        // SAFETY: `new` promises a valid, aligned flow; the state is only accessed atomically.
        unsafe { atomic::swap32(&raw mut (*self.0).state, new) }
    }

    /// Moves from `old` to `new`; false when the state was another.
    #[inline(always)]
    #[must_use]
    pub fn move_state(self, old: u32, new: u32) -> bool {
        // SAFETY: as above.
        unsafe { atomic::replace32(&raw mut (*self.0).state, old, new) }
    }

    /// Sets bits of the state and returns the one before.
    #[inline(always)]
    pub fn set_state_bits(self, bits: u32) -> u32 {
        // SAFETY: as above.
        unsafe { atomic::or32(&raw mut (*self.0).state, bits) }
    }

    /// Frame addresses of the way out.
    #[inline(always)]
    #[must_use]
    pub fn link(self) -> [u32; 3] {
        // SAFETY: as for the other fields. A reader beside a writer may see a mix of two next hops
        // for one packet; the sender's retransmission covers that.
        unsafe {
            let link = &raw mut (*self.0).link;
            [
                atomic::load32(&raw mut (*link)[0]),
                atomic::load32(&raw mut (*link)[1]),
                atomic::load32(&raw mut (*link)[2]),
            ]
        }
    }

    /// Changes the frame addresses of the way out.
    #[inline(always)]
    pub fn set_link(self, words: [u32; 3]) {
        // SAFETY: as in `link`.
        unsafe {
            let link = &raw mut (*self.0).link;
            atomic::store32(&raw mut (*link)[0], words[0]);
            atomic::store32(&raw mut (*link)[1], words[1]);
            atomic::store32(&raw mut (*link)[2], words[2]);
        }
    }

    /// Whether this is the member-to-client entry.
    #[inline(always)]
    #[must_use]
    pub fn is_reverse(self) -> bool {
        self.flags() & flag::REVERSE != 0
    }

    /// The key of the other direction's entry.
    #[inline(always)]
    #[must_use]
    pub fn sibling_key(self, protocol: u32) -> FlowKey {
        FlowKey {
            source: self.destination(),
            destination: self.source(),
            source_port: self.destination_port(),
            destination_port: self.source_port(),
            protocol,
        }
    }
}

/// Destination and source MAC as three words of a frame.
#[inline(always)]
#[must_use]
pub const fn link_words(destination: [u8; 6], source: [u8; 6]) -> [u32; 3] {
    let [a, b, c, d, e, f] = destination;
    let [g, h, i, j, k, l] = source;
    [
        u32::from_ne_bytes([a, b, c, d]),
        u32::from_ne_bytes([e, f, g, h]),
        u32::from_ne_bytes([i, j, k, l]),
    ]
}
