//! The control plane on database servers: waiting for them, their schema, and going on after they were away.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_databases::{Kind, Server};
use test_support::scene::text;
use test_support::{Api, Replica, control_plane};

const DATABASE: &str = "octavia";

fn server(kind: Kind) -> Result<(Server, String)> {
    let server = Server::start(kind)?;
    server.create_database(DATABASE)?;
    let url = server.database_url(DATABASE);
    Ok((server, url))
}

fn succeeded(output: &Output) -> Result<String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn refused(output: &Output) -> Result<String> {
    ensure!(!output.status.success(), "it was not refused");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn request(name: &str) -> Value {
    json!({"loadbalancer": {
        "name": name,
        "vip_subnet_id": "11111111-1111-4111-8111-111111111111",
        "project_id": "22222222-2222-4222-8222-222222222222",
    }})
}

async fn create(api: &Api, name: &str) -> Result<String> {
    let created = api.post("lbaas/loadbalancers", &request(name)).await?;
    text(&created.expect(201)?["loadbalancer"], "id")
}

/// A schema is upgraded by an operator, once, whoever else does it at the same time; what is not this program's is
/// refused by name.
async fn schema(kind: Kind) -> Result<()> {
    let (_server, url) = server(kind)?;
    let old = refused(&control_plane(&url, &["all"])?)?;
    ensure!(old.contains("control-plane db upgrade"), "{old}");
    ensure!(refused(&control_plane(&url, &["db", "check"])?)?.contains("m0001_first"));
    ensure!(succeeded(&control_plane(&url, &["db", "current"])?)?.is_empty());

    let upgrades: Vec<_> = (0..3)
        .map(|_| {
            let url = url.clone();
            tokio::task::spawn_blocking(move || control_plane(&url, &["db", "upgrade"]))
        })
        .collect();
    for upgrade in upgrades {
        succeeded(&upgrade.await??)?;
    }
    succeeded(&control_plane(&url, &["db", "check"])?)?;
    let current = succeeded(&control_plane(&url, &["db", "current"])?)?;
    ensure!(current.starts_with("m0001_first\n"), "{current}");
    Ok(())
}

/// A database that is not there at the start is waited for; one that dies is missed with 503 and nothing else, and
/// everything goes on when it is back.
async fn outage(kind: Kind) -> Result<()> {
    let (mut server, url) = server(kind)?;
    succeeded(&control_plane(&url, &["db", "upgrade"])?)?;
    server.kill();
    let mut replica = Replica::launch(&url)?;
    replica
        .wait_for_log("the database does not answer, waiting for it")
        .await?;
    server.start_again()?;
    replica.wait_until_it_listens()?;
    let api = replica.api()?;
    let id = create(&api, "before").await?;
    api.wait_active(&id).await?;

    server.kill();
    let path = format!("lbaas/loadbalancers/{id}");
    let change = json!({"loadbalancer": {"name": "changed"}});
    for answer in [
        api.get(&path).await?,
        api.put(&path, Some(&change)).await?,
        api.post("lbaas/loadbalancers", &request("meanwhile"))
            .await?,
    ] {
        let retry = answer.headers.contains_key("retry-after");
        let fault = answer.clone().expect(503)?;
        ensure!(retry, "no Retry-After");
        ensure!(fault["faultcode"] == "Server", "{fault}");
        ensure!(
            fault["faultstring"]
                .as_str()
                .is_some_and(|text| text.contains("database")),
            "{fault}"
        );
    }
    server.start_again()?;
    let start = Instant::now();
    loop {
        let answer = api.get(&path).await?;
        match answer.status {
            200 => {
                let lb = &answer.body["loadbalancer"];
                ensure!(lb["name"] == "before", "{lb}");
                ensure!(lb["provisioning_status"] == "ACTIVE", "{lb}");
                break;
            }
            503 if start.elapsed() < Duration::from_secs(30) => {}
            status => bail!("{status} {}", answer.body),
        }
    }
    api.put(&path, Some(&change)).await?.expect(200)?;
    let lb = api.wait_active(&id).await.context(replica.log()?)?;
    ensure!(lb["name"] == "changed", "{lb}");
    let after = create(&api, "after").await?;
    api.wait_active(&after).await?;
    api.delete(&path).await?.expect(204)?;
    api.wait_gone(&id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_is_upgraded_once_and_a_foreign_schema_is_refused() -> Result<()> {
    schema(Kind::MariaDb).await
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_is_upgraded_once_and_a_foreign_schema_is_refused() -> Result<()> {
    schema(Kind::PostgreSql).await
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_that_is_away_is_waited_for_and_loses_nothing() -> Result<()> {
    outage(Kind::MariaDb).await
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_that_is_away_is_waited_for_and_loses_nothing() -> Result<()> {
    outage(Kind::PostgreSql).await
}

/// A file system of a few megabytes; it goes when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Result<Self> {
        let disk = Self(tempfile::tempdir()?);
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"])
            .arg(disk.0.path())
            .output()?;
        succeeded(&mounted).context("mount a small file system (needs root)")?;
        Ok(disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Leaves no room, until the file it makes is removed.
    fn fill(&self) -> Result<PathBuf> {
        let filler = self.path("filler");
        let mut file = std::fs::File::create(&filler)?;
        while file.write_all(&[0; 4096]).is_ok() {}
        Ok(filler)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.0.path().display());
        }
    }
}

/// On a full disk a write is refused, or kept; nothing that was acknowledged is lost when the process is killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_and_loses_none_that_was_acknowledged() -> Result<()> {
    let disk = SmallDisk::mount()?;
    let url = format!("sqlite://{}", disk.path("db").display());
    let mut replica = Replica::start(&url)?;
    let api = replica.api()?;
    let first = create(&api, "first").await?;
    api.wait_active(&first).await?;
    let mut acknowledged = vec!["first".to_owned()];

    let filler = disk.fill()?;
    let mut refused = 0;
    // What is there of the write-ahead log may take some.
    for number in 0..200 {
        let name = format!("on the full disk {number}");
        let answer = api.post("lbaas/loadbalancers", &request(&name)).await?;
        if answer.status == 201 {
            acknowledged.push(name);
            continue;
        }
        ensure!(answer.status == 503, "{answer:?}");
        ensure!(answer.headers.contains_key("retry-after"), "{answer:?}");
        refused += 1;
        if refused == 2 {
            break;
        }
    }
    ensure!(refused == 2, "the disk was never full");

    std::fs::remove_file(filler)?;
    let last = create(&api, "last").await?;
    acknowledged.push("last".to_owned());
    api.wait_active(&last).await?;
    replica.kill()?;
    let replica = Replica::start(&url)?;
    let list = replica.api()?.get("lbaas/loadbalancers").await?;
    let list = list.expect(200)?;
    let kept: Vec<String> = list["loadbalancers"]
        .as_array()
        .context("no list")?
        .iter()
        .map(|item| text(item, "name"))
        .collect::<Result<_>>()?;
    ensure!(kept == acknowledged, "{kept:?}, not {acknowledged:?}");
    Ok(())
}
