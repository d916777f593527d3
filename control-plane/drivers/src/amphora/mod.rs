//! Talking to the agent of an amphora.

#[cfg(feature = "fake")]
mod fake;
mod https;
mod noop;

use std::net::SocketAddr;

use amphora_api::{AgentFault, AmphoraConfig, AmphoraInfo, AmphoraStats, ApplyReport};
use async_trait::async_trait;
use lb_model::AmphoraId;

pub use https::{HttpsAmphoraDriver, Timeouts};
pub use noop::NoopAmphoraDriver;

/// Pushes documents to agents and asks them for their state.
#[async_trait]
pub trait AmphoraDriver: Send + Sync {
    /// Hands the agent its whole document. The same document again is fine.
    async fn put_config(
        &self,
        endpoint: &Endpoint,
        config: &AmphoraConfig,
    ) -> Result<ApplyReport, AmphoraError>;

    async fn info(&self, endpoint: &Endpoint) -> Result<AmphoraInfo, AmphoraError>;

    async fn stats(&self, endpoint: &Endpoint) -> Result<AmphoraStats, AmphoraError>;

    /// Whether anybody serves what documents say. If not, what they cannot carry is missing to nobody, and no
    /// amphora is ever heard of.
    fn serves_documents(&self) -> bool {
        true
    }
}

/// Where an agent listens, and who it must prove to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoint {
    pub amphora_id: AmphoraId,
    pub address: SocketAddr,
}

/// Why an agent did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum AmphoraError {
    /// Nobody answers: refused, unreachable, reset. The agent may be starting.
    #[error("reach the agent at {address}")]
    Unreachable {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },

    #[error("{operation} of the agent at {address} took too long")]
    TimedOut {
        operation: &'static str,
        address: SocketAddr,
    },

    /// The TLS handshake failed: it is not the agent we look for, or it does not trust us.
    #[error("shake hands with the agent at {address}")]
    Handshake {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },

    /// 409: the agent holds a newer document, or another one of the same generation.
    #[error("agent refuses the document: {fault}")]
    OutOfDate { fault: AgentFault },

    /// 400, 413 or any other 4xx: the request itself is wrong.
    #[error("agent refuses the request with {status}: {fault}")]
    Refused { status: u16, fault: AgentFault },

    /// 5xx: the agent tried and could not.
    #[error("agent reports {status}: {fault}")]
    Failed { status: u16, fault: AgentFault },

    /// The answer is not what the protocol says.
    #[error("understand the answer of the agent at {address}: {reason}")]
    Protocol { address: SocketAddr, reason: String },

    /// Our own side could not be set up (certificate, socket).
    #[error("prepare the connection: {reason}")]
    Local { reason: String },
}

impl AmphoraError {
    /// Whether the same call may work later without anyone changing anything else.
    pub fn is_transient(&self) -> bool {
        match self {
            AmphoraError::Unreachable { .. }
            | AmphoraError::TimedOut { .. }
            | AmphoraError::Failed { .. }
            | AmphoraError::Local { .. } => true,
            AmphoraError::Handshake { .. }
            | AmphoraError::OutOfDate { .. }
            | AmphoraError::Refused { .. }
            | AmphoraError::Protocol { .. } => false,
        }
    }
}
