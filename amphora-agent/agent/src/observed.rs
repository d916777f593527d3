//! What the kernel holds, as far as the plan needs to know. Filled in by [`crate::kernel`], read by [`crate::plan`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// Routing table of the rules `from VIP`.
pub const VIP_TABLE: u32 = 1;
/// The main table (`RT_TABLE_MAIN`).
pub const MAIN_TABLE: u32 = 254;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Ethernet interfaces of both namespaces, and `lo` of the tenant's.
    pub links: Vec<Link>,
    /// Routes of ours (by their protocol number) in the tenant's namespace.
    pub routes: BTreeSet<Route>,
    /// Sources of rules `from SOURCE lookup 1` in the tenant's namespace.
    pub rules: BTreeSet<IpAddr>,
    /// Values of the wanted keys that exist in the tenant's namespace.
    pub sysctls: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub place: Place,
    pub index: u32,
    pub name: String,
    pub mac: [u8; 6],
    pub mtu_bytes: u32,
    pub up: bool,
    /// All but IPv6 link-local ones.
    pub addresses: Vec<IpNet>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// Where the agent itself lives, with the management interface.
    Agent,
    Tenant,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub table: u32,
    pub destination: IpNet,
    /// `None` for what is on the link.
    pub gateway: Option<IpAddr>,
    pub device: String,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        write!(f, " dev {} table {}", self.device, self.table)
    }
}

/// Octets as the kernel and the documents write them.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}
