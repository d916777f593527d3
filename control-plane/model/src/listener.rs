//! A listener: a port on every VIP of its load balancer.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::text::text_enum;
use crate::{L7Policy, ListenerId, OperatingStatus, PoolId, ProvisioningStatus, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub id: ListenerId,
    pub project_id: String,
    pub name: String,
    pub description: String,
    pub admin_state_up: bool,
    pub provisioning_status: ProvisioningStatus,
    pub operating_status: OperatingStatus,
    pub protocol: ListenerProtocol,
    /// 1-65535.
    pub protocol_port: u16,
    /// -1 is the default cap; 0 is rendered as -1.
    pub connection_limit: i32,
    pub default_pool_id: Option<PoolId>,
    pub default_tls_container_ref: Option<String>,
    pub sni_container_refs: Vec<String>,
    pub insert_headers: BTreeMap<String, String>,
    /// Milliseconds, 0-2073600000; 0 is rendered as the default.
    pub timeout_client_data: u32,
    pub timeout_member_connect: u32,
    pub timeout_member_data: u32,
    pub timeout_tcp_inspect: u32,
    pub client_ca_tls_container_ref: Option<String>,
    pub client_authentication: ClientAuthentication,
    pub client_crl_container_ref: Option<String>,
    /// `None` and empty mean any source.
    pub allowed_cidrs: Option<Vec<IpNet>>,
    pub tls_ciphers: Option<String>,
    pub tls_versions: Option<Vec<String>>,
    pub alpn_protocols: Option<Vec<String>>,
    pub hsts_max_age: Option<u64>,
    pub hsts_include_subdomains: bool,
    pub hsts_preload: bool,
    pub tags: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
    pub l7policies: Vec<L7Policy>,
}

impl Listener {
    /// Pools this listener sends traffic to: the default pool, then those its policies redirect to.
    pub fn pool_ids(&self) -> Vec<PoolId> {
        let mut ids: Vec<PoolId> = self.default_pool_id.into_iter().collect();
        for pool in self
            .l7policies
            .iter()
            .filter_map(|policy| policy.redirect_pool_id)
        {
            if !ids.contains(&pool) {
                ids.push(pool);
            }
        }
        ids
    }
}

impl Listener {
    /// Puts a policy at a position, counted from 1; beyond the end, or without one, it comes last. The others move.
    pub(crate) fn insert_l7policy(&mut self, policy: L7Policy, position: Option<u32>) {
        let index = position
            .and_then(|position| usize::try_from(position.saturating_sub(1)).ok())
            .unwrap_or(usize::MAX)
            .min(self.l7policies.len());
        self.l7policies.insert(index, policy);
        self.renumber_l7policies();
    }

    /// Makes the positions contiguous from 1, in the present order.
    pub(crate) fn renumber_l7policies(&mut self) {
        for (policy, position) in self.l7policies.iter_mut().zip(1..) {
            policy.position = position;
        }
    }
}

text_enum! {
    ListenerProtocol {
        Http = "HTTP",
        Https = "HTTPS",
        Tcp = "TCP",
        TerminatedHttps = "TERMINATED_HTTPS",
        Udp = "UDP",
        Sctp = "SCTP",
        Prometheus = "PROMETHEUS",
    }
}

/// Port spaces: listeners of one transport share the ports of a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    Tcp,
    Udp,
    Sctp,
}

impl ListenerProtocol {
    pub const fn transport(self) -> Transport {
        match self {
            Self::Http | Self::Https | Self::Tcp | Self::TerminatedHttps | Self::Prometheus => {
                Transport::Tcp
            }
            Self::Udp => Transport::Udp,
            Self::Sctp => Transport::Sctp,
        }
    }
}

text_enum! {
    ClientAuthentication {
        None = "NONE",
        Optional = "OPTIONAL",
        Mandatory = "MANDATORY",
    }
}
