//! The real agent in a namespace, with real traffic through it. Needs root.

#![allow(
    clippy::unwrap_used,
    reason = "an expectation that fails is a test that fails"
)]

#[path = "lab/arp.rs"]
mod arp;
#[path = "lab/support.rs"]
mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use amphora_api::{ListenerPath, VipState};
use uuid::Uuid;

use support::{DEADLINE, Family, HTTP, Lab, TCP, TCP_POOL, UDP, VIP_MAC, exchange, ip, parse};

const ACTIVE: VipState = VipState::Active { handover_mac: None };

fn traffic_reaches_both_members_and_a_dead_one_leaves_the_rotation(family: Family) {
    let mut lab = Lab::new(family);
    let [m1, _m2] = lab.serve();
    lab.start_agent();
    let report = lab.put(&lab.document(1, ACTIVE));
    assert!(report.changed);

    let info = lab.info();
    let paths: BTreeMap<_, _> = info.listeners.iter().map(|l| (l.id, l.path)).collect();
    assert_eq!(paths[&TCP], ListenerPath::Fast, "{info:#?}");
    assert_eq!(paths[&UDP], ListenerPath::Fast);
    assert_eq!(paths[&HTTP], ListenerPath::Proxy);
    assert_eq!(info.interfaces[0].attach, "tcx", "{info:#?}");

    // TCP: every connection is served, by both in turn.
    let mut shares: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..20 {
        let mut stream = lab.connect(5000).unwrap();
        *shares.entry(exchange(&mut stream).unwrap()).or_default() += 1;
    }
    assert_eq!(
        shares,
        BTreeMap::from([("m1".into(), 10), ("m2".into(), 10)])
    );

    // UDP: each socket is a flow.
    let mut shares: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..10 {
        let vip = SocketAddr::new(family.vip(), 5000);
        let name = lab.within("client", || {
            let socket = UdpSocket::bind((family.address(50), 0)).unwrap();
            socket.set_read_timeout(Some(DEADLINE)).unwrap();
            socket.send_to(b"who", vip).unwrap();
            let mut answer = [0; 16];
            let (length, from) = socket.recv_from(&mut answer).unwrap();
            assert_eq!(from, vip);
            String::from_utf8_lossy(&answer[..length]).into_owned()
        });
        *shares.entry(name).or_default() += 1;
    }
    assert_eq!(shares, BTreeMap::from([("m1".into(), 5), ("m2".into(), 5)]));

    // HTTP: through the proxy.
    let mut shares: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..10 {
        let (status, name) = http_get(&lab);
        assert_eq!(status, 200);
        *shares.entry(name).or_default() += 1;
    }
    assert_eq!(shares, BTreeMap::from([("m1".into(), 5), ("m2".into(), 5)]));

    // What the clients saw is what is counted.
    let stats = lab.wait_for("the counters", || {
        let stats = lab.stats();
        (stats.listeners[&HTTP].active_connections == 0
            && stats.listeners[&TCP].total_connections >= 20)
            .then_some(stats)
    });
    assert_eq!(stats.listeners[&TCP].total_connections, 20);
    assert_eq!(stats.listeners[&TCP].bytes_in, 20 * 5);
    assert_eq!(stats.listeners[&TCP].bytes_out, 20 * 8);
    assert_eq!(stats.listeners[&UDP].total_connections, 10);
    assert_eq!(stats.listeners[&UDP].bytes_in, 10 * 3);
    assert_eq!(stats.listeners[&HTTP].total_connections, 10);

    let message = lab.heartbeat("all counted", |message| {
        message
            .totals
            .get(&HTTP)
            .is_some_and(|totals| totals.counters.total_connections == 10)
    });
    assert_eq!(message.generation, Some(1));
    assert_eq!(message.listeners.len(), 3);
    assert_eq!(message.totals[&TCP].counters.total_connections, 20);
    let pool = &message.pools[&format!("{TCP_POOL}:{TCP}")];
    assert_eq!(pool.status, "UP");
    assert!(pool.members.values().all(|text| text == "UP"), "{pool:?}");

    // A member dies.
    m1.stop_tcp(&lab, "m1");
    let dead = Uuid::from_u128(0x21 * 0x1000 + 21);
    lab.heartbeat("the dead member", |message| {
        message.pools[&format!("{TCP_POOL}:{TCP}")].members[&dead] == "DOWN"
    });
    let by_the_other = |lab: &Lab| {
        lab.connect(5000)
            .and_then(|mut stream| exchange(&mut stream))
            .is_ok_and(|name| name == "m2")
    };
    // The heartbeat may be a moment ahead of the maps.
    lab.wait_for("the rotation without it", || {
        (by_the_other(&lab) && by_the_other(&lab)).then_some(())
    });
    for _ in 0..10 {
        assert!(by_the_other(&lab));
    }

    // A new process does not try its luck with it.
    lab.kill_agent();
    lab.start_agent();
    let message = lab.heartbeat("the first one of its new life", |message| message.seq == 0);
    let members = &message.pools[&format!("{TCP_POOL}:{TCP}")].members;
    assert_eq!(members[&dead], "DOWN");
    for _ in 0..10 {
        assert!(by_the_other(&lab));
    }
    eprintln!("{}", lab.resident());
}

fn http_get(lab: &Lab) -> (u16, String) {
    let mut stream = lab.connect(80).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let (status, body) = parse(&answer).unwrap();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[test]
fn lab_ipv4_traffic_reaches_both_members_and_a_dead_one_leaves_the_rotation() {
    traffic_reaches_both_members_and_a_dead_one_leaves_the_rotation(Family::V4);
}

#[test]
fn lab_ipv6_traffic_reaches_both_members_and_a_dead_one_leaves_the_rotation() {
    traffic_reaches_both_members_and_a_dead_one_leaves_the_rotation(Family::V6);
}

#[test]
fn lab_an_established_flow_survives_the_agents_death_and_its_return() {
    let mut lab = Lab::new(Family::V4);
    let _servers = lab.serve();
    lab.start_agent();
    lab.put(&lab.document(3, ACTIVE));
    let mut stream = lab.connect(5000).unwrap();
    let member = exchange(&mut stream).unwrap();

    lab.kill_agent();
    assert_eq!(exchange(&mut stream).unwrap(), member, "while it is dead");
    // New connections do not need it either.
    exchange(&mut lab.connect(5000).unwrap()).unwrap();

    lab.start_agent();
    lab.wait_for("the ledger to be in force", || {
        let info = lab.info();
        let served = info.listeners.len() == 3 && info.problems.is_empty();
        (info.generation == Some(3) && served).then_some(())
    });
    assert_eq!(exchange(&mut stream).unwrap(), member, "after its return");
    exchange(&mut lab.connect(5000).unwrap()).unwrap();
    assert_eq!(http_get(&lab).0, 200);
    let stats = lab.stats();
    assert_eq!(stats.listeners[&TCP].total_connections, 3);

    let older = serde_json::to_vec(&lab.document(2, ACTIVE)).unwrap();
    assert_eq!(lab.call("PUT", "/2.0/config", &older).unwrap().0, 409);

    // An orderly end leaves the data path as well.
    lab.terminate_agent();
    assert_eq!(exchange(&mut stream).unwrap(), member, "after its end");
    lab.start_agent();
    lab.heartbeat("the HTTP connection of its earlier life", |message| {
        message
            .totals
            .get(&HTTP)
            .is_some_and(|totals| totals.counters.total_connections == 1)
    });
    assert_eq!(exchange(&mut stream).unwrap(), member);
}

#[test]
fn lab_a_passive_vip_is_not_answered_for_and_an_active_one_is_announced() {
    let mut lab = Lab::new(Family::V4);
    let _servers = lab.serve();
    lab.start_agent();
    let vip = Ipv4Addr::new(10, 77, 0, 100);
    let base = Ipv4Addr::new(10, 77, 0, 5);
    let client = Ipv4Addr::new(10, 77, 0, 50);
    let own = amphora_api::parse_mac(VIP_MAC).unwrap();
    let namespace = lab.namespace("client");
    let neighbour = lab.within("client", || {
        arp::Neighbour::open(&namespace, "eth0", Ipv4Addr::new(10, 77, 0, 50))
    });

    lab.put(&lab.document(1, ACTIVE));
    let mac = neighbour.hear("the announcement", |_, sender, target| {
        sender == vip && target == vip
    });
    assert_eq!(mac, own);
    neighbour.ask(vip);
    neighbour.hear("the answer", |_, sender, target| {
        sender == vip && target != vip
    });
    let mut stream = lab.connect(5000).unwrap();
    let member = exchange(&mut stream).unwrap();

    // Passive: flows go on, ARP does not.
    lab.put(&lab.document(2, VipState::Passive));
    assert_eq!(exchange(&mut stream).unwrap(), member);
    let tenant = lab.tenant();
    assert!(ip(&format!("-n {tenant} -4 addr show lo")).contains("10.77.0.100/32"));
    assert!(!ip(&format!("-n {tenant} -4 addr show eth1")).contains("10.77.0.100"));
    // What was said before is heard first; after this answer comes only what follows.
    let settled = |answered: &mut Vec<Ipv4Addr>| {
        neighbour.ask(base);
        neighbour.hear("the answer for its own address", |_, sender, target| {
            if target == client {
                answered.push(sender);
            }
            sender == base && target == client
        });
    };
    settled(&mut Vec::new());
    // Answers come in the order of the questions: the one for its own address settles both.
    neighbour.ask(vip);
    let mut answered = Vec::new();
    settled(&mut answered);
    assert!(!answered.contains(&vip), "{answered:?}");
    // Nor is it announced again, while the repeats of the first announcement would come.
    let repeats_end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < repeats_end {
        neighbour.ask(base);
        neighbour.hear("the answer for its own address", |_, sender, target| {
            assert!(sender != vip, "announced while it is passive");
            sender == base && target == client
        });
    }

    // Active again.
    lab.put(&lab.document(3, ACTIVE));
    neighbour.hear("the second announcement", |mac, sender, target| {
        *mac == own && sender == vip && target == vip
    });
    assert!(ip(&format!("-n {tenant} -4 addr show eth1")).contains("10.77.0.100/32"));
    assert!(!ip(&format!("-n {tenant} -4 addr show lo")).contains("10.77.0.100"));
    assert_eq!(exchange(&mut stream).unwrap(), member);
}

#[test]
fn lab_networks_are_plugged_and_unplugged_without_disturbing_the_vip() {
    let mut lab = Lab::new(Family::V4);
    let _servers = lab.serve();
    lab.start_agent();
    lab.put(&lab.document(1, ACTIVE));
    let mut stream = lab.connect(5000).unwrap();
    let member = exchange(&mut stream).unwrap();

    let mac = "fa:16:3e:00:00:02";
    lab.plug("p-net2", mac);
    let mut document = lab.document(2, ACTIVE);
    document.interfaces.push(amphora_api::Interface {
        mac_address: mac.into(),
        name: "eth2".into(),
        addresses: vec!["10.78.0.5/24".parse().unwrap()],
        gateways: vec![],
        routes: vec![amphora_api::Route {
            destination: "172.31.0.0/16".parse().unwrap(),
            nexthop: "10.78.0.254".parse().unwrap(),
        }],
        mtu_bytes: 1400,
    });
    lab.put(&document);
    let tenant = lab.tenant();
    let shown = ip(&format!("-n {tenant} addr show eth2"));
    assert!(
        shown.contains("10.78.0.5/24") && shown.contains("mtu 1400"),
        "{shown}"
    );
    let routes = ip(&format!("-n {tenant} route show table all"));
    assert!(
        routes.contains("172.31.0.0/16 via 10.78.0.254 dev eth2"),
        "{routes}"
    );
    assert!(
        routes.contains("default via 10.77.0.1 dev eth1 table 1"),
        "{routes}"
    );
    let rules = ip(&format!("-n {tenant} rule show"));
    assert!(rules.contains("from 10.77.0.100 lookup 1"), "{rules}");
    assert_eq!(exchange(&mut stream).unwrap(), member);

    // Nothing is left to do: what the agent sees is what it wants.
    let body = serde_json::to_vec(&document).unwrap();
    let (status, answer) = lab.call("PUT", "/2.0/config", &body).unwrap();
    assert_eq!(status, 200);
    let report: amphora_api::ApplyReport = serde_json::from_slice(&answer).unwrap();
    assert_eq!((report.changed, report.actions), (false, vec![]));

    // Unplugged: the interface goes back to where the compute driver takes it away.
    lab.put(&lab.document(3, ACTIVE));
    let amp = lab.namespace("amp");
    assert!(ip(&format!("-n {amp} link show")).contains("port-000002"));
    assert!(!ip(&format!("-n {tenant} link show")).contains("eth2"));
    assert_eq!(exchange(&mut stream).unwrap(), member);

    // A port that is not there (yet) is told, and served once it comes.
    let missing = "fa:16:3e:00:00:03";
    document.generation = 4;
    document.interfaces[1].mac_address = missing.into();
    let body = serde_json::to_vec(&document).unwrap();
    let (status, answer) = lab.call("PUT", "/2.0/config", &body).unwrap();
    assert_eq!(status, 503);
    assert!(String::from_utf8_lossy(&answer).contains(missing));
    lab.plug("p-net3", missing);
    lab.wait_for("the late port", || {
        lab.info().problems.is_empty().then_some(())
    });
    assert!(ip(&format!("-n {tenant} addr show eth2")).contains("10.78.0.5/24"));
}

#[test]
fn lab_allowed_cidrs_hold_in_both_engines() {
    let mut lab = Lab::new(Family::V4);
    let _servers = lab.serve();
    lab.start_agent();
    let mut document = lab.document(1, ACTIVE);
    for listener in &mut document.listeners {
        listener.allowed_cidrs = vec!["10.77.0.64/26".parse().unwrap()];
    }
    lab.put(&document);
    // The client is 10.77.0.50: no answer from the kernel, reset by the proxy before anything is read.
    for port in [5000, 80] {
        let refused = lab
            .connect(port)
            .and_then(|mut stream| exchange(&mut stream));
        assert!(refused.is_err(), "port {port}: {refused:?}");
    }
    let stats = lab.stats();
    assert!(stats.verdicts["fast_path_drop_not_allowed"] >= 1);
    assert!(stats.verdicts["proxy_not_allowed"] >= 1);

    document.generation = 2;
    document.listeners[0].allowed_cidrs = vec!["10.77.0.48/30".parse().unwrap()];
    lab.put(&document);
    exchange(&mut lab.connect(5000).unwrap()).unwrap();
}
