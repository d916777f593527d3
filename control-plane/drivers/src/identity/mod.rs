//! Who calls the API.

mod keystone;
mod none;

use std::sync::Arc;

use async_trait::async_trait;

pub use keystone::{
    ApplicationCredential, Domain, InDomain, KeystoneConfig, KeystoneIdentity, Scope,
    ServiceCredentials,
};
pub use none::NoIdentity;

/// Turns the token of a request into a caller.
#[async_trait]
pub trait Identity: Send + Sync {
    /// `token` is the `X-Auth-Token` header, when there is one.
    async fn authenticate(&self, token: Option<&str>) -> Result<Arc<Caller>, IdentityError>;
}

/// A caller, as the identity service knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    pub user_id: Option<String>,
    pub user_domain_id: Option<String>,
    /// `None`: the caller belongs to no project, and the request may name any.
    pub project_id: Option<String>,
    pub project_domain_id: Option<String>,
    /// Set when the token is scoped to a domain.
    pub domain_id: Option<String>,
    /// `all` when the token is scoped to the system.
    pub system_scope: Option<String>,
    pub roles: Vec<String>,
    /// There is no identity service: whoever calls may do everything. Never true of a caller with a token.
    pub is_admin: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// No token, or one that is not valid: 401.
    #[error("the request needs a valid token")]
    Unauthenticated {
        /// What goes into `WWW-Authenticate`: where to get a token.
        challenge: String,
    },

    /// The identity service cannot say: 503.
    #[error("ask the identity service: {reason}")]
    Unavailable { reason: String },
}

impl IdentityError {
    pub fn is_transient(&self) -> bool {
        match self {
            IdentityError::Unauthenticated { .. } => false,
            IdentityError::Unavailable { .. } => true,
        }
    }
}
