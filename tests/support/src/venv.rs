//! Programs from PyPI, each family in a virtual environment of its own: `cargo xtask setup` makes them under `target/`.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// The virtual environment of this name.
pub fn venv(name: &str) -> Result<PathBuf> {
    std::env::current_exe()?
        .ancestors()
        .map(|folder| folder.join(name))
        .find(|folder| folder.join("bin/python3").exists())
        .with_context(|| {
            format!("target/{name} is not there: `cargo xtask setup` installs what the tests need")
        })
}
