//! Input of strangers: refused with the right answer, without harm to anybody else.

use std::net::SocketAddr;
use std::time::Duration;

use amphora_api::{HEARTBEAT_PORT, HeartbeatMessage, decode_heartbeat, encode_heartbeat};
use anyhow::{Context, Result, ensure};
use test_support::scene::{HTTP, Scene, TCP, text, vip, wait_until};
use test_support::{http_requests, inside, tcp_connections};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> Result<u64> {
    memory(pid, "VmRSS:")
}

/// The most memory of a process that was ever resident, in bytes.
fn most_resident(pid: u32) -> Result<u64> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .with_context(|| format!("no {field}"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kib * 1024)
}

/// Sends bytes as they are and reads the answer.
async fn raw(address: SocketAddr, chunks: &[&[u8]]) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    for chunk in chunks {
        if stream.write_all(chunk).await.is_err() {
            // Refused before it was all sent; the answer says how.
            break;
        }
    }
    Ok(answer(&mut stream).await)
}

/// Reads until the server closes or nothing comes for ten seconds.
async fn answer(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(Ok(length)) =
        tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buffer)).await
    {
        if length == 0 {
            break;
        }
        answer.extend_from_slice(&buffer[..length]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_refuses_rubbish_and_huge_bodies_within_bounded_memory() -> Result<()> {
    let scene = Scene::start().await?;
    let address = scene.api().address();
    let pid = scene
        .stack
        .control_plane_pid()
        .context("no control plane")?;
    let head = |length: usize| {
        format!(
            "POST /v2/lbaas/loadbalancers HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        )
    };

    let before = resident(pid)?;
    let huge = vec![b'{'; 1024 * 1024];
    let announced = head(100 * huge.len());
    let mut chunks: Vec<&[u8]> = vec![announced.as_bytes()];
    chunks.extend(std::iter::repeat_n(huge.as_slice(), 100));
    let answer = raw(address, &chunks).await?;
    ensure!(answer.contains(" 413 "), "{answer}");
    let grown = resident(pid)?.saturating_sub(before);
    ensure!(
        grown < 16 * 1024 * 1024,
        "a refused body cost {grown} bytes"
    );

    let large = vec![b' '; 200_000];
    let answer = raw(address, &[head(large.len()).as_bytes(), &large]).await?;
    ensure!(answer.contains(" 413 "), "{answer}");

    for body in ["{", "[]", "null", "{\"loadbalancer\": 7}", "\u{1}"] {
        let answer = raw(address, &[head(body.len()).as_bytes(), body.as_bytes()]).await?;
        ensure!(
            answer.contains(" 400 ") && answer.contains("faultstring"),
            "{body}: {answer}"
        );
    }
    let answer = raw(address, &[b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"]).await?;
    ensure!(!answer.contains(" 200 "), "{answer}");

    let list = scene.api().get("lbaas/loadbalancers").await?.expect(200)?;
    ensure!(
        list["loadbalancers"].as_array().is_some_and(Vec::is_empty),
        "{list}"
    );
    scene.stack.destroy().await
}

#[tokio::test(flavor = "multi_thread")]
async fn rubbish_and_slow_clients_on_a_vip_are_refused_within_bounded_memory() -> Result<()> {
    /// Of each kind.
    const CLIENTS: usize = 2_000;
    const RUBBISH: [&[u8]; 5] = [
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ];
    let scene = Scene::start().await?;
    let load_balancer = scene.create("garbage").await?;
    let id = text(&load_balancer, "id")?;
    let (http, tcp) = (vip(&load_balancer, HTTP), vip(&load_balancer, TCP));
    let listener = load_balancer["listeners"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|listener| listener["protocol"] == "HTTP")
        .context("no HTTP listener")?;
    let listener = format!("lbaas/listeners/{}", text(listener, "id")?);
    let impatient = serde_json::json!({ "listener": { "timeout_client_data": 2_000 } });
    scene
        .api()
        .put(&listener, Some(&impatient))
        .await?
        .expect(200)?;
    scene.api().wait_active(&id).await?;

    let amphora = text(&scene.amphora(&id).await?, "id")?.parse()?;
    let agent = scene.stack.local().agent_pid(amphora).await?;
    let agent = u32::try_from(agent.context("no agent runs")?)?;
    let before = resident(agent)?;
    let (rubbish, slow) = inside(&scene.client, move || async move {
        let mut rubbish = Vec::new();
        for request in RUBBISH.into_iter().cycle().take(CLIENTS) {
            rubbish.push((raw(http, &[request]).await?, " 400 "));
        }
        let long = vec![b'a'; 200_000];
        for _ in 0..20 {
            let answer = raw(http, &[b"GET / HTTP/1.1\r\nX: ", &long]).await?;
            rubbish.push((answer, " 431 "));
        }
        // Half a head each, all at once.
        let mut streams = Vec::new();
        for _ in 0..CLIENTS {
            let mut stream = TcpStream::connect(http).await?;
            stream.write_all(b"GET / HT").await?;
            streams.push(stream);
        }
        let mut slow = Vec::new();
        for mut stream in streams {
            slow.push((answer(&mut stream).await, " 408 "));
        }
        Ok((rubbish, slow))
    })
    .await?;
    let wrong: Vec<_> = rubbish
        .iter()
        .chain(&slow)
        .filter(|(answer, status)| !answer.contains(status))
        .collect();
    ensure!(
        wrong.is_empty(),
        "{} other answers: {:?}",
        wrong.len(),
        wrong.first()
    );
    let grown = most_resident(agent)?.saturating_sub(before);
    println!(
        "agent: {before} bytes resident, {grown} more with {CLIENTS} rude and {CLIENTS} slow clients"
    );
    ensure!(
        grown < 24 * 1024 * 1024,
        "refused clients cost {grown} bytes"
    );
    let refused = (rubbish.len() + slow.len()) as u64;
    let mut last = serde_json::Value::Null;
    wait_until("every refusal is counted", async || {
        let body = scene
            .api()
            .get(&format!("{listener}/stats"))
            .await?
            .expect(200)?;
        last = body["stats"].clone();
        Ok((last["request_errors"] == refused).then_some(()))
    })
    .await
    .with_context(|| format!("{refused} were refused; last {last}"))?;

    let good = http_requests(&scene.client, http, 500, 10).await?;
    ensure!(good.failed == 0, "{:?}", good.failures);
    let good = tcp_connections(&scene.client, tcp, 200, 10, 10).await?;
    ensure!(good.failed == 0, "{:?}", good.failures);
    scene.stack.destroy().await
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_heartbeats_change_nothing() -> Result<()> {
    let scene = Scene::start().await?;
    let load_balancer = scene.create("forged").await?;
    let id = text(&load_balancer, "id")?;
    let amphora = scene.amphora(&id).await?;
    let key = std::fs::read_to_string(scene.stack.state_dir().join("heartbeat.key"))?;
    let controller = SocketAddr::new(
        scene.stack.local().controller_address()?.into(),
        HEARTBEAT_PORT,
    );
    // What an attacker without the key can send, and a replay of an old, well signed message.
    let message = HeartbeatMessage {
        ver: 3,
        sent_at_ms: Some(1),
        ..serde_json::from_value(serde_json::json!({ "id": amphora["id"], "seq": 0 }))?
    };
    let stale = encode_heartbeat(&message, key.trim().as_bytes())?;
    ensure!(
        decode_heartbeat(&stale, key.trim().as_bytes()).is_ok(),
        "the key is the one in use"
    );
    let forged = encode_heartbeat(&message, b"another key")?;
    let mut flipped = stale.clone();
    flipped[3] ^= 1;
    let datagrams = [
        Vec::new(),
        vec![0; 65_000],
        b"{}".to_vec(),
        stale[..stale.len() / 2].to_vec(),
        forged,
        flipped,
        stale,
    ];
    inside(scene.stack.local().fabric(), move || async move {
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        for datagram in datagrams.iter().cycle().take(700) {
            socket.send_to(datagram, controller).await?;
        }
        Ok(())
    })
    .await?;

    // Every kind was seen and counted.
    wait_until("refusals are counted", async || {
        let log = std::fs::read_to_string(scene.stack.log_file())?;
        let last = log
            .lines()
            .rfind(|line| line.contains("heartbeats were refused"));
        let counted = |reason: &str| {
            last.is_some_and(|line| {
                line.contains(reason) && !line.contains(&format!("{reason}: 0,"))
            })
        };
        let all = ["refused_too_short", "refused_bad_hmac", "refused_replayed"];
        Ok(all.into_iter().all(counted).then_some(()))
    })
    .await?;
    // A heartbeat without listeners would have turned them to ERROR.
    let status = scene
        .api()
        .get(&format!("lbaas/loadbalancers/{id}/status"))
        .await?
        .expect(200)?;
    ensure!(!status.to_string().contains("ERROR"), "{status}");
    scene.wait_operating(&id, "ONLINE").await?;
    let same = scene.amphora(&id).await?;
    ensure!(same["id"] == amphora["id"], "the amphora was replaced");
    scene.stack.destroy().await
}
