//! A whole deployment on one Linux machine: what the local compute and network drivers share.
//!
//! Owns network namespaces `<name>-fabric`, `<name>-router`, `<name>-amp-<id>`, `<name>-amp-<id>-t`,
//! `<name>-host-<host>`, and below the state directory:
//!
//! ```text
//! ports.json                    ports and where allocation continues
//! amphorae/<id>/server.json     the server: namespace, management address, plugged ports
//! amphorae/<id>/root/etc/…      its config drive
//! amphorae/<id>/state/          its agent's ledger
//! amphorae/<id>/agent.{log,pid}
//! bpf/<id>/                     its pinned maps, on a BPF file system mounted at bpf/
//! processes/<pid>               control planes that use the stack
//! *.lock                        held while something is changed
//! ```
//!
//! Promises: no link is ever made in the host's own namespace; every change is locked against other tasks and
//! processes; a record is written before what it describes is made and removed after it is gone, so a process that
//! is killed at any point leaves nothing that [`LocalStack::open`] or [`LocalStack::destroy`] would not find.

mod bpffs;
mod config;
mod declaration;
mod destroy;
mod fabric;
mod host;
mod links;
mod lock;
mod netns;
mod offload;
mod process;
mod record;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::Ipv4Net;
use lb_model::AmphoraId;

use crate::DriverError;
use crate::compute::LocalCompute;
use crate::network::LocalNetwork;

pub use config::{Offload, StackConfig, default_management};
pub use declaration::Declaration;
pub use host::Host;
pub use netns::Netns;

pub(crate) use config::{
    AmphoraPaths, Layout, MANAGEMENT_BRIDGE, MANAGEMENT_LINK, bridge_name, free_management_address,
    mac_address, mac_text, management_link_name, parse_mac, port_link_name,
};
pub(crate) use declaration::is_host_of;
pub(crate) use destroy::recorded_amphorae;
pub(crate) use fabric::{MANAGEMENT_MTU, prepare_guest};
pub(crate) use links::{VethPair, in_netns};
pub(crate) use lock::FileLock;
pub(crate) use offload::enable_receive_offload;
pub(crate) use process::{kill_all_in, kill_recorded, processes_in, recorded, spawn_detached};
pub(crate) use record::{ensure_private_dir, read, remove_tree, replace_file, write};

/// What the drivers need to know; no state of its own.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) layout: Layout,
    pub(crate) fabric: Netns,
    pub(crate) management: Ipv4Net,
    pub(crate) offload: Offload,
    pub(crate) agent_binary: PathBuf,
    pub(crate) declaration: Declaration,
}

/// A running local stack. Clones are the same stack; so are those of other processes that open it by the same
/// configuration. Dropping it leaves everything running.
#[derive(Debug, Clone)]
pub struct LocalStack {
    stack: Arc<Stack>,
}

impl LocalStack {
    /// Builds what is missing and adopts what is there. Needs root.
    pub async fn open(config: StackConfig) -> Result<Self, DriverError> {
        blocking(move || {
            let StackConfig {
                name,
                state_dir,
                networks_file,
                agent_binary,
                management,
                offload,
            } = config;
            let layout = Layout::new(&name, &state_dir)?;
            let stack = Stack {
                fabric: layout.fabric()?,
                declaration: Declaration::read(&networks_file, management)?,
                layout,
                management: management.trunc(),
                offload,
                agent_binary: std::path::absolute(&agent_binary).map_err(DriverError::io(
                    format!("resolve {}", agent_binary.display()),
                ))?,
            };
            if !nix::unistd::geteuid().is_root() {
                return Err(DriverError::Invalid {
                    what: "local stack".to_owned(),
                    reason: "needs root, to make network namespaces".to_owned(),
                });
            }
            record::ensure_private_dir(&stack.layout.state_dir)?;
            record::ensure_private_dir(&stack.layout.amphorae())?;
            let _lock = FileLock::acquire(&stack.layout.lock())?;
            bpffs::ensure_mounted(&stack.layout.bpf())?;
            fabric::ensure(&stack)?;
            Ok(Self {
                stack: Arc::new(stack),
            })
        })
        .await
    }

    /// Writes this process down as one of the stack's, so that [`destroy`](Self::destroy) ends it first.
    pub async fn record_process(&self) -> Result<(), DriverError> {
        let dir = self.stack.layout.processes();
        blocking(move || process::record_own(&dir)).await
    }

    /// Removes all processes, namespaces, mounts, pinned objects and records of a stack, running, crashed or half
    /// made. Can be repeated.
    pub async fn destroy(name: &str, state_dir: &Path) -> Result<(), DriverError> {
        let (name, state_dir) = (name.to_owned(), state_dir.to_owned());
        blocking(move || destroy::destroy(&name, &state_dir)).await
    }

    pub fn compute(&self) -> LocalCompute {
        LocalCompute::new(Arc::clone(&self.stack))
    }

    pub fn network(&self) -> LocalNetwork {
        LocalNetwork::new(Arc::clone(&self.stack))
    }

    /// Where the control plane's management sockets are made: heartbeats in, agents out.
    pub fn fabric(&self) -> &Netns {
        &self.stack.fabric
    }

    /// The control plane's address on the management network, in the fabric namespace.
    pub fn controller_address(&self) -> Result<Ipv4Addr, DriverError> {
        config::controller_address(self.stack.management)
    }

    /// The declared networks.
    pub fn declaration(&self) -> &Declaration {
        &self.stack.declaration
    }

    /// A tenant host for members and clients: a namespace with a link on `network` (id or name) and these addresses,
    /// or one address of each subnet when there are none.
    pub async fn ensure_host(
        &self,
        name: &str,
        network: &str,
        addresses: &[IpAddr],
    ) -> Result<Host, DriverError> {
        let stack = Arc::clone(&self.stack);
        let (name, network) = (name.to_owned(), network.to_owned());
        let addresses = addresses.to_vec();
        blocking(move || host::ensure(&stack, &name, &network, &addresses)).await
    }

    /// Removes a tenant host with its processes; absent is fine.
    pub async fn delete_host(&self, name: &str) -> Result<(), DriverError> {
        let stack = Arc::clone(&self.stack);
        let name = name.to_owned();
        blocking(move || host::delete(&stack, &name)).await
    }

    /// Lets an amphora vanish as a machine that loses power: processes, links and pinned maps go at once, its disk
    /// stays. For demos and tests.
    pub async fn kill_server(&self, amphora: AmphoraId) -> Result<(), DriverError> {
        self.compute().kill(amphora).await
    }

    /// Where an amphora's agent writes its log.
    pub fn agent_log(&self, amphora: AmphoraId) -> PathBuf {
        self.stack.layout.amphora(amphora).log()
    }

    /// Process id of an amphora's agent while it runs.
    pub async fn agent_pid(&self, amphora: AmphoraId) -> Result<Option<i32>, DriverError> {
        let pid_file = self.stack.layout.amphora(amphora).pid();
        blocking(move || Ok(process::recorded(&pid_file)?.map(|found| found.pid))).await
    }

    /// The two namespaces of an amphora: the agent's, and the tenant's that the agent makes.
    pub async fn amphora_netns(
        &self,
        amphora: AmphoraId,
    ) -> Result<Option<(Netns, Netns)>, DriverError> {
        self.compute().netns(amphora).await
    }
}

/// Runs blocking work of a driver away from the runtime's threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DriverError> + Send + 'static,
) -> Result<T, DriverError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(DriverError::Unavailable {
                operation: "run driver".to_owned(),
                reason: "the runtime is shutting down".to_owned(),
            }),
        },
    }
}
