//! Secrets in files; the shared key of the heartbeats is made when it is not there.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use lb_drivers::Secret;

/// The key in the file; a new random one when there is no file. The file appears with the key in it, whoever is killed
/// or comes first.
pub(crate) fn read_or_create(path: &Path) -> Result<Secret> {
    if path.exists() {
        return read(path);
    }
    let operation = || format!("create heartbeat key {}", path.display());
    let fresh = hex::encode(rand::random::<[u8; 32]>());
    let staging = path.with_extension(format!("{}.new", std::process::id()));
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&staging)
        .and_then(|mut file| {
            file.write_all(fresh.as_bytes())?;
            file.sync_all()
        })
        .with_context(operation)?;
    let linked = std::fs::hard_link(&staging, path);
    std::fs::remove_file(&staging).with_context(operation)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(operation)
        }
        _ => read(path),
    }
}

/// The key in the file.
pub(crate) fn read(path: &Path) -> Result<Secret> {
    read_secret("heartbeat key", path)
}

/// A secret in a file, without the white space around it.
pub(crate) fn read_secret(what: &str, path: &Path) -> Result<Secret> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("read {what} {}", path.display()))?;
    let key = text.trim();
    if key.is_empty() {
        bail!("{what} {} is empty", path.display());
    }
    Ok(Secret::new(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_read_after_that() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let first = read_or_create(&path).unwrap();
        let second = read_or_create(&path).unwrap();
        assert_eq!(first.expose(), second.expose());
        assert_eq!(first.expose().len(), 64);
    }

    #[test]
    fn an_empty_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "\n").unwrap();
        assert!(read_or_create(&path).is_err());
    }
}
