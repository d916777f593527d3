//! The data path over plain memory: what tests, property tests and fuzzers run.
//!
//! Same code, other [`Env`]: hash maps for maps, a settable clock, a table of routes.

#![allow(
    unsafe_code,
    reason = "hands out the same raw references to table entries as the kernel does"
)]

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::address::Address;
use crate::datapath::process;
use crate::env::{Action, Env, Inserted, MemberRoute, Route, Scratch};
use crate::flow::{Flow, FlowKey, FlowRef};
use crate::fragment::{FragmentKey, Ports};
use crate::packet::BufferPacket;
use crate::state::{MemberStateRef, ServiceStateRef, TrafficRef};
use crate::table::{
    Globals, Interface, Member, MemberState, Service, ServiceInfo, ServiceKey, ServiceState,
    Traffic,
};
use crate::verdict::Verdict;

/// A table whose entries have a fixed place in memory.
#[derive(Debug)]
struct Slots<T>(HashMap<u32, Box<UnsafeCell<T>>>);

impl<T: Copy + Default> Slots<T> {
    fn new() -> Self {
        Self(HashMap::new())
    }

    fn pointer(&mut self, slot: u32) -> *mut T {
        self.0.entry(slot).or_default().get()
    }

    fn read(&self, slot: u32) -> T {
        // SAFETY: `process` is not running (it borrows the twin), so nobody writes.
        self.0
            .get(&slot)
            .map_or_else(T::default, |cell| unsafe { *cell.get() })
    }
}

/// Everything the programs would find in their maps. Configure by the public fields.
#[derive(Debug)]
pub struct Twin {
    pub now: Cell<u64>,
    pub ingress: u32,
    pub resolves_neighbours: bool,
    pub globals: Globals,
    pub capacity: usize,
    pub services: HashMap<ServiceKey, Service>,
    pub service_infos: HashMap<u32, ServiceInfo>,
    pub members: HashMap<u32, Member>,
    pub ring: Vec<u32>,
    pub interfaces: HashMap<u32, Interface>,
    pub vips: HashSet<Address>,
    /// Prefixes by set: address and length.
    pub allowed: HashMap<u32, Vec<(Address, u32)>>,
    pub routes: HashMap<Address, Route>,
    pub sockets: HashSet<FlowKey>,
    flows: RefCell<HashMap<FlowKey, Box<UnsafeCell<Flow>>>>,
    /// Entries removed while a packet is handled: still readable until it is done, as under RCU.
    #[expect(
        clippy::vec_box,
        reason = "an entry that is still referred to must not move"
    )]
    removed: RefCell<Vec<Box<UnsafeCell<Flow>>>>,
    handshakes: RefCell<HashSet<FlowKey>>,
    pieces: RefCell<HashMap<FragmentKey, Ports>>,
    service_states: RefCell<Slots<ServiceState>>,
    member_states: RefCell<Slots<MemberState>>,
    service_traffic: RefCell<Slots<Traffic>>,
    member_traffic: RefCell<Slots<Traffic>>,
    member_routes: RefCell<Slots<MemberRoute>>,
    verdicts: RefCell<BTreeMap<Verdict, u64>>,
    scratch: UnsafeCell<Scratch>,
    sibling: UnsafeCell<FlowKey>,
}

impl Default for Twin {
    fn default() -> Self {
        Self {
            now: Cell::new(1_000_000_000),
            ingress: 1,
            resolves_neighbours: true,
            globals: Globals::default(),
            capacity: 65536,
            services: HashMap::new(),
            service_infos: HashMap::new(),
            members: HashMap::new(),
            ring: Vec::new(),
            interfaces: HashMap::new(),
            vips: HashSet::new(),
            allowed: HashMap::new(),
            routes: HashMap::new(),
            sockets: HashSet::new(),
            flows: RefCell::default(),
            removed: RefCell::default(),
            handshakes: RefCell::default(),
            pieces: RefCell::default(),
            service_states: RefCell::new(Slots::new()),
            member_states: RefCell::new(Slots::new()),
            service_traffic: RefCell::new(Slots::new()),
            member_traffic: RefCell::new(Slots::new()),
            member_routes: RefCell::new(Slots::new()),
            verdicts: RefCell::default(),
            scratch: UnsafeCell::default(),
            sibling: UnsafeCell::default(),
        }
    }
}

impl Twin {
    /// Handles one packet, rewriting it in place.
    pub fn run(&mut self, packet: &mut [u8]) -> Action {
        let mut buffer = BufferPacket::new(packet);
        let action = process(&*self, &mut buffer);
        packet.copy_from_slice(&buffer.into_bytes());
        self.removed.get_mut().clear();
        action
    }

    /// How often a verdict was counted.
    #[must_use]
    pub fn verdict(&self, verdict: Verdict) -> u64 {
        self.verdicts.borrow().get(&verdict).copied().unwrap_or(0)
    }

    /// Packets with any verdict.
    #[must_use]
    pub fn verdicts(&self) -> BTreeMap<Verdict, u64> {
        self.verdicts.borrow().clone()
    }

    /// A copy of the flow table.
    #[must_use]
    pub fn flows(&self) -> HashMap<FlowKey, Flow> {
        self.flows
            .borrow()
            .iter()
            // SAFETY: `process` is not running, so nobody writes.
            .map(|(key, cell)| (*key, unsafe { *cell.get() }))
            .collect()
    }

    #[must_use]
    pub fn service_state(&self, slot: u32) -> ServiceState {
        self.service_states.borrow().read(slot)
    }

    #[must_use]
    pub fn member_state(&self, slot: u32) -> MemberState {
        self.member_states.borrow().read(slot)
    }

    #[must_use]
    pub fn service_traffic(&self, slot: u32) -> Traffic {
        self.service_traffic.borrow().read(slot)
    }

    #[must_use]
    pub fn member_traffic(&self, slot: u32) -> Traffic {
        self.member_traffic.borrow().read(slot)
    }
}

impl Env for Twin {
    type Packet = BufferPacket;

    fn now(&self) -> u64 {
        self.now.get()
    }

    fn ingress(&self) -> u32 {
        self.ingress
    }

    fn resolves_neighbours(&self) -> bool {
        self.resolves_neighbours
    }

    fn globals(&self) -> Globals {
        self.globals
    }

    fn flow(&self, key: &FlowKey) -> Option<FlowRef> {
        let flows = self.flows.borrow();
        let cell = flows.get(key)?;
        // SAFETY: the box stays where it is; when removed it waits in `removed` until the packet is done.
        Some(unsafe { FlowRef::new(cell.get()) })
    }

    fn insert_flow(&self, key: &FlowKey, flow: &Flow) -> Inserted {
        let mut flows = self.flows.borrow_mut();
        if flows.contains_key(key) {
            return Inserted::Exists;
        }
        if flows.len() >= self.capacity {
            return Inserted::Full;
        }
        flows.insert(*key, Box::new(UnsafeCell::new(*flow)));
        Inserted::Done
    }

    fn remove_flow(&self, key: &FlowKey) {
        if let Some(cell) = self.flows.borrow_mut().remove(key) {
            self.removed.borrow_mut().push(cell);
        }
    }

    fn service(&self, key: &ServiceKey) -> Option<&Service> {
        self.services.get(key)
    }

    fn service_info(&self, slot: u32) -> Option<&ServiceInfo> {
        self.service_infos.get(&slot)
    }

    fn service_state(&self, slot: u32) -> Option<ServiceStateRef> {
        // SAFETY: boxed entries are never removed.
        Some(unsafe { ServiceStateRef::new(self.service_states.borrow_mut().pointer(slot)) })
    }

    fn member(&self, slot: u32) -> Option<&Member> {
        self.members.get(&slot)
    }

    fn member_state(&self, slot: u32) -> Option<MemberStateRef> {
        // SAFETY: boxed entries are never removed.
        Some(unsafe { MemberStateRef::new(self.member_states.borrow_mut().pointer(slot)) })
    }

    fn ring(&self, index: u32) -> Option<u32> {
        self.ring.get(usize::try_from(index).ok()?).copied()
    }

    fn interface(&self, ifindex: u32) -> Option<&Interface> {
        self.interfaces.get(&ifindex)
    }

    fn is_vip(&self, address: &Address) -> bool {
        self.vips.contains(address)
    }

    fn is_allowed(&self, set: u32, client: Address) -> bool {
        let bits = |address: Address| {
            address.0.iter().fold(0u128, |bits, word| {
                bits << 32 | u128::from(u32::from_be(*word))
            })
        };
        self.allowed.get(&set).is_some_and(|prefixes| {
            prefixes.iter().any(|(address, length)| {
                let other = bits(*address) ^ bits(client);
                other.checked_shr(128 - length).unwrap_or(0) == 0
            })
        })
    }

    fn route(&self, _is_v4: bool, _source: Address, destination: Address, route: &mut Route) {
        *route = self.routes.get(&destination).copied().unwrap_or_default();
    }

    fn has_local_socket(&self, key: &FlowKey, _is_v4: bool) -> bool {
        self.sockets.contains(key)
    }

    fn remember_local_handshake(&self, key: &FlowKey) {
        self.handshakes.borrow_mut().insert(*key);
    }

    fn is_local_handshake(&self, key: &FlowKey) -> bool {
        self.handshakes.borrow().contains(key)
    }

    fn remember_piece(&self, key: &FragmentKey, ports: &Ports) {
        self.pieces.borrow_mut().insert(*key, *ports);
    }

    fn piece(&self, key: &FragmentKey) -> Option<Ports> {
        self.pieces.borrow().get(key).copied()
    }

    fn scratch(&self) -> Option<&mut Scratch> {
        // SAFETY: one thread, and `process` never holds it across another call that takes it.
        Some(unsafe { &mut *self.scratch.get() })
    }

    fn built_flow(&self) -> Option<FlowRef> {
        // SAFETY: one thread, and the room lives as long as the twin.
        Some(unsafe { FlowRef::new(&raw mut (*self.scratch.get()).forward) })
    }

    fn member_route(&self, slot: u32) -> Option<&mut MemberRoute> {
        // SAFETY: boxed entries are never removed; one thread, and no two references at a time.
        Some(unsafe { &mut *self.member_routes.borrow_mut().pointer(slot) })
    }

    fn sibling_key(&self, flow: FlowRef, protocol: u32) -> Option<&FlowKey> {
        // SAFETY: one thread, and `process` is done with the last key when it asks for another.
        unsafe {
            *self.sibling.get() = flow.sibling_key(protocol);
            Some(&*self.sibling.get())
        }
    }

    fn count(&self, verdict: Verdict) {
        *self.verdicts.borrow_mut().entry(verdict).or_default() += 1;
    }

    fn service_traffic(&self, slot: u32) -> Option<TrafficRef> {
        // SAFETY: boxed entries are never removed.
        Some(unsafe { TrafficRef::new(self.service_traffic.borrow_mut().pointer(slot)) })
    }

    fn member_traffic(&self, slot: u32) -> Option<TrafficRef> {
        // SAFETY: boxed entries are never removed.
        Some(unsafe { TrafficRef::new(self.member_traffic.borrow_mut().pointer(slot)) })
    }
}
