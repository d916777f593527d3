//! The last document, on disk.
//!
//! One file in the state directory, replaced as a whole: written beside it, synced, renamed, directory synced. A
//! write that fails (a full disk) leaves the old file as it was. The document holds no private keys; the file is for
//! root's eyes all the same (mode 0600).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use amphora_api::AmphoraConfig;

#[derive(Debug)]
pub struct Ledger {
    directory: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("write ledger {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("read ledger {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Not a document, or one that breaks its own rules.
    #[error("understand ledger {path}: {reason}")]
    Corrupt { path: PathBuf, reason: String },
}

/// How a document stands to the one in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    New,
    Same,
    /// The one in force is newer.
    Older,
    /// Same generation, other content.
    Conflict,
}

pub fn admit(in_force: Option<&AmphoraConfig>, document: &AmphoraConfig) -> Admission {
    match in_force {
        None => Admission::New,
        Some(old) if document.generation > old.generation => Admission::New,
        Some(old) if document.generation < old.generation => Admission::Older,
        Some(old) if old == document => Admission::Same,
        Some(_) => Admission::Conflict,
    }
}

impl Ledger {
    /// Makes the directory when it is not there.
    pub fn open(directory: &Path) -> Result<Self, LedgerError> {
        fs::create_dir_all(directory).map_err(|source| LedgerError::Write {
            path: directory.to_owned(),
            source,
        })?;
        Ok(Ledger {
            directory: directory.to_owned(),
        })
    }

    pub fn path(&self) -> PathBuf {
        self.directory.join("config.json")
    }

    pub fn load(&self) -> Result<Option<AmphoraConfig>, LedgerError> {
        let path = self.path();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(LedgerError::Read { path, source }),
        };
        let document: AmphoraConfig =
            serde_json::from_slice(&bytes).map_err(|error| LedgerError::Corrupt {
                path: path.clone(),
                reason: error.to_string(),
            })?;
        document.validate().map_err(|error| LedgerError::Corrupt {
            path,
            reason: error.to_string(),
        })?;
        Ok(Some(document))
    }

    pub fn store(&self, document: &AmphoraConfig) -> Result<(), LedgerError> {
        let path = self.path();
        let bytes = serde_json::to_vec(document).map_err(|error| LedgerError::Write {
            path: path.clone(),
            source: io::Error::other(error),
        })?;
        replace_file(&path, &bytes, Sync::Yes).map_err(|source| LedgerError::Write { path, source })
    }
}

/// Whether a file must outlive a loss of power, or only of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    Yes,
    No,
}

/// Replaces a file as a whole, or leaves it as it was.
pub(crate) fn replace_file(path: &Path, bytes: &[u8], sync: Sync) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let written = write_beside(&beside, bytes, sync).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // Best effort: what is left is overwritten by the next attempt.
        let _ = fs::remove_file(&beside);
        return written;
    }
    if sync == Sync::Yes
        && let Some(directory) = path.parent()
    {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

fn write_beside(path: &Path, bytes: &[u8], sync: Sync) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    match sync {
        Sync::Yes => file.sync_all(),
        Sync::No => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::samples;

    #[test]
    fn every_pair_of_generations_and_contents_has_its_answer() {
        let base = samples::document(7);
        let mut other = base.clone();
        other.project_id = "another".into();
        let cases = [
            (None, samples::document(1), Admission::New),
            (Some(&base), samples::document(8), Admission::New),
            (Some(&base), samples::document(7), Admission::Same),
            (Some(&base), samples::document(6), Admission::Older),
            (Some(&base), samples::document(0), Admission::Older),
            (Some(&base), other, Admission::Conflict),
        ];
        for (in_force, document, wanted) in cases {
            assert_eq!(
                admit(in_force, &document),
                wanted,
                "{}",
                document.generation
            );
        }
    }

    #[test]
    fn a_stored_document_is_loaded_again_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(&directory.path().join("deep/er")).unwrap();
        assert_eq!(ledger.load().unwrap(), None);
        ledger.store(&samples::document(3)).unwrap();
        ledger.store(&samples::document(4)).unwrap();
        assert_eq!(ledger.load().unwrap(), Some(samples::document(4)));
        let mode = fs::metadata(ledger.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_full_disk_leaves_the_old_document() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        ledger.store(&samples::document(3)).unwrap();
        // Every write to this device answers ENOSPC.
        std::os::unix::fs::symlink("/dev/full", directory.path().join("config.json.new")).unwrap();
        let error = ledger.store(&samples::document(4)).unwrap_err();
        let LedgerError::Write { source, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        assert_eq!(ledger.load().unwrap(), Some(samples::document(3)));
        ledger.store(&samples::document(5)).unwrap();
        assert_eq!(ledger.load().unwrap(), Some(samples::document(5)));
    }

    #[test]
    fn a_corrupt_ledger_is_an_error_and_not_an_empty_one() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        for content in ["", "{", "{\"generation\": 3}", "null"] {
            fs::write(ledger.path(), content).unwrap();
            assert!(
                matches!(ledger.load(), Err(LedgerError::Corrupt { .. })),
                "{content}"
            );
        }
    }
}
