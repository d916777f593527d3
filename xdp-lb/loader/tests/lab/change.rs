//! Changes under traffic: drain, down, backup, restart, routers' complaints, take-over.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use ipnet::IpNet;
use uuid::Uuid;
use xdp_lb::{AttachMode, Config, FastPath};

use crate::support::{
    Lab, PORT, TIMEOUT, apply, ask, ask_udp, ask_udp_again, connect, parse_mac, udp_socket, vip,
    wait_for,
};

fn for_member(config: &mut Config, index: u128, change: impl Fn(&mut xdp_lb::Member)) {
    let ids = [0x400 + index, 0x600 + index].map(Uuid::from_u128);
    for service in &mut config.services {
        for member in &mut service.members {
            if ids.contains(&member.id) {
                change(member);
            }
        }
    }
}

fn verdict(fast_path: &FastPath, name: &str) -> u64 {
    fast_path.stats().expect("stats").verdicts[name]
}

#[test]
fn lab_a_drained_member_keeps_its_connections_and_gets_no_new_ones() {
    let mut lab = Lab::new(2);
    lab.serve();
    let mut fast_path = lab.fast_path();
    let mut config = lab.config(AttachMode::Tcx, &[1, 1]);
    apply(&mut fast_path, &config);
    let mut old: Vec<(TcpStream, u8)> = lab.client.run(|| {
        (0..4)
            .map(|_| {
                let mut stream = connect(vip(false)).expect("connect");
                let name = ask(&mut stream).expect("ask");
                (stream, name)
            })
            .collect()
    });
    assert!(old.iter().any(|(_, name)| *name == 0));
    for_member(&mut config, 0, |member| member.weight = 0);
    apply(&mut fast_path, &config);
    lab.client.run(|| {
        for (stream, name) in &mut old {
            assert_eq!(ask(stream).expect("old connection"), *name);
        }
        for _ in 0..6 {
            let mut stream = connect(vip(false)).expect("connect");
            assert_eq!(ask(&mut stream).expect("ask"), 1);
        }
    });
    // Removed altogether, its connections still go on.
    for service in &mut config.services {
        service.members.retain(|m| m.weight > 0);
    }
    apply(&mut fast_path, &config);
    lab.client.run(|| {
        for (stream, name) in &mut old {
            assert_eq!(ask(stream).expect("old connection"), *name);
        }
    });
    fast_path.detach().expect("detach");
}

#[test]
fn lab_a_member_that_goes_down_resets_tcp_and_moves_udp() {
    let mut lab = Lab::new(2);
    lab.serve();
    let mut fast_path = lab.fast_path();
    let mut config = lab.config(AttachMode::Tcx, &[1, 1]);
    apply(&mut fast_path, &config);
    let (mut streams, sockets) = lab.client.run(|| {
        let streams: Vec<(TcpStream, u8)> = (0..2)
            .map(|_| {
                let mut stream = connect(vip(false)).expect("connect");
                let name = ask(&mut stream).expect("ask");
                (stream, name)
            })
            .collect();
        let sockets: Vec<_> = (0..2).map(|_| ask_udp(vip(false)).expect("ask")).collect();
        (streams, sockets)
    });
    for_member(&mut config, 0, |member| member.up = false);
    apply(&mut fast_path, &config);
    lab.client.run(|| {
        for (stream, name) in &mut streams {
            let again = ask(stream);
            if *name == 0 {
                let error = again.expect_err("its member is down");
                assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof
                    ),
                    "{error}"
                );
            } else {
                assert_eq!(again.expect("other member"), *name);
            }
        }
        for (socket, _) in &sockets {
            assert_eq!(ask_udp_again(socket).expect("moved flow"), 1);
        }
    });
    assert!(verdict(&fast_path, "pass_member_down") > 0);
    assert_eq!(verdict(&fast_path, "flow_moved"), 1);
    // With nobody up a client is refused at once.
    for_member(&mut config, 1, |member| member.up = false);
    apply(&mut fast_path, &config);
    let refused = lab
        .client
        .run(|| connect(vip(false)).expect_err("no member"));
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(verdict(&fast_path, "pass_no_member") > 0);
    // A backup steps in.
    for_member(&mut config, 0, |member| {
        member.up = true;
        member.backup = true;
    });
    apply(&mut fast_path, &config);
    lab.client.run(|| {
        let mut stream = connect(vip(false)).expect("connect to backup");
        assert_eq!(ask(&mut stream).expect("ask"), 0);
    });
    fast_path.detach().expect("detach");
}

#[test]
fn lab_a_restart_adopts_flows_counters_and_configuration() {
    let mut lab = Lab::new(2);
    lab.serve();
    let mut fast_path = lab.fast_path();
    let config = lab.config(AttachMode::Tcx, &[1, 1]);
    apply(&mut fast_path, &config);
    assert_eq!(apply(&mut fast_path, &config).changes, 0);
    let mut streams: Vec<(TcpStream, u8)> = lab.client.run(|| {
        (0..2)
            .map(|_| {
                let mut stream = connect(vip(false)).expect("connect");
                let name = ask(&mut stream).expect("ask");
                (stream, name)
            })
            .collect()
    });
    let before = fast_path.stats().expect("stats");
    drop(fast_path);
    let mut check = || {
        lab.client.run(|| {
            for (stream, name) in &mut streams {
                assert_eq!(ask(stream).expect("old connection"), *name);
            }
        });
    };
    // Nobody at home: packets flow all the same.
    check();
    let mut fast_path = lab.fast_path();
    check();
    let report = apply(&mut fast_path, &config);
    // Only the programs behind the two links were replaced.
    assert_eq!(report.changes, 2, "{report:?}");
    check();
    let after = fast_path.stats().expect("stats");
    let (tcp_before, tcp_after) = [&before, &after]
        .map(|stats| stats.listeners[&Uuid::from_u128(1)])
        .into();
    assert_eq!(tcp_after.total_connections, tcp_before.total_connections);
    assert_eq!(tcp_after.active_connections, 2);
    assert_eq!(tcp_after.bytes_in, tcp_before.bytes_in + 6);
    lab.client.run(|| {
        let mut stream = connect(vip(false)).expect("connect");
        ask(&mut stream).expect("ask");
    });
    fast_path.detach().expect("detach");
}

#[test]
fn lab_a_filter_of_an_earlier_process_goes_with_its_interface() {
    let lab = Lab::new(1);
    let filters = |interface: &str| {
        lab.lb
            .command("tc", &format!("filter show dev {interface} ingress"))
    };
    let mut fast_path = lab.fast_path();
    let mut config = lab.config(AttachMode::Clsact, &[1]);
    apply(&mut fast_path, &config);
    drop(fast_path);
    let added = filters("back");
    assert!(added.contains("bpf"), "{added}");

    let mut fast_path = lab.fast_path();
    config
        .interfaces
        .retain(|interface| interface.name == "front");
    apply(&mut fast_path, &config);
    assert_eq!(filters("back"), "");
    // The one that stays has one filter, the new process' own.
    assert_eq!(filters("front").matches("bpf chain").count(), 2);
    assert_eq!(apply(&mut fast_path, &config).changes, 0);
    fast_path.detach().expect("detach");
    assert_eq!(filters("front"), "");
}

#[test]
fn lab_generic_xdp_is_answered_with_the_classifier_and_the_reason() {
    let lab = Lab::new(1);
    let mut fast_path = lab.fast_path();
    let report = apply(&mut fast_path, &lab.config(AttachMode::XdpGeneric, &[1]));
    for interface in &report.interfaces {
        assert_eq!(interface.mode, AttachMode::Tcx);
        assert!(interface.reason.contains("generic XDP"), "{interface:?}");
    }
    fast_path.detach().expect("detach");
}

#[test]
fn lab_a_connection_limit_makes_the_next_client_wait() {
    let mut lab = Lab::new(1);
    lab.serve();
    let mut fast_path = lab.fast_path();
    let mut config = lab.config(AttachMode::Tcx, &[1]);
    config.services[0].connection_limit = Some(2);
    apply(&mut fast_path, &config);
    let mut streams: Vec<TcpStream> = lab.client.run(|| {
        (0..2)
            .map(|_| connect(vip(false)).expect("connect"))
            .collect()
    });
    lab.client.run(|| {
        let waiting = std::thread::scope(|scope| {
            let third = scope.spawn(|| connect(vip(false)));
            wait_for("a refused SYN", || {
                match verdict(&fast_path, "drop_connection_limit") {
                    0 => Err("none".to_owned()),
                    count => Ok(count),
                }
            });
            streams.clear();
            third.join().expect("third client")
        });
        let mut stream = waiting.expect("connects when one has left");
        ask(&mut stream).expect("ask");
    });
    fast_path.detach().expect("detach");
}

/// A path whose MTU shrinks behind the member: its router's complaint must reach the member's peer.
#[test]
fn lab_a_too_big_message_from_the_client_side_reaches_the_member() {
    let lab = Lab::new(1);
    // A far client behind a router with a narrow link: client namespace routes for it.
    let far = lab.far_client();
    lab.lb.ip("route add 10.9.0.0/24 via 10.1.0.2");
    let mut fast_path = lab.fast_path();
    apply(&mut fast_path, &lab.config(AttachMode::Tcx, &[1]));
    let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT);
    let listener = lab.members[0].run(|| TcpListener::bind(any).expect("bind"));
    let data = vec![7u8; 400_000];
    let expected = data.len();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("accept");
            stream.write_all(&data).expect("write");
        });
        far.run(|| {
            let mut stream = connect(vip(false)).expect("connect");
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("read all");
            all.len()
        })
    });
    assert_eq!(received, expected);
    assert!(verdict(&fast_path, "forward_icmp_error") > 0);
    fast_path.detach().expect("detach");
}

#[test]
fn lab_established_connections_go_on_at_the_predecessor_after_a_take_over() {
    let mut lab = Lab::new(1);
    lab.serve();
    // The predecessor serves the VIP with a plain socket on the same segment as our front.
    let predecessor = lab.predecessor();
    let listener = predecessor.run(|| {
        TcpListener::bind(SocketAddr::new(vip(false).ip(), PORT)).expect("bind at predecessor")
    });
    let mut old = lab
        .client
        .run(|| connect(vip(false)).expect("connect to predecessor"));
    let (mut at_predecessor, _) = listener.accept().expect("accept");
    at_predecessor
        .set_read_timeout(Some(TIMEOUT))
        .expect("timeout");

    let mac = parse_mac(
        predecessor
            .ip("-o link show dev eth0")
            .split("link/ether ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .expect("MAC"),
    );
    lab.take_vip_over();
    let mut fast_path = lab.fast_path();
    let mut config = lab.config(AttachMode::Tcx, &[1]);
    config.interfaces[0].handover_mac = Some(mac);
    apply(&mut fast_path, &config);
    lab.client.run(|| {
        old.write_all(b"still there").expect("write");
    });
    let mut buffer = [0u8; 11];
    at_predecessor
        .read_exact(&mut buffer)
        .expect("predecessor gets it");
    assert_eq!(&buffer, b"still there");
    assert!(verdict(&fast_path, "forward_handover") > 0);
    // New connections are ours.
    lab.client.run(|| {
        let mut stream = connect(vip(false)).expect("connect");
        assert_eq!(ask(&mut stream).expect("ask"), 0);
    });
    // So are those of a proxy on the same VIP.
    let proxy = Arc::clone(&lab.lb)
        .run(|| TcpListener::bind(SocketAddr::new(vip(false).ip(), 80)).expect("bind proxy"));
    let mut to_proxy = lab
        .client
        .run(|| connect(SocketAddr::new(vip(false).ip(), 80)).expect("connect to proxy"));
    let (mut at_proxy, _) = proxy.accept().expect("accept");
    at_proxy.set_read_timeout(Some(TIMEOUT)).expect("timeout");
    to_proxy.write_all(b"?").expect("write");
    let mut byte = [0u8; 1];
    at_proxy.read_exact(&mut byte).expect("proxy gets it");
    fast_path.detach().expect("detach");
}

#[test]
fn lab_idle_flows_are_forgotten_and_unused_slots_freed() {
    let mut lab = Lab::new(1);
    lab.serve();
    let mut fast_path = lab.fast_path();
    let mut config = lab.config(AttachMode::Tcx, &[1]);
    for service in &mut config.services {
        service.idle_timeout = std::time::Duration::from_millis(300);
    }
    apply(&mut fast_path, &config);
    let (mut stream, socket) = lab.client.run(|| {
        let mut stream = connect(vip(false)).expect("connect");
        ask(&mut stream).expect("ask");
        (stream, ask_udp(vip(false)).expect("ask").0)
    });
    let listeners = [1, 2].map(Uuid::from_u128);
    let stats = fast_path.stats().expect("stats");
    for id in listeners {
        assert_eq!(stats.listeners[&id].active_connections, 1);
    }
    let mut expired = 0;
    wait_for("both flows forgotten", || {
        let report = fast_path.sweep().expect("sweep");
        assert!(report.pass_complete);
        expired += report.expired;
        if report.flows == 0 {
            Ok(())
        } else {
            Err(format!("{report:?}"))
        }
    });
    assert_eq!(expired, 2);
    let stats = fast_path.stats().expect("stats");
    for id in listeners {
        assert_eq!(stats.listeners[&id].active_connections, 0);
        assert_eq!(stats.listeners[&id].total_connections, 1);
    }
    assert!(
        stats
            .members
            .iter()
            .all(|m| m.traffic.active_connections == 0)
    );
    lab.client.run(|| {
        // The stack answers RST; UDP simply begins anew.
        ask(&mut stream).expect_err("forgotten connection");
        ask_udp_again(&socket).expect("new flow");
    });
    // A listener that is gone gives its slot back: its successor starts at zero.
    let services = std::mem::take(&mut config.services);
    apply(&mut fast_path, &config);
    wait_for("the last flow forgotten", || {
        match fast_path.sweep().expect("sweep").flows {
            0 => Ok(()),
            flows => Err(format!("{flows} flows")),
        }
    });
    fast_path.sweep().expect("sweep");
    config.services = services;
    apply(&mut fast_path, &config);
    let stats = fast_path.stats().expect("stats");
    for id in listeners {
        assert_eq!(stats.listeners[&id].total_connections, 0);
    }
    assert_eq!(apply(&mut fast_path, &config).changes, 0);
    fast_path.detach().expect("detach");
}

/// Pain P94: a thousand networks, changed at once; who is in keeps what is open.
#[test]
fn lab_only_allowed_clients_open_flows_and_a_change_ends_none() {
    let mut lab = Lab::new(1);
    lab.serve();
    let mut fast_path = lab.fast_path();
    let mut config = lab.config(AttachMode::Tcx, &[1]);
    let networks = |last: [&str; 2]| -> Vec<IpNet> {
        (0..499u16)
            .flat_map(|n| {
                [
                    format!("10.8.{}.{}/32", n >> 8, n & 255),
                    format!("fd08::{n:x}/128"),
                ]
            })
            .chain(last.map(str::to_owned))
            .map(|network| network.parse().expect("network"))
            .collect()
    };
    let (without, with) = (
        networks(["10.1.0.4/30", "fd01::4/126"]),
        networks(["10.1.0.0/30", "fd01::/126"]),
    );
    let allow = |config: &mut Config, networks: &[IpNet]| {
        for service in &mut config.services {
            service.allowed = networks.to_vec();
        }
    };
    allow(&mut config, &without);
    apply(&mut fast_path, &config);
    let strangers = |lab: &Lab| {
        lab.client.run(|| {
            let brief = std::time::Duration::from_millis(300);
            for v6 in [false, true] {
                TcpStream::connect_timeout(&vip(v6), brief).expect_err("not allowed");
                let socket = udp_socket(vip(v6), brief).expect("socket");
                socket.send(b"?").expect("send");
                socket.recv(&mut [0u8; 1]).expect_err("not allowed");
            }
        });
    };
    strangers(&lab);
    assert!(verdict(&fast_path, "drop_not_allowed") >= 4);
    let stats = fast_path.stats().expect("stats");
    for listener in stats.listeners.values() {
        assert_eq!(listener.request_errors, 0, "strangers are no errors");
    }

    allow(&mut config, &with);
    apply(&mut fast_path, &config);
    let mut streams: Vec<TcpStream> = lab.client.run(|| {
        [false, true]
            .map(|v6| {
                ask_udp(vip(v6)).expect("allowed");
                connect(vip(v6)).expect("allowed")
            })
            .into()
    });
    // A restart knows the networks again, and nothing is written twice.
    drop(fast_path);
    let mut fast_path = lab.fast_path();
    let report = apply(&mut fast_path, &config);
    assert_eq!(
        report.changes, 2,
        "the programs behind two links: {report:?}"
    );

    allow(&mut config, &without);
    apply(&mut fast_path, &config);
    strangers(&lab);
    lab.client.run(|| {
        for stream in &mut streams {
            ask(stream).expect("what is open goes on");
        }
    });
    allow(&mut config, &[]);
    apply(&mut fast_path, &config);
    lab.client.run(|| {
        connect(vip(false)).expect("everybody is allowed");
        connect(vip(true)).expect("everybody is allowed");
    });
    fast_path.detach().expect("detach");
}

/// Balancer with one interface: clients and members on the same segment.
#[test]
fn lab_members_on_the_interface_of_the_vip_are_served() {
    let mut lab = Lab::new(2);
    lab.serve();
    // The client moves to the members' segment, and so does the VIP.
    let client = lab.client_on_switch();
    lab.lb.ip("addr add 10.2.0.100/32 dev back");
    let mut fast_path = lab.fast_path();
    let mut config = lab.config(AttachMode::Tcx, &[1, 1]);
    config.interfaces.remove(0);
    let vip = SocketAddr::new(IpAddr::from([10, 2, 0, 100]), PORT);
    for service in &mut config.services {
        service.vips = vec![vip.ip()];
    }
    apply(&mut fast_path, &config);
    let answers: Vec<u8> = client.run(|| {
        (0..10)
            .map(|_| ask(&mut connect(vip).expect("connect")).expect("ask"))
            .collect()
    });
    assert_eq!(answers.iter().filter(|name| **name == 0).count(), 5);
    fast_path.detach().expect("detach");
}
