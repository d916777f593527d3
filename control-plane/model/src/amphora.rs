//! An amphora: the machine that serves a load balancer.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::text::text_enum;
use crate::{AmphoraId, AmphoraStatus, LoadBalancerId, PortId, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amphora {
    pub id: AmphoraId,
    pub load_balancer_id: LoadBalancerId,
    pub status: AmphoraStatus,
    pub role: Option<AmphoraRole>,
    pub compute_id: Option<String>,
    pub lb_network_ip: Option<IpAddr>,
    /// Address of the base port, the source of traffic to members.
    pub vrrp_ip: Option<IpAddr>,
    /// The VIP.
    pub ha_ip: Option<IpAddr>,
    pub vrrp_port_id: Option<PortId>,
    pub ha_port_id: Option<PortId>,
    pub vrrp_interface: Option<String>,
    pub vrrp_id: Option<u16>,
    pub vrrp_priority: Option<u16>,
    pub cert_expiration: Option<Timestamp>,
    pub cert_busy: bool,
    pub cached_zone: Option<String>,
    pub image_id: Option<String>,
    pub compute_flavor: Option<String>,
    /// Is to be replaced: asked for through the API, or found dead by the health manager.
    pub failover_requested: bool,
    /// Generation of the last document this amphora acknowledged.
    pub config_generation: u64,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

text_enum! {
    AmphoraRole {
        Standalone = "STANDALONE",
        Master = "MASTER",
        Backup = "BACKUP",
    }
}
