//! The parsers of outside bytes with the promises they make, for the fuzz targets and for the
//! tests below. Panics when a promise is broken.

use std::net::IpAddr;

use crate::buffer::Buffer;
use crate::config::InsertHeaders;
use crate::http::body::{Framing, Malformed};
use crate::http::head::{Scan, scan_head};
use crate::http::request::{self, Origin, Request};
use crate::http::response;

/// A request head that is accepted is sent on as one that reads the same, whoever reads it, and
/// its end does not depend on how it arrives.
pub fn request_head(bytes: &[u8]) {
    let Some(len) = head_len(bytes) else { return };
    let origin = Origin {
        client: IpAddr::from([192, 0, 2, 1]),
        port: 80,
        scheme: "http",
        insert: InsertHeaders {
            x_forwarded_for: true,
            x_forwarded_port: true,
            x_forwarded_proto: true,
        },
    };
    let mut out = Buffer::default();
    let Ok(read) = request::rewrite(&bytes[..len], &origin, &mut out) else {
        return;
    };
    let sent = out.filled().to_vec();
    assert_eq!(head_len(&sent), Some(sent.len()), "one head, no more");
    let mut again = Buffer::default();
    let reread = request::rewrite(&sent, &origin, &mut again)
        .unwrap_or_else(|answer| panic!("{answer:?} to {}", sent.escape_ascii()));
    assert_eq!(read.framing, reread.framing);
    assert_eq!(read.is_head, reread.is_head);
    assert_eq!(read.upgrade, reread.upgrade);
    let lines = |name: &str| {
        sent.split(|byte| *byte == b'\n')
            .filter(|line| {
                line.get(..name.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
            })
            .count()
    };
    assert_eq!(lines("host:"), 1);
    assert!(lines("content-length:") + lines("transfer-encoding:") <= 1);
}

/// A response head that is accepted becomes exactly one head.
pub fn response_head(bytes: &[u8]) {
    let Some(len) = head_len(bytes) else { return };
    for (is_head, is_http_11, upgrade) in [
        (false, true, false),
        (true, true, false),
        (false, false, false),
        (false, true, true),
    ] {
        let request = Request {
            is_head,
            is_idempotent: true,
            is_http_11,
            keep_alive: true,
            framing: Framing::NONE,
            upgrade,
        };
        let mut out = Buffer::default();
        if response::rewrite(&bytes[..len], &request, true, &mut out).is_ok() && !out.is_empty() {
            assert_eq!(head_len(out.filled()), Some(out.len()));
        }
    }
}

/// Chunks mean the same in pieces of any size, passed on or stripped.
pub fn chunks(bytes: &[u8]) {
    let whole = read_chunks(bytes, bytes.len().max(1), false);
    for piece in [1, 2, 7] {
        assert_eq!(read_chunks(bytes, piece, false), whole, "{piece}");
    }
    let stripped = read_chunks(bytes, bytes.len().max(1), true);
    assert_eq!(read_chunks(bytes, 3, true), stripped);
    assert_eq!(stripped.is_ok(), whole.is_ok());
    if let (Ok((passed, done, rest)), Ok((data, data_done, data_rest))) = (whole, stripped) {
        assert_eq!((done, &rest), (data_done, &data_rest));
        assert!(data.len() <= passed.len());
        assert_eq!(passed.len() + rest.len(), bytes.len());
    }
}

/// What is passed on, whether the body is complete, and what follows it.
type Chunks = (Vec<u8>, bool, Vec<u8>);

fn read_chunks(bytes: &[u8], piece: usize, strip: bool) -> Result<Chunks, Malformed> {
    let mut framing = match Framing::chunked() {
        Framing::Chunked { decoder, .. } => Framing::Chunked { decoder, strip },
        other => other,
    };
    let mut out = Vec::new();
    let mut buffer = Buffer::default();
    for part in bytes.chunks(piece) {
        buffer.extend(part);
        while !framing.is_done() && !buffer.is_empty() {
            let ready = framing.advance(&mut buffer)?;
            out.extend_from_slice(&buffer.filled()[..ready]);
            buffer.consume(ready);
        }
    }
    Ok((out, framing.is_done(), buffer.filled().to_vec()))
}

/// The length of the head in front of `bytes`, the same however it arrives.
fn head_len(bytes: &[u8]) -> Option<usize> {
    let whole = scan_head(bytes, &mut 0);
    let mut scanned = 0;
    let found = (1..=bytes.len()).find_map(|end| match scan_head(&bytes[..end], &mut scanned) {
        Scan::Partial => None,
        found => Some(found),
    });
    assert_eq!(found.unwrap_or(Scan::Partial), whole);
    match whole {
        Scan::Complete(len) => Some(len),
        Scan::Partial | Scan::BareLf => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    /// Pieces from which heads and chunks are likely to come out nearly right.
    fn nearly_http() -> impl Strategy<Value = Vec<u8>> {
        let pieces = vec![
            "GET / HTTP/1.1\r\n",
            "POST http://a/b HTTP/1.1\r\n",
            "PUT /x HTTP/1.0\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 101 X\r\n",
            "HTTP/1.0 204\r\n",
            "Host: h\r\n",
            "host:\r\n",
            "Content-Length: 5\r\n",
            "content-length:5\r\n",
            "Content-Length: 6\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Connection: close, x\r\n",
            "Connection: upgrade\r\n",
            "Upgrade: websocket\r\n",
            "Expect: 100-continue\r\n",
            "X-Forwarded-For: a\r\n",
            "X: y\r\n",
            "X : y\r\n",
            " folded\r\n",
            "\r\n",
            "\r",
            "\n",
            "\0",
            "5\r\nhello\r\n",
            "0\r\n",
            "3;a=b\r\nabc\r\n",
            "T: v\r\n",
            "ffffffffffffffff\r\n",
        ];
        prop::collection::vec(prop::sample::select(pieces), 0..10)
            .prop_map(|pieces| pieces.concat().into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_parsers_keep_their_promises_on_nearly_http(bytes in nearly_http()) {
            super::request_head(&bytes);
            super::response_head(&bytes);
            super::chunks(&bytes);
        }

        #[test]
        fn the_parsers_keep_their_promises_on_garbage(
            bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            super::request_head(&bytes);
            super::response_head(&bytes);
            super::chunks(&bytes);
        }
    }
}
