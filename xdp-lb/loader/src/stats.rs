//! Sums the per-CPU counters.

use aya::maps::{MapData, PerCpuArray};
use uuid::Uuid;
use xdp_lb_common::state::Tally;
use xdp_lb_common::table::{Traffic, member_flag};
use xdp_lb_common::verdict::Verdict;

use crate::error::Error;
use crate::maps::{Maps, during};
use crate::report::{MemberStats, Stats, TrafficStats};
use crate::slots::Slots;

pub(crate) fn stats(maps: &Maps, slots: &Slots) -> Result<Stats, Error> {
    let mut stats = Stats::default();
    for (slot, info) in &slots.services {
        // A listener that is gone keeps its slot until its last flow ends, but is not reported.
        if !slots.keys.values().any(|service| service.slot == *slot) {
            continue;
        }
        let state = maps
            .service_state
            .get(slot, 0)
            .map_err(during("read", "SERVICE_STATE"))?;
        let traffic = sum(&maps.service_stats, *slot, "SERVICE_STATS")?;
        let active = tally(state.opened, state.closed).active(info.lost);
        stats
            .listeners
            .insert(Uuid::from_bytes(info.id), report(&traffic, active));
    }
    for (slot, member) in &slots.members {
        if member.id == [0; 16] || member.flags & member_flag::REMOVED != 0 {
            continue;
        }
        let Some(info) = slots.services.get(&member.service) else {
            continue;
        };
        let state = maps
            .member_state
            .get(slot, 0)
            .map_err(during("read", "MEMBER_STATE"))?;
        let traffic = sum(&maps.member_stats, *slot, "MEMBER_STATS")?;
        let active = tally(state.opened, state.closed).active(member.lost);
        stats.members.push(MemberStats {
            listener: Uuid::from_bytes(info.id),
            member: Uuid::from_bytes(member.id),
            traffic: report(&traffic, active),
        });
    }
    for (index, verdict) in (0u32..).zip(Verdict::ALL) {
        let counts = maps
            .verdicts
            .get(&index, 0)
            .map_err(during("read", "VERDICTS"))?;
        stats.verdicts.insert(
            verdict.name(),
            counts.iter().copied().fold(0, u64::wrapping_add),
        );
    }
    Ok(stats)
}

const fn tally(opened: u64, closed: u64) -> Tally {
    Tally { opened, closed }
}

fn report(traffic: &Traffic, active: u64) -> TrafficStats {
    TrafficStats {
        bytes_in: traffic.bytes_in,
        bytes_out: traffic.bytes_out,
        packets_in: traffic.packets_in,
        packets_out: traffic.packets_out,
        total_connections: traffic.connections,
        active_connections: active,
        request_errors: traffic.refused,
    }
}

fn sum(
    map: &PerCpuArray<MapData, Traffic>,
    slot: u32,
    name: &'static str,
) -> Result<Traffic, Error> {
    let values = map.get(&slot, 0).map_err(during("read", name))?;
    Ok(values.iter().fold(Traffic::default(), |sum, one| Traffic {
        packets_in: sum.packets_in.wrapping_add(one.packets_in),
        bytes_in: sum.bytes_in.wrapping_add(one.bytes_in),
        packets_out: sum.packets_out.wrapping_add(one.packets_out),
        bytes_out: sum.bytes_out.wrapping_add(one.bytes_out),
        connections: sum.connections.wrapping_add(one.connections),
        refused: sum.refused.wrapping_add(one.refused),
    }))
}
