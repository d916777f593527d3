//! What the deployment and its provider allow: the settings that validation asks.

use std::net::{IpAddr, Ipv4Addr};

use crate::{LbAlgorithm, ListenerProtocol, MonitorType, PoolProtocol};

/// Settings that decide defaults and refusals. Each mirrors an Octavia option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Milliseconds; `haproxy_amphora.timeout_*`.
    pub timeout_client_data: u32,
    pub timeout_member_connect: u32,
    pub timeout_member_data: u32,
    pub timeout_tcp_inspect: u32,
    /// `api_settings.default_{listener,pool}_ciphers`.
    pub default_ciphers: String,
    /// `api_settings.default_{listener,pool}_tls_versions`.
    pub default_tls_versions: Vec<String>,
    /// `api_settings.default_{listener,pool}_alpn_protocols`.
    pub default_alpn_protocols: Vec<String>,
    /// `api_settings.tls_cipher_prohibit_list`.
    pub prohibited_ciphers: Vec<String>,
    /// `api_settings.minimum_tls_version`.
    pub minimum_tls_version: Option<String>,
    /// `networking.reserved_ips`: addresses that no member may have.
    pub reserved_ips: Vec<IpAddr>,
    /// Seconds; `api_settings.udp_connect_min_interval_health_monitor`.
    pub udp_connect_min_interval: u32,
    /// `api_settings.allow_ping_health_monitors`.
    pub allow_ping_health_monitors: bool,
    /// `api_settings.allow_tls_terminated_listeners`.
    pub allow_tls_terminated_listeners: bool,
    /// `api_settings.allow_prometheus_listeners`.
    pub allow_prometheus_listeners: bool,
    pub capabilities: Capabilities,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            timeout_client_data: 50_000,
            timeout_member_connect: 5_000,
            timeout_member_data: 50_000,
            timeout_tcp_inspect: 0,
            default_ciphers: DEFAULT_CIPHERS.join(":"),
            default_tls_versions: vec!["TLSv1.2".to_owned(), "TLSv1.3".to_owned()],
            default_alpn_protocols: vec![
                "h2".to_owned(),
                "http/1.1".to_owned(),
                "http/1.0".to_owned(),
            ],
            prohibited_ciphers: Vec::new(),
            minimum_tls_version: None,
            reserved_ips: vec![IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254))],
            udp_connect_min_interval: 3,
            allow_ping_health_monitors: true,
            allow_tls_terminated_listeners: true,
            allow_prometheus_listeners: true,
            capabilities: Capabilities::default(),
        }
    }
}

/// What the amphora provider of this release can serve. Asking for more is answered with "does not support a
/// requested option", never by taking the request and doing less.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    pub listener_protocols: &'static [ListenerProtocol],
    pub pool_protocols: &'static [PoolProtocol],
    pub algorithms: &'static [LbAlgorithm],
    pub monitor_types: &'static [MonitorType],
    pub session_persistence: bool,
    /// TLS towards members.
    pub pool_tls: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            listener_protocols: &[
                ListenerProtocol::Http,
                ListenerProtocol::Https,
                ListenerProtocol::Tcp,
                ListenerProtocol::Udp,
            ],
            pool_protocols: &[
                PoolProtocol::Http,
                PoolProtocol::Https,
                PoolProtocol::Tcp,
                PoolProtocol::Udp,
            ],
            algorithms: &[
                LbAlgorithm::RoundRobin,
                LbAlgorithm::LeastConnections,
                LbAlgorithm::SourceIp,
            ],
            monitor_types: &[
                MonitorType::Http,
                MonitorType::Ping,
                MonitorType::Tcp,
                MonitorType::UdpConnect,
            ],
            session_persistence: false,
            pool_tls: false,
        }
    }
}

const DEFAULT_CIPHERS: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "DHE-RSA-AES128-GCM-SHA256",
    "DHE-RSA-AES256-GCM-SHA384",
    "DHE-RSA-CHACHA20-POLY1305",
];
