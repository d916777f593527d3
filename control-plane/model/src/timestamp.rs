//! Points in time as the API shows them.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use time::macros::format_description;

/// Microseconds since the epoch, UTC. Shown as `YYYY-MM-DDTHH:MM:SS`, without a zone: clients that parse it
/// accept no other form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Microseconds since 1970-01-01T00:00:00Z.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Later by so many milliseconds; saturates.
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis.saturating_mul(1000)))
    }

    /// Milliseconds from `earlier` to this; negative when this one is the earlier.
    pub const fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0) / 1000
    }
}

/// Reads the time. Made once, where a program is wired up, and handed to all that need it; tests hand in one they turn.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]");
        let text = OffsetDateTime::from_unix_timestamp(self.0.div_euclid(1_000_000))
            .ok()
            .and_then(|moment| moment.format(format).ok())
            .ok_or(fmt::Error)?;
        f.write_str(&text)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_shows_whole_seconds_and_no_zone() {
        let moment = Timestamp::from_micros(1_769_784_558_123_456);
        assert_eq!(moment.to_string(), "2026-01-30T14:49:18");
    }
}
