//! From a document and what the kernel holds to ordered actions. Pure.
//!
//! Order: settings, new things (interfaces, addresses, routes, rules), the data plane, announcements, then what is
//! gone. So a virtual address that changes between its interface (active) and `lo` (passive) is on one of them at
//! every moment, and nothing is taken away that the data plane still uses. A plan over what a finished apply left
//! holds nothing but [`Action::DataPlane`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use amphora_api::{AmphoraConfig, Interface, ListenerProtocol, VipState, parse_mac};
use ipnet::IpNet;

use crate::observed::{Link, MAIN_TABLE, Observed, Place, Route, VIP_TABLE, mac_text};
use crate::sysctl;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    SetSysctl {
        key: String,
        value: String,
        was: Option<String>,
        required: bool,
    },
    MoveLink {
        index: u32,
        from: String,
        mac: [u8; 6],
        to: String,
    },
    RenameLink {
        index: u32,
        from: String,
        to: String,
    },
    SetMtu {
        device: String,
        mtu_bytes: u32,
    },
    SetUp {
        device: String,
    },
    AddAddress {
        device: String,
        address: IpNet,
    },
    AddRoute(Route),
    AddRule(IpAddr),
    /// Put listeners, pools and members into force.
    DataPlane,
    /// Gratuitous ARP or unsolicited neighbour advertisement.
    Announce {
        device: String,
        address: IpAddr,
    },
    DeleteRoute(Route),
    DeleteRule(IpAddr),
    DeleteAddress {
        device: String,
        address: IpNet,
    },
    /// Back to the agent's namespace, without addresses, down.
    ReleaseLink {
        index: u32,
        name: String,
        to: String,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// What the document asks for and no action can bring about now.
    pub problems: Vec<String>,
}

impl Plan {
    /// Whether the kernel is as the document says.
    pub fn is_settled(&self) -> bool {
        self.actions.iter().all(|action| match action {
            Action::DataPlane => true,
            Action::SetSysctl { required, .. } => !required,
            _ => false,
        })
    }
}

/// What is to be done so that the kernel is as `document` says.
pub fn plan(document: &AmphoraConfig, observed: &Observed) -> Plan {
    let mut planner = Planner {
        document,
        observed,
        names: observed
            .links
            .iter()
            .filter(|link| link.place == Place::Tenant)
            .map(|link| (link.index, link.name.clone()))
            .collect(),
        plan: Plan::default(),
        announce: Vec::new(),
        early_deletes: BTreeSet::new(),
    };
    planner.sysctls();
    let wanted = planner.wanted_addresses();
    let present = planner.interfaces();
    planner.add_addresses(&wanted, &present);
    let routes = wanted_routes(document, &present);
    for route in routes.difference(&observed.routes) {
        planner.push(Action::AddRoute(route.clone()));
    }
    let rules: BTreeSet<_> = document.vips.iter().map(|vip| vip.address).collect();
    for source in rules.difference(&observed.rules) {
        planner.push(Action::AddRule(*source));
    }
    planner.push(Action::DataPlane);
    let announce = std::mem::take(&mut planner.announce);
    planner.plan.actions.extend(announce);
    for source in observed.rules.difference(&rules) {
        planner.push(Action::DeleteRule(*source));
    }
    for route in observed.routes.difference(&routes) {
        planner.push(Action::DeleteRoute(route.clone()));
    }
    planner.delete_addresses(&wanted);
    planner.release_links();
    planner.plan
}

/// Whether the fast path will look routes up, which the kernel allows on forwarding interfaces only.
pub fn needs_forwarding(document: &AmphoraConfig) -> bool {
    document
        .listeners
        .iter()
        .any(|listener| match listener.protocol {
            ListenerProtocol::Tcp | ListenerProtocol::Udp | ListenerProtocol::Https => true,
            ListenerProtocol::Http => false,
        })
}

/// Name of a link that was given back, or stands in the way of another one's name.
fn spare_name(mac: [u8; 6]) -> String {
    let [.., a, b, c] = mac;
    format!("port-{a:02x}{b:02x}{c:02x}")
}

/// A VIP as it stands on an interface.
fn host_prefix(address: IpAddr) -> IpNet {
    IpNet::from(address)
}

/// Wanted addresses by device name, `lo` among them.
type Wanted = BTreeMap<String, Vec<IpNet>>;

struct Planner<'a> {
    document: &'a AmphoraConfig,
    observed: &'a Observed,
    /// Names in the tenant's namespace, by index, as the plan so far leaves them.
    names: BTreeMap<u32, String>,
    plan: Plan,
    announce: Vec<Action>,
    /// Deleted before the data plane, because the new one cannot stand beside them.
    early_deletes: BTreeSet<(String, IpNet)>,
}

impl Planner<'_> {
    fn push(&mut self, action: Action) {
        self.plan.actions.push(action);
    }

    fn sysctls(&mut self) {
        for wanted in sysctl::wanted(needs_forwarding(self.document)) {
            let was = self.observed.sysctls.get(&wanted.key).cloned();
            if was.as_deref() == Some(wanted.value.as_str()) || (was.is_none() && !wanted.required)
            {
                continue;
            }
            self.push(Action::SetSysctl {
                key: wanted.key,
                value: wanted.value,
                was,
                required: wanted.required,
            });
        }
    }

    fn wanted_addresses(&self) -> Wanted {
        let mut wanted = Wanted::new();
        wanted.insert(
            "lo".to_owned(),
            vec![
                IpNet::new_assert(IpAddr::from([127, 0, 0, 1]), 8),
                IpNet::from(IpAddr::from(std::net::Ipv6Addr::LOCALHOST)),
            ],
        );
        for interface in &self.document.interfaces {
            wanted.insert(interface.name.clone(), interface.addresses.clone());
        }
        for vip in &self.document.vips {
            let carrier = self
                .document
                .interfaces
                .iter()
                .find(|interface| interface.mac_address == vip.interface_mac);
            let device = match (&vip.state, carrier) {
                (VipState::Active { .. }, Some(interface)) => interface.name.as_str(),
                (VipState::Passive, _) | (VipState::Active { .. }, None) => "lo",
            };
            let addresses = wanted.entry(device.to_owned()).or_default();
            // Where the amphora's own port has the address there is nothing to add.
            if !addresses.iter().any(|own| own.addr() == vip.address) {
                addresses.push(host_prefix(vip.address));
            }
        }
        wanted
    }

    /// Brings each interface of the document into place; the names of those that are (or will be) there.
    fn interfaces(&mut self) -> BTreeSet<String> {
        let mut present = BTreeSet::new();
        if let Some(lo) = self.tenant_link_named("lo")
            && !lo.up
        {
            self.push(Action::SetUp {
                device: "lo".to_owned(),
            });
        }
        for interface in &self.document.interfaces {
            let Some(mac) = parse_mac(&interface.mac_address) else {
                continue;
            };
            let links = &self.observed.links;
            let here = |place| {
                links
                    .iter()
                    .find(|link| link.place == place && link.mac == mac && link.name != "lo")
            };
            match (here(Place::Tenant), here(Place::Agent)) {
                (Some(link), _) => self.keep_link(link, interface),
                (None, Some(link)) if !link.addresses.is_empty() => {
                    self.plan.problems.push(format!(
                        "interface {} ({}) carries addresses in the agent's namespace: it is not the tenant's",
                        link.name, interface.mac_address
                    ));
                    continue;
                }
                (None, Some(link)) => self.move_link(link, interface),
                (None, None) => {
                    self.plan.problems.push(format!(
                        "no interface has the MAC address {}",
                        interface.mac_address
                    ));
                    continue;
                }
            }
            present.insert(interface.name.clone());
        }
        present
    }

    fn keep_link(&mut self, link: &Link, interface: &Interface) {
        let name = self.names.get(&link.index).cloned().unwrap_or_default();
        let renamed = name != interface.name;
        if renamed {
            self.clear_name(&interface.name, link.index);
            self.rename(link.index, name, interface.name.clone());
        }
        self.set_mtu(link, interface);
        if !link.up || renamed {
            self.push(Action::SetUp {
                device: interface.name.clone(),
            });
        }
    }

    fn move_link(&mut self, link: &Link, interface: &Interface) {
        self.clear_name(&interface.name, 0);
        self.push(Action::MoveLink {
            index: link.index,
            from: link.name.clone(),
            mac: link.mac,
            to: interface.name.clone(),
        });
        self.set_mtu(link, interface);
        self.push(Action::SetUp {
            device: interface.name.clone(),
        });
    }

    fn set_mtu(&mut self, link: &Link, interface: &Interface) {
        if interface.mtu_bytes != 0 && interface.mtu_bytes != link.mtu_bytes {
            self.push(Action::SetMtu {
                device: interface.name.clone(),
                mtu_bytes: interface.mtu_bytes,
            });
        }
    }

    /// Renames whoever else has this name.
    fn clear_name(&mut self, name: &str, but: u32) {
        let holder = self
            .names
            .iter()
            .find(|(index, held)| held.as_str() == name && **index != but)
            .map(|(index, _)| *index);
        let link = holder.and_then(|index| {
            self.observed
                .links
                .iter()
                .find(|link| link.place == Place::Tenant && link.index == index)
        });
        if let Some(link) = link {
            self.rename(link.index, name.to_owned(), spare_name(link.mac));
        }
    }

    fn rename(&mut self, index: u32, from: String, to: String) {
        self.names.insert(index, to.clone());
        self.push(Action::RenameLink { index, from, to });
    }

    fn add_addresses(&mut self, wanted: &Wanted, present: &BTreeSet<String>) {
        for (device, addresses) in wanted {
            if device != "lo" && !present.contains(device) {
                continue;
            }
            let held = self.held(device);
            for address in addresses {
                if held.contains(address) {
                    continue;
                }
                // IPv6 has an address once on an interface, whatever its prefix.
                let twin = held
                    .iter()
                    .find(|old| old.addr() == address.addr() && address.addr().is_ipv6());
                if let Some(twin) = twin {
                    self.push(Action::DeleteAddress {
                        device: device.clone(),
                        address: *twin,
                    });
                    self.early_deletes.insert((device.clone(), *twin));
                }
                self.push(Action::AddAddress {
                    device: device.clone(),
                    address: *address,
                });
                if device != "lo" {
                    self.announce.push(Action::Announce {
                        device: device.clone(),
                        address: address.addr(),
                    });
                }
            }
        }
    }

    /// Addresses of the tenant's link that has this name, or will have it.
    fn held(&self, device: &str) -> Vec<IpNet> {
        self.observed
            .links
            .iter()
            .find(|link| {
                link.place == Place::Tenant
                    && self.names.get(&link.index).map(String::as_str) == Some(device)
            })
            .map(|link| link.addresses.clone())
            .unwrap_or_default()
    }

    fn delete_addresses(&mut self, wanted: &Wanted) {
        for device in wanted.keys() {
            for address in self.held(device) {
                let kept = wanted
                    .get(device)
                    .is_some_and(|wanted| wanted.contains(&address));
                if kept || self.early_deletes.contains(&(device.clone(), address)) {
                    continue;
                }
                self.push(Action::DeleteAddress {
                    device: device.clone(),
                    address,
                });
            }
        }
    }

    fn release_links(&mut self) {
        let wanted: BTreeSet<_> = self
            .document
            .interfaces
            .iter()
            .filter_map(|interface| parse_mac(&interface.mac_address))
            .collect();
        for link in &self.observed.links {
            if link.place != Place::Tenant || link.name == "lo" || wanted.contains(&link.mac) {
                continue;
            }
            let name = self.names.get(&link.index).cloned().unwrap_or_default();
            self.push(Action::ReleaseLink {
                index: link.index,
                name,
                to: spare_name(link.mac),
            });
        }
    }

    fn tenant_link_named(&self, name: &str) -> Option<&Link> {
        self.observed
            .links
            .iter()
            .find(|link| link.place == Place::Tenant && link.name == name)
    }
}

fn wanted_routes(document: &AmphoraConfig, present: &BTreeSet<String>) -> BTreeSet<Route> {
    let mut routes = BTreeSet::new();
    for interface in &document.interfaces {
        if !present.contains(&interface.name) {
            continue;
        }
        let device = interface.name.clone();
        let carries_vip = document
            .vips
            .iter()
            .any(|vip| vip.interface_mac == interface.mac_address);
        let mut tables = vec![MAIN_TABLE];
        if carries_vip {
            tables.push(VIP_TABLE);
            // The main table has these from the addresses themselves.
            for address in &interface.addresses {
                routes.insert(Route {
                    table: VIP_TABLE,
                    destination: address.trunc(),
                    gateway: None,
                    device: device.clone(),
                });
            }
        }
        for table in tables {
            for gateway in &interface.gateways {
                let any = match gateway {
                    IpAddr::V4(_) => IpNet::new_assert(IpAddr::from([0, 0, 0, 0]), 0),
                    IpAddr::V6(_) => {
                        IpNet::new_assert(IpAddr::from(std::net::Ipv6Addr::UNSPECIFIED), 0)
                    }
                };
                routes.insert(Route {
                    table,
                    destination: any,
                    gateway: Some(*gateway),
                    device: device.clone(),
                });
            }
            for route in &interface.routes {
                if route.destination.addr().is_ipv4() != route.nexthop.is_ipv4() {
                    continue;
                }
                routes.insert(Route {
                    table,
                    destination: route.destination.trunc(),
                    gateway: Some(route.nexthop),
                    device: device.clone(),
                });
            }
        }
    }
    routes
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::SetSysctl {
                key, value, was, ..
            } => match was {
                Some(was) => write!(f, "set {key} to {value} (was {was})"),
                None => write!(f, "set {key} to {value}"),
            },
            Action::MoveLink { from, mac, to, .. } => write!(
                f,
                "move interface {from} ({}) to the tenant namespace as {to}",
                mac_text(*mac)
            ),
            Action::RenameLink { from, to, .. } => write!(f, "rename interface {from} to {to}"),
            Action::SetMtu { device, mtu_bytes } => write!(f, "set mtu of {device} to {mtu_bytes}"),
            Action::SetUp { device } => write!(f, "bring {device} up"),
            Action::AddAddress { device, address } => {
                write!(f, "add address {address} to {device}")
            }
            Action::AddRoute(route) => write!(f, "add route {route}"),
            Action::AddRule(source) => write!(f, "add rule from {source} lookup {VIP_TABLE}"),
            Action::DataPlane => f.write_str("apply listeners, pools and members"),
            Action::Announce { device, address } => write!(f, "announce {address} on {device}"),
            Action::DeleteRoute(route) => write!(f, "delete route {route}"),
            Action::DeleteRule(source) => write!(f, "delete rule from {source} lookup {VIP_TABLE}"),
            Action::DeleteAddress { device, address } => {
                write!(f, "delete address {address} from {device}")
            }
            Action::ReleaseLink { name, to, .. } => {
                write!(
                    f,
                    "give interface {name} back to the agent's namespace as {to}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
