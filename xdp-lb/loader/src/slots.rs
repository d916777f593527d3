//! What the configuration maps hold, as the loader knows it: slots, schedules, keys.
//!
//! Rebuilt from the maps when they are adopted, so that an agent's restart finds every listener and
//! member in the slot that flows point to.

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;
use xdp_lb_common::address::{Address, Be16};
use xdp_lb_common::limits::{MAX_MEMBERS, MAX_SERVICES, RING_ENTRIES};
use xdp_lb_common::table::{
    Globals, Interface, Member, MemberState, Service, ServiceInfo, ServiceKey, ServiceState,
    Traffic,
};

use crate::allowed::Allowed;
use crate::error::Error;
use crate::maps::{Maps, during};
use crate::sys;

/// A member of a listener at an address: another address is another member to its flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct MemberKey {
    pub(crate) service: u32,
    pub(crate) id: [u8; 16],
    pub(crate) address: Address,
    pub(crate) port: Be16,
}

impl MemberKey {
    pub(crate) fn of(member: &Member) -> Self {
        Self {
            service: member.service,
            id: member.id,
            address: member.address,
            port: member.port,
        }
    }
}

/// A stretch of `RING`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) offset: u32,
    pub(crate) entries: Vec<u32>,
}

#[derive(Default)]
pub(crate) struct Slots {
    pub(crate) services: BTreeMap<u32, ServiceInfo>,
    pub(crate) service_by_id: HashMap<Uuid, u32>,
    /// Freed slots stay, for their generation.
    pub(crate) members: BTreeMap<u32, Member>,
    pub(crate) member_by_key: HashMap<MemberKey, u32>,
    pub(crate) keys: HashMap<ServiceKey, Service>,
    /// By service slot and "is IPv4".
    pub(crate) regions: HashMap<(u32, bool), Region>,
    pub(crate) allowed: Allowed,
    pub(crate) interfaces: HashMap<u32, Interface>,
    pub(crate) vips: HashSet<Address>,
    pub(crate) globals: Globals,
    /// Replaced schedules that a program may still be reading; free from the next change on.
    pub(crate) resting: Vec<(u32, u32)>,
}

impl Slots {
    /// Reads the maps back.
    pub(crate) fn adopt(maps: &Maps) -> Result<Self, Error> {
        let mut slots = Self::default();
        for slot in 0..MAX_SERVICES {
            let info = maps
                .service_info
                .get(&slot, 0)
                .map_err(during("read", "SERVICE_INFO"))?;
            if info.id != [0; 16] {
                slots.service_by_id.insert(Uuid::from_bytes(info.id), slot);
                slots.services.insert(slot, info);
            }
        }
        for slot in 0..MAX_MEMBERS {
            let member = maps
                .members
                .get(&slot, 0)
                .map_err(during("read", "MEMBERS"))?;
            if member.generation == 0 {
                // Slots are taken in order, so that nothing follows one that was never used.
                break;
            }
            if member.id != [0; 16] {
                slots.member_by_key.insert(MemberKey::of(&member), slot);
            }
            slots.members.insert(slot, member);
        }
        let mut allowed = HashMap::new();
        for entry in maps.services.iter() {
            let (key, service) = entry.map_err(during("read", "SERVICES"))?;
            let mut entries = Vec::new();
            for index in 0..service.ring_length {
                entries.push(
                    maps.ring
                        .get(&(service.ring_offset + index), 0)
                        .map_err(during("read", "RING"))?,
                );
            }
            slots.regions.insert(
                (service.slot, key.vip.is_v4()),
                Region {
                    offset: service.ring_offset,
                    entries,
                },
            );
            allowed.insert((service.slot, key.vip.is_v4()), service.allowed);
            slots.keys.insert(key, service);
        }
        slots.allowed = Allowed::adopt(maps, &allowed)?;
        for entry in maps.interfaces.iter() {
            let (ifindex, interface) = entry.map_err(during("read", "INTERFACES"))?;
            slots.interfaces.insert(ifindex, interface);
        }
        for entry in maps.vips.iter() {
            let (vip, _) = entry.map_err(during("read", "VIPS"))?;
            slots.vips.insert(vip);
        }
        slots.globals = maps.globals.get(&0, 0).map_err(during("read", "GLOBALS"))?;
        Ok(slots)
    }

    /// The slot of a listener, taken and cleared if it has none.
    pub(crate) fn ensure_service(
        &mut self,
        maps: &mut Maps,
        id: Uuid,
        idle_timeout_ns: u64,
    ) -> Result<(u32, u64), Error> {
        if let Some(slot) = self.service_by_id.get(&id).copied() {
            let Some(info) = self.services.get_mut(&slot) else {
                return Err(Error::MissingInObject {
                    what: "service slot",
                });
            };
            if info.idle_timeout_ns == idle_timeout_ns {
                return Ok((slot, 0));
            }
            info.idle_timeout_ns = idle_timeout_ns;
            maps.service_info
                .set(slot, *info, 0)
                .map_err(during("write", "SERVICE_INFO"))?;
            return Ok((slot, 1));
        }
        let slot = (0..MAX_SERVICES)
            .find(|slot| !self.services.contains_key(slot))
            .ok_or(Error::TooMany {
                what: "listeners",
                limit: MAX_SERVICES,
            })?;
        maps.service_state
            .set(slot, ServiceState::default(), 0)
            .map_err(during("clear", "SERVICE_STATE"))?;
        clear_traffic(&mut maps.service_stats, slot, "SERVICE_STATS")?;
        let info = ServiceInfo {
            id: *id.as_bytes(),
            idle_timeout_ns,
            lost: 0,
        };
        maps.service_info
            .set(slot, info, 0)
            .map_err(during("write", "SERVICE_INFO"))?;
        self.services.insert(slot, info);
        self.service_by_id.insert(id, slot);
        Ok((slot, 1))
    }

    /// The slot of a member, taken and cleared if it has none; its flags and weight as given.
    pub(crate) fn ensure_member(
        &mut self,
        maps: &mut Maps,
        key: MemberKey,
        flags: u32,
        weight: u32,
    ) -> Result<(u32, u64), Error> {
        if let Some(slot) = self.member_by_key.get(&key).copied()
            && let Some(member) = self.members.get_mut(&slot)
        {
            if member.flags == flags && member.weight == weight {
                return Ok((slot, 0));
            }
            member.flags = flags;
            member.weight = weight;
            maps.members
                .set(slot, *member, 0)
                .map_err(during("write", "MEMBERS"))?;
            return Ok((slot, 1));
        }
        let slot = (0..MAX_MEMBERS)
            .find(|slot| {
                self.members
                    .get(slot)
                    .is_none_or(|member| member.id == [0; 16])
            })
            .ok_or(Error::TooMany {
                what: "members",
                limit: MAX_MEMBERS,
            })?;
        let generation = self
            .members
            .get(&slot)
            .map_or(0, |member| member.generation)
            .wrapping_add(1)
            .max(1);
        let state = MemberState {
            // Another amphora may have had the ports before us: do not begin where it did.
            next_port: u64::from(sys::random_u32()),
            ..MemberState::default()
        };
        maps.member_state
            .set(slot, state, 0)
            .map_err(during("clear", "MEMBER_STATE"))?;
        clear_traffic(&mut maps.member_stats, slot, "MEMBER_STATS")?;
        let member = Member {
            id: key.id,
            address: key.address,
            port: key.port,
            reserved: 0,
            service: key.service,
            generation,
            flags,
            weight,
            reserved2: 0,
            lost: 0,
        };
        maps.members
            .set(slot, member, 0)
            .map_err(during("write", "MEMBERS"))?;
        self.members.insert(slot, member);
        self.member_by_key.insert(key, slot);
        Ok((slot, 1))
    }

    /// Makes a schedule readable and says where; the one it replaces rests.
    pub(crate) fn ensure_region(
        &mut self,
        maps: &mut Maps,
        key: (u32, bool),
        entries: Vec<u32>,
    ) -> Result<(u32, u32, u64), Error> {
        let length = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        if let Some(region) = self.regions.get(&key)
            && region.entries == entries
        {
            return Ok((region.offset, length, 0));
        }
        if length == 0 {
            let had_one = self.regions.contains_key(&key);
            self.rest_region(key);
            return Ok((0, 0, u64::from(had_one)));
        }
        let offset = self.free_stretch(length)?;
        for (index, entry) in (offset..).zip(&entries) {
            maps.ring
                .set(index, *entry, 0)
                .map_err(during("write", "RING"))?;
        }
        self.rest_region(key);
        self.regions.insert(key, Region { offset, entries });
        Ok((offset, length, 1))
    }

    /// Gives a schedule up.
    pub(crate) fn rest_region(&mut self, key: (u32, bool)) {
        if let Some(old) = self.regions.remove(&key) {
            let length = u32::try_from(old.entries.len()).unwrap_or(0);
            self.resting.push((old.offset, length));
        }
    }

    fn free_stretch(&self, length: u32) -> Result<u32, Error> {
        let mut taken: Vec<(u32, u32)> = self
            .regions
            .values()
            .map(|region| {
                let length = u32::try_from(region.entries.len()).unwrap_or(0);
                (region.offset, length)
            })
            .chain(self.resting.iter().copied())
            .filter(|(_, length)| *length > 0)
            .collect();
        first_gap(&mut taken, length).ok_or(Error::TooMany {
            what: "schedule entries",
            limit: RING_ENTRIES,
        })
    }

    /// Frees a listener's slot.
    pub(crate) fn free_service(&mut self, maps: &mut Maps, slot: u32) -> Result<(), Error> {
        if let Some(info) = self.services.remove(&slot) {
            self.service_by_id.remove(&Uuid::from_bytes(info.id));
            maps.service_info
                .set(slot, ServiceInfo::default(), 0)
                .map_err(during("clear", "SERVICE_INFO"))?;
        }
        Ok(())
    }

    /// Frees a member's slot; its generation stays.
    pub(crate) fn free_member(&mut self, maps: &mut Maps, slot: u32) -> Result<(), Error> {
        if let Some(member) = self.members.get_mut(&slot) {
            self.member_by_key.remove(&MemberKey::of(member));
            *member = Member {
                generation: member.generation,
                ..Member::default()
            };
            maps.members
                .set(slot, *member, 0)
                .map_err(during("clear", "MEMBERS"))?;
        }
        Ok(())
    }

    /// Writes the globals if they differ.
    pub(crate) fn set_globals(&mut self, maps: &mut Maps, globals: Globals) -> Result<u64, Error> {
        if self.globals == globals {
            return Ok(0);
        }
        maps.globals
            .set(0, globals, 0)
            .map_err(during("write", "GLOBALS"))?;
        self.globals = globals;
        Ok(1)
    }

    /// Makes every flow check its member and its route at its next packet.
    pub(crate) fn bump_epoch(&mut self, maps: &mut Maps) -> Result<u64, Error> {
        let globals = Globals {
            epoch: self.globals.epoch.wrapping_add(1),
            ..self.globals
        };
        self.set_globals(maps, globals)
    }
}

fn clear_traffic(
    map: &mut aya::maps::PerCpuArray<aya::maps::MapData, Traffic>,
    slot: u32,
    name: &'static str,
) -> Result<(), Error> {
    let cpus = map
        .get(&slot, 0)
        .map_err(during("read", name))?
        .iter()
        .count();
    let values =
        aya::maps::PerCpuValues::try_from(vec![Traffic::default(); cpus]).map_err(|source| {
            Error::Map {
                action: "clear",
                map: name,
                source: Box::new(aya::maps::MapError::IoError(source)),
            }
        })?;
    map.set(slot, values, 0).map_err(during("clear", name))
}

/// The first offset with `length` free entries.
fn first_gap(taken: &mut [(u32, u32)], length: u32) -> Option<u32> {
    taken.sort_unstable();
    let mut at = 0u32;
    for (offset, taken_length) in taken.iter() {
        if offset.saturating_sub(at) >= length {
            return Some(at);
        }
        at = at.max(offset + taken_length);
    }
    (RING_ENTRIES.saturating_sub(at) >= length).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_gap_that_fits_is_taken() {
        assert_eq!(first_gap(&mut [], 4), Some(0));
        assert_eq!(first_gap(&mut [(0, 4)], 4), Some(4));
        assert_eq!(first_gap(&mut [(10, 4), (0, 4)], 6), Some(4));
        assert_eq!(first_gap(&mut [(10, 4), (0, 4)], 7), Some(14));
        assert_eq!(first_gap(&mut [(0, RING_ENTRIES)], 1), None);
    }
}
