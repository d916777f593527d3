//! What looking at an outside object taught us.

/// "Unknown" is a value: a half-made or unreadable object is neither there nor absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed<T> {
    /// Surely not there, and nothing of it.
    Absent,
    /// Something is there, or may be; ensure or delete it again.
    Unsure,
    Present(T),
}

impl<T> Observed<T> {
    /// The object, when it is surely there.
    pub fn present(self) -> Option<T> {
        match self {
            Observed::Present(object) => Some(object),
            Observed::Absent | Observed::Unsure => None,
        }
    }
}
