//! The installation's own certificates.
//!
//! Two authorities, so that no certificate serves two ends:
//!
//! | authority | signs | trusted by |
//! |---|---|---|
//! | `server_ca` | the certificate an amphora's agent serves with (common and DNS name: the amphora's id) | the control plane |
//! | `client_ca` | the control plane's client certificate (common name [`CONTROLLER_NAME`]) | every agent |
//!
//! An amphora's certificate therefore opens no other agent. Each authority is a directory entry of two files,
//! `<name>.pem` and `<name>.key` (mode 0600). The first certificate of the `.pem` signs and belongs to the key;
//! further ones are trusted only, which is how an old and a new authority overlap during a rotation.
//!
//! Promises: chains pass `openssl verify -x509_strict`; unusable files are one clear error at start; private keys of
//! amphorae and of the client certificate are never written by this module.

mod authority;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lb_model::{AmphoraId, Timestamp};
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;

use crate::Secret;
use authority::{Authority, Purpose};

/// Common name of the control plane's client certificate.
pub const CONTROLLER_NAME: &str = "octavia-controller";

/// How long an amphora's and the client certificate are good for (`[certificates] cert_validity_time`).
pub const VALIDITY: Duration = Duration::from_secs(2_592_000);

const SERVER_CA: &str = "server_ca";
const CLIENT_CA: &str = "client_ca";

/// Both authorities, and the client certificate made from one of them.
pub struct CertificateAuthority {
    server: Authority,
    client: Authority,
    /// Made again when half of its life is over.
    client_config: Mutex<Option<Client>>,
}

struct Client {
    config: Arc<ClientConfig>,
    renew_at: OffsetDateTime,
    expires_at: OffsetDateTime,
}

/// What an amphora's agent serves with.
#[derive(Debug, Clone)]
pub struct ServerCertificate {
    /// The certificate followed by its private key, as `server.pem` holds them.
    pub pem: Secret,
    pub expires_at: Timestamp,
}

/// Why certificates cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("{operation} {path}")]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    /// The files do not make an authority.
    #[error("{path} is not usable: {reason}")]
    Unusable { path: PathBuf, reason: String },

    #[error("make a certificate for {subject}")]
    Make {
        subject: String,
        #[source]
        source: rcgen::Error,
    },

    #[error("set up TLS for the client certificate")]
    Tls {
        #[source]
        source: rustls::Error,
    },
}

impl CertificateAuthority {
    /// Reads both authorities from `dir`; makes them when the directory is absent or empty. Half a set of files is
    /// an error, never filled up. Processes that start at once agree on one set.
    pub fn load_or_create(dir: &Path) -> Result<Self, CertificateError> {
        if is_absent_or_empty(dir)? {
            create(dir)?;
        }
        Ok(Self {
            server: Authority::load(dir, SERVER_CA)?,
            client: Authority::load(dir, CLIENT_CA)?,
            client_config: Mutex::new(None),
        })
    }

    /// A new certificate and key for an amphora's agent.
    pub fn issue_server(&self, amphora: AmphoraId) -> Result<ServerCertificate, CertificateError> {
        let issued = self
            .server
            .issue(&amphora.to_string(), Purpose::Server, VALIDITY)?;
        let micros = issued.not_after.unix_timestamp().saturating_mul(1_000_000);
        Ok(ServerCertificate {
            pem: Secret::new(format!(
                "{}{}",
                issued.certificate.pem(),
                issued.key.serialize_pem()
            )),
            expires_at: Timestamp::from_micros(micros),
        })
    }

    /// What agents trust: every certificate of the client authority, as PEM.
    pub fn client_ca_pem(&self) -> &str {
        self.client.trusted_pem()
    }

    /// What the control plane trusts: every certificate of the server authority, as PEM.
    pub fn server_ca_pem(&self) -> &str {
        self.server.trusted_pem()
    }

    /// TLS for connections to agents: presents the client certificate, trusts the server authority, TLS 1.2 and
    /// later. Cheap; ask again for each connection, so that a renewed certificate is used.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, CertificateError> {
        self.with_client(|client| Arc::clone(&client.config))
    }

    /// When the client certificate in use ends. It is renewed long before.
    pub fn client_expires_at(&self) -> Result<Timestamp, CertificateError> {
        self.with_client(|client| {
            Timestamp::from_micros(client.expires_at.unix_timestamp().saturating_mul(1_000_000))
        })
    }

    fn with_client<T>(&self, read: impl FnOnce(&Client) -> T) -> Result<T, CertificateError> {
        let mut slot = self
            .client_config
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = slot
            .as_ref()
            .filter(|client| OffsetDateTime::now_utc() < client.renew_at)
        {
            return Ok(read(client));
        }
        Ok(read(slot.insert(self.make_client()?)))
    }

    fn make_client(&self) -> Result<Client, CertificateError> {
        let issued = self
            .client
            .issue(CONTROLLER_NAME, Purpose::Client, VALIDITY)?;
        let mut roots = RootCertStore::empty();
        for certificate in self.server.trusted() {
            roots
                .add(certificate.clone())
                .map_err(|source| CertificateError::Tls { source })?;
        }
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .and_then(|builder| {
                builder
                    .with_root_certificates(roots)
                    .with_client_auth_cert(vec![issued.certificate.der().clone()], key)
            })
            .map_err(|source| CertificateError::Tls { source })?;
        Ok(Client {
            config: Arc::new(config),
            renew_at: OffsetDateTime::now_utc() + VALIDITY / 2,
            expires_at: issued.not_after,
        })
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .finish_non_exhaustive()
    }
}

fn is_absent_or_empty(dir: &Path) -> Result<bool, CertificateError> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(source) => Err(CertificateError::File {
            operation: "list",
            path: dir.to_owned(),
            source,
        }),
    }
}

/// Makes both authorities in a directory beside `dir` and moves it into place in one step: a crash leaves either
/// nothing or a whole set, and of two processes the first wins.
fn create(dir: &Path) -> Result<(), CertificateError> {
    let file_error = |operation, path: &Path| {
        let path = path.to_owned();
        move |source| CertificateError::File {
            operation,
            path,
            source,
        }
    };
    let mut staging = dir.as_os_str().to_owned();
    staging.push(format!(".new-{}", hex::encode(rand::random::<[u8; 8]>())));
    let staging = PathBuf::from(staging);
    if let Some(parent) = dir.parent() {
        std::fs::create_dir_all(parent).map_err(file_error("create", parent))?;
    }
    authority::create_private_dir(&staging)?;
    let made = Authority::create(&staging, SERVER_CA)
        .and_then(|()| Authority::create(&staging, CLIENT_CA))
        .and_then(|()| match std::fs::rename(&staging, dir) {
            Ok(()) => Ok(()),
            // Another process was first: its set is as good.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            Err(source) => Err(CertificateError::File {
                operation: "create",
                path: dir.to_owned(),
                source,
            }),
        });
    if let Err(error) = std::fs::remove_dir_all(&staging)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %staging.display(), %error, "remove staging directory");
    }
    made
}

#[cfg(test)]
mod tests;
