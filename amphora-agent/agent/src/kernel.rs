//! The data plane that is real: the tenant's network namespace with its links, the fast path, the proxy and the
//! checks of members.
//!
//! An apply looks at the kernel, plans, carries the plan out, and looks again until nothing is left to do. One action
//! that fails does not stop the others: what could not be done is told, with the object and the namespace it was
//! meant for, and tried again by the agent.

mod announce;
mod checks;
mod fast;
pub mod namespace;
mod netlink;
mod readings;
pub mod tenant;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use amphora_api::{AmphoraConfig, InterfaceInfo, ListenerInfo, ListenerPath};
use amphora_health::{Status, TargetKey};
use amphora_proxy::Proxy;
use async_trait::async_trait;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::agent::chain;
use crate::compile::{Compiled, compile, targets};
use crate::config::Config;
use crate::dataplane::{DataPlane, Outcome, Readings};
use crate::down::DownMembers;
use crate::observed::{Link, Observed, Place, mac_text};
use crate::plan::{Action, Plan, needs_forwarding, plan};
use crate::sysctl;

use checks::Checks;
use fast::FastThread;
use namespace::{Namespace, NamespaceError};
use netlink::{Netlink, NetlinkError};
use tenant::{Tenant, entering};

/// How long a new document's interfaces may take to appear (a port is plugged just before).
const PLUG_TIMEOUT: Duration = Duration::from_secs(2);
const PLUG_POLL: Duration = Duration::from_millis(20);

/// A switch port that just came up may drop packets for up to a second (Linux' own bridge learns of a carrier that late).
/// A check made in that time would fail, and the first failure takes a member down.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Looks at the kernel after which an apply gives up; two are enough unless somebody else changes things.
const MAX_ROUNDS: usize = 4;

/// What connections of the proxy get to end their current response when the agent ends.
const PROXY_GRACE: Duration = Duration::from_secs(2);

pub struct Kernel {
    agent_namespace: Namespace,
    tenant: Tenant,
    /// Socket in the agent's namespace.
    outside: Netlink,
    /// Socket in the tenant's namespace.
    inside: Netlink,
    fast: FastThread,
    /// Started with the first listener that needs it.
    proxy: Mutex<Option<Arc<Proxy>>>,
    proxy_threads: usize,
    checks: Checks,
    memory: Mutex<Memory>,
}

/// What the last apply left.
#[derive(Default)]
struct Memory {
    /// Generation whose interfaces were waited for already.
    waited_for: Option<u64>,
    /// When the interfaces that were brought up last are taken to carry packets.
    settles_at: Option<Instant>,
    listeners: BTreeMap<Uuid, ListenerInfo>,
    /// Announcements that may still be repeated.
    repeats: BTreeMap<IpAddr, AbortHandle>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    #[error("start {what}")]
    Start {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

/// Why one action was not carried out.
#[derive(Debug, thiserror::Error)]
enum ActionError {
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Kernel {
    /// Makes the tenant's namespace when it is not there, and what lives in it.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        let start = |what| move |source| StartError::Start { what, source };
        let agent_namespace = Namespace::current()?;
        let namespace = Namespace::ensure(&config.tenant_netns)?;
        let tenant = Tenant::new(namespace).map_err(start("the tenant's runtime"))?;
        let outside =
            Netlink::open(Place::Agent).map_err(start("netlink in the agent's namespace"))?;
        let inside = tenant
            .run(async { Netlink::open(Place::Tenant) })
            .await
            .and_then(|opened| opened)
            .map_err(start("netlink in the tenant's namespace"))?;
        let options = xdp_lb::Options {
            pin_dir: config.bpf_dir.clone(),
            flow_capacity: config.flow_capacity,
        };
        let fast = FastThread::start(tenant.namespace(), options)
            .map_err(start("the fast path's thread"))?;
        let checks = Checks::start(&tenant, DownMembers::load(&config.state_dir));
        Ok(Kernel {
            agent_namespace,
            tenant,
            outside,
            inside,
            fast,
            proxy: Mutex::new(None),
            proxy_threads: config.proxy_threads,
            checks,
            memory: Mutex::default(),
        })
    }

    async fn observe(&self) -> Result<Observed, ActionError> {
        let mut links = self.inside.links().await?;
        let routes = self.inside.routes(&links).await?;
        let rules = self.inside.rules().await?;
        links.extend(self.outside.links().await?);
        let sysctls = self.tenant.run_blocking(sysctl::read_all).await?;
        Ok(Observed {
            links,
            routes,
            rules,
            sysctls,
        })
    }

    /// Observes and plans; the first time for a document, waits a moment for interfaces that are being plugged.
    async fn look(&self, document: &AmphoraConfig) -> Result<(Observed, Plan), ActionError> {
        let wait = {
            let mut memory = lock(&self.memory);
            memory.waited_for.replace(document.generation) != Some(document.generation)
        };
        let deadline = Instant::now() + PLUG_TIMEOUT;
        loop {
            let observed = self.observe().await?;
            let plan = plan(document, &observed);
            if plan.problems.is_empty() || !wait || Instant::now() >= deadline {
                return Ok((observed, plan));
            }
            tokio::time::sleep(PLUG_POLL).await;
        }
    }

    async fn carry_out(&self, action: &Action, observed: &Observed) -> Result<(), ActionError> {
        match action {
            Action::SetSysctl { key, value, .. } => {
                let (key, value) = (key.clone(), value.clone());
                self.tenant
                    .run_blocking(move || sysctl::write(&key, &value))
                    .await??;
            }
            Action::MoveLink { index, to, .. } => {
                let namespace = self.tenant.namespace().raw_fd();
                self.outside.move_link(*index, to, namespace).await?;
            }
            Action::RenameLink { index, to, .. } => self.inside.rename(*index, to).await?,
            Action::SetMtu { device, mtu_bytes } => {
                self.inside.set_mtu(device, *mtu_bytes).await?;
            }
            Action::SetUp { device } => {
                self.inside.set_up(device).await?;
                if device != "lo" {
                    lock(&self.memory).settles_at = Some(Instant::now() + SETTLE_TIME);
                }
            }
            Action::AddAddress { device, address } => {
                self.inside.add_address(device, *address).await?;
            }
            Action::AddRoute(route) => self.inside.add_route(route).await?,
            Action::AddRule(source) => self.inside.add_rule(*source).await?,
            // Carried out by the caller, who keeps what it reports.
            Action::DataPlane => {}
            Action::Announce { device, address } => {
                let index = self.inside.index(device).await?;
                let links = self.inside.links().await?;
                let mac = links
                    .iter()
                    .chain(&observed.links)
                    .find(|link| link.place == Place::Tenant && link.index == index)
                    .map(|link| link.mac)
                    .ok_or_else(|| NetlinkError::NoDevice(device.clone()))?;
                let address = *address;
                let repeats = self
                    .tenant
                    .run(async move { announce::announce(index, mac, address) })
                    .await??;
                self.fall_silent(address);
                lock(&self.memory).repeats.insert(address, repeats);
            }
            Action::DeleteRoute(route) => self.inside.delete_route(route).await?,
            Action::DeleteRule(source) => self.inside.delete_rule(*source).await?,
            Action::DeleteAddress { device, address } => {
                self.inside.delete_address(device, *address).await?;
            }
            Action::ReleaseLink { index, to, .. } => {
                self.inside.set_down(*index).await?;
                let namespace = self.agent_namespace.raw_fd();
                self.inside.move_link(*index, to, namespace).await?;
            }
        }
        Ok(())
    }

    /// Announces the address no more.
    fn fall_silent(&self, address: IpAddr) {
        if let Some(repeats) = lock(&self.memory).repeats.remove(&address) {
            repeats.abort();
        }
    }

    /// Tells fast path, proxy and checks what the document and the members' states say.
    async fn data_plane(&self, document: &AmphoraConfig, outcome: &mut Outcome) {
        let states = self.checks.states();
        self.checks.save(&states);
        let links = match self.inside.links().await {
            Ok(links) => links,
            Err(error) => {
                outcome
                    .problems
                    .push(format!("look at interfaces: {}", chain(&error)));
                return;
            }
        };
        let wanted = needs_forwarding(document);
        let fast = if wanted || self.fast.has_pins() {
            Some(self.fast.open().await)
        } else {
            None
        };
        let down = match &fast {
            Some(Err(reason)) => Some(reason.as_str()),
            Some(Ok(())) | None => None,
        };
        if let (Some(reason), true) = (down, wanted) {
            tracing::warn!(reason, "no fast path; streams go through the proxy");
        }
        let compiled = compile(document, &links, &states, down);
        let report = match &fast {
            Some(Ok(())) => Some(self.fast.apply(compiled.fast.clone()).await),
            Some(Err(reason)) if wanted => Some(Err(reason.clone())),
            Some(Err(_)) | None => None,
        };
        self.apply_proxy(&compiled, outcome).await;
        self.tell(document, &links, compiled, report, outcome);
        self.check_members(document, &states);
    }

    /// Checks go to the members the document says; new ones wait until fresh interfaces have settled.
    fn check_members(&self, document: &AmphoraConfig, known: &BTreeMap<TargetKey, Status>) {
        let mut targets = targets(document);
        let settles_at = lock(&self.memory).settles_at;
        if settles_at.is_some_and(|at| Instant::now() < at) {
            targets.retain(|target| known.contains_key(&target.key));
        }
        self.checks.set_targets(targets);
    }

    async fn apply_proxy(&self, compiled: &Compiled, outcome: &mut Outcome) {
        let running = lock(&self.proxy).clone();
        let proxy = match running {
            Some(proxy) => proxy,
            None if compiled.proxy.listeners.is_empty() => return,
            None => match self.start_proxy().await {
                Ok(proxy) => proxy,
                Err(error) => {
                    outcome.problems.push(format!("start the proxy: {error}"));
                    for listener in &compiled.proxy.listeners {
                        outcome
                            .failed_listeners
                            .insert(listener.id, "the proxy does not run".to_owned());
                    }
                    return;
                }
            },
        };
        let snapshot = compiled.proxy.clone();
        let restrictions = compiled.restrictions.clone();
        let applied = tokio::task::spawn_blocking(move || {
            proxy.restrict(restrictions);
            proxy.apply(snapshot)
        });
        match applied.await {
            Ok(report) => {
                for error in report.errors {
                    outcome
                        .failed_listeners
                        .insert(error.listener, chain(&error));
                }
            }
            Err(error) => outcome.problems.push(format!("apply the proxy: {error}")),
        }
    }

    async fn start_proxy(&self) -> Result<Arc<Proxy>, String> {
        let options = amphora_proxy::Options {
            threads: self.proxy_threads,
            on_thread_start: Some(Arc::new(entering(self.tenant.namespace()))),
        };
        let proxy = tokio::task::spawn_blocking(move || Proxy::start(options))
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| chain(&error))?;
        let proxy = Arc::new(proxy);
        *lock(&self.proxy) = Some(Arc::clone(&proxy));
        Ok(proxy)
    }

    /// Puts what the engines say into the outcome.
    fn tell(
        &self,
        document: &AmphoraConfig,
        links: &[Link],
        compiled: Compiled,
        report: Option<Result<xdp_lb::Report, String>>,
        outcome: &mut Outcome,
    ) {
        let (attached, why_not) = match report {
            Some(Ok(report)) => (report.interfaces, String::new()),
            Some(Err(reason)) => {
                let services = &compiled.fast.services;
                for service in services {
                    outcome
                        .failed_listeners
                        .insert(service.id, format!("fast path: {reason}"));
                }
                if !services.is_empty() {
                    outcome
                        .problems
                        .push(format!("apply the fast path: {reason}"));
                }
                (Vec::new(), reason)
            }
            None => (Vec::new(), "no listener needs the fast path".to_owned()),
        };
        outcome.failed_listeners.extend(compiled.failed);
        outcome.interfaces = document
            .interfaces
            .iter()
            .map(|interface| {
                let link = links
                    .iter()
                    .find(|link| mac_text(link.mac) == interface.mac_address);
                let attached = link.and_then(|link| {
                    attached
                        .iter()
                        .find(|attached| attached.ifindex == link.index)
                });
                InterfaceInfo {
                    name: interface.name.clone(),
                    mac_address: interface.mac_address.clone(),
                    addresses: link.map(|link| link.addresses.clone()).unwrap_or_default(),
                    attach: attached.map_or_else(
                        || "none".to_owned(),
                        |attached| readings::mode_text(attached.mode).to_owned(),
                    ),
                    attach_reason: match (link, attached) {
                        (None, _) => "the interface is not here".to_owned(),
                        (Some(_), Some(attached)) => attached.reason.clone(),
                        (Some(_), None) => why_not.clone(),
                    },
                }
            })
            .collect();
        let mut memory = lock(&self.memory);
        let now: BTreeMap<_, _> = compiled
            .listeners
            .iter()
            .filter(|info| !outcome.failed_listeners.contains_key(&info.id))
            .map(|info| (info.id, info.clone()))
            .collect();
        for info in now.values() {
            if memory.listeners.get(&info.id) != Some(info) {
                let engine = match info.path {
                    ListenerPath::Fast => "fast path",
                    ListenerPath::Proxy => "proxy",
                };
                outcome.actions.push(format!(
                    "serve listener {} by the {engine}: {}",
                    info.id, info.reason
                ));
            }
        }
        for id in memory.listeners.keys() {
            if !now.contains_key(id) {
                outcome.actions.push(format!("stop serving listener {id}"));
            }
        }
        memory.listeners = now;
        outcome.listeners = compiled.listeners;
    }
}

#[async_trait]
impl DataPlane for Kernel {
    async fn apply(&self, document: &AmphoraConfig) -> Outcome {
        let mut outcome = Outcome::default();
        for round in 1.. {
            let (observed, plan) = match self.look(document).await {
                Ok(seen) => seen,
                Err(error) => {
                    outcome
                        .problems
                        .push(format!("look at the kernel: {}", chain(&error)));
                    return outcome;
                }
            };
            if round > 1 && (plan.is_settled() || !outcome.problems.is_empty()) {
                // As they are now, after what was deleted last.
                for interface in &mut outcome.interfaces {
                    interface.addresses = addresses(&observed, &interface.mac_address);
                }
                break;
            }
            if round > MAX_ROUNDS {
                let left: Vec<_> = plan.actions.iter().map(ToString::to_string).collect();
                outcome
                    .problems
                    .push(format!("the kernel still differs: {}", left.join(", ")));
                break;
            }
            outcome.problems.extend(plan.problems.iter().cloned());
            for action in &plan.actions {
                if let Action::DeleteAddress { address, .. } = action {
                    self.fall_silent(address.addr());
                }
            }
            for action in &plan.actions {
                if *action == Action::DataPlane {
                    self.data_plane(document, &mut outcome).await;
                    continue;
                }
                match self.carry_out(action, &observed).await {
                    Ok(()) => outcome.actions.push(action.to_string()),
                    Err(error) if !is_required(action) => {
                        tracing::debug!(%action, error = chain(&error), "passed over");
                    }
                    Err(error) => outcome.problems.push(format!(
                        "{action} (namespace {}): {}",
                        self.tenant.namespace().name(),
                        chain(&error)
                    )),
                }
            }
        }
        outcome
    }

    async fn refresh(&self, document: &AmphoraConfig) -> Outcome {
        let mut outcome = Outcome::default();
        self.data_plane(document, &mut outcome).await;
        outcome
    }

    async fn member_changed(&self) {
        let settles_at = lock(&self.memory).settles_at;
        let settled = async {
            match settles_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.checks.changed() => {}
            () = settled => lock(&self.memory).settles_at = None,
        }
    }

    async fn readings(&self) -> Readings {
        let fast = self.fast.stats().await;
        let proxy = lock(&self.proxy).clone().map(|proxy| proxy.stats());
        readings::readings(fast.as_ref(), proxy.as_ref(), self.checks.states())
    }

    async fn stop(&self) {
        let proxy = lock(&self.proxy).take();
        if let Some(proxy) = proxy.and_then(Arc::into_inner) {
            let ended = tokio::task::spawn_blocking(move || proxy.shutdown(PROXY_GRACE)).await;
            if let Err(error) = ended {
                tracing::error!(%error, "end the proxy");
            }
        }
        self.fast.stop();
    }
}

fn addresses(observed: &Observed, mac: &str) -> Vec<ipnet::IpNet> {
    observed
        .links
        .iter()
        .find(|link| link.place == Place::Tenant && mac_text(link.mac) == mac)
        .map(|link| link.addresses.clone())
        .unwrap_or_default()
}

fn is_required(action: &Action) -> bool {
    match action {
        Action::SetSysctl { required, .. } => *required,
        // A neighbour that is not told finds out by itself.
        Action::Announce { .. } => false,
        _ => true,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
