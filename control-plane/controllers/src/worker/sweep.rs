//! Servers and ports of ours that belong to no load balancer: deleted after a grace period.
//!
//! Rows are written before anything is made, and removed after everything is gone, so such objects come only from
//! outside the reconciler: the VIP port of a create call that died, a database that was restored. An object must be
//! seen without an owner for the whole grace period; one whose row appears meanwhile is left alone.

use std::collections::BTreeMap;
use std::fmt;

use lb_drivers::network::{DEVICE_OWNER, Port, PortFilter};
use lb_model::{AmphoraId, LoadBalancerId, PortId, Timestamp};

use super::WorkerDeps;
use super::apply::chain;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stray {
    /// Servers go first: their ports are free then.
    Server(AmphoraId),
    Port(PortId),
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stray::Server(amphora) => write!(f, "server of amphora {amphora}"),
            Stray::Port(port) => write!(f, "port {port}"),
        }
    }
}

/// Remembers since when an object is without an owner.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    seen: BTreeMap<Stray, Timestamp>,
}

impl Sweeper {
    /// One search; deletes what is without an owner for long enough.
    pub(crate) async fn sweep(&mut self, deps: &WorkerDeps) {
        let strays = match strays(deps).await {
            Ok(strays) => strays,
            Err(reason) => {
                tracing::warn!(reason, "look for objects that belong to nothing");
                return;
            }
        };
        let now = (deps.clock)();
        self.seen.retain(|stray, _| strays.contains(stray));
        let grace = i64::try_from(deps.settings.sweep_grace.as_millis()).unwrap_or(i64::MAX);
        for stray in strays {
            let since = *self.seen.entry(stray).or_insert(now);
            if now.millis_since(since) < grace {
                continue;
            }
            let deleted = match stray {
                Stray::Server(amphora) => deps.compute.delete_server(amphora).await,
                Stray::Port(port) => deps.network.delete_port(port).await,
            };
            match deleted {
                Ok(()) => {
                    tracing::info!(%stray, "deleted what belonged to nothing");
                    self.seen.remove(&stray);
                }
                Err(error) => tracing::warn!(
                    %stray,
                    reason = chain(&error),
                    "delete what belongs to nothing"
                ),
            }
        }
    }
}

async fn strays(deps: &WorkerDeps) -> Result<Vec<Stray>, String> {
    let mut strays = Vec::new();
    let servers = deps.compute.list_servers().await;
    for server in servers.map_err(|error| chain(&error))? {
        if !amphora_exists(deps, server.amphora_id).await? {
            strays.push(Stray::Server(server.amphora_id));
        }
    }
    let ours = PortFilter {
        device_owner: Some(DEVICE_OWNER.to_owned()),
        name_prefix: Some(PREFIX.to_owned()),
        ..PortFilter::default()
    };
    let ports = deps.network.list_ports(&ours).await;
    for port in ports.map_err(|error| chain(&error))? {
        let owned = match owner(&port) {
            Some(Owner::Amphora(id)) => amphora_exists(deps, id).await?,
            Some(Owner::LoadBalancer(id)) => deps
                .store
                .load_balancer_exists(id)
                .await
                .map_err(|error| chain(&error))?,
            // Not a name we give: not ours to judge.
            None => true,
        };
        if !owned {
            strays.push(Stray::Port(port.id));
        }
    }
    strays.sort();
    Ok(strays)
}

async fn amphora_exists(deps: &WorkerDeps, id: AmphoraId) -> Result<bool, String> {
    let owner = deps.store.load_balancer_of_amphora(id).await;
    Ok(owner.map_err(|error| chain(&error))?.is_some())
}

const PREFIX: &str = "octavia-lb-";

#[derive(Debug, PartialEq, Eq)]
enum Owner {
    Amphora(AmphoraId),
    LoadBalancer(LoadBalancerId),
}

/// Whom a port's name says it belongs to.
fn owner(port: &Port) -> Option<Owner> {
    let rest = port.name.strip_prefix(PREFIX)?;
    for kind in ["vrrp-", "member-"] {
        if let Some(id) = rest.strip_prefix(kind) {
            return id.parse().ok().map(Owner::Amphora);
        }
    }
    rest.parse().ok().map(Owner::LoadBalancer)
}
