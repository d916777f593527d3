//! Locks between processes and tasks, by `flock`: a killed holder gives them up.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::DriverError;

/// Held until dropped. Two locks of one process on the same file exclude each other as those of two processes do.
#[derive(Debug)]
pub(crate) struct FileLock {
    _file: Flock<File>,
    path: PathBuf,
}

impl FileLock {
    /// Waits for the lock. Blocks the thread.
    pub(crate) fn acquire(path: &Path) -> Result<Self, DriverError> {
        let operation = || format!("lock {}", path.display());
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(path)
                .map_err(DriverError::io(operation()))?;
            let file = match Flock::lock(file, FlockArg::LockExclusive) {
                Ok(locked) => locked,
                Err((_, nix::errno::Errno::EINTR)) => continue,
                Err((_, errno)) => return Err(DriverError::errno(operation())(errno)),
            };
            // While we waited the holder may have removed the file: then the lock is on nothing.
            let held = file.metadata().map_err(DriverError::io(operation()))?;
            match fs::metadata(path) {
                Ok(found) if (found.dev(), found.ino()) == (held.dev(), held.ino()) => {
                    return Ok(Self {
                        _file: file,
                        path: path.to_owned(),
                    });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(DriverError::io(operation())(error)),
            }
        }
    }

    /// Gives the lock up and removes its file, for an object that is gone.
    pub(crate) fn remove(self) -> Result<(), DriverError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DriverError::io(format!(
                "remove {}",
                self.path.display()
            ))(error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn holders_exclude_each_other_although_the_file_is_removed_between() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for round in 0..50 {
                        let lock = FileLock::acquire(&path).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        if round % 3 == 0 {
                            lock.remove().unwrap();
                        }
                    }
                });
            }
        });
    }
}
