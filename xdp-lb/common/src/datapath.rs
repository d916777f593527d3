//! The life of one packet.
//!
//! ```text
//! parse -> flow? --yes--> admit (state, epoch) -> transmit (rewrite, count, redirect)
//!            |                   |  new SYN on an old flow, UDP to a dead member
//!            no                  v
//!            +--> service? -> open (member, route, source port, two entries) -> send_first
//!                    |
//!                    no -> handover? -> pass to the stack, untouched
//! ```
//!
//! [`decide`] is the way of an established packet; what is rarer ends it with a [`Refusal`] that
//! names the function to call next, so that the verifier can see each by itself. [`process`] does
//! all of it at once.

use crate::env::{Action, Env, Refusal, Route, Scratch, route_status};
use crate::flow::{FlowKey, FlowRef, flag, link_words};
use crate::fragment::forward_piece;
use crate::icmp::forward_error;
use crate::limits::SYN_MOVES_MEMBER;
use crate::open::open;
use crate::packet::Packet;
use crate::parse::{Headers, Piece, parse, protocol};
use crate::rewrite::{rewrite, rewrite_later};
use crate::table::{ServiceKey, interface_flag, member_flag};
use crate::tcp;
use crate::verdict::Verdict;

/// Decides about one packet, and rewrites it when it is forwarded.
#[inline(always)]
pub fn process<E: Env>(env: &E, packet: &mut E::Packet) -> Action {
    let result = match decide(env, packet) {
        Ok(action) => Ok(action),
        Err(Refusal::Uncounted(verdict)) => Err(verdict),
        Err(Refusal::OpenFirst) => open(env).and_then(|()| send_first(env, packet)),
        Err(Refusal::IcmpError) => forward_error(env, packet),
        Err(Refusal::Piece) => match forward_piece(env, packet) {
            Ok(action) => Ok(action),
            Err(Refusal::OpenFirst) => {
                open(env).and_then(|()| forward_piece(env, packet).map_err(Refusal::or_table_full))
            }
            Err(refusal) => Err(refusal.or_table_full()),
        },
    };
    match result {
        Ok(action) => action,
        Err(verdict) => refuse(env, verdict),
    }
}

/// Counts why a packet is not forwarded.
#[inline(always)]
pub fn refuse<E: Env>(env: &E, verdict: Verdict) -> Action {
    env.count(verdict);
    if verdict.is_drop() {
        Action::Drop
    } else {
        Action::Pass
    }
}

impl Verdict {
    /// Whether a packet with this verdict goes no further.
    #[inline(always)]
    #[must_use]
    pub const fn is_drop(self) -> bool {
        matches!(
            self,
            Verdict::DropConnectionLimit
                | Verdict::DropNotAllowed
                | Verdict::DropNoPort
                | Verdict::DropTableFull
                | Verdict::DropNoRoute
                | Verdict::DropNoSnatAddress
                | Verdict::DropTooBig
                | Verdict::DropTtlExpired
                | Verdict::DropInternal
        )
    }
}

/// Decides about one packet, and rewrites it when it is forwarded.
///
/// # Errors
///
/// Why it is not forwarded, or what must be done first.
#[inline(always)]
pub fn decide<E: Env>(env: &E, packet: &mut E::Packet) -> Result<Action, Refusal> {
    if packet.has_vlan_tag() {
        return Err(Verdict::PassVlan.into());
    }
    let headers = match parse(packet) {
        Ok(headers) => headers,
        Err(Verdict::PassFragment) => return Err(Refusal::Piece),
        Err(verdict) => return Err(verdict.into()),
    };
    match headers.key.protocol {
        protocol::TCP | protocol::UDP => transport(env, packet, &headers),
        _ => Err(Refusal::IcmpError),
    }
}

/// What the state of a flow says about its next packet.
enum Admission {
    /// Forward it.
    Go,
    /// Forward it through the neighbour layer, so that the kernel checks the next hop's MAC.
    GoAndProbe,
    /// The flow is over; this packet begins a new one.
    Reopen,
    Stop(Verdict),
}

#[inline(always)]
pub(crate) fn transport<E: Env>(
    env: &E,
    packet: &mut E::Packet,
    headers: &Headers,
) -> Result<Action, Refusal> {
    let key = &headers.key;
    let opening = headers.key.protocol == protocol::TCP && tcp::is_opening(headers.tcp_flags);
    if let Some(flow) = env.flow(key) {
        let probe = match admit(env, headers, flow, opening) {
            Admission::Go => Some(false),
            Admission::GoAndProbe => Some(true),
            Admission::Reopen => {
                remove_pair(env, key, flow);
                None
            }
            Admission::Stop(verdict) => return Err(verdict.into()),
        };
        if let Some(probe) = probe {
            let out = way_out(env, headers.is_v4, flow, probe)?;
            let unresolved = !probe && matches!(out, Action::RedirectNeighbour { .. });
            return transmit(env, packet, headers, flow, out, unresolved).map_err(Refusal::from);
        }
    }
    let service = env.service(&ServiceKey {
        vip: headers.key.destination,
        port: headers.key.destination_port,
        protocol: headers.key.protocol as u16,
    });
    let otherwise = match service {
        Some(service) if opening || headers.key.protocol == protocol::UDP => {
            let frame = packet.window::<12>(0).ok_or(Verdict::PassMalformed)?;
            let scratch = env.scratch().ok_or(Verdict::DropInternal)?;
            scratch.opening.key = *key;
            scratch.opening.service = *service;
            scratch.opening.frame = [frame.u32::<0>(), frame.u32::<4>(), frame.u32::<8>()];
            scratch.opening.is_v4 = u32::from(headers.is_v4);
            return Err(Refusal::OpenFirst);
        }
        Some(_) => Verdict::PassNoFlow,
        None => Verdict::PassNotService,
    };
    handover(env, packet, headers, key, otherwise).map_err(Refusal::from)
}

/// Sends the packet that [`open`] has just opened a flow for, by what that left in the scratch room.
///
/// # Errors
///
/// The verdict about the packet, not yet counted.
#[inline(always)]
pub fn send_first<E: Env>(env: &E, packet: &mut E::Packet) -> Result<Action, Verdict> {
    let headers = parse(packet)?;
    let scratch = env.scratch().ok_or(Verdict::DropInternal)?;
    let out = first_way_out(env, headers.is_v4, scratch)?;
    let flow = env.built_flow().ok_or(Verdict::DropInternal)?;
    transmit(env, packet, &headers, flow, out, false)
}

/// Through the neighbour layer when the route was looked up just now, so that the kernel goes on
/// checking the next hop; else with the MAC that an earlier flow to this member used.
#[inline(always)]
fn first_way_out<E: Env>(env: &E, is_v4: bool, scratch: &Scratch) -> Result<Action, Verdict> {
    let route = &scratch.route;
    if env.resolves_neighbours() {
        if route.status != route_status::REMEMBERED {
            return Ok(Action::RedirectNeighbour {
                ifindex: route.ifindex,
                is_v4,
                next_hop: route.next_hop,
            });
        }
    } else if route.status == route_status::UNRESOLVED {
        return Err(Verdict::PassToClassifier);
    }
    Ok(Action::Redirect {
        ifindex: scratch.forward.ifindex,
    })
}

#[inline(always)]
fn admit<E: Env>(env: &E, headers: &Headers, flow: FlowRef, opening: bool) -> Admission {
    let epoch = env.globals().epoch;
    let mut probe = false;
    if flow.epoch() != epoch {
        if !env.resolves_neighbours() {
            return Admission::Stop(Verdict::PassToClassifier);
        }
        if !flow.is_reverse() && is_member_down(env, flow) {
            let state = flow.state() & tcp::STATE_MASK;
            if opening || state == tcp::DATAGRAM {
                env.count(Verdict::FlowMoved);
                return Admission::Reopen;
            }
            if let Some(reverse) = env.sibling(flow, headers.key.protocol) {
                close(env, flow, reverse);
            }
            return Admission::Stop(Verdict::PassMemberDown);
        }
        refresh_route(env, headers.is_v4, flow);
        flow.set_epoch(epoch);
        probe = true;
    }
    if headers.key.protocol == protocol::TCP {
        if flow.is_reverse() {
            track_member(env, headers, flow);
        } else if opening {
            let state = flow.state();
            if state & tcp::STATE_MASK == tcp::CLOSED || state & tcp::FIN_BOTH != 0 {
                return Admission::Reopen;
            }
            if state == tcp::SYN_SENT {
                let syns = flow.syns() + 1;
                flow.set_syns(syns);
                if syns >= SYN_MOVES_MEMBER {
                    env.count(Verdict::FlowMoved);
                    return Admission::Reopen;
                }
            }
        } else {
            track_client(env, headers, flow);
        }
    }
    if probe {
        Admission::GoAndProbe
    } else {
        Admission::Go
    }
}

#[inline(always)]
fn is_member_down<E: Env>(env: &E, flow: FlowRef) -> bool {
    match env.member(flow.member()) {
        Some(member) => {
            member.generation == flow.member_generation() && member.flags & member_flag::DOWN != 0
        }
        None => false,
    }
}

/// Follows a client's segment other than a SYN.
#[inline(always)]
fn track_client<E: Env>(env: &E, headers: &Headers, flow: FlowRef) {
    let flags = headers.tcp_flags;
    let state = flow.state();
    let established = state & !tcp::STATE_MASK | tcp::ESTABLISHED;
    if flags & tcp::flag::RST == 0
        && state & tcp::STATE_MASK == tcp::SYN_RECEIVED
        && flags & tcp::flag::ACK != 0
        && flow.move_state(state, established)
    {
        count_connection(env, flow.service(), flow.member());
    }
    if flags & (tcp::flag::RST | tcp::flag::FIN) != 0
        && let Some(reverse) = env.sibling(flow, headers.key.protocol)
        && (flags & tcp::flag::RST != 0
            || flow.set_state_bits(tcp::FIN_CLIENT) & tcp::FIN_MEMBER != 0)
    {
        close(env, flow, reverse);
    }
}

/// Follows a member's segment; only SYN, FIN and RST touch the forward entry.
#[inline(always)]
fn track_member<E: Env>(env: &E, headers: &Headers, reverse: FlowRef) {
    let flags = headers.tcp_flags;
    if flags & (tcp::flag::SYN | tcp::flag::FIN | tcp::flag::RST) == 0 {
        return;
    }
    let Some(flow) = env.sibling(reverse, headers.key.protocol) else {
        return;
    };
    if flags & tcp::flag::RST != 0 {
        close(env, flow, reverse);
    } else if flags & tcp::flag::SYN != 0 {
        // Lost only to a concurrent close, which is the later truth.
        let _moved = flow.move_state(tcp::SYN_SENT, tcp::SYN_RECEIVED);
    } else if flow.set_state_bits(tcp::FIN_MEMBER) & tcp::FIN_CLIENT != 0 {
        close(env, flow, reverse);
    }
}

/// Ends a flow once: its entries stay for late packets, its place in the active counts is free.
#[inline(always)]
fn close<E: Env>(env: &E, forward: FlowRef, reverse: FlowRef) {
    if forward.swap_state(tcp::CLOSED) & tcp::STATE_MASK != tcp::CLOSED {
        count_closed(env, forward.service(), forward.member());
    }
    reverse.set_state(tcp::CLOSED);
}

/// Removes both entries of a flow, given its forward entry.
#[inline(always)]
fn remove_pair<E: Env>(env: &E, key: &FlowKey, flow: FlowRef) {
    if flow.swap_state(tcp::CLOSED) & tcp::STATE_MASK != tcp::CLOSED {
        count_closed(env, flow.service(), flow.member());
    }
    if let Some(sibling) = env.sibling_key(flow, key.protocol) {
        env.remove_flow(sibling);
    }
    env.remove_flow(key);
}

#[inline(always)]
pub(crate) fn count_closed<E: Env>(env: &E, service: u32, member: u32) {
    if let Some(state) = env.service_state(service) {
        state.close();
    }
    if let Some(state) = env.member_state(member) {
        state.close();
    }
}

#[inline(always)]
pub(crate) fn count_connection<E: Env>(env: &E, service: u32, member: u32) {
    if let Some(traffic) = env.service_traffic(service) {
        traffic.count_connection();
    }
    if let Some(traffic) = env.member_traffic(member) {
        traffic.count_connection();
    }
}

#[inline(always)]
fn refresh_route<E: Env>(env: &E, is_v4: bool, flow: FlowRef) {
    let Some(scratch) = env.scratch() else {
        return;
    };
    let route = &mut scratch.route;
    env.route(is_v4, flow.source(), flow.destination(), route);
    store_route(flow, route);
}

#[inline(always)]
fn store_route(flow: FlowRef, route: &Route) {
    match route.status {
        route_status::RESOLVED => {
            flow.set_link(route.link);
            flow.set_ifindex(route.ifindex);
            flow.set_flags(flow.flags() & !flag::UNRESOLVED);
            if route.mtu != 0 {
                flow.set_mtu(route.mtu);
            }
        }
        // A client's frames came from somewhere: what was learned from its first one still holds.
        route_status::UNRESOLVED if !flow.is_reverse() => {
            flow.set_ifindex(route.ifindex);
            flow.set_flags(flow.flags() | flag::UNRESOLVED);
        }
        // A route that is gone for a moment: keep what worked.
        _ => {}
    }
}

/// Rewrites and sends a packet of a flow.
#[inline(always)]
pub(crate) fn transmit<E: Env>(
    env: &E,
    packet: &mut E::Packet,
    headers: &Headers,
    flow: FlowRef,
    out: Action,
    unresolved: bool,
) -> Result<Action, Verdict> {
    let now = env.now();
    if flow.last_seen() != now {
        flow.set_last_seen(now);
    }
    if headers.ttl <= 1 {
        return Err(Verdict::DropTtlExpired);
    }
    if headers.l3_length > flow.mtu() && !packet.is_segmented_later() {
        return Err(Verdict::DropTooBig);
    }
    let reverse = flow.is_reverse();
    let (service, member) = (flow.service(), flow.member());
    let later = matches!(headers.piece, Piece::Later { .. });
    let rewritten = if later {
        rewrite_later(packet, headers, flow)
    } else {
        rewrite(packet, headers, flow)
    };
    if !rewritten {
        return Err(Verdict::PassMalformed);
    }
    let bytes = u64::from(headers.payload);
    if let Some(traffic) = env.service_traffic(service) {
        traffic.count_packet(reverse, bytes);
    }
    if let Some(traffic) = env.member_traffic(member) {
        traffic.count_packet(reverse, bytes);
    }
    env.count(if later {
        Verdict::ForwardFragment
    } else if unresolved {
        Verdict::ForwardUnresolved
    } else if reverse {
        Verdict::ForwardToClient
    } else {
        Verdict::ForwardToMember
    });
    Ok(out)
}

/// Where a packet of this flow leaves.
#[inline(always)]
pub(crate) fn way_out<E: Env>(
    env: &E,
    is_v4: bool,
    flow: FlowRef,
    probe: bool,
) -> Result<Action, Verdict> {
    let unresolved = flow.flags() & flag::UNRESOLVED != 0;
    if !(unresolved || probe && env.resolves_neighbours()) {
        return Ok(Action::Redirect {
            ifindex: flow.ifindex(),
        });
    }
    if !env.resolves_neighbours() {
        return Err(Verdict::PassToClassifier);
    }
    let scratch = env.scratch().ok_or(Verdict::DropInternal)?;
    let route = &mut scratch.route;
    env.route(is_v4, flow.source(), flow.destination(), route);
    store_route(flow, route);
    // Without a neighbour to ask about, a learned MAC must do.
    if route.status == route_status::NONE
        || (route.status == route_status::UNRESOLVED && flow.is_reverse())
    {
        return Ok(Action::Redirect {
            ifindex: flow.ifindex(),
        });
    }
    Ok(Action::RedirectNeighbour {
        ifindex: route.ifindex,
        is_v4,
        next_hop: route.next_hop,
    })
}

/// Sends a connection we know nothing of to the amphora that had the VIP before, if there is one.
#[inline(always)]
fn handover<E: Env>(
    env: &E,
    packet: &E::Packet,
    headers: &Headers,
    key: &FlowKey,
    otherwise: Verdict,
) -> Result<Action, Verdict> {
    if headers.key.protocol != protocol::TCP || env.globals().handover == 0 {
        return Err(otherwise);
    }
    let interface = env.interface(env.ingress()).ok_or(otherwise)?;
    if interface.flags & interface_flag::HANDOVER == 0 || !env.is_vip(&headers.key.destination) {
        return Err(otherwise);
    }
    if tcp::is_opening(headers.tcp_flags) {
        // From now on this connection is the proxy's, and its later segments must not be sent away.
        env.remember_local_handshake(key);
        return Err(otherwise);
    }
    if env.is_local_handshake(key) || env.has_local_socket(key, headers.is_v4) {
        return Err(otherwise);
    }
    let frame = packet.window::<12>(0).ok_or(Verdict::PassMalformed)?;
    let link = link_words(interface.handover_mac, interface.mac);
    // What the predecessor itself sends here must not go back and forth.
    let [a, b, c, d, e, f] = interface.handover_mac;
    if frame.u16::<6>() == u16::from_ne_bytes([a, b])
        && frame.u32::<8>() == u32::from_ne_bytes([c, d, e, f])
    {
        return Err(otherwise);
    }
    frame.set_u32::<0>(link[0]);
    frame.set_u32::<4>(link[1]);
    frame.set_u32::<8>(link[2]);
    env.count(Verdict::ForwardHandover);
    Ok(Action::Redirect {
        ifindex: env.ingress(),
    })
}
