//! End-to-end tests of the whole product; see `tests/` beside this crate's manifest.
