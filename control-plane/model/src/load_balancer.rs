//! The load balancer itself: its addresses and what the operator chose for it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::text::text_enum;
use crate::{
    FlavorId, LoadBalancerId, NetworkId, OperatingStatus, PortId, ProvisioningStatus, SubnetId,
    Timestamp,
};

/// A load balancer without its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancer {
    pub id: LoadBalancerId,
    pub project_id: String,
    pub name: String,
    pub description: String,
    pub admin_state_up: bool,
    pub provisioning_status: ProvisioningStatus,
    pub operating_status: OperatingStatus,
    pub provider: String,
    pub topology: Topology,
    pub vip: Vip,
    pub additional_vips: Vec<AdditionalVip>,
    pub flavor_id: Option<FlavorId>,
    pub availability_zone: Option<String>,
    pub tags: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
    /// Grows with each change of the intent; an outcome is written only if it is still the same.
    pub generation: u64,
    /// Why the last reconcile did not reach its end; shown to operators.
    pub error_reason: Option<String>,
}

/// The primary virtual address. Its port exists before the create call is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vip {
    pub address: IpAddr,
    pub port_id: PortId,
    pub subnet_id: SubnetId,
    pub network_id: NetworkId,
    pub qos_policy_id: Option<Uuid>,
    pub vnic_type: VnicType,
    pub sg_ids: Vec<Uuid>,
    /// The port was made by us and goes with the load balancer; a tenant's own port stays.
    pub port_is_ours: bool,
}

/// A further fixed address of the VIP port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdditionalVip {
    pub subnet_id: SubnetId,
    pub ip_address: IpAddr,
    pub port_id: PortId,
}

impl LoadBalancer {
    /// Every virtual address, the primary one first.
    pub fn vip_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        std::iter::once(self.vip.address)
            .chain(self.additional_vips.iter().map(|vip| vip.ip_address))
    }
}

text_enum! {
    /// How many amphorae serve a load balancer.
    Topology {
        Single = "SINGLE",
        ActiveStandby = "ACTIVE_STANDBY",
    }
}

text_enum! {
    VnicType {
        Normal = "normal",
        Direct = "direct",
    }
}
