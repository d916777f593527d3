//! Named network namespaces, as `ip netns` shows them: bind mounts below `/run/netns`.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{FsType, statfs};

use crate::DriverError;

const NETNS_DIR: &str = "/run/netns";
/// `NSFS_MAGIC` of `linux/magic.h`; the libc crate lacks it.
const NSFS_MAGIC: FsType = FsType(0x6e73_6673);

/// A network namespace by its name. The value is only the name: it may or may not exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// A name of letters, digits and hyphens.
    pub fn named(name: impl Into<String>) -> Result<Self, DriverError> {
        let name = name.into();
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if name.is_empty() || name.len() > 200 || !plain {
            return Err(DriverError::Invalid {
                what: format!("network namespace name {name:?}"),
                reason: "must be letters, digits and hyphens".to_owned(),
            });
        }
        Ok(Self { name })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path(&self) -> PathBuf {
        Path::new(NETNS_DIR).join(&self.name)
    }

    /// Whether the namespace is there. A leftover plain file of that name is none.
    pub fn exists(&self) -> bool {
        statfs(&self.path()).is_ok_and(|found| found.filesystem_type() == NSFS_MAGIC)
    }

    /// Makes the namespace exist; says whether it is new. The caller sees to it that nobody else makes or deletes
    /// it meanwhile.
    pub(crate) fn ensure(&self) -> Result<bool, DriverError> {
        if self.exists() {
            return Ok(false);
        }
        ensure_netns_dir()?;
        let path = self.path();
        let operation = format!("create network namespace {}", self.name);
        fs::File::create(&path).map_err(DriverError::io(operation.clone()))?;
        // The thread, not the process, enters the new namespace, and ends right after.
        let made: Result<(), Errno> = on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            mount(
                Some("/proc/thread-self/ns/net"),
                &path,
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            )
        });
        made.map_err(DriverError::errno(operation))?;
        Ok(true)
    }

    /// Removes the namespace; absent is fine. It goes away for good when no process is in it any more.
    pub(crate) fn delete(&self) -> Result<(), DriverError> {
        let path = self.path();
        let operation = || format!("delete network namespace {}", self.name);
        while self.exists() {
            match umount2(&path, MntFlags::MNT_DETACH) {
                Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
                Err(errno) => return Err(DriverError::errno(operation())(errno)),
            }
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DriverError::io(operation())(error))
            }
            _ => Ok(()),
        }
    }

    /// Runs `work` inside the namespace, on a thread of its own that ends with it. Sockets it makes stay in the
    /// namespace. Blocks the caller.
    pub fn run_in<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, DriverError> {
        let operation = || format!("enter network namespace {}", self.name);
        let handle = self.open()?;
        on_own_thread(move || {
            setns(&handle, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })
        .map_err(|errno: Errno| DriverError::errno(operation())(errno))
    }

    /// A UDP socket that lives in the namespace, ready to be handed to a runtime.
    pub fn bind_udp(&self, address: SocketAddr) -> Result<std::net::UdpSocket, DriverError> {
        self.run_in(|| {
            let socket = std::net::UdpSocket::bind(address)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        })?
        .map_err(DriverError::io(format!(
            "bind UDP socket {address} in network namespace {}",
            self.name
        )))
    }

    /// The namespace itself, for requests that name it by descriptor.
    pub(crate) fn open(&self) -> Result<fs::File, DriverError> {
        if !self.exists() {
            return Err(DriverError::io(format!(
                "enter network namespace {}",
                self.name
            ))(io::ErrorKind::NotFound.into()));
        }
        fs::File::open(self.path()).map_err(DriverError::io(format!(
            "open network namespace {}",
            self.name
        )))
    }

    /// Device and inode that tell this namespace from every other; `None` when it is not there.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        if !self.exists() {
            return None;
        }
        let found = fs::metadata(self.path()).ok()?;
        Some((found.dev(), found.ino()))
    }

    /// Every namespace whose name starts so.
    pub(crate) fn list(prefix: &str) -> Result<Vec<Self>, DriverError> {
        let entries = match fs::read_dir(NETNS_DIR) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(DriverError::io("list network namespaces")(error)),
        };
        Ok(entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with(prefix))
            .map(|name| Self { name })
            .collect())
    }
}

/// Runs something that changes what a thread is, where nothing else will ever run again.
fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// The directory as iproute2 makes it: a shared mount, so that names appear in every mount namespace.
fn ensure_netns_dir() -> Result<(), DriverError> {
    let operation = || format!("prepare {NETNS_DIR}");
    fs::create_dir_all(NETNS_DIR).map_err(DriverError::io(operation()))?;
    let share = || {
        mount(
            Some(""),
            NETNS_DIR,
            Some("none"),
            MsFlags::MS_SHARED | MsFlags::MS_REC,
            None::<&str>,
        )
    };
    loop {
        match share() {
            Ok(()) => return Ok(()),
            // It is no mount point: not yet, or another stack that ended took it away just now.
            Err(Errno::EINVAL) => mount(
                Some(NETNS_DIR),
                NETNS_DIR,
                Some("none"),
                MsFlags::MS_BIND | MsFlags::MS_REC,
                None::<&str>,
            )
            .map_err(DriverError::errno(operation()))?,
            Err(errno) => return Err(DriverError::errno(operation())(errno)),
        }
    }
}

/// Takes back the mount of [`ensure_netns_dir`] when no namespace is left. Others' namespaces below it keep it: the
/// kernel refuses as long as it is in use.
pub(super) fn release_netns_dir() -> Result<(), DriverError> {
    let empty = match fs::read_dir(NETNS_DIR) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(DriverError::io(format!("list {NETNS_DIR}"))(error)),
    };
    if !empty {
        return Ok(());
    }
    match umount2(NETNS_DIR, MntFlags::empty()) {
        // In use after all, or no mount point.
        Ok(()) | Err(Errno::EBUSY | Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(errno) => Err(DriverError::errno(format!("unmount {NETNS_DIR}"))(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in ["", "..", "a/b", "a b", "a\0"] {
            assert!(Netns::named(name).is_err(), "{name:?}");
        }
        assert!(Netns::named("demo-amp-01234567-t").is_ok());
    }
}
