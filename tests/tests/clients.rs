//! The stock clients work unchanged: python-openstackclient with python-octaviaclient, and openstacksdk.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use test_support::scene::{HTTP, PATIENCE, Scene, server_address};
use test_support::{Traffic, first_answer, venv};

fn program(name: &str) -> Result<PathBuf> {
    Ok(venv("venv")?.join("bin").join(name))
}

/// The `openstack` command against one endpoint, without authentication.
struct Openstack {
    program: PathBuf,
    endpoint: String,
}

impl Openstack {
    async fn run(&self, line: &str) -> Result<String> {
        let mut command = Command::new(&self.program);
        command
            .args(line.split_whitespace())
            .env("OS_AUTH_TYPE", "none")
            .env("OS_ENDPOINT", &self.endpoint);
        finish(command).await
    }

    async fn json(&self, line: &str) -> Result<Value> {
        let output = self.run(&format!("{line} -f json")).await?;
        serde_json::from_str(&output).with_context(|| format!("{line}: {output}"))
    }
}

async fn finish(mut command: Command) -> Result<String> {
    tokio::task::spawn_blocking(move || {
        let output = command
            .output()
            .with_context(|| format!("start {command:?}"))?;
        if !output.status.success() {
            bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    })
    .await?
}

#[tokio::test(flavor = "multi_thread")]
async fn the_openstack_command_line_runs_a_load_balancer() -> Result<()> {
    let scene = Scene::start().await?;
    let cli = Openstack {
        program: program("openstack")?,
        endpoint: format!("http://{}", scene.api().address()),
    };
    let lb = cli
        .json("loadbalancer create --name web --vip-subnet-id public-v4 --wait")
        .await?;
    ensure!(lb["provisioning_status"] == "ACTIVE", "{lb}");
    cli.run(
        "loadbalancer listener create --name http --protocol HTTP --protocol-port 80 --wait web",
    )
    .await?;
    cli.run("loadbalancer pool create --name servers --listener http --protocol HTTP --lb-algorithm ROUND_ROBIN --wait")
        .await?;
    cli.run(&format!(
        "loadbalancer member create --name red --address {} --protocol-port {HTTP} --subnet-id servers-v4 --wait servers",
        server_address(0)
    ))
    .await?;
    cli.run("loadbalancer healthmonitor create --name check --type HTTP --delay 1 --timeout 1 --max-retries 1 --wait servers")
        .await?;
    let vip = format!("{}:{HTTP}", lb["vip_address"].as_str().context("no VIP")?).parse()?;
    first_answer(&scene.client, vip, Traffic::Http, PATIENCE).await?;

    let status = cli.run("loadbalancer status show web").await?;
    let status: Value = serde_json::from_str(&status).context("status is not JSON")?;
    let member = &status["loadbalancer"]["listeners"][0]["pools"][0]["members"][0];
    ensure!(member["name"] == "red", "{status}");
    let stats = cli.json("loadbalancer stats show web").await?;
    ensure!(stats["bytes_in"].is_number(), "{stats}");
    let names: Vec<Value> = cli
        .json("loadbalancer list")
        .await?
        .as_array()
        .cloned()
        .unwrap_or_default();
    ensure!(names.len() == 1 && names[0]["name"] == "web", "{names:?}");

    let before = cli.json("loadbalancer amphora list").await?;
    cli.run("loadbalancer failover --wait web").await?;
    let after = cli
        .json("loadbalancer amphora list --status ALLOCATED")
        .await?;
    ensure!(before[0]["id"] != after[0]["id"], "{before} {after}");
    first_answer(&scene.client, vip, Traffic::Http, PATIENCE).await?;

    let refused = cli.run("loadbalancer delete web").await;
    ensure!(
        refused.is_err(),
        "a load balancer with children was deleted without cascade"
    );
    cli.run("loadbalancer delete --cascade --wait web").await?;
    ensure!(cli.json("loadbalancer list").await? == Value::Array(Vec::new()));
    scene.stack.destroy().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_sdk_runs_a_load_balancer() -> Result<()> {
    let scene = Scene::start().await?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/sdk.py");
    let mut command = Command::new(program("python3")?);
    command
        .arg(script)
        .arg(format!("http://{}", scene.api().address()))
        .arg(server_address(0).to_string());
    let output = finish(command)
        .await
        .with_context(|| scene.stack.log_tail())?;
    ensure!(output.contains("all good"), "{output}");
    scene.stack.destroy().await
}
