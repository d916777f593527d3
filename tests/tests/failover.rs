//! Amphorae that are replaced, on purpose or because they died.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use test_support::scene::{HTTP, PATIENCE, SERVERS, Scene, TCP, text, vip, wait_until};
use test_support::{LongLived, Probe, Traffic, first_answer, tcp_connections};

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_failover_loses_no_request_and_no_connection() -> Result<()> {
    let scene = Scene::start().await?;
    let load_balancer = scene.create("planned").await?;
    let id = text(&load_balancer, "id")?;
    let (http, tcp) = (vip(&load_balancer, HTTP), vip(&load_balancer, TCP));
    let before = scene.amphora(&id).await?;

    let pause = Duration::from_millis(10);
    let keep_alive = LongLived::start(&scene.client, http, Traffic::Http, 50, pause);
    let streams = LongLived::start(&scene.client, tcp, Traffic::Tcp, 50, pause);
    keep_alive.wait_for_exchanges(100).await?;
    streams.wait_for_exchanges(100).await?;
    let fresh = Probe::start(
        &scene.client,
        http,
        Traffic::Http,
        Duration::from_millis(2),
        Duration::from_secs(3),
    );
    let path = format!("lbaas/loadbalancers/{id}/failover");
    scene.api().put(&path, None).await?.expect(202)?;
    let after = scene.wait_replaced(&id, &before).await?;
    scene.api().wait_active(&id).await?;
    keep_alive.wait_for_exchanges(500).await?;
    streams.wait_for_exchanges(500).await?;

    let keep_alive = keep_alive.stop()?;
    let streams = streams.stop()?;
    let fresh = fresh.stop()?;
    assert_eq!(keep_alive.failed, 0, "{:?}", keep_alive.failures);
    assert_eq!(streams.failed, 0, "{:?}", streams.failures);
    let lost: Vec<_> = fresh
        .iter()
        .filter_map(|sample| sample.answered.as_ref().err())
        .collect();
    assert!(
        lost.is_empty(),
        "{} of {} lost: {lost:?}",
        lost.len(),
        fresh.len()
    );
    assert_eq!(before["ha_ip"], after["ha_ip"], "the VIP keeps its address");

    // The predecessor goes, with its ports, once its connections have ended.
    wait_until("one amphora is left", async || {
        let path = format!("octavia/amphorae?loadbalancer_id={id}");
        let body = scene.api().get(&path).await?.expect(200)?;
        Ok((body["amphorae"].as_array().map(Vec::len) == Some(1)).then_some(()))
    })
    .await?;
    let tally = tcp_connections(&scene.client, tcp, 400, 10, 10).await?;
    tally.check_shares(&SERVERS, 0.03)?;

    // Also what the predecessor served after its last heartbeat.
    let served = [
        ("HTTP", keep_alive.connections + fresh.len() as u64),
        ("TCP", streams.connections + tally.connections),
    ];
    for (protocol, connections) in served {
        expect_connections(&scene, &load_balancer, protocol, connections).await?;
    }
    scene.stack.destroy().await
}

/// Waits until the listener of this protocol has counted what its clients did, over all amphorae.
async fn expect_connections(
    scene: &Scene,
    load_balancer: &Value,
    protocol: &str,
    wanted: u64,
) -> Result<()> {
    let listener = load_balancer["listeners"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|listener| listener["protocol"] == protocol)
        .with_context(|| format!("no {protocol} listener"))?;
    let path = format!("lbaas/listeners/{}/stats", text(listener, "id")?);
    let mut last = Value::Null;
    wait_until("statistics equal the clients'", async || {
        let body = scene.api().get(&path).await?.expect(200)?;
        last = body["stats"].clone();
        Ok((last["total_connections"] == wanted).then_some(()))
    })
    .await
    .with_context(|| format!("{protocol}: clients made {wanted} connections; last {last}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_amphora_that_loses_power_is_replaced_and_the_vip_stays() -> Result<()> {
    let scene = Scene::start().await?;
    let load_balancer = scene.create("dead").await?;
    let id = text(&load_balancer, "id")?;
    let before = scene.amphora(&id).await?;
    let victim = text(&before, "id")?.parse()?;
    scene.stack.local().kill_server(victim).await?;
    let after = scene.wait_replaced(&id, &before).await?;
    first_answer(
        &scene.client,
        vip(&load_balancer, HTTP),
        Traffic::Http,
        PATIENCE,
    )
    .await?;
    first_answer(
        &scene.client,
        vip(&load_balancer, TCP),
        Traffic::Tcp,
        PATIENCE,
    )
    .await?;
    scene.api().wait_active(&id).await?;
    scene.wait_operating(&id, "ONLINE").await?;
    assert_eq!(before["ha_ip"], after["ha_ip"]);
    scene.stack.destroy().await
}
