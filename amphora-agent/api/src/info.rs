//! What an agent says about itself.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Answer of `GET /2.0/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmphoraInfo {
    pub api_version: String,
    pub agent_version: String,
    pub hostname: String,
    pub amphora_id: Uuid,
    /// Generation of the document in force; `None` before the first.
    pub generation: Option<u64>,
    /// [`AmphoraConfig::digest`](crate::AmphoraConfig::digest) of the document in force.
    pub config_digest: Option<String>,
    /// Secrets the document names that this agent does not hold (after a restart).
    pub missing_secrets: Vec<String>,
    pub interfaces: Vec<InterfaceInfo>,
    pub listeners: Vec<ListenerInfo>,
    /// Listeners of the document in force that are not served, with the reason; the others are.
    #[serde(default)]
    pub failed_listeners: BTreeMap<Uuid, String>,
    /// What the last apply could not do; empty when all is well.
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceInfo {
    pub name: String,
    pub mac_address: String,
    pub addresses: Vec<IpNet>,
    /// How the fast path is attached (`tcx`, `xdp_native`, ...), or why it is not.
    pub attach: String,
    pub attach_reason: String,
}

/// Which engine serves a listener, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerInfo {
    pub id: Uuid,
    pub path: ListenerPath,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListenerPath {
    Fast,
    Proxy,
}

/// Answer of `PUT /2.0/config`: what was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyReport {
    pub generation: u64,
    /// False when the document was in force already.
    pub changed: bool,
    /// Each action taken, in order, as one readable line.
    pub actions: Vec<String>,
    /// Listeners that could not be served, with the reason; the others are.
    pub failed_listeners: BTreeMap<Uuid, String>,
}

/// Body of an error answer of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}: {details}")]
pub struct AgentFault {
    pub message: String,
    pub details: String,
}
