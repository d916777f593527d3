//! A step: one idempotent act with everything it needs to know.

use std::fmt;
use std::net::IpAddr;

use amphora_api::{AmphoraConfig, VipState};
use lb_model::{
    Amphora, AmphoraId, AmphoraRole, AmphoraStatus, Graph, NetworkId, PortId, SubnetId, Timestamp,
};

use crate::ServerFacts;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A row for an amphora to be.
    CreateAmphora {
        amphora: AmphoraId,
        role: AmphoraRole,
        why: &'static str,
    },
    /// Writes what was learned of an amphora into its row.
    Record {
        amphora: AmphoraId,
        facts: Box<RowFacts>,
    },
    /// The amphora is to go. `drain`: it hands over and finishes what it has.
    Retire {
        amphora: AmphoraId,
        drain: bool,
        why: &'static str,
    },
    /// The amphora stays although a replacement was asked for.
    Keep {
        amphora: AmphoraId,
    },
    /// The amphora serves from now on.
    TakeOver {
        amphora: AmphoraId,
    },
    /// Issues a certificate and makes the server exist and run.
    EnsureServer {
        amphora: AmphoraId,
        why: &'static str,
    },
    EnsurePort(PortWish),
    /// Makes the VIP port anew, with the addresses it had: somebody took it away.
    EnsureVipPort {
        network_id: NetworkId,
        addresses: Vec<(SubnetId, IpAddr)>,
    },
    AddAddresses {
        amphora: AmphoraId,
        port: PortId,
        subnets: Vec<SubnetId>,
    },
    AwaitAgent {
        amphora: AmphoraId,
    },
    AttachPort {
        amphora: AmphoraId,
        port: PortId,
    },
    PushDocument {
        amphora: AmphoraId,
        document: Box<AmphoraConfig>,
        why: String,
    },
    DetachPort {
        amphora: AmphoraId,
        port: PortId,
    },
    RemoveAddresses {
        amphora: AmphoraId,
        port: PortId,
        addresses: Vec<IpAddr>,
    },
    DeleteServer {
        amphora: AmphoraId,
    },
    DeletePort {
        port: PortId,
        /// `None`: the VIP port.
        amphora: Option<AmphoraId>,
    },
    /// The amphora's row becomes DELETED; nothing of it is left.
    Forget {
        amphora: AmphoraId,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortPurpose {
    /// In the VIP network; carries the VIPs.
    Base,
    /// In a network of members.
    Member,
}

/// A port an amphora is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortWish {
    pub amphora: AmphoraId,
    pub purpose: PortPurpose,
    pub network_id: NetworkId,
    /// One address in each.
    pub subnets: Vec<SubnetId>,
    /// Addresses it carries besides its own: the VIPs, on a base port.
    pub allowed_addresses: Vec<IpAddr>,
}

/// What an amphora's row should say of the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFacts {
    pub server: Option<ServerFacts>,
    /// Base port and its address in the VIP subnet.
    pub base: Option<(PortId, Option<IpAddr>)>,
    pub ha_ip: IpAddr,
    pub ha_port_id: PortId,
}

impl RowFacts {
    /// Writes the facts; answers whether anything was new.
    pub fn write(&self, row: &mut Amphora) -> bool {
        let before = row.clone();
        if let Some(server) = &self.server {
            row.compute_id = Some(server.compute_id.clone());
            row.lb_network_ip = server.lb_network_ip.or(row.lb_network_ip);
            row.image_id = server.image_id.clone().or(row.image_id.take());
            row.cached_zone = server.cached_zone.clone().or(row.cached_zone.take());
            if row.status == AmphoraStatus::PendingCreate {
                row.status = AmphoraStatus::Booting;
            }
        }
        if let Some((port, address)) = self.base {
            row.vrrp_port_id = Some(port);
            row.vrrp_ip = address;
            row.vrrp_interface = Some(VIP_INTERFACE.to_owned());
            row.ha_ip = Some(self.ha_ip);
            row.ha_port_id = Some(self.ha_port_id);
        }
        *row != before
    }
}

/// Name of the interface that carries the VIPs, as in Octavia.
pub(crate) const VIP_INTERFACE: &str = "eth1";

impl Step {
    /// Steps that only change rows: writes them into the graph. `None` for all others.
    pub fn write(&self, graph: &mut Graph, now: Timestamp) -> Option<()> {
        match self {
            Step::CreateAmphora { amphora, role, .. } => {
                if graph.amphorae.iter().all(|row| row.id != *amphora) {
                    let row = new_row(graph, *amphora, *role, now);
                    graph.amphorae.push(row);
                }
            }
            Step::Record { amphora, facts } => with_row(graph, *amphora, |row| {
                facts.write(row);
            }),
            Step::Retire { amphora, drain, .. } => with_row(graph, *amphora, |row| {
                row.status = AmphoraStatus::PendingDelete;
                row.failover_requested = *drain;
                row.updated_at = Some(now);
            }),
            Step::Keep { amphora } => with_row(graph, *amphora, |row| {
                row.failover_requested = false;
            }),
            Step::TakeOver { amphora } => with_row(graph, *amphora, |row| {
                row.status = AmphoraStatus::Allocated;
                row.updated_at = Some(now);
            }),
            Step::Forget { amphora } => with_row(graph, *amphora, |row| {
                row.status = AmphoraStatus::Deleted;
                row.failover_requested = false;
                row.updated_at = Some(now);
            }),
            Step::EnsureServer { .. }
            | Step::EnsurePort(_)
            | Step::EnsureVipPort { .. }
            | Step::AddAddresses { .. }
            | Step::AwaitAgent { .. }
            | Step::AttachPort { .. }
            | Step::PushDocument { .. }
            | Step::DetachPort { .. }
            | Step::RemoveAddresses { .. }
            | Step::DeleteServer { .. }
            | Step::DeletePort { .. } => return None,
        }
        Some(())
    }

    /// Whether the step only changes rows.
    pub fn is_row(&self) -> bool {
        matches!(
            self,
            Step::CreateAmphora { .. }
                | Step::Record { .. }
                | Step::Retire { .. }
                | Step::Keep { .. }
                | Step::TakeOver { .. }
                | Step::Forget { .. }
        )
    }
}

fn with_row(graph: &mut Graph, id: AmphoraId, change: impl FnOnce(&mut Amphora)) {
    if let Some(row) = graph.amphorae.iter_mut().find(|row| row.id == id) {
        change(row);
    }
}

fn new_row(graph: &Graph, id: AmphoraId, role: AmphoraRole, now: Timestamp) -> Amphora {
    Amphora {
        id,
        load_balancer_id: graph.load_balancer.id,
        status: AmphoraStatus::PendingCreate,
        role: Some(role),
        compute_id: None,
        lb_network_ip: None,
        vrrp_ip: None,
        ha_ip: None,
        vrrp_port_id: None,
        ha_port_id: None,
        vrrp_interface: None,
        vrrp_id: Some(1),
        vrrp_priority: None,
        cert_expiration: None,
        cert_busy: false,
        cached_zone: None,
        image_id: None,
        compute_flavor: None,
        failover_requested: false,
        config_generation: 0,
        created_at: now,
        updated_at: None,
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::CreateAmphora { amphora, role, why } => {
                write!(f, "+ amphora {amphora}, {role}: {why}")
            }
            Step::Record { amphora, facts } => {
                write!(f, "~ row of amphora {amphora}:")?;
                if let Some(server) = &facts.server {
                    write!(f, " server {}", server.compute_id)?;
                }
                match facts.base {
                    Some((port, Some(address))) => write!(f, " base port {port} {address}"),
                    Some((port, None)) => write!(f, " base port {port}"),
                    None => Ok(()),
                }
            }
            Step::Retire {
                amphora,
                drain,
                why,
            } => {
                let how = if *drain {
                    "goes after draining"
                } else {
                    "goes"
                };
                write!(f, "~ amphora {amphora} {how}: {why}")
            }
            Step::Keep { amphora } => write!(f, "~ amphora {amphora} stays"),
            Step::TakeOver { amphora } => write!(f, "~ amphora {amphora} serves"),
            Step::EnsureServer { amphora, why } => {
                write!(f, "+ server of amphora {amphora}: {why}")
            }
            Step::EnsurePort(wish) => write!(
                f,
                "+ {} of amphora {} in network {}, {}",
                match wish.purpose {
                    PortPurpose::Base => "base port",
                    PortPurpose::Member => "member port",
                },
                wish.amphora,
                wish.network_id,
                subnets(&wish.subnets),
            ),
            Step::EnsureVipPort {
                network_id,
                addresses,
            } => {
                write!(f, "+ VIP port in network {network_id},")?;
                for (_, address) in addresses {
                    write!(f, " {address}")?;
                }
                write!(f, ": it is gone")
            }
            Step::AddAddresses {
                amphora,
                port,
                subnets: added,
            } => write!(
                f,
                "+ addresses on port {port} of amphora {amphora}, {}",
                subnets(added)
            ),
            Step::AwaitAgent { amphora } => write!(f, ". agent of amphora {amphora} answers"),
            Step::AttachPort { amphora, port } => {
                write!(f, "+ port {port} into amphora {amphora}")
            }
            Step::PushDocument {
                amphora,
                document,
                why,
            } => write!(
                f,
                "> document {} to amphora {amphora} ({}, {} listeners, {} pools): {why}",
                document.generation,
                vip_state(document),
                document.listeners.len(),
                document.pools.len(),
            ),
            Step::DetachPort { amphora, port } => {
                write!(f, "- port {port} out of amphora {amphora}")
            }
            Step::RemoveAddresses {
                amphora,
                port,
                addresses,
            } => {
                write!(f, "- addresses")?;
                for address in addresses {
                    write!(f, " {address}")?;
                }
                write!(f, " on port {port} of amphora {amphora}")
            }
            Step::DeleteServer { amphora } => write!(f, "- server of amphora {amphora}"),
            Step::DeletePort {
                port,
                amphora: Some(amphora),
            } => write!(f, "- port {port} of amphora {amphora}"),
            Step::DeletePort {
                port,
                amphora: None,
            } => write!(f, "- VIP port {port}"),
            Step::Forget { amphora } => write!(f, "- amphora {amphora}"),
        }
    }
}

fn subnets(ids: &[SubnetId]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("subnet {}", ids.join(" and "))
}

fn vip_state(document: &AmphoraConfig) -> String {
    match document.vips.first().map(|vip| &vip.state) {
        Some(VipState::Active { handover_mac: None }) => "VIP active".to_owned(),
        Some(VipState::Active {
            handover_mac: Some(mac),
        }) => format!("VIP active, hands over to {mac}"),
        Some(VipState::Passive) => "VIP passive".to_owned(),
        None => "no VIP".to_owned(),
    }
}
