//! `[keystone_authtoken]`: who validates the tokens of callers.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lb_drivers::identity::{
    ApplicationCredential, Domain, InDomain, KeystoneConfig, KeystoneIdentity, NoIdentity, Scope,
    ServiceCredentials,
};
use lb_drivers::{Identity, Secret};
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// `api_settings.auth_strategy`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AuthStrategy {
    /// Whoever reaches the API is an administrator.
    NoAuth,
    Keystone,
}

/// `[keystone_authtoken]`: the options of keystonemiddleware by their names.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct KeystoneAuthtoken {
    /// Where tokens are validated, with or without `/v3`.
    pub(crate) auth_url: Option<String>,
    /// Where callers without a valid token are sent; `auth_url` when absent.
    pub(crate) www_authenticate_uri: Option<String>,
    pub(crate) auth_type: AuthType,
    pub(crate) username: Option<String>,
    pub(crate) user_id: Option<String>,
    pub(crate) user_domain_name: Option<String>,
    pub(crate) user_domain_id: Option<String>,
    pub(crate) password: Option<String>,
    /// File with the password, instead of `password`; not an option of keystonemiddleware.
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) project_name: Option<String>,
    pub(crate) project_id: Option<String>,
    pub(crate) project_domain_name: Option<String>,
    pub(crate) project_domain_id: Option<String>,
    /// `all`, instead of a project.
    pub(crate) system_scope: Option<String>,
    pub(crate) application_credential_id: Option<String>,
    pub(crate) application_credential_name: Option<String>,
    pub(crate) application_credential_secret: Option<String>,
    /// Authorities of an `https` URL instead of the system's.
    pub(crate) cafile: Option<PathBuf>,
    /// Seconds a validated token is believed; 0 asks each time.
    pub(crate) token_cache_time: u64,
    /// Seconds for TCP and TLS.
    pub(crate) http_connect_timeout: u64,
    /// Seconds for a whole validation.
    pub(crate) timeout: u64,
    pub(crate) http_request_max_retries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AuthType {
    #[serde(rename = "password", alias = "v3password")]
    Password,
    #[serde(rename = "v3applicationcredential")]
    ApplicationCredential,
}

impl Default for KeystoneAuthtoken {
    fn default() -> Self {
        Self {
            auth_url: None,
            www_authenticate_uri: None,
            auth_type: AuthType::Password,
            username: None,
            user_id: None,
            user_domain_name: None,
            user_domain_id: None,
            password: None,
            password_file: None,
            project_name: None,
            project_id: None,
            project_domain_name: None,
            project_domain_id: None,
            system_scope: None,
            application_credential_id: None,
            application_credential_name: None,
            application_credential_secret: None,
            cafile: None,
            token_cache_time: 300,
            http_connect_timeout: 3,
            timeout: 10,
            http_request_max_retries: 3,
        }
    }
}

impl fmt::Debug for KeystoneAuthtoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeystoneAuthtoken")
            .field("auth_url", &self.auth_url)
            .field("auth_type", &self.auth_type)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// Who authenticates, as the configuration has it.
pub(crate) fn build(config: &Config) -> Result<Arc<dyn Identity>> {
    match config.api.auth_strategy {
        AuthStrategy::NoAuth => Ok(Arc::new(NoIdentity)),
        AuthStrategy::Keystone => {
            let settings = config.keystone_authtoken.settings()?;
            let identity = KeystoneIdentity::new(&settings).context("keystone_authtoken")?;
            Ok(Arc::new(identity))
        }
    }
}

impl KeystoneAuthtoken {
    /// For showing it.
    pub(crate) fn without_secrets(&self) -> Self {
        let redacted = |secret: &Option<String>| secret.as_ref().map(|_| "***".to_owned());
        Self {
            password: redacted(&self.password),
            application_credential_secret: redacted(&self.application_credential_secret),
            ..self.clone()
        }
    }

    /// What the driver takes; the error has every problem, one a line.
    fn settings(&self) -> Result<KeystoneConfig> {
        let mut problems = Vec::new();
        let mut require = |option: &str, value: &Option<String>| match value {
            Some(value) if !value.is_empty() => value.clone(),
            _ => {
                problems.push(format!("keystone_authtoken.{option}: missing"));
                String::new()
            }
        };
        let auth_url = require("auth_url", &self.auth_url);
        let credentials = match self.auth_type {
            AuthType::Password => {
                let user = self.user(&mut require);
                let scope = match self.system_scope {
                    Some(_) => Scope::System,
                    None => Scope::Project(in_domain(
                        Given {
                            id: &self.project_id,
                            name: ("project_name", &self.project_name),
                            domain_id: &self.project_domain_id,
                            domain_name: ("project_domain_name", &self.project_domain_name),
                        },
                        &mut require,
                    )),
                };
                let password = match &self.password_file {
                    None => Secret::new(require("password", &self.password)),
                    Some(path) => crate::key::read_secret("password", path)?,
                };
                ServiceCredentials::Password {
                    user,
                    password,
                    scope,
                }
            }
            AuthType::ApplicationCredential => {
                let credential = match &self.application_credential_id {
                    Some(id) => ApplicationCredential::Id(id.clone()),
                    None => ApplicationCredential::Name {
                        name: require(
                            "application_credential_id",
                            &self.application_credential_name,
                        ),
                        user: self.user(&mut require),
                    },
                };
                let secret = require(
                    "application_credential_secret",
                    &self.application_credential_secret,
                );
                ServiceCredentials::ApplicationCredential {
                    credential,
                    secret: Secret::new(secret),
                }
            }
        };
        if let Some(scope) = self.system_scope.as_ref().filter(|scope| *scope != "all") {
            problems.push(format!(
                "keystone_authtoken.system_scope: {scope:?}: must be \"all\""
            ));
        }
        for (option, seconds) in [
            ("http_connect_timeout", self.http_connect_timeout),
            ("timeout", self.timeout),
        ] {
            if !(1..=600).contains(&seconds) {
                problems.push(format!(
                    "keystone_authtoken.{option}: {seconds}: must be 1-600"
                ));
            }
        }
        if self.token_cache_time > 86_400 {
            problems.push(format!(
                "keystone_authtoken.token_cache_time: {}: must be 0-86400",
                self.token_cache_time
            ));
        }
        if !problems.is_empty() {
            bail!("{}", problems.join("\n"));
        }
        Ok(KeystoneConfig {
            www_authenticate_uri: self.www_authenticate_uri.clone(),
            cafile: self.cafile.clone(),
            token_cache_time: Duration::from_secs(self.token_cache_time),
            http_connect_timeout: Duration::from_secs(self.http_connect_timeout),
            timeout: Duration::from_secs(self.timeout),
            http_request_max_retries: self.http_request_max_retries,
            ..KeystoneConfig::new(auth_url, credentials)
        })
    }

    fn user(&self, require: &mut impl FnMut(&str, &Option<String>) -> String) -> InDomain {
        in_domain(
            Given {
                id: &self.user_id,
                name: ("username", &self.username),
                domain_id: &self.user_domain_id,
                domain_name: ("user_domain_name", &self.user_domain_name),
            },
            require,
        )
    }
}

/// The options that name a user or project.
struct Given<'a> {
    id: &'a Option<String>,
    name: (&'static str, &'a Option<String>),
    domain_id: &'a Option<String>,
    domain_name: (&'static str, &'a Option<String>),
}

fn in_domain(
    given: Given<'_>,
    require: &mut impl FnMut(&str, &Option<String>) -> String,
) -> InDomain {
    if let Some(id) = given.id {
        return InDomain::Id(id.clone());
    }
    let (option, name) = given.name;
    let name = require(option, name);
    let domain = match given.domain_id {
        Some(id) => Domain::Id(id.clone()),
        None => {
            let (option, name) = given.domain_name;
            Domain::Name(require(option, name))
        }
    };
    InDomain::Name { name, domain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> KeystoneAuthtoken {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_password_with_names_is_enough() {
        let settings = given(
            r#"
            auth_url = "http://keystone:5000/v3"
            www_authenticate_uri = "https://cloud/identity"
            username = "octavia"
            user_domain_name = "Default"
            password = "pa55"
            project_name = "service"
            project_domain_id = "default"
            token_cache_time = 60
            "#,
        )
        .settings()
        .unwrap();
        let expected = KeystoneConfig {
            www_authenticate_uri: Some("https://cloud/identity".to_owned()),
            token_cache_time: Duration::from_secs(60),
            ..KeystoneConfig::new(
                "http://keystone:5000/v3",
                ServiceCredentials::Password {
                    user: InDomain::Name {
                        name: "octavia".to_owned(),
                        domain: Domain::Name("Default".to_owned()),
                    },
                    password: Secret::new("pa55"),
                    scope: Scope::Project(InDomain::Name {
                        name: "service".to_owned(),
                        domain: Domain::Id("default".to_owned()),
                    }),
                },
            )
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn the_password_may_stand_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        let mut options = given(
            r#"
            auth_url = "http://keystone"
            user_id = "u"
            system_scope = "all"
            "#,
        );
        options.password_file = Some(path.clone());
        assert!(options.settings().is_err());
        std::fs::write(&path, "pa55\n").unwrap();
        let settings = options.settings().unwrap();
        assert_eq!(
            settings.credentials,
            ServiceCredentials::Password {
                user: InDomain::Id("u".to_owned()),
                password: Secret::new("pa55"),
                scope: Scope::System,
            }
        );
    }

    #[test]
    fn everything_that_is_missing_is_named_at_once() {
        let report = KeystoneAuthtoken::default()
            .settings()
            .unwrap_err()
            .to_string();
        for option in [
            "auth_url",
            "username",
            "user_domain_name",
            "password",
            "project_name",
            "project_domain_name",
        ] {
            assert!(
                report.contains(&format!("keystone_authtoken.{option}: missing")),
                "{report}"
            );
        }
        let report = given("auth_type = \"v3applicationcredential\"\ntimeout = 0\n")
            .settings()
            .unwrap_err()
            .to_string();
        assert!(report.contains("application_credential_secret: missing"));
        assert!(report.contains("timeout: 0: must be 1-600"));
    }

    #[test]
    fn secrets_are_shown_nowhere() {
        let options = given(
            r#"
            auth_type = "v3applicationcredential"
            password = "hunter2"
            application_credential_secret = "hunter2"
            "#,
        );
        let shown = toml::to_string(&options.without_secrets()).unwrap();
        assert!(shown.contains("password = \"***\""), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
