//! From a configuration to map writes: additions before removals, nothing written that is there.

use std::collections::HashSet;

use xdp_lb_common::address::{Address, Be16};
use xdp_lb_common::limits::{MAX_INTERFACES, MAX_SERVICE_KEYS, MAX_VIPS};
use xdp_lb_common::schedule::{Candidate, each_once, maglev, round_robin};
use xdp_lb_common::table::{self, Globals, ServiceKey, algorithm, interface_flag, member_flag};

use crate::config::{Algorithm, Config, Interface, Member, Protocol, Service};
use crate::error::Error;
use crate::maps::{Maps, during};
use crate::slots::{MemberKey, Slots};

/// Brings the maps to the configuration; the number of writes made.
pub(crate) fn apply(maps: &mut Maps, slots: &mut Slots, config: &Config) -> Result<u64, Error> {
    let mut writes = 0;
    // No program reads them any more: at least one call lies between.
    slots.resting.clear();
    slots.allowed.clear_resting(maps)?;
    let interfaces = add_interfaces(maps, slots, config)?;
    writes += interfaces;

    let mut wanted_keys = HashSet::new();
    let mut wanted_members = HashSet::new();
    let mut wanted_services = HashSet::new();
    let mut somebody_went_down = false;
    for service in &config.services {
        let idle_timeout_ns = u64::try_from(service.idle_timeout.as_nanos()).unwrap_or(u64::MAX);
        let (slot, changes) = slots.ensure_service(maps, service.id, idle_timeout_ns)?;
        writes += changes;
        wanted_services.insert(slot);
        let mut members = Vec::new();
        for member in &service.members {
            let key = member_key(slot, member);
            let was_down = slots
                .member_by_key
                .get(&key)
                .and_then(|slot| slots.members.get(slot))
                .is_some_and(|member| member.flags & member_flag::DOWN != 0);
            let (member_slot, changes) =
                slots.ensure_member(maps, key, member_flags(member), u32::from(member.weight))?;
            writes += changes;
            somebody_went_down |= !was_down && !member.up;
            wanted_members.insert(member_slot);
            members.push((member_slot, member));
        }
        writes += add_keys(maps, slots, service, slot, &members, &mut wanted_keys)?;
    }

    writes += remove_keys(maps, slots, &wanted_keys)?;
    writes += retire(maps, slots, &wanted_services, &wanted_members)?;
    let removed = remove_interfaces(maps, slots, config)?;
    writes += removed;
    // Ways out that the programs remember may have changed with an interface.
    if somebody_went_down || interfaces + removed > 0 {
        writes += slots.bump_epoch(maps)?;
    }
    Ok(writes)
}

fn add_keys(
    maps: &mut Maps,
    slots: &mut Slots,
    service: &Service,
    slot: u32,
    members: &[(u32, &Member)],
    wanted: &mut HashSet<ServiceKey>,
) -> Result<u64, Error> {
    let mut writes = 0;
    for is_v4 in [true, false] {
        let vips: Vec<_> = service
            .vips
            .iter()
            .filter(|v| v.is_ipv4() == is_v4)
            .collect();
        if vips.is_empty() {
            slots.rest_region((slot, is_v4));
            slots.allowed.rest((slot, is_v4));
            continue;
        }
        let (allowed, changes) = slots
            .allowed
            .ensure(maps, (slot, is_v4), &service.allowed)?;
        writes += changes;
        let entries = schedule(service.algorithm, &candidates(members, is_v4));
        let (offset, length, changes) = slots.ensure_region(maps, (slot, is_v4), entries)?;
        writes += changes;
        let value = table::Service {
            slot,
            algorithm: match service.algorithm {
                Algorithm::RoundRobin => algorithm::ROUND_ROBIN,
                Algorithm::LeastConnections => algorithm::LEAST_CONNECTIONS,
                Algorithm::SourceIp => algorithm::SOURCE_IP,
                Algorithm::SourceIpPort => algorithm::SOURCE_IP_PORT,
            },
            ring_offset: offset,
            ring_length: length,
            connection_limit: service.connection_limit.unwrap_or(0),
            allowed,
        };
        for vip in vips {
            let address = Address::from(*vip);
            if slots.vips.len() >= MAX_VIPS as usize && !slots.vips.contains(&address) {
                return Err(Error::TooMany {
                    what: "VIPs",
                    limit: MAX_VIPS,
                });
            }
            if slots.vips.insert(address) {
                maps.vips
                    .insert(address, 1, 0)
                    .map_err(during("write", "VIPS"))?;
                writes += 1;
            }
            let key = service_key(service, address);
            wanted.insert(key);
            if slots.keys.get(&key) == Some(&value) {
                continue;
            }
            if slots.keys.len() >= MAX_SERVICE_KEYS as usize && !slots.keys.contains_key(&key) {
                return Err(Error::TooMany {
                    what: "VIP and port pairs",
                    limit: MAX_SERVICE_KEYS,
                });
            }
            maps.services
                .insert(key, value, 0)
                .map_err(during("write", "SERVICES"))?;
            slots.keys.insert(key, value);
            writes += 1;
        }
    }
    Ok(writes)
}

/// The members that may get new flows of a family: primaries that are up and have a weight; if
/// there are none, backups that are and do.
fn candidates(members: &[(u32, &Member)], is_v4: bool) -> Vec<Candidate> {
    let usable = |backup: bool| -> Vec<Candidate> {
        members
            .iter()
            .filter(|(_, member)| {
                member.up
                    && member.weight > 0
                    && member.backup == backup
                    && member.address.is_ipv4() == is_v4
            })
            .map(|(slot, member)| Candidate {
                slot: *slot,
                weight: u32::from(member.weight),
                identity: member.id.as_u128(),
            })
            .collect()
    };
    let mut chosen = usable(false);
    if chosen.is_empty() {
        chosen = usable(true);
    }
    // A schedule depends on who is in it, not on the order they were written down in.
    chosen.sort_by_key(|candidate| candidate.identity);
    chosen
}

fn schedule(algorithm: Algorithm, candidates: &[Candidate]) -> Vec<u32> {
    match algorithm {
        Algorithm::RoundRobin => round_robin(candidates),
        Algorithm::LeastConnections => each_once(candidates),
        Algorithm::SourceIp | Algorithm::SourceIpPort => maglev(candidates),
    }
}

fn remove_keys(
    maps: &mut Maps,
    slots: &mut Slots,
    wanted: &HashSet<ServiceKey>,
) -> Result<u64, Error> {
    let mut writes = 0;
    let unwanted: Vec<ServiceKey> = slots
        .keys
        .keys()
        .filter(|key| !wanted.contains(key))
        .copied()
        .collect();
    for key in unwanted {
        maps.services
            .remove(&key)
            .map_err(during("remove from", "SERVICES"))?;
        slots.keys.remove(&key);
        writes += 1;
    }
    let vips: HashSet<Address> = slots.keys.keys().map(|key| key.vip).collect();
    let unwanted: Vec<Address> = slots.vips.difference(&vips).copied().collect();
    for vip in unwanted {
        maps.vips
            .remove(&vip)
            .map_err(during("remove from", "VIPS"))?;
        slots.vips.remove(&vip);
        writes += 1;
    }
    Ok(writes)
}

/// Marks members that are gone; their slots and their listeners' are freed when no flow uses them.
fn retire(
    maps: &mut Maps,
    slots: &mut Slots,
    services: &HashSet<u32>,
    members: &HashSet<u32>,
) -> Result<u64, Error> {
    let mut writes = 0;
    for (slot, member) in &mut slots.members {
        if member.id != [0; 16]
            && !members.contains(slot)
            && member.flags & member_flag::REMOVED == 0
        {
            member.flags |= member_flag::REMOVED;
            maps.members
                .set(*slot, *member, 0)
                .map_err(during("write", "MEMBERS"))?;
            writes += 1;
        }
    }
    let idle: Vec<(u32, bool)> = slots
        .regions
        .keys()
        .filter(|(slot, _)| !services.contains(slot))
        .copied()
        .collect();
    for key in idle {
        slots.rest_region(key);
    }
    slots.allowed.retain(services);
    Ok(writes)
}

fn add_interfaces(maps: &mut Maps, slots: &mut Slots, config: &Config) -> Result<u64, Error> {
    let mut writes = 0;
    if config.interfaces.len() > MAX_INTERFACES as usize {
        return Err(Error::TooMany {
            what: "interfaces",
            limit: MAX_INTERFACES,
        });
    }
    for interface in &config.interfaces {
        let value = interface_value(interface);
        if slots.interfaces.get(&interface.ifindex) != Some(&value) {
            maps.interfaces
                .insert(interface.ifindex, value, 0)
                .map_err(during("write", "INTERFACES"))?;
            slots.interfaces.insert(interface.ifindex, value);
            writes += 1;
        }
    }
    let handover = config.interfaces.iter().any(|i| i.handover_mac.is_some());
    let globals = Globals {
        handover: u32::from(handover),
        ..slots.globals
    };
    writes += slots.set_globals(maps, globals)?;
    Ok(writes)
}

fn remove_interfaces(maps: &mut Maps, slots: &mut Slots, config: &Config) -> Result<u64, Error> {
    let unwanted: Vec<u32> = slots
        .interfaces
        .keys()
        .filter(|ifindex| !config.interfaces.iter().any(|i| i.ifindex == **ifindex))
        .copied()
        .collect();
    let mut writes = 0;
    for ifindex in unwanted {
        maps.interfaces
            .remove(&ifindex)
            .map_err(during("remove from", "INTERFACES"))?;
        slots.interfaces.remove(&ifindex);
        writes += 1;
    }
    Ok(writes)
}

fn interface_value(interface: &Interface) -> table::Interface {
    let mut flags = 0;
    if interface.snat_v4.is_some() {
        flags |= interface_flag::SNAT_V4;
    }
    if interface.snat_v6.is_some() {
        flags |= interface_flag::SNAT_V6;
    }
    if interface.handover_mac.is_some() {
        flags |= interface_flag::HANDOVER;
    }
    table::Interface {
        snat_v4: interface.snat_v4.map(Address::from).unwrap_or_default(),
        snat_v6: interface.snat_v6.map(Address::from).unwrap_or_default(),
        mtu: interface.mtu,
        flags,
        mac: interface.mac,
        handover_mac: interface.handover_mac.unwrap_or_default(),
        reserved: 0,
    }
}

fn member_flags(member: &Member) -> u32 {
    let mut flags = 0;
    if !member.up {
        flags |= member_flag::DOWN;
    }
    if member.backup {
        flags |= member_flag::BACKUP;
    }
    flags
}

fn member_key(service: u32, member: &Member) -> MemberKey {
    MemberKey {
        service,
        id: *member.id.as_bytes(),
        address: Address::from(member.address),
        port: Be16::new(member.port),
    }
}

fn service_key(service: &Service, vip: Address) -> ServiceKey {
    ServiceKey {
        vip,
        port: Be16::new(service.port),
        protocol: match service.protocol {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        },
    }
}
