//! Records as JSON files, replaced in one step.
//!
//! They describe kernel objects, which do not outlive the machine, so they are written without waiting for the disk:
//! a killed process loses nothing of them.

use std::fs;
use std::io;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::DriverError;

/// `None` when the file is not there; unreadable content is an error.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, DriverError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DriverError::io(format!("read {}", path.display()))(error)),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| DriverError::Invalid {
            what: path.display().to_string(),
            reason: error.to_string(),
        })
}

/// Replaces the record.
pub(crate) fn write<T: Serialize>(path: &Path, record: &T) -> Result<(), DriverError> {
    let text = serde_json::to_vec_pretty(record).map_err(|error| DriverError::Invalid {
        what: path.display().to_string(),
        reason: error.to_string(),
    })?;
    replace_file(path, &text)
}

/// Replaces a file's content in one step; only we may read it.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> Result<(), DriverError> {
    let mut staging = path.as_os_str().to_owned();
    staging.push(".new");
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&staging)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&staging, path));
    written.map_err(DriverError::io(format!("write {}", path.display())))
}

/// Makes a directory and those above it; only we may enter the new ones.
pub(crate) fn ensure_private_dir(path: &Path) -> Result<(), DriverError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(DriverError::io(format!("create {}", path.display())))
}

/// Removes a file; absent is fine.
pub(crate) fn remove_file(path: &Path) -> Result<(), DriverError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DriverError::io(format!("remove {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Removes a directory with all that is in it; absent is fine.
pub(crate) fn remove_tree(path: &Path) -> Result<(), DriverError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DriverError::io(format!("remove {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}
