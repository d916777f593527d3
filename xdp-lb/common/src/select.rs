//! Which member a new flow goes to.

use crate::env::Env;
use crate::flow::FlowKey;
use crate::hash;
use crate::limits::LEAST_CONNECTIONS_SCAN;
use crate::state::ServiceStateRef;
use crate::table::{Service, algorithm};
use crate::verdict::Verdict;

/// The member slot for a client. The schedule holds usable members only.
///
/// Round robin and the client's address (and port) read a schedule in which a member's share of
/// entries is its weight; least connections has each member once and compares `active / weight`, starting at the
/// next turn, so that equals take turns.
#[inline(always)]
pub(crate) fn select<E: Env>(
    env: &E,
    service: &Service,
    state: ServiceStateRef,
    key: &FlowKey,
    is_v4: bool,
) -> Result<u32, Verdict> {
    let length = service.ring_length;
    if length == 0 {
        return Err(Verdict::PassNoMember);
    }
    let index = match service.algorithm {
        algorithm::SOURCE_IP => hash::address(key.source) % length,
        algorithm::SOURCE_IP_PORT => {
            let port = u32::from(key.source_port.0);
            hash::pair(hash::address(key.source), port) % length
        }
        _ => (state.next_turn(is_v4) % u64::from(length)) as u32,
    };
    if service.algorithm == algorithm::LEAST_CONNECTIONS {
        return least_connections(env, service, index);
    }
    env.ring(service.ring_offset.wrapping_add(index))
        .ok_or(Verdict::DropInternal)
}

#[inline(always)]
fn least_connections<E: Env>(env: &E, service: &Service, first: u32) -> Result<u32, Verdict> {
    // No slot yet: an index that no array has, since an `Option` would double the verifier's cases.
    let mut best = u32::MAX;
    let mut best_load = u64::MAX;
    for step in 0..LEAST_CONNECTIONS_SCAN {
        if step >= service.ring_length {
            break;
        }
        let mut index = first.wrapping_add(step);
        if index >= service.ring_length {
            index = index.wrapping_sub(service.ring_length);
        }
        let slot = env
            .ring(service.ring_offset.wrapping_add(index))
            .ok_or(Verdict::DropInternal)?;
        if let Some(member) = env.member(slot)
            && let Some(state) = env.member_state(slot)
        {
            // In 1/65536 of a flow, so that weights count also when few flows are open.
            let active = state.tally().active(member.lost);
            let load = ((active + 1) << 16) / u64::from(member.weight.max(1));
            if load < best_load {
                best_load = load;
                best = slot;
            }
        }
    }
    if best == u32::MAX {
        return Err(Verdict::PassNoMember);
    }
    Ok(best)
}
