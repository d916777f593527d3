//! Networks, subnets and ports of tenants.
//!
//! Ports are found by device and name, so `ensure_port` is idempotent and adopts what an interrupted call left.

#[cfg(feature = "fake")]
mod fake;
mod local;
mod noop;

use std::net::IpAddr;

use async_trait::async_trait;
use ipnet::IpNet;
use lb_model::{AmphoraId, LoadBalancerId, NetworkId, PortId, SubnetId};

use crate::DriverError;

pub use local::LocalNetwork;
pub use noop::NoopNetwork;

pub(crate) use local::{
    delete_port as delete_local_port, ensure_port as ensure_local_port,
    list_ports as list_local_ports,
};

/// Looks networks up and makes ports.
#[async_trait]
pub trait Network: Send + Sync {
    async fn list_networks(&self) -> Result<Vec<TenantNetwork>, DriverError>;
    async fn network(&self, id: NetworkId) -> Result<Option<TenantNetwork>, DriverError>;
    async fn list_subnets(&self) -> Result<Vec<Subnet>, DriverError>;
    async fn subnet(&self, id: SubnetId) -> Result<Option<Subnet>, DriverError>;

    /// The subnet, if it lies in this network.
    async fn subnet_in(
        &self,
        network: NetworkId,
        id: SubnetId,
    ) -> Result<Option<Subnet>, DriverError> {
        let subnet = self.subnet(id).await?;
        Ok(subnet.filter(|subnet| subnet.network_id == network))
    }

    async fn list_ports(&self, filter: &PortFilter) -> Result<Vec<Port>, DriverError>;
    async fn port(&self, id: PortId) -> Result<Option<Port>, DriverError>;

    /// Makes a port of this device and name exist. One that exists is returned as it is when it has the addresses
    /// asked for, and is [`DriverError::PortConflict`] otherwise; its allowed address pairs are brought up to date.
    async fn ensure_port(&self, spec: &PortSpec) -> Result<Port, DriverError>;

    /// Changes a port; what the update leaves out stays.
    async fn update_port(&self, id: PortId, update: &PortUpdate) -> Result<Port, DriverError>;

    /// Removes a port, unplugging it; absent is fine.
    async fn delete_port(&self, id: PortId) -> Result<(), DriverError>;
}

/// `device_owner` of every port of ours.
pub const DEVICE_OWNER: &str = "Octavia";

/// Name of a load balancer's VIP port.
pub fn vip_port_name(load_balancer: LoadBalancerId) -> String {
    format!("octavia-lb-{load_balancer}")
}

/// `device_id` of a load balancer's VIP port.
pub fn vip_device_id(load_balancer: LoadBalancerId) -> String {
    format!("lb-{load_balancer}")
}

/// The VIP port of a load balancer, with these addresses.
pub fn vip_port_spec(
    load_balancer: LoadBalancerId,
    project_id: &str,
    network_id: NetworkId,
    fixed_ips: Vec<FixedIpSpec>,
) -> PortSpec {
    PortSpec {
        name: vip_port_name(load_balancer),
        network_id,
        fixed_ips,
        device_id: vip_device_id(load_balancer),
        device_owner: DEVICE_OWNER.to_owned(),
        project_id: Some(project_id.to_owned()),
        allowed_address_pairs: Vec::new(),
        admin_state_up: false,
    }
}

/// Name of an amphora's base port in the VIP network.
pub fn base_port_name(amphora: AmphoraId) -> String {
    format!("octavia-lb-vrrp-{amphora}")
}

/// Name of an amphora's port in a member network.
pub fn member_port_name(amphora: AmphoraId) -> String {
    format!("octavia-lb-member-{amphora}")
}

/// A layer 2 network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantNetwork {
    pub id: NetworkId,
    pub name: String,
    pub mtu_bytes: u32,
    pub project_id: Option<String>,
    pub subnets: Vec<SubnetId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    pub id: SubnetId,
    pub name: String,
    pub network_id: NetworkId,
    pub project_id: Option<String>,
    /// With host bits zero.
    pub cidr: IpNet,
    pub gateway_ip: Option<IpAddr>,
    pub host_routes: Vec<HostRoute>,
    /// First and last address of each range that ports are given addresses from.
    pub allocation_pools: Vec<(IpAddr, IpAddr)>,
}

impl Subnet {
    /// 4 or 6.
    pub fn ip_version(&self) -> u8 {
        match self.cidr {
            IpNet::V4(_) => 4,
            IpNet::V6(_) => 6,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRoute {
    pub destination: IpNet,
    pub nexthop: IpAddr,
}

/// A port: a MAC address and addresses on a network, for one device.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Port {
    pub id: PortId,
    pub name: String,
    pub network_id: NetworkId,
    /// Lower-case, colon separated.
    pub mac_address: String,
    pub fixed_ips: Vec<FixedIp>,
    pub device_id: String,
    pub device_owner: String,
    pub project_id: Option<String>,
    /// Addresses the device may use besides its own.
    pub allowed_address_pairs: Vec<IpAddr>,
    pub admin_state_up: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct FixedIp {
    pub subnet_id: SubnetId,
    pub ip_address: IpAddr,
}

/// A port to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    pub name: String,
    pub network_id: NetworkId,
    /// One entry an address; at least one.
    pub fixed_ips: Vec<FixedIpSpec>,
    pub device_id: String,
    pub device_owner: String,
    pub project_id: Option<String>,
    pub allowed_address_pairs: Vec<IpAddr>,
    /// False for a VIP port: it only reserves its addresses, nothing is plugged into it.
    pub admin_state_up: bool,
}

impl PortSpec {
    /// The port it becomes, still without addresses: these are for each network to give.
    pub(crate) fn port(&self, id: PortId, mac_address: String) -> Port {
        Port {
            id,
            name: self.name.clone(),
            network_id: self.network_id,
            mac_address,
            fixed_ips: Vec::new(),
            device_id: self.device_id.clone(),
            device_owner: self.device_owner.clone(),
            project_id: self.project_id.clone(),
            allowed_address_pairs: self.allowed_address_pairs.clone(),
            admin_state_up: self.admin_state_up,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedIpSpec {
    pub subnet_id: SubnetId,
    /// `None` lets the network service choose.
    pub ip_address: Option<IpAddr>,
}

/// What to change of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortUpdate {
    pub name: Option<String>,
    pub device_id: Option<String>,
    pub device_owner: Option<String>,
    pub allowed_address_pairs: Option<Vec<IpAddr>>,
    pub admin_state_up: Option<bool>,
    pub add_fixed_ips: Vec<FixedIpSpec>,
    /// Absent ones are fine.
    pub remove_fixed_ips: Vec<IpAddr>,
}

impl PortUpdate {
    /// Changes everything but `add_fixed_ips`: new addresses are for each network to give.
    pub(crate) fn apply_to(&self, port: &mut Port) {
        let Self {
            name,
            device_id,
            device_owner,
            allowed_address_pairs,
            admin_state_up,
            add_fixed_ips: _,
            remove_fixed_ips,
        } = self;
        if let Some(name) = name {
            port.name.clone_from(name);
        }
        if let Some(device_id) = device_id {
            port.device_id.clone_from(device_id);
        }
        if let Some(device_owner) = device_owner {
            port.device_owner.clone_from(device_owner);
        }
        if let Some(pairs) = allowed_address_pairs {
            port.allowed_address_pairs.clone_from(pairs);
        }
        if let Some(up) = admin_state_up {
            port.admin_state_up = *up;
        }
        port.fixed_ips
            .retain(|fixed| !remove_fixed_ips.contains(&fixed.ip_address));
    }
}

/// Which ports to list: those for which every given condition holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortFilter {
    pub device_id: Option<String>,
    pub device_owner: Option<String>,
    pub name: Option<String>,
    pub name_prefix: Option<String>,
    pub network_id: Option<NetworkId>,
    pub ip_address: Option<IpAddr>,
}

impl PortFilter {
    /// Whether a port passes.
    pub fn matches(&self, port: &Port) -> bool {
        let Self {
            device_id,
            device_owner,
            name,
            name_prefix,
            network_id,
            ip_address,
        } = self;
        device_id.as_ref().is_none_or(|id| *id == port.device_id)
            && device_owner
                .as_ref()
                .is_none_or(|owner| *owner == port.device_owner)
            && name.as_ref().is_none_or(|name| *name == port.name)
            && name_prefix
                .as_ref()
                .is_none_or(|prefix| port.name.starts_with(prefix))
            && network_id.is_none_or(|id| id == port.network_id)
            && ip_address.is_none_or(|address| {
                port.fixed_ips
                    .iter()
                    .any(|fixed| fixed.ip_address == address)
            })
    }
}
