//! Maps and helpers as the data path's [`Env`], for both kinds of program.

use core::ffi::c_void;
use core::marker::PhantomData;

use aya_ebpf::{
    bindings::{BPF_NOEXIST, bpf_sock_tuple},
    helpers::generated::{bpf_fib_lookup, bpf_jiffies64, bpf_sk_release, bpf_skc_lookup_tcp},
    maps::lpm_trie::Key,
};
use xdp_lb_common::{
    address::Address,
    env::{Env, Inserted, MemberRoute, Route, Scratch, route_status},
    flow::{Flow, FlowKey, FlowRef, link_words},
    fragment::{FragmentKey, Ports},
    limits::MAX_L4_OFFSET,
    packet::Packet,
    state::{MemberStateRef, ServiceStateRef, TrafficRef},
    table::{AllowedPrefix, Globals, Interface, Member, Service, ServiceInfo, ServiceKey},
    verdict::Verdict,
};

use crate::maps;

const EEXIST: i32 = -17;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// Loopback has index 1 in every network namespace. Looking routes up as if from there needs
/// forwarding switched on for loopback only, not for interfaces that carry traffic.
const LOOPBACK: u32 = 1;
const FIB_SUCCESS: i64 = 0;
const FIB_NO_NEIGH: i64 = 7;
const TCP_LISTEN: u32 = 10;
const CURRENT_NETNS: u64 = u64::MAX;

/// `struct bpf_fib_lookup` of the kernel's UAPI, without its unions.
#[repr(C)]
pub(crate) struct FibLookup {
    family: u8,
    l4_protocol: u8,
    sport: u16,
    dport: u16,
    /// In: length to check against the MTU. Out: the MTU.
    length_or_mtu: u16,
    ifindex: u32,
    tos_or_metric: u32,
    source: [u32; 4],
    /// In: destination. Out: next hop.
    destination: [u32; 4],
    vlan: u32,
    smac: [u8; 6],
    dmac: [u8; 6],
}

const _: () = assert!(size_of::<FibLookup>() == 64);

/// A kind of program.
pub(crate) trait Program {
    type Packet: Packet;
    /// Whether the program can hand a packet to the neighbour layer.
    const RESOLVES_NEIGHBOURS: bool;
}

/// The maps, seen from one packet.
pub(crate) struct Surroundings<P> {
    pub(crate) context: *mut c_void,
    pub(crate) ingress: u32,
    pub(crate) program: PhantomData<P>,
}

/// Nanoseconds between two kernel ticks; the loader sets it before loading.
#[unsafe(no_mangle)]
static TICK_NS: u64 = 4_000_000;

/// Time of the last tick, ns. The counter is read in place: asking for the time is a call, and
/// returns are dear where the CPU guards them.
#[inline(always)]
pub(crate) fn ticks_ns() -> u64 {
    // SAFETY: the helper has no precondition, and the constant is valid. It is read volatile because
    // its value here is not the one it is loaded with.
    unsafe { bpf_jiffies64() * (&raw const TICK_NS).read_volatile() }
}

/// A value written to memory and read again.
#[inline(always)]
pub(crate) fn through_memory(value: usize) -> usize {
    let Some(scratch) = maps::SCRATCH.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: the entry belongs to this CPU; nobody else uses the field.
    unsafe {
        let place = &raw mut (*scratch).value;
        place.write_volatile(value as u64);
        place.read_volatile() as usize & MAX_L4_OFFSET
    }
}

impl<P: Program> Env for Surroundings<P> {
    type Packet = P::Packet;

    #[inline(always)]
    fn now(&self) -> u64 {
        ticks_ns()
    }

    #[inline(always)]
    fn ingress(&self) -> u32 {
        self.ingress
    }

    #[inline(always)]
    fn resolves_neighbours(&self) -> bool {
        P::RESOLVES_NEIGHBOURS
    }

    #[inline(always)]
    fn globals(&self) -> Globals {
        match maps::GLOBALS.get(0) {
            Some(globals) => *globals,
            None => Globals {
                epoch: 0,
                handover: 0,
            },
        }
    }

    #[inline(always)]
    fn flow(&self, key: &FlowKey) -> Option<FlowRef> {
        let flow = maps::FLOWS.get_ptr_mut(key)?;
        // SAFETY: entries stay readable under RCU while the program runs, and every access to what
        // changes is atomic.
        Some(unsafe { FlowRef::new(flow) })
    }

    #[inline(always)]
    fn insert_flow(&self, key: &FlowKey, flow: &Flow) -> Inserted {
        match maps::FLOWS.insert(key, flow, BPF_NOEXIST as u64) {
            Ok(()) => Inserted::Done,
            Err(EEXIST) => Inserted::Exists,
            Err(_) => Inserted::Full,
        }
    }

    #[inline(always)]
    fn remove_flow(&self, key: &FlowKey) {
        // Absent already is as good.
        let _ = maps::FLOWS.remove(key);
    }

    #[inline(always)]
    fn service(&self, key: &ServiceKey) -> Option<&Service> {
        // SAFETY: the loader replaces values as a whole; the old one stays readable under RCU.
        unsafe { maps::SERVICES.get(key) }
    }

    #[inline(always)]
    fn service_info(&self, slot: u32) -> Option<&ServiceInfo> {
        maps::SERVICE_INFO.get(slot)
    }

    #[inline(always)]
    fn service_state(&self, slot: u32) -> Option<ServiceStateRef> {
        let state = maps::SERVICE_STATE.get_ptr_mut(slot)?;
        // SAFETY: array entries are never freed, and all access is atomic.
        Some(unsafe { ServiceStateRef::new(state) })
    }

    #[inline(always)]
    fn member(&self, slot: u32) -> Option<&Member> {
        maps::MEMBERS.get(slot)
    }

    #[inline(always)]
    fn member_state(&self, slot: u32) -> Option<MemberStateRef> {
        let state = maps::MEMBER_STATE.get_ptr_mut(slot)?;
        // SAFETY: array entries are never freed, and all access is atomic.
        Some(unsafe { MemberStateRef::new(state) })
    }

    #[inline(always)]
    fn ring(&self, index: u32) -> Option<u32> {
        maps::RING.get(index).copied()
    }

    #[inline(always)]
    fn interface(&self, ifindex: u32) -> Option<&Interface> {
        // SAFETY: the loader replaces values as a whole; the old one stays readable under RCU.
        unsafe { maps::INTERFACES.get(ifindex) }
    }

    #[inline(always)]
    fn is_vip(&self, address: &Address) -> bool {
        maps::VIPS.get_ptr(address).is_some()
    }

    #[inline(always)]
    fn is_allowed(&self, set: u32, client: Address) -> bool {
        let prefix = AllowedPrefix {
            set,
            address: client,
        };
        maps::ALLOWED
            .get(Key::new(AllowedPrefix::ALL_BITS, prefix))
            .is_some()
    }

    #[inline(always)]
    fn route(&self, is_v4: bool, source: Address, destination: Address, route: &mut Route) {
        let Some(fib) = maps::FIB.get_ptr_mut(0) else {
            route.status = route_status::NONE;
            return;
        };
        // SAFETY: the entry belongs to this CPU, and is used in this function only.
        let fib = unsafe { &mut *fib };
        fib.l4_protocol = 0;
        fib.sport = 0;
        fib.dport = 0;
        // Small, so that it always fits and the MTU comes back.
        fib.length_or_mtu = 64;
        fib.ifindex = LOOPBACK;
        fib.tos_or_metric = 0;
        fib.vlan = 0;
        if is_v4 {
            fib.family = AF_INET;
            fib.source[0] = source.v4_word();
            fib.destination[0] = destination.v4_word();
        } else {
            fib.family = AF_INET6;
            fib.source = source.0;
            fib.destination = destination.0;
        }
        // SAFETY: `fib` is a `struct bpf_fib_lookup` and its size is passed with it.
        let result = unsafe {
            bpf_fib_lookup(
                self.context,
                core::ptr::from_mut(fib).cast(),
                size_of::<FibLookup>() as i32,
                0,
            )
        } as i64;
        route.ifindex = fib.ifindex;
        route.next_hop = if is_v4 {
            Address::v4(fib.destination[0])
        } else {
            Address(fib.destination)
        };
        if result == FIB_SUCCESS {
            route.link = link_words(fib.dmac, fib.smac);
            route.mtu = fib.length_or_mtu as u32;
            route.status = route_status::RESOLVED;
        } else if result == FIB_NO_NEIGH {
            route.link = [0; 3];
            route.mtu = 0;
            route.status = route_status::UNRESOLVED;
        } else {
            route.link = [0; 3];
            route.mtu = 0;
            route.status = route_status::NONE;
        }
    }

    #[inline(always)]
    fn has_local_socket(&self, key: &FlowKey, is_v4: bool) -> bool {
        let mut tuple = [0u32; 9];
        let ports = u32::from(key.source_port.0) | u32::from(key.destination_port.0) << 16;
        let length = if is_v4 {
            tuple[0] = key.source.v4_word();
            tuple[1] = key.destination.v4_word();
            tuple[2] = ports;
            12
        } else {
            tuple[0] = key.source.0[0];
            tuple[1] = key.source.0[1];
            tuple[2] = key.source.0[2];
            tuple[3] = key.source.0[3];
            tuple[4] = key.destination.0[0];
            tuple[5] = key.destination.0[1];
            tuple[6] = key.destination.0[2];
            tuple[7] = key.destination.0[3];
            tuple[8] = ports;
            36
        };
        // SAFETY: `tuple` is a `struct bpf_sock_tuple` of the family that `length` says.
        let socket = unsafe {
            bpf_skc_lookup_tcp(
                self.context,
                (&raw mut tuple).cast::<bpf_sock_tuple>(),
                length,
                CURRENT_NETNS,
                0,
            )
        };
        if socket.is_null() {
            return false;
        }
        // SAFETY: not null, and held until the release below.
        let state = unsafe { (*socket).state };
        // SAFETY: taken above, released once.
        unsafe { bpf_sk_release(socket.cast()) };
        state != TCP_LISTEN
    }

    #[inline(always)]
    fn remember_local_handshake(&self, key: &FlowKey) {
        // A full LRU map makes room itself; anything else only costs this hint.
        let _ = maps::HANDSHAKES.insert(key, 1, 0);
    }

    #[inline(always)]
    fn is_local_handshake(&self, key: &FlowKey) -> bool {
        maps::HANDSHAKES.get_ptr(key).is_some()
    }

    #[inline(always)]
    fn remember_piece(&self, key: &FragmentKey, ports: &Ports) {
        // A full LRU map makes room itself; without an entry the later pieces go to the stack.
        let _ = maps::FRAGMENTS.insert(key, ports, 0);
    }

    #[inline(always)]
    fn piece(&self, key: &FragmentKey) -> Option<Ports> {
        // SAFETY: entries stay readable under RCU while the program runs; two first pieces with the
        // same key at once would be two datagrams with the same id, which no receiver can tell apart.
        unsafe { maps::FRAGMENTS.get(key) }.copied()
    }

    #[inline(always)]
    fn scratch(&self) -> Option<&mut Scratch> {
        let scratch = maps::SCRATCH.get_ptr_mut(0)?;
        // SAFETY: the entry belongs to this CPU, programs on it do not nest, and the data path does
        // not hold it across another call that takes it.
        Some(unsafe { &mut *scratch })
    }

    #[inline(always)]
    fn built_flow(&self) -> Option<FlowRef> {
        let scratch = maps::SCRATCH.get_ptr_mut(0)?;
        // SAFETY: the entry belongs to this CPU and is never freed.
        Some(unsafe { FlowRef::new(&raw mut (*scratch).forward) })
    }

    #[inline(always)]
    fn member_route(&self, slot: u32) -> Option<&mut MemberRoute> {
        let route = maps::MEMBER_ROUTES.get_ptr_mut(slot)?;
        // SAFETY: the entry belongs to this CPU, and the data path holds one at a time.
        Some(unsafe { &mut *route })
    }

    #[inline(always)]
    fn sibling_key(&self, flow: FlowRef, protocol: u32) -> Option<&FlowKey> {
        let key = maps::SIBLING.get_ptr_mut(0)?;
        // SAFETY: the entry belongs to this CPU, and the data path is done with the last key when it
        // asks for another.
        unsafe {
            *key = flow.sibling_key(protocol);
            Some(&*key)
        }
    }

    #[inline(always)]
    fn count(&self, verdict: Verdict) {
        if let Some(counter) = maps::VERDICTS.get_ptr_mut(verdict as u32) {
            // SAFETY: the entry belongs to this CPU.
            unsafe { *counter += 1 };
        }
    }

    #[inline(always)]
    fn service_traffic(&self, slot: u32) -> Option<TrafficRef> {
        let traffic = maps::SERVICE_STATS.get_ptr_mut(slot)?;
        // SAFETY: the entry belongs to this CPU and is never freed.
        Some(unsafe { TrafficRef::new(traffic) })
    }

    #[inline(always)]
    fn member_traffic(&self, slot: u32) -> Option<TrafficRef> {
        let traffic = maps::MEMBER_STATS.get_ptr_mut(slot)?;
        // SAFETY: the entry belongs to this CPU and is never freed.
        Some(unsafe { TrafficRef::new(traffic) })
    }
}

/// Keeps the compiler from computing `value` a second time, so that the verifier sees the same
/// register compared with the packet's end and used for access.
#[inline(always)]
pub(crate) fn opaque(mut value: usize) -> usize {
    // SAFETY: the register keeps its value. (An empty statement would give one instruction two line
    // records, which the verifier refuses.)
    unsafe {
        core::arch::asm!("{0} = {0}", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
    }
    value
}
