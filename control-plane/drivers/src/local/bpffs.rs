//! The BPF file system of a stack, where agents pin maps and programs so that both outlive them.

use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statfs::{FsType, statfs};

use super::record;
use crate::DriverError;

/// `BPF_FS_MAGIC` of `linux/magic.h`.
const BPF_FS_MAGIC: FsType = FsType(0xcafe_4a11);

/// Mounts one at `dir` unless it is there already.
pub(crate) fn ensure_mounted(dir: &Path) -> Result<(), DriverError> {
    record::ensure_private_dir(dir)?;
    if is_mounted(dir) {
        return Ok(());
    }
    mount(
        Some("bpf"),
        dir,
        Some("bpf"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
        Some("mode=0700"),
    )
    .map_err(DriverError::errno(format!(
        "mount BPF file system at {}",
        dir.display()
    )))
}

/// Drops everything pinned below `dir` and unmounts it, however often it was mounted; absent is fine.
pub(crate) fn remove(dir: &Path) -> Result<(), DriverError> {
    while is_mounted(dir) {
        for entry in std::fs::read_dir(dir)
            .map_err(DriverError::io(format!("list {}", dir.display())))?
            .flatten()
        {
            // Files at the top are the kernel's own (`maps.debug`, `progs.debug`).
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                record::remove_tree(&entry.path())?;
            }
        }
        match umount2(dir, MntFlags::MNT_DETACH) {
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(errno) => {
                return Err(DriverError::errno(format!("unmount {}", dir.display()))(
                    errno,
                ));
            }
        }
    }
    record::remove_tree(dir)
}

fn is_mounted(dir: &Path) -> bool {
    statfs(dir).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC)
}
