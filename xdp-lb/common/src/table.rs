//! Keys and values of the configuration and counter maps.
//!
//! All are `repr(C)` with explicit padding, and every bit pattern is a valid value: the kernel side
//! never has to trust the loader for memory safety. "Owned" says which side writes.

use crate::address::{Address, Be16};

/// A VIP, port and protocol. Key of `SERVICES`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServiceKey {
    pub vip: Address,
    pub port: Be16,
    /// IP protocol number.
    pub protocol: u16,
}

/// How to treat new flows to a [`ServiceKey`]. Replaced as a whole, hence atomically. Owned by the loader.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Service {
    /// Index into the per-service arrays.
    pub slot: u32,
    /// One of [`algorithm`].
    pub algorithm: u32,
    /// First entry of the schedule in `RING`.
    pub ring_offset: u32,
    /// Entries of the schedule; 0 when no member is usable.
    pub ring_length: u32,
    /// Concurrent flows; 0 is no limit.
    pub connection_limit: u32,
    /// The set of prefixes in `ALLOWED` that clients must be in; 0 lets everybody in.
    pub allowed: u32,
}

/// A client prefix of a set: the data of a key of `ALLOWED`, whose prefix length counts the set's
/// bits, too. Owned by the loader; a set is never changed, but replaced by another.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct AllowedPrefix {
    pub set: u32,
    pub address: Address,
}

impl AllowedPrefix {
    /// Bits of a set's number.
    pub const SET_BITS: u32 = 32;
    /// Bits of a key that is a whole address.
    pub const ALL_BITS: u32 = Self::SET_BITS + 128;
}

/// Values of [`Service::algorithm`].
pub mod algorithm {
    pub const ROUND_ROBIN: u32 = 0;
    pub const LEAST_CONNECTIONS: u32 = 1;
    pub const SOURCE_IP: u32 = 2;
    pub const SOURCE_IP_PORT: u32 = 3;
}

/// What the loader knows of a service slot. Owned by the loader.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceInfo {
    /// Listener id; all zero when the slot is free.
    pub id: [u8; 16],
    pub idle_timeout_ns: u64,
    /// Flows that ended without the programs seeing it: `active = opened - closed - lost`.
    pub lost: u64,
}

/// Counters of a service slot that decisions depend on. Owned by the programs (atomic).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceState {
    /// Turn of the round robin, IPv4 then IPv6.
    pub turn: [u64; 2],
    pub opened: u64,
    pub closed: u64,
}

/// One member of one service. Owned by the loader.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Member {
    /// Member id; all zero when the slot is free.
    pub id: [u8; 16],
    pub address: Address,
    pub port: Be16,
    pub reserved: u16,
    /// Slot of the service it belongs to.
    pub service: u32,
    /// Changes when the slot goes to another member.
    pub generation: u32,
    /// Bits of [`member_flag`].
    pub flags: u32,
    pub weight: u32,
    pub reserved2: u32,
    /// As [`ServiceInfo::lost`].
    pub lost: u64,
}

/// Bits of [`Member::flags`].
pub mod member_flag {
    /// Fails its health check: flows to it end.
    pub const DOWN: u32 = 1;
    /// No longer configured; flows go on.
    pub const REMOVED: u32 = 2;
    /// Backup member.
    pub const BACKUP: u32 = 4;
}

/// Counters of a member slot that decisions depend on. Owned by the programs (atomic).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemberState {
    pub opened: u64,
    pub closed: u64,
    /// Turn of the source port allocation.
    pub next_port: u64,
    pub reserved: u64,
}

/// One interface. Key: ifindex. Owned by the loader.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interface {
    pub snat_v4: Address,
    pub snat_v6: Address,
    /// L3 MTU in bytes.
    pub mtu: u32,
    /// Bits of [`interface_flag`].
    pub flags: u32,
    pub mac: [u8; 6],
    pub handover_mac: [u8; 6],
    pub reserved: u32,
}

/// Bits of [`Interface::flags`].
pub mod interface_flag {
    pub const SNAT_V4: u32 = 1;
    pub const SNAT_V6: u32 = 2;
    pub const HANDOVER: u32 = 4;
}

/// Traffic counters of a service or member slot, per CPU. Owned by the programs.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    pub packets_in: u64,
    pub bytes_in: u64,
    pub packets_out: u64,
    pub bytes_out: u64,
    /// Completed client handshakes (TCP) or flows begun (UDP).
    pub connections: u64,
    /// New flows refused.
    pub refused: u64,
}

/// The single entry of `GLOBALS`. Owned by the loader.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Globals {
    /// Flows that saw another value check their member and route again.
    pub epoch: u32,
    /// Not 0 while some interface hands over.
    pub handover: u32,
}

const _: () = assert!(size_of::<ServiceKey>() == 20);
const _: () = assert!(size_of::<Service>() == 24);
const _: () = assert!(size_of::<AllowedPrefix>() == 20);
const _: () = assert!(size_of::<ServiceInfo>() == 32);
const _: () = assert!(size_of::<ServiceState>() == 32);
const _: () = assert!(size_of::<Member>() == 64);
const _: () = assert!(size_of::<MemberState>() == 32);
const _: () = assert!(size_of::<Interface>() == 56);
const _: () = assert!(size_of::<Traffic>() == 48);
const _: () = assert!(size_of::<Globals>() == 8);
