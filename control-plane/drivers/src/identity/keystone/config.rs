//! Where Keystone is and who asks it.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Secret;

/// Settings of `[keystone_authtoken]`, named as there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeystoneConfig {
    /// Keystone's URL, with or without `/v3`.
    pub auth_url: String,
    /// Where callers without a valid token are sent; `auth_url` when absent.
    pub www_authenticate_uri: Option<String>,
    pub credentials: ServiceCredentials,
    /// Authorities of an `https` URL instead of the system's.
    pub cafile: Option<PathBuf>,
    /// How long a validated token is believed; zero asks each time.
    pub token_cache_time: Duration,
    /// For TCP and TLS.
    pub http_connect_timeout: Duration,
    /// For a whole validation: queueing, renewal of the own token and retries included.
    pub timeout: Duration,
    /// Further attempts when a connection fails.
    pub http_request_max_retries: u32,
}

impl KeystoneConfig {
    pub fn new(auth_url: impl Into<String>, credentials: ServiceCredentials) -> Self {
        Self {
            auth_url: auth_url.into(),
            www_authenticate_uri: None,
            credentials,
            cafile: None,
            token_cache_time: Duration::from_secs(300),
            http_connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(10),
            http_request_max_retries: 3,
        }
    }

    pub(super) fn public_uri(&self) -> &str {
        self.www_authenticate_uri
            .as_deref()
            .unwrap_or(&self.auth_url)
    }
}

/// The service user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceCredentials {
    Password {
        user: InDomain,
        password: Secret,
        scope: Scope,
    },
    ApplicationCredential {
        credential: ApplicationCredential,
        secret: Secret,
    },
}

/// What a password's token is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    Project(InDomain),
    System,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplicationCredential {
    Id(String),
    Name { name: String, user: InDomain },
}

/// A user or project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InDomain {
    Id(String),
    Name { name: String, domain: Domain },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Domain {
    Id(String),
    Name(String),
}

impl ServiceCredentials {
    /// Body of the request for a token; it holds the secret.
    pub(super) fn request(&self) -> Secret {
        let auth = match self {
            Self::Password {
                user,
                password,
                scope,
            } => {
                let mut user = user.json();
                user["password"] = json!(password.expose());
                let scope = match scope {
                    Scope::Project(project) => json!({"project": project.json()}),
                    Scope::System => json!({"system": {"all": true}}),
                };
                json!({
                    "identity": {"methods": ["password"], "password": {"user": user}},
                    "scope": scope,
                })
            }
            Self::ApplicationCredential { credential, secret } => {
                let mut credential = match credential {
                    ApplicationCredential::Id(id) => json!({"id": id}),
                    ApplicationCredential::Name { name, user } => {
                        json!({"name": name, "user": user.json()})
                    }
                };
                credential["secret"] = json!(secret.expose());
                json!({"identity": {
                    "methods": ["application_credential"],
                    "application_credential": credential,
                }})
            }
        };
        Secret::new(json!({"auth": auth}).to_string())
    }
}

impl InDomain {
    fn json(&self) -> Value {
        match self {
            Self::Id(id) => json!({"id": id}),
            Self::Name { name, domain } => {
                let domain = match domain {
                    Domain::Id(id) => json!({"id": id}),
                    Domain::Name(name) => json!({"name": name}),
                };
                json!({"name": name, "domain": domain})
            }
        }
    }
}
