//! A small cloud: Keystone, and our control plane with no-op drivers behind it, in its catalog.

use std::process::Command;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::keystone::{ADMIN, DOMAIN, Keystone, PASSWORD, REGION, User};
use crate::{Api, Replica, control_plane};

/// Roles of Octavia's own.
const ROLES: [&str; 5] = [
    "load-balancer_admin",
    "load-balancer_global_observer",
    "load-balancer_member",
    "load-balancer_observer",
    "load-balancer_quota_admin",
];

/// Both services; they end when it is dropped.
#[derive(Debug)]
pub struct Region {
    pub keystone: Keystone,
    pub control_plane: Replica,
    _dir: TempDir,
}

impl Region {
    /// Starts both, the control plane with `config` (TOML) beside what makes it ask Keystone.
    pub async fn start(config: &str) -> Result<Self> {
        let keystone = Keystone::start().await?;
        let dir = tempfile::tempdir()?;
        let database = format!("sqlite://{}", dir.path().join("db").display());
        let upgraded = control_plane(&database, &["db", "upgrade"])?;
        ensure!(upgraded.status.success(), "{upgraded:?}");
        let config = format!("{}\n{config}", authtoken(&keystone));
        let control_plane = Replica::start_with(&database, &config)?;
        let url = format!("http://{}", control_plane.api()?.address());
        keystone
            .add_service("load-balancer", "octavia", &url)
            .await?;
        // The clients look subnets up; the control plane answers for a network service that is not there.
        keystone.add_service("network", "neutron", &url).await?;
        for role in ROLES {
            keystone.add_role(role).await?;
        }
        Ok(Self {
            keystone,
            control_plane,
            _dir: dir,
        })
    }

    /// The API as this user.
    pub async fn api(&self, user: &User) -> Result<Api> {
        let token = self.keystone.token(user).await?;
        Ok(self.control_plane.api()?.with_token(&token))
    }

    /// Gives a client's command what it needs to be this user.
    pub fn log_in(&self, command: &mut Command, user: &User) {
        command
            .env("OS_AUTH_URL", self.keystone.auth_url())
            .env("OS_IDENTITY_API_VERSION", "3")
            .env("OS_REGION_NAME", REGION)
            .env("OS_USERNAME", &user.name)
            .env("OS_USER_DOMAIN_NAME", DOMAIN)
            .env("OS_PASSWORD", PASSWORD)
            .env("OS_PROJECT_NAME", &user.project)
            .env("OS_PROJECT_DOMAIN_NAME", DOMAIN);
    }
}

/// Configuration of a control plane that asks this Keystone.
fn authtoken(keystone: &Keystone) -> String {
    format!(
        r#"
[keystone_authtoken]
auth_url = "{}"
username = "{ADMIN}"
user_domain_id = "default"
password = "{PASSWORD}"
project_name = "{ADMIN}"
project_domain_id = "default"
"#,
        keystone.auth_url()
    )
}
