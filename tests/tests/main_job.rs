//! The main job: one request creates a load balancer, traffic is spread by weight, statistics are exact.

use anyhow::Result;
use serde_json::Value;
use test_support::scene::{HTTP, SERVERS, Scene, TCP, UDP, text, vip, wait_until};
use test_support::{Tally, http_requests, tcp_connections, udp_exchanges};

#[tokio::test(flavor = "multi_thread")]
async fn traffic_follows_the_weights_and_statistics_equal_what_clients_saw() -> Result<()> {
    let scene = Scene::start().await?;
    let load_balancer = scene.create("spread").await?;
    let client = &scene.client;

    let http = http_requests(client, vip(&load_balancer, HTTP), 10_000, 20).await?;
    http.check_shares(&SERVERS, 0.02)?;
    let tcp = tcp_connections(client, vip(&load_balancer, TCP), 2_000, 20, 100).await?;
    tcp.check_shares(&SERVERS, 0.02)?;
    let udp = udp_exchanges(client, vip(&load_balancer, UDP), 2_000, 20).await?;
    udp.check_shares(&SERVERS, 0.02)?;

    let listeners = load_balancer["listeners"].as_array().unwrap();
    for (protocol, tally) in [("HTTP", &http), ("TCP", &tcp), ("UDP", &udp)] {
        let listener = listeners
            .iter()
            .find(|listener| listener["protocol"] == protocol)
            .unwrap();
        expect_stats(&scene, &text(listener, "id")?, protocol, tally).await?;
    }
    let id = text(&load_balancer, "id")?;
    let path = format!("lbaas/loadbalancers/{id}/stats");
    let sum = scene.api().get(&path).await?.expect(200)?;
    assert_eq!(
        sum["stats"]["total_connections"],
        http.connections + tcp.connections + udp.connections
    );
    scene.stack.destroy().await
}

/// Waits until the listener's counters are what the client counted, and says what they were last if not.
async fn expect_stats(scene: &Scene, listener: &str, protocol: &str, tally: &Tally) -> Result<()> {
    let path = format!("lbaas/listeners/{listener}/stats");
    let mut last = Value::Null;
    let reached = wait_until("statistics equal the client's", async || {
        let body = scene.api().get(&path).await?.expect(200)?;
        last = body["stats"].clone();
        let equal = last["total_connections"] == tally.connections
            && last["bytes_in"] == tally.bytes_sent
            && last["bytes_out"] == tally.bytes_received;
        Ok(equal.then_some(()))
    })
    .await;
    reached.map_err(|error| {
        error.context(format!(
            "{protocol}: client saw {} connections, {} bytes sent, {} received; last {last}",
            tally.connections, tally.bytes_sent, tally.bytes_received
        ))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_leaves_the_rotation_and_returns() -> Result<()> {
    let mut scene = Scene::start().await?;
    let load_balancer = scene.create("member").await?;
    let id = text(&load_balancer, "id")?;

    scene.stop_server(1);
    scene.wait_operating(&id, "DEGRADED").await?;
    let client = scene.client.clone();
    let rest = [("red", 1), ("blue", 1)];
    wait_until("no connection meets the dead server", async || {
        let tcp = tcp_connections(&client, vip(&load_balancer, TCP), 100, 10, 10).await?;
        let http = http_requests(&client, vip(&load_balancer, HTTP), 100, 10).await?;
        let good = tcp
            .check_shares(&rest, 0.03)
            .and(http.check_shares(&rest, 0.03));
        Ok(good.is_ok().then_some(()))
    })
    .await?;

    scene.start_server(1).await?;
    scene.wait_operating(&id, "ONLINE").await?;
    // Heartbeats tell of a member as soon as its checks do; the packet path may learn of it a moment later.
    wait_until("the server has its share again", async || {
        let tcp = tcp_connections(&client, vip(&load_balancer, TCP), 400, 10, 10).await?;
        Ok(tcp.check_shares(&SERVERS, 0.03).is_ok().then_some(()))
    })
    .await?;
    scene.stack.destroy().await
}
