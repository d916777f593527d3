//! What is to be checked, and how.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use uuid::Uuid;

/// One member of one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetKey {
    pub pool: Uuid,
    pub member: Uuid,
}

/// A member with the parameters of its pool's health monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub key: TargetKey,
    /// Monitor address and port if the member has them, else its own. PING ignores the port.
    pub address: SocketAddr,
    pub check: Check,
    /// From the start of one check to the start of the next.
    pub delay: Duration,
    /// For the exchange after the connect, and at most this for the connect too.
    pub timeout: Duration,
    /// `max_retries`: successes in a row that bring a member up. 0 counts as 1.
    pub rise: u32,
    /// `max_retries_down`: failures in a row that take a member down. 0 counts as 1.
    pub fall: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// A completed connect.
    Tcp,
    /// A datagram; an ICMP error is a failure, silence a success.
    UdpConnect,
    /// An ICMP echo and its reply.
    Ping,
    /// A request and a status that is expected. Redirects are not followed.
    Http {
        method: String,
        path: String,
        version: HttpVersion,
        /// Sent as `Host` with HTTP/1.1 only.
        host: Option<String>,
        expected: ExpectedCodes,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpVersion {
    #[default]
    Http10,
    Http11,
}

/// The statuses that count as healthy: a list, or one inclusive range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedCodes {
    List(Vec<u16>),
    Range { first: u16, last: u16 },
}

impl ExpectedCodes {
    pub fn contains(&self, code: u16) -> bool {
        match self {
            ExpectedCodes::List(codes) => codes.contains(&code),
            ExpectedCodes::Range { first, last } => (*first..=*last).contains(&code),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read expected codes {text:?}: want NNN, NNN,NNN,… or NNN-NNN")]
pub struct ParseExpectedCodesError {
    text: String,
}

impl FromStr for ExpectedCodes {
    type Err = ParseExpectedCodesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseExpectedCodesError {
            text: text.chars().take(64).collect(),
        };
        let code = |part: &str| {
            let part = part.trim();
            (part.len() == 3 && part.bytes().all(|b| b.is_ascii_digit()))
                .then(|| part.parse::<u16>().ok())
                .flatten()
                .ok_or_else(wrong)
        };
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (code(first)?, code(last)?);
            if first > last {
                return Err(wrong());
            }
            return Ok(ExpectedCodes::Range { first, last });
        }
        text.split(',')
            .map(code)
            .collect::<Result<_, _>>()
            .map(ExpectedCodes::List)
    }
}

impl fmt::Display for ExpectedCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpectedCodes::List(codes) => {
                for (index, code) in codes.iter().enumerate() {
                    if index > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{code:03}")?;
                }
                Ok(())
            }
            ExpectedCodes::Range { first, last } => write!(f, "{first:03}-{last:03}"),
        }
    }
}

/// Whether a member may take traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Up,
    Down,
}

/// A member's state and how far it is on the way to the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status {
    pub state: State,
    /// Results in a row that contradict `state`.
    pub against: u32,
    /// How many of them change it.
    pub needed: u32,
    /// Whether any check has ended yet. Before that the state is an assumption.
    pub checked: bool,
}

/// As HAProxy writes it: `UP`, `UP 2/3` (one failure of three), `DOWN`, `DOWN 1/2`.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.state, self.against) {
            (State::Up, 0) => f.write_str("UP"),
            (State::Up, n) => write!(f, "UP {}/{}", self.needed.saturating_sub(n), self.needed),
            (State::Down, 0) => f.write_str("DOWN"),
            (State::Down, n) => write!(f, "DOWN {n}/{}", self.needed),
        }
    }
}
