//! Text that must not reach a log.

use std::fmt;

/// A private key, a shared key, or a file that holds one. `Debug` shows its length only; there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself; the caller keeps it out of logs and errors.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn debug_output_does_not_show_the_text() {
        let shown = format!("{:?}", Secret::new("hunter2"));
        assert_eq!(shown, "Secret(7 bytes)");
    }
}
