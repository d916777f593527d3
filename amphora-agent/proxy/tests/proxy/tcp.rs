//! Plain TCP listeners.

use std::time::Duration;

use amphora_proxy::{Protocol, Refusal};

use crate::support::*;

#[test]
fn bytes_pass_both_ways_until_both_sides_end() {
    let server = Server::echo();
    let rig = Rig::new(2, Protocol::Tcp, &[server.address], |_| {});
    let mut client = rig.client();
    client.send("hello");
    assert_eq!(client.read_exactly(5), b"hello");
    let mut out = client.stream.get_ref().try_clone().unwrap();
    let data: Vec<u8> = (0..=255).cycle().take(5_000_000).collect();
    let sent = data.clone();
    let writer = std::thread::spawn(move || {
        std::io::Write::write_all(&mut out, &sent).unwrap();
        out.shutdown(std::net::Shutdown::Write).unwrap();
    });
    assert!(client.rest() == data);
    writer.join().unwrap();
    drop(client);
    wait_until("the connection is closed", || rig.active() == 0);
    let stats = rig.proxy.stats();
    let listener = stats.listener(LISTENER).unwrap();
    assert_eq!(listener.bytes_in, 5_000_005);
    assert_eq!(listener.bytes_out, 5_000_005);
    assert_eq!(listener.total_connections, 1);
    let member = stats.member(POOL, member_id(0)).unwrap();
    assert_eq!((member.bytes_in, member.bytes_out), (5_000_005, 5_000_005));
    assert_eq!(
        (member.total_connections, member.active_connections),
        (1, 0)
    );
}

#[test]
fn connections_are_shared_by_weight_exactly() {
    let greet = |name: &'static str| Server::scripted(move |connection, _| connection.write(name));
    let servers = [greet("a"), greet("b"), greet("c")];
    let addresses = servers.each_ref().map(|server| server.address);
    let rig = Rig::new(2, Protocol::Tcp, &addresses, |snapshot| {
        snapshot.pools[0].members[1].weight = 2;
    });
    for _ in 0..40 {
        assert_eq!(rig.client().rest().len(), 1);
    }
    assert_eq!(servers.each_ref().map(Server::connections), [10, 20, 10]);
}

#[test]
fn a_client_without_a_member_is_closed() {
    let mut rig = Rig::new(1, Protocol::Tcp, &[], |_| {});
    assert!(rig.client().rest().is_empty());
    assert_eq!(rig.proxy.stats().refused(Refusal::NoMember), 1);
    rig.snapshot.pools[0].members.push(member(0, refusing()));
    rig.apply();
    assert!(rig.client().rest().is_empty());
    assert_eq!(rig.proxy.stats().refused(Refusal::ConnectFailed), 1);
}

#[test]
fn a_member_that_refuses_is_left_for_another() {
    let server = Server::scripted(|connection, _| connection.write("here"));
    let rig = Rig::new(1, Protocol::Tcp, &[refusing(), server.address], |_| {});
    for _ in 0..4 {
        assert_eq!(rig.client().rest(), b"here");
    }
}

#[test]
fn silence_on_both_sides_ends_a_connection() {
    let server = Server::echo();
    let rig = Rig::new(1, Protocol::Tcp, &[server.address], |snapshot| {
        snapshot.listeners[0].timeout_client_data = Duration::from_millis(100);
    });
    let mut client = rig.client();
    client.send("x");
    assert_eq!(client.read_exactly(1), b"x");
    assert!(client.rest().is_empty());
}
