//! Servers in memory.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use lb_model::{AmphoraId, PortId};

use crate::compute::{AGENT_CONF, CLIENT_CA_PEM, SERVER_PEM};
use crate::fake::{FakeCloud, FakeServer};
use crate::network::Port;
use crate::{Compute, DriverError, Observed, Server, ServerSpec, ServerStatus};

fn injected(operation: &str) -> DriverError {
    DriverError::Unavailable {
        operation: operation.to_owned(),
        reason: "injected".to_owned(),
    }
}

#[async_trait]
impl Compute for FakeCloud {
    async fn ensure_server(&self, spec: &ServerSpec) -> Result<Server, DriverError> {
        const NAME: &str = "ensure server";
        self.call(
            NAME,
            || injected(NAME),
            |state| {
                for file in [SERVER_PEM, CLIENT_CA_PEM, AGENT_CONF] {
                    if !spec.files.contains_key(file) {
                        state.breaches.push(format!("server without {file}"));
                    }
                }
                if let Some(existing) = state.servers.get_mut(&spec.amphora_id) {
                    existing.server.status = ServerStatus::Active;
                    return Ok(existing.server.clone());
                }
                let server = Server {
                    amphora_id: spec.amphora_id,
                    compute_id: format!("vm-{}", spec.amphora_id),
                    status: ServerStatus::Active,
                    lb_network_ip: Some(state.management_address()),
                    image_id: None,
                    cached_zone: None,
                };
                let fake = FakeServer {
                    server: server.clone(),
                    placement: spec.placement.clone(),
                    ports: BTreeSet::new(),
                    boot_calls_left: state.boot_calls,
                    silent: false,
                    config: None,
                    active_connections: 0,
                    served: BTreeMap::new(),
                    refused_port: None,
                };
                state.servers.insert(spec.amphora_id, fake);
                Ok(server)
            },
        )
        .await
    }

    async fn observe_server(&self, amphora: AmphoraId) -> Result<Observed<Server>, DriverError> {
        const NAME: &str = "observe server";
        self.call(
            NAME,
            || injected(NAME),
            |state| {
                Ok(match state.servers.get(&amphora) {
                    Some(server) => Observed::Present(server.server.clone()),
                    None => Observed::Absent,
                })
            },
        )
        .await
    }

    async fn list_servers(&self) -> Result<Vec<Server>, DriverError> {
        const NAME: &str = "list servers";
        self.call(
            NAME,
            || injected(NAME),
            |state| {
                Ok(state
                    .servers
                    .values()
                    .map(|server| server.server.clone())
                    .collect())
            },
        )
        .await
    }

    async fn attach_port(&self, amphora: AmphoraId, port: &Port) -> Result<(), DriverError> {
        const NAME: &str = "attach port";
        self.call(
            NAME,
            || injected(NAME),
            |state| {
                if !state.ports.contains_key(&port.id) {
                    return Err(DriverError::UnknownPort(port.id));
                }
                let server = state
                    .servers
                    .get_mut(&amphora)
                    .ok_or(DriverError::UnknownServer(amphora))?;
                server.ports.insert(port.id);
                Ok(())
            },
        )
        .await
    }

    async fn detach_port(&self, amphora: AmphoraId, port: PortId) -> Result<(), DriverError> {
        const NAME: &str = "detach port";
        self.call(
            NAME,
            || injected(NAME),
            |state| {
                let mac = state.ports.get(&port).map(|port| port.mac_address.clone());
                if let Some(server) = state.servers.get_mut(&amphora) {
                    server.ports.remove(&port);
                    let named = server.config.iter().flat_map(|config| &config.interfaces);
                    if named
                        .map(|interface| &interface.mac_address)
                        .any(|named| Some(named) == mac.as_ref())
                    {
                        state
                            .breaches
                            .push(format!("port {port} unplugged while a document names it"));
                    }
                }
                Ok(())
            },
        )
        .await
    }

    async fn delete_server(&self, amphora: AmphoraId) -> Result<(), DriverError> {
        const NAME: &str = "delete server";
        self.call(
            NAME,
            || injected(NAME),
            |state| {
                state.servers.remove(&amphora);
                Ok(())
            },
        )
        .await
    }
}
