//! Which drivers the roles work with: those of the local stack, or no-op ones.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use lb_drivers::amphora::HttpsAmphoraDriver;
use lb_drivers::local::{LocalStack, StackConfig};
use lb_drivers::noop::{NoopAmphoraDriver, NoopCompute, NoopNetwork};
use lb_drivers::{AmphoraDriver, CertificateAuthority, Compute, Network};
use lb_model::{ProviderSupport, Rules};
use tokio::net::UdpSocket;

use crate::config::{Config, Drivers};

pub(crate) enum Cloud {
    /// Network namespaces of this machine.
    Local(LocalStack),
    /// Nothing: everything that is asked for is there.
    Noop {
        network: NoopNetwork,
        amphora: NoopAmphoraDriver,
    },
}

impl Cloud {
    pub(crate) async fn open(config: &Config, local: bool) -> Result<Self> {
        if local {
            return Ok(Self::Local(open_stack(config).await?));
        }
        let Drivers {
            compute,
            network,
            amphora,
        } = config.drivers;
        if compute.is_none() || network.is_none() || amphora.is_none() {
            bail!(
                "drivers.compute, drivers.network, drivers.amphora: without --local each must be set; this version has compute_noop_driver, network_noop_driver and amphora_noop_driver"
            );
        }
        tracing::warn!("no-op drivers: load balancers are rows in the database, nothing serves");
        Ok(Self::Noop {
            network: NoopNetwork::default(),
            amphora: NoopAmphoraDriver::default(),
        })
    }

    pub(crate) fn compute(&self) -> Arc<dyn Compute> {
        match self {
            Self::Local(stack) => Arc::new(stack.compute()),
            Self::Noop { .. } => Arc::new(NoopCompute),
        }
    }

    pub(crate) fn network(&self) -> Arc<dyn Network> {
        match self {
            Self::Local(stack) => Arc::new(stack.network()),
            Self::Noop { network, .. } => Arc::new(network.clone()),
        }
    }

    pub(crate) fn amphora(&self, ca: Arc<CertificateAuthority>) -> Arc<dyn AmphoraDriver> {
        match self {
            Self::Local(stack) => {
                Arc::new(HttpsAmphoraDriver::new(ca).in_netns(stack.fabric().clone()))
            }
            Self::Noop { amphora, .. } => Arc::new(amphora.clone()),
        }
    }

    /// What the API lets a client ask for: without an amphora there is nothing that it cannot do.
    pub(crate) fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        match self {
            Self::Local(_) => {}
            Self::Noop { .. } => {
                for provider in &mut rules.providers {
                    provider.support = ProviderSupport::EVERYTHING;
                }
            }
        }
        rules
    }

    /// Where heartbeats come in; `None` where nobody sends any.
    pub(crate) fn heartbeats(&self, bind: SocketAddr) -> Result<Option<UdpSocket>> {
        match self {
            Self::Local(stack) => {
                let socket = stack
                    .fabric()
                    .bind_udp(bind)
                    .context("bind the health manager")?;
                Ok(Some(UdpSocket::from_std(socket)?))
            }
            Self::Noop { .. } => Ok(None),
        }
    }

    /// Where amphorae send their heartbeats: as configured, else to this machine's address on the management network.
    pub(crate) fn controllers(&self, config: &Config) -> Result<Vec<SocketAddr>> {
        let configured = &config.health_manager.controllers;
        match self {
            Self::Local(stack) if configured.is_empty() => Ok(vec![SocketAddr::new(
                stack.controller_address()?.into(),
                config.health_manager.bind.port(),
            )]),
            Self::Local(_) | Self::Noop { .. } => Ok(configured.clone()),
        }
    }
}

async fn open_stack(config: &Config) -> Result<LocalStack> {
    let local = &config.local;
    let networks = local
        .networks
        .as_ref()
        .ok_or_else(|| anyhow!("local.networks: no file declares the tenant networks"))?;
    let agent = match &local.agent {
        Some(agent) => agent.clone(),
        None => std::env::current_exe()?.with_file_name("amphora-agent"),
    };
    if !agent.exists() {
        bail!("local.agent: {}: there is no such program", agent.display());
    }
    let stack = StackConfig::new(&local.name, &local.state_dir, networks, agent);
    let stack = LocalStack::open(stack)
        .await
        .context("open the local stack")?;
    stack.record_process().await?;
    Ok(stack)
}
