use proptest::prelude::*;

use super::*;
use crate::http::body::ChunkDecoder;

fn request() -> Request {
    Request {
        is_head: false,
        is_idempotent: true,
        is_http_11: true,
        keep_alive: true,
        framing: Framing::NONE,
        upgrade: false,
    }
}

fn rewritten(
    head: &str,
    request: &Request,
    keep_alive: bool,
) -> Result<(Response, String), Malformed> {
    let mut out = Buffer::default();
    let response = rewrite(head.as_bytes(), request, keep_alive, &mut out)?;
    Ok((response, String::from_utf8_lossy(out.filled()).into_owned()))
}

fn framing(head: &str, request: &Request) -> Framing {
    match rewritten(head, request, true).unwrap().0 {
        Response::Final { framing, .. } => framing,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_end_of_every_kind_of_response_is_known() {
    let head_request = Request {
        is_head: true,
        ..request()
    };
    let get = request();
    let ok = "HTTP/1.1 200 OK\r\n";
    assert_eq!(
        framing(&format!("{ok}Content-Length: 9\r\n\r\n"), &get),
        Framing::Length(9)
    );
    assert_eq!(
        framing(&format!("{ok}Transfer-Encoding: chunked\r\n\r\n"), &get),
        Framing::chunked()
    );
    assert_eq!(framing(&format!("{ok}\r\n"), &get), Framing::until_close());
    for status in ["204 No Content", "304 Not Modified"] {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 9\r\n\r\n");
        assert_eq!(framing(&head, &get), Framing::NONE, "{status}");
    }
    for fields in [
        "Content-Length: 9\r\n",
        "Transfer-Encoding: chunked\r\n",
        "",
    ] {
        let head = format!("{ok}{fields}\r\n");
        assert_eq!(framing(&head, &head_request), Framing::NONE);
    }
}

#[test]
fn fields_of_the_connection_are_taken_out_and_ours_put_in() {
    let kept = |head: &str| rewritten(head, &request(), true).unwrap().1;
    assert_eq!(
        kept(
            "HTTP/1.1 200 Fine thing\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 1\r\nServer: s\r\n\r\n"
        ),
        "HTTP/1.1 200 Fine thing\r\nContent-Length: 1\r\nServer: s\r\n\r\n"
    );
    assert_eq!(
        kept("HTTP/1.0 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"),
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"
    );
    assert_eq!(
        kept("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"),
        "HTTP/1.1 204 No Content\r\n\r\n"
    );
    assert_eq!(
        kept("HTTP/1.1 200 OK\r\nServer: s\r\n\r\n"),
        "HTTP/1.1 200 OK\r\nServer: s\r\nConnection: close\r\n\r\n"
    );
    let (_, out) = rewritten(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n",
        &request(),
        false,
    )
    .unwrap();
    assert_eq!(
        out,
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn an_old_client_gets_what_it_understands() {
    let old = Request {
        is_http_11: false,
        ..request()
    };
    let (response, out) = rewritten(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        &old,
        true,
    )
    .unwrap();
    assert_eq!(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    assert_eq!(
        response,
        Response::Final {
            framing: Framing::Chunked {
                decoder: ChunkDecoder::default(),
                strip: true
            },
            member_keeps: true,
            client_keeps: false,
        }
    );
    let (_, out) = rewritten("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", &old, true).unwrap();
    assert!(out.contains("Connection: keep-alive\r\n"), "{out}");
    let (response, out) = rewritten("HTTP/1.1 100 Continue\r\n\r\n", &old, true).unwrap();
    assert_eq!((response, out.as_str()), (Response::Interim, ""));
}

#[test]
fn interim_and_switching_responses_pass() {
    let upgrading = Request {
        upgrade: true,
        ..request()
    };
    let (response, out) = rewritten(
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
        &request(),
        true,
    )
    .unwrap();
    assert_eq!(response, Response::Interim);
    assert_eq!(out, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
    let switch =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
    let (response, out) = rewritten(switch, &upgrading, true).unwrap();
    assert_eq!(response, Response::Switching);
    assert_eq!(
        out,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    );
    assert_eq!(rewritten(switch, &request(), true).err(), Some(Malformed));
}

#[test]
fn broken_responses_are_refused() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
    ] {
        assert!(rewritten(head, &request(), true).is_err(), "{head:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut out = Buffer::default();
        let _ = rewrite(&bytes, &request(), true, &mut out);
        let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
        head.extend_from_slice(&bytes);
        head.extend_from_slice(b"\r\n\r\n");
        let _ = rewrite(&head, &request(), true, &mut out);
    }
}
