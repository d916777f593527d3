//! The compute driver of a local stack: an amphora is a network namespace with its own agent process.
//!
//! The namespace holds the management interface `eth0` and the plugged ports, each by its MAC address, until the
//! agent moves them into its tenant namespace `<namespace>-t`. The agent is a session of its own and outlives the
//! control plane. Its config drive is a directory, see [`relocate`](crate::agent_conf::relocate).

mod record;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use ipnet::{IpNet, Ipv4Net};
use lb_model::{AmphoraId, PortId};

use super::{AGENT_CONF, Compute, Server, ServerSpec, ServerStatus};
use crate::agent_conf::{Relocation, relocate};
use crate::local::{
    self, FileLock, MANAGEMENT_BRIDGE, MANAGEMENT_LINK, MANAGEMENT_MTU, Netns, Offload, Stack,
    VethPair, blocking, bridge_name, enable_receive_offload, in_netns, management_link_name,
    parse_mac, port_link_name,
};
use crate::network::Port;
use crate::{DriverError, Observed, Secret};
use record::{PluggedPort, ServerRecord};

/// See [`LocalStack`](crate::LocalStack).
#[derive(Debug, Clone)]
pub struct LocalCompute {
    stack: Arc<Stack>,
}

#[async_trait]
impl Compute for LocalCompute {
    async fn ensure_server(&self, spec: &ServerSpec) -> Result<Server, DriverError> {
        let (stack, spec) = (Arc::clone(&self.stack), spec.clone());
        blocking(move || ensure_server(&stack, &spec)).await
    }

    async fn observe_server(&self, amphora: AmphoraId) -> Result<Observed<Server>, DriverError> {
        let stack = Arc::clone(&self.stack);
        blocking(move || observe_server(&stack, amphora)).await
    }

    async fn list_servers(&self) -> Result<Vec<Server>, DriverError> {
        let stack = Arc::clone(&self.stack);
        blocking(move || {
            let mut servers = Vec::new();
            for amphora in local::recorded_amphorae(&stack.layout)? {
                match observe_server(&stack, amphora)? {
                    Observed::Present(server) => servers.push(server),
                    Observed::Unsure => servers.push(Server {
                        amphora_id: amphora,
                        compute_id: amphora.to_string(),
                        status: ServerStatus::Error,
                        lb_network_ip: None,
                        image_id: None,
                        cached_zone: None,
                    }),
                    Observed::Absent => {}
                }
            }
            Ok(servers)
        })
        .await
    }

    async fn attach_port(&self, amphora: AmphoraId, port: &Port) -> Result<(), DriverError> {
        let (stack, port) = (Arc::clone(&self.stack), port.clone());
        blocking(move || attach_port(&stack, amphora, &port)).await
    }

    async fn detach_port(&self, amphora: AmphoraId, port: PortId) -> Result<(), DriverError> {
        let stack = Arc::clone(&self.stack);
        blocking(move || detach_port(&stack, amphora, port)).await
    }

    async fn delete_server(&self, amphora: AmphoraId) -> Result<(), DriverError> {
        let stack = Arc::clone(&self.stack);
        blocking(move || delete_server(&stack, amphora)).await
    }
}

impl LocalCompute {
    pub(crate) fn new(stack: Arc<Stack>) -> Self {
        Self { stack }
    }

    pub(crate) async fn kill(&self, amphora: AmphoraId) -> Result<(), DriverError> {
        let stack = Arc::clone(&self.stack);
        blocking(move || {
            let _lock = lock_amphora(&stack, amphora)?;
            power_off(&stack, amphora, read_record(&stack, amphora)?.as_ref())
        })
        .await
    }

    pub(crate) async fn netns(
        &self,
        amphora: AmphoraId,
    ) -> Result<Option<(Netns, Netns)>, DriverError> {
        let stack = Arc::clone(&self.stack);
        blocking(move || match read_record(&stack, amphora)? {
            Some(record) => Ok(Some((record.netns()?, record.tenant_netns()?))),
            None => Ok(None),
        })
        .await
    }
}

fn ensure_server(stack: &Stack, spec: &ServerSpec) -> Result<Server, DriverError> {
    let amphora = spec.amphora_id;
    let _lock = lock_amphora(stack, amphora)?;
    let record = ensure_record(stack, spec)?;
    let netns = record.netns()?;
    let paths = stack.layout.amphora(amphora);

    let mut running = local::recorded(&paths.pid())?.is_some();
    if running && !netns.exists() {
        // Somebody took the namespace away; the agent that still sits in its remains is of no use.
        local::kill_recorded(&paths.pid())?;
        running = false;
    }
    if netns.ensure()? {
        // Links that led to a former namespace of that name.
        unplug_all(stack, &record)?;
    }
    local::prepare_guest(&netns)?;
    plug_management(stack, &record, &netns)?;
    for port in &record.ports {
        plug(stack, port, &netns)?;
    }
    if !running {
        kill_unrecorded(&netns, &paths.root())?;
        write_config_drive(&record, spec, &paths)?;
        start_agent(stack, &record, &paths)?;
        tracing::info!(amphora_id = %amphora, netns = netns.name(), "agent started");
    }
    Ok(server_of(&record, ServerStatus::Active))
}

fn observe_server(stack: &Stack, amphora: AmphoraId) -> Result<Observed<Server>, DriverError> {
    let paths = stack.layout.amphora(amphora);
    if !paths.dir.exists() {
        return Ok(Observed::Absent);
    }
    let record = match read_record(stack, amphora) {
        Ok(Some(record)) => record,
        // Half made or half removed.
        Ok(None) | Err(DriverError::Invalid { .. }) => return Ok(Observed::Unsure),
        Err(error) => return Err(error),
    };
    if !paths.pid().exists() {
        // It has never been started.
        return Ok(Observed::Unsure);
    }
    let running = record.netns()?.exists() && local::recorded(&paths.pid())?.is_some();
    let status = if running {
        ServerStatus::Active
    } else {
        ServerStatus::Stopped
    };
    Ok(Observed::Present(server_of(&record, status)))
}

fn attach_port(stack: &Stack, amphora: AmphoraId, port: &Port) -> Result<(), DriverError> {
    let _lock = lock_amphora(stack, amphora)?;
    let mut record = read_record(stack, amphora)?.ok_or(DriverError::UnknownServer(amphora))?;
    let plugged = PluggedPort {
        id: port.id,
        network_id: port.network_id,
        mac_address: port.mac_address.clone(),
    };
    parse_mac(&plugged.mac_address)?;
    if stack.declaration.network(port.network_id).is_none() {
        return Err(DriverError::UnknownNetwork(port.network_id));
    }
    if !record.ports.contains(&plugged) {
        record.ports.retain(|other| other.id != port.id);
        record.ports.push(plugged.clone());
        local::write(&stack.layout.amphora(amphora).record(), &record)?;
    }
    let netns = record.netns()?;
    if netns.exists() {
        plug(stack, &plugged, &netns)?;
    }
    Ok(())
}

fn detach_port(stack: &Stack, amphora: AmphoraId, port: PortId) -> Result<(), DriverError> {
    let _lock = lock_amphora(stack, amphora)?;
    let Some(mut record) = read_record(stack, amphora)? else {
        return Ok(());
    };
    if record.ports.iter().all(|plugged| plugged.id != port) {
        return Ok(());
    }
    in_netns(&stack.fabric, |links| links.delete(&port_link_name(port)))?;
    record.ports.retain(|plugged| plugged.id != port);
    local::write(&stack.layout.amphora(amphora).record(), &record)
}

fn delete_server(stack: &Stack, amphora: AmphoraId) -> Result<(), DriverError> {
    let lock = lock_amphora(stack, amphora)?;
    let record = match read_record(stack, amphora) {
        Ok(record) => record,
        Err(DriverError::Invalid { what, reason }) => {
            tracing::warn!(amphora_id = %amphora, what, reason, "delete server without its record");
            None
        }
        Err(error) => return Err(error),
    };
    power_off(stack, amphora, record.as_ref())?;
    local::remove_tree(&stack.layout.amphora(amphora).dir)?;
    lock.remove()
}

/// Everything of a server goes but its directory.
fn power_off(
    stack: &Stack,
    amphora: AmphoraId,
    record: Option<&ServerRecord>,
) -> Result<(), DriverError> {
    let paths = stack.layout.amphora(amphora);
    local::kill_recorded(&paths.pid())?;
    if let Some(record) = record {
        let namespaces = [record.tenant_netns()?, record.netns()?];
        for netns in &namespaces {
            local::kill_all_in(netns)?;
        }
        // The kernel takes its time to clear a namespace away. Links go now, so that they can be made again.
        unplug_all(stack, record)?;
        for netns in &namespaces {
            netns.delete()?;
        }
    }
    local::remove_tree(&paths.bpf)
}

/// The record there is, or a new one with a namespace name and a management address that no other has.
fn ensure_record(stack: &Stack, spec: &ServerSpec) -> Result<ServerRecord, DriverError> {
    let amphora = spec.amphora_id;
    if let Some(record) = read_record(stack, amphora)? {
        return Ok(record);
    }
    let _lock = FileLock::acquire(&stack.layout.lock())?;
    let mut addresses = HashSet::new();
    let mut names = HashSet::new();
    let mut macs = HashSet::new();
    for other in local::recorded_amphorae(&stack.layout)? {
        if let Some(record) = read_record(stack, other)? {
            addresses.insert(IpAddr::V4(record.management_address));
            names.insert(record.netns);
            macs.insert(record.management_mac);
        }
    }
    let id = amphora.0.simple().to_string();
    let short: String = id.chars().take(8).collect();
    let mut netns = format!("{}-amp-{short}", stack.layout.name);
    if names.contains(&netns) {
        netns = format!("{}-amp-{id}", stack.layout.name);
    }
    let management_mac = loop {
        let mac = local::mac_text(local::mac_address(rand::random()));
        if !macs.contains(&mac) {
            break mac;
        }
    };
    let record = ServerRecord {
        amphora_id: amphora,
        load_balancer_id: spec.load_balancer_id,
        netns,
        management_address: local::free_management_address(stack.management, &addresses)?,
        management_mac,
        ports: Vec::new(),
    };
    let paths = stack.layout.amphora(amphora);
    local::ensure_private_dir(&paths.dir)?;
    local::write(&paths.record(), &record)?;
    Ok(record)
}

fn plug_management(stack: &Stack, record: &ServerRecord, netns: &Netns) -> Result<(), DriverError> {
    let mac = parse_mac(&record.management_mac)?;
    in_netns(&stack.fabric, |links| {
        links.ensure_veth(&VethPair {
            name: &management_link_name(record.amphora_id),
            bridge: MANAGEMENT_BRIDGE,
            mtu_bytes: MANAGEMENT_MTU,
            isolated: true,
            peer: MANAGEMENT_LINK,
            peer_mac: mac,
            peer_netns: netns,
        })
    })?;
    let address = IpNet::V4(Ipv4Net::new_assert(
        record.management_address,
        stack.management.prefix_len(),
    ));
    in_netns(netns, |links| {
        links.ensure_address(MANAGEMENT_LINK, address)?;
        links.set_up(MANAGEMENT_LINK)
    })
}

/// The other end turns up in the amphora's namespace, where the agent finds it by its MAC address.
fn plug(stack: &Stack, port: &PluggedPort, netns: &Netns) -> Result<(), DriverError> {
    let network = stack
        .declaration
        .network(port.network_id)
        .ok_or(DriverError::UnknownNetwork(port.network_id))?;
    let link = port_link_name(port.id);
    let mac = parse_mac(&port.mac_address)?;
    in_netns(&stack.fabric, |links| {
        links.ensure_veth(&VethPair {
            name: &link,
            bridge: &bridge_name(network.id),
            mtu_bytes: network.mtu_bytes,
            isolated: false,
            peer: &link,
            peer_mac: mac,
            peer_netns: netns,
        })?;
        if stack.offload == Offload::Xdp {
            enable_receive_offload(&link)?;
        }
        Ok(())
    })
}

fn unplug_all(stack: &Stack, record: &ServerRecord) -> Result<(), DriverError> {
    in_netns(&stack.fabric, |links| {
        links.delete(&management_link_name(record.amphora_id))?;
        for port in &record.ports {
            links.delete(&port_link_name(port.id))?;
        }
        Ok(())
    })
}

/// An agent that was started by a process which died before it could write the id down.
fn kill_unrecorded(netns: &Netns, root: &Path) -> Result<(), DriverError> {
    for process in local::processes_in(netns)? {
        let arguments = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        let ours = arguments
            .split(|byte| *byte == 0)
            .any(|argument| Path::new(OsStr::from_bytes(argument)).starts_with(root));
        if ours {
            process.kill()?;
        }
    }
    Ok(())
}

fn write_config_drive(
    record: &ServerRecord,
    spec: &ServerSpec,
    paths: &local::AmphoraPaths,
) -> Result<(), DriverError> {
    let root = paths.root();
    let tenant_netns = record.tenant_netns()?;
    for (path, content) in config_drive(&root, &spec.files)? {
        if let Some(parent) = path.parent() {
            local::ensure_private_dir(parent)?;
        }
        if path == below(&root, AGENT_CONF)? {
            let moved = relocate(
                content.expose(),
                &Relocation {
                    root: &root,
                    state_dir: &paths.state(),
                    bpf_dir: &paths.bpf,
                    tenant_netns: tenant_netns.name(),
                },
            );
            local::replace_file(&path, moved.as_bytes())?;
        } else {
            local::replace_file(&path, content.expose().as_bytes())?;
        }
    }
    local::ensure_private_dir(&paths.state())?;
    local::ensure_private_dir(&paths.bpf)
}

fn start_agent(
    stack: &Stack,
    record: &ServerRecord,
    paths: &local::AmphoraPaths,
) -> Result<(), DriverError> {
    let conf = below(&paths.root(), AGENT_CONF)?;
    let arguments = [OsStr::new("--config"), conf.as_os_str()];
    let process = local::spawn_detached(
        &record.netns()?,
        &stack.agent_binary,
        &arguments,
        &paths.log(),
    )?;
    local::write(&paths.pid(), &process)
}

/// The files of a config drive at their places below a root.
fn config_drive<'a>(
    root: &Path,
    files: &'a BTreeMap<String, Secret>,
) -> Result<Vec<(PathBuf, &'a Secret)>, DriverError> {
    if !files.contains_key(AGENT_CONF) {
        return Err(DriverError::Invalid {
            what: "config drive".to_owned(),
            reason: format!("has no {AGENT_CONF}"),
        });
    }
    files
        .iter()
        .map(|(path, content)| Ok((below(root, path)?, content)))
        .collect()
}

/// `/a/b` below a root; a path that could leave it is refused.
fn below(root: &Path, path: &str) -> Result<PathBuf, DriverError> {
    let refuse = || DriverError::Invalid {
        what: format!("config drive path {path:?}"),
        reason: "must be absolute and plain".to_owned(),
    };
    let relative = Path::new(path.strip_prefix('/').ok_or_else(refuse)?);
    let plain = relative
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    if relative.as_os_str().is_empty() || !plain {
        return Err(refuse());
    }
    Ok(root.join(relative))
}

fn server_of(record: &ServerRecord, status: ServerStatus) -> Server {
    Server {
        amphora_id: record.amphora_id,
        compute_id: record.amphora_id.to_string(),
        status,
        lb_network_ip: Some(IpAddr::V4(record.management_address)),
        image_id: None,
        cached_zone: None,
    }
}

fn read_record(stack: &Stack, amphora: AmphoraId) -> Result<Option<ServerRecord>, DriverError> {
    local::read(&stack.layout.amphora(amphora).record())
}

fn lock_amphora(stack: &Stack, amphora: AmphoraId) -> Result<FileLock, DriverError> {
    FileLock::acquire(&stack.layout.amphora_lock(amphora))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_drive_paths_cannot_leave_the_root() {
        let root = Path::new("/r");
        assert_eq!(
            below(root, "/etc/octavia/x").unwrap(),
            Path::new("/r/etc/octavia/x")
        );
        for bad in ["", "/", "etc/x", "/../x", "/etc/../../x", "//etc/x"] {
            assert!(below(root, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_config_drive_without_the_agents_configuration_is_refused() {
        let mut files = BTreeMap::new();
        files.insert("/etc/octavia/x".to_owned(), Secret::new("x"));
        assert!(config_drive(Path::new("/r"), &files).is_err());
        files.insert(AGENT_CONF.to_owned(), Secret::new("[amphora_agent]"));
        assert_eq!(config_drive(Path::new("/r"), &files).unwrap().len(), 2);
    }
}
