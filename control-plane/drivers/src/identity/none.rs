//! No identity service: for the local stack, where whoever reaches the API owns the machine.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Caller, Identity, IdentityError};

/// Every caller, with or without a token, is an administrator without a project: the project of an object is the
/// one the request names.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoIdentity;

#[async_trait]
impl Identity for NoIdentity {
    async fn authenticate(&self, _token: Option<&str>) -> Result<Arc<Caller>, IdentityError> {
        Ok(Arc::new(Caller {
            roles: vec!["admin".to_owned()],
            is_admin: true,
            ..Caller::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_caller_without_a_token_is_an_administrator_of_no_project() {
        let caller = NoIdentity.authenticate(None).await.unwrap();
        assert!(caller.is_admin);
        assert_eq!(caller.project_id, None);
    }
}
