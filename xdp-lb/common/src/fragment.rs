//! Datagrams in pieces: the first goes where its ports say and is remembered, the later ones follow it.
//!
//! A later piece that comes before the first, or whose first was not ours, is left to the stack.

use crate::address::{Address, Be16};
use crate::datapath::{transmit, transport, way_out};
use crate::env::{Action, Env, Refusal};
use crate::flow::FlowKey;
use crate::limits::FRAGMENT_TIMEOUT_NS;
use crate::parse::{Headers, Piece, parse_piece, protocol};
use crate::verdict::Verdict;

/// What the pieces of one datagram have in common (RFC 791, RFC 8200). Key of `FRAGMENTS`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FragmentKey {
    pub source: Address,
    pub destination: Address,
    /// As it lies in the packet.
    pub id: u32,
    /// IP protocol number.
    pub protocol: u32,
}

/// What the first piece said.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ports {
    pub source: Be16,
    pub destination: Be16,
    pub reserved: u32,
    /// Tick at which it passed, ns.
    pub seen: u64,
}

const _: () = assert!(size_of::<FragmentKey>() == 40);
const _: () = assert!(size_of::<Ports>() == 16);

/// Forwards a piece of a datagram.
///
/// # Errors
///
/// Why it is not forwarded, or what must be done first: then this is to be called again.
#[inline(always)]
pub fn forward_piece<E: Env>(env: &E, packet: &mut E::Packet) -> Result<Action, Refusal> {
    let headers = parse_piece(packet)?;
    if headers.key.protocol != protocol::TCP && headers.key.protocol != protocol::UDP {
        return Err(Verdict::PassFragment.into());
    }
    match headers.piece {
        Piece::Later { id } => follow(env, packet, &headers, id).map_err(Refusal::from),
        Piece::First { id } => {
            let action = transport(env, packet, &headers)?;
            let ports = Ports {
                source: headers.key.source_port,
                destination: headers.key.destination_port,
                reserved: 0,
                seen: env.now(),
            };
            env.remember_piece(&key(&headers, id), &ports);
            Ok(action)
        }
        Piece::Whole => Err(Verdict::PassMalformed.into()),
    }
}

/// Sends a later piece after the first.
#[inline(always)]
fn follow<E: Env>(
    env: &E,
    packet: &mut E::Packet,
    headers: &Headers,
    id: u32,
) -> Result<Action, Verdict> {
    let ports = env.piece(&key(headers, id)).ok_or(Verdict::PassFragment)?;
    if env.now().wrapping_sub(ports.seen) > FRAGMENT_TIMEOUT_NS {
        return Err(Verdict::PassFragment);
    }
    let flow = env
        .flow(&FlowKey {
            source_port: ports.source,
            destination_port: ports.destination,
            ..headers.key
        })
        .ok_or(Verdict::PassFragment)?;
    let out = way_out(env, headers.is_v4, flow, false)?;
    transmit(env, packet, headers, flow, out, false)
}

#[inline(always)]
const fn key(headers: &Headers, id: u32) -> FragmentKey {
    FragmentKey {
        source: headers.key.source,
        destination: headers.key.destination,
        id,
        protocol: headers.key.protocol,
    }
}
