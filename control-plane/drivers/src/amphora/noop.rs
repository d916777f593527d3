//! Agents that are not there: see [`noop`](crate::noop).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use amphora_api::{AmphoraConfig, AmphoraInfo, AmphoraStats, ApplyReport, InterfaceInfo};
use async_trait::async_trait;
use lb_model::AmphoraId;

use crate::noop::{Recent, lock};
use crate::{AmphoraDriver, AmphoraError, Endpoint};

/// Takes every document and serves nothing.
#[derive(Debug, Clone, Default)]
pub struct NoopAmphoraDriver {
    taken: Arc<Mutex<Recent<AmphoraId, Taken>>>,
}

/// What an agent would tell of its document.
#[derive(Debug, Clone)]
struct Taken {
    generation: u64,
    digest: String,
    /// Name by MAC address.
    interfaces: Vec<(String, String)>,
}

#[async_trait]
impl AmphoraDriver for NoopAmphoraDriver {
    async fn put_config(
        &self,
        endpoint: &Endpoint,
        config: &AmphoraConfig,
    ) -> Result<ApplyReport, AmphoraError> {
        let taken = Taken {
            generation: config.generation,
            digest: config.digest(),
            interfaces: config
                .interfaces
                .iter()
                .map(|interface| (interface.mac_address.clone(), interface.name.clone()))
                .collect(),
        };
        let mut known = lock(&self.taken);
        let changed = known
            .get(&endpoint.amphora_id)
            .is_none_or(|before| before.digest != taken.digest);
        known.insert(endpoint.amphora_id, taken);
        Ok(ApplyReport {
            generation: config.generation,
            changed,
            actions: Vec::new(),
            failed_listeners: BTreeMap::new(),
        })
    }

    async fn info(&self, endpoint: &Endpoint) -> Result<AmphoraInfo, AmphoraError> {
        let taken = lock(&self.taken).get(&endpoint.amphora_id).cloned();
        let interfaces = taken.iter().flat_map(|taken| &taken.interfaces);
        Ok(AmphoraInfo {
            api_version: amphora_api::API_VERSION.to_owned(),
            agent_version: "noop".to_owned(),
            hostname: format!("amphora-{}", endpoint.amphora_id),
            amphora_id: endpoint.amphora_id.0,
            generation: taken.as_ref().map(|taken| taken.generation),
            config_digest: taken.as_ref().map(|taken| taken.digest.clone()),
            missing_secrets: Vec::new(),
            failed_listeners: BTreeMap::new(),
            interfaces: interfaces
                .map(|(mac_address, name)| InterfaceInfo {
                    name: name.clone(),
                    mac_address: mac_address.clone(),
                    addresses: Vec::new(),
                    attach: "none".to_owned(),
                    attach_reason: "there is no amphora".to_owned(),
                })
                .collect(),
            listeners: Vec::new(),
            problems: Vec::new(),
        })
    }

    async fn stats(&self, _endpoint: &Endpoint) -> Result<AmphoraStats, AmphoraError> {
        Ok(AmphoraStats::default())
    }

    fn serves_documents(&self) -> bool {
        false
    }
}
