//! What the API is made of, and its settings.

use std::sync::Arc;

use lb_drivers::{Identity, Network};
use lb_model::{Clock, NetworkId, Rules, Timestamp, Topology};
use lb_store::Store;
use serde::{Deserialize, Serialize};

use crate::policy::Policy;
use crate::{CorsConfig, HealthcheckConfig};

#[derive(Clone)]
pub struct ApiState {
    pub store: Store,
    pub network: Arc<dyn Network>,
    pub identity: Arc<dyn Identity>,
    pub policy: Arc<Policy>,
    pub config: Arc<ApiConfig>,
    pub clock: Clock,
}

impl ApiState {
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiConfig {
    /// Scheme, host and prefix of links; without it they are taken from the request. `api_settings.api_base_uri`.
    pub base_uri: Option<String>,
    /// Largest page, and the page when none is asked for. `api_settings.pagination_max_limit`.
    pub pagination_max_limit: u64,
    pub lists: ListFeatures,
    /// `api_settings.default_provider_driver`.
    pub default_provider: String,
    /// `controller_worker.loadbalancer_topology`.
    pub topology: Topology,
    /// Project of load balancers whose request names none, when callers belong to none (identity `none`).
    pub default_project_id: Option<String>,
    /// Answer `networks`, `subnets`, `ports` and `extensions` too, read-only, from the network driver: for a stack
    /// that has no network service of its own beside it.
    pub serve_network_lookups: bool,
    /// `networking.allow_vip_{port,network,subnet}_id`.
    pub allow_vip_port_id: bool,
    pub allow_vip_network_id: bool,
    pub allow_vip_subnet_id: bool,
    /// Networks that VIPs may be in; all when empty. `networking.valid_vip_networks`.
    pub valid_vip_networks: Vec<NetworkId>,
    /// Networks that VIPs may not be in. `networking.denylist_vip_networks`.
    pub denylist_vip_networks: Vec<NetworkId>,
    /// What validation asks, the enabled providers among it.
    pub rules: Rules,
    /// `oslo_middleware.enable_proxy_headers_parsing`: links start as `X-Forwarded-Proto`, `-Host` and `-Prefix` say. Only
    /// behind a proxy that sets them.
    pub trust_proxy_headers: bool,
    pub cors: CorsConfig,
    /// `None`: there is no health check. `api_settings.healthcheck_enabled`.
    pub healthcheck: Option<HealthcheckConfig>,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            base_uri: None,
            pagination_max_limit: 1000,
            lists: ListFeatures::default(),
            default_provider: "amphora".to_owned(),
            topology: Topology::Single,
            default_project_id: None,
            serve_network_lookups: false,
            allow_vip_port_id: true,
            allow_vip_network_id: true,
            allow_vip_subnet_id: true,
            valid_vip_networks: Vec::new(),
            denylist_vip_networks: Vec::new(),
            rules: Rules::default(),
            trust_proxy_headers: false,
            cors: CorsConfig::default(),
            healthcheck: None,
        }
    }
}

/// What lists and shows can be asked for; parameters of what is off are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListFeatures {
    /// `api_settings.allow_filtering`, the tag filters included.
    pub filtering: bool,
    /// `api_settings.allow_sorting`.
    pub sorting: bool,
    /// `api_settings.allow_pagination`.
    pub pagination: bool,
    /// `api_settings.allow_field_selection`.
    pub field_selection: bool,
}

impl Default for ListFeatures {
    fn default() -> Self {
        Self {
            filtering: true,
            sorting: true,
            pagination: true,
            field_selection: true,
        }
    }
}
