//! Our fast path, loaded by a process of its own inside the balancer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use xdp_lb::{
    Algorithm, AttachMode, Config, FastPath, Interface, Member, Options, Protocol, Service,
};

use super::{Place, Process, Serve};
use crate::rig::{Link, PORT};
use crate::stop::Stop;

/// What the process is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    mode: AttachMode,
    vip: IpAddr,
    members: Vec<SocketAddr>,
    interfaces: Vec<Side>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Side {
    device: String,
    mac: [u8; 6],
    address: Ipv4Addr,
}

pub(super) fn start(place: &Place<'_>, mode: AttachMode) -> Result<(Option<Process>, String)> {
    let side = |link: &Link| Side {
        device: link.device.clone(),
        mac: link.mac,
        address: link.address,
    };
    Serve::FastPath(Setup {
        mode,
        vip: place.vip.ip(),
        members: place.lane.member_addresses(),
        interfaces: vec![side(&place.lane.front), side(&place.lane.back)],
    })
    .start(place)
}

impl Setup {
    pub(super) fn run(self, stop: &Stop) -> Result<()> {
        // A mount namespace of its own: the bpffs and its pins go away with the process.
        unshare(CloneFlags::CLONE_NEWNS).context("make a mount namespace")?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
            .context("make mounts private")?;
        let folder = tempfile::tempdir().context("make a folder for the bpffs")?;
        mount(
            Some("bpf"),
            folder.path(),
            Some("bpf"),
            MsFlags::empty(),
            none,
        )
        .context("mount a bpffs")?;
        let mut fast_path = FastPath::open(Options {
            pin_dir: folder.path().join("fast-path"),
            flow_capacity: 1 << 20,
        })
        .context("open the fast path")?;
        let report = fast_path
            .apply(&self.config()?)
            .context("apply the configuration")?;
        let modes: Vec<String> = report
            .interfaces
            .iter()
            .map(|interface| format!("{:?} ({})", interface.mode, interface.reason))
            .collect();
        println!("{}", modes.join("; "));
        while stop.pause(Duration::from_secs(1)).is_ok() {
            fast_path.sweep().context("sweep the flow table")?;
        }
        fast_path.detach().context("detach the fast path")?;
        nix::mount::umount(folder.path()).context("unmount the bpffs")?;
        Ok(())
    }

    fn config(&self) -> Result<Config> {
        let interfaces = self
            .interfaces
            .iter()
            .map(|side| {
                Ok(Interface {
                    ifindex: if_nametoindex(side.device.as_str())
                        .with_context(|| format!("find {}", side.device))?,
                    name: side.device.clone(),
                    mac: side.mac,
                    mtu: 1500,
                    mode: self.mode,
                    snat_v4: Some(side.address),
                    snat_v6: None,
                    handover_mac: None,
                })
            })
            .collect::<Result<_>>()?;
        let service = |protocol| Service {
            id: Uuid::new_v4(),
            vips: vec![self.vip],
            port: PORT,
            protocol,
            algorithm: Algorithm::RoundRobin,
            idle_timeout: Duration::from_secs(50),
            connection_limit: None,
            allowed: Vec::new(),
            members: self
                .members
                .iter()
                .map(|member| Member {
                    id: Uuid::new_v4(),
                    address: member.ip(),
                    port: member.port(),
                    weight: 1,
                    backup: false,
                    up: true,
                })
                .collect(),
        };
        Ok(Config {
            interfaces,
            services: vec![service(Protocol::Tcp), service(Protocol::Udp)],
        })
    }
}
