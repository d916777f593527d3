//! A Galera cluster behind a round-robin balancer, two control planes, eight clients; a database node and a control
//! plane die on the way. Nothing ends in ERROR, nothing stays pending, no update is lost, and what was written is read
//! by whoever asks next, through whatever node (Octavia's story 2007370).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use test_databases::Galera;
use test_support::scene::{rounds, text};
use test_support::{Answer, Api, Balancer, Replica, control_plane};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

const CLIENTS: usize = 8;
/// Each round of a client is a create, an update, a member of the pool all clients share, and a delete.
const ROUNDS: u64 = 4;
const OPERATIONS: u64 = 4;
/// For one operation, all its tries together.
const PATIENCE: Duration = Duration::from_secs(60);
const PROJECT: &str = "22222222-2222-4222-8222-222222222222";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_and_a_control_plane_die_and_every_change_is_kept() -> Result<()> {
    let mut cluster = Galera::start(3)?;
    cluster.create_database("octavia")?;
    let balancer = Balancer::start(cluster.addresses()).await?;
    let url = Galera::url(balancer.address(), "octavia");
    upgrade_twice(&url).await?;
    let mut replicas = [Replica::start(&url)?, Replica::start(&url)?];
    let mut scene = Scene {
        apis: [replicas[0].api()?, replicas[1].api()?],
        turn: AtomicUsize::new(0),
        done: AtomicU64::new(0),
        members: Mutex::new(Vec::new()),
        pool: String::new(),
    };
    let (lb, pool) = shared_pool(&scene).await?;
    scene.pool.clone_from(&pool);
    // What the work needs to the object, so that a count that drifts upwards refuses some of it.
    let members = rounds(ROUNDS) * CLIENTS as u64;
    let limits = json!({"loadbalancer": CLIENTS + 1, "member": members});
    scene
        .put(
            &format!("lbaas/quotas/{PROJECT}"),
            &json!({"quota": limits}),
            202,
        )
        .await?;

    let total = rounds(ROUNDS) * OPERATIONS * CLIENTS as u64;
    let clients = try_join_all((0..CLIENTS).map(|client| work(&scene, client)));
    let killer = async {
        scene.reached(total / 4).await;
        cluster.kill(1);
        scene.reached(total / 2).await;
        replicas[1].kill()
    };
    let outcome = tokio::try_join!(killer, clients);
    if let Err(error) = outcome {
        bail!(
            "{error:#}\nfirst control plane:\n{}\nsecond:\n{}",
            replicas[0].log()?,
            replicas[1].log()?
        );
    }
    ensure!(scene.done.load(Ordering::SeqCst) == total);

    // What is left is the shared load balancer, ACTIVE, with exactly the members that were acknowledged.
    let settled = scene.settled(&lb).await?;
    ensure!(settled["provisioning_status"] == "ACTIVE", "{settled}");
    let all = scene.get("lbaas/loadbalancers").await?;
    let all = all["loadbalancers"].as_array().context("no list")?.len();
    ensure!(all == 1, "{all} load balancers are left");
    let mut acknowledged = scene.members.lock().await.clone();
    let found = scene.get(&format!("lbaas/pools/{pool}/members")).await?;
    let mut found: Vec<String> = found["members"]
        .as_array()
        .context("no list")?
        .iter()
        .map(|member| text(member, "id"))
        .collect::<Result<_>>()?;
    acknowledged.sort();
    found.sort();
    ensure!(acknowledged == found, "{acknowledged:?}\n{found:?}");
    quotas_are_exact(&scene).await
}

/// The limit of members is reached; of load balancers there is one, so as many as there are clients fit besides,
/// asked for twice as often at once.
async fn quotas_are_exact(scene: &Scene) -> Result<()> {
    let member = json!({"member": {"address": "10.200.0.1", "protocol_port": 80}});
    let path = format!("lbaas/pools/{}/members", scene.pool);
    ensure!(!scene.fits(&path, &member).await?);
    let creates = (0..2 * CLIENTS).map(|number| async move {
        let body = load_balancer(&format!("to the limit {number}"));
        scene.fits("lbaas/loadbalancers", &body).await
    });
    let fitting = try_join_all(creates).await?;
    let fitting = fitting.into_iter().filter(|fits| *fits).count();
    ensure!(fitting == CLIENTS, "{fitting} load balancers fit");
    Ok(())
}

fn load_balancer(name: &str) -> Value {
    json!({"loadbalancer": {
        "name": name,
        "vip_subnet_id": "11111111-1111-4111-8111-111111111111",
        "project_id": PROJECT,
    }})
}

/// By two operators at once, each through another node.
async fn upgrade_twice(url: &str) -> Result<()> {
    let mut upgrades = JoinSet::new();
    for _ in 0..2 {
        let url = url.to_owned();
        upgrades.spawn_blocking(move || control_plane(&url, &["db", "upgrade"]));
    }
    while let Some(output) = upgrades.join_next().await {
        let output = output??;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{errors}");
    }
    Ok(())
}

/// The load balancer that all clients change, and its pool.
async fn shared_pool(scene: &Scene) -> Result<(String, String)> {
    let lb = scene.create_load_balancer("shared").await?;
    scene.settled(&lb).await?;
    let body = json!({"pool": {
        "loadbalancer_id": lb, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
    }});
    let created = scene.api().post("lbaas/pools", &body).await?.expect(201)?;
    scene.settled(&lb).await?;
    Ok((lb, text(&created["pool"], "id")?))
}

async fn work(scene: &Scene, client: usize) -> Result<()> {
    for round in 0..rounds(ROUNDS) {
        let name = format!("client {client} round {round}");
        lifecycle(scene, &name)
            .await
            .with_context(|| name.clone())?;
        let address = format!("10.{client}.{}.{}", round / 250, round % 250 + 1);
        scene
            .add_member(&address)
            .await
            .with_context(|| format!("{name}: member"))?;
    }
    Ok(())
}

/// Create, update, delete. What was answered is there for the next reader.
async fn lifecycle(scene: &Scene, name: &str) -> Result<()> {
    let id = scene.create_load_balancer(name).await.context("create")?;
    scene.did_one();
    let path = format!("lbaas/loadbalancers/{id}");
    let settled = scene.settled(&id).await?;
    ensure!(settled["provisioning_status"] == "ACTIVE", "{settled}");

    let changed = format!("{name} changed");
    let body = json!({"loadbalancer": {"name": changed}});
    scene.put(&path, &body, 200).await?;
    scene.did_one();
    let read = scene.get(&path).await?;
    ensure!(read["loadbalancer"]["name"] == *changed, "{read}");
    let settled = scene.settled(&id).await?;
    ensure!(settled["provisioning_status"] == "ACTIVE", "{settled}");
    ensure!(settled["name"] == *changed, "{settled}");

    scene
        .until("delete", async |api| {
            let answer = api.delete(&path).await?;
            // Gone: an earlier try was not answered.
            Ok((answer.status == 404 || is_done(&answer, 204)?).then_some(()))
        })
        .await?;
    scene.did_one();
    scene
        .until("be gone", async |api| {
            let answer = api.get(&path).await?;
            if answer.status == 200 {
                let status = &answer.body["loadbalancer"]["provisioning_status"];
                ensure!(status == "PENDING_DELETE", "{}", answer.body);
            }
            Ok((answer.status == 404).then_some(()))
        })
        .await
}

/// Whether the call was taken; an error when it never will be. 409: the object is being worked on. 503: try again.
fn is_done(answer: &Answer, wanted: u16) -> Result<bool> {
    match answer.status {
        status if status == wanted => Ok(true),
        409 => Ok(false),
        503 => {
            ensure!(answer.headers.contains_key("retry-after"));
            Ok(false)
        }
        status => bail!("{status}: {}", answer.body),
    }
}

struct Scene {
    apis: [Api; 2],
    turn: AtomicUsize,
    done: AtomicU64,
    /// Members that were acknowledged.
    members: Mutex<Vec<String>>,
    /// The pool all clients add to.
    pool: String,
}

impl Scene {
    /// The two control planes in turn.
    fn api(&self) -> Api {
        self.apis[self.turn.fetch_add(1, Ordering::Relaxed) % self.apis.len()].clone()
    }

    fn did_one(&self) {
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns when so many operations are done.
    async fn reached(&self, operations: u64) {
        while self.done.load(Ordering::SeqCst) < operations {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Asks one control plane after the other until there is an answer; one that is dead does not count.
    async fn until<T>(
        &self,
        what: &str,
        mut ask: impl AsyncFnMut(Api) -> Result<Option<T>>,
    ) -> Result<T> {
        let start = Instant::now();
        let mut last = None;
        while start.elapsed() < PATIENCE {
            match ask(self.api()).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) if is_dead(&error) => last = Some(error),
                Err(error) => return Err(error.context(what.to_owned())),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("waited {PATIENCE:?} to {what}, last {last:?}")
    }

    async fn get(&self, path: &str) -> Result<Value> {
        self.until(path, async |api| {
            let answer = api.get(path).await?;
            Ok(is_done(&answer, 200)?.then_some(answer.body))
        })
        .await
    }

    async fn put(&self, path: &str, body: &Value, status: u16) -> Result<()> {
        self.until("update", async |api| {
            let answer = api.put(path, Some(body)).await?;
            Ok(is_done(&answer, status)?.then_some(()))
        })
        .await
    }

    /// Whether a create is taken; otherwise the quota refused it.
    async fn fits(&self, path: &str, body: &Value) -> Result<bool> {
        self.until("be told of the quota", async |api| {
            let answer = api.post(path, body).await?;
            if answer.status == 403 {
                let fault = answer.body["faultstring"].as_str().unwrap_or_default();
                ensure!(fault.contains("Quota has been met"), "{fault}");
                return Ok(Some(false));
            }
            Ok(is_done(&answer, 201)?.then_some(true))
        })
        .await
    }

    /// A create that is not answered may have happened: then its name tells.
    async fn create_load_balancer(&self, name: &str) -> Result<String> {
        let body = load_balancer(name);
        let mut unsure = false;
        let id = self
            .until("create", async |api| {
                if unsure {
                    let path = format!("lbaas/loadbalancers?name={}", name.replace(' ', "%20"));
                    let found = api.get(&path).await?;
                    if !is_done(&found, 200)? {
                        return Ok(None);
                    }
                    if let Some(lb) = found.body["loadbalancers"].get(0) {
                        return text(lb, "id").map(Some);
                    }
                }
                let answer = api.post("lbaas/loadbalancers", &body).await;
                unsure = answer.as_ref().map_or(true, |answer| answer.status == 503);
                let answer = answer?;
                if is_done(&answer, 201)? {
                    return text(&answer.body["loadbalancer"], "id").map(Some);
                }
                Ok(None)
            })
            .await?;
        // Whoever is asked next knows it.
        self.get(&format!("lbaas/loadbalancers/{id}"))
            .await
            .context("read what was just created")?;
        Ok(id)
    }

    async fn add_member(&self, address: &str) -> Result<()> {
        let path = format!("lbaas/pools/{}/members", self.pool);
        let body = json!({"member": {"address": address, "protocol_port": 80}});
        let mut unsure = false;
        let id = self
            .until("add a member", async |api| {
                if unsure {
                    let found = api.get(&format!("{path}?address={address}")).await?;
                    if !is_done(&found, 200)? {
                        return Ok(None);
                    }
                    if let Some(member) = found.body["members"].get(0) {
                        return text(member, "id").map(Some);
                    }
                }
                let answer = api.post(&path, &body).await;
                unsure = answer.as_ref().map_or(true, |answer| answer.status == 503);
                let answer = answer?;
                if is_done(&answer, 201)? {
                    return text(&answer.body["member"], "id").map(Some);
                }
                Ok(None)
            })
            .await?;
        self.members.lock().await.push(id.clone());
        self.did_one();
        self.get(&format!("{path}/{id}"))
            .await
            .context("read what was just added")?;
        Ok(())
    }

    /// The load balancer once it is no longer pending.
    async fn settled(&self, id: &str) -> Result<Value> {
        let path = format!("lbaas/loadbalancers/{id}");
        self.until("settle", async |api| {
            let answer = api.get(&path).await?;
            if !is_done(&answer, 200)? {
                return Ok(None);
            }
            let lb = &answer.body["loadbalancer"];
            let status = text(lb, "provisioning_status")?;
            Ok((!status.starts_with("PENDING")).then(|| lb.clone()))
        })
        .await
    }
}

/// The control plane that was asked is not there, or died before it answered.
fn is_dead(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some()
            || cause.downcast_ref::<hyper::Error>().is_some()
    })
}
