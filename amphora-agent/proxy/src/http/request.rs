//! A client's request head, checked and rewritten for the member.
//!
//! Strict where two readers could disagree (RFC 9112 sections 3, 5 and 11.2): refused are both
//! length and transfer coding, differing lengths, any coding but `chunked`, a missing or repeated
//! Host, folded lines, blanks before a colon, bare CR or LF, control bytes. Fields of one
//! connection only are taken out (RFC 9110 section 7.6.1). The member always gets HTTP/1.1.

use std::io::Write;
use std::mem::MaybeUninit;
use std::net::IpAddr;

use httparse::{Error as ParseError, Header, Status};

use crate::buffer::Buffer;
use crate::config::InsertHeaders;
use crate::http::answer::Answer;
use crate::http::body::Framing;
use crate::http::head::{
    ConnectionOptions, ContentLength, HeaderSlots, LengthField, LineCopier, MAX_REQUEST_HEADERS,
    is_named_by_connection, list,
};

/// What the rest of the exchange needs to know of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) is_head: bool,
    /// May be sent twice (RFC 9110 section 9.2.2).
    pub(crate) is_idempotent: bool,
    pub(crate) is_http_11: bool,
    /// The client keeps its connection after this request.
    pub(crate) keep_alive: bool,
    pub(crate) framing: Framing,
    /// The client asks to change the protocol, and so does the head made from it.
    pub(crate) upgrade: bool,
}

/// Where the request came in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) client: IpAddr,
    pub(crate) port: u16,
    pub(crate) scheme: &'static str,
    pub(crate) insert: InsertHeaders,
}

enum Target<'a> {
    /// As it is to be sent.
    Plain(&'a str),
    /// `http://authority/path`: the authority overrules the Host field (RFC 9112 section 3.2.2).
    Absolute { authority: &'a str, path: &'a str },
}

/// Reads `head`, which ends with its empty line, and writes the head for the member to `out`.
pub(crate) fn rewrite(head: &[u8], origin: &Origin, out: &mut Buffer) -> Result<Request, Answer> {
    let mut slots: HeaderSlots<'_, MAX_REQUEST_HEADERS> =
        [const { MaybeUninit::uninit() }; MAX_REQUEST_HEADERS];
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(head, &mut slots) {
        Ok(Status::Complete(len)) if len == head.len() => {}
        Ok(_) => return Err(Answer::BadRequest),
        Err(ParseError::TooManyHeaders) => return Err(Answer::HeadTooLarge),
        Err(ParseError::Version) if names_other_version(head) => {
            return Err(Answer::VersionNotSupported);
        }
        Err(_) => return Err(Answer::BadRequest),
    }
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(Answer::BadRequest);
    };
    let headers: &[Header<'_>] = parsed.headers;
    if method == "CONNECT" {
        return Err(Answer::MethodNotAllowed);
    }
    let target = read_target(method, target)?;
    let is_http_11 = version == 1;
    let fields = Fields::read(headers)?;
    let framing = fields.framing(is_http_11)?;
    match fields.hosts {
        0 if is_http_11 => return Err(Answer::BadRequest),
        0 | 1 => {}
        _ => return Err(Answer::BadRequest),
    }
    let has_body = framing != Framing::NONE;
    let upgrade = is_http_11
        && fields.connection.upgrade
        && fields.has_upgrade
        && !fields.upgrades_to_h2c
        && !has_body;

    out.extend(method.as_bytes());
    out.extend(b" ");
    match target {
        Target::Plain(path) => {
            out.extend(path.as_bytes());
            out.extend(b" HTTP/1.1\r\n");
        }
        Target::Absolute { authority, path } => {
            if !path.starts_with('/') {
                out.extend(b"/");
            }
            out.extend(path.as_bytes());
            out.extend(b" HTTP/1.1\r\nHost: ");
            out.extend(authority.as_bytes());
            out.extend(b"\r\n");
        }
    }
    if fields.hosts == 0 && matches!(target, Target::Plain(_)) {
        // An HTTP/1.0 request need not have one, the HTTP/1.1 request made from it must.
        out.extend(b"Host:\r\n");
    }
    let mut length_seen = false;
    let mut lines = LineCopier::new(head, headers);
    for (index, header) in headers.iter().enumerate() {
        let skip = match Field::of(header.name) {
            Field::Connection | Field::KeepAlive | Field::ProxyConnection | Field::Te => true,
            Field::Upgrade => !upgrade,
            Field::Host => matches!(target, Target::Absolute { .. }),
            Field::ContentLength => std::mem::replace(&mut length_seen, true),
            Field::Expect => !(is_http_11 && has_body),
            Field::XForwardedPort => origin.insert.x_forwarded_port,
            Field::XForwardedProto => origin.insert.x_forwarded_proto,
            Field::TransferEncoding => false,
            Field::Other => {
                fields.connection.names_fields && is_named_by_connection(headers, header.name)
            }
        };
        if skip {
            lines.skip(headers, index, out);
        }
    }
    lines.finish(out);
    // Writing to a buffer in memory does not fail.
    if origin.insert.x_forwarded_for {
        let _ = write!(out, "X-Forwarded-For: {}\r\n", origin.client);
    }
    if origin.insert.x_forwarded_port {
        let _ = write!(out, "X-Forwarded-Port: {}\r\n", origin.port);
    }
    if origin.insert.x_forwarded_proto {
        let _ = write!(out, "X-Forwarded-Proto: {}\r\n", origin.scheme);
    }
    if upgrade {
        out.extend(b"Connection: Upgrade\r\n");
    }
    out.extend(b"\r\n");

    Ok(Request {
        is_head: method == "HEAD",
        is_idempotent: matches!(
            method,
            "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
        ),
        is_http_11,
        keep_alive: !fields.connection.close && (is_http_11 || fields.connection.keep_alive),
        framing,
        upgrade,
    })
}

/// `HTTP/2.0` and the like, as against garbage.
fn names_other_version(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let version = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    version.len() >= 6 && version.starts_with(b"HTTP/") && version[5].is_ascii_digit()
}

fn read_target<'a>(method: &str, target: &'a str) -> Result<Target<'a>, Answer> {
    if !target
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'#')
    {
        return Err(Answer::BadRequest);
    }
    if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
        return Ok(Target::Plain(target));
    }
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| {
            target
                .get(..scheme.len())
                .filter(|start| start.eq_ignore_ascii_case(scheme))
                .and(target.get(scheme.len()..))
        })
        .ok_or(Answer::BadRequest)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.is_empty() || !is_authority(authority.as_bytes()) {
        return Err(Answer::BadRequest);
    }
    Ok(Target::Absolute { authority, path })
}

/// A host and perhaps a port, by their characters. User information is not part of it.
fn is_authority(value: &[u8]) -> bool {
    value
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=:[]".contains(byte))
}

/// The fields that are not simply passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Connection,
    KeepAlive,
    ProxyConnection,
    Te,
    Upgrade,
    Host,
    ContentLength,
    TransferEncoding,
    Expect,
    XForwardedPort,
    XForwardedProto,
    Other,
}

impl Field {
    fn of(name: &str) -> Field {
        let (candidate, field) = match name.len() {
            2 => ("te", Field::Te),
            4 => ("host", Field::Host),
            6 => ("expect", Field::Expect),
            7 => ("upgrade", Field::Upgrade),
            10 if name.as_bytes()[0] | 0x20 == b'c' => ("connection", Field::Connection),
            10 => ("keep-alive", Field::KeepAlive),
            14 => ("content-length", Field::ContentLength),
            16 if name.as_bytes()[0] | 0x20 == b'p' => ("proxy-connection", Field::ProxyConnection),
            16 => ("x-forwarded-port", Field::XForwardedPort),
            17 if name.as_bytes()[0] | 0x20 == b't' => {
                ("transfer-encoding", Field::TransferEncoding)
            }
            17 => ("x-forwarded-proto", Field::XForwardedProto),
            _ => return Field::Other,
        };
        if name.eq_ignore_ascii_case(candidate) {
            field
        } else {
            Field::Other
        }
    }
}

#[derive(Default)]
struct Fields {
    connection: ConnectionOptions,
    length: ContentLength,
    /// Whether there is a transfer coding, which then is `chunked`.
    chunked: bool,
    hosts: usize,
    has_upgrade: bool,
    upgrades_to_h2c: bool,
}

impl Fields {
    fn read(headers: &[Header<'_>]) -> Result<Fields, Answer> {
        let mut fields = Fields::default();
        for header in headers {
            match Field::of(header.name) {
                Field::Connection => {
                    if !fields.connection.read(header.value) {
                        return Err(Answer::BadRequest);
                    }
                }
                Field::ContentLength => match fields.length.read(header.value) {
                    Some(LengthField::First | LengthField::Repeated) => {}
                    None => return Err(Answer::BadRequest),
                },
                Field::TransferEncoding => {
                    if fields.chunked {
                        return Err(Answer::BadRequest);
                    }
                    if !header.value.eq_ignore_ascii_case(b"chunked") {
                        return Err(unknown_coding(header.value));
                    }
                    fields.chunked = true;
                }
                Field::Host => {
                    fields.hosts += 1;
                    if !is_authority(header.value) {
                        return Err(Answer::BadRequest);
                    }
                }
                Field::Expect => {
                    if !header.value.eq_ignore_ascii_case(b"100-continue") {
                        return Err(Answer::ExpectationFailed);
                    }
                }
                Field::Upgrade => {
                    fields.has_upgrade = true;
                    fields.upgrades_to_h2c |= list(header.value)
                        .any(|protocol| protocol.to_ascii_lowercase().starts_with(b"h2c"));
                }
                Field::KeepAlive
                | Field::ProxyConnection
                | Field::Te
                | Field::XForwardedPort
                | Field::XForwardedProto
                | Field::Other => {}
            }
        }
        Ok(fields)
    }

    fn framing(&self, is_http_11: bool) -> Result<Framing, Answer> {
        match (self.chunked, self.length.0) {
            (true, Some(_)) => Err(Answer::BadRequest),
            (true, None) if !is_http_11 => Err(Answer::BadRequest),
            (true, None) => Ok(Framing::chunked()),
            (false, length) => Ok(Framing::Length(length.unwrap_or(0))),
        }
    }
}

/// A list of known words is a coding we do not have; anything else is an attempt to be misread.
fn unknown_coding(value: &[u8]) -> Answer {
    const KNOWN: [&[u8]; 7] = [
        b"gzip",
        b"x-gzip",
        b"deflate",
        b"compress",
        b"x-compress",
        b"br",
        b"zstd",
    ];
    let mut codings: Vec<_> = list(value).map(<[u8]>::to_ascii_lowercase).collect();
    if codings.last().is_some_and(|last| last == b"chunked") {
        codings.pop();
    }
    if !codings.is_empty() && codings.iter().all(|coding| KNOWN.contains(&&coding[..])) {
        Answer::CodingNotImplemented
    } else {
        Answer::BadRequest
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
