//! HTTP checks: a request, and the status line of its answer.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::{Failure, connect};
use crate::target::{Check, HttpVersion, Target};

/// A status line is shorter.
const MAX_LINE: usize = 1024;

pub(super) async fn make(target: &Target) -> Result<(), Failure> {
    let Check::Http {
        method,
        path,
        version,
        host,
        expected,
    } = &target.check
    else {
        return Err(Failure::Request);
    };
    let request = write_request(method, path, *version, host.as_deref())?;
    let mut stream = connect(target).await?;
    let exchange = async {
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::with_capacity(256);
        while !answer.contains(&b'\n') && answer.len() < MAX_LINE {
            if stream.read_buf(&mut answer).await? == 0 {
                break;
            }
        }
        Ok(answer)
    };
    let answer = match timeout(target.timeout, exchange).await {
        Ok(answer) => answer.map_err(Failure::Exchange)?,
        Err(_) => return Err(Failure::Timeout),
    };
    match read_status(&answer) {
        Some(status) if expected.contains(status) => Ok(()),
        Some(status) => Err(Failure::Status(status)),
        None => Err(Failure::NotHttp),
    }
}

/// A Host only with HTTP/1.1, and only if the monitor has a domain name.
fn write_request(
    method: &str,
    path: &str,
    version: HttpVersion,
    host: Option<&str>,
) -> Result<String, Failure> {
    let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_word(method) || !is_word(path) || !host.is_none_or(is_word) {
        return Err(Failure::Request);
    }
    let (version, host) = match version {
        HttpVersion::Http10 => ("1.0", None),
        HttpVersion::Http11 => ("1.1", host),
    };
    let host = host.map_or(String::new(), |host| format!("Host: {host}\r\n"));
    Ok(format!(
        "{method} {path} HTTP/{version}\r\n{host}Connection: close\r\n\r\n"
    ))
}

fn read_status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\n').next()?;
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let [b'0' | b'1', b' ', code @ ..] = rest else {
        return None;
    };
    let (code, rest) = code.split_at_checked(3)?;
    if !matches!(rest.first(), None | Some(b' ' | b'\r')) {
        return None;
    }
    let code = std::str::from_utf8(code).ok()?;
    code.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(())?;
    code.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_as_plain_as_octavias() {
        let write = |version, host| write_request("GET", "/up?x=1", version, host).unwrap();
        assert_eq!(
            write(HttpVersion::Http10, None),
            "GET /up?x=1 HTTP/1.0\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(
            write(HttpVersion::Http10, Some("a.b")),
            "GET /up?x=1 HTTP/1.0\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(
            write(HttpVersion::Http11, Some("a.b")),
            "GET /up?x=1 HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\n\r\n"
        );
        for path in ["/a b", "/a\r\nX: y", ""] {
            assert!(write_request("GET", path, HttpVersion::Http10, None).is_err());
        }
    }

    #[test]
    fn statuses_are_read_from_status_lines_only() {
        assert_eq!(read_status(b"HTTP/1.1 200 OK\r\n"), Some(200));
        assert_eq!(read_status(b"HTTP/1.0 503\r\n"), Some(503));
        assert_eq!(read_status(b"HTTP/1.0 404"), Some(404));
        for wrong in [
            &b""[..],
            b"HTTP/1.1 20",
            b"HTTP/1.1 2000 OK\r\n",
            b"HTTP/1.1 +20 OK\r\n",
            b"HTTP/2.0 200 OK\r\n",
            b"SSH-2.0\r\n",
            b"\r\nHTTP/1.1 200 OK\r\n",
        ] {
            assert_eq!(read_status(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
