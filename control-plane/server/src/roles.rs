//! Wiring: which role needs what, and running them until a signal.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use lb_api::policy::Policy;
use lb_api::{ApiConfig, ApiState};
use lb_controllers::health_manager::{
    CountersReader, HealthManager, HealthManagerDeps, HealthManagerSettings, HeartbeatKeys,
    LivenessSettings,
};
use lb_controllers::housekeeping::{Housekeeping, HousekeepingSettings};
use lb_controllers::worker::{Deadlines, Settings, Worker, WorkerDeps};
use lb_drivers::{CertificateAuthority, Secret};
use lb_model::{Clock, Timestamp};
use lb_store::Store;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cloud::Cloud;
use crate::config::Config;
use crate::identity::AuthStrategy;
use crate::{database, http, identity, key, policy};

/// Project of load balancers whose request names none: without authentication there is nobody to ask.
const LOCAL_PROJECT: &str = "local";

/// How long roles may take to end; the worker's own limit is ten seconds.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(15);

/// Time between looks at the counters of refused heartbeats.
const COUNTERS_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Api,
    Worker,
    HealthManager,
    Housekeeping,
}

impl Role {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Api,
        Self::Worker,
        Self::HealthManager,
        Self::Housekeeping,
    ];
}

/// Built roles: every socket is bound, nothing runs.
pub(crate) struct Roles {
    api: Option<Api>,
    worker: Option<Worker>,
    health_manager: Option<HealthManager>,
    housekeeping: Option<Housekeeping>,
}

/// The API, bound.
struct Api {
    listener: TcpListener,
    router: axum::Router,
    policy: Arc<Policy>,
}

impl Roles {
    pub(crate) async fn build(config: Config, local: bool, roles: &[Role]) -> Result<Self> {
        database::make_state_dir(&config)?;
        let store = database::open(&config).await?;
        let cloud = Cloud::open(&config, local).await?;
        let key = heartbeat_key(&config)?;
        let clock = clock();
        let has = |role| roles.contains(&role);
        let api = if has(Role::Api) {
            Some(api(&config, store.clone(), &cloud, clock.clone()).await?)
        } else {
            None
        };
        let worker = if has(Role::Worker) {
            Some(worker(
                &config,
                store.clone(),
                &cloud,
                key.clone(),
                clock.clone(),
            )?)
        } else {
            None
        };
        let health_manager = if has(Role::HealthManager) {
            health_manager(&config, store.clone(), &cloud, &key, clock.clone())?
        } else {
            None
        };
        if health_manager.is_none() && roles == [Role::HealthManager] {
            bail!("nobody sends heartbeats with these drivers: a health manager has nothing to do");
        }
        let housekeeping = has(Role::Housekeeping).then(|| {
            let settings = HousekeepingSettings {
                cleanup_interval: Duration::from_secs(config.housekeeping.cleanup_interval_s),
                expiry_age: Duration::from_secs(config.housekeeping.expiry_age_s),
            };
            Housekeeping::new(store, settings, clock)
        });
        Ok(Self {
            api,
            worker,
            health_manager,
            housekeeping,
        })
    }

    /// Runs until SIGTERM or SIGINT, or until one role ends by itself, which is an error.
    pub(crate) async fn run(self) -> Result<()> {
        let (stop, stopping) = watch::channel(false);
        let stopped = || {
            let mut stopping = stopping.clone();
            async move {
                // The sender lives as long as this function.
                let _ = stopping.wait_for(|stop| *stop).await;
            }
        };
        let mut running: JoinSet<Result<()>> = JoinSet::new();
        if let Some(api) = self.api {
            println!("listening on {}", api.listener.local_addr()?);
            let stopped = stopped();
            running.spawn(async move {
                tokio::select! {
                    () = http::serve(api.listener, api.router, stopped) => Ok(()),
                    failed = policy::watch(api.policy) => failed.map(|never| match never {}),
                }
            });
        }
        if let Some(worker) = self.worker {
            let stopped = stopped();
            running.spawn(async move {
                worker.run(stopped).await;
                Ok(())
            });
        }
        if let Some(health_manager) = self.health_manager {
            let counters = health_manager.counters();
            let stopped = stopped();
            running.spawn(async move {
                tokio::select! {
                    ended = health_manager.run(stopped) => Ok(ended?),
                    never = log_refusals(counters) => match never {},
                }
            });
        }
        if let Some(housekeeping) = self.housekeeping {
            let stopped = stopped();
            running.spawn(async move {
                housekeeping.run(stopped).await;
                Ok(())
            });
        }
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let early = tokio::select! {
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            ended = running.join_next() => ended,
        };
        stop.send_replace(true);
        tracing::info!("stopping");
        let ended = tokio::time::timeout(SHUTDOWN_LIMIT, async {
            while let Some(ended) = running.join_next().await {
                ended.context("a role panicked")??;
            }
            Ok::<(), anyhow::Error>(())
        });
        match ended.await {
            Ok(ended) => ended?,
            Err(_) => tracing::warn!("roles that did not end are cut off"),
        }
        match early {
            None => Ok(()),
            Some(ended) => {
                ended.context("a role panicked")??;
                bail!("a role ended by itself")
            }
        }
    }
}

fn heartbeat_key(config: &Config) -> Result<Secret> {
    match &config.health_manager.heartbeat_key_file {
        Some(path) => key::read(path),
        None => key::read_or_create(&config.local.state_dir.join("heartbeat.key")),
    }
}

async fn api(config: &Config, store: Store, cloud: &Cloud, clock: Clock) -> Result<Api> {
    let policy = Arc::new(policy::load(&config.oslo_policy)?);
    let state = ApiState {
        store,
        network: cloud.network(),
        identity: identity::build(config)?,
        policy: Arc::clone(&policy),
        config: Arc::new(ApiConfig {
            base_uri: config.api.base_uri.clone(),
            pagination_max_limit: config.api.pagination_max_limit,
            lists: config.api.lists.clone(),
            valid_vip_networks: config.api.valid_vip_networks.clone(),
            denylist_vip_networks: config.api.denylist_vip_networks.clone(),
            default_project_id: (config.api.auth_strategy == AuthStrategy::NoAuth)
                .then(|| LOCAL_PROJECT.to_owned()),
            serve_network_lookups: true,
            rules: cloud.rules(),
            trust_proxy_headers: config.api.trust_proxy_headers,
            cors: config.cors.rules(),
            healthcheck: config.healthcheck.checks(),
            ..ApiConfig::default()
        }),
        clock,
    };
    let listener = TcpListener::bind(config.api.bind)
        .await
        .with_context(|| format!("bind the API to {}", config.api.bind))?;
    Ok(Api {
        listener,
        router: lb_api::router(state),
        policy,
    })
}

fn worker(
    config: &Config,
    store: Store,
    cloud: &Cloud,
    key: Secret,
    clock: Clock,
) -> Result<Worker> {
    let ca = Arc::new(authority(config)?);
    let operation = Duration::from_secs(config.worker.operation_timeout_s);
    let defaults = Settings::new(key);
    let settings = Settings {
        planner: lb_planner::Settings {
            heartbeat_controllers: cloud.controllers(config)?,
            heartbeat_interval: Duration::from_millis(config.health_manager.heartbeat_interval_ms),
            drain_timeout: Duration::from_secs(config.worker.drain_timeout_s),
        },
        tasks: config.worker.tasks,
        lease: Duration::from_millis(config.worker.lease_ms),
        poll: Duration::from_millis(config.worker.poll_ms),
        deadlines: Deadlines {
            create: operation,
            update: operation,
            failover: operation,
            delete: operation,
            compensation: operation,
        },
        ..defaults
    };
    Ok(Worker::new(WorkerDeps {
        store,
        compute: cloud.compute(),
        network: cloud.network(),
        amphora: cloud.amphora(ca.clone()),
        ca,
        settings,
        clock,
    }))
}

fn authority(config: &Config) -> Result<CertificateAuthority> {
    let default = config.local.state_dir.join("certificates");
    let dir: &Path = config.certificates.dir.as_deref().unwrap_or(&default);
    CertificateAuthority::load_or_create(dir)
        .with_context(|| format!("certificate authority in {}", dir.display()))
}

fn health_manager(
    config: &Config,
    store: Store,
    cloud: &Cloud,
    key: &Secret,
    clock: Clock,
) -> Result<Option<HealthManager>> {
    let settings = &config.health_manager;
    let Some(socket) = cloud.heartbeats(settings.bind)? else {
        return Ok(None);
    };
    let timeout = Duration::from_millis(settings.heartbeat_timeout_ms);
    let deps = HealthManagerDeps {
        store,
        compute: cloud.compute(),
        socket,
        clock,
    };
    let liveness = LivenessSettings {
        heartbeat_timeout: timeout,
        heartbeat_interval: Duration::from_millis(settings.heartbeat_interval_ms),
        // Ten looks in the time of the timeout: a death is seen within a tenth more than it.
        scan_interval: timeout / 10,
        failover_threshold: settings.failover_threshold,
        ..LivenessSettings::default()
    };
    let settings = HealthManagerSettings {
        liveness,
        keys: HeartbeatKeys::new([key.expose().as_bytes().to_vec()]),
    };
    Ok(Some(HealthManager::new(deps, settings)))
}

/// Logs the counters of the health manager when more was refused.
async fn log_refusals(reader: CountersReader) -> Infallible {
    let mut logged = 0;
    loop {
        tokio::time::sleep(COUNTERS_INTERVAL).await;
        let counters = reader.read();
        if counters.refused_total() != logged {
            logged = counters.refused_total();
            tracing::warn!(?counters, "heartbeats were refused");
        }
    }
}

/// The clock of this machine.
fn clock() -> Clock {
    Arc::new(|| {
        let micros = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
            });
        Timestamp::from_micros(micros)
    })
}
