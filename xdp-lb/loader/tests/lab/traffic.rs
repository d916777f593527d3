//! What clients see, and that it is what is counted.

use xdp_lb::{AttachMode, FastPath, Stats};

use crate::support::{Lab, apply, ask, ask_udp, connect, vip, wait_for};

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
