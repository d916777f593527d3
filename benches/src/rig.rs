//! The rig: one client namespace, one members namespace, and for each contender a lane through a
//! balancer namespace of its own.
//!
//! ```text
//!  client --veth-- balancer 0 (direct)   --veth-- members
//!         --veth-- balancer 1 (nftables) --veth--
//!         --veth-- ...                   --veth--
//! ```
//!
//! Lanes are alike in every setting, so that hooks and tables of one contender cost no other one anything.
//! All of it is removed on drop.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};

use crate::netns::{self, Netns};

/// The one port of every service and of every member (an in-kernel NAT then need not change it).
pub(crate) const PORT: u16 = 8080;
/// Addresses of members on each lane.
pub(crate) const MEMBERS: u8 = 3;

const PREFIX: &str = "lb-bench-";

/// How the virtual links behave while something is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// NAPI of each link runs in a kernel thread of its own, so that a balancer's receive work has a
    /// name. That needs GRO on and TSO off; harmless while every packet is smaller than an MSS.
    Attributed,
    /// As veth comes: TSO on, receive work in the softirq of whoever sent.
    Plain,
}

/// Everything that is there for the whole run.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) client: Netns,
    pub(crate) members: Netns,
    /// What the namespaces use.
    pub(crate) congestion_control: &'static str,
}

/// One contender's way from the client to the members.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) balancer: Netns,
    pub(crate) front: Link,
    pub(crate) back: Link,
    /// Partial checksums cannot be seen by XDP: full ones on the links that send to it.
    full_checksums: bool,
}

/// One veth pair between the balancer and a host.
#[derive(Debug)]
pub(crate) struct Link {
    /// Name of the end inside the balancer.
    pub(crate) device: String,
    pub(crate) mac: [u8; 6],
    pub(crate) address: Ipv4Addr,
    /// Name of the end at the host.
    pub(crate) peer: String,
    peer_mac: [u8; 6],
    /// Addresses at the host's end.
    pub(crate) hosts: Vec<Ipv4Addr>,
}

impl Rig {
    pub(crate) fn create() -> Result<Self> {
        netns::sweep(PREFIX).context("remove what an earlier run left")?;
        let client = Netns::create(name("client"))?;
        let members = Netns::create(name("members"))?;
        let mut rig = Rig {
            lanes: Vec::new(),
            client,
            members,
            congestion_control: "cubic",
        };
        // A default that is not "allowed" for everybody (bbr, and cubic beside it) cannot be chosen in a child
        // namespace. Without loss reno does the same, and like cubic it does not pace.
        if rig
            .client
            .sysctl(&[("net/ipv4/tcp_congestion_control", "cubic")])
            .is_err()
        {
            rig.congestion_control = "reno";
        }
        rig.tune(&rig.client)?;
        rig.tune(&rig.members)?;
        Ok(rig)
    }

    fn tune(&self, netns: &Netns) -> Result<()> {
        netns.sysctl(&[
            ("net/ipv4/tcp_congestion_control", self.congestion_control),
            ("net/ipv4/ip_local_port_range", "2048 65535"),
            ("net/ipv4/tcp_tw_reuse", "1"),
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/default/rp_filter", "0"),
            ("net/core/somaxconn", "4096"),
            ("net/ipv4/tcp_max_syn_backlog", "4096"),
        ])
    }

    /// Adds a lane; `full_checksums` for a balancer that reads packets before an skb is made.
    pub(crate) fn add_lane(&mut self, full_checksums: bool) -> Result<usize> {
        let index = u8::try_from(self.lanes.len()).context("count lanes")?;
        let balancer = Netns::create(name(&format!("balancer{index}")))?;
        self.tune(&balancer)?;
        balancer.sysctl(&[
            ("net/ipv4/ip_forward", "1"),
            // The port range of sockets, where Linux has it: a fast path takes ports below.
            ("net/ipv4/ip_local_port_range", "32768 60999"),
        ])?;
        let front = Link::new(index, 1, "f", "c", vec![2]);
        let back = Link::new(index, 2, "b", "m", (11..11 + MEMBERS).collect());
        let vip = vip(index);
        front.connect(&balancer, &self.client, &[vip])?;
        back.connect(&balancer, &self.members, &[])?;
        self.client.ip(&[format!(
            "route add 10.{}.2.0/24 via {}",
            100 + index,
            front.address
        )])?;
        self.members.ip(&[format!(
            "route add 10.{}.1.0/24 via {}",
            100 + index,
            back.address
        )])?;
        self.lanes.push(Lane {
            balancer,
            front,
            back,
            full_checksums,
        });
        Ok(usize::from(index))
    }

    pub(crate) fn vip(&self, lane: usize) -> Result<SocketAddr> {
        Ok(SocketAddr::from((vip(u8::try_from(lane)?), PORT)))
    }

    /// Puts every link of every lane into one mode.
    pub(crate) fn set_links(&self, links: Links) -> Result<()> {
        for lane in &self.lanes {
            for link in [&lane.front, &lane.back] {
                let (gro, tso) = match links {
                    Links::Attributed => ("on", "off"),
                    // The end that XDP redirects to needs NAPI, which for veth means GRO.
                    Links::Plain if lane.full_checksums => ("on", "on"),
                    Links::Plain => ("off", "on"),
                };
                let (host, host_end) = (self.host_of(lane, link), &link.peer);
                let tx = if lane.full_checksums { " tx off" } else { "" };
                // `tso` stays off without checksum offload, and ethtool then says so by failing.
                let tso_host = if lane.full_checksums {
                    String::new()
                } else {
                    format!(" tso {tso}")
                };
                features(host, host_end, &format!("gro {gro}{tso_host}{tx}"), links)?;
                features(
                    &lane.balancer,
                    &link.device,
                    &if lane.full_checksums {
                        format!("gro {gro}")
                    } else {
                        format!("gro {gro} tso {tso}")
                    },
                    links,
                )?;
            }
        }
        Ok(())
    }

    fn host_of<'a>(&'a self, lane: &Lane, link: &Link) -> &'a Netns {
        if link.device == lane.front.device {
            &self.client
        } else {
            &self.members
        }
    }
}

impl Lane {
    /// What clients of a plain router talk to.
    pub(crate) fn member_addresses(&self) -> Vec<SocketAddr> {
        self.back
            .hosts
            .iter()
            .map(|host| SocketAddr::from((*host, PORT)))
            .collect()
    }

    /// Names of the balancer's devices.
    pub(crate) fn balancer_devices(&self) -> [&str; 2] {
        [&self.front.device, &self.back.device]
    }

    /// Names of the hosts' devices.
    pub(crate) fn host_devices(&self) -> [&str; 2] {
        [&self.front.peer, &self.back.peer]
    }
}

impl Link {
    fn new(lane: u8, side: u8, near: &str, far: &str, hosts: Vec<u8>) -> Self {
        // Kernel threads of NAPI carry the device's name only, whatever its namespace: make it unique.
        let pid = std::process::id();
        let address = |last| Ipv4Addr::new(10, 100 + lane, side, last);
        Link {
            device: format!("q{pid}{near}{lane}"),
            mac: [2, 0, 0, lane, side, 1],
            address: address(1),
            peer: format!("q{pid}{far}{lane}"),
            peer_mac: [2, 0, 0, lane, side, 2],
            hosts: hosts.into_iter().map(address).collect(),
        }
    }

    fn connect(&self, balancer: &Netns, host: &Netns, vips: &[Ipv4Addr]) -> Result<()> {
        balancer.ip(&[format!(
            "link add {} address {} type veth peer name {} address {} netns {}",
            self.device,
            mac(self.mac),
            self.peer,
            mac(self.peer_mac),
            host.name()
        )])?;
        let mut near = vec![
            format!("addr add {}/24 dev {}", self.address, self.device),
            format!("link set {} up", self.device),
        ];
        let mut far = Vec::new();
        for host in &self.hosts {
            far.push(format!("addr add {host}/24 dev {}", self.peer));
        }
        far.push(format!("link set {} up", self.peer));
        for vip in vips {
            near.push(format!("addr add {vip}/32 dev {}", self.device));
        }
        // Fixed neighbours: no measurement waits for ARP.
        for host in &self.hosts {
            near.push(format!(
                "neigh replace {host} lladdr {} dev {} nud permanent",
                mac(self.peer_mac),
                self.device
            ));
        }
        for address in vips.iter().chain([&self.address]) {
            far.push(format!(
                "neigh replace {address} lladdr {} dev {} nud permanent",
                mac(self.mac),
                self.peer
            ));
        }
        balancer.ip(&near)?;
        host.ip(&far)
    }
}

fn vip(lane: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 100 + lane, 1, 100)
}

fn name(role: &str) -> String {
    format!("{PREFIX}{}-{role}", std::process::id())
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Sets offloads, and whether NAPI has a thread: a setting that only a device with NAPI takes.
fn features(netns: &Netns, device: &str, features: &str, links: Links) -> Result<()> {
    let ethtool = format!("ethtool -K {device} {features}");
    let threaded = format!("/sys/class/net/{device}/threaded");
    let script = match links {
        Links::Attributed => format!("{ethtool} && echo 1 >{threaded}"),
        Links::Plain => format!("echo 0 >{threaded} && {ethtool}"),
    };
    netns::run(netns.command("sh").args(["-c", &script])).map(drop)
}
