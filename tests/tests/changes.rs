//! Changes under load: no connection is closed, no request fails.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use test_support::scene::{HTTP, Scene, TCP, UDP, rounds, server_address, text, vip};
use test_support::{Api, LongLived, Traffic};

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_changes_disturb_no_connection() -> Result<()> {
    let scene = Scene::start().await?;
    let load_balancer = scene.create("busy").await?;
    let id = text(&load_balancer, "id")?;
    let pause = Duration::from_millis(100);
    let start = |port, traffic, count| {
        LongLived::start(
            &scene.client,
            vip(&load_balancer, port),
            traffic,
            count,
            pause,
        )
    };
    let streams = start(TCP, Traffic::Tcp, 200);
    let keep_alive = start(HTTP, Traffic::Http, 200);
    let datagrams = start(UDP, Traffic::Udp, 1);
    for traffic in [&streams, &keep_alive] {
        traffic.wait_for_exchanges(400).await?;
    }
    datagrams.wait_for_exchanges(2).await?;

    let subnet = scene.subnet("servers-v4").await?;
    let changer = Changer {
        api: scene.api(),
        load_balancer: id.clone(),
        subnet,
    };
    let pools: Vec<String> = load_balancer["pools"]
        .as_array()
        .context("no pools")?
        .iter()
        .map(|pool| text(pool, "id"))
        .collect::<Result<_>>()?;
    for round in 0..usize::try_from(rounds(25))? {
        changer
            .eight_changes(&pools[round % pools.len()], round)
            .await
            .with_context(|| scene.stack.log_tail())?;
    }

    for traffic in [&streams, &keep_alive] {
        traffic.wait_for_exchanges(400).await?;
    }
    for (what, traffic, opened) in [
        ("TCP", streams, 200),
        ("HTTP", keep_alive, 200),
        ("UDP", datagrams, 1),
    ] {
        let tally = traffic.stop()?;
        assert_eq!(tally.failed, 0, "{what}: {:?}", tally.failures);
        assert_eq!(
            tally.connections, opened,
            "{what}: none was closed and opened again"
        );
    }
    scene.stack.destroy().await
}

/// P04: a client that tries again after a second when the load balancer is busy, as tools do, never has to try often.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_members_are_added_by_a_client_that_waits_for_nothing() -> Result<()> {
    const TRIES: usize = 10;
    let scene = Scene::start().await?;
    let load_balancer = scene.create("busy").await?;
    let id = text(&load_balancer, "id")?;
    let members = format!(
        "lbaas/pools/{}/members",
        text(&load_balancer["pools"][0], "id")?
    );
    let before = member_count(&scene.api(), &members).await?;
    for number in 1..=50 {
        let member = json!({ "member": {
            "address": format!("10.20.1.{number}"), "protocol_port": 80, "weight": 0,
        }});
        let mut tries = 0;
        loop {
            let answer = scene.api().post(&members, &member).await?;
            if answer.status == 201 {
                break;
            }
            let busy = answer.expect(409)?.to_string();
            ensure!(busy.contains("is immutable"), "{busy}");
            tries += 1;
            ensure!(tries < TRIES, "{busy} after {tries} tries");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    scene.api().wait_active(&id).await?;
    let added = member_count(&scene.api(), &members).await? - before;
    ensure!(added == 50, "{added} members were added");
    scene.stack.destroy().await
}

async fn member_count(api: &Api, members: &str) -> Result<usize> {
    let body = api.get(members).await?.expect(200)?;
    Ok(body["members"].as_array().context("no list")?.len())
}

struct Changer {
    api: Api,
    load_balancer: String,
    subnet: String,
}

impl Changer {
    /// Members, weights and listeners come, change and go.
    async fn eight_changes(&self, pool: &str, round: usize) -> Result<()> {
        let members = format!("lbaas/pools/{pool}/members");
        let body = self.api.get(&members).await?.expect(200)?;
        let first = text(&body["members"][0], "id")?;
        let protocol = text(
            &self
                .api
                .get(&format!("lbaas/pools/{pool}"))
                .await?
                .expect(200)?["pool"],
            "protocol",
        )?;
        let port = match protocol.as_str() {
            "HTTP" => HTTP,
            "TCP" => TCP,
            _ => UDP,
        };

        let weight = round % 5 + 1;
        let first = format!("{members}/{first}");
        self.put(&first, json!({ "member": { "weight": weight } }))
            .await?;
        let member = json!({ "member": {
            "address": server_address(2), "protocol_port": port + 1000, "subnet_id": self.subnet,
            "weight": 0,
        }});
        let added = self.post(&members, member).await?;
        let added = format!("{members}/{}", text(&added["member"], "id")?);
        self.put(&added, json!({ "member": { "name": "new" } }))
            .await?;
        self.delete(&added).await?;
        let listener = json!({ "listener": {
            "loadbalancer_id": self.load_balancer, "protocol": "TCP",
            "protocol_port": 20_000 + round,
        }});
        let added = self.post("lbaas/listeners", listener).await?;
        let added = format!("lbaas/listeners/{}", text(&added["listener"], "id")?);
        self.put(&added, json!({ "listener": { "connection_limit": 100 } }))
            .await?;
        self.delete(&added).await?;
        self.put(&first, json!({ "member": { "weight": 1 } })).await
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value> {
        let answer = self.api.post(path, &body).await?.expect(201)?;
        self.api.wait_active(&self.load_balancer).await?;
        Ok(answer)
    }

    async fn put(&self, path: &str, body: Value) -> Result<()> {
        self.api.put(path, Some(&body)).await?.expect(200)?;
        self.api.wait_active(&self.load_balancer).await.map(drop)
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.api.delete(path).await?.expect(204)?;
        self.api.wait_active(&self.load_balancer).await.map(drop)
    }
}
