//! What the data path needs from its surroundings: maps, clock, routes, counters.
//!
//! Two implementations: the eBPF crate (maps and helpers) and [`crate::twin`] (plain memory).

use crate::address::Address;
use crate::flow::{Flow, FlowKey, FlowRef};
use crate::fragment::{FragmentKey, Ports};
use crate::packet::Packet;
use crate::state::{MemberStateRef, ServiceStateRef, TrafficRef};
use crate::table::{Globals, Interface, Member, Service, ServiceInfo, ServiceKey};
use crate::verdict::Verdict;

/// What the caller of [`crate::datapath::process`] must do with the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Leave it to the stack.
    Pass,
    Drop,
    /// Send the frame out of this interface.
    Redirect {
        ifindex: u32,
    },
    /// Send the packet out of this interface; the kernel finds the MAC of the next hop.
    RedirectNeighbour {
        ifindex: u32,
        is_v4: bool,
        next_hop: Address,
    },
}

/// Why a packet is not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Still to be counted.
    Uncounted(Verdict),
    /// Not yet decided: for [`crate::open::open`], by what is in [`Scratch::opening`], and then
    /// [`crate::datapath::send_first`].
    OpenFirst,
    /// Not yet decided: for [`crate::icmp::forward_error`].
    IcmpError,
    /// Not yet decided: for [`crate::fragment::forward_piece`].
    Piece,
}

impl Refusal {
    /// The verdict about a packet for which everything that could come first has been done: its flow
    /// was opened, and the table was so full that it dropped it at once.
    #[inline(always)]
    #[must_use]
    pub const fn or_table_full(self) -> Verdict {
        match self {
            Self::Uncounted(verdict) => verdict,
            Self::OpenFirst | Self::IcmpError | Self::Piece => Verdict::DropTableFull,
        }
    }
}

impl From<Verdict> for Refusal {
    #[inline(always)]
    fn from(verdict: Verdict) -> Self {
        Self::Uncounted(verdict)
    }
}

/// A packet that may open a flow.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opening {
    pub key: FlowKey,
    pub service: Service,
    /// The first twelve bytes of the frame.
    pub frame: [u32; 3],
    /// 1 for IPv4, 0 for IPv6.
    pub is_v4: u32,
}

/// Result of inserting a flow that must be new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    Done,
    Exists,
    Full,
}

/// A way out.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Route {
    pub next_hop: Address,
    /// Destination and source MAC; meaningful when resolved.
    pub link: [u32; 3],
    pub ifindex: u32,
    /// 0 when not known.
    pub mtu: u32,
    /// One of [`route_status`].
    pub status: u32,
}

/// Values of [`Route::status`].
pub mod route_status {
    /// No way out, or the address is our own.
    pub const NONE: u32 = 0;
    /// Way out known, MAC of the next hop not.
    pub const UNRESOLVED: u32 = 1;
    pub const RESOLVED: u32 = 2;
    /// Resolved when an earlier flow asked; the next hop is not known, only its MAC.
    pub const REMEMBERED: u32 = 3;
}

/// The resolved way to a member and our address on it, as one CPU last looked it up: new flows
/// need no look-up of their own while the epoch lasts.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemberRoute {
    pub source: Address,
    pub link: [u32; 3],
    pub ifindex: u32,
    pub mtu: u32,
    /// [`Globals::epoch`] at the look-up.
    pub epoch: u32,
    /// [`Member::generation`] at the look-up; 0 when there was none.
    pub generation: u32,
    pub reserved: u32,
}

const _: () = assert!(size_of::<MemberRoute>() == 48);

/// Room to build a flow in; too large for the stack of an eBPF program.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scratch {
    pub forward: Flow,
    pub reverse: Flow,
    pub reverse_key: FlowKey,
    pub route: Route,
    pub opening: Opening,
    /// A value on its way through memory, see [`crate::packet::Packet::launder`].
    pub value: u64,
}

/// Surroundings of the data path. A missing entry is `None`, never a panic.
pub trait Env {
    type Packet: Packet;

    /// Time of the last kernel tick, ns from an unknown start.
    fn now(&self) -> u64;
    /// Where the packet came in.
    fn ingress(&self) -> u32;
    /// Whether [`Action::RedirectNeighbour`] can be carried out here.
    fn resolves_neighbours(&self) -> bool;

    fn globals(&self) -> Globals;
    fn flow(&self, key: &FlowKey) -> Option<FlowRef>;
    fn insert_flow(&self, key: &FlowKey, flow: &Flow) -> Inserted;
    fn remove_flow(&self, key: &FlowKey);
    fn service(&self, key: &ServiceKey) -> Option<&Service>;
    fn service_info(&self, slot: u32) -> Option<&ServiceInfo>;
    fn service_state(&self, slot: u32) -> Option<ServiceStateRef>;
    fn member(&self, slot: u32) -> Option<&Member>;
    fn member_state(&self, slot: u32) -> Option<MemberStateRef>;
    fn ring(&self, index: u32) -> Option<u32>;
    fn interface(&self, ifindex: u32) -> Option<&Interface>;
    fn is_vip(&self, address: &Address) -> bool;
    /// Whether the address is in a prefix of the set.
    fn is_allowed(&self, set: u32, client: Address) -> bool;
    /// Looks a route up and writes it to `route`.
    fn route(&self, is_v4: bool, source: Address, destination: Address, route: &mut Route);
    /// Whether a local TCP socket other than a listening one has this five-tuple.
    fn has_local_socket(&self, key: &FlowKey, is_v4: bool) -> bool;
    fn remember_local_handshake(&self, key: &FlowKey);
    fn is_local_handshake(&self, key: &FlowKey) -> bool;
    /// Remembers the ports of a datagram's first piece.
    fn remember_piece(&self, key: &FragmentKey, ports: &Ports);
    /// The ports of a datagram whose first piece has passed.
    fn piece(&self, key: &FragmentKey) -> Option<Ports>;
    /// Room of this CPU. The caller must not hold it across another call that takes it.
    #[expect(
        clippy::mut_from_ref,
        reason = "the room belongs to the CPU, not to the environment"
    )]
    fn scratch(&self) -> Option<&mut Scratch>;
    /// [`Scratch::forward`], as if it were in the table: the flow that was just opened.
    fn built_flow(&self) -> Option<FlowRef>;
    /// What this CPU remembers of the way to a member slot. Not to be held across another call.
    #[expect(
        clippy::mut_from_ref,
        reason = "the entry belongs to the CPU, not to the environment"
    )]
    fn member_route(&self, slot: u32) -> Option<&mut MemberRoute>;

    /// The key of the other direction's entry, in room of this CPU that the next call reuses.
    fn sibling_key(&self, flow: FlowRef, protocol: u32) -> Option<&FlowKey>;
    /// The other direction's entry.
    #[inline(always)]
    fn sibling(&self, flow: FlowRef, protocol: u32) -> Option<FlowRef> {
        self.flow(self.sibling_key(flow, protocol)?)
    }

    fn count(&self, verdict: Verdict);
    /// Counters of a service slot, of this CPU.
    fn service_traffic(&self, slot: u32) -> Option<TrafficRef>;
    /// Counters of a member slot, of this CPU.
    fn member_traffic(&self, slot: u32) -> Option<TrafficRef>;
}
