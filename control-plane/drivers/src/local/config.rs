//! What a local stack is called and where its files are.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use lb_model::{AmphoraId, NetworkId, PortId};

use super::netns::Netns;
use crate::DriverError;

/// A local stack, as its operator describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackConfig {
    /// Starts the name of every namespace: 1-16 lower-case letters and digits. Two stacks of one machine need two
    /// names.
    pub name: String,
    /// Records, certificates of amphorae, logs. The stack owns the files it puts there, not the directory.
    pub state_dir: PathBuf,
    /// The tenant networks, see [`Declaration`](super::Declaration).
    pub networks_file: PathBuf,
    /// The `amphora-agent` program.
    pub agent_binary: PathBuf,
    /// Management network; the control plane has its first address. Default 198.18.0.0/16.
    pub management: Ipv4Net,
    pub offload: Offload,
}

impl StackConfig {
    /// With the default management network and offloads.
    pub fn new(
        name: impl Into<String>,
        state_dir: impl Into<PathBuf>,
        networks_file: impl Into<PathBuf>,
        agent_binary: impl Into<PathBuf>,
    ) -> Self {
        Self {
            name: name.into(),
            state_dir: state_dir.into(),
            networks_file: networks_file.into(),
            agent_binary: agent_binary.into(),
            management: default_management(),
            offload: Offload::default(),
        }
    }
}

/// 198.18.0.0/16, of the range that RFC 2544 sets aside for tests.
pub fn default_management() -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 16)
}

/// What the veth devices leave to the hardware that is not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Offload {
    /// As the kernel makes them: packets between local sockets carry partial checksums and may be larger than the
    /// MTU. Right for tcx, where the kernel's helpers know of both.
    #[default]
    Kernel,
    /// As XDP needs them: hosts compute whole checksums and send nothing larger than the MTU, and the fabric's ends
    /// of amphora ports poll (generic receive offload), so that they take packets an XDP program sends.
    Xdp,
}

/// Names and paths, all derived from the stack's name and state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) name: String,
    pub(crate) state_dir: PathBuf,
}

/// The management bridge of the fabric.
pub(crate) const MANAGEMENT_BRIDGE: &str = "br-mgmt";
/// An amphora's management interface, in its namespace.
pub(crate) const MANAGEMENT_LINK: &str = "eth0";

impl Layout {
    pub(crate) fn new(name: &str, state_dir: &Path) -> Result<Self, DriverError> {
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if name.is_empty() || name.len() > 16 || !plain {
            return Err(DriverError::Invalid {
                what: format!("stack name {name:?}"),
                reason: "must be 1-16 lower-case letters and digits".to_owned(),
            });
        }
        let state_dir = std::path::absolute(state_dir)
            .map_err(DriverError::io(format!("resolve {}", state_dir.display())))?;
        Ok(Self {
            name: name.to_owned(),
            state_dir,
        })
    }

    /// Starts the name of every namespace of this stack. A stack's name holds no hyphen, so no stack's prefix is
    /// the start of another's.
    pub(crate) fn netns_prefix(&self) -> String {
        format!("{}-", self.name)
    }

    pub(crate) fn fabric(&self) -> Result<Netns, DriverError> {
        Netns::named(format!("{}-fabric", self.name))
    }

    pub(crate) fn router(&self) -> Result<Netns, DriverError> {
        Netns::named(format!("{}-router", self.name))
    }

    pub(crate) fn host(&self, host: &str) -> Result<Netns, DriverError> {
        Netns::named(format!("{}-host-{host}", self.name))
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.state_dir.join("stack.lock")
    }

    pub(crate) fn amphora_lock(&self, amphora: AmphoraId) -> PathBuf {
        self.state_dir
            .join("amphorae")
            .join(format!("{amphora}.lock"))
    }

    pub(crate) fn ports(&self) -> PathBuf {
        self.state_dir.join("ports.json")
    }

    pub(crate) fn bpf(&self) -> PathBuf {
        self.state_dir.join("bpf")
    }

    /// Processes of the control plane that use the stack, a file each.
    pub(crate) fn processes(&self) -> PathBuf {
        self.state_dir.join("processes")
    }

    pub(crate) fn amphorae(&self) -> PathBuf {
        self.state_dir.join("amphorae")
    }

    pub(crate) fn amphora(&self, amphora: AmphoraId) -> AmphoraPaths {
        AmphoraPaths {
            dir: self.amphorae().join(amphora.to_string()),
            bpf: self.bpf().join(amphora.to_string()),
        }
    }
}

/// Where an amphora's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AmphoraPaths {
    pub(crate) dir: PathBuf,
    pub(crate) bpf: PathBuf,
}

impl AmphoraPaths {
    pub(crate) fn record(&self) -> PathBuf {
        self.dir.join("server.json")
    }

    /// Stands for the `/` of an amphora: `/etc/octavia/x` is at `<root>/etc/octavia/x`.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("agent.log")
    }

    pub(crate) fn pid(&self) -> PathBuf {
        self.dir.join("agent.pid")
    }
}

/// Name of a network's bridge in the fabric.
pub(crate) fn bridge_name(network: NetworkId) -> String {
    format!("b{}", short_hex(network.0))
}

/// Name of both ends of a port's veth pair.
pub(crate) fn port_link_name(port: PortId) -> String {
    format!("p{}", short_hex(port.0))
}

/// Name of both ends of the router's veth pair on a network.
pub(crate) fn router_link_name(network: NetworkId) -> String {
    format!("r{}", short_hex(network.0))
}

/// Name of the fabric's end of an amphora's management veth pair.
pub(crate) fn management_link_name(amphora: AmphoraId) -> String {
    format!("m{}", short_hex(amphora.0))
}

/// Link names have 15 characters at most; twelve hexadecimal digits tell a few thousand random ids apart.
fn short_hex(id: uuid::Uuid) -> String {
    let mut text = id.simple().to_string();
    text.truncate(12);
    text
}

/// `fa:16:3e` as Neutron has it, then three octets.
pub(crate) fn mac_address(rest: [u8; 3]) -> [u8; 6] {
    [0xfa, 0x16, 0x3e, rest[0], rest[1], rest[2]]
}

pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

pub(crate) fn parse_mac(text: &str) -> Result<[u8; 6], DriverError> {
    amphora_api::parse_mac(text).ok_or_else(|| DriverError::Invalid {
        what: format!("MAC address {text:?}"),
        reason: "is none".to_owned(),
    })
}

/// First address of the management network: the control plane's.
pub(crate) fn controller_address(management: Ipv4Net) -> Result<Ipv4Addr, DriverError> {
    if management.prefix_len() > 29 {
        return Err(DriverError::Invalid {
            what: format!("management network {management}"),
            reason: "is smaller than /29".to_owned(),
        });
    }
    management
        .hosts()
        .next()
        .ok_or_else(|| DriverError::Invalid {
            what: format!("management network {management}"),
            reason: "has no addresses".to_owned(),
        })
}

/// Lowest management address that is neither the control plane's nor taken.
pub(crate) fn free_management_address(
    management: Ipv4Net,
    taken: &std::collections::HashSet<IpAddr>,
) -> Result<Ipv4Addr, DriverError> {
    management
        .hosts()
        .skip(1)
        .find(|address| !taken.contains(&IpAddr::V4(*address)))
        .ok_or_else(|| DriverError::Invalid {
            what: format!("management network {management}"),
            reason: "has no free address".to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_names_that_could_be_confused_are_refused() {
        for name in ["", "a-b", "A", "a/b", "abcdefghijklmnopq"] {
            assert!(Layout::new(name, Path::new("/x")).is_err(), "{name:?}");
        }
        assert!(Layout::new("demo1", Path::new("/x")).is_ok());
    }

    #[test]
    fn link_names_fit_the_kernels_limit() {
        assert!(port_link_name(PortId::random()).len() <= 15);
        assert!(bridge_name(NetworkId::random()).len() <= 15);
        assert!(management_link_name(AmphoraId::random()).len() <= 15);
    }

    #[test]
    fn management_addresses_skip_the_control_plane_and_run_out_with_an_error() {
        let management: Ipv4Net = "198.18.0.0/29".parse().unwrap();
        assert_eq!(
            controller_address(management).unwrap(),
            Ipv4Addr::new(198, 18, 0, 1)
        );
        let mut taken = std::collections::HashSet::new();
        for last in 2..=6 {
            let free = free_management_address(management, &taken).unwrap();
            assert_eq!(free, Ipv4Addr::new(198, 18, 0, last));
            taken.insert(IpAddr::V4(free));
        }
        assert!(free_management_address(management, &taken).is_err());
    }
}
