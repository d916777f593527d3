//! Who calls the API.

mod none;

use async_trait::async_trait;

pub use none::NoIdentity;

/// Turns the token of a request into a caller.
#[async_trait]
pub trait Identity: Send + Sync {
    /// `token` is the `X-Auth-Token` header, when there is one.
    async fn authenticate(&self, token: Option<&str>) -> Result<Caller, IdentityError>;
}

/// A caller, as the identity service knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub user_id: Option<String>,
    /// `None`: the caller belongs to no project, and the request may name any.
    pub project_id: Option<String>,
    pub roles: Vec<String>,
    /// May act on every project's objects and on the admin resources.
    pub is_admin: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// No token, or one that is not valid: 401.
    #[error("the request needs a valid token")]
    Unauthenticated,

    /// The identity service cannot say: 503.
    #[error("ask the identity service: {reason}")]
    Unavailable { reason: String },
}

impl IdentityError {
    pub fn is_transient(&self) -> bool {
        match self {
            IdentityError::Unauthenticated => false,
            IdentityError::Unavailable { .. } => true,
        }
    }
}
