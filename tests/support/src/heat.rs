//! A real Heat on loopback, for one test: its API, its engine, and the database and broker between them.
//!
//! It knows the region's services from the catalog only, and works for a user after the call has ended: with a trust
//! that Keystone gave it, whose tokens our API gets to see.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_databases::{Kind, RabbitMq, Server};

use crate::group::{Group, tail};
use crate::http::{self, Reply};
use crate::keystone::{PASSWORD, User};
use crate::venv::venv;
use crate::{Region, wsgi};

/// Where its programs are: `tests/requirements-heat.txt`.
const VENV: &str = "venv-heat";
/// Its service user, and its database.
const NAME: &str = "heat";
/// For each thing it is asked to do.
const PATIENCE: Duration = Duration::from_secs(120);
/// For one answer, while it starts.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(200);
const ENGINE_LOG: &str = "engine.log";
const LOGS: [&str; 2] = [ENGINE_LOG, "gunicorn.log"];

/// A running Heat; it ends when dropped.
#[derive(Debug)]
pub struct Heat<'a> {
    region: &'a Region,
    address: SocketAddr,
    _api: Group,
    _engine: Group,
    _broker: RabbitMq,
    _database: Server,
    dir: TempDir,
}

/// A stack and its owner.
#[derive(Debug)]
pub struct Stack {
    user: User,
    path: String,
}

impl<'a> Heat<'a> {
    /// Starts it for a region, and enters it into the catalog. To be called from a thread that outlives it.
    pub async fn start(region: &'a Region) -> Result<Self> {
        let dir = tempfile::tempdir().context("make temporary directory")?;
        let keystone = &region.keystone;
        keystone.add_user(NAME, "service", &["service"]).await?;
        let database = Server::start(Kind::MariaDb)?;
        database.create_database(NAME)?;
        let broker = RabbitMq::start()?;
        let config = configuration(
            &keystone.auth_url(),
            &database.database_url(NAME),
            &broker.url(),
        )?;
        // Without a command line the API looks for its file in the home directory.
        let home = dir.path();
        std::fs::create_dir(home.join(".heat"))?;
        std::fs::write(home.join(".heat/heat.conf"), config).context("write heat.conf")?;
        let made = program("heat-manage", home)?.arg("db_sync").output()?;
        ensure!(made.status.success(), "heat-manage db_sync: {made:?}");
        let engine = Group::spawn(&program("heat-engine", home)?, &home.join(ENGINE_LOG))?;
        let (address, api) =
            wsgi::serve(VENV, "heat.wsgi.api:application", 4, home, ("HOME", home))?;
        let url = format!("http://{address}/v1/$(project_id)s");
        keystone.add_service("orchestration", NAME, &url).await?;
        let heat = Self {
            region,
            address,
            _api: api,
            _engine: engine,
            _broker: broker,
            _database: database,
            dir,
        };
        heat.wait_until_it_answers().await?;
        Ok(heat)
    }

    /// Creates a stack, and returns when it is complete, or has failed: with what is shown of it.
    pub async fn create(
        &self,
        user: &User,
        name: &str,
        template: &str,
        parameters: &Value,
    ) -> Result<(Stack, Value)> {
        let body = json!({"stack_name": name, "template": template, "parameters": parameters});
        let stacks = format!("/v1/{}/stacks", user.project_id);
        let token = self.region.keystone.token(user).await?;
        let made = self
            .call(&token, Method::POST, &stacks, Some(&body))
            .await?;
        let id = made["stack"]["id"].as_str();
        let id = id.with_context(|| format!("no id in {made}"))?;
        let stack = Stack {
            user: user.clone(),
            path: format!("{stacks}/{name}/{id}"),
        };
        let shown = self.wait(&token, &stack, "CREATE").await?;
        Ok((stack, shown))
    }

    /// The same for an update of a stack that has other parameters from now on.
    pub async fn update(&self, stack: &Stack, parameters: &Value) -> Result<Value> {
        let body = json!({"existing": true, "parameters": parameters});
        let token = self.region.keystone.token(&stack.user).await?;
        self.call(&token, Method::PATCH, &stack.path, Some(&body))
            .await?;
        self.wait(&token, stack, "UPDATE").await
    }

    /// The same for its end.
    pub async fn delete(&self, stack: &Stack) -> Result<Value> {
        let token = self.region.keystone.token(&stack.user).await?;
        self.call(&token, Method::DELETE, &stack.path, None).await?;
        self.wait(&token, stack, "DELETE").await
    }

    /// The end of each log.
    pub fn log_tail(&self) -> String {
        let logs = LOGS.map(|log| format!("{log}:\n{}", tail(&self.dir.path().join(log))));
        logs.join("\n")
    }

    async fn wait(&self, token: &str, stack: &Stack, action: &str) -> Result<Value> {
        let begun = Instant::now();
        loop {
            let shown = self.call(token, Method::GET, &stack.path, None).await?;
            let status = shown["stack"]["stack_status"].as_str().unwrap_or_default();
            if [format!("{action}_COMPLETE"), format!("{action}_FAILED")].contains(&status.into()) {
                return Ok(shown["stack"].clone());
            }
            self.give_up_after(begun, &format!("{action} of a stack, last seen {shown}"))?;
            tokio::time::sleep(POLL).await;
        }
    }

    /// To list stacks takes both. What the API asks of an engine that does not listen yet is lost, and missed only a
    /// minute later.
    async fn wait_until_it_answers(&self) -> Result<()> {
        let engine = self.dir.path().join(ENGINE_LOG);
        let begun = Instant::now();
        while !std::fs::read_to_string(&engine)?.contains("Starting engine_worker") {
            self.give_up_after(begun, "the start of the engine")?;
            tokio::time::sleep(POLL).await;
        }
        let user = self.region.keystone.admin().await?;
        let token = self.region.keystone.token(&user).await?;
        let path = format!("/v1/{}/stacks", user.project_id);
        loop {
            let asked = self.call(&token, Method::GET, &path, None);
            if let Ok(Ok(_)) = tokio::time::timeout(FIRST_ANSWER, asked).await {
                return Ok(());
            }
            self.give_up_after(begun, "an answer of Heat")?;
            tokio::time::sleep(POLL).await;
        }
    }

    fn give_up_after(&self, begun: Instant, what: &str) -> Result<()> {
        if begun.elapsed() > PATIENCE {
            bail!("waited {PATIENCE:?} for {what}\n{}", self.log_tail());
        }
        Ok(())
    }

    async fn call(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let what = format!("Heat: {method} {path}");
        let headers = [("x-auth-token", token)];
        let exchange = http::exchange(self.address, method, path, &headers, body);
        let Reply { status, body, .. } = tokio::time::timeout(PATIENCE, exchange)
            .await
            .with_context(|| format!("{what}: no answer in {PATIENCE:?}"))?
            .with_context(|| what.clone())?;
        ensure!((200..300).contains(&status), "{what}: {status} {body}");
        Ok(body)
    }
}

fn program(name: &str, home: &Path) -> Result<Command> {
    let mut command = Command::new(venv(VENV)?.join("bin").join(name));
    command
        .current_dir(home)
        .env("HOME", home)
        .stdin(Stdio::null());
    Ok(command)
}

fn configuration(auth_url: &str, database: &str, broker: &str) -> Result<String> {
    let database = database
        .replacen("mysql://", "mysql+pymysql://", 1)
        .replacen("?socket=", "?unix_socket=", 1);
    let paste = venv(VENV)?.join("etc/heat/api-paste.ini");
    let user = format!(
        "auth_type = password\nauth_url = {auth_url}\nusername = {NAME}\npassword = {PASSWORD}\nuser_domain_id = default\n"
    );
    Ok(format!(
        r#"[DEFAULT]
transport_url = {broker}
num_engine_workers = 1
[database]
connection = {database}
[paste_deploy]
api_paste_config = {paste}
[oslo_policy]
# Readers may ask for a stack, so that it is our API that refuses them.
enforce_new_defaults = false
[keystone_authtoken]
{user}www_authenticate_uri = {auth_url}
project_name = service
project_domain_id = default
[trustee]
{user}
[clients_keystone]
auth_uri = {auth_url}
"#,
        paste = paste.display(),
    ))
}
