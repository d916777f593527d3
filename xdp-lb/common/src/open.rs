//! A new flow: member, way out, source port, two entries.

use crate::address::{Address, Be16};
use crate::checksum::Delta;
use crate::datapath::count_connection;
use crate::env::{Env, Inserted, Scratch, route_status};
use crate::flow::{Flow, FlowKey, flag};
use crate::hash;
use crate::limits::{CLOSED_REUSE_NS, SNAT_PORT_COUNT, SNAT_PORT_FIRST, SNAT_PORT_TRIES};
use crate::parse::protocol;
use crate::select::select;
use crate::state::{MemberStateRef, ServiceStateRef, Tally};
use crate::table::{Member, interface_flag};
use crate::tcp;
use crate::verdict::Verdict;

/// Opens the flow that [`Scratch::opening`] describes; it stays in [`Scratch::forward`], and its way
/// out in [`Scratch::route`].
///
/// # Errors
///
/// The verdict about the packet, not yet counted.
#[inline(always)]
pub fn open<E: Env>(env: &E) -> Result<(), Verdict> {
    let scratch = env.scratch().ok_or(Verdict::DropInternal)?;
    let allowed = scratch.opening.service.allowed;
    // Not a refusal of the listener's: a stranger must not be able to raise its error count.
    if allowed != 0 && !env.is_allowed(allowed, scratch.opening.key.source) {
        return Err(Verdict::DropNotAllowed);
    }
    let slot = scratch.opening.service.slot;
    let state = env.service_state(slot).ok_or(Verdict::DropInternal)?;
    // Counted first and taken back on failure, so that two CPUs cannot both take the last place.
    let before = state.open();
    let result = open_counted(env, scratch, state, before);
    if result.is_err() {
        state.close();
        if let Some(traffic) = env.service_traffic(slot) {
            traffic.count_refusal();
        }
    }
    result
}

#[inline(always)]
fn open_counted<E: Env>(
    env: &E,
    scratch: &mut Scratch,
    state: ServiceStateRef,
    before: Tally,
) -> Result<(), Verdict> {
    let service = &scratch.opening.service;
    let is_v4 = scratch.opening.is_v4 != 0;
    if service.connection_limit != 0 {
        let info = env
            .service_info(service.slot)
            .ok_or(Verdict::DropInternal)?;
        if before.active(info.lost) >= u64::from(service.connection_limit) {
            return Err(Verdict::DropConnectionLimit);
        }
    }
    let slot = select(env, service, state, &scratch.opening.key, is_v4)?;
    let member = env.member(slot).ok_or(Verdict::DropInternal)?;
    let member_state = env.member_state(slot).ok_or(Verdict::DropInternal)?;
    route_to_client(env, is_v4, scratch);
    route_to_member(env, is_v4, slot, member, scratch)?;
    fill(env, slot, member, scratch);

    take_port(env, member_state, scratch)?;
    member_state.open();
    match env.insert_flow(&scratch.opening.key, &scratch.forward) {
        Inserted::Done => {
            if scratch.opening.key.protocol == protocol::UDP {
                count_connection(env, scratch.opening.service.slot, slot);
            }
            Ok(())
        }
        other => {
            env.remove_flow(&scratch.reverse_key);
            member_state.close();
            if other == Inserted::Full {
                return Err(Verdict::DropTableFull);
            }
            // Another CPU has just opened this flow, for a copy of this packet: that one counts.
            Err(Verdict::DropInternal)
        }
    }
}

/// Finds the way back to the client: as the FIB says, else where this frame came from.
#[inline(always)]
fn route_to_client<E: Env>(env: &E, is_v4: bool, scratch: &mut Scratch) {
    let (source, destination) = (scratch.opening.key.destination, scratch.opening.key.source);
    env.route(is_v4, source, destination, &mut scratch.route);
    let [a, b, c] = scratch.opening.frame;
    if scratch.route.status == route_status::RESOLVED {
        scratch.reverse.link = scratch.route.link;
        scratch.reverse.ifindex = scratch.route.ifindex;
    } else {
        scratch.reverse.link = swap_link(a, b, c);
        scratch.reverse.ifindex = env.ingress();
        scratch.route.mtu = 0;
    }
    scratch.reverse.mtu = if scratch.route.mtu != 0 {
        scratch.route.mtu
    } else {
        interface_mtu(env, scratch.reverse.ifindex)
    };
}

/// Finds the way to the member, and our source address on it.
#[inline(always)]
fn route_to_member<E: Env>(
    env: &E,
    is_v4: bool,
    slot: u32,
    member: &Member,
    scratch: &mut Scratch,
) -> Result<(), Verdict> {
    let epoch = env.globals().epoch;
    let remembered = env.member_route(slot).ok_or(Verdict::DropInternal)?;
    if remembered.generation == member.generation && remembered.epoch == epoch {
        scratch.forward.flags = 0;
        scratch.forward.link = remembered.link;
        scratch.forward.ifindex = remembered.ifindex;
        scratch.forward.mtu = remembered.mtu;
        scratch.forward.source = remembered.source;
        scratch.route.status = route_status::REMEMBERED;
        return Ok(());
    }
    env.route(
        is_v4,
        Address::default(),
        member.address,
        &mut scratch.route,
    );
    scratch.forward.flags = match scratch.route.status {
        route_status::RESOLVED => 0,
        route_status::UNRESOLVED => flag::UNRESOLVED,
        _ => return Err(Verdict::DropNoRoute),
    };
    scratch.forward.link = scratch.route.link;
    scratch.forward.ifindex = scratch.route.ifindex;
    let interface = env
        .interface(scratch.route.ifindex)
        .ok_or(Verdict::DropNoSnatAddress)?;
    scratch.forward.mtu = if scratch.route.mtu != 0 {
        scratch.route.mtu
    } else {
        interface.mtu
    };
    let (has, address) = if is_v4 {
        (interface_flag::SNAT_V4, interface.snat_v4)
    } else {
        (interface_flag::SNAT_V6, interface.snat_v6)
    };
    if interface.flags & has == 0 {
        return Err(Verdict::DropNoSnatAddress);
    }
    scratch.forward.source = address;
    if scratch.route.status == route_status::RESOLVED {
        remembered.source = address;
        remembered.link = scratch.forward.link;
        remembered.ifindex = scratch.forward.ifindex;
        remembered.mtu = scratch.forward.mtu;
        remembered.epoch = epoch;
        remembered.generation = member.generation;
    }
    Ok(())
}

#[inline(always)]
fn interface_mtu<E: Env>(env: &E, ifindex: u32) -> u32 {
    match env.interface(ifindex) {
        Some(interface) => interface.mtu,
        None => 1500,
    }
}

/// A frame's addresses the other way round.
#[inline(always)]
const fn swap_link(a: u32, b: u32, c: u32) -> [u32; 3] {
    let ([d0, d1, d2, d3], [d4, d5, s0, s1], [s2, s3, s4, s5]) =
        (a.to_ne_bytes(), b.to_ne_bytes(), c.to_ne_bytes());
    [
        u32::from_ne_bytes([s0, s1, s2, s3]),
        u32::from_ne_bytes([s4, s5, d0, d1]),
        u32::from_ne_bytes([d2, d3, d4, d5]),
    ]
}

/// Fills both entries but for the source port.
#[inline(always)]
fn fill<E: Env>(env: &E, slot: u32, member: &Member, scratch: &mut Scratch) {
    let key = &scratch.opening.key;
    let service = scratch.opening.service.slot;
    let now = env.now();
    let epoch = env.globals().epoch;
    let state = if key.protocol == protocol::UDP {
        tcp::DATAGRAM
    } else {
        tcp::SYN_SENT
    };

    let forward: &mut Flow = &mut scratch.forward;
    let snat = forward.source;
    forward.destination = member.address;
    forward.destination_port = member.port;
    forward.address_delta = Delta::NONE
        .address(key.source, snat)
        .address(key.destination, member.address)
        .fold();
    forward.last_seen = now;
    forward.epoch = epoch;
    forward.state = state;
    forward.service = service;
    forward.member = slot;
    forward.member_generation = member.generation;
    forward.syns = 1;

    let reverse: &mut Flow = &mut scratch.reverse;
    reverse.source = key.destination;
    reverse.source_port = key.destination_port;
    reverse.destination = key.source;
    reverse.destination_port = key.source_port;
    reverse.address_delta = Delta::NONE
        .address(member.address, key.destination)
        .address(snat, key.source)
        .fold();
    reverse.last_seen = now;
    reverse.epoch = epoch;
    reverse.state = state;
    reverse.flags = flag::REVERSE;
    reverse.service = service;
    reverse.member = slot;
    reverse.member_generation = member.generation;
    reverse.syns = 0;

    scratch.reverse_key = FlowKey {
        source: member.address,
        destination: snat,
        source_port: member.port,
        destination_port: Be16(0),
        protocol: key.protocol,
    };
}

/// Takes a source port by inserting the reverse entry, which only one flow can have.
#[inline(always)]
fn take_port<E: Env>(env: &E, state: MemberStateRef, scratch: &mut Scratch) -> Result<(), Verdict> {
    let turn = state.next_port();
    for attempt in 0..SNAT_PORT_TRIES {
        // In order first, so that a port rests as long as possible; scattered when taken.
        let index = if attempt == 0 {
            (turn % u64::from(SNAT_PORT_COUNT)) as u32
        } else {
            hash::pair(turn as u32, attempt) % SNAT_PORT_COUNT
        };
        let port = Be16::new(SNAT_PORT_FIRST.wrapping_add(index as u16));
        scratch.forward.source_port = port;
        scratch.reverse_key.destination_port = port;
        let (client, vip) = (
            scratch.reverse.destination_port,
            scratch.reverse.source_port,
        );
        scratch.forward.port_delta = Delta::NONE
            .port(client, port)
            .port(vip, scratch.forward.destination_port)
            .fold();
        scratch.reverse.port_delta = Delta::NONE
            .port(scratch.reverse_key.source_port, vip)
            .port(port, client)
            .fold();
        match env.insert_flow(&scratch.reverse_key, &scratch.reverse) {
            Inserted::Done => return Ok(()),
            Inserted::Full => return Err(Verdict::DropTableFull),
            Inserted::Exists => {
                if reclaim(env, &scratch.reverse_key, scratch.reverse.last_seen)
                    && env.insert_flow(&scratch.reverse_key, &scratch.reverse) == Inserted::Done
                {
                    return Ok(());
                }
            }
        }
    }
    Err(Verdict::DropNoPort)
}

/// Removes the flow that holds a source port, if it has been closed for a while.
#[inline(always)]
fn reclaim<E: Env>(env: &E, key: &FlowKey, now: u64) -> bool {
    let Some(reverse) = env.flow(key) else {
        return true;
    };
    if reverse.state() & tcp::STATE_MASK != tcp::CLOSED
        || now.wrapping_sub(reverse.last_seen()) < CLOSED_REUSE_NS
    {
        return false;
    }
    if let Some(forward) = env.sibling(reverse, key.protocol)
        && forward.source_port() == key.destination_port
        && forward.destination() == key.source
        && forward.destination_port() == key.source_port
        && let Some(forward_key) = env.sibling_key(reverse, key.protocol)
    {
        env.remove_flow(forward_key);
    }
    env.remove_flow(key);
    env.count(Verdict::PortReclaimed);
    true
}
