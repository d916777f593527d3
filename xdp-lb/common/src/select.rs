//! Which member a new flow goes to.

use crate::address::Address;
use crate::env::Env;
use crate::hash;
use crate::limits::LEAST_CONNECTIONS_SCAN;
use crate::state::ServiceStateRef;
use crate::table::{Service, algorithm};
use crate::verdict::Verdict;

/// The member slot for a client. The schedule holds usable members only.
///
/// Round robin and source address read a schedule in which a member's share of entries is its
/// weight; least connections has each member once and compares `active / weight`, starting at the
/// next turn, so that equals take turns.
#[inline(always)]
pub(crate) fn select<E: Env>(
    env: &E,
    service: &Service,
    state: ServiceStateRef,
    client: Address,
    is_v4: bool,
) -> Result<u32, Verdict> {
    let length = service.ring_length;
    if length == 0 {
        return Err(Verdict::PassNoMember);
    }
    let index = if service.algorithm == algorithm::SOURCE_IP {
        hash::address(client) % length
    } else {
        (state.next_turn(is_v4) % u64::from(length)) as u32
    };
    if service.algorithm == algorithm::LEAST_CONNECTIONS {
        return least_connections(env, service, index);
    }
    env.ring(service.ring_offset.wrapping_add(index))
        .ok_or(Verdict::DropInternal)
}

#[inline(always)]
fn least_connections<E: Env>(env: &E, service: &Service, first: u32) -> Result<u32, Verdict> {
    let mut best = None;
    let mut best_load = u64::MAX;
    let mut index = first;
    for step in 0..LEAST_CONNECTIONS_SCAN {
        if step >= service.ring_length {
            break;
        }
        if index >= service.ring_length {
            index = 0;
        }
        let slot = env
            .ring(service.ring_offset.wrapping_add(index))
            .ok_or(Verdict::DropInternal)?;
        index += 1;
        if let Some(member) = env.member(slot)
            && let Some(state) = env.member_state(slot)
        {
            // In 1/65536 of a flow, so that weights count also when few flows are open.
            let active = state.tally().active(member.lost);
            let load = ((active + 1) << 16) / u64::from(member.weight.max(1));
            if load < best_load {
                best_load = load;
                best = Some(slot);
            }
        }
    }
    best.ok_or(Verdict::PassNoMember)
}
