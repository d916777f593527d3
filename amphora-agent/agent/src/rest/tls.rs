//! Who may speak to the agent: holders of a client certificate of our CA that are not amphorae themselves.
//!
//! On top of rustls' chain check, a client certificate must name client authentication among its extended key usages,
//! and must not carry an amphora's name: every amphora holds a certificate of the same CA, with its id (a UUID) as
//! common name and DNS name, and one taken from a broken-into amphora must not open the others.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use uuid::Uuid;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::config::TlsVersion;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("read {what} {path}")]
    Pem {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    #[error("find a certificate in {path}")]
    Empty { path: PathBuf },
    #[error("use certificate authority {path}")]
    Authority {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("use server certificate {path}")]
    Certificate {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
}

/// The TLS side of the REST interface, from the files of the configuration.
pub fn server_config(
    server_cert: &Path,
    client_ca: &Path,
    min_tls: TlsVersion,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    for authority in certificates("certificate authority", client_ca)? {
        roots.add(authority).map_err(|source| TlsError::Authority {
            path: client_ca.to_owned(),
            source: source.into(),
        })?;
    }
    let chain_check =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|source| TlsError::Authority {
                path: client_ca.to_owned(),
                source: source.into(),
            })?;
    let chain = certificates("server certificate", server_cert)?;
    let key = PrivateKeyDer::from_pem_file(server_cert).map_err(|source| TlsError::Pem {
        what: "private key in",
        path: server_cert.to_owned(),
        source,
    })?;
    let versions: &[_] = match min_tls {
        TlsVersion::V1_2 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        TlsVersion::V1_3 => &[&rustls::version::TLS13],
    };
    let refuse = |source| TlsError::Certificate {
        path: server_cert.to_owned(),
        source,
    };
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(refuse)?
        .with_client_cert_verifier(Arc::new(ControlPlaneOnly { chain_check }))
        .with_single_cert(chain, key)
        .map_err(refuse)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |source| TlsError::Pem {
        what,
        path: path.to_owned(),
        source,
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(pem)?
        .collect::<Result<_, _>>()
        .map_err(pem)?;
    if certificates.is_empty() {
        return Err(TlsError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(certificates)
}

#[derive(Debug)]
struct ControlPlaneOnly {
    chain_check: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for ControlPlaneOnly {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain_check.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self
            .chain_check
            .verify_client_cert(end_entity, intermediates, now)?;
        check_control_plane(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain_check.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain_check.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain_check.supported_verify_schemes()
    }
}

fn check_control_plane(certificate: &CertificateDer<'_>) -> Result<(), CertificateError> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let client_auth = certificate
        .extended_key_usage()
        .map_err(|_| CertificateError::BadEncoding)?
        .is_some_and(|usage| usage.value.client_auth);
    if !client_auth {
        return Err(CertificateError::InvalidPurpose);
    }
    let alternative = certificate
        .subject_alternative_name()
        .map_err(|_| CertificateError::BadEncoding)?;
    let alternative = alternative
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        });
    let common = certificate
        .subject()
        .iter_common_name()
        .filter_map(|name| name.as_str().ok());
    if common
        .chain(alternative)
        .any(|name| Uuid::parse_str(name).is_ok())
    {
        return Err(CertificateError::ApplicationVerificationFailure);
    }
    Ok(())
}
