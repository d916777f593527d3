//! Configuration changes while traffic runs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use amphora_proxy::{Options, Protocol, Proxy, Snapshot};
use uuid::Uuid;

use crate::support::*;

#[test]
fn no_request_fails_while_everything_changes_under_load() {
    let servers = [Server::named("a"), Server::named("b"), Server::named("c")];
    let addresses = servers.each_ref().map(|server| server.address);
    let mut rig = Rig::new(2, Protocol::Http, &addresses, |_| {});
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let mut client = rig.client();
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let response = client.get("/");
                    assert_eq!(response.status(), 200);
                    assert_eq!(response.field("connection"), None);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for round in 0..200usize {
        let members = &mut rig.snapshot.pools[0].members;
        members[round % 3].weight = (round % 5) as u16;
        members[(round + 1) % 3].weight = 1;
        members[round % 3].up = !round.is_multiple_of(2);
        members[(round + 1) % 3].up = true;
        // A listener beside it comes and goes.
        rig.snapshot.listeners.truncate(1);
        if round.is_multiple_of(2) {
            let mut other = listener(unused_address(), Protocol::Http);
            other.id = Uuid::from_u128(1000 + round as u128);
            rig.snapshot.listeners.push(other);
        }
        rig.apply();
        let seen = answered.load(Ordering::Relaxed);
        wait_until("more requests are answered", || {
            answered.load(Ordering::Relaxed) > seen + 4
        });
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    let stats = rig.proxy.stats();
    let listener = stats.listener(LISTENER).unwrap();
    assert_eq!(listener.total_connections, 8);
    assert_eq!(listener.requests as usize, answered.load(Ordering::Relaxed));
}

#[test]
fn a_new_member_and_a_new_weight_are_in_force_for_the_next_request() {
    let servers = [Server::named("a"), Server::named("b")];
    let mut rig = Rig::http(&[servers[0].address]);
    let mut client = rig.client();
    assert_eq!(client.get("/").text(), "a");
    rig.snapshot.pools[0].members[0].weight = 0;
    rig.snapshot.pools[0]
        .members
        .push(member(1, servers[1].address));
    rig.apply();
    for _ in 0..5 {
        assert_eq!(client.get("/").text(), "b");
    }
    rig.snapshot.pools[0].members[0].weight = 3;
    rig.apply();
    for _ in 0..40 {
        client.get("/");
    }
    assert_eq!(servers[0].requests(), 1 + 30);
    assert_eq!(servers[1].requests(), 5 + 10);
}

#[test]
fn a_request_on_a_removed_listener_is_answered_and_then_its_connection_ends() {
    let server = Server::named("a");
    let mut rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    assert_eq!(client.get("/").field("connection"), None);
    rig.snapshot.listeners.clear();
    let report = rig.proxy.apply(rig.snapshot.clone());
    assert_eq!(report.unbound, [rig.address]);
    wait_until("nothing listens", || {
        std::net::TcpStream::connect(rig.address).is_err()
    });
    let last = client.get("/");
    assert_eq!(last.text(), "a");
    assert_eq!(last.field("connection"), Some("close"));
    assert!(client.rest().is_empty());
}

#[test]
fn tcp_connections_outlive_their_listener() {
    let server = Server::echo();
    let mut rig = Rig::new(1, Protocol::Tcp, &[server.address], |_| {});
    let mut client = rig.client();
    client.send("1");
    assert_eq!(client.read_exactly(1), b"1");
    rig.snapshot = Snapshot::default();
    rig.apply();
    wait_until("nothing listens", || {
        std::net::TcpStream::connect(rig.address).is_err()
    });
    client.send("2");
    assert_eq!(client.read_exactly(1), b"2");
}

#[test]
fn a_draining_listener_answers_everything_and_closes_after_each_answer() {
    let server = Server::named("a");
    let mut rig = Rig::http(&[server.address]);
    let mut idle = rig.client();
    assert_eq!(idle.get("/").field("connection"), None);
    rig.snapshot.listeners[0].draining = true;
    rig.apply();
    for client in [&mut idle, &mut rig.client()] {
        let response = client.get("/");
        assert_eq!(response.text(), "a");
        assert_eq!(response.field("connection"), Some("close"));
        assert!(client.rest().is_empty());
    }
    rig.snapshot.listeners[0].draining = false;
    rig.apply();
    assert_eq!(rig.client().get("/").field("connection"), None);
}

#[test]
fn the_last_answer_arrives_although_the_client_has_sent_more() {
    let server = Server::named("a");
    let mut rig = Rig::http(&[server.address]);
    rig.snapshot.listeners[0].draining = true;
    rig.apply();
    for _ in 0..20 {
        let mut client = rig.client();
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n".repeat(1000));
        let response = client.response();
        assert_eq!(response.field("connection"), Some("close"));
        assert_eq!(response.text(), "a");
        assert!(client.rest().is_empty());
    }
}

#[test]
fn clients_above_the_limit_wait_and_are_not_refused() {
    let server = Server::named("a");
    let mut rig = Rig::new(2, Protocol::Http, &[server.address], |snapshot| {
        snapshot.listeners[0].connection_limit = Some(2);
    });
    let mut first = rig.client();
    let mut second = rig.client();
    assert_eq!(first.get("/").status(), 200);
    assert_eq!(second.get("/").status(), 200);
    let mut third = rig.client();
    third.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    third
        .stream
        .get_ref()
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let early = third.read_response(false).unwrap_err();
    assert!(matches!(
        early.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    ));
    let stats = rig.proxy.stats();
    let listener = stats.listener(LISTENER).unwrap();
    assert!(listener.full);
    assert_eq!(listener.total_connections, 2);
    drop(first);
    third
        .stream
        .get_ref()
        .set_read_timeout(Some(PATIENCE))
        .unwrap();
    assert_eq!(third.response().status(), 200);
    // Raising the limit lets the next one in at once.
    let mut fourth = rig.client();
    fourth.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    rig.snapshot.listeners[0].connection_limit = Some(3);
    rig.apply();
    assert_eq!(fourth.response().status(), 200);
    assert_eq!(rig.active(), 3);
}

#[test]
fn an_address_that_is_taken_is_reported_and_had_later() {
    let server = Server::named("a");
    let mut rig = Rig::http(&[server.address]);
    let taken = std::net::TcpListener::bind(unused_address()).unwrap();
    let address = taken.local_addr().unwrap();
    let mut other = listener(address, Protocol::Http);
    other.id = Uuid::from_u128(7);
    rig.snapshot.listeners.push(other);
    let report = rig.proxy.apply(rig.snapshot.clone());
    assert_eq!(report.errors.len(), 1);
    assert_eq!(report.errors[0].address, address);
    assert_eq!(report.errors[0].source.kind(), io::ErrorKind::AddrInUse);
    assert_eq!(rig.client().get("/").text(), "a");
    drop(taken);
    let report = rig.proxy.apply(rig.snapshot.clone());
    assert!(report.errors.is_empty());
    assert_eq!(report.bound, [address]);
    assert_eq!(Client::connect(address).get("/").text(), "a");
}

#[test]
fn two_listeners_of_one_snapshot_cannot_have_one_address() {
    let rig = Rig::http(&[]);
    let mut snapshot = rig.snapshot.clone();
    let mut other = listener(rig.address, Protocol::Http);
    other.id = Uuid::from_u128(7);
    snapshot.listeners.push(other);
    let report = rig.proxy.apply(snapshot);
    assert_eq!(report.errors.len(), 1);
    assert_eq!(report.errors[0].listener, Uuid::from_u128(7));
}

#[test]
fn an_address_passes_from_one_listener_to_another_without_a_gap() {
    let servers = [Server::named("a"), Server::named("b")];
    let mut rig = Rig::http(&[servers[0].address]);
    assert_eq!(rig.client().get("/").text(), "a");
    rig.snapshot.listeners[0].id = Uuid::from_u128(7);
    rig.snapshot.pools[0].members = vec![member(1, servers[1].address)];
    let report = rig.proxy.apply(rig.snapshot.clone());
    assert!(report.bound.is_empty() && report.unbound.is_empty());
    assert_eq!(rig.client().get("/").text(), "b");
}

#[test]
fn an_address_that_is_on_no_interface_can_be_listened_on() {
    let proxy = Proxy::start(Options {
        threads: 1,
        on_thread_start: None,
    })
    .unwrap();
    let binds = [
        "192.0.2.1:8080".parse().unwrap(),
        "[2001:db8::1]:8080".parse().unwrap(),
    ];
    let mut foreign = listener(binds[0], Protocol::Http);
    foreign.binds.push(binds[1]);
    let report = proxy.apply(Snapshot {
        listeners: vec![foreign],
        pools: Vec::new(),
    });
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

#[test]
fn shutdown_lets_the_current_response_finish() {
    let (sent, is_sent) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(is_sent);
    let server = Server::scripted(move |connection, _| {
        connection.read_request()?;
        let _ = gate.lock().unwrap().recv();
        connection.write(ok("late"))
    });
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    wait_until("the member has the request", || server.requests() == 1);
    let address = rig.address;
    let proxy = rig.proxy;
    let ending = std::thread::spawn(move || proxy.shutdown(PATIENCE));
    wait_until("nothing listens", || {
        std::net::TcpStream::connect(address).is_err()
    });
    sent.send(()).unwrap();
    let response = client.response();
    assert_eq!(response.text(), "late");
    assert_eq!(response.field("connection"), Some("close"));
    ending.join().unwrap();
}

#[test]
fn a_thread_that_cannot_be_set_up_fails_the_start() {
    let started = Proxy::start(Options {
        threads: 2,
        on_thread_start: Some(Arc::new(|| panic!("no such namespace"))),
    });
    assert!(started.is_err());
}
