//! Sizes and times both sides agree on.

/// First source port for connections to members; see the loader's `SNAT_PORTS` for why.
pub const SNAT_PORT_FIRST: u16 = 1024;
/// Last source port for connections to members.
pub const SNAT_PORT_LAST: u16 = 32767;
/// Number of source ports per (SNAT address, member address and port).
pub const SNAT_PORT_COUNT: u32 = SNAT_PORT_LAST as u32 - SNAT_PORT_FIRST as u32 + 1;
/// Ports tried before a new flow is refused.
pub const SNAT_PORT_TRIES: u32 = 16;
/// A closed flow's port may be taken over by a new flow after this long.
pub const CLOSED_REUSE_NS: u64 = 2_000_000_000;

/// Listeners per network namespace.
pub const MAX_SERVICES: u32 = 1024;
/// (VIP, port, protocol) triples per network namespace.
pub const MAX_SERVICE_KEYS: u32 = 8192;
/// VIP addresses per network namespace.
pub const MAX_VIPS: u32 = 1024;
/// Client prefixes of all listeners together.
pub const MAX_ALLOWED_PREFIXES: u32 = 1 << 18;
/// Members of all listeners together, draining ones included.
pub const MAX_MEMBERS: u32 = 16384;
/// Interfaces per network namespace.
pub const MAX_INTERFACES: u32 = 256;
/// Entries of all schedules together.
pub const RING_ENTRIES: u32 = 1 << 19;
/// Entries of one listener's schedule for one address family.
pub const MAX_RING_LENGTH: u32 = 8192;
/// Members that one least-connections decision compares.
pub const LEAST_CONNECTIONS_SCAN: u32 = 32;
/// Remembered local handshakes while a handover is on.
pub const MAX_LOCAL_HANDSHAKES: u32 = 65536;

/// Datagrams in pieces whose ports are remembered.
pub const MAX_FRAGMENTED: u32 = 16384;
/// A later piece follows the first for this long: as long as Linux waits for one.
pub const FRAGMENT_TIMEOUT_NS: u64 = 30_000_000_000;

/// IPv6 extension headers walked before a packet is left to the stack.
pub const MAX_EXTENSION_HEADERS: u32 = 6;

/// Largest offset of a TCP, UDP or ICMP header in a packet we handle; a mask.
pub const MAX_L4_OFFSET: usize = 0x3ff;

/// A SYN without an answer, or a handshake without its last ACK, is forgotten after this long.
pub const HANDSHAKE_TIMEOUT_NS: u64 = 30_000_000_000;
/// A closed flow still translates late packets for this long.
pub const CLOSED_TIMEOUT_NS: u64 = 10_000_000_000;
/// The SYN, counted from the first, that moves a flow without an answer to another member.
pub const SYN_MOVES_MEMBER: u32 = 3;

/// Changes whenever a map's key or value does: pinned maps of another version are not adopted.
pub const ABI_VERSION: u32 = 2;
