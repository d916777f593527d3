//! All ports of a local stack, and the rules by which they get addresses. Pure: files and locks are the caller's.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lb_model::{PortId, SubnetId};
use serde::{Deserialize, Serialize};

use crate::DriverError;
use crate::local::{Declaration, is_host_of, mac_address, mac_text};
use crate::network::{FixedIp, FixedIpSpec, Port, PortSpec, PortUpdate, Subnet};

/// The content of `ports.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PortTable {
    pub(super) ports: Vec<Port>,
    /// The address given last in each subnet. The search for a free one goes on behind it, so that an address that
    /// was given back rests as long as others are free: neighbours may still know it by its former MAC address.
    #[serde(default)]
    last_given: BTreeMap<SubnetId, IpAddr>,
}

impl PortTable {
    pub(super) fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.iter().find(|port| port.id == id)
    }

    /// The port of this device and name: the one there is, or a new one. On an error nothing has changed.
    pub(super) fn ensure(
        &mut self,
        declaration: &Declaration,
        spec: &PortSpec,
    ) -> Result<Port, DriverError> {
        if declaration.network(spec.network_id).is_none() {
            return Err(DriverError::UnknownNetwork(spec.network_id));
        }
        if spec.fixed_ips.is_empty() {
            return Err(DriverError::Invalid {
                what: format!("port {}", spec.name),
                reason: "has no subnet".to_owned(),
            });
        }
        if let Some(port) = self
            .ports
            .iter_mut()
            .find(|port| port.device_id == spec.device_id && port.name == spec.name)
        {
            adopt(port, spec)?;
            return Ok(port.clone());
        }
        let mut next = self.clone();
        let mut fixed_ips = Vec::with_capacity(spec.fixed_ips.len());
        for wanted in &spec.fixed_ips {
            let subnet = declaration
                .subnet(wanted.subnet_id)
                .filter(|subnet| subnet.network_id == spec.network_id)
                .ok_or(DriverError::UnknownSubnet(wanted.subnet_id))?;
            fixed_ips.push(next.take_address(subnet, wanted.ip_address, &fixed_ips)?);
        }
        let mut port = spec.port(PortId::random(), next.free_mac());
        port.fixed_ips = fixed_ips;
        next.ports.push(port.clone());
        *self = next;
        Ok(port)
    }

    /// On an error nothing has changed.
    pub(super) fn update(
        &mut self,
        declaration: &Declaration,
        id: PortId,
        update: &PortUpdate,
    ) -> Result<Port, DriverError> {
        let mut next = self.clone();
        let mut port = next.port(id).cloned().ok_or(DriverError::UnknownPort(id))?;
        update.apply_to(&mut port);
        for wanted in &update.add_fixed_ips {
            let subnet = declaration
                .subnet(wanted.subnet_id)
                .filter(|subnet| subnet.network_id == port.network_id)
                .ok_or(DriverError::UnknownSubnet(wanted.subnet_id))?;
            let already = port
                .fixed_ips
                .iter()
                .any(|fixed| Some(fixed.ip_address) == wanted.ip_address);
            if !already {
                let fixed = next.take_address(subnet, wanted.ip_address, &port.fixed_ips)?;
                port.fixed_ips.push(fixed);
            }
        }
        for slot in &mut next.ports {
            if slot.id == id {
                *slot = port.clone();
            }
        }
        *self = next;
        Ok(port)
    }

    pub(super) fn remove(&mut self, id: PortId) {
        self.ports.retain(|port| port.id != id);
    }

    /// `more` are addresses taken for the port in the making.
    fn take_address(
        &mut self,
        subnet: &Subnet,
        wanted: Option<IpAddr>,
        more: &[FixedIp],
    ) -> Result<FixedIp, DriverError> {
        let mut taken: HashSet<IpAddr> = self
            .ports
            .iter()
            .flat_map(|port| &port.fixed_ips)
            .chain(more)
            .map(|fixed| fixed.ip_address)
            .collect();
        let ip_address = match wanted {
            Some(address) => {
                if !is_host_of(&subnet.cidr, address) || subnet.gateway_ip == Some(address) {
                    return Err(DriverError::AddressOutsideSubnet {
                        address,
                        subnet: subnet.id,
                    });
                }
                if taken.contains(&address) {
                    return Err(DriverError::AddressInUse { address });
                }
                address
            }
            None => {
                taken.extend(subnet.gateway_ip);
                let last = self.last_given.get(&subnet.id).copied();
                let free = free_address(subnet, last, &taken)
                    .ok_or(DriverError::NoFreeAddress { subnet: subnet.id })?;
                self.last_given.insert(subnet.id, free);
                free
            }
        };
        Ok(FixedIp {
            subnet_id: subnet.id,
            ip_address,
        })
    }

    fn free_mac(&self) -> String {
        loop {
            let mac = mac_text(mac_address(rand::random()));
            if self.ports.iter().all(|port| port.mac_address != mac) {
                return mac;
            }
        }
    }
}

/// Brings a port that exists in line with its specification, when it can be that port.
fn adopt(port: &mut Port, spec: &PortSpec) -> Result<(), DriverError> {
    let conflict = |reason: String| DriverError::PortConflict {
        name: spec.name.clone(),
        reason,
    };
    if port.network_id != spec.network_id {
        return Err(conflict(format!("it is in network {}", port.network_id)));
    }
    let has = |wanted: &FixedIpSpec| {
        port.fixed_ips.iter().any(|fixed| {
            fixed.subnet_id == wanted.subnet_id
                && wanted
                    .ip_address
                    .is_none_or(|address| address == fixed.ip_address)
        })
    };
    if port.fixed_ips.len() != spec.fixed_ips.len() || !spec.fixed_ips.iter().all(has) {
        let addresses: Vec<String> = port
            .fixed_ips
            .iter()
            .map(|fixed| fixed.ip_address.to_string())
            .collect();
        return Err(conflict(format!("it has {}", addresses.join(", "))));
    }
    port.allowed_address_pairs
        .clone_from(&spec.allowed_address_pairs);
    Ok(())
}

/// The first free address behind `last`, and from the start when there is none behind.
fn free_address(subnet: &Subnet, last: Option<IpAddr>, taken: &HashSet<IpAddr>) -> Option<IpAddr> {
    let pools = || subnet.allocation_pools.iter().copied();
    let behind = last.and_then(|last| {
        pools()
            .filter(|(_, end)| *end > last)
            .find_map(|(start, end)| first_free(next_address(last)?.max(start), end, taken))
    });
    behind.or_else(|| pools().find_map(|(start, end)| first_free(start, end, taken)))
}

/// Looks at no more addresses than are taken, and one.
fn first_free(start: IpAddr, end: IpAddr, taken: &HashSet<IpAddr>) -> Option<IpAddr> {
    let mut candidate = start;
    while candidate <= end {
        if !taken.contains(&candidate) {
            return Some(candidate);
        }
        candidate = next_address(candidate)?;
    }
    None
}

fn next_address(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => u32::from(address)
            .checked_add(1)
            .map(|next| Ipv4Addr::from(next).into()),
        IpAddr::V6(address) => u128::from(address)
            .checked_add(1)
            .map(|next| Ipv6Addr::from(next).into()),
    }
}

#[cfg(test)]
mod tests;
