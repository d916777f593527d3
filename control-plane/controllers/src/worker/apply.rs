//! Doing the steps of a plan. Decides nothing: a step says everything.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use amphora_api::AmphoraConfig;
use futures_util::future::join_all;
use lb_drivers::agent_conf::{self, AgentSettings};
use lb_drivers::compute::{AGENT_CONF, CLIENT_CA_PEM, SERVER_PEM};
use lb_drivers::network::{
    DEVICE_OWNER, FixedIpSpec, PortSpec, PortUpdate, base_port_name, member_port_name,
    vip_port_spec,
};
use lb_drivers::{
    AmphoraError, DriverError, Endpoint, Observed, Placement, Secret, ServerSpec, ServerStatus,
};
use lb_model::{
    AmphoraId, Fault, FlavorData, Graph, LoadBalancer, NetworkId, OfferKind, PortId, SubnetId,
    Timestamp, ZoneData,
};
use lb_planner::{Plan, PortPurpose, PortWish, Step};
use lb_store::{Lease, Outcome, Progress, StoreError};

use super::WorkerDeps;
use super::observe::{Observation, TRIES, endpoint, info, stats};
use crate::statistics;

/// Why a step was not done.
#[derive(Debug)]
pub(crate) enum StepError {
    /// Another worker has the load balancer now.
    LeaseLost,
    /// Looking again and planning anew may help.
    Transient(String),
    /// Trying again does not help.
    Permanent(String),
}

/// What applying plans needs.
pub(crate) struct Apply<'a> {
    pub(crate) deps: &'a WorkerDeps,
    pub(crate) lease: &'a Lease,
    pub(crate) graph: &'a Graph,
    pub(crate) observation: &'a Observation,
}

impl Apply<'_> {
    /// Does all phases in order; stops at the end of the first that has an error. Tells whether an amphora took over.
    pub(crate) async fn run(
        &self,
        plan: &Plan,
        outcome: &mut Outcome,
        took_over: &mut bool,
    ) -> Result<(), StepError> {
        for (phase, steps) in plan.phases() {
            let begun = Instant::now();
            let rows: Vec<&Step> = steps.iter().filter(|step| step.is_row()).collect();
            if !rows.is_empty() {
                self.write_rows(&rows).await?;
                outcome.done.extend(rows.iter().map(ToString::to_string));
                *took_over |= rows
                    .iter()
                    .any(|step| matches!(step, Step::TakeOver { .. }));
            }
            let others: Vec<&Step> = steps.iter().filter(|step| !step.is_row()).collect();
            let results = join_all(others.iter().map(|step| self.step(step))).await;
            let mut worst: Option<StepError> = None;
            for (step, result) in others.iter().zip(results) {
                match result {
                    Ok(()) => outcome.done.push(step.to_string()),
                    Err(error) => worst = Some(graver(worst, error)),
                }
            }
            let spent = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            *outcome
                .durations_ms
                .entry(format!("{phase:?}"))
                .or_default() += spent;
            if let Some(error) = worst {
                return Err(error);
            }
        }
        Ok(())
    }

    /// All rows of one phase in one transaction.
    async fn write_rows(&self, steps: &[&Step]) -> Result<(), StepError> {
        let now = (self.deps.clock)();
        self.save(|graph| {
            for step in steps {
                // Every step given here is a row step.
                let _ = step.write(graph, now);
            }
        })
        .await
    }

    async fn save(&self, change: impl FnMut(&mut Graph) + Send) -> Result<(), StepError> {
        let now = (self.deps.clock)();
        match self.deps.store.save_progress(self.lease, now, change).await {
            Ok(Progress::Written(_)) => Ok(()),
            Ok(Progress::LeaseLost) => Err(StepError::LeaseLost),
            Err(error) => Err(store_error(&error)),
        }
    }

    async fn step(&self, step: &Step) -> Result<(), StepError> {
        let deps = self.deps;
        match step {
            Step::EnsureServer { amphora, .. } => self.ensure_server(*amphora).await,
            Step::EnsurePort(wish) => self.ensure_port(wish).await,
            Step::EnsureVipPort {
                network_id,
                addresses,
            } => self.ensure_vip_port(*network_id, addresses).await,
            Step::AddAddresses { port, subnets, .. } => {
                let update = PortUpdate {
                    add_fixed_ips: subnets.iter().map(|id| chosen_in(*id)).collect(),
                    ..PortUpdate::default()
                };
                deps.network
                    .update_port(*port, &update)
                    .await
                    .map(|_| ())
                    .map_err(driver_error)
            }
            Step::RemoveAddresses {
                port, addresses, ..
            } => {
                let update = PortUpdate {
                    remove_fixed_ips: addresses.clone(),
                    ..PortUpdate::default()
                };
                deps.network
                    .update_port(*port, &update)
                    .await
                    .map(|_| ())
                    .map_err(driver_error)
            }
            Step::AwaitAgent { amphora } => self.await_agent(*amphora).await,
            Step::AttachPort { amphora, port } => self.attach(*amphora, *port).await,
            Step::PushDocument {
                amphora, document, ..
            } => self.push(*amphora, document).await,
            Step::DetachPort { amphora, port } => deps
                .compute
                .detach_port(*amphora, *port)
                .await
                .map_err(driver_error),
            Step::DeleteServer { amphora } => self.delete_server(*amphora).await,
            Step::DeletePort { port, .. } => {
                deps.network.delete_port(*port).await.map_err(driver_error)
            }
            Step::CreateAmphora { .. }
            | Step::Record { .. }
            | Step::Retire { .. }
            | Step::Keep { .. }
            | Step::TakeOver { .. }
            | Step::Forget { .. } => self.write_rows(&[step]).await,
        }
    }

    async fn ensure_server(&self, amphora: AmphoraId) -> Result<(), StepError> {
        let ca = Arc::clone(&self.deps.ca);
        let certificate = tokio::task::spawn_blocking(move || ca.issue_server(amphora))
            .await
            .map_err(|error| StepError::Transient(format!("issue certificate: {error}")))?
            .map_err(|error| StepError::Permanent(chain(&error)))?;
        let placement = placement(self.deps, &self.graph.load_balancer).await?;
        self.record_birth(amphora, certificate.expires_at, &placement)
            .await?;
        let settings = &self.deps.settings;
        let conf = AgentSettings::new(
            amphora,
            settings.planner.heartbeat_controllers.clone(),
            settings.planner.heartbeat_interval,
            settings.heartbeat_key.clone(),
        );
        let conf = AgentSettings {
            bind_port: settings.agent_port,
            ..conf
        };
        let conf = agent_conf::render(&conf).map_err(driver_error)?;
        let client_ca = Secret::new(self.deps.ca.client_ca_pem());
        let spec = ServerSpec {
            amphora_id: amphora,
            load_balancer_id: self.graph.load_balancer.id,
            files: BTreeMap::from([
                (SERVER_PEM.to_owned(), certificate.pem),
                (CLIENT_CA_PEM.to_owned(), client_ca),
                (AGENT_CONF.to_owned(), conf),
            ]),
            placement,
        };
        let server = self
            .deps
            .compute
            .ensure_server(&spec)
            .await
            .map_err(driver_error)?;
        if server.status == ServerStatus::Error {
            return Err(StepError::Transient(format!(
                "server of amphora {amphora} failed to build"
            )));
        }
        Ok(())
    }

    /// Before the server is made, and once: one that is there already serves with the certificate it got first.
    async fn record_birth(
        &self,
        amphora: AmphoraId,
        expires_at: Timestamp,
        placement: &Placement,
    ) -> Result<(), StepError> {
        let recorded = self
            .graph
            .amphorae
            .iter()
            .any(|row| row.id == amphora && row.cert_expiration.is_some());
        if recorded {
            return Ok(());
        }
        self.save(|graph| {
            for row in &mut graph.amphorae {
                if row.id == amphora && row.cert_expiration.is_none() {
                    row.cert_expiration = Some(expires_at);
                    row.compute_flavor.clone_from(&placement.compute_flavor);
                }
            }
        })
        .await
    }

    async fn ensure_port(&self, wish: &PortWish) -> Result<(), StepError> {
        let amphora = wish.amphora;
        // Ports are found by device and name; those in member networks share a name.
        let (name, device_id) = match wish.purpose {
            PortPurpose::Base => (base_port_name(amphora), amphora.to_string()),
            PortPurpose::Member => (
                member_port_name(amphora),
                format!("{amphora}:{}", wish.network_id),
            ),
        };
        let spec = PortSpec {
            name,
            network_id: wish.network_id,
            fixed_ips: wish.subnets.iter().map(|id| chosen_in(*id)).collect(),
            device_id,
            device_owner: DEVICE_OWNER.to_owned(),
            project_id: Some(self.graph.load_balancer.project_id.clone()),
            allowed_address_pairs: wish.allowed_addresses.clone(),
            admin_state_up: true,
        };
        self.deps
            .network
            .ensure_port(&spec)
            .await
            .map(|_| ())
            .map_err(driver_error)
    }

    /// The network service names it anew, so its id is written down.
    async fn ensure_vip_port(
        &self,
        network_id: NetworkId,
        addresses: &[(SubnetId, IpAddr)],
    ) -> Result<(), StepError> {
        let lb = &self.graph.load_balancer;
        let fixed_ips = addresses
            .iter()
            .map(|(subnet_id, address)| FixedIpSpec {
                subnet_id: *subnet_id,
                ip_address: Some(*address),
            })
            .collect();
        let spec = vip_port_spec(lb.id, &lb.project_id, network_id, fixed_ips);
        let port = self
            .deps
            .network
            .ensure_port(&spec)
            .await
            .map_err(driver_error)?;
        tracing::warn!(port_id = %port.id, "VIP port was gone, it is made again");
        self.save(|graph| {
            let lb = &mut graph.load_balancer;
            lb.vip.port_id = port.id;
            lb.vip.port_is_ours = true;
            for vip in &mut lb.additional_vips {
                vip.port_id = port.id;
            }
        })
        .await
    }

    async fn attach(&self, amphora: AmphoraId, port: PortId) -> Result<(), StepError> {
        let Some(port) = self.observation.ports.get(&port) else {
            return Err(StepError::Transient(format!("port {port} was not seen")));
        };
        self.deps
            .compute
            .attach_port(amphora, port)
            .await
            .map_err(driver_error)
    }

    /// Tries until the agent answers, or the step's time is over.
    async fn await_agent(&self, amphora: AmphoraId) -> Result<(), StepError> {
        let settings = &self.deps.settings;
        let deadline = Instant::now() + settings.agent_wait;
        let mut known = self.observation.endpoints.get(&amphora).copied();
        loop {
            let why = match known {
                Some(endpoint) => match info(self.deps, &endpoint).await {
                    Ok(_) => return Ok(()),
                    Err(error) => chain(&error),
                },
                None => "its server has no address yet".to_owned(),
            };
            if Instant::now() >= deadline {
                return Err(StepError::Transient(format!(
                    "agent of amphora {amphora} does not answer: {why}"
                )));
            }
            tokio::time::sleep(settings.agent_poll).await;
            if known.is_none() {
                let observed = self
                    .deps
                    .compute
                    .observe_server(amphora)
                    .await
                    .map_err(driver_error)?;
                known = match observed {
                    Observed::Present(server) => endpoint(self.deps, &server),
                    Observed::Absent | Observed::Unsure => {
                        return Err(StepError::Transient(format!(
                            "server of amphora {amphora} is gone"
                        )));
                    }
                };
            }
        }
    }

    /// Claims the document's generation under the lease, then sends it: a worker that lost its lease sends nothing
    /// that an agent would take.
    async fn push(&self, amphora: AmphoraId, document: &AmphoraConfig) -> Result<(), StepError> {
        let Some(endpoint) = self.endpoint(amphora).await? else {
            return Err(StepError::Transient(format!(
                "server of amphora {amphora} has no address"
            )));
        };
        let mut claimed = false;
        self.save(|graph| {
            let row = graph.amphorae.iter_mut().find(|row| row.id == amphora);
            claimed = row.is_some_and(|row| {
                let newer = row.config_generation < document.generation;
                row.config_generation = row.config_generation.max(document.generation);
                newer
            });
        })
        .await?;
        if !claimed {
            return Err(StepError::Transient(format!(
                "document {} of amphora {amphora} was claimed before",
                document.generation
            )));
        }
        // What it could not serve is in the agent's info, which the next look at it reads.
        self.deps
            .amphora
            .put_config(&endpoint, document)
            .await
            .map(|_| ())
            .map_err(|error| amphora_error(&error))
    }

    /// What the server served since its last heartbeat is written down first, as absolute counters: should this be
    /// repeated, nothing counts twice.
    async fn delete_server(&self, amphora: AmphoraId) -> Result<(), StepError> {
        let answers = self.observation.world.agent(amphora).is_some();
        if let Some(endpoint) = self.observation.endpoints.get(&amphora)
            && answers
        {
            self.keep_statistics(endpoint).await?;
        }
        self.deps
            .compute
            .delete_server(amphora)
            .await
            .map_err(driver_error)
    }

    /// An agent that does not answer any more holds nothing up.
    async fn keep_statistics(&self, endpoint: &Endpoint) -> Result<(), StepError> {
        let amphora = endpoint.amphora_id;
        for attempt in 1..=TRIES {
            match stats(self.deps, endpoint).await {
                Ok(stats) => {
                    let samples = statistics::samples(amphora, &stats);
                    let kept = self.deps.store.add_listener_stats(&samples).await;
                    return kept.map_err(|error| store_error(&error));
                }
                Err(error) if attempt == TRIES => {
                    let error = chain(&error);
                    tracing::warn!(amphora_id = %amphora, error, "last counters of an amphora are lost");
                }
                Err(_) => tokio::time::sleep(self.deps.settings.agent_poll).await,
            }
        }
        Ok(())
    }

    async fn endpoint(&self, amphora: AmphoraId) -> Result<Option<Endpoint>, StepError> {
        if let Some(endpoint) = self.observation.endpoints.get(&amphora) {
            return Ok(Some(*endpoint));
        }
        let observed = self
            .deps
            .compute
            .observe_server(amphora)
            .await
            .map_err(driver_error)?;
        Ok(observed
            .present()
            .and_then(|server| endpoint(self.deps, &server)))
    }
}

/// What the load balancer's flavor and availability zone say. Their profiles cannot change while they are in use.
async fn placement(deps: &WorkerDeps, lb: &LoadBalancer) -> Result<Placement, StepError> {
    let mut placement = Placement::default();
    let profile = async |kind, named: Option<String>| match named {
        None => Ok(None),
        Some(named) => {
            let found = deps.store.offer_with_profile(kind, &named).await;
            let found = found.map_err(|error| store_error(&error))?;
            Ok::<_, StepError>(found.map(|(_, profile)| profile.data))
        }
    };
    let invalid = |fault: Fault| StepError::Permanent(fault.to_string());
    let flavor = lb.flavor_id.map(|id| id.to_string());
    if let Some(text) = profile(OfferKind::Flavor, flavor).await? {
        let data = FlavorData::parse(&text, &lb.provider).map_err(invalid)?;
        placement.compute_flavor = data.compute_flavor;
        placement.image_tag = data.amp_image_tag;
    }
    let zone = lb.availability_zone.clone();
    if let Some(text) = profile(OfferKind::AvailabilityZone, zone).await? {
        let data = ZoneData::parse(&text, &lb.provider).map_err(invalid)?;
        placement.compute_zone = data.compute_zone;
        placement.volume_zone = data.volume_zone;
        placement.management_network = data.management_network;
    }
    Ok(placement)
}

/// The network service chooses the address.
fn chosen_in(subnet_id: lb_model::SubnetId) -> FixedIpSpec {
    FixedIpSpec {
        subnet_id,
        ip_address: None,
    }
}

fn graver(worst: Option<StepError>, next: StepError) -> StepError {
    let weight = |error: &StepError| match error {
        StepError::LeaseLost => 2,
        StepError::Permanent(_) => 1,
        StepError::Transient(_) => 0,
    };
    match worst {
        Some(worst) if weight(&worst) >= weight(&next) => worst,
        Some(_) | None => next,
    }
}

pub(crate) fn driver_error(error: DriverError) -> StepError {
    let text = chain(&error);
    match error {
        // What the plan took for granted has changed: looking again helps.
        DriverError::UnknownPort(_)
        | DriverError::UnknownServer(_)
        | DriverError::AddressInUse { .. } => StepError::Transient(text),
        other if other.is_transient() => StepError::Transient(text),
        _ => StepError::Permanent(text),
    }
}

/// Only a request the agent calls wrong is hopeless; it may yet start, and a newer generation may be claimed.
fn amphora_error(error: &AmphoraError) -> StepError {
    match error {
        AmphoraError::Refused { .. } => StepError::Permanent(chain(error)),
        AmphoraError::Unreachable { .. }
        | AmphoraError::TimedOut { .. }
        | AmphoraError::Handshake { .. }
        | AmphoraError::OutOfDate { .. }
        | AmphoraError::Failed { .. }
        | AmphoraError::Protocol { .. }
        | AmphoraError::Local { .. } => StepError::Transient(chain(error)),
    }
}

pub(crate) fn store_error(error: &StoreError) -> StepError {
    StepError::Transient(chain(error))
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
