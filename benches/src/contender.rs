//! Who is measured: each contender sets one lane's balancer up and serves until dropped.

mod fast_path;
mod haproxy;
mod nftables;
mod nginx;
mod proxy;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::load::Workload;
use crate::process::{self, Process};
use crate::rig::{Lane, Rig};
use crate::stop::Stop;

/// How long a contender may take to come up (the verifier takes its time on a busy machine).
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contender {
    /// Plain routing, no balancer: the floor.
    Direct,
    /// nftables DNAT and masquerade.
    Nftables,
    /// Our fast path at tcx ingress.
    FastPathTcx,
    /// Our fast path as native XDP.
    FastPathXdp,
    /// HAProxy, `mode tcp`.
    HaproxyTcp,
    /// Our proxy, TCP listener.
    ProxyTcp,
    /// HAProxy, `mode http`.
    HaproxyHttp,
    /// Our proxy, HTTP listener.
    ProxyHttp,
    /// nginx, HTTP reverse proxy.
    NginxHttp,
}

impl Contender {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Direct => "direct",
            Contender::Nftables => "nftables",
            Contender::FastPathTcx => "fast-path-tcx",
            Contender::FastPathXdp => "fast-path-xdp",
            Contender::HaproxyTcp => "haproxy-tcp",
            Contender::ProxyTcp => "proxy-tcp",
            Contender::HaproxyHttp => "haproxy-http",
            Contender::ProxyHttp => "proxy-http",
            Contender::NginxHttp => "nginx-http",
        }
    }

    /// Whose figures this one's are divided by: HAProxy in the mode that does the same work.
    pub(crate) fn reference(self) -> Contender {
        match self {
            Contender::HaproxyHttp | Contender::ProxyHttp | Contender::NginxHttp => {
                Contender::HaproxyHttp
            }
            Contender::Direct
            | Contender::Nftables
            | Contender::FastPathTcx
            | Contender::FastPathXdp
            | Contender::HaproxyTcp
            | Contender::ProxyTcp => Contender::HaproxyTcp,
        }
    }

    pub(crate) fn can(self, workload: Workload) -> bool {
        workload != Workload::Datagram
            || matches!(
                self,
                Contender::Direct
                    | Contender::Nftables
                    | Contender::FastPathTcx
                    | Contender::FastPathXdp
            )
    }

    /// Whether it reads packets before an skb is made.
    pub(crate) fn is_xdp(self) -> bool {
        self == Contender::FastPathXdp
    }

    /// Sets the lane's balancer up and waits until it forwards.
    pub(crate) fn start(self, rig: &Rig, lane: usize, stop: &Stop) -> Result<Running> {
        let place = Place {
            lane: rig.lanes.get(lane).context("find the lane")?,
            vip: rig.vip(lane)?,
            scratch: tempfile::Builder::new()
                .prefix("lb-bench-")
                .tempdir()
                .context("make a scratch folder")?,
            stop,
        };
        let targets = if self == Contender::Direct {
            place.lane.member_addresses()
        } else {
            vec![place.vip]
        };
        let (child, note) = match self {
            Contender::Direct => (None, String::new()),
            Contender::Nftables => (None, nftables::start(&place)?),
            Contender::FastPathTcx => fast_path::start(&place, xdp_lb::AttachMode::Tcx)?,
            Contender::FastPathXdp => fast_path::start(&place, xdp_lb::AttachMode::XdpNative)?,
            Contender::HaproxyTcp => haproxy::start(&place, "tcp")?,
            Contender::HaproxyHttp => haproxy::start(&place, "http")?,
            Contender::ProxyTcp => proxy::start(&place, proxy::Mode::Tcp)?,
            Contender::ProxyHttp => proxy::start(&place, proxy::Mode::Http)?,
            Contender::NginxHttp => nginx::start(&place)?,
        };
        let mut running = Running {
            targets,
            note,
            process: child,
            scratch: place.scratch,
        };
        running.wait_until_it_answers(rig, stop)?;
        Ok(running)
    }
}

/// Where a contender is set up.
struct Place<'a> {
    lane: &'a Lane,
    vip: std::net::SocketAddr,
    scratch: tempfile::TempDir,
    stop: &'a Stop,
}

impl Place<'_> {
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.scratch.path().join(name);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Starts a process inside the balancer; what it says goes to files.
    fn spawn(&self, command: &mut Command) -> Result<Process> {
        Process::spawn(command, self.scratch.path())
    }
}

/// Processors a user-space contender gets: all, as the others do.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A contender at work.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) targets: Vec<std::net::SocketAddr>,
    /// What it says of itself (version, attach mode).
    pub(crate) note: String,
    process: Option<Process>,
    scratch: tempfile::TempDir,
}

impl Running {
    /// Its processes: parent and children.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.process
            .as_ref()
            .map(Process::family)
            .unwrap_or_default()
    }

    fn wait_until_it_answers(&mut self, rig: &Rig, stop: &Stop) -> Result<()> {
        let mut last = None;
        let mut ended = None;
        let answers = stop.wait_for(PATIENCE, || {
            if let Some(process) = &mut self.process {
                ended = process.ended();
            }
            ended.is_some()
                || self.targets.iter().all(|target| {
                    rig.client
                        .inside(|| ask(*target))
                        .map_err(|error| last = Some(error))
                        .is_ok()
                })
        })?;
        let said = process::said(self.scratch.path());
        if let Some(status) = ended {
            bail!("it ended ({status}): {said}");
        }
        if !answers {
            bail!(
                "it does not forward: {}; it said: {said}",
                last.map_or_else(|| "no reason known".into(), |error| format!("{error:#}"))
            );
        }
        Ok(())
    }
}

/// One small exchange.
pub(crate) fn ask(target: std::net::SocketAddr) -> Result<()> {
    use std::io::{Read, Write};
    let patience = Duration::from_millis(500);
    let mut stream = std::net::TcpStream::connect_timeout(&target, patience)
        .with_context(|| format!("connect to {target}"))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(b"GET /1 HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut answer = [0; 512];
    let length = stream.read(&mut answer).context("read the answer")?;
    if !answer[..length].starts_with(b"HTTP/1.1 200") {
        bail!(
            "{target} answered {:?}",
            String::from_utf8_lossy(&answer[..length])
        );
    }
    Ok(())
}

/// What a hidden subcommand of this program serves, so that our libraries run in a process of their own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Serve {
    FastPath(fast_path::Setup),
    Proxy(proxy::Setup),
}

impl Serve {
    /// Serves until SIGTERM.
    pub(crate) fn run(self) -> Result<()> {
        let stop = Stop::on_signals()?;
        match self {
            Serve::FastPath(setup) => setup.run(&stop),
            Serve::Proxy(setup) => setup.run(&stop),
        }
    }

    /// Starts this program once more, inside the balancer, and waits for the first line it says.
    fn start(&self, place: &Place<'_>) -> Result<(Option<Process>, String)> {
        let program = std::env::current_exe().context("find this program")?;
        let mut process = place.spawn(
            place
                .lane
                .balancer
                .command(program)
                .arg("serve")
                .arg(serde_json::to_string(self)?),
        )?;
        let out = place.scratch.path().join(process::OUT);
        let mut line = None;
        let mut ended = None;
        place.stop.wait_for(PATIENCE, || {
            ended = process.ended();
            line = std::fs::read_to_string(&out)
                .ok()
                .and_then(|text| text.split_once('\n').map(|(line, _)| line.to_owned()));
            ended.is_some() || line.is_some()
        })?;
        match (line, ended) {
            (Some(line), None) => Ok((Some(process), line)),
            (_, ended) => bail!(
                "it did not come up{}: {}",
                ended.map_or_else(String::new, |status| format!(" ({status})")),
                process::said(place.scratch.path())
            ),
        }
    }
}
