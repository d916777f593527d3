//! What request and response heads have in common: finding their end, and the fields that belong
//! to one connection only.

use std::mem::MaybeUninit;

use httparse::Header;
use memchr::memchr_iter;

use crate::http::body::is_token;

/// Header lines of a request; HAProxy's default is 101.
pub(crate) const MAX_REQUEST_HEADERS: usize = 100;
pub(crate) const MAX_RESPONSE_HEADERS: usize = 200;

pub(crate) type HeaderSlots<'a, const N: usize> = [MaybeUninit<Header<'a>>; N];

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// No empty line yet.
    Partial,
    /// The head, with its empty line, is so long.
    Complete(usize),
    /// A line feed without a carriage return before it.
    BareLf,
}

/// Looks for the end of a head in `bytes`, from `scanned` on, which it moves forward: each byte is
/// looked at once however slowly the head arrives.
pub(crate) fn scan_head(bytes: &[u8], scanned: &mut usize) -> Scan {
    let from = (*scanned).min(bytes.len());
    for offset in memchr_iter(b'\n', &bytes[from..]) {
        let line_feed = from + offset;
        if line_feed == 0 || bytes[line_feed - 1] != b'\r' {
            return Scan::BareLf;
        }
        if line_feed >= 3 && bytes[line_feed - 2] == b'\n' {
            return Scan::Complete(line_feed + 1);
        }
    }
    *scanned = bytes.len();
    Scan::Partial
}

/// The trimmed, comma separated members of a field value, without empty ones.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

/// What the `Connection` fields of a message say.
#[derive(Debug, Default)]
pub(crate) struct ConnectionOptions {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade: bool,
    /// Names other fields, which then belong to this connection only.
    pub(crate) names_fields: bool,
}

impl ConnectionOptions {
    /// Adds one `Connection` field; false when it is not a list of tokens.
    pub(crate) fn read(&mut self, value: &[u8]) -> bool {
        for token in list(value) {
            if !token.iter().copied().all(is_token) {
                return false;
            }
            if token.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if token.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if token.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            } else {
                self.names_fields = true;
            }
        }
        true
    }
}

/// Whether some `Connection` field of `headers` names `field`. Fields that frame or route the
/// message cannot be taken out in this way.
pub(crate) fn is_named_by_connection(headers: &[Header<'_>], field: &str) -> bool {
    const KEPT: [&str; 3] = ["host", "content-length", "transfer-encoding"];
    if KEPT.iter().any(|kept| field.eq_ignore_ascii_case(kept)) {
        return false;
    }
    headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("connection"))
        .flat_map(|header| list(header.value))
        .any(|token| token.eq_ignore_ascii_case(field.as_bytes()))
}

/// The one `Content-Length` of a message. Several equal ones count as one (RFC 9112 section 6.3).
#[derive(Debug, Default)]
pub(crate) struct ContentLength(pub(crate) Option<u64>);

pub(crate) enum LengthField {
    First,
    Repeated,
}

impl ContentLength {
    /// Adds one field; `None` when it is no number, or another one than before.
    pub(crate) fn read(&mut self, value: &[u8]) -> Option<LengthField> {
        // 18 digits always fit; no body is longer.
        if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let length = value
            .iter()
            .fold(0, |n: u64, digit| n * 10 + u64::from(digit - b'0'));
        match self.0 {
            None => {
                self.0 = Some(length);
                Some(LengthField::First)
            }
            Some(before) if before == length => Some(LengthField::Repeated),
            Some(_) => None,
        }
    }
}

/// Copies the header lines of a head, but for those that are skipped, in runs as long as possible.
pub(crate) struct LineCopier<'a> {
    head: &'a [u8],
    run_start: usize,
}

impl<'a> LineCopier<'a> {
    /// `head` ends with its empty line; `headers` point into it.
    pub(crate) fn new(head: &'a [u8], headers: &[Header<'_>]) -> Self {
        LineCopier {
            head,
            run_start: headers
                .first()
                .map_or(head.len().saturating_sub(2), |first| offset_in(head, first)),
        }
    }

    /// Leaves out the line of `headers[index]`.
    pub(crate) fn skip(
        &mut self,
        headers: &[Header<'_>],
        index: usize,
        out: &mut crate::buffer::Buffer,
    ) {
        let Some(header) = headers.get(index) else {
            return;
        };
        let line = offset_in(self.head, header);
        out.extend(self.head.get(self.run_start..line).unwrap_or_default());
        self.run_start = headers
            .get(index + 1)
            .map_or(self.head.len().saturating_sub(2), |next| {
                offset_in(self.head, next)
            });
    }

    /// Copies what is left, without the empty line.
    pub(crate) fn finish(self, out: &mut crate::buffer::Buffer) {
        let end = self.head.len().saturating_sub(2);
        out.extend(self.head.get(self.run_start..end).unwrap_or_default());
    }
}

fn offset_in(head: &[u8], header: &Header<'_>) -> usize {
    (header.name.as_ptr() as usize)
        .saturating_sub(head.as_ptr() as usize)
        .min(head.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_however_the_head_arrives() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest\n";
        for step in 1..head.len() {
            let mut scanned = 0;
            let mut found = None;
            for end in (step..=head.len()).step_by(step) {
                if let Scan::Complete(len) = scan_head(&head[..end], &mut scanned) {
                    found = Some(len);
                    break;
                }
            }
            if let Some(len) = found {
                assert_eq!(len, 27, "step {step}");
            } else {
                assert!(head.len() - head.len() % step < 27, "step {step}");
            }
        }
    }

    #[test]
    fn a_bare_line_feed_is_seen_at_once() {
        for head in [
            &b"\n"[..],
            b"GET / HTTP/1.1\n",
            b"GET / HTTP/1.1\r\nA: b\n",
            b"GET / HTTP/1.1\r\n\n",
        ] {
            assert_eq!(scan_head(head, &mut 0), Scan::BareLf);
        }
    }

    #[test]
    fn equal_lengths_are_one_and_others_are_refused() {
        let mut length = ContentLength::default();
        assert!(matches!(length.read(b"5"), Some(LengthField::First)));
        assert!(matches!(length.read(b"05"), Some(LengthField::Repeated)));
        assert_eq!(length.0, Some(5));
        for value in [
            &b"6"[..],
            b"",
            b"+5",
            b"-5",
            b"5,5",
            b"5 5",
            b"0x5",
            b"5.0",
            b"9999999999999999999",
        ] {
            assert!(length.read(value).is_none(), "{}", value.escape_ascii());
        }
    }

    #[test]
    fn framing_fields_cannot_be_named_away() {
        let headers = [Header {
            name: "connection",
            value: b"close, X-Secret,content-length , host",
        }];
        assert!(is_named_by_connection(&headers, "x-secret"));
        assert!(!is_named_by_connection(&headers, "Content-Length"));
        assert!(!is_named_by_connection(&headers, "Host"));
        assert!(!is_named_by_connection(&headers, "other"));
    }
}
