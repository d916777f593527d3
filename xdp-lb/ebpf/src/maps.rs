//! The maps. Names are those the loader asks for; sizes of `FLOWS` are set at load time.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray},
};
use xdp_lb_common::{
    address::Address,
    env::{MemberRoute, Scratch},
    flow::{Flow, FlowKey},
    fragment::{FragmentKey, Ports},
    limits,
    table::{
        AllowedPrefix, Globals, Interface, Member, MemberState, Service, ServiceInfo, ServiceKey,
        ServiceState, Traffic,
    },
    verdict::VERDICT_SLOTS,
};

use crate::surroundings::FibLookup;

#[map]
pub(crate) static FLOWS: LruHashMap<FlowKey, Flow> = LruHashMap::pinned(131_072, 0);

#[map]
pub(crate) static SERVICES: HashMap<ServiceKey, Service> =
    HashMap::pinned(limits::MAX_SERVICE_KEYS, 0);

#[map]
pub(crate) static SERVICE_INFO: Array<ServiceInfo> = Array::pinned(limits::MAX_SERVICES, 0);

#[map]
pub(crate) static SERVICE_STATE: Array<ServiceState> = Array::pinned(limits::MAX_SERVICES, 0);

#[map]
pub(crate) static SERVICE_STATS: PerCpuArray<Traffic> =
    PerCpuArray::pinned(limits::MAX_SERVICES, 0);

#[map]
pub(crate) static MEMBERS: Array<Member> = Array::pinned(limits::MAX_MEMBERS, 0);

#[map]
pub(crate) static MEMBER_STATE: Array<MemberState> = Array::pinned(limits::MAX_MEMBERS, 0);

#[map]
pub(crate) static MEMBER_STATS: PerCpuArray<Traffic> = PerCpuArray::pinned(limits::MAX_MEMBERS, 0);

/// What each CPU remembers of the ways to members.
#[map]
pub(crate) static MEMBER_ROUTES: PerCpuArray<MemberRoute> =
    PerCpuArray::with_max_entries(limits::MAX_MEMBERS, 0);

#[map]
pub(crate) static RING: Array<u32> = Array::pinned(limits::RING_ENTRIES, 0);

#[map]
pub(crate) static INTERFACES: HashMap<u32, Interface> = HashMap::pinned(limits::MAX_INTERFACES, 0);

#[map]
pub(crate) static VIPS: HashMap<Address, u32> = HashMap::pinned(limits::MAX_VIPS, 0);

#[map]
pub(crate) static ALLOWED: LpmTrie<AllowedPrefix, u32> =
    LpmTrie::pinned(limits::MAX_ALLOWED_PREFIXES, 0);

#[map]
pub(crate) static HANDSHAKES: LruHashMap<FlowKey, u32> =
    LruHashMap::pinned(limits::MAX_LOCAL_HANDSHAKES, 0);

#[map]
pub(crate) static FRAGMENTS: LruHashMap<FragmentKey, Ports> =
    LruHashMap::with_max_entries(limits::MAX_FRAGMENTED, 0);

#[map]
pub(crate) static GLOBALS: Array<Globals> = Array::pinned(1, 0);

#[map]
pub(crate) static VERDICTS: PerCpuArray<u64> = PerCpuArray::pinned(VERDICT_SLOTS, 0);

#[map]
pub(crate) static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Room for a route look-up.
#[map]
pub(crate) static FIB: PerCpuArray<FibLookup> = PerCpuArray::with_max_entries(1, 0);

/// Room for the key of a flow's other entry.
#[map]
pub(crate) static SIBLING: PerCpuArray<FlowKey> = PerCpuArray::with_max_entries(1, 0);
