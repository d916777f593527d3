//! What clients and members see of each other through an HTTP listener.

use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use amphora_proxy::{Algorithm, InsertHeaders, Protocol, Refusal};

use crate::support::*;

#[test]
fn requests_are_shared_by_weight_exactly_over_all_threads() {
    let servers = [Server::named("a"), Server::named("b"), Server::named("c")];
    let addresses = servers.each_ref().map(|server| server.address);
    let rig = Rig::new(3, Protocol::Http, &addresses, |snapshot| {
        snapshot.pools[0].members[1].weight = 2;
    });
    for _ in 0..40 {
        let mut client = rig.client();
        for _ in 0..10 {
            assert_eq!(client.get("/").status(), 200);
        }
    }
    assert_eq!(
        servers.each_ref().map(Server::requests),
        [100, 200, 100],
        "400 requests over 40 connections"
    );
    let stats = rig.proxy.stats();
    assert_eq!(stats.listener(LISTENER).unwrap().requests, 400);
    assert_eq!(stats.listener(LISTENER).unwrap().total_connections, 40);
    assert_eq!(stats.member(POOL, member_id(1)).unwrap().requests, 200);
}

#[test]
fn weight_zero_and_down_members_get_nothing_and_backups_step_in() {
    let servers = [Server::named("a"), Server::named("b"), Server::named("c")];
    let addresses = servers.each_ref().map(|server| server.address);
    let mut rig = Rig::new(2, Protocol::Http, &addresses, |snapshot| {
        snapshot.pools[0].members[0].weight = 0;
        snapshot.pools[0].members[2].backup = true;
    });
    let mut client = rig.client();
    for _ in 0..10 {
        assert_eq!(client.get("/").text(), "b");
    }
    rig.snapshot.pools[0].members[1].up = false;
    rig.apply();
    for _ in 0..10 {
        assert_eq!(client.get("/").text(), "c");
    }
}

#[test]
fn one_client_address_stays_with_its_member_by_source_ip() {
    let servers = [Server::named("a"), Server::named("b"), Server::named("c")];
    let addresses = servers.each_ref().map(|server| server.address);
    let rig = Rig::new(2, Protocol::Http, &addresses, |snapshot| {
        snapshot.pools[0].algorithm = Algorithm::SourceIp;
    });
    let first = rig.client().get("/");
    for _ in 0..10 {
        assert_eq!(rig.client().get("/").body, first.body);
    }
}

#[test]
fn least_connections_goes_round_a_busy_member() {
    let (release, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let slow = Server::scripted(move |connection, _| {
        connection.read_request()?;
        let _ = wait.lock().unwrap().recv();
        connection.write(ok("slow"))
    });
    let fast = Server::named("fast");
    let rig = Rig::new(
        2,
        Protocol::Http,
        &[slow.address, fast.address],
        |snapshot| snapshot.pools[0].algorithm = Algorithm::LeastConnections,
    );
    let mut held = Vec::new();
    while slow.requests() == 0 {
        let mut client = rig.client();
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        wait_until("a member has the request", || {
            slow.requests() + fast.requests() > held.len()
        });
        held.push(client);
    }
    for _ in 0..10 {
        assert_eq!(rig.client().get("/").text(), "fast");
    }
    release.send(()).unwrap();
    assert_eq!(held.pop().unwrap().response().text(), "slow");
}

#[test]
fn both_sides_keep_their_connections() {
    let server = Server::named("a");
    let rig = Rig::new(1, Protocol::Http, &[server.address], |_| {});
    for _ in 0..5 {
        let mut client = rig.client();
        for _ in 0..10 {
            assert_eq!(client.get("/").text(), "a");
        }
    }
    assert_eq!(server.requests(), 50);
    assert_eq!(server.connections(), 1);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::http(|request| ok(request.head.lines().next().unwrap()));
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    let mut batch = String::new();
    for n in 0..20 {
        batch += &format!("POST /{n} HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
    }
    client.send(batch);
    for n in 0..20 {
        assert_eq!(client.response().text(), format!("POST /{n} HTTP/1.1"));
    }
}

#[test]
fn responses_without_a_body_do_not_hold_up_the_next() {
    let server = Server::http(|request| match request.head.split(' ').nth(1) {
        Some("/204") => "HTTP/1.1 204 No Content\r\n\r\n".into(),
        Some("/304") => "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n".into(),
        Some("/head") => "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".into(),
        _ => ok("body"),
    });
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    assert_eq!(client.get("/204").status(), 204);
    let not_modified = client.get("/304");
    assert_eq!(not_modified.field("content-length"), Some("9"));
    client.send("HEAD /head HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.response_to_head().field("content-length"), Some("9"));
    assert_eq!(client.get("/").text(), "body");
}

#[test]
fn chunks_and_trailers_pass_both_ways() {
    let server = Server::http(|request| {
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n{}",
            request.text()
        )
    });
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    let body = "5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nSum: 42\r\n\r\n";
    for _ in 0..3 {
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        ));
        assert_eq!(client.response().text(), body);
    }
}

#[test]
fn an_old_client_gets_the_data_without_the_chunks() {
    let server = Server::http(|_| {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
            .into()
    });
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let response = client.response();
    assert_eq!(response.text(), "abcde");
    assert_eq!(response.field("connection"), Some("close"));
    assert_eq!(response.field("transfer-encoding"), None);
}

#[test]
fn an_old_client_may_keep_its_connection() {
    let server = Server::named("a");
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    for _ in 0..3 {
        client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let response = client.response();
        assert_eq!(response.field("connection"), Some("keep-alive"));
        assert_eq!(response.text(), "a");
    }
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().field("connection"), Some("close"));
    assert!(client.rest().is_empty());
}

#[test]
fn a_response_that_ends_with_its_connection_ends_the_clients_too() {
    let server = Server::scripted(|connection, _| {
        connection.read_request()?;
        connection.write("HTTP/1.1 200 OK\r\n\r\n")?;
        connection.write("x".repeat(100_000))
    });
    let rig = Rig::http(&[server.address]);
    let response = rig.client().get("/");
    assert_eq!(response.field("connection"), Some("close"));
    assert_eq!(response.body.len(), 100_000);
}

#[test]
fn a_client_that_waits_for_100_continue_gets_it_from_the_member() {
    let server = Server::scripted(|connection, _| {
        let head = connection.read_head()?.unwrap();
        assert!(head.contains("Expect: 100-continue"));
        connection.write("HTTP/1.1 100 Continue\r\n\r\n")?;
        let body = connection.read_exactly(5);
        connection.write(ok(std::str::from_utf8(&body).unwrap()))
    });
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    client.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.response().status(), 100);
    client.send("hello");
    assert_eq!(client.response().text(), "hello");
}

#[test]
fn an_upgrade_joins_both_sides_with_what_came_along() {
    let server = Server::scripted(|connection, _| {
        let head = connection.read_head()?.unwrap();
        assert!(head.contains("Upgrade: websocket") && head.contains("Connection: Upgrade"));
        connection.write(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst",
        )?;
        let mut out = connection.stream.get_ref().try_clone()?;
        std::io::copy(&mut connection.stream, &mut out)?;
        out.shutdown(Shutdown::Write)
    });
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    client.send(
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly",
    );
    assert_eq!(client.response().status(), 101);
    assert_eq!(client.read_exactly(10), b"firstearly");
    client.send("ping");
    assert_eq!(client.read_exactly(4), b"ping");
    client.finish_sending();
    assert!(client.rest().is_empty());
}

#[test]
fn forwarded_fields_are_written_as_asked() {
    let server = Server::http(|request| ok(&request.head));
    let rig = Rig::new(1, Protocol::Http, &[server.address], |snapshot| {
        snapshot.listeners[0].insert_headers = InsertHeaders {
            x_forwarded_for: true,
            x_forwarded_port: true,
            x_forwarded_proto: true,
        };
    });
    let mut client = rig.client();
    client.send(
        "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\n\r\n",
    );
    assert_eq!(
        client.response().text(),
        format!(
            "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Port: {}\r\nX-Forwarded-Proto: http\r\n\r\n",
            rig.address.port()
        )
    );
}

#[test]
fn big_bodies_stream_both_ways_and_every_byte_is_counted() {
    let server = Server::http(|request| ok(request.text()));
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    let body = "0123456789abcdef".repeat(300_000);
    let request = format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    client.send(&request);
    let response = client.response();
    assert_eq!(response.text(), body);
    let received = response.head.len() + response.body.len();
    drop(client);
    wait_until("the connection is closed", || rig.active() == 0);
    let stats = rig.proxy.stats();
    let listener = stats.listener(LISTENER).unwrap();
    assert_eq!(listener.bytes_in, request.len() as u64);
    assert_eq!(listener.bytes_out, received as u64);
    let member = stats.member(POOL, member_id(0)).unwrap();
    assert_eq!(member.bytes_in, request.len() as u64);
    assert_eq!(member.bytes_out, received as u64);
    assert_eq!(member.active_connections, 0);
}

#[test]
fn an_answer_before_the_end_of_the_request_reaches_the_client() {
    let server = Server::scripted(|connection, _| {
        connection.read_head()?;
        connection.write(
            "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig",
        )
    });
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n");
    // The member may stop reading at any point of this.
    for _ in 0..200 {
        if client.write([b'x'; 10_000]).is_err() {
            break;
        }
    }
    assert_eq!(client.response().status(), 413);
}

/// Serves one request on each connection, closes the first connection on the second.
fn forgetful() -> Server {
    Server::scripted(|connection, number| {
        connection.read_request()?;
        connection.write(ok("a"))?;
        connection.read_request()?;
        if number > 0 {
            connection.write(ok("b"))?;
        }
        Ok(())
    })
}

#[test]
fn a_get_lost_on_a_reused_connection_is_sent_again() {
    let server = forgetful();
    let rig = Rig::new(1, Protocol::Http, &[server.address], |_| {});
    let mut client = rig.client();
    assert_eq!(client.get("/1").text(), "a");
    assert_eq!(client.get("/2").text(), "a");
    assert_eq!(server.connections(), 2);
    assert_eq!(server.requests(), 3);
}

#[test]
fn a_post_is_never_sent_twice() {
    let server = forgetful();
    let rig = Rig::new(1, Protocol::Http, &[server.address], |_| {});
    let mut client = rig.client();
    assert_eq!(client.get("/1").text(), "a");
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(client.response().status(), 502);
    assert_eq!(server.requests(), 2);
    assert_eq!(server.connections(), 1);
    // The first request of a client goes on a new connection when it cannot be sent again.
    let mut other = rig.client();
    other.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(other.response().status(), 200);
    assert_eq!(server.connections(), 2);
}

#[test]
fn without_a_usable_member_the_answer_is_503_and_the_connection_goes_on() {
    let server = Server::named("a");
    let mut rig = Rig::http(&[server.address]);
    rig.snapshot.pools[0].members[0].up = false;
    rig.apply();
    let mut client = rig.client();
    let response = client.get("/");
    assert_eq!(response.status(), 503);
    assert_eq!(response.field("cache-control"), Some("no-cache"));
    assert_eq!(response.field("content-type"), Some("text/html"));
    rig.snapshot.listeners[0].default_pool = None;
    rig.apply();
    assert_eq!(client.get("/").status(), 503);
    client.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.response_to_head().status(), 503);
    rig.snapshot.listeners[0].default_pool = Some(POOL);
    rig.snapshot.pools[0].members[0].up = true;
    rig.apply();
    assert_eq!(client.get("/").text(), "a");
    assert_eq!(rig.proxy.stats().refused(Refusal::NoMember), 3);
}

#[test]
fn a_member_that_refuses_is_tried_again_and_then_another_one() {
    let server = Server::named("a");
    let rig = Rig::http(&[refusing(), server.address]);
    let mut client = rig.client();
    for _ in 0..4 {
        assert_eq!(client.get("/").text(), "a");
    }
    let stats = rig.proxy.stats();
    let failures = stats.member(POOL, member_id(0)).unwrap().connect_failures;
    assert_eq!(failures, 6, "three tries for each of two requests");
    let rig = Rig::http(&[refusing()]);
    assert_eq!(rig.client().get("/").status(), 503);
    let stats = rig.proxy.stats();
    let failures = stats.member(POOL, member_id(0)).unwrap().connect_failures;
    assert_eq!(failures, 4);
    assert_eq!(stats.refused(Refusal::ConnectFailed), 1);
}

#[test]
fn broken_answers_of_a_member_become_502() {
    let answers = [
        "",
        "garbage\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
    ];
    for answer in answers {
        let server = Server::scripted(move |connection, _| {
            connection.read_request()?;
            connection.write(answer)
        });
        let rig = Rig::http(&[server.address]);
        let mut client = rig.client();
        assert_eq!(client.get("/").status(), 502, "{answer:?}");
        // The client's connection is none the worse.
        assert_eq!(client.get("/").status(), 502, "{answer:?}");
        assert_eq!(rig.proxy.stats().refused(Refusal::BadResponse), 2);
    }
}

#[test]
fn a_response_cut_short_ends_the_clients_connection_early() {
    let answers = [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ];
    for answer in answers {
        let server = Server::scripted(move |connection, _| {
            connection.read_request()?;
            connection.write(&answer[..answer.len() - 3])?;
            connection.write(&answer[answer.len() - 3..])
        });
        let rig = Rig::http(&[server.address]);
        let mut client = rig.client();
        client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let got = client.rest();
        assert!(!got.ends_with(b"0\r\n\r\n"), "{}", got.escape_ascii());
        let status = &got[..got.len().min(12)];
        assert!(
            status == b"HTTP/1.1 200" || status == b"HTTP/1.1 502",
            "{}",
            got.escape_ascii()
        );
    }
}

#[test]
fn a_silent_member_becomes_504_and_a_silent_client_408() {
    let server = Server::scripted(|connection, _| {
        while connection.read_request()?.is_some() {}
        Ok(())
    });
    let rig = Rig::new(1, Protocol::Http, &[server.address], |snapshot| {
        snapshot.listeners[0].timeout_member_data = Duration::from_millis(100);
        snapshot.listeners[0].timeout_client_data = Duration::from_millis(300);
    });
    assert_eq!(rig.client().get("/").status(), 504);
    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHos");
    assert_eq!(client.response().status(), 408);
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab");
    assert_eq!(client.response().status(), 408);
    // Silence between requests is nobody's fault.
    assert!(rig.client().rest().is_empty());
    let stats = rig.proxy.stats();
    assert_eq!(stats.refused(Refusal::MemberTimeout), 1);
    assert_eq!(stats.refused(Refusal::ClientTimeout), 2);
    assert_eq!(stats.listener(LISTENER).unwrap().request_errors, 2);
}

#[test]
fn a_client_that_has_finished_sending_still_gets_its_answer() {
    let server = Server::named("a");
    let rig = Rig::http(&[server.address]);
    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    client.finish_sending();
    assert_eq!(client.response().text(), "a");
    assert!(client.rest().is_empty());
}

#[test]
fn listeners_serve_ipv6() {
    let server = Server::named("six");
    let address = std::net::SocketAddr::new(
        std::net::Ipv6Addr::LOCALHOST.into(),
        // One process, one port: the low part of the process id.
        20_000 + (std::process::id() % 10_000) as u16,
    );
    let mut rig = Rig::http(&[server.address]);
    rig.snapshot.listeners[0].binds.push(address);
    rig.apply();
    assert_eq!(Client::connect(address).get("/").text(), "six");
    assert_eq!(rig.client().get("/").text(), "six");
}
