//! Network namespaces by name, as iproute2 keeps them: bind mounts under `/run/netns`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{NSFS_MAGIC, statfs};

const DIRECTORY: &str = "/run/netns";
const OF_THIS_THREAD: &str = "/proc/thread-self/ns/net";

/// A network namespace that exists as long as this (or its name) does.
#[derive(Debug, Clone)]
pub struct Namespace {
    name: String,
    file: Arc<File>,
}

#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    #[error("open network namespace {name}")]
    Open {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("create network namespace {name}")]
    Create {
        name: String,
        #[source]
        source: io::Error,
    },
}

impl Namespace {
    /// The one the calling thread is in.
    pub fn current() -> Result<Self, NamespaceError> {
        let name = "of the agent".to_owned();
        match File::open(OF_THIS_THREAD) {
            Ok(file) => Ok(Namespace {
                name,
                file: Arc::new(file),
            }),
            Err(source) => Err(NamespaceError::Open { name, source }),
        }
    }

    /// The named one, made when it is not there.
    pub fn ensure(name: &str) -> Result<Self, NamespaceError> {
        let path = Path::new(DIRECTORY).join(name);
        if !is_namespace(&path) {
            create(&path).map_err(|source| NamespaceError::Create {
                name: name.to_owned(),
                source,
            })?;
        }
        let file = File::open(&path).map_err(|source| NamespaceError::Open {
            name: name.to_owned(),
            source,
        })?;
        Ok(Namespace {
            name: name.to_owned(),
            file: Arc::new(file),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Moves the calling thread, and no other, into the namespace.
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET)?)
    }
}

fn is_namespace(path: &Path) -> bool {
    statfs(path).is_ok_and(|stat| stat.filesystem_type() == NSFS_MAGIC)
}

fn create(path: &Path) -> io::Result<()> {
    let directory = Path::new(DIRECTORY);
    fs::create_dir_all(directory)?;
    share(directory)?;
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    let path: PathBuf = path.to_owned();
    // A thread of its own: it ends up in the new namespace.
    std::thread::spawn(move || -> io::Result<()> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        mount(
            Some(OF_THIS_THREAD),
            &path,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )?;
        Ok(())
    })
    .join()
    .unwrap_or_else(|_| Err(io::Error::other("the creating thread panicked")))
}

/// Makes the directory a mount that passes its mounts on, so that every mount namespace sees the names.
fn share(directory: &Path) -> io::Result<()> {
    let shared = || {
        mount(
            None::<&str>,
            directory,
            None::<&str>,
            MsFlags::MS_SHARED | MsFlags::MS_REC,
            None::<&str>,
        )
    };
    if shared().is_ok() {
        return Ok(());
    }
    // It is no mount point yet.
    mount(
        Some(directory),
        directory,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )?;
    Ok(shared()?)
}
