//! The answers the proxy gives itself.

use std::io::Write;

use crate::buffer::Buffer;
use crate::stats::Refusal;

/// A status with the reason it is given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    BadRequest,
    MethodNotAllowed,
    RequestTimeout,
    UriTooLong,
    ExpectationFailed,
    HeadTooLarge,
    CodingNotImplemented,
    VersionNotSupported,
    BadGateway,
    NoMember,
    ConnectFailed,
    GatewayTimeout,
}

impl Answer {
    pub(crate) fn refusal(self) -> Refusal {
        match self {
            Answer::BadRequest | Answer::ExpectationFailed => Refusal::MalformedRequest,
            Answer::UriTooLong | Answer::HeadTooLarge => Refusal::HeadTooLarge,
            Answer::MethodNotAllowed
            | Answer::CodingNotImplemented
            | Answer::VersionNotSupported => Refusal::NotSupported,
            Answer::RequestTimeout => Refusal::ClientTimeout,
            Answer::BadGateway => Refusal::BadResponse,
            Answer::NoMember => Refusal::NoMember,
            Answer::ConnectFailed => Refusal::ConnectFailed,
            Answer::GatewayTimeout => Refusal::MemberTimeout,
        }
    }

    fn text(self) -> (u16, &'static str, &'static str) {
        match self {
            Answer::BadRequest => (400, "Bad Request", "Your browser sent an invalid request."),
            Answer::MethodNotAllowed => (
                405,
                "Method Not Allowed",
                "This method is not available here.",
            ),
            Answer::RequestTimeout => (
                408,
                "Request Time-out",
                "Your browser didn't send a complete request in time.",
            ),
            Answer::UriTooLong => (414, "URI Too Long", "The request line is too long."),
            Answer::ExpectationFailed => (
                417,
                "Expectation Failed",
                "The expectation of the request cannot be met.",
            ),
            Answer::HeadTooLarge => (
                431,
                "Request Header Fields Too Large",
                "The request header is too large.",
            ),
            Answer::CodingNotImplemented => (
                501,
                "Not Implemented",
                "The transfer coding of the request is not known.",
            ),
            Answer::VersionNotSupported => (
                505,
                "HTTP Version Not Supported",
                "This version of HTTP is not spoken here.",
            ),
            Answer::BadGateway => (
                502,
                "Bad Gateway",
                "The server returned an invalid or incomplete response.",
            ),
            Answer::NoMember | Answer::ConnectFailed => (
                503,
                "Service Unavailable",
                "No server is available to handle this request.",
            ),
            Answer::GatewayTimeout => (
                504,
                "Gateway Time-out",
                "The server didn't respond in time.",
            ),
        }
    }

    /// Writes the whole answer; for a HEAD request without the body.
    pub(crate) fn write(self, out: &mut Buffer, is_head: bool, connection: ConnectionField) {
        let (status, reason, text) = self.text();
        let body = format!("<html><body><h1>{status} {reason}</h1>\n{text}\n</body></html>\n");
        // Writing to a buffer in memory does not fail.
        let _ = write!(
            out,
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/html\r\nCache-Control: no-cache\r\nContent-Length: {}\r\n{}\r\n{}",
            body.len(),
            connection.line(),
            if is_head { "" } else { &body },
        );
    }
}

/// What a response says about its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionField {
    /// The default of the client's version holds.
    Nothing,
    Close,
    /// For HTTP/1.0, where it is not the default.
    KeepAlive,
    Upgrade,
}

impl ConnectionField {
    pub(crate) fn line(self) -> &'static str {
        match self {
            ConnectionField::Nothing => "",
            ConnectionField::Close => "Connection: close\r\n",
            ConnectionField::KeepAlive => "Connection: keep-alive\r\n",
            ConnectionField::Upgrade => "Connection: Upgrade\r\n",
        }
    }
}
