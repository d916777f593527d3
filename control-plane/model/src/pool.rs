//! A pool of members.

use serde::{Deserialize, Serialize};

use crate::text::text_enum;
use crate::{HealthMonitor, Member, OperatingStatus, PoolId, ProvisioningStatus, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    pub id: PoolId,
    pub project_id: String,
    pub name: String,
    pub description: String,
    pub admin_state_up: bool,
    pub provisioning_status: ProvisioningStatus,
    pub operating_status: OperatingStatus,
    pub protocol: PoolProtocol,
    pub lb_algorithm: LbAlgorithm,
    pub session_persistence: Option<SessionPersistence>,
    pub tls_container_ref: Option<String>,
    pub ca_tls_container_ref: Option<String>,
    pub crl_container_ref: Option<String>,
    pub tls_enabled: bool,
    pub tls_ciphers: Option<String>,
    pub tls_versions: Option<Vec<String>>,
    pub alpn_protocols: Option<Vec<String>>,
    pub tags: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
    pub members: Vec<Member>,
    pub health_monitor: Option<HealthMonitor>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPersistence {
    #[serde(rename = "type")]
    pub kind: SessionPersistenceType,
    pub cookie_name: Option<String>,
    /// Seconds.
    pub persistence_timeout: Option<u32>,
    /// A netmask, as text.
    pub persistence_granularity: Option<String>,
}

text_enum! {
    SessionPersistenceType {
        SourceIp = "SOURCE_IP",
        HttpCookie = "HTTP_COOKIE",
        AppCookie = "APP_COOKIE",
    }
}

text_enum! {
    PoolProtocol {
        Http = "HTTP",
        Https = "HTTPS",
        Proxy = "PROXY",
        ProxyV2 = "PROXYV2",
        Tcp = "TCP",
        Udp = "UDP",
        Sctp = "SCTP",
    }
}

text_enum! {
    LbAlgorithm {
        RoundRobin = "ROUND_ROBIN",
        LeastConnections = "LEAST_CONNECTIONS",
        SourceIp = "SOURCE_IP",
        SourceIpPort = "SOURCE_IP_PORT",
    }
}
