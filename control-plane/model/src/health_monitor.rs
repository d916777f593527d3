//! A health monitor: how the members of a pool are checked.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::text_enum;
use crate::{HealthMonitorId, OperatingStatus, ProvisioningStatus, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthMonitor {
    pub id: HealthMonitorId,
    pub project_id: String,
    pub name: String,
    pub admin_state_up: bool,
    pub provisioning_status: ProvisioningStatus,
    pub operating_status: OperatingStatus,
    pub kind: MonitorType,
    /// Seconds between checks.
    pub delay: u32,
    /// Seconds for one check; not compared with `delay`.
    pub timeout: u32,
    /// Successes in a row to go up, 1-10.
    pub max_retries: u8,
    /// Failures in a row to go down, 1-10.
    pub max_retries_down: u8,
    pub http_method: Option<String>,
    pub url_path: Option<String>,
    pub expected_codes: Option<ExpectedCodes>,
    pub http_version: Option<HttpVersion>,
    pub domain_name: Option<String>,
    pub tags: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

text_enum! {
    MonitorType {
        Http = "HTTP",
        Https = "HTTPS",
        Ping = "PING",
        Tcp = "TCP",
        TlsHello = "TLS-HELLO",
        UdpConnect = "UDP-CONNECT",
        Sctp = "SCTP",
    }
}

impl MonitorType {
    /// Speaks HTTP, and so has a method, a path and expected codes.
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

/// A number on the wire: 1.0 or 1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    V1_0,
    V1_1,
}

impl HttpVersion {
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::V1_0 => 1.0,
            Self::V1_1 => 1.1,
        }
    }
}

/// A list of status codes or one inclusive range, never both; the text is kept as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedCodes {
    text: String,
    ranges: Vec<(u16, u16)>,
}

/// Why a text is no [`ExpectedCodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a list of status codes (200,202) or one range (200-204), at most 64 characters")]
pub struct ExpectedCodesError;

impl ExpectedCodes {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Inclusive ranges; a single code is a range of one.
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.ranges
    }
}

impl FromStr for ExpectedCodes {
    type Err = ExpectedCodesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > 64 {
            return Err(ExpectedCodesError);
        }
        let ranges = match text.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (code(first)?, code(last)?);
                if first > last {
                    return Err(ExpectedCodesError);
                }
                vec![(first, last)]
            }
            None => text
                .split(',')
                .map(|part| code(part.trim()).map(|code| (code, code)))
                .collect::<Result<_, _>>()?,
        };
        Ok(Self {
            text: text.to_owned(),
            ranges,
        })
    }
}

impl fmt::Display for ExpectedCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn code(text: &str) -> Result<u16, ExpectedCodesError> {
    if text.len() != 3 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ExpectedCodesError);
    }
    text.parse().map_err(|_| ExpectedCodesError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_codes_are_a_list_or_one_range() {
        type Ranges = &'static [(u16, u16)];
        let cases: [(&str, Option<Ranges>); 11] = [
            ("200", Some(&[(200, 200)])),
            ("200,202", Some(&[(200, 200), (202, 202)])),
            ("200, 202", Some(&[(200, 200), (202, 202)])),
            ("200-204", Some(&[(200, 204)])),
            ("204-200", None),
            ("200-204,300", None),
            ("200,300-304", None),
            ("", None),
            ("20", None),
            ("+20", None),
            ("200,", None),
        ];
        for (text, expected) in cases {
            let parsed = text.parse::<ExpectedCodes>().ok();
            assert_eq!(
                parsed.as_ref().map(ExpectedCodes::ranges),
                expected,
                "{text:?}"
            );
        }
    }
}
