//! What clients see, and that it is what is counted.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use xdp_lb::{Algorithm, AttachMode, FastPath, Stats};

use crate::support::{Lab, apply, ask, ask_udp, connect, large_udp, vip, wait_for};

fn shares(answers: &[u8], members: usize) -> Vec<usize> {
    (0..members)
        .map(|name| answers.iter().filter(|a| usize::from(**a) == name).count())
        .collect()
}

/// The answers, or a failure that says what the programs counted.
fn answered(fast_path: &FastPath, answers: Result<Vec<u8>, String>) -> Vec<u8> {
    answers.unwrap_or_else(|error| {
        let counted: Vec<_> = fast_path
            .stats()
            .expect("stats")
            .verdicts
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        panic!("{error}; counted {counted:?}")
    })
}

fn settled(fast_path: &mut FastPath, tcp: u64) -> Stats {
    wait_for("all TCP connections closed", || {
        fast_path.sweep().expect("sweep");
        let stats = fast_path.stats().expect("stats");
        let listener = stats.listeners[&uuid::Uuid::from_u128(1)];
        if listener.active_connections == 0 && listener.total_connections == tcp {
            Ok(stats)
        } else {
            Err(format!("{listener:?} {:?}", stats.verdicts))
        }
    })
}

fn tcp_by_weight(v6: bool, mode: AttachMode) {
    const CONNECTIONS: usize = 200;
    let mut lab = Lab::new(3);
    lab.serve();
    if mode == AttachMode::XdpNative {
        prepare_for_xdp(&lab);
    }
    let mut fast_path = lab.fast_path();
    let config = lab.config(mode, &[1, 2, 1]);
    let report = apply(&mut fast_path, &config);
    assert!(
        report.interfaces.iter().all(|i| i.mode == mode),
        "{report:?}"
    );
    let answers: Result<Vec<u8>, String> = lab.client.run(|| {
        (0..CONNECTIONS)
            .map(|n| {
                connect(vip(v6))
                    .and_then(|mut stream| ask(&mut stream))
                    .map_err(|error| format!("connection {n}: {error}"))
            })
            .collect()
    });
    let answers = answered(&fast_path, answers);
    assert_eq!(shares(&answers, 3), [50, 100, 50]);
    let stats = settled(&mut fast_path, CONNECTIONS as u64);
    let listener = stats.listeners[&uuid::Uuid::from_u128(1)];
    assert_eq!(listener.bytes_in, CONNECTIONS as u64);
    assert_eq!(listener.bytes_out, CONNECTIONS as u64);
    assert_eq!(listener.request_errors, 0);
    let by_member: u64 = stats
        .members
        .iter()
        .filter(|m| m.listener == uuid::Uuid::from_u128(1))
        .map(|m| m.traffic.total_connections)
        .sum();
    assert_eq!(by_member, CONNECTIONS as u64);
    fast_path.detach().expect("detach");
}

/// XDP cannot complete partial checksums, and a veth that XDP redirects to needs a peer with NAPI.
fn prepare_for_xdp(lab: &Lab) {
    lab.client.command("ethtool", "-K eth0 tx off gro on");
    lab.switch.command("ethtool", "-K lb gro on");
    for member in &lab.members {
        member.command("ethtool", "-K eth0 tx off");
    }
}

#[test]
fn lab_tcp_v4_connections_are_shared_by_weight_and_counted_exactly() {
    tcp_by_weight(false, AttachMode::Tcx);
}

#[test]
fn lab_tcp_v6_connections_are_shared_by_weight_and_counted_exactly() {
    tcp_by_weight(true, AttachMode::Tcx);
}

#[test]
fn lab_tcp_v4_works_through_a_clsact_filter() {
    tcp_by_weight(false, AttachMode::Clsact);
}

#[test]
fn lab_tcp_v4_works_through_native_xdp() {
    tcp_by_weight(false, AttachMode::XdpNative);
}

#[test]
fn lab_tcp_v6_works_through_native_xdp() {
    tcp_by_weight(true, AttachMode::XdpNative);
}

fn udp_by_weight(v6: bool) {
    const FLOWS: usize = 100;
    let mut lab = Lab::new(3);
    lab.serve();
    let mut fast_path = lab.fast_path();
    apply(&mut fast_path, &lab.config(AttachMode::Tcx, &[1, 2, 1]));
    let answers: Result<Vec<_>, String> = lab.client.run(|| {
        (0..FLOWS)
            .map(|n| match ask_udp(vip(v6)) {
                Ok(answer) => Ok(answer),
                Err(error) => Err(format!("datagram {n}: {error}")),
            })
            .collect()
    });
    // Sockets stay open until here, so that no two have the same port.
    let answers = answers.map(|all| all.into_iter().map(|(_, name)| name).collect());
    let answers = answered(&fast_path, answers);
    assert_eq!(shares(&answers, 3), [25, 50, 25]);
    let stats = fast_path.stats().expect("stats");
    let listener = stats.listeners[&uuid::Uuid::from_u128(2)];
    assert_eq!(listener.total_connections, FLOWS as u64);
    assert_eq!(listener.active_connections, FLOWS as u64);
    assert_eq!(listener.bytes_in, 2 * FLOWS as u64);
    assert_eq!(listener.bytes_out, 2 * FLOWS as u64);
    fast_path.detach().expect("detach");
}

#[test]
fn lab_udp_v4_flows_are_shared_by_weight_and_counted_exactly() {
    udp_by_weight(false);
}

#[test]
fn lab_udp_v6_flows_are_shared_by_weight_and_counted_exactly() {
    udp_by_weight(true);
}

/// Pain P64: what does not fit the MTU comes in fragments, in both directions.
#[test]
fn lab_udp_datagrams_larger_than_the_mtu_reach_members_and_come_back() {
    let mut lab = Lab::new(2);
    lab.serve();
    let mut fast_path = lab.fast_path();
    apply(&mut fast_path, &lab.config(AttachMode::Tcx, &[1, 1]));
    for v6 in [false, true] {
        let answers: Result<Vec<u8>, String> = lab.client.run(|| {
            (0..10usize)
                .map(|n| {
                    large_udp(vip(v6), 2000 + n * 1500)
                        .map_err(|error| format!("datagram {n}, IPv6 {v6}: {error}"))
                })
                .collect()
        });
        assert_eq!(shares(&answered(&fast_path, answers), 2), [5, 5]);
    }
    let verdicts = fast_path.stats().expect("stats").verdicts;
    assert!(verdicts["forward_fragment"] > 0);
    // Those of their first moments are remembered in time: none went to the stack.
    assert_eq!(verdicts["pass_fragment"], 0);
    fast_path.detach().expect("detach");
}

/// The member that each client address gets, by TCP.
fn members_of(lab: &Lab, clients: &[IpAddr]) -> HashMap<IpAddr, u8> {
    lab.client.run(|| {
        clients
            .iter()
            .map(|client| {
                let mut stream = connect_from(*client).expect("connect");
                (*client, ask(&mut stream).expect("ask"))
            })
            .collect()
    })
}

/// Connects to the IPv4 VIP from an address of the client.
fn connect_from(client: IpAddr) -> std::io::Result<TcpStream> {
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket,
    };
    let socket = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let raw = std::os::fd::AsRawFd::as_raw_fd(&socket);
    bind(raw, &SockaddrStorage::from(SocketAddr::new(client, 0)))?;
    connect(raw, &SockaddrStorage::from(vip(false)))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

/// Clients stay with their member, and a member's end moves its own clients and few others.
#[test]
fn lab_a_client_address_keeps_its_member_when_another_goes() {
    let mut lab = Lab::new(4);
    lab.serve();
    let clients: Vec<IpAddr> = (0..40u8)
        .map(|n| IpAddr::from([10, 1, 0, 150 + n]))
        .collect();
    for client in &clients {
        lab.client.ip(&format!("addr add {client}/24 dev eth0"));
    }
    let mut fast_path = lab.fast_path();
    let mut config = lab.config(AttachMode::Tcx, &[1, 1, 1, 1]);
    for service in &mut config.services {
        service.algorithm = Algorithm::SourceIp;
    }
    apply(&mut fast_path, &config);
    let first = members_of(&lab, &clients);
    let mut used: Vec<u8> = first.values().copied().collect();
    used.sort_unstable();
    used.dedup();
    assert!(used.len() >= 3, "{used:?}");
    assert_eq!(members_of(&lab, &clients), first);
    for service in &mut config.services {
        service
            .members
            .retain(|member| ![0x402, 0x602].contains(&member.id.as_u128()));
    }
    apply(&mut fast_path, &config);
    let then = members_of(&lab, &clients);
    assert!(then.values().all(|name| *name != 2));
    let moved = clients
        .iter()
        .filter(|client| first[client] != 2 && first[client] != then[client])
        .count();
    assert!(moved <= 4, "{moved} of {first:?} {then:?}");
    fast_path.detach().expect("detach");
}

#[test]
fn lab_by_address_and_port_one_client_reaches_all_members() {
    let mut lab = Lab::new(3);
    lab.serve();
    let mut fast_path = lab.fast_path();
    let mut config = lab.config(AttachMode::Tcx, &[1, 1, 1]);
    for service in &mut config.services {
        service.algorithm = Algorithm::SourceIpPort;
    }
    apply(&mut fast_path, &config);
    let answers: Result<Vec<u8>, String> = lab.client.run(|| {
        (0..60)
            .map(|n| {
                connect(vip(false))
                    .and_then(|mut stream| ask(&mut stream))
                    .map_err(|error| format!("connection {n}: {error}"))
            })
            .collect()
    });
    let shares = shares(&answered(&fast_path, answers), 3);
    assert!(shares.iter().all(|share| *share >= 5), "{shares:?}");
    fast_path.detach().expect("detach");
}

/// The more a member has to do, the fewer it is given.
#[test]
fn lab_least_connections_fills_up_who_has_fewer() {
    let mut lab = Lab::new(2);
    lab.serve();
    let mut fast_path = lab.fast_path();
    let mut config = lab.config(AttachMode::Tcx, &[1, 2]);
    for service in &mut config.services {
        service.algorithm = Algorithm::LeastConnections;
    }
    apply(&mut fast_path, &config);
    let mut held: Vec<(TcpStream, u8)> = Vec::new();
    let open = |held: &mut Vec<(TcpStream, u8)>, count: usize| {
        lab.client.run(|| {
            for _ in 0..count {
                let mut stream = connect(vip(false)).expect("connect");
                let name = ask(&mut stream).expect("ask");
                held.push((stream, name));
            }
        });
    };
    open(&mut held, 30);
    let names = |held: &[(TcpStream, u8)]| held.iter().map(|(_, name)| *name).collect::<Vec<_>>();
    assert_eq!(shares(&names(&held), 2), [10, 20]);
    // The second member's connections end; the next twenty are its.
    held.retain(|(_, name)| *name == 0);
    wait_for("20 connections closed", || {
        let stats = fast_path.stats().expect("stats");
        let active = stats.listeners[&uuid::Uuid::from_u128(1)].active_connections;
        if active == 10 {
            Ok(())
        } else {
            Err(format!("{active} active"))
        }
    });
    open(&mut held, 20);
    assert_eq!(shares(&names(&held), 2), [10, 20]);
    fast_path.detach().expect("detach");
}
