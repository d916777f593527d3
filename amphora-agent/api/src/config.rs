//! The declarative document: everything one amphora is to do, with a generation.
//!
//! Invariants a receiver checks with [`AmphoraConfig::validate`]: ids are unique, every reference resolves,
//! every VIP names an interface of the document, prefixes and ports are in range.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Everything one amphora is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AmphoraConfig {
    /// Grows with each change of this amphora's document. An agent refuses an older one, and the same one
    /// with other content.
    pub generation: u64,
    pub amphora_id: Uuid,
    pub load_balancer_id: Uuid,
    pub project_id: String,
    pub heartbeat: Heartbeat,
    pub interfaces: Vec<Interface>,
    pub vips: Vec<Vip>,
    /// Enabled listeners only; one that is missing here is closed.
    pub listeners: Vec<Listener>,
    /// Pools that a listener of this document uses.
    pub pools: Vec<Pool>,
}

/// Where heartbeats go, and how often. The key is not here: it is part of the agent's own configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// Health managers; one heartbeat goes to one of them, in turn.
    pub controllers: Vec<SocketAddr>,
    /// Milliseconds between heartbeats, 50-600000.
    pub interval_ms: u64,
}

/// A tenant interface, found by its MAC address wherever the kernel put it and moved into the tenant
/// network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Lower-case, colon separated.
    pub mac_address: String,
    /// Name inside the tenant namespace: `eth1` for the VIP interface, then `eth2`, ... (as in Octavia).
    pub name: String,
    /// Address and prefix length of the amphora's own port(s); the source of traffic to members.
    pub addresses: Vec<IpNet>,
    /// Default gateways, at most one a family; only the VIP interface has any.
    pub gateways: Vec<IpAddr>,
    pub routes: Vec<Route>,
    /// Bytes; 0 keeps what the device has.
    pub mtu_bytes: u32,
}

/// A host route of a subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    pub destination: IpNet,
    pub nexthop: IpAddr,
}

/// A virtual address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vip {
    pub address: IpAddr,
    /// MAC address of the interface that carries it.
    pub interface_mac: String,
    pub state: VipState,
}

/// Who owns a virtual address while two amphorae know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum VipState {
    /// On the interface, answered for (ARP, NDP) and announced (gratuitous ARP, unsolicited NA) when it becomes so.
    Active {
        /// MAC address of the predecessor's interface in the same segment. Packets of TCP connections this
        /// amphora does not know are handed to it, until the next document.
        handover_mac: Option<String>,
    },
    /// Known, so that sockets and flows on it go on, but neither answered for nor announced. New keep-alive
    /// requests are drained: each HTTP connection is closed after its current response.
    Passive,
}

/// A listener. `X-Forwarded-*` flags and timeouts have Octavia's meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    pub id: Uuid,
    pub protocol: ListenerProtocol,
    pub protocol_port: u16,
    /// At most this many concurrent connections; `None` is the default cap.
    pub connection_limit: Option<u32>,
    pub default_pool: Option<Uuid>,
    pub x_forwarded_for: bool,
    pub x_forwarded_port: bool,
    pub x_forwarded_proto: bool,
    pub timeout_client_data_ms: u64,
    pub timeout_member_connect_ms: u64,
    pub timeout_member_data_ms: u64,
    /// Sources that may connect; empty means any.
    pub allowed_cidrs: Vec<IpNet>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ListenerProtocol {
    Tcp,
    Udp,
    Http,
    /// TLS passed through untouched.
    Https,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    pub id: Uuid,
    pub protocol: PoolProtocol,
    pub lb_algorithm: LbAlgorithm,
    pub session_persistence: Option<SessionPersistence>,
    pub monitor: Option<Monitor>,
    /// Enabled and disabled members.
    pub members: Vec<Member>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PoolProtocol {
    Tcp,
    Udp,
    Http,
    Https,
    Proxy,
    ProxyV2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LbAlgorithm {
    RoundRobin,
    LeastConnections,
    SourceIp,
}

/// Session persistence the data plane is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum SessionPersistence {
    SourceIp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Monitor {
    pub id: Uuid,
    pub check: Check,
    /// Milliseconds between checks of one member.
    pub delay_ms: u64,
    /// Milliseconds for one check.
    pub timeout_ms: u64,
    /// Successes in a row to go up (`max_retries`).
    pub rise: u32,
    /// Failures in a row to go down (`max_retries_down`).
    pub fall: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum Check {
    Tcp,
    UdpConnect,
    Ping,
    Http {
        method: String,
        path: String,
        /// `Host` header and HTTP/1.1 when given; else HTTP/1.0 without one.
        host: Option<String>,
        http_1_1: bool,
        /// Inclusive ranges of status codes.
        expected: Vec<(u16, u16)>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub id: Uuid,
    pub address: IpAddr,
    pub protocol_port: u16,
    /// 0-256; 0 drains.
    pub weight: u16,
    pub backup: bool,
    pub enabled: bool,
    pub monitor_address: Option<IpAddr>,
    pub monitor_port: Option<u16>,
}

impl Member {
    /// Where checks of this member go.
    pub fn monitor_target(&self) -> SocketAddr {
        SocketAddr::new(
            self.monitor_address.unwrap_or(self.address),
            self.monitor_port.unwrap_or(self.protocol_port),
        )
    }
}

/// What is wrong with a document: the field's path and its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {field}: {value}: {reason}")]
pub struct ConfigError {
    pub field: String,
    pub value: String,
    pub reason: &'static str,
}

impl AmphoraConfig {
    /// SHA-256 (hex) of the document as compact JSON, fields in the order of declaration. Both sides compute it
    /// over the parsed document, so that the text that travelled does not matter.
    ///
    /// # Panics
    /// Never: every field of the document has a JSON form.
    pub fn digest(&self) -> String {
        let canonical = serde_json::to_vec(self).expect("a document has only JSON types");
        hex::encode(Sha256::digest(canonical))
    }

    /// Checks the rules that the types alone do not express.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(50..=600_000).contains(&self.heartbeat.interval_ms) {
            return Err(fault(
                "heartbeat.interval_ms",
                self.heartbeat.interval_ms,
                "must be 50-600000",
            ));
        }
        let mut macs = HashSet::new();
        let mut names = HashSet::new();
        for interface in &self.interfaces {
            check_interface(interface)?;
            if !macs.insert(interface.mac_address.as_str()) {
                return Err(fault(
                    "interfaces.mac_address",
                    &interface.mac_address,
                    "appears twice",
                ));
            }
            if !names.insert(interface.name.as_str()) {
                return Err(fault("interfaces.name", &interface.name, "appears twice"));
            }
        }
        let mut vips = HashSet::new();
        for vip in &self.vips {
            if !macs.contains(vip.interface_mac.as_str()) {
                return Err(fault(
                    "vips.interface_mac",
                    &vip.interface_mac,
                    "names no interface",
                ));
            }
            if !vips.insert(vip.address) {
                return Err(fault("vips.address", vip.address, "appears twice"));
            }
            if let VipState::Active {
                handover_mac: Some(mac),
            } = &vip.state
            {
                parse_mac(mac)
                    .ok_or_else(|| fault("vips.state.handover_mac", mac, "is not a MAC address"))?;
            }
        }
        let pools = self.check_pools()?;
        self.check_listeners(&pools)
    }

    fn check_pools(&self) -> Result<HashSet<Uuid>, ConfigError> {
        let mut pools = HashSet::new();
        for pool in &self.pools {
            if !pools.insert(pool.id) {
                return Err(fault("pools.id", pool.id, "appears twice"));
            }
            let mut members = HashSet::new();
            for member in &pool.members {
                if !members.insert(member.id) {
                    return Err(fault("pools.members.id", member.id, "appears twice"));
                }
                if member.weight > 256 {
                    return Err(fault(
                        "pools.members.weight",
                        member.weight,
                        "must be 0-256",
                    ));
                }
                if member.protocol_port == 0 || member.monitor_port == Some(0) {
                    return Err(fault("pools.members.protocol_port", 0, "must be 1-65535"));
                }
            }
            if let Some(monitor) = &pool.monitor
                && (monitor.rise == 0 || monitor.fall == 0)
            {
                return Err(fault(
                    "pools.monitor.rise",
                    monitor.rise,
                    "rise and fall must be at least 1",
                ));
            }
        }
        Ok(pools)
    }

    fn check_listeners(&self, pools: &HashSet<Uuid>) -> Result<(), ConfigError> {
        let mut ids = HashSet::new();
        let mut ports = HashSet::new();
        for listener in &self.listeners {
            if !ids.insert(listener.id) {
                return Err(fault("listeners.id", listener.id, "appears twice"));
            }
            if listener.protocol_port == 0 {
                return Err(fault("listeners.protocol_port", 0, "must be 1-65535"));
            }
            let udp = listener.protocol == ListenerProtocol::Udp;
            if !ports.insert((udp, listener.protocol_port)) {
                return Err(fault(
                    "listeners.protocol_port",
                    listener.protocol_port,
                    "is used by another listener of this transport",
                ));
            }
            if let Some(pool) = listener.default_pool
                && !pools.contains(&pool)
            {
                return Err(fault("listeners.default_pool", pool, "names no pool"));
            }
        }
        Ok(())
    }
}

fn check_interface(interface: &Interface) -> Result<(), ConfigError> {
    parse_mac(&interface.mac_address).ok_or_else(|| {
        fault(
            "interfaces.mac_address",
            &interface.mac_address,
            "is not a lower-case MAC address",
        )
    })?;
    let name = &interface.name;
    let plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    // IFNAMSIZ is 16 with the closing NUL.
    if name.is_empty() || name.len() > 15 || !plain || name == "lo" {
        return Err(fault("interfaces.name", name, "is not an interface name"));
    }
    Ok(())
}

/// Six octets of a lower- or upper-case colon separated MAC address.
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut octets = [0u8; 6];
    let mut parts = text.split(':');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.len() != 2 {
            return None;
        }
        *octet = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(octets)
}

fn fault(field: &str, value: impl fmt::Display, reason: &'static str) -> ConfigError {
    ConfigError {
        field: field.to_owned(),
        value: value.to_string(),
        reason,
    }
}
