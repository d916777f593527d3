//! A real Keystone on loopback, for one test: projects, users, roles, tokens and a catalog.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::group::Group;
use crate::http::{self, Reply};
use crate::venv::venv;
use crate::wsgi;

/// Where its programs are: `tests/requirements-keystone.txt`.
const VENV: &str = "venv-keystone";
/// The administrator, its project and its domain.
pub const ADMIN: &str = "admin";
pub const DOMAIN: &str = "Default";
pub const REGION: &str = "RegionOne";
/// Every password here.
pub const PASSWORD: &str = "secret";
/// A key for tokens of a Keystone that nobody but its test reaches.
const FERNET_KEY: &str = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U=";
const PATIENCE: Duration = Duration::from_secs(120);

/// A running Keystone; it ends when dropped.
#[derive(Debug)]
pub struct Keystone {
    address: SocketAddr,
    token: String,
    _group: Group,
    _dir: TempDir,
}

/// Somebody who can ask for tokens of one project.
#[derive(Debug, Clone)]
pub struct User {
    pub name: String,
    pub project: String,
    pub project_id: String,
}

impl Keystone {
    /// Starts one that knows the administrator, Keystone's default roles, and itself.
    pub async fn start() -> Result<Self> {
        let dir = tempfile::tempdir().context("make temporary directory")?;
        let template = template()?;
        std::fs::copy(&template, dir.path().join("keystone.db")).context("copy database")?;
        let config = configure(dir.path())?;
        let (address, group) = wsgi::serve(
            VENV,
            "keystone.wsgi.api:application",
            // With more, SQLite is locked now and then.
            1,
            dir.path(),
            ("OS_KEYSTONE_CONFIG_FILES", &config),
        )?;
        let mut keystone = Self {
            address,
            token: String::new(),
            _group: group,
            _dir: dir,
        };
        keystone.token = keystone.first_token().await?;
        keystone
            .add_service("identity", "keystone", &keystone.auth_url())
            .await?;
        Ok(keystone)
    }

    /// Its version 3.
    pub fn auth_url(&self) -> String {
        format!("http://{}/v3", self.address)
    }

    /// A service with endpoints of all interfaces in the catalog.
    pub async fn add_service(&self, kind: &str, name: &str, url: &str) -> Result<()> {
        let body = json!({"service": {"type": kind, "name": name}});
        let service = self.post("services", &body).await?;
        for interface in ["public", "internal", "admin"] {
            let endpoint = json!({"endpoint": {
                "service_id": service["service"]["id"],
                "interface": interface,
                "region_id": REGION,
                "url": url,
            }});
            self.post("endpoints", &endpoint).await?;
        }
        Ok(())
    }

    pub async fn add_role(&self, name: &str) -> Result<()> {
        self.post("roles", &json!({"role": {"name": name}})).await?;
        Ok(())
    }

    /// The id of a project, which is made if it is not there.
    pub async fn project(&self, name: &str) -> Result<String> {
        let found = self.get(&format!("projects?name={name}")).await?;
        if let Some(id) = found["projects"][0]["id"].as_str() {
            return Ok(id.to_owned());
        }
        let body = json!({"project": {"name": name, "domain_id": "default"}});
        let made = self.post("projects", &body).await?;
        id_of(&made["project"])
    }

    /// A new user with these roles in a project.
    pub async fn add_user(&self, name: &str, project: &str, roles: &[&str]) -> Result<User> {
        let project_id = self.project(project).await?;
        let body = json!({"user": {
            "name": name,
            "domain_id": "default",
            "password": PASSWORD,
        }});
        let user = id_of(&self.post("users", &body).await?["user"])?;
        for role in roles {
            let found = self.get(&format!("roles?name={role}")).await?;
            let role = id_of(&found["roles"][0]).with_context(|| format!("role {role}"))?;
            let path = format!("projects/{project_id}/users/{user}/roles/{role}");
            self.call(Method::PUT, &path, None).await?;
        }
        Ok(User {
            name: name.to_owned(),
            project: project.to_owned(),
            project_id,
        })
    }

    /// The administrator, who is there from the start.
    pub async fn admin(&self) -> Result<User> {
        Ok(User {
            name: ADMIN.to_owned(),
            project: ADMIN.to_owned(),
            project_id: self.project(ADMIN).await?,
        })
    }

    /// A new token of a user for its project.
    pub async fn token(&self, user: &User) -> Result<String> {
        self.authenticate(&user.name, &user.project).await
    }

    async fn first_token(&self) -> Result<String> {
        let begun = Instant::now();
        loop {
            match self.authenticate(ADMIN, ADMIN).await {
                Ok(token) => return Ok(token),
                Err(error) if begun.elapsed() > PATIENCE => {
                    return Err(error.context(format!(
                        "Keystone does not answer:\n{}",
                        self._group.log_tail()
                    )));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn authenticate(&self, user: &str, project: &str) -> Result<String> {
        let domain = json!({"id": "default"});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": user, "domain": domain, "password": PASSWORD,
            }}},
            "scope": {"project": {"name": project, "domain": domain}},
        }});
        let reply = http::exchange(
            self.address,
            Method::POST,
            "/v3/auth/tokens",
            &[],
            Some(&body),
        )
        .await?;
        ensure!(reply.status == 201, "token of {user}: {reply:?}");
        let token = reply.headers.get("x-subject-token");
        let token = token.context("answer without token")?.to_str()?;
        Ok(token.to_owned())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        self.call(Method::GET, path, None).await
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.call(Method::POST, path, Some(body)).await
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let what = format!("Keystone: {method} {path}");
        let headers = [("x-auth-token", self.token.as_str())];
        let path = format!("/v3/{path}");
        let reply = http::exchange(self.address, method, &path, &headers, body).await;
        let Reply { status, body, .. } = reply.with_context(|| what.clone())?;
        ensure!((200..300).contains(&status), "{what}: {status} {body}");
        Ok(body)
    }
}

fn id_of(object: &Value) -> Result<String> {
    let id = object["id"].as_str();
    Ok(id.with_context(|| format!("no id in {object}"))?.to_owned())
}

/// A database with the schema, the administrator and the default roles, which every Keystone of this build starts
/// from. Making one takes Keystone's own tool a quarter of a minute.
fn template() -> Result<PathBuf> {
    let venv = venv(VENV)?;
    let template = venv.join("template.db");
    if template.exists() {
        return Ok(template);
    }
    // In the same folder, so that it can be renamed; another test may make it at the same time.
    let dir = tempfile::tempdir_in(&venv)?;
    let config = configure(dir.path())?;
    let manage = |arguments: &[&str]| -> Result<()> {
        let output = Command::new(venv.join("bin/keystone-manage"))
            .arg("--config-file")
            .arg(&config)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .context("start keystone-manage")?;
        if !output.status.success() {
            bail!(
                "keystone-manage {arguments:?}: {}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    };
    manage(&["db_sync"])?;
    let region = ["--bootstrap-region-id", REGION];
    manage(
        &[
            &["bootstrap", "--bootstrap-password", PASSWORD][..],
            &region,
        ]
        .concat(),
    )?;
    std::fs::rename(dir.path().join("keystone.db"), &template)?;
    Ok(template)
}

/// Writes configuration and keys; the path of the configuration.
fn configure(dir: &Path) -> Result<PathBuf> {
    let keys = dir.join("fernet");
    std::fs::create_dir(&keys)?;
    for key in ["0", "1"] {
        std::fs::write(keys.join(key), FERNET_KEY)?;
    }
    let text = format!(
        r#"[DEFAULT]
log_file = {dir}/keystone.log
[database]
connection = sqlite:///{dir}/keystone.db
[fernet_tokens]
key_repository = {dir}/fernet
[fernet_receipts]
key_repository = {dir}/fernet
[identity]
# Not a server that anybody attacks.
password_hash_rounds = 4
[cache]
enabled = true
backend = oslo_cache.dict
"#,
        dir = dir.display()
    );
    let config = dir.join("keystone.conf");
    std::fs::write(&config, text).context("write configuration of Keystone")?;
    Ok(config)
}
