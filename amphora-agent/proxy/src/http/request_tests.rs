use proptest::prelude::*;

use super::*;

fn origin(insert: bool) -> Origin {
    Origin {
        client: IpAddr::from([192, 0, 2, 7]),
        port: 8080,
        scheme: "http",
        insert: InsertHeaders {
            x_forwarded_for: insert,
            x_forwarded_port: insert,
            x_forwarded_proto: insert,
        },
    }
}

fn rewritten(head: &[u8], insert: bool) -> Result<(Request, String), Answer> {
    let mut out = Buffer::default();
    let request = rewrite(head, &origin(insert), &mut out)?;
    Ok((request, String::from_utf8_lossy(out.filled()).into_owned()))
}

#[test]
fn heads_that_two_readers_could_disagree_on_are_refused() {
    use Answer::*;
    let post = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
    let table: Vec<(String, Answer)> = vec![
        // Both framings, or one twice.
        (
            post("Content-Length: 5\r\nTransfer-Encoding: chunked"),
            BadRequest,
        ),
        (
            post("Transfer-Encoding: chunked\r\nContent-Length: 0"),
            BadRequest,
        ),
        (post("Content-Length: 5\r\nContent-Length: 6"), BadRequest),
        (post("Content-Length: 5, 5"), BadRequest),
        (post("Content-Length: 5,6"), BadRequest),
        (
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
            BadRequest,
        ),
        (post("Transfer-Encoding: chunked, chunked"), BadRequest),
        (post("Transfer-Encoding: chunked, identity"), BadRequest),
        (post("Transfer-Encoding: identity"), BadRequest),
        (post("Transfer-Encoding: xchunked"), BadRequest),
        (post("Transfer-Encoding:\x0bchunked"), BadRequest),
        (post("Transfer-Encoding: \"chunked\""), BadRequest),
        (post("Transfer-Encoding:"), BadRequest),
        (
            post("Transfer-Encoding: gzip, chunked"),
            CodingNotImplemented,
        ),
        (post("Transfer-Encoding: gzip"), CodingNotImplemented),
        // Lengths that are no plain number.
        (post("Content-Length: +5"), BadRequest),
        (post("Content-Length: -5"), BadRequest),
        (post("Content-Length: 0x5"), BadRequest),
        (post("Content-Length: 5 5"), BadRequest),
        (post("Content-Length:"), BadRequest),
        (post("Content-Length: 99999999999999999999999"), BadRequest),
        // Lines.
        (post("Content-Length : 5"), BadRequest),
        (post("Transfer-Encoding\t: chunked"), BadRequest),
        (post(" Folded: 1"), BadRequest),
        (post("A: b\r\n folded"), BadRequest),
        (post("A: b\r\n\tfolded"), BadRequest),
        (post("A: b\rc"), BadRequest),
        (post("A\r\nB: c"), BadRequest),
        (post(": no name"), BadRequest),
        (post("A: nul\0"), BadRequest),
        (post("N\u{e4}me: x"), BadRequest),
        (post("Connection: cl ose"), BadRequest),
        // HTTP/1.0 has no transfer coding.
        (
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
            BadRequest,
        ),
        // Host.
        ("GET / HTTP/1.1\r\nA: b\r\n\r\n".into(), BadRequest),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".into(),
            BadRequest,
        ),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n".into(), BadRequest),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(), BadRequest),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n".into(), BadRequest),
        (
            "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(),
            BadRequest,
        ),
        // Request lines.
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n".into(), BadRequest),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n".into(), BadRequest),
        ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), BadRequest),
        ("GET /\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n".into(), BadRequest),
        ("GET /#x HTTP/1.1\r\nHost: a\r\n\r\n".into(), BadRequest),
        ("GET x HTTP/1.1\r\nHost: a\r\n\r\n".into(), BadRequest),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n".into(), BadRequest),
        (
            "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(),
            BadRequest,
        ),
        (
            "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n".into(),
            BadRequest,
        ),
        ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n".into(), BadRequest),
        ("GET /\r\n\r\n".into(), BadRequest),
        ("GET / HTTP/1.1.1\r\nHost: a\r\n\r\n".into(), BadRequest),
        ("GET / http/1.1\r\nHost: a\r\n\r\n".into(), BadRequest),
        (
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n".into(),
            VersionNotSupported,
        ),
        ("PRI * HTTP/2.0\r\n\r\n".into(), VersionNotSupported),
        (
            "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n".into(),
            MethodNotAllowed,
        ),
        (post("Expect: something"), ExpectationFailed),
    ];
    for (head, answer) in table {
        match rewritten(head.as_bytes(), false) {
            Err(got) => assert_eq!(got, answer, "{}", head.escape_debug()),
            Ok((_, out)) => panic!("{} was sent on as {out:?}", head.escape_debug()),
        }
    }
}

#[test]
fn too_many_lines_are_refused_as_such() {
    let head = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "A: b\r\n".repeat(100)
    );
    assert_eq!(
        rewritten(head.as_bytes(), false).err(),
        Some(Answer::HeadTooLarge)
    );
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(99));
    assert!(rewritten(head.as_bytes(), false).is_ok());
}

#[test]
fn the_member_gets_what_the_client_sent_but_for_fields_of_the_connection() {
    let table = [
        (
            "GET /a?b=c HTTP/1.1\r\nHost: h:80\r\nAccept: */*\r\n\r\n",
            "GET /a?b=c HTTP/1.1\r\nHost: h:80\r\nAccept: */*\r\n\r\n",
        ),
        (
            "GET / HTTP/1.1\r\nConnection: keep-alive, X-Hop\r\nHost: h\r\nx-hop: 1\r\nKeep-Alive: 5\r\nX-Stay: 2\r\nTE: trailers\r\nProxy-Connection: x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nX-Stay: 2\r\n\r\n",
        ),
        // What frames or routes cannot be named away.
        (
            "POST / HTTP/1.1\r\nConnection: content-length, host\r\nHost: h\r\nContent-Length: 3\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n",
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\ncontent-length: 3\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n",
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\nTrailer: T\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\nTrailer: T\r\n\r\n",
        ),
        (
            "GET http://real:81/p HTTP/1.1\r\nA: b\r\nHost: other\r\n\r\n",
            "GET /p HTTP/1.1\r\nHost: real:81\r\nA: b\r\n\r\n",
        ),
        (
            "GET HTTP://real?q HTTP/1.1\r\nHost: other\r\n\r\n",
            "GET /?q HTTP/1.1\r\nHost: real\r\n\r\n",
        ),
        (
            "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        ),
        ("GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
        (
            "GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        ),
        // An expectation without a body, or by HTTP/1.0, is none.
        (
            "GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        ),
        (
            "PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n",
            "PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n",
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\nConnection: Upgrade\r\n\r\n",
        ),
        // HTTP/2 in clear would get past everything that reads requests.
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        ),
    ];
    for (head, want) in table {
        let (_, out) = rewritten(head.as_bytes(), false).unwrap();
        assert_eq!(out, want);
    }
}

#[test]
fn forwarded_for_is_appended_and_the_others_are_replaced() {
    let head = "GET / HTTP/1.1\r\nX-Forwarded-For: 10.1.1.1\r\nX-Forwarded-Port: 1\r\nHost: h\r\nx-forwarded-proto: https\r\n\r\n";
    let (_, out) = rewritten(head.as_bytes(), true).unwrap();
    assert_eq!(
        out,
        "GET / HTTP/1.1\r\nX-Forwarded-For: 10.1.1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Port: 8080\r\nX-Forwarded-Proto: http\r\n\r\n"
    );
    let (_, out) = rewritten(head.as_bytes(), false).unwrap();
    assert_eq!(out, head);
}

#[test]
fn what_the_exchange_needs_to_know_is_read() {
    let read = |head: &str| rewritten(head.as_bytes(), false).unwrap().0;
    let get = read("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(get.is_idempotent && get.keep_alive && !get.is_head && !get.upgrade);
    assert_eq!(get.framing, Framing::NONE);
    assert!(!read("GET / HTTP/1.1\r\nHost: h\r\nConnection: Close\r\n\r\n").keep_alive);
    assert!(!read("GET / HTTP/1.0\r\n\r\n").keep_alive);
    assert!(read("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").keep_alive);
    assert!(read("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n").is_head);
    let post = read("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\n\r\n");
    assert!(!post.is_idempotent);
    assert_eq!(post.framing, Framing::Length(12));
}

proptest! {
    /// Whatever is accepted reads the same when it is read again.
    #[test]
    fn an_accepted_head_is_stable(fields in prop::collection::vec(
        prop::sample::select(vec![
            "Host: h", "host: h2", "Content-Length: 5", "Content-Length: 6",
            "Transfer-Encoding: chunked", "transfer-encoding : chunked", "Connection: close, a",
            "A: b", "a: c", "Upgrade: websocket", "Connection: upgrade", "Expect: 100-continue",
            "X-Forwarded-Proto: x", " fold", "Te: x",
        ]), 0..6)) {
        let head = format!("POST /x HTTP/1.1\r\n{}\r\n", fields.iter().map(|f| format!("{f}\r\n")).collect::<String>());
        if let Ok((request, out)) = rewritten(head.as_bytes(), true) {
            let (again, _) = rewritten(out.as_bytes(), true).unwrap();
            prop_assert_eq!(request.framing, again.framing);
            prop_assert!(out.matches("Content-Length").count() + out.matches("Transfer-Encoding").count() <= 1);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(mut head in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = rewritten(&head, true);
        head.splice(0..0, b"GET / HTTP/1.1\r\nHost: h\r\n".iter().copied());
        head.extend_from_slice(b"\r\n\r\n");
        let _ = rewritten(&head, true);
    }
}
