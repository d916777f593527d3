//! A member's response head, checked and rewritten for the client.

use std::mem::MaybeUninit;

use httparse::{Header, Status};

use crate::buffer::Buffer;
use crate::http::answer::ConnectionField;
use crate::http::body::{Framing, Malformed};
use crate::http::head::{
    ConnectionOptions, ContentLength, HeaderSlots, LengthField, LineCopier, MAX_RESPONSE_HEADERS,
    is_named_by_connection,
};
use crate::http::request::Request;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Response {
    /// 1xx but for 101: another response follows.
    Interim,
    /// 101: from here on both sides speak something else.
    Switching,
    Final {
        framing: Framing,
        /// The member keeps its connection.
        member_keeps: bool,
        /// The client's connection can go on.
        client_keeps: bool,
    },
}

/// Reads `head`, which ends with its empty line, and writes the head for the client to `out`.
/// `keep_alive` is whether we are willing to keep the client's connection.
pub(crate) fn rewrite(
    head: &[u8],
    request: &Request,
    keep_alive: bool,
    out: &mut Buffer,
) -> Result<Response, Malformed> {
    let mut slots: HeaderSlots<'_, MAX_RESPONSE_HEADERS> =
        [const { MaybeUninit::uninit() }; MAX_RESPONSE_HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    match httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut parsed,
        head,
        &mut slots,
    ) {
        Ok(Status::Complete(len)) if len == head.len() => {}
        _ => return Err(Malformed),
    }
    let (Some(status), Some(version)) = (parsed.code, parsed.version) else {
        return Err(Malformed);
    };
    // The parser would skip empty lines in front.
    if status < 100 || !head.starts_with(b"HTTP/1.") {
        return Err(Malformed);
    }
    let headers: &[Header<'_>] = parsed.headers;
    let member_is_11 = version == 1;
    let fields = Fields::read(headers)?;

    let is_interim = (100..200).contains(&status);
    let is_switching = status == 101;
    if is_switching && !(request.upgrade && fields.connection.upgrade) {
        return Err(Malformed);
    }
    if is_interim && !is_switching && !request.is_http_11 {
        // An HTTP/1.0 client knows no interim responses.
        return Ok(Response::Interim);
    }
    let framing = if is_interim || status == 204 || status == 304 || request.is_head {
        Framing::NONE
    } else {
        fields.framing(member_is_11)?
    };
    let strip = matches!(framing, Framing::Chunked { .. }) && !request.is_http_11;
    let client_keeps = keep_alive
        && request.keep_alive
        && !strip
        && !matches!(framing, Framing::UntilClose { .. });
    let connection = if is_switching {
        ConnectionField::Upgrade
    } else if is_interim || (client_keeps && request.is_http_11) {
        ConnectionField::Nothing
    } else if client_keeps {
        ConnectionField::KeepAlive
    } else {
        ConnectionField::Close
    };

    out.extend(b"HTTP/1.1");
    // " 200 OK\r\n" as the member wrote it.
    let line_end = memchr::memchr(b'\n', head).ok_or(Malformed)? + 1;
    out.extend(head.get(b"HTTP/1.x".len()..line_end).ok_or(Malformed)?);
    let drops_framing = is_interim || status == 204;
    let mut length_seen = false;
    let mut lines = LineCopier::new(head, headers);
    for (index, header) in headers.iter().enumerate() {
        let skip = match Field::of(header.name) {
            Field::Connection | Field::KeepAlive | Field::ProxyConnection => true,
            Field::Upgrade => !is_switching,
            Field::ContentLength => drops_framing || std::mem::replace(&mut length_seen, true),
            Field::TransferEncoding => drops_framing || strip || !request.is_http_11,
            Field::Other => {
                fields.connection.names_fields && is_named_by_connection(headers, header.name)
            }
        };
        if skip {
            lines.skip(headers, index, out);
        }
    }
    lines.finish(out);
    out.extend(connection.line().as_bytes());
    out.extend(b"\r\n");

    if is_switching {
        return Ok(Response::Switching);
    }
    if is_interim {
        return Ok(Response::Interim);
    }
    Ok(Response::Final {
        member_keeps: !matches!(framing, Framing::UntilClose { .. })
            && !fields.connection.close
            && (member_is_11 || fields.connection.keep_alive),
        framing: match framing {
            Framing::Chunked { decoder, .. } => Framing::Chunked { decoder, strip },
            other => other,
        },
        client_keeps,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Connection,
    KeepAlive,
    ProxyConnection,
    Upgrade,
    ContentLength,
    TransferEncoding,
    Other,
}

impl Field {
    fn of(name: &str) -> Field {
        let (candidate, field) = match name.len() {
            7 => ("upgrade", Field::Upgrade),
            10 if name.as_bytes()[0] | 0x20 == b'c' => ("connection", Field::Connection),
            10 => ("keep-alive", Field::KeepAlive),
            14 => ("content-length", Field::ContentLength),
            16 => ("proxy-connection", Field::ProxyConnection),
            17 => ("transfer-encoding", Field::TransferEncoding),
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
    chunked: bool,
}

impl Fields {
    fn read(headers: &[Header<'_>]) -> Result<Fields, Malformed> {
        let mut fields = Fields::default();
        for header in headers {
            match Field::of(header.name) {
                Field::Connection => {
                    if !fields.connection.read(header.value) {
                        return Err(Malformed);
                    }
                }
                Field::ContentLength => match fields.length.read(header.value) {
                    Some(LengthField::First | LengthField::Repeated) => {}
                    None => return Err(Malformed),
                },
                Field::TransferEncoding => {
                    if fields.chunked || !header.value.eq_ignore_ascii_case(b"chunked") {
                        return Err(Malformed);
                    }
                    fields.chunked = true;
                }
                Field::KeepAlive | Field::ProxyConnection | Field::Upgrade | Field::Other => {}
            }
        }
        Ok(fields)
    }

    fn framing(&self, member_is_11: bool) -> Result<Framing, Malformed> {
        match (self.chunked, self.length.0) {
            (true, Some(_)) => Err(Malformed),
            (true, None) if !member_is_11 => Err(Malformed),
            (true, None) => Ok(Framing::chunked()),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(Framing::until_close()),
        }
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
