//! OpenStack Keystone: validates the callers' tokens with the token of a service user.
//!
//! Owns what it learned of tokens, for at most [`KeystoneConfig::token_cache_time`], under a hash of each token: a
//! token that is revoked stops working within that time, one that expires at once. Promises: however many requests
//! bring the same token, one asks; so many questions are open at once; each ends within its time. Keystone away is
//! not "unauthenticated": the caller is told to try again. Neither tokens nor the service user's secret are logged.
//! Spec: the Identity API v3 (`/v3/auth/tokens`); names of settings are `keystonemiddleware`'s.

mod cache;
mod client;
mod config;
mod token;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::{Caller, Identity, IdentityError};
use crate::error::chain;
use crate::http::ServiceError;
use cache::{Cache, Learned, TokenHash, Verdict};
use client::{Client, Question};

pub use config::{
    ApplicationCredential, Domain, InDomain, KeystoneConfig, Scope, ServiceCredentials,
};

/// Validations open at once; more wait within their own time.
const MAX_QUESTIONS: usize = 32;
/// An invalid token is not asked for again for so long.
const INVALID_FOR: Duration = Duration::from_secs(10);
/// Longer than any token there is.
const MAX_TOKEN_BYTES: usize = 8192;

pub struct KeystoneIdentity {
    client: Client,
    cache: Cache,
    questions: Semaphore,
    token_cache_time: Duration,
    timeout: Duration,
    challenge: String,
}

impl KeystoneIdentity {
    /// Asks nothing yet: Keystone may come up later.
    pub fn new(config: &KeystoneConfig) -> Result<Self, ServiceError> {
        Ok(Self {
            client: Client::new(config)?,
            cache: Cache::default(),
            questions: Semaphore::new(MAX_QUESTIONS),
            token_cache_time: config.token_cache_time,
            timeout: config.timeout,
            challenge: format!("Keystone uri=\"{}\"", config.public_uri()),
        })
    }

    fn unauthenticated(&self) -> IdentityError {
        IdentityError::Unauthenticated {
            challenge: self.challenge.clone(),
        }
    }

    /// What Keystone says of a token now; an error says why it does not say.
    async fn ask(&self, token: &str) -> Result<Learned, Arc<str>> {
        let question = async {
            // The semaphore is never closed.
            let _permit = self.questions.acquire().await.ok();
            self.client.validate(token).await
        };
        match tokio::time::timeout(self.timeout, question).await {
            Ok(Ok(Question::Valid(token))) => {
                let left = token.time_left();
                Ok(Learned {
                    verdict: Verdict::Valid(Arc::new(token.into_caller())),
                    fresh_for: left.min(self.token_cache_time),
                })
            }
            Ok(Ok(Question::Invalid)) => Ok(Learned {
                verdict: Verdict::Invalid,
                fresh_for: INVALID_FOR.min(self.token_cache_time),
            }),
            Ok(Err(error)) => Err(chain(&error).into()),
            Err(_) => Err(format!("no answer within {:?}", self.timeout).into()),
        }
    }
}

#[async_trait]
impl Identity for KeystoneIdentity {
    async fn authenticate(&self, token: Option<&str>) -> Result<Arc<Caller>, IdentityError> {
        let token = token
            .filter(|token| (1..=MAX_TOKEN_BYTES).contains(&token.len()))
            .filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()))
            .ok_or_else(|| self.unauthenticated())?;
        let outcome = self
            .cache
            .resolve(TokenHash::of(token), Instant::now(), || self.ask(token))
            .await;
        match outcome {
            Ok(Verdict::Valid(caller)) => Ok(caller),
            Ok(Verdict::Invalid) => Err(self.unauthenticated()),
            Err(reason) => Err(IdentityError::Unavailable {
                reason: reason.to_string(),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
