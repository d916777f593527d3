//! The tenant networks of a local stack, from a TOML file.
//!
//! ```toml
//! routing = true                 # a router joins all subnets that have a gateway; default true
//!
//! [[network]]
//! name = "private"
//! # id = "…"                     # derived from the name unless given
//! # mtu = 1500
//! # project_id = "…"
//!
//! [[network.subnet]]
//! name = "private-v4"
//! cidr = "10.10.0.0/24"
//! gateway = "10.10.0.1"          # none unless given
//! # allocation_pools = [{ start = "10.10.0.100", end = "10.10.0.200" }]   # the whole subnet unless given
//! # host_routes = [{ destination = "10.99.0.0/16", nexthop = "10.10.0.5" }]
//! ```
//!
//! Everything wrong with a file is reported at once.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipnet::{IpNet, Ipv4Net};
use lb_model::{NetworkId, SubnetId};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::DriverError;
use crate::network::{HostRoute, Subnet, TenantNetwork};

/// The checked content of a networks file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    pub routing: bool,
    pub networks: Vec<TenantNetwork>,
    pub subnets: Vec<Subnet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "yes")]
    routing: bool,
    #[serde(default, rename = "network")]
    networks: Vec<NetworkEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkEntry {
    name: String,
    id: Option<Uuid>,
    #[serde(default = "default_mtu")]
    mtu: u32,
    project_id: Option<String>,
    #[serde(default, rename = "subnet")]
    subnets: Vec<SubnetEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubnetEntry {
    name: String,
    id: Option<Uuid>,
    cidr: IpNet,
    gateway: Option<IpAddr>,
    #[serde(default)]
    allocation_pools: Vec<PoolEntry>,
    #[serde(default)]
    host_routes: Vec<HostRoute>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolEntry {
    start: IpAddr,
    end: IpAddr,
}

fn yes() -> bool {
    true
}

fn default_mtu() -> u32 {
    1500
}

impl Declaration {
    pub fn read(path: &Path, management: Ipv4Net) -> Result<Self, DriverError> {
        let text = std::fs::read_to_string(path)
            .map_err(DriverError::io(format!("read {}", path.display())))?;
        Self::parse(&text, management).map_err(|reason| DriverError::Invalid {
            what: path.display().to_string(),
            reason,
        })
    }

    /// `management` must not overlap any subnet.
    pub fn parse(text: &str, management: Ipv4Net) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut faults = Vec::new();
        let mut declaration = Self {
            routing: file.routing,
            networks: Vec::new(),
            subnets: Vec::new(),
        };
        let mut ids = HashSet::new();
        let mut names = HashSet::new();
        for entry in file.networks {
            let name = entry.name;
            if name.is_empty() || !names.insert(name.clone()) {
                faults.push(format!("network name {name:?} is empty or appears twice"));
            }
            // IPv6 needs 1280; a veth device takes up to 65535.
            if !(1280..=65_535).contains(&entry.mtu) {
                faults.push(format!("network {name}: mtu must be 1280-65535"));
            }
            let id = entry
                .id
                .unwrap_or_else(|| derived_id(&["network", name.as_str()]));
            if !ids.insert(id) {
                faults.push(format!("network {name}: id {id} appears twice"));
            }
            let network_id = NetworkId(id);
            let mut subnets = Vec::new();
            let mut subnet_names = HashSet::new();
            for entry in entry.subnets {
                if entry.name.is_empty() || !subnet_names.insert(entry.name.clone()) {
                    faults.push(format!(
                        "network {name}: subnet name {:?} is empty or appears twice",
                        entry.name
                    ));
                }
                let id = entry
                    .id
                    .unwrap_or_else(|| derived_id(&["subnet", name.as_str(), entry.name.as_str()]));
                if !ids.insert(id) {
                    faults.push(format!("subnet {}: id {id} appears twice", entry.name));
                }
                check_subnet(&entry, management, &declaration.subnets, &mut faults);
                subnets.push(SubnetId(id));
                declaration.subnets.push(Subnet {
                    id: SubnetId(id),
                    allocation_pools: allocation_pools(&entry),
                    name: entry.name,
                    network_id,
                    project_id: None,
                    cidr: entry.cidr.trunc(),
                    gateway_ip: entry.gateway,
                    host_routes: entry.host_routes,
                });
            }
            for subnet in &mut declaration.subnets {
                if subnet.network_id == network_id {
                    subnet.project_id.clone_from(&entry.project_id);
                }
            }
            declaration.networks.push(TenantNetwork {
                id: network_id,
                name,
                mtu_bytes: entry.mtu,
                project_id: entry.project_id,
                subnets,
            });
        }
        if faults.is_empty() {
            Ok(declaration)
        } else {
            Err(faults.join("; "))
        }
    }

    pub fn network(&self, id: NetworkId) -> Option<&TenantNetwork> {
        self.networks.iter().find(|network| network.id == id)
    }

    pub fn subnet(&self, id: SubnetId) -> Option<&Subnet> {
        self.subnets.iter().find(|subnet| subnet.id == id)
    }

    /// By id or by name.
    pub fn find_network(&self, id_or_name: &str) -> Option<&TenantNetwork> {
        self.networks
            .iter()
            .find(|network| network.id.to_string() == id_or_name)
            .or_else(|| {
                self.networks
                    .iter()
                    .find(|network| network.name == id_or_name)
            })
    }

    /// Subnets of a network, in the order of the file.
    pub fn subnets_of(&self, network: NetworkId) -> impl Iterator<Item = &Subnet> {
        self.subnets
            .iter()
            .filter(move |subnet| subnet.network_id == network)
    }
}

fn check_subnet(
    entry: &SubnetEntry,
    management: Ipv4Net,
    others: &[Subnet],
    faults: &mut Vec<String>,
) {
    let SubnetEntry { name, cidr, .. } = entry;
    if cidr.trunc() != *cidr {
        faults.push(format!(
            "subnet {name}: {cidr} has host bits; is {} meant?",
            cidr.trunc()
        ));
    }
    let longest = match cidr {
        IpNet::V4(_) => 30,
        IpNet::V6(_) => 126,
    };
    if cidr.prefix_len() > longest {
        faults.push(format!("subnet {name}: {cidr} is too small"));
    }
    if overlap(cidr, &IpNet::V4(management)) {
        faults.push(format!(
            "subnet {name}: {cidr} overlaps the management network {management}"
        ));
    }
    // One router may join them all, and a host may be on several networks.
    for other in others {
        if overlap(cidr, &other.cidr) {
            faults.push(format!(
                "subnet {name}: {cidr} overlaps subnet {} ({})",
                other.name, other.cidr
            ));
        }
    }
    if let Some(gateway) = entry.gateway
        && !is_host_of(cidr, gateway)
    {
        faults.push(format!(
            "subnet {name}: gateway {gateway} is not a host address of {cidr}"
        ));
    }
    for pool in &entry.allocation_pools {
        if pool.start > pool.end || !is_host_of(cidr, pool.start) || !is_host_of(cidr, pool.end) {
            faults.push(format!(
                "subnet {name}: allocation pool {}-{} is not a range of {cidr}",
                pool.start, pool.end
            ));
        }
    }
    for route in &entry.host_routes {
        let one_family = route.destination.addr().is_ipv4() == cidr.addr().is_ipv4();
        if !one_family || !is_host_of(cidr, route.nexthop) {
            faults.push(format!(
                "subnet {name}: host route to {} by {} does not fit {cidr}",
                route.destination, route.nexthop
            ));
        }
    }
}

fn allocation_pools(entry: &SubnetEntry) -> Vec<(IpAddr, IpAddr)> {
    if entry.allocation_pools.is_empty() {
        vec![host_range(&entry.cidr)]
    } else {
        entry
            .allocation_pools
            .iter()
            .map(|pool| (pool.start, pool.end))
            .collect()
    }
}

/// First and last address that a port may have: not the network's own, nor the broadcast address.
fn host_range(cidr: &IpNet) -> (IpAddr, IpAddr) {
    match cidr {
        IpNet::V4(cidr) => {
            let first = u32::from(cidr.network()).saturating_add(1);
            let last = u32::from(cidr.broadcast()).saturating_sub(1);
            (Ipv4Addr::from(first).into(), Ipv4Addr::from(last).into())
        }
        // The first one is the anycast address of the subnet's routers.
        IpNet::V6(cidr) => {
            let first = u128::from(cidr.network()).saturating_add(1);
            (Ipv6Addr::from(first).into(), cidr.broadcast().into())
        }
    }
}

/// Whether a port of the subnet may have the address.
pub(crate) fn is_host_of(cidr: &IpNet, address: IpAddr) -> bool {
    let (first, last) = host_range(cidr);
    cidr.contains(&address) && first <= address && address <= last
}

fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

/// An id that stays the same for the same words: the first 128 bits of their SHA-256, in the form of a random UUID.
fn derived_id(words: &[&str]) -> Uuid {
    let mut hash = Sha256::new();
    for word in words {
        hash.update(word.as_bytes());
        hash.update([0]);
    }
    let digest = hash.finalize();
    let mut octets = [0; 16];
    octets
        .iter_mut()
        .zip(digest.iter())
        .for_each(|(octet, from)| *octet = *from);
    uuid::Builder::from_random_bytes(octets).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::default_management;

    const GOOD: &str = r#"
        [[network]]
        name = "private"
        project_id = "p1"
        [[network.subnet]]
        name = "v4"
        cidr = "10.10.0.0/24"
        gateway = "10.10.0.1"
        host_routes = [{ destination = "10.99.0.0/16", nexthop = "10.10.0.5" }]
        [[network.subnet]]
        name = "v6"
        cidr = "fd00:10::/64"
        [[network]]
        name = "other"
        mtu = 9000
        id = "6c1bd1a1-31a7-4c0d-9d6e-9f6a1e5a0001"
        [[network.subnet]]
        name = "v4"
        cidr = "10.20.0.0/24"
        allocation_pools = [{ start = "10.20.0.10", end = "10.20.0.20" }]
    "#;

    #[test]
    fn a_file_declares_networks_with_their_subnets() {
        let parsed = Declaration::parse(GOOD, default_management()).unwrap();
        assert!(parsed.routing);
        let private = parsed.find_network("private").unwrap();
        assert_eq!(private.mtu_bytes, 1500);
        assert_eq!(private.subnets.len(), 2);
        let v4 = parsed.subnets_of(private.id).next().unwrap();
        assert_eq!(v4.gateway_ip, Some("10.10.0.1".parse().unwrap()));
        assert_eq!(v4.project_id.as_deref(), Some("p1"));
        assert_eq!(
            v4.allocation_pools,
            [("10.10.0.1".parse().unwrap(), "10.10.0.254".parse().unwrap())]
        );
        let other = parsed
            .find_network("6c1bd1a1-31a7-4c0d-9d6e-9f6a1e5a0001")
            .unwrap();
        assert_eq!(other.name, "other");
    }

    #[test]
    fn derived_ids_are_stable_and_differ_by_network_and_name() {
        let first = Declaration::parse(GOOD, default_management()).unwrap();
        let second = Declaration::parse(GOOD, default_management()).unwrap();
        assert_eq!(first, second);
        let ids: HashSet<_> = first.subnets.iter().map(|subnet| subnet.id).collect();
        assert_eq!(ids.len(), 3);
        assert_eq!(
            first.find_network("private").unwrap().id.to_string(),
            derived_id(&["network", "private"]).to_string()
        );
    }

    #[test]
    fn every_fault_of_a_file_is_reported_at_once() {
        let text = r#"
            [[network]]
            name = "a"
            mtu = 100
            [[network.subnet]]
            name = "s"
            cidr = "10.0.0.5/24"
            gateway = "10.0.0.255"
            [[network.subnet]]
            name = "s"
            cidr = "198.18.4.0/24"
            [[network]]
            name = "a"
            [[network.subnet]]
            name = "t"
            cidr = "10.0.0.0/16"
            allocation_pools = [{ start = "10.0.0.9", end = "10.0.0.8" }]
            host_routes = [{ destination = "fd00::/64", nexthop = "10.0.0.9" }]
        "#;
        let faults = Declaration::parse(text, default_management()).unwrap_err();
        for wanted in [
            "mtu must be",
            "has host bits",
            "gateway 10.0.0.255 is not",
            "subnet name \"s\" is empty or appears twice",
            "overlaps the management network",
            "network name \"a\" is empty or appears twice",
            "overlaps subnet s",
            "allocation pool 10.0.0.9-10.0.0.8",
            "host route to fd00::/64",
        ] {
            assert!(faults.contains(wanted), "{wanted} is missing in {faults}");
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        let text = "[[network]]\nname = \"a\"\nvlan = 5\n";
        assert!(Declaration::parse(text, default_management()).is_err());
    }
}
