//! The story `make demo` tells. Each step checks what it shows: a demo that only prints could lie.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use test_support::scene::{
    CLIENT, HTTP, PATIENCE, SERVERS, Scene, TCP, UDP, server_address, text, vip, wait_until,
};
use test_support::{
    Api, LongLived, Probe, Sample, StackOptions, Tally, Traffic, first_answer, http_requests,
    tcp_connections, udp_exchanges,
};

pub(crate) async fn tell(state_dir: &Path) -> Result<()> {
    heading("A local stack: control plane, tenant networks, three servers, a client");
    let mut scene = Scene::start_as(StackOptions {
        name: Some("demo".to_owned()),
        state_dir: Some(state_dir.to_owned()),
        ..StackOptions::default()
    })
    .await?;
    for (index, (name, weight)) in SERVERS.iter().enumerate() {
        println!(
            "  server {name:<6} {}  weight {weight}",
            server_address(index)
        );
    }
    println!("  client        {CLIENT}");
    let told = chapters(&mut scene).await;
    if told.is_err() {
        eprintln!("control plane's log:\n{}", scene.stack.log_tail());
    }
    heading("Cleaning up");
    let Scene { stack, servers, .. } = scene;
    drop(servers);
    stack.destroy().await?;
    std::fs::remove_dir_all(state_dir).context("remove state directory")?;
    told?;
    println!("  nothing is left: no namespace, link, process, mount or pinned map");
    Ok(())
}

async fn chapters(scene: &mut Scene) -> Result<()> {
    let load_balancer = create(scene).await?;
    traffic(scene, &load_balancer).await?;
    server_dies(scene, &load_balancer).await?;
    amphora_dies(scene, &load_balancer).await?;
    planned_failover(scene, &load_balancer).await?;
    end(scene, &load_balancer).await
}

async fn create(scene: &Scene) -> Result<Value> {
    heading("One request creates it all: TCP, UDP and HTTP listeners, pools, members, monitors");
    let api = scene.api();
    let request = scene.full_request("demo").await?;
    let start = Instant::now();
    let created = api
        .post("lbaas/loadbalancers", &request)
        .await?
        .expect(201)?;
    let accepted = start.elapsed();
    let load_balancer = created["loadbalancer"].clone();
    let id = text(&load_balancer, "id")?;
    let http = vip(&load_balancer, HTTP);
    println!(
        "  POST answered 201 after {}: VIP {}, {}",
        ms(accepted),
        http.ip(),
        status(&load_balancer)
    );
    api.wait_active(&id).await?;
    println!("  ACTIVE after {}", ms(start.elapsed()));
    let first = first_answer(&scene.client, http, Traffic::Http, PATIENCE).await?;
    println!("  first good HTTP answer {} after ACTIVE", ms(first));
    scene.wait_operating(&id, "ONLINE").await?;
    tree(&api, &id).await?;
    Ok(load_balancer)
}

async fn traffic(scene: &Scene, load_balancer: &Value) -> Result<()> {
    heading("Traffic: red, green and blue have weights 1, 2 and 1");
    let client = &scene.client;
    let http = http_requests(client, vip(load_balancer, HTTP), 4000, 20).await?;
    show("HTTP, 4000 requests over 20 keep-alive connections", &http)?;
    let tcp = tcp_connections(client, vip(load_balancer, TCP), 2000, 20, 64).await?;
    show("TCP, 2000 connections through the eBPF programs", &tcp)?;
    let udp = udp_exchanges(client, vip(load_balancer, UDP), 2000, 20).await?;
    show("UDP, 2000 datagrams through the eBPF programs", &udp)
}

async fn server_dies(scene: &mut Scene, load_balancer: &Value) -> Result<()> {
    heading("A server dies: red stops answering");
    let api = scene.api();
    let id = text(load_balancer, "id")?;
    let probe = Probe::start(
        &scene.client,
        vip(load_balancer, TCP),
        Traffic::Tcp,
        Duration::from_millis(5),
        Duration::from_millis(500),
    );
    let died = Instant::now();
    scene.stop_server(0);
    wait_member(&api, &id, SERVERS[0].0, "ERROR").await?;
    let reported = died.elapsed();
    let samples = probe.stop()?;
    println!(
        "  last failed TCP connection {} after the death; all its members ERROR in the API after {}",
        ms(last_failure(&samples, died)),
        ms(reported)
    );
    scene.wait_operating(&id, "DEGRADED").await?;
    tree(&api, &id).await?;
    let http = http_requests(&scene.client, vip(load_balancer, HTTP), 300, 10).await?;
    show("HTTP, 300 requests", &http)?;
    scene.start_server(0).await?;
    let back = Instant::now();
    scene.wait_operating(&id, "ONLINE").await?;
    println!("  red is back: ONLINE after {}", ms(back.elapsed()));
    Ok(())
}

async fn amphora_dies(scene: &Scene, load_balancer: &Value) -> Result<()> {
    heading("The amphora dies: its machine loses power");
    let id = text(load_balancer, "id")?;
    let http = vip(load_balancer, HTTP);
    let before = scene.amphora(&id).await?;
    println!("  before: {}", describe(&before));
    let probe = Probe::start(
        &scene.client,
        http,
        Traffic::Http,
        Duration::from_millis(5),
        Duration::from_millis(200),
    );
    let victim = text(&before, "id")?.parse()?;
    let died = Instant::now();
    scene.stack.local().kill_server(victim).await?;
    let after = scene.wait_replaced(&id, &before).await?;
    let answered = first_answer(&scene.client, http, Traffic::Http, PATIENCE).await;
    let samples = probe.stop()?;
    answered?;
    println!(
        "  traffic again {} after its death, found out by the silence of its heartbeats",
        ms(last_failure(&samples, died))
    );
    scene.api().wait_active(&id).await?;
    println!("  after:  {}", describe(&after));
    scene.wait_operating(&id, "ONLINE").await
}

async fn planned_failover(scene: &Scene, load_balancer: &Value) -> Result<()> {
    heading("A planned failover, under load: make before break");
    let api = scene.api();
    let id = text(load_balancer, "id")?;
    let http = vip(load_balancer, HTTP);
    let before = scene.amphora(&id).await?;
    let pause = Duration::from_millis(2);
    let keep_alive = LongLived::start(&scene.client, http, Traffic::Http, 20, pause);
    let streams = LongLived::start(
        &scene.client,
        vip(load_balancer, TCP),
        Traffic::Tcp,
        20,
        pause,
    );
    let fresh = Probe::start(
        &scene.client,
        http,
        Traffic::Http,
        pause,
        Duration::from_secs(2),
    );
    keep_alive.wait_for_exchanges(100).await?;
    streams.wait_for_exchanges(100).await?;
    let start = Instant::now();
    api.put(&format!("lbaas/loadbalancers/{id}/failover"), None)
        .await?
        .expect(202)?;
    let after = scene.wait_replaced(&id, &before).await?;
    api.wait_active(&id).await?;
    println!(
        "  ACTIVE after {} on {}",
        ms(start.elapsed()),
        describe(&after)
    );
    keep_alive.wait_for_exchanges(500).await?;
    streams.wait_for_exchanges(500).await?;
    let fresh = fresh.stop()?;
    let lost: Vec<&String> = fresh
        .iter()
        .filter_map(|sample| sample.answered.as_ref().err())
        .collect();
    let mut failures = lost.len() as u64;
    println!(
        "  {} fresh HTTP connections, {} lost",
        fresh.len(),
        lost.len()
    );
    for (what, traffic) in [("keep-alive HTTP", keep_alive), ("TCP", streams)] {
        let tally = traffic.stop()?;
        println!(
            "  {} exchanges on 20 {what} connections, {} lost",
            tally.total() + tally.failed,
            tally.failed
        );
        failures += tally.failed;
    }
    ensure!(failures == 0, "a planned failover lost requests: {lost:?}");
    Ok(())
}

async fn end(scene: &Scene, load_balancer: &Value) -> Result<()> {
    heading("Statistics, and the end");
    let api = scene.api();
    let id = text(load_balancer, "id")?;
    let stats = api
        .get(&format!("lbaas/loadbalancers/{id}/stats"))
        .await?
        .expect(200)?;
    println!("  {}", stats["stats"]);
    let start = Instant::now();
    api.delete(&format!("lbaas/loadbalancers/{id}?cascade=true"))
        .await?
        .expect(204)?;
    api.wait_gone(&id).await?;
    println!(
        "  deleted with everything in it after {}",
        ms(start.elapsed())
    );
    Ok(())
}

fn heading(text: &str) {
    println!("\n\x1b[1m{text}\x1b[0m");
}

fn ms(duration: Duration) -> String {
    format!("{:.0} ms", duration.as_secs_f64() * 1000.0)
}

fn status(object: &Value) -> String {
    let word = |field: &str| object[field].as_str().unwrap_or("?").to_owned();
    format!(
        "{} / {}",
        word("provisioning_status"),
        word("operating_status")
    )
}

fn show(what: &str, tally: &Tally) -> Result<()> {
    let shares: Vec<String> = tally
        .served
        .iter()
        .map(|(name, count)| {
            format!(
                "{name} {count} ({:.1} %)",
                *count as f64 * 100.0 / tally.total() as f64
            )
        })
        .collect();
    let rate = tally.total() as f64 / tally.elapsed.as_secs_f64();
    println!(
        "  {what}: {}, {} failed, {rate:.0}/s",
        shares.join(", "),
        tally.failed
    );
    ensure!(tally.failed == 0, "{what}: {:?}", tally.failures);
    Ok(())
}

/// When the last failed attempt began, counted from `event`.
fn last_failure(samples: &[Sample], event: Instant) -> Duration {
    samples
        .iter()
        .rev()
        .find(|sample| sample.answered.is_err())
        .map_or(Duration::ZERO, |sample| {
            sample.at.saturating_duration_since(event)
        })
}

async fn statuses(api: &Api, id: &str) -> Result<Value> {
    let body = api
        .get(&format!("lbaas/loadbalancers/{id}/status"))
        .await?
        .expect(200)?;
    Ok(body["statuses"]["loadbalancer"].clone())
}

async fn tree(api: &Api, id: &str) -> Result<()> {
    let tree = statuses(api, id).await?;
    println!("  {:<28} {}", "load balancer demo", status(&tree));
    for listener in children(&tree, "listeners") {
        println!("    listener {:<17} {}", name(listener), status(listener));
        for pool in children(listener, "pools") {
            println!("      pool {:<19} {}", name(pool), status(pool));
            for member in children(pool, "members") {
                println!("        member {:<15} {}", name(member), status(member));
            }
        }
    }
    Ok(())
}

fn name(object: &Value) -> &str {
    object["name"].as_str().unwrap_or("?")
}

fn children<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object[field].as_array().map_or(&[], Vec::as_slice)
}

/// Waits until the member has the status in every pool.
async fn wait_member(api: &Api, id: &str, member: &str, wanted: &str) -> Result<()> {
    wait_until("the member has its status in every pool", async || {
        let tree = statuses(api, id).await?;
        let reached = children(&tree, "listeners")
            .iter()
            .flat_map(|listener| children(listener, "pools"))
            .flat_map(|pool| children(pool, "members"))
            .filter(|object| name(object) == member)
            .all(|object| object["operating_status"] == wanted);
        Ok(reached.then_some(()))
    })
    .await
}

fn describe(amphora: &Value) -> String {
    let word = |field: &str| amphora[field].as_str().unwrap_or("?").to_owned();
    format!(
        "amphora {} {} {} at {}",
        &word("id")[..8.min(word("id").len())],
        word("role"),
        word("status"),
        word("lb_network_ip")
    )
}
