//! A whole local stack: the control plane as a process of its own, real agents, tenant hosts.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail, ensure};
use lb_drivers::local::{LocalStack, Netns, StackConfig};
use lb_drivers::network::PortFilter;
use lb_drivers::{Compute, Network};
use tempfile::TempDir;

use crate::group::tail;
use crate::{Api, ensure_nothing_left};

/// Tenant networks of every test: clients and members on networks of their own, joined by a router, and IPv6.
pub const NETWORKS: &str = r#"
[[network]]
name = "public"
[[network.subnet]]
name = "public-v4"
cidr = "10.10.0.0/24"
gateway = "10.10.0.1"
allocation_pools = [{ start = "10.10.0.100", end = "10.10.0.250" }]
[[network.subnet]]
name = "public-v6"
cidr = "fd00:10::/64"
gateway = "fd00:10::1"
allocation_pools = [{ start = "fd00:10::100", end = "fd00:10::fff" }]

[[network]]
name = "servers"
[[network.subnet]]
name = "servers-v4"
cidr = "10.20.0.0/24"
gateway = "10.20.0.1"
allocation_pools = [{ start = "10.20.0.100", end = "10.20.0.250" }]
[[network.subnet]]
name = "servers-v6"
cidr = "fd00:20::/64"
gateway = "fd00:20::1"
allocation_pools = [{ start = "fd00:20::100", end = "fd00:20::fff" }]
"#;

/// What differs from stack to stack.
#[derive(Debug, Clone, Default)]
pub struct StackOptions {
    /// Starts the name of every namespace; one of its own for each stack of a test run when absent.
    pub name: Option<String>,
    /// Kept when given; else a temporary directory that goes with the stack.
    pub state_dir: Option<PathBuf>,
    /// TOML that overrides defaults of the control plane.
    pub config: String,
    /// Address of the REST API; a free port on loopback when absent.
    pub api: Option<SocketAddr>,
}

/// A running local stack. Dropping it removes everything it made, unless it was [detached](Self::detach).
#[derive(Debug)]
pub struct Stack {
    name: String,
    state_dir: PathBuf,
    local: LocalStack,
    control_plane: Option<Child>,
    api: Api,
    detached: bool,
    _temporary: Option<TempDir>,
}

impl Stack {
    /// Starts the control plane and returns when its API answers.
    pub async fn start(options: StackOptions) -> Result<Self> {
        ensure!(
            nix::unistd::geteuid().is_root(),
            "a local stack makes network namespaces and loads eBPF programs: run as root"
        );
        let temporary = match &options.state_dir {
            Some(_) => None,
            None => Some(tempfile::tempdir().context("make temporary directory")?),
        };
        let state_dir = match (&options.state_dir, &temporary) {
            (Some(dir), _) => dir.clone(),
            (None, Some(dir)) => dir.path().to_owned(),
            (None, None) => bail!("no state directory"),
        };
        std::fs::create_dir_all(&state_dir).context("make state directory")?;
        let name = options.name.unwrap_or_else(fresh_name);
        let networks = state_dir.join("networks.toml");
        std::fs::write(&networks, NETWORKS).context("write networks")?;
        let config = format!(
            "{}\n[local]\nname = {name:?}\nstate_dir = {state_dir:?}\nnetworks = {networks:?}\nagent = {:?}\n",
            options.config,
            binary("amphora-agent")?
        );
        std::fs::write(state_dir.join("control-plane.toml"), config).context("write config")?;
        let local = LocalStack::open(StackConfig::new(
            &name,
            &state_dir,
            &networks,
            binary("amphora-agent")?,
        ))
        .await
        .context("open local stack")?;
        let address = options
            .api
            .unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let mut stack = Self {
            name,
            state_dir,
            local,
            control_plane: None,
            api: Api::new(address),
            detached: false,
            _temporary: temporary,
        };
        stack.start_control_plane()?;
        Ok(stack)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    pub fn api(&self) -> Api {
        self.api.clone()
    }

    pub fn local(&self) -> &LocalStack {
        &self.local
    }

    /// Pid of the control plane.
    pub fn control_plane_pid(&self) -> Option<u32> {
        self.control_plane.as_ref().map(Child::id)
    }

    /// Starts the control plane, at the address it had before if it ran already.
    pub fn start_control_plane(&mut self) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .context("open log")?;
        let mut child = Command::new(binary("control-plane")?)
            .args(["all", "--local", "--config"])
            .arg(self.state_dir.join("control-plane.toml"))
            .args(["--bind", &self.api.address().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()
            .context("start control-plane")?;
        let stdout = child.stdout.take().context("no standard output")?;
        self.control_plane = Some(child);
        // The first line says where the API listens; the rest of the output is empty.
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on ");
        let Some(address) = address else {
            bail!("control-plane did not start:\n{}", self.log_tail());
        };
        self.api = Api::new(address.parse().context("address of the API")?);
        Ok(())
    }

    /// `kill -9` of the control plane; amphorae go on.
    pub fn kill_control_plane(&mut self) -> Result<()> {
        if let Some(mut child) = self.control_plane.take() {
            child.kill().context("kill control-plane")?;
            child.wait()?;
        }
        Ok(())
    }

    /// A tenant host: a namespace with an interface on `network` and these addresses.
    pub async fn host(&self, host: &str, network: &str, addresses: &[IpAddr]) -> Result<Netns> {
        let made = self.local.ensure_host(host, network, addresses).await;
        Ok(made.with_context(|| format!("make host {host}"))?.netns)
    }

    /// What is there of load balancers and amphorae, in words: ports, servers, namespaces, records, pinned maps. Ports
    /// and namespaces of the stack itself and of its hosts are not in it.
    pub async fn leftovers(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        let ours = PortFilter {
            name_prefix: Some("octavia-lb-".to_owned()),
            ..PortFilter::default()
        };
        for port in self.local.network().list_ports(&ours).await? {
            left.push(format!("port {}", port.name));
        }
        for server in self.local.compute().list_servers().await? {
            left.push(format!("server of amphora {}", server.amphora_id));
        }
        let of_amphorae = format!("{}-amp-", self.name);
        for (folder, prefix) in [
            (Path::new("/run/netns").to_owned(), of_amphorae.as_str()),
            (self.state_dir.join("amphorae"), ""),
            (self.state_dir.join("bpf"), ""),
        ] {
            let entries =
                std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
            for entry in entries {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                // A lock that was held when its owner was killed is an empty file. The kernel itself puts `maps.debug`
                // and `progs.debug` into a BPF file system.
                let innocent = name.ends_with(".lock") || name.ends_with(".debug");
                if name.starts_with(prefix) && !innocent {
                    left.push(path.display().to_string());
                }
            }
        }
        Ok(left)
    }

    /// Leaves everything running when this value goes away.
    pub fn detach(mut self) {
        self.detached = true;
    }

    pub fn log_file(&self) -> PathBuf {
        self.state_dir.join("control-plane.log")
    }

    /// The last lines of the control plane's log, for messages of failing tests.
    pub fn log_tail(&self) -> String {
        tail(&self.log_file())
    }

    /// Ends the stack and removes all of it; what stays is an error.
    pub async fn destroy(mut self) -> Result<()> {
        self.detached = true;
        self.kill_control_plane()?;
        LocalStack::destroy(&self.name, &self.state_dir)
            .await
            .context("remove local stack")?;
        ensure_nothing_left(&self.name, &self.state_dir)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.detached {
            return;
        }
        if std::thread::panicking() {
            let _ = writeln!(
                std::io::stderr(),
                "control plane's log:\n{}",
                self.log_tail()
            );
        }
        let removed = self
            .kill_control_plane()
            .and_then(|()| destroy_blocking(&self.name, &self.state_dir));
        if let Err(error) = removed {
            let _ = writeln!(std::io::stderr(), "remove stack {}: {error:#}", self.name);
        }
    }
}

/// For `drop`, which may run inside a runtime that must not be blocked on itself.
fn destroy_blocking(name: &str, state_dir: &Path) -> Result<()> {
    std::thread::scope(|scope| {
        let destroy = || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            Ok(runtime.block_on(LocalStack::destroy(name, state_dir))?)
        };
        scope
            .spawn(destroy)
            .join()
            .unwrap_or_else(|_| bail!("panicked"))
    })
}

/// A binary of this build: beside the running program, or one folder up for tests and examples.
pub fn binary(name: &str) -> Result<PathBuf> {
    let current = std::env::current_exe().context("find the running program")?;
    current
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(name))
        .find(|path| path.exists())
        .with_context(|| {
            format!("{name} is not built: cargo build -p control-plane -p amphora-agent")
        })
}

/// Short, and different for each stack of this machine.
fn fresh_name() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("t{}x{number}", std::process::id())
}
