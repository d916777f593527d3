//! Addresses as clients write them.

use std::fmt;
use std::net::{AddrParseError, IpAddr};
use std::str::FromStr;

/// An address in the spelling it was given (`2001:db8:0:0:0:0:0:1`): clients compare what they read with what they
/// sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpelledIp {
    ip: IpAddr,
    text: String,
}

impl SpelledIp {
    /// The address itself, which has one value however it is spelled.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }
}

impl FromStr for SpelledIp {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self {
            ip: text.parse()?,
            text: text.to_owned(),
        })
    }
}

impl From<IpAddr> for SpelledIp {
    fn from(ip: IpAddr) -> Self {
        Self {
            ip,
            text: ip.to_string(),
        }
    }
}

impl fmt::Display for SpelledIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_spelling() {
        let long: SpelledIp = "2001:db8:0:0:0:0:0:1".parse().unwrap();
        let short: SpelledIp = "2001:db8::1".parse().unwrap();
        assert_eq!(long.to_string(), "2001:db8:0:0:0:0:0:1");
        assert_eq!(long.ip(), short.ip());
    }
}
