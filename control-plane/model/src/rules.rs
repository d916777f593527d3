//! What the deployment and its providers allow: the settings that validation asks.

use std::net::{IpAddr, Ipv4Addr};

use crate::{Fault, LoadBalancer, Provider, ProviderSupport};

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
    /// `api_settings.enabled_provider_drivers`: the names a client may ask for.
    pub providers: Vec<Provider>,
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
            providers: vec![
                Provider::new(
                    "amphora",
                    "The Octavia Amphora driver.",
                    ProviderSupport::AMPHORA,
                ),
                Provider::new(
                    "octavia",
                    "Deprecated alias of the Octavia Amphora driver.",
                    ProviderSupport::AMPHORA,
                ),
            ],
        }
    }
}

impl Rules {
    /// The provider of this name, if it is enabled.
    pub fn provider(&self, name: &str) -> Option<&Provider> {
        self.providers.iter().find(|provider| provider.name == name)
    }

    /// What the provider of a load balancer can serve.
    pub(crate) fn support(&self, load_balancer: &LoadBalancer) -> Result<&ProviderSupport, Fault> {
        self.provider(&load_balancer.provider)
            .map(|provider| &provider.support)
            .ok_or_else(|| Fault::ProviderNotEnabled(load_balancer.provider.clone()))
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
