//! Clients that mean harm, or do not know better.

use amphora_proxy::{Protocol, Refusal};

use crate::support::*;

#[test]
fn requests_made_to_be_misread_never_reach_a_member() {
    let server = Server::named("a");
    let rig = Rig::http(&[server.address]);
    let table: [(&[u8], u16); 22] = [
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nG", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\nContent-Length: 5\r\n\r\nabcdef", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nX: y\n Transfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: h\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nA: b\x00\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/3.0\r\nHost: h\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"\x00\x00\x00\x00", 400),
    ];
    for (bytes, status) in table {
        let mut client = rig.client();
        client.send(bytes);
        let response = client.response();
        assert_eq!(response.status(), status, "{}", bytes.escape_ascii());
        assert_eq!(response.field("connection"), Some("close"));
        assert!(client.rest().is_empty(), "{}", bytes.escape_ascii());
    }
    assert_eq!(server.requests(), 0);
    let stats = rig.proxy.stats();
    assert_eq!(stats.listener(LISTENER).unwrap().request_errors, 22);
    assert_eq!(stats.refused(Refusal::MalformedRequest), 18);
    assert_eq!(stats.refused(Refusal::NotSupported), 4);
    assert_eq!(rig.client().get("/").text(), "a");
}

#[test]
fn a_head_without_an_end_is_refused_at_the_size_of_a_buffer() {
    let rig = Rig::http(&[]);
    let endless = [
        (format!("GET /{}", "a".repeat(40_000)), 414),
        (
            format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}", "a".repeat(40_000)),
            431,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: h\r\n{}", "A: b\r\n".repeat(10_000)),
            431,
        ),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: h\r\n{}\r\n",
                "A: b\r\n".repeat(101)
            ),
            431,
        ),
    ];
    for (head, status) in endless {
        let mut client = rig.client();
        // The answer may come before everything is taken.
        let _ = client.write(&head);
        assert_eq!(client.response().status(), status);
    }
    assert_eq!(rig.proxy.stats().refused(Refusal::HeadTooLarge), 4);
}

#[test]
fn a_head_that_fits_is_taken_however_it_arrives() {
    let server = Server::http(|request| ok(&request.head.len().to_string()));
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    let head = format!(
        "GET / HTTP/1.1\r\nHost: h\r\n{}\r\n",
        format!("A: {}\r\n", "b".repeat(200)).repeat(70)
    );
    client.send(&head);
    assert_eq!(client.response().text(), head.len().to_string());
    for byte in b"GET / HTTP/1.1\r\nHost: h\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.response().status(), 200);
}

#[test]
fn a_body_that_turns_out_malformed_is_cut_off_at_the_member() {
    let server = Server::scripted(|connection, _| {
        connection.read_request()?;
        connection.write(ok("complete"))
    });
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    wait_until("the member is reached", || server.connections() == 1);
    client.send("5 \r\nhello\r\n0\r\n\r\n");
    assert_eq!(client.response().status(), 400);
    assert_eq!(server.requests(), 0);
}

#[test]
fn a_client_that_leaves_within_a_body_leaves_no_request_behind() {
    let server = Server::scripted(|connection, _| {
        connection.read_request()?;
        connection.write(ok("complete"))
    });
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
    wait_until("the member is reached", || server.connections() == 1);
    drop(client);
    wait_until("it is counted", || {
        let stats = rig.proxy.stats();
        stats.listener(LISTENER).unwrap().request_errors == 1
            && stats.member(POOL, member_id(0)).unwrap().active_connections == 0
    });
    assert_eq!(server.requests(), 0);
}

#[test]
fn crowds_of_silent_and_rude_clients_do_not_stop_others_nor_hold_buffers() {
    let server = Server::named("a");
    let rig = Rig::new(2, Protocol::Http, &[server.address], |_| {});
    let mut crowd: Vec<Client> = (0..1000).map(|_| rig.client()).collect();
    wait_until("all are accepted", || rig.active() == 1000);
    let before = resident_kib();
    // Half of them start a head and stop.
    for client in crowd.iter_mut().step_by(2) {
        client.send("GET / HTTP/1.1\r\nHost: ");
    }
    assert_eq!(rig.client().get("/").text(), "a");
    wait_until("their bytes are read", || {
        rig.proxy.stats().listener(LISTENER).unwrap().bytes_in >= 500 * 22
    });
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 500 * 4, "{grown} KiB for 500 begun heads");
    for client in crowd.iter_mut().step_by(2) {
        client.send("h\r\n\r\n");
    }
    for client in crowd.iter_mut().step_by(2) {
        assert_eq!(client.response().text(), "a");
    }
    drop(crowd);
    wait_until("all are gone", || rig.active() == 0);
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse().ok())
        .unwrap()
}
