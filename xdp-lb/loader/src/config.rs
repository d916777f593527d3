//! What the fast path is asked to do: one whole, declarative configuration.
//!
//! [`Config`] is the full intent; [`crate::FastPath::apply`] computes the difference to what the
//! maps hold. Nothing here is remembered between calls.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Source ports the fast path takes for connections to members.
///
/// They end below Linux' default `net.ipv4.ip_local_port_range` (32768-60999), so that sockets of
/// this network namespace (proxy, health checks), which use the same source addresses, never get the
/// five-tuple of a forwarded flow. Whoever widens that range must list this one in
/// `net.ipv4.ip_local_reserved_ports`.
pub const SNAT_PORTS: RangeInclusive<u16> =
    xdp_lb_common::limits::SNAT_PORT_FIRST..=xdp_lb_common::limits::SNAT_PORT_LAST;

/// Where the fast path keeps its pins, and how large it is.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory on a mounted bpffs; created when absent. One per network namespace.
    pub pin_dir: PathBuf,
    /// Upper bound of concurrent flows (1024 to 4,194,304). Each flow takes two entries of the table.
    /// An adopted table keeps the size it was made with.
    pub flow_capacity: u32,
}

/// Where a program hooks into an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttachMode {
    /// Choose by driver and by what is served; the report says why.
    Auto,
    /// tcx ingress (Linux 6.6 and later).
    Tcx,
    /// XDP in the driver, with tcx behind it for what XDP hands over.
    XdpNative,
    /// Asks for XDP after the skb is made. It has no advantage over tcx, which is attached instead;
    /// the report says so.
    XdpGeneric,
    /// cls_bpf on a clsact qdisc (kernels before 6.6).
    Clsact,
}

/// The whole intent for one network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// Interfaces that carry clients or members.
    pub interfaces: Vec<Interface>,
    /// One entry per listener that runs on the fast path.
    pub services: Vec<Service>,
}

/// One interface of this network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub ifindex: u32,
    pub name: String,
    pub mac: [u8; 6],
    /// L3 MTU in bytes.
    pub mtu: u32,
    pub mode: AttachMode,
    /// Source address of forwarded IPv4 flows that leave here. Must be an address of this namespace.
    pub snat_v4: Option<Ipv4Addr>,
    /// Source address of forwarded IPv6 flows that leave here. Must be an address of this namespace.
    pub snat_v6: Option<Ipv6Addr>,
    /// MAC of the amphora that held the VIP before; established connections that are neither in the
    /// flow table nor at a local socket are sent there.
    pub handover_mac: Option<[u8; 6]>,
}

/// Transport protocol of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    Tcp,
    Udp,
}

/// How a member is chosen for a new flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Algorithm {
    /// Smooth weighted round robin; shares are exact over each turn of the schedule.
    RoundRobin,
    /// Fewest active flows relative to weight, round robin among equals.
    LeastConnections,
    /// By the client's address (Maglev table: a member's change moves few clients).
    SourceIp,
    /// By the client's address and port, in the same way: one client's connections spread.
    SourceIpPort,
}

/// One listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Listener id.
    pub id: Uuid,
    pub vips: Vec<IpAddr>,
    pub port: u16,
    pub protocol: Protocol,
    pub algorithm: Algorithm,
    /// A flow with no packet either way for so long is forgotten.
    pub idle_timeout: Duration,
    /// Concurrent flows; beyond it the first packet of a new flow is dropped, so that a TCP client waits.
    pub connection_limit: Option<u32>,
    /// Networks that clients may open flows from; everybody may when there are none. Networks of the
    /// other address family do not count for a VIP: it may be left with nobody.
    pub allowed: Vec<IpNet>,
    pub members: Vec<Member>,
}

/// One member of a service. A flow goes to a member of the VIP's address family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub id: Uuid,
    pub address: IpAddr,
    pub port: u16,
    /// 0 drains: existing flows go on, no new ones.
    pub weight: u16,
    /// Used only while no primary member is up with a weight above 0.
    pub backup: bool,
    pub up: bool,
}
