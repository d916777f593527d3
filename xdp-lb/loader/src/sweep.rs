//! Forgets idle flows, both entries together, and keeps the active counts true.
//!
//! The programs count flows opened and closed. What they cannot see (a flow that times out here, an
//! entry the LRU table dropped) is added to `lost`, so that `opened - closed - lost` stays the number
//! of flows alive. After each pass over the table that number is compared with what was found.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use xdp_lb_common::flow::{Flow, FlowKey};
use xdp_lb_common::table::member_flag;
use xdp_lb_common::tcp;

use crate::error::Error;
use crate::maps::{Maps, during, optional, or_absent};
use crate::report::SweepReport;
use crate::slots::Slots;
use crate::sys::{self, BatchToken};

/// Entries read by one system call.
const BATCH: u32 = 4096;
/// Entries looked at by one call of [`Sweep::step`]: bounds its time, about a quarter of a second.
const STEP: u64 = 262_144;
/// How often every flow looks its next hop up again. A neighbour that changed without telling is
/// noticed after this long at most.
const NEIGHBOUR_REFRESH: Duration = Duration::from_secs(5);

/// Opened and closed flows of a slot when a pass began.
type Tallies = HashMap<u32, (u64, u64)>;

/// Where the sweep is in its pass over the table.
pub(crate) struct Sweep {
    at: Option<BatchToken>,
    in_pass: bool,
    services: HashMap<u32, u64>,
    members: HashMap<u32, u64>,
    /// Flows alive or closed, by member: a slot is free only without any.
    users: HashMap<u32, u64>,
    service_users: HashMap<u32, u64>,
    services_before: Tallies,
    members_before: Tallies,
    flows: u64,
    last_flows: u64,
    refreshed: Instant,
}

impl Sweep {
    pub(crate) fn new() -> Self {
        Self {
            at: None,
            in_pass: false,
            services: HashMap::new(),
            members: HashMap::new(),
            users: HashMap::new(),
            service_users: HashMap::new(),
            services_before: HashMap::new(),
            members_before: HashMap::new(),
            flows: 0,
            last_flows: 0,
            refreshed: Instant::now(),
        }
    }

    /// Works on the pass for a bounded time. `now` is the time of the programs.
    pub(crate) fn step(
        &mut self,
        maps: &mut Maps,
        slots: &mut Slots,
        now: u64,
    ) -> Result<SweepReport, Error> {
        let mut report = SweepReport::default();
        if self.refreshed.elapsed() >= NEIGHBOUR_REFRESH {
            slots.bump_epoch(maps)?;
            self.refreshed = Instant::now();
        }
        if !self.in_pass {
            self.begin(maps, slots)?;
        }
        while report.scanned < STEP {
            let batch = {
                let fd = flows_fd(maps)?;
                sys::read_flows(fd, self.at, BATCH)
            }
            .map_err(|source| Error::ReadFlows { source })?;
            report.scanned += batch.keys.len() as u64;
            for (key, flow) in batch.keys.iter().zip(&batch.values) {
                if self.visit(maps, slots, key, flow, now)? {
                    report.expired += 1;
                }
            }
            self.at = batch.next;
            if self.at.is_none() {
                self.finish(maps, slots)?;
                report.pass_complete = true;
                break;
            }
        }
        report.flows = self.last_flows;
        Ok(report)
    }

    fn begin(&mut self, maps: &Maps, slots: &Slots) -> Result<(), Error> {
        self.in_pass = true;
        self.at = None;
        self.flows = 0;
        self.services.clear();
        self.members.clear();
        self.users.clear();
        self.service_users.clear();
        self.services_before = service_tallies(maps, slots)?;
        self.members_before = member_tallies(maps, slots)?;
        Ok(())
    }

    /// Looks at one entry; true when a flow was removed.
    fn visit(
        &mut self,
        maps: &mut Maps,
        slots: &mut Slots,
        key: &FlowKey,
        flow: &Flow,
        now: u64,
    ) -> Result<bool, Error> {
        let idle_timeout = slots
            .services
            .get(&flow.service)
            .map_or(0, |info| info.idle_timeout_ns);
        let limit = tcp::timeout_ns(flow.state, idle_timeout);
        let idle = now.saturating_sub(flow.last_seen) > limit;
        if flow.is_reverse() {
            // Its forward entry decides; only without one is it looked at by itself.
            if idle && find(maps, &flow.sibling_key(key.protocol))?.is_none() {
                remove(maps, key)?;
            }
            return Ok(false);
        }
        if idle {
            let sibling_key = flow.sibling_key(key.protocol);
            let sibling = find(maps, &sibling_key)?;
            let sibling_idle =
                sibling.is_none_or(|reverse| now.saturating_sub(reverse.last_seen) > limit);
            if sibling_idle {
                remove(maps, key)?;
                remove(maps, &sibling_key)?;
                if flow.state & tcp::STATE_MASK != tcp::CLOSED {
                    lose(maps, slots, flow, 1)?;
                }
                return Ok(true);
            }
        }
        *self.users.entry(flow.member).or_default() += 1;
        *self.service_users.entry(flow.service).or_default() += 1;
        if flow.state & tcp::STATE_MASK != tcp::CLOSED {
            self.flows += 1;
            *self.services.entry(flow.service).or_default() += 1;
            *self.members.entry(flow.member).or_default() += 1;
        }
        Ok(false)
    }

    fn finish(&mut self, maps: &mut Maps, slots: &mut Slots) -> Result<(), Error> {
        self.in_pass = false;
        self.last_flows = self.flows;
        let services_after = service_tallies(maps, slots)?;
        for (slot, after) in &services_after {
            let (Some(before), Some(info)) =
                (self.services_before.get(slot), slots.services.get_mut(slot))
            else {
                continue;
            };
            let found = self.services.get(slot).copied().unwrap_or(0);
            if let Some(lost) = corrected(info.lost, *before, *after, found) {
                info.lost = lost;
                maps.service_info
                    .set(*slot, *info, 0)
                    .map_err(during("write", "SERVICE_INFO"))?;
            }
        }
        let members_after = member_tallies(maps, slots)?;
        for (slot, after) in &members_after {
            let (Some(before), Some(member)) =
                (self.members_before.get(slot), slots.members.get_mut(slot))
            else {
                continue;
            };
            let found = self.members.get(slot).copied().unwrap_or(0);
            if let Some(lost) = corrected(member.lost, *before, *after, found) {
                member.lost = lost;
                maps.members
                    .set(*slot, *member, 0)
                    .map_err(during("write", "MEMBERS"))?;
            }
        }
        self.free_unused(maps, slots, &members_after)
    }

    /// Frees the slots of members and listeners that are not configured and have no flow left.
    fn free_unused(
        &self,
        maps: &mut Maps,
        slots: &mut Slots,
        members_after: &Tallies,
    ) -> Result<(), Error> {
        let free: Vec<u32> = slots
            .members
            .iter()
            .filter(|(slot, member)| {
                member.flags & member_flag::REMOVED != 0
                    && !self.users.contains_key(slot)
                    // None opened during the pass, either.
                    && self.members_before.get(slot).map(|tally| tally.0)
                        == members_after.get(slot).map(|tally| tally.0)
            })
            .map(|(slot, _)| *slot)
            .collect();
        for slot in free {
            slots.free_member(maps, slot)?;
        }
        let unused: Vec<u32> = slots
            .services
            .keys()
            .filter(|slot| {
                !self.service_users.contains_key(slot)
                    && !slots.keys.values().any(|service| service.slot == **slot)
                    && !slots
                        .members
                        .values()
                        .any(|member| member.id != [0; 16] && member.service == **slot)
            })
            .copied()
            .collect();
        for slot in unused {
            slots.free_service(maps, slot)?;
        }
        Ok(())
    }
}

/// The value `lost` must have so that the count agrees with `found`, unless it does within what
/// opened and closed while the table was read.
fn corrected(lost: u64, before: (u64, u64), after: (u64, u64), found: u64) -> Option<u64> {
    let noise = after.0.wrapping_sub(before.0) + after.1.wrapping_sub(before.1);
    let count = after
        .0
        .wrapping_sub(after.1)
        .wrapping_sub(lost)
        .cast_signed();
    let excess = count - found.cast_signed();
    let noise = noise.cast_signed();
    if excess > noise {
        Some(lost.wrapping_add((excess - noise).cast_unsigned()))
    } else if excess < -noise {
        Some(lost.wrapping_sub((-noise - excess).cast_unsigned()))
    } else {
        None
    }
}

fn lose(maps: &mut Maps, slots: &mut Slots, flow: &Flow, count: u64) -> Result<(), Error> {
    if let Some(info) = slots.services.get_mut(&flow.service) {
        info.lost = info.lost.wrapping_add(count);
        maps.service_info
            .set(flow.service, *info, 0)
            .map_err(during("write", "SERVICE_INFO"))?;
    }
    if let Some(member) = slots.members.get_mut(&flow.member)
        && member.generation == flow.member_generation
    {
        member.lost = member.lost.wrapping_add(count);
        maps.members
            .set(flow.member, *member, 0)
            .map_err(during("write", "MEMBERS"))?;
    }
    Ok(())
}

fn find(maps: &Maps, key: &FlowKey) -> Result<Option<Flow>, Error> {
    optional(maps.flows.get(key, 0)).map_err(during("read", "FLOWS"))
}

fn remove(maps: &mut Maps, key: &FlowKey) -> Result<(), Error> {
    // The programs, or the LRU list, may have been faster.
    or_absent(maps.flows.remove(key)).map_err(during("remove from", "FLOWS"))
}

fn flows_fd(maps: &Maps) -> Result<std::os::fd::BorrowedFd<'_>, Error> {
    use aya::maps::IterableMap;
    Ok(maps.flows.map().fd().as_fd())
}

fn service_tallies(maps: &Maps, slots: &Slots) -> Result<Tallies, Error> {
    slots
        .services
        .keys()
        .map(|slot| {
            let state = maps
                .service_state
                .get(slot, 0)
                .map_err(during("read", "SERVICE_STATE"))?;
            Ok((*slot, (state.opened, state.closed)))
        })
        .collect()
}

fn member_tallies(maps: &Maps, slots: &Slots) -> Result<Tallies, Error> {
    slots
        .members
        .iter()
        .filter(|(_, member)| member.id != [0; 16])
        .map(|(slot, _)| {
            let state = maps
                .member_state
                .get(slot, 0)
                .map_err(during("read", "MEMBER_STATE"))?;
            Ok((*slot, (state.opened, state.closed)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::corrected;

    #[test]
    fn a_quiet_pass_corrects_exactly() {
        // 10 opened, 3 closed, 7 should live, 5 found: 2 were lost.
        assert_eq!(corrected(0, (10, 3), (10, 3), 5), Some(2));
        assert_eq!(corrected(2, (10, 3), (10, 3), 5), None);
        // Found more than counted: too many were given up.
        assert_eq!(corrected(4, (10, 3), (10, 3), 5), Some(2));
    }

    #[test]
    fn what_opened_during_the_pass_is_not_taken_for_a_loss() {
        assert_eq!(corrected(0, (10, 3), (12, 3), 7), None);
        assert_eq!(corrected(0, (10, 3), (12, 3), 5), Some(2));
        assert_eq!(corrected(0, (10, 3), (10, 5), 7), None);
    }
}
