//! The runner with real probes on loopback.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use amphora_health::{Check, HttpVersion, Runner, State, Status, Target, TargetKey};
use nix::sched::{CloneFlags, unshare};
use tokio::runtime::Handle;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(20);

fn key(n: u128) -> TargetKey {
    TargetKey {
        pool: Uuid::from_u128(1),
        member: Uuid::from_u128(n),
    }
}

fn target(n: u128, address: SocketAddr, check: Check) -> Target {
    Target {
        key: key(n),
        address,
        check,
        delay: Duration::from_millis(50),
        timeout: Duration::from_millis(200),
        rise: 2,
        fall: 2,
    }
}

fn http(expected: &str) -> Check {
    Check::Http {
        method: "GET".into(),
        path: "/up".into(),
        version: HttpVersion::Http11,
        host: Some("example.org".into()),
        expected: expected.parse().unwrap(),
    }
}

/// Waits until all of `wanted` have been checked and are in their state.
async fn settle(runner: &Runner, wanted: &[(u128, State)]) -> BTreeMap<TargetKey, Status> {
    let settled = async {
        loop {
            let states = runner.states();
            let done = wanted.iter().all(|(n, state)| {
                states
                    .get(&key(*n))
                    .is_some_and(|status| status.checked && status.state == *state)
            });
            if done {
                return states;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, settled).await {
        Ok(states) => states,
        Err(_) => panic!("wanted {wanted:?}, have {:?}", runner.states()),
    }
}

/// An HTTP server whose status can be changed, and which remembers the last request.
fn server(status: &Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let status = Arc::clone(status);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 1024];
            let len = stream.read(&mut request).unwrap_or(0);
            let wanted = "GET /up HTTP/1.1\r\nHost: example.org\r\n";
            let code = if request[..len].starts_with(wanted.as_bytes()) {
                status.load(Ordering::SeqCst)
            } else {
                400
            };
            let _ = stream.write_all(format!("HTTP/1.1 {code} X\r\n\r\n").as_bytes());
        }
    });
    address
}

fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

#[tokio::test]
async fn tcp_members_are_up_while_they_accept() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let runner = Runner::start(&Handle::current());
    runner.set_targets(vec![
        target(1, address, Check::Tcp),
        target(2, closed(), Check::Tcp),
    ]);
    settle(&runner, &[(1, State::Up), (2, State::Down)]).await;
    drop(listener);
    settle(&runner, &[(1, State::Down), (2, State::Down)]).await;
    let _again = TcpListener::bind(address).unwrap();
    settle(&runner, &[(1, State::Up), (2, State::Down)]).await;
}

#[tokio::test]
async fn http_members_are_up_while_they_answer_as_expected() {
    let status = Arc::new(AtomicUsize::new(200));
    let address = server(&status);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let runner = Runner::start(&Handle::current());
    runner.set_targets(vec![
        target(1, address, http("200")),
        target(2, address, http("202, 301")),
        target(3, address, http("200-299")),
        target(4, silent.local_addr().unwrap(), http("200")),
    ]);
    use State::{Down, Up};
    settle(&runner, &[(1, Up), (2, Down), (3, Up), (4, Down)]).await;
    status.store(202, Ordering::SeqCst);
    settle(&runner, &[(1, Down), (2, Up), (3, Up), (4, Down)]).await;
    status.store(500, Ordering::SeqCst);
    settle(&runner, &[(1, Down), (2, Down), (3, Down), (4, Down)]).await;
}

#[tokio::test]
async fn udp_members_are_down_only_when_the_port_is_unreachable() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let gone = {
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap();
        closed.local_addr().unwrap()
    };
    let runner = Runner::start(&Handle::current());
    runner.set_targets(vec![
        target(1, silent.local_addr().unwrap(), Check::UdpConnect),
        target(2, gone, Check::UdpConnect),
    ]);
    settle(&runner, &[(1, State::Up), (2, State::Down)]).await;
}

#[tokio::test]
async fn subscribers_see_the_last_state_and_removed_targets_go() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let runner = Runner::start(&Handle::current());
    let mut changes = runner.subscribe();
    let wait_for = async |changes: &mut tokio::sync::watch::Receiver<_>, want: &[(u128, State)]| {
        let want: BTreeMap<_, _> = want.iter().map(|(n, state)| (key(*n), *state)).collect();
        tokio::time::timeout(
            PATIENCE,
            changes.wait_for(|states: &Arc<BTreeMap<_, _>>| **states == want),
        )
        .await
        .unwrap()
        .unwrap();
    };
    runner.set_targets(vec![
        target(1, listener.local_addr().unwrap(), Check::Tcp),
        target(2, closed(), Check::Tcp),
    ]);
    wait_for(&mut changes, &[(1, State::Up), (2, State::Down)]).await;
    runner.set_targets(vec![target(2, closed(), Check::Tcp)]);
    // It keeps its state.
    wait_for(&mut changes, &[(2, State::Down)]).await;
    assert_eq!(runner.states().len(), 1);
}

/// In a network namespace of its own, on a runtime that lives in it.
fn in_new_namespace(test: impl AsyncFnOnce() + Send + 'static) {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test makes a network namespace and must run as root"
    );
    std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("make a network namespace");
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(test());
    })
    .join()
    .unwrap();
}

fn set_loopback(state: &str) {
    let status = Command::new("ip")
        .args(["link", "set", "lo", state])
        .status()
        .expect("run ip");
    assert!(status.success());
}

#[test]
fn lab_pinged_members_are_up_while_their_network_is() {
    in_new_namespace(async || {
        let runner = Runner::start(&Handle::current());
        runner.set_targets(vec![
            target(1, (Ipv4Addr::LOCALHOST, 0).into(), Check::Ping),
            target(2, (Ipv6Addr::LOCALHOST, 0).into(), Check::Ping),
        ]);
        settle(&runner, &[(1, State::Down), (2, State::Down)]).await;
        set_loopback("up");
        settle(&runner, &[(1, State::Up), (2, State::Up)]).await;
        set_loopback("down");
        settle(&runner, &[(1, State::Down), (2, State::Down)]).await;
    });
}
