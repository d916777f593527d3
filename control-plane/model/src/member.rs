//! A member: one server of a pool.

use crate::{
    MemberId, OperatingStatus, ProvisioningStatus, SpelledIp, SubnetId, Timestamp, VnicType,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub id: MemberId,
    pub project_id: String,
    pub name: String,
    pub admin_state_up: bool,
    pub provisioning_status: ProvisioningStatus,
    pub operating_status: OperatingStatus,
    pub address: SpelledIp,
    /// 1-65535.
    pub protocol_port: u16,
    /// 0-256; 0 drains.
    pub weight: u16,
    pub backup: bool,
    /// `None`: reached through the VIP network.
    pub subnet_id: Option<SubnetId>,
    pub monitor_address: Option<SpelledIp>,
    pub monitor_port: Option<u16>,
    pub vnic_type: VnicType,
    pub tags: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}
