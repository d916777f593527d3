//! Agents in memory, one a server of [`FakeCloud`].

use std::collections::BTreeMap;
use std::io;

use amphora_api::{
    AgentFault, AmphoraConfig, AmphoraInfo, AmphoraStats, ApplyReport, InterfaceInfo,
    ListenerStats, VipState,
};
use async_trait::async_trait;
use lb_model::{AmphoraId, ListenerId};
use uuid::Uuid;

use crate::fake::{FakeCloud, FakeServer, Push, State};
use crate::{AmphoraDriver, AmphoraError, Endpoint, ServerStatus};

#[async_trait]
impl AmphoraDriver for FakeCloud {
    async fn put_config(
        &self,
        endpoint: &Endpoint,
        config: &AmphoraConfig,
    ) -> Result<ApplyReport, AmphoraError> {
        let endpoint = *endpoint;
        self.call(
            "put config",
            || injected(endpoint),
            |state| {
                reach(state, endpoint)?;
                put(state, endpoint.amphora_id, config)
            },
        )
        .await
    }

    async fn info(&self, endpoint: &Endpoint) -> Result<AmphoraInfo, AmphoraError> {
        let endpoint = *endpoint;
        self.call(
            "agent info",
            || injected(endpoint),
            |state| {
                let macs: BTreeMap<_, _> = state
                    .ports
                    .values()
                    .map(|port| (port.id, port.mac_address.clone()))
                    .collect();
                let failing_port = state.failing_port;
                let server = reach(state, endpoint)?;
                let failing = failing_listeners(server.config.as_ref(), failing_port);
                let plugged: Vec<&String> =
                    server.ports.iter().filter_map(|id| macs.get(id)).collect();
                let interfaces = server.config.iter().flat_map(|config| &config.interfaces);
                Ok(AmphoraInfo {
                    api_version: amphora_api::API_VERSION.to_owned(),
                    agent_version: "fake".to_owned(),
                    hostname: format!("amphora-{}", endpoint.amphora_id),
                    amphora_id: endpoint.amphora_id.0,
                    generation: server.config.as_ref().map(|config| config.generation),
                    config_digest: server.config.as_ref().map(AmphoraConfig::digest),
                    missing_secrets: Vec::new(),
                    interfaces: interfaces
                        .filter(|interface| plugged.contains(&&interface.mac_address))
                        .map(|interface| InterfaceInfo {
                            name: interface.name.clone(),
                            mac_address: interface.mac_address.clone(),
                            addresses: interface.addresses.clone(),
                            attach: "none".to_owned(),
                            attach_reason: "fake".to_owned(),
                        })
                        .collect(),
                    listeners: Vec::new(),
                    failed_listeners: failing,
                    problems: Vec::new(),
                })
            },
        )
        .await
    }

    async fn stats(&self, endpoint: &Endpoint) -> Result<AmphoraStats, AmphoraError> {
        let endpoint = *endpoint;
        self.call(
            "agent stats",
            || injected(endpoint),
            |state| {
                let server = reach(state, endpoint)?;
                let mut stats = AmphoraStats::default();
                let listeners = server.config.iter().flat_map(|config| &config.listeners);
                for (index, listener) in listeners.enumerate() {
                    let served = server.served.get(&ListenerId(listener.id));
                    let served = served.copied().unwrap_or_default();
                    let counters = ListenerStats {
                        bytes_in: served,
                        bytes_out: served,
                        // All connections in progress are the first listener's.
                        active_connections: if index == 0 {
                            server.active_connections
                        } else {
                            0
                        },
                        total_connections: served,
                        request_errors: 0,
                    };
                    stats.listeners.insert(listener.id, counters);
                    stats.epochs.insert(listener.id, 1);
                }
                Ok(stats)
            },
        )
        .await
    }
}

fn injected(endpoint: Endpoint) -> AmphoraError {
    AmphoraError::TimedOut {
        operation: "injected fault",
        address: endpoint.address,
    }
}

fn reach(state: &mut State, endpoint: Endpoint) -> Result<&mut FakeServer, AmphoraError> {
    let refused = || AmphoraError::Unreachable {
        address: endpoint.address,
        source: io::ErrorKind::ConnectionRefused.into(),
    };
    let server = state
        .servers
        .get_mut(&endpoint.amphora_id)
        .filter(|server| server.server.status == ServerStatus::Active && !server.silent)
        .ok_or_else(refused)?;
    if server.boot_calls_left > 0 {
        server.boot_calls_left -= 1;
        return Err(refused());
    }
    Ok(server)
}

fn put(
    state: &mut State,
    amphora: AmphoraId,
    config: &AmphoraConfig,
) -> Result<ApplyReport, AmphoraError> {
    if let Err(error) = config.validate() {
        return Err(refuse(400, &error.to_string()));
    }
    let plugged: Vec<String> = state
        .servers
        .get(&amphora)
        .iter()
        .flat_map(|server| &server.ports)
        .filter_map(|id| state.ports.get(id))
        .map(|port| port.mac_address.clone())
        .collect();
    for interface in &config.interfaces {
        if !plugged.contains(&interface.mac_address) {
            state.breaches.push(format!(
                "document {} of {amphora} names unplugged interface {}",
                config.generation, interface.mac_address
            ));
        }
    }
    let Some(server) = state.servers.get_mut(&amphora) else {
        return Err(refuse(404, "no such server"));
    };
    if let Some(port) = server.refused_port
        && config
            .listeners
            .iter()
            .any(|listener| listener.protocol_port == port)
    {
        return Err(refuse(400, "this listener is refused"));
    }
    if let Some(current) = &server.config {
        if current == config {
            return Ok(ApplyReport {
                generation: config.generation,
                changed: false,
                actions: Vec::new(),
                failed_listeners: BTreeMap::new(),
            });
        }
        if config.generation <= current.generation {
            return Err(AmphoraError::OutOfDate {
                fault: fault(&format!(
                    "generation {} is in force, {} came",
                    current.generation, config.generation
                )),
            });
        }
    }
    server.config = Some(config.clone());
    state.pushes.push(Push {
        amphora,
        generation: config.generation,
        vips: config.vips.first().map(|vip| vip.state.clone()),
    });
    watch_vips(state, amphora);
    Ok(ApplyReport {
        generation: config.generation,
        changed: true,
        actions: vec!["everything".to_owned()],
        failed_listeners: failing_listeners(Some(config), state.failing_port),
    })
}

fn failing_listeners(
    config: Option<&AmphoraConfig>,
    failing_port: Option<u16>,
) -> BTreeMap<Uuid, String> {
    config
        .into_iter()
        .flat_map(|config| &config.listeners)
        .filter(|listener| Some(listener.protocol_port) == failing_port)
        .map(|listener| (listener.id, "port is taken".to_owned()))
        .collect()
}

/// No two servers may answer for one VIP.
fn watch_vips(state: &mut State, newest: AmphoraId) {
    let owners: Vec<_> = state
        .servers
        .iter()
        .filter_map(|(id, server)| Some((*id, server.config.as_ref()?)))
        .flat_map(|(id, config)| config.vips.iter().map(move |vip| (id, vip)))
        .filter(|(_, vip)| matches!(vip.state, VipState::Active { .. }))
        .map(|(id, vip)| (id, vip.address))
        .collect();
    for (owner, address) in &owners {
        if *owner != newest && owners.contains(&(newest, *address)) {
            state
                .breaches
                .push(format!("{owner} and {newest} both own VIP {address}"));
        }
    }
}

fn refuse(status: u16, reason: &str) -> AmphoraError {
    AmphoraError::Refused {
        status,
        fault: fault(reason),
    }
}

fn fault(reason: &str) -> AgentFault {
    AgentFault {
        message: "refused".to_owned(),
        details: reason.to_owned(),
    }
}
