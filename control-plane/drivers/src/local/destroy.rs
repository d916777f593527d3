//! Removing a stack and everything it ever made, whatever state it is in.

use std::io;
use std::path::Path;

use lb_model::AmphoraId;

use super::config::Layout;
use super::lock::FileLock;
use super::netns::Netns;
use super::{bpffs, netns, process, record};
use crate::DriverError;

/// Kills the stack's processes, removes its namespaces (and so all links), pinned objects, mounts and files. What is
/// not there is fine, so it can be repeated, and works on what a crash left. Only names and paths are relied upon, no
/// record is trusted.
pub(crate) fn destroy(name: &str, state_dir: &Path) -> Result<(), DriverError> {
    let layout = Layout::new(name, state_dir)?;
    // First who could make anew what is removed below.
    process::kill_all_recorded(&layout.processes())?;
    let lock = if layout.state_dir.is_dir() {
        Some(FileLock::acquire(&layout.lock())?)
    } else {
        None
    };
    for amphora in recorded_amphorae(&layout)? {
        process::kill_recorded(&layout.amphora(amphora).pid())?;
    }
    let namespaces = Netns::list(&layout.netns_prefix())?;
    for namespace in &namespaces {
        process::kill_all_in(namespace)?;
    }
    for namespace in &namespaces {
        namespace.delete()?;
    }
    netns::release_netns_dir()?;
    bpffs::remove(&layout.bpf())?;
    record::remove_tree(&layout.amphorae())?;
    record::remove_file(&layout.ports())?;
    if let Some(lock) = lock {
        lock.remove()?;
        match std::fs::remove_dir(&layout.state_dir) {
            // Others keep files there too.
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty
                        | io::ErrorKind::NotFound
                        | io::ErrorKind::ResourceBusy
                ) =>
            {
                return Err(DriverError::io(format!(
                    "remove {}",
                    layout.state_dir.display()
                ))(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Amphorae that have a directory.
pub(crate) fn recorded_amphorae(layout: &Layout) -> Result<Vec<AmphoraId>, DriverError> {
    let dir = layout.amphorae();
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(DriverError::io(format!("list {}", dir.display()))(error)),
    };
    let mut found: Vec<AmphoraId> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    found.sort();
    Ok(found)
}
