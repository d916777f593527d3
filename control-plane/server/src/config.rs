//! The configuration file: TOML, read once, every problem reported together, unknown keys refused.
//!
//! Each field names the option of Octavia it mirrors, where there is one. Secrets are given by file path, except the
//! password of the database, which is part of its URL, and those of Keystone's service user; they are never shown.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lb_api::{CorsConfig, HealthcheckConfig};
use lb_model::{COUNTED, PerResource, UNLIMITED};
use serde::{Deserialize, Serialize};

use crate::identity::{AuthStrategy, KeystoneAuthtoken};
use crate::policy::OsloPolicy;

/// Everything a process of the control plane can be told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) database: Database,
    pub(crate) api: Api,
    pub(crate) keystone_authtoken: KeystoneAuthtoken,
    pub(crate) oslo_policy: OsloPolicy,
    pub(crate) cors: Cors,
    pub(crate) healthcheck: Healthcheck,
    pub(crate) worker: Worker,
    pub(crate) health_manager: HealthManager,
    pub(crate) housekeeping: Housekeeping,
    pub(crate) certificates: Certificates,
    pub(crate) drivers: Drivers,
    pub(crate) quotas: Quotas,
    pub(crate) local: Local,
}

/// `[database]`
#[derive(Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Database {
    /// `sqlite://PATH`, `mysql://…` or `postgres://…` (`database.connection`); a file in the state directory when empty.
    pub(crate) url: String,
}

/// `[api]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Api {
    /// Address and port of the REST API (`api_settings.bind_host`, `bind_port`).
    pub(crate) bind: SocketAddr,
    /// `keystone`, or `noauth` where whoever reaches the API may do everything (`api_settings.auth_strategy`).
    pub(crate) auth_strategy: AuthStrategy,
    /// What links in answers begin with; from the request when absent (`api_settings.api_base_uri`).
    pub(crate) base_uri: Option<String>,
    /// Items of a page at most (`api_settings.pagination_max_limit`).
    pub(crate) pagination_max_limit: u64,
    /// `[api.lists]`: what lists can be asked for (`api_settings.allow_filtering` and its like).
    pub(crate) lists: lb_api::ListFeatures,
    /// Networks that VIPs may be in; all when empty (`networking.valid_vip_networks`).
    pub(crate) valid_vip_networks: Vec<lb_model::NetworkId>,
    /// Networks that VIPs may not be in (`networking.denylist_vip_networks`).
    pub(crate) denylist_vip_networks: Vec<lb_model::NetworkId>,
    /// Links start as the headers of a proxy say (`oslo_middleware.enable_proxy_headers_parsing`).
    pub(crate) trust_proxy_headers: bool,
}

/// `[cors]`: pages of other origins that may use the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cors {
    /// `https://dashboard.example`, as browsers send it, or `*` (`cors.allowed_origin`).
    pub(crate) allowed_origins: Vec<String>,
    /// (`cors.allow_credentials`)
    pub(crate) allow_credentials: bool,
    /// Seconds (`cors.max_age`).
    pub(crate) max_age_s: u32,
    /// (`cors.allow_methods`)
    pub(crate) allow_methods: Vec<String>,
    /// (`cors.allow_headers`)
    pub(crate) allow_headers: Vec<String>,
    /// (`cors.expose_headers`)
    pub(crate) expose_headers: Vec<String>,
}

/// `[healthcheck]`: `GET /healthcheck` for load balancers and monitors in front of the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Healthcheck {
    /// (`api_settings.healthcheck_enabled`)
    pub(crate) enabled: bool,
    /// (`healthcheck.detailed`)
    pub(crate) detailed: bool,
    /// Ask the database (`octavia_db_check` of `healthcheck.backends`).
    pub(crate) database: bool,
    /// Unhealthy while this file exists (`healthcheck.disable_by_file_path`).
    pub(crate) disable_by_file: Option<PathBuf>,
    /// Milliseconds that a finding is kept (`api_settings.healthcheck_refresh_interval`).
    pub(crate) refresh_ms: u64,
}

/// `[worker]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Worker {
    /// Load balancers worked on at once (`task_flow.max_workers`).
    pub(crate) tasks: usize,
    /// Milliseconds a claim lasts without being renewed: how long a dead worker's work waits for another.
    pub(crate) lease_ms: u64,
    /// Milliseconds between looks for work that nobody announced.
    pub(crate) poll_ms: u64,
    /// Seconds until an operation that cannot succeed ends in ERROR.
    pub(crate) operation_timeout_s: u64,
    /// Seconds that a replaced amphora may go on with its connections in a planned failover.
    pub(crate) drain_timeout_s: u64,
}

/// `[health_manager]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HealthManager {
    /// Where heartbeats are received (`health_manager.bind_ip`, `bind_port`).
    pub(crate) bind: SocketAddr,
    /// Where amphorae send them: every health manager of the deployment (`health_manager.controller_ip_port_list`).
    /// Filled in by the local stack.
    pub(crate) controllers: Vec<SocketAddr>,
    /// File with the shared key (`health_manager.heartbeat_key`). Made by the local stack when absent.
    pub(crate) heartbeat_key_file: Option<PathBuf>,
    /// Milliseconds between heartbeats (`health_manager.heartbeat_interval`).
    pub(crate) heartbeat_interval_ms: u64,
    /// Milliseconds of silence after which an amphora is replaced (`health_manager.heartbeat_timeout`).
    pub(crate) heartbeat_timeout_ms: u64,
    /// So many silent amphorae at once stop automatic failover (`health_manager.failover_threshold`).
    pub(crate) failover_threshold: Option<usize>,
}

/// `[housekeeping]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Housekeeping {
    /// Seconds between purges (`house_keeping.cleanup_interval`).
    pub(crate) cleanup_interval_s: u64,
    /// Seconds a deleted row is kept (`house_keeping.load_balancer_expiry_age`).
    pub(crate) expiry_age_s: u64,
}

/// `[certificates]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Certificates {
    /// Folder of the certificate authority (`certificates.ca_certificate`, `ca_private_key`); made when absent.
    pub(crate) dir: Option<PathBuf>,
}

/// `[drivers]`, used without `--local`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Drivers {
    /// Where amphorae run (`controller_worker.compute_driver`).
    pub(crate) compute: Option<ComputeDriver>,
    /// Who gives VIPs and ports (`controller_worker.network_driver`).
    pub(crate) network: Option<NetworkDriver>,
    /// How agents are spoken to (`controller_worker.amphora_driver`).
    pub(crate) amphora: Option<AmphoraDriver>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ComputeDriver {
    #[serde(rename = "compute_noop_driver")]
    Noop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NetworkDriver {
    #[serde(rename = "network_noop_driver")]
    Noop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AmphoraDriver {
    #[serde(rename = "amphora_noop_driver")]
    Noop,
}

/// `[quotas]`: limits of projects that have none of their own; -1 is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Quotas {
    pub(crate) default_load_balancer_quota: i32,
    pub(crate) default_listener_quota: i32,
    pub(crate) default_pool_quota: i32,
    pub(crate) default_member_quota: i32,
    pub(crate) default_health_monitor_quota: i32,
    pub(crate) default_l7policy_quota: i32,
    pub(crate) default_l7rule_quota: i32,
}

/// `[local]`, used with `--local`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Local {
    /// First part of the name of every network namespace; 1-16 lower-case letters or digits.
    pub(crate) name: String,
    /// Database, keys, ports and amphorae live here.
    pub(crate) state_dir: PathBuf,
    /// File that declares the tenant networks.
    pub(crate) networks: Option<PathBuf>,
    /// The agent's binary; beside this one when absent.
    pub(crate) agent: Option<PathBuf>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("url", &redacted(&self.url))
            .finish()
    }
}

/// A URL without the password it may hold.
fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    match rest.rsplit_once('@') {
        Some((user, host)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:***@{host}")
        }
        None => url.to_owned(),
    }
}

impl Default for Api {
    fn default() -> Self {
        Self {
            bind: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9876)),
            auth_strategy: AuthStrategy::Keystone,
            base_uri: None,
            pagination_max_limit: 1000,
            lists: lb_api::ListFeatures::default(),
            valid_vip_networks: Vec::new(),
            denylist_vip_networks: Vec::new(),
            trust_proxy_headers: false,
        }
    }
}

impl Default for Cors {
    fn default() -> Self {
        let CorsConfig {
            allowed_origins,
            allow_credentials,
            max_age_s,
            allow_methods,
            allow_headers,
            expose_headers,
        } = CorsConfig::default();
        Self {
            allowed_origins,
            allow_credentials,
            max_age_s,
            allow_methods,
            allow_headers,
            expose_headers,
        }
    }
}

impl Cors {
    pub(crate) fn rules(&self) -> CorsConfig {
        CorsConfig {
            allowed_origins: self.allowed_origins.clone(),
            allow_credentials: self.allow_credentials,
            max_age_s: self.max_age_s,
            allow_methods: self.allow_methods.clone(),
            allow_headers: self.allow_headers.clone(),
            expose_headers: self.expose_headers.clone(),
        }
    }
}

impl Default for Healthcheck {
    fn default() -> Self {
        Self {
            enabled: false,
            detailed: false,
            database: true,
            disable_by_file: None,
            refresh_ms: 5_000,
        }
    }
}

impl Healthcheck {
    pub(crate) fn checks(&self) -> Option<HealthcheckConfig> {
        self.enabled.then(|| HealthcheckConfig {
            detailed: self.detailed,
            database: self.database,
            disable_by_file: self.disable_by_file.clone(),
            refresh: Duration::from_millis(self.refresh_ms),
        })
    }
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            tasks: 8,
            lease_ms: 10_000,
            poll_ms: 500,
            operation_timeout_s: 120,
            drain_timeout_s: 10,
        }
    }
}

impl Default for HealthManager {
    fn default() -> Self {
        Self {
            bind: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5555)),
            controllers: Vec::new(),
            heartbeat_key_file: None,
            heartbeat_interval_ms: 10_000,
            heartbeat_timeout_ms: 60_000,
            failover_threshold: None,
        }
    }
}

impl Default for Housekeeping {
    fn default() -> Self {
        Self {
            cleanup_interval_s: 30,
            expiry_age_s: 604_800,
        }
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            default_load_balancer_quota: UNLIMITED,
            default_listener_quota: UNLIMITED,
            default_pool_quota: UNLIMITED,
            default_member_quota: UNLIMITED,
            default_health_monitor_quota: UNLIMITED,
            default_l7policy_quota: UNLIMITED,
            default_l7rule_quota: UNLIMITED,
        }
    }
}

impl Quotas {
    pub(crate) fn limits(&self) -> PerResource<i32> {
        PerResource {
            load_balancer: self.default_load_balancer_quota,
            listener: self.default_listener_quota,
            pool: self.default_pool_quota,
            member: self.default_member_quota,
            health_monitor: self.default_health_monitor_quota,
            l7policy: self.default_l7policy_quota,
            l7rule: self.default_l7rule_quota,
        }
    }
}

impl Default for Local {
    fn default() -> Self {
        Self {
            name: "lb".to_owned(),
            state_dir: PathBuf::from("/var/lib/octavia-local"),
            networks: None,
            agent: None,
        }
    }
}

impl Config {
    /// Defaults of a machine of one's own: beats often enough that a dead amphora is replaced within seconds.
    pub(crate) fn local() -> Self {
        Self {
            api: Api {
                auth_strategy: AuthStrategy::NoAuth,
                ..Api::default()
            },
            worker: Worker {
                lease_ms: 3_000,
                poll_ms: 100,
                ..Worker::default()
            },
            health_manager: HealthManager {
                heartbeat_interval_ms: 300,
                heartbeat_timeout_ms: 2_000,
                ..HealthManager::default()
            },
            ..Self::default()
        }
    }

    /// Reads `path` over the defaults of the chosen mode.
    pub(crate) fn read(path: Option<&Path>, local: bool) -> Result<Self> {
        let base = if local {
            Self::local()
        } else {
            Self::default()
        };
        let Some(path) = path else {
            return Ok(base);
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("read configuration {}", path.display()))?;
        base.overlay(&text)
            .with_context(|| format!("configuration {}", path.display()))
    }

    /// These values with those of a TOML text in their place.
    fn overlay(&self, text: &str) -> Result<Self> {
        let mut merged = toml::Table::try_from(self)?;
        let given: toml::Table = toml::from_str(text)?;
        for (section, values) in given {
            match (merged.get_mut(&section), values) {
                (Some(toml::Value::Table(known)), toml::Value::Table(values)) => {
                    known.extend(values);
                }
                (_, values) => {
                    merged.insert(section, values);
                }
            }
        }
        Ok(merged.try_into()?)
    }

    /// For showing it.
    pub(crate) fn without_secrets(&self) -> Self {
        let mut shown = self.clone();
        shown.database.url = redacted(&shown.database.url);
        shown.keystone_authtoken = shown.keystone_authtoken.without_secrets();
        shown
    }

    /// Every problem of the values, one a line.
    pub(crate) fn check(&self) -> Result<()> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        let Self {
            database: _,
            api,
            keystone_authtoken: _,
            oslo_policy: _,
            cors,
            healthcheck: _,
            worker,
            health_manager,
            housekeeping,
            certificates: _,
            drivers: _,
            quotas,
            local,
        } = self;
        require(
            api.pagination_max_limit >= 1,
            "api.pagination_max_limit: 0: must be at least 1".to_owned(),
        );
        for origin in &cors.allowed_origins {
            require(
                origin == "*" || (origin.contains("://") && !origin.ends_with('/')),
                format!("cors.allowed_origins: {origin:?}: must be `*` or scheme://host[:port]"),
            );
        }
        require(
            (1..=256).contains(&worker.tasks),
            format!("worker.tasks: {}: must be 1-256", worker.tasks),
        );
        require(
            worker.lease_ms >= 500,
            format!("worker.lease_ms: {}: must be at least 500", worker.lease_ms),
        );
        require(
            worker.poll_ms >= 10,
            format!("worker.poll_ms: {}: must be at least 10", worker.poll_ms),
        );
        let interval = health_manager.heartbeat_interval_ms;
        require(
            (50..=600_000).contains(&interval),
            format!("health_manager.heartbeat_interval_ms: {interval}: must be 50-600000"),
        );
        let timeout = health_manager.heartbeat_timeout_ms;
        require(
            timeout >= interval.saturating_mul(3),
            format!(
                "health_manager.heartbeat_timeout_ms: {timeout}: must be at least three intervals ({interval} ms)"
            ),
        );
        require(
            housekeeping.cleanup_interval_s >= 1,
            "housekeeping.cleanup_interval_s: 0: must be at least 1".to_owned(),
        );
        for (resource, limit) in COUNTED.iter().zip(quotas.limits().each()) {
            require(
                *limit >= UNLIMITED,
                format!("quotas: {limit}: the limit of {resource} must be -1 or more"),
            );
        }
        let plain = local
            .name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        require(
            plain && (1..=16).contains(&local.name.len()),
            format!(
                "local.name: {:?}: must be 1-16 lower-case letters or digits",
                local.name
            ),
        );
        if problems.is_empty() {
            return Ok(());
        }
        bail!("{}", problems.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_both_modes_are_valid() {
        Config::default().check().unwrap();
        Config::local().check().unwrap();
    }

    #[test]
    fn a_given_value_replaces_one_default_and_leaves_its_neighbours() {
        let config = Config::local()
            .overlay("[health_manager]\nheartbeat_timeout_ms = 5000\n")
            .unwrap();
        assert_eq!(config.health_manager.heartbeat_timeout_ms, 5_000);
        assert_eq!(config.health_manager.heartbeat_interval_ms, 300);
    }

    #[test]
    fn the_password_of_the_database_is_not_shown() {
        let mut config = Config::default();
        config.database.url = "mysql://octavia:pa@ss@db/octavia".to_owned();
        let shown = toml::to_string(&config.without_secrets()).unwrap();
        assert!(shown.contains("mysql://octavia:***@db/octavia"), "{shown}");
        assert!(!format!("{config:?}").contains("ss@"));
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        for text in ["[worker]\ntask = 3\n", "[wroker]\ntasks = 3\n"] {
            let error = Config::default().overlay(text).unwrap_err();
            let error = format!("{error:#}");
            assert!(
                error.contains("task") || error.contains("wroker"),
                "{error}"
            );
        }
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let mut config = Config::default();
        config.worker.tasks = 0;
        config.local.name = "a name".to_owned();
        config.health_manager.heartbeat_timeout_ms = 1;
        let report = config.check().unwrap_err().to_string();
        assert_eq!(report.lines().count(), 3, "{report}");
    }
}
