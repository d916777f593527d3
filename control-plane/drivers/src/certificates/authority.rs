//! One certificate authority: its two files, and what it signs.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CustomExtension, DistinguishedName, DnType,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
    SerialNumber,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::CertificateError;

/// How long an authority is good for: ten years.
const CA_VALIDITY: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Clocks of amphorae may be behind ours by so much.
const BACKDATE: Duration = Duration::from_secs(300);

const OID_EXTENDED_KEY_USAGE: &[u64] = &[2, 5, 29, 37];
/// `SEQUENCE { OBJECT IDENTIFIER id-kp-serverAuth }` and the same for `id-kp-clientAuth`.
const SERVER_AUTH: [u8; 12] = [0x30, 0x0a, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTH: [u8; 12] = [0x30, 0x0a, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2];

/// Which end of a connection a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Server,
    Client,
}

pub(super) struct Issued {
    pub(super) certificate: Certificate,
    pub(super) key: KeyPair,
    pub(super) not_after: OffsetDateTime,
}

/// An authority that can sign.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    trusted: Vec<CertificateDer<'static>>,
    trusted_pem: String,
    /// No certificate outlives its authority.
    not_after: OffsetDateTime,
}

impl Authority {
    /// Writes a new authority's two files into `dir`.
    pub(super) fn create(dir: &Path, name: &str) -> Result<(), CertificateError> {
        let make_error = |source| CertificateError::Make {
            subject: name.to_owned(),
            source,
        };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(make_error)?;
        let now = OffsetDateTime::now_utc();
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&format!(
            "octavia {name} {}",
            hex::encode(rand::random::<[u8; 4]>())
        ));
        params.not_before = now - BACKDATE;
        params.not_after = now + CA_VALIDITY;
        params.serial_number = Some(random_serial());
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(make_error)?;
        let (pem_path, key_path) = paths(dir, name);
        write_file(&key_path, &key.serialize_pem(), 0o600)?;
        write_file(&pem_path, &certificate.pem(), 0o644)
    }

    /// Reads an authority and checks that it can sign what others will accept.
    pub(super) fn load(dir: &Path, name: &str) -> Result<Self, CertificateError> {
        let (pem_path, key_path) = paths(dir, name);
        let unusable = |path: &Path, reason: String| CertificateError::Unusable {
            path: path.to_owned(),
            reason,
        };
        let trusted_pem = read_file(&pem_path)?;
        let trusted: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(trusted_pem.as_bytes())
                .collect::<Result<_, _>>()
                .map_err(|error| unusable(&pem_path, format!("not PEM: {error}")))?;
        let signing = trusted
            .first()
            .ok_or_else(|| unusable(&pem_path, "holds no certificate".to_owned()))?;
        for certificate in &trusted {
            check_authority(certificate).map_err(|reason| unusable(&pem_path, reason))?;
        }
        let key = KeyPair::from_pem(&read_file(&key_path)?)
            .map_err(|error| unusable(&key_path, format!("not a private key: {error}")))?;

        let (_, parsed) = X509Certificate::from_der(signing)
            .map_err(|error| unusable(&pem_path, format!("not a certificate: {error}")))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(unusable(
                &key_path,
                format!(
                    "is not the key of the first certificate in {}",
                    pem_path.display()
                ),
            ));
        }
        let not_after = parsed.validity().not_after.to_datetime();
        let issuer = Issuer::from_ca_cert_der(signing, key)
            .map_err(|error| unusable(&pem_path, error.to_string()))?;
        Ok(Self {
            issuer,
            trusted,
            trusted_pem,
            not_after,
        })
    }

    pub(super) fn trusted(&self) -> &[CertificateDer<'static>] {
        &self.trusted
    }

    pub(super) fn trusted_pem(&self) -> &str {
        &self.trusted_pem
    }

    /// A certificate with a key of its own; common and DNS name are `subject`.
    pub(super) fn issue(
        &self,
        subject: &str,
        purpose: Purpose,
        validity: Duration,
    ) -> Result<Issued, CertificateError> {
        let make_error = |source| CertificateError::Make {
            subject: subject.to_owned(),
            source,
        };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(make_error)?;
        let now = OffsetDateTime::now_utc();
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(subject);
        params.subject_alt_names =
            vec![SanType::DnsName(subject.try_into().map_err(|_| {
                make_error(rcgen::Error::CouldNotParseCertificate)
            })?)];
        params.not_before = now - BACKDATE;
        params.not_after = (now + validity).min(self.not_after);
        params.serial_number = Some(random_serial());
        // Says CA=false (critical) and adds the subject key identifier.
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        params.custom_extensions = vec![extended_key_usage(purpose)];
        let certificate = params.signed_by(&key, &self.issuer).map_err(make_error)?;
        Ok(Issued {
            certificate,
            key,
            not_after: params.not_after,
        })
    }
}

/// Whether a certificate may be trusted as an authority, now.
fn check_authority(der: &CertificateDer<'_>) -> Result<(), String> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|error| format!("not a certificate: {error}"))?;
    let subject = certificate.subject();
    if !certificate.is_ca() {
        return Err(format!("{subject} is not a certificate authority"));
    }
    match certificate.key_usage() {
        Ok(Some(usage)) if !usage.value.key_cert_sign() => {
            return Err(format!("{subject} may not sign certificates (key usage)"));
        }
        Ok(_) => {}
        Err(error) => return Err(format!("{subject}: key usage: {error}")),
    }
    let validity = certificate.validity();
    let now = OffsetDateTime::now_utc();
    if validity.not_after.to_datetime() <= now {
        return Err(format!("{subject} expired at {}", validity.not_after));
    }
    if validity.not_before.to_datetime() > now {
        return Err(format!(
            "{subject} is not valid before {}",
            validity.not_before
        ));
    }
    Ok(())
}

/// Makes a directory that only we may enter.
pub(super) fn create_private_dir(path: &Path) -> Result<(), CertificateError> {
    fs::DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(|source| CertificateError::File {
            operation: "create",
            path: path.to_owned(),
            source,
        })
}

fn paths(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    (
        dir.join(format!("{name}.pem")),
        dir.join(format!("{name}.key")),
    )
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// Positive and at most 16 octets (RFC 5280 section 4.1.2.2 allows 20).
fn random_serial() -> SerialNumber {
    let mut octets = rand::random::<[u8; 16]>();
    if let Some(first) = octets.first_mut() {
        *first = (*first & 0x7f) | 0x40;
    }
    SerialNumber::from_slice(&octets)
}

/// Critical, as Octavia has it; rcgen writes its own one as non-critical.
fn extended_key_usage(purpose: Purpose) -> CustomExtension {
    let content = match purpose {
        Purpose::Server => SERVER_AUTH,
        Purpose::Client => CLIENT_AUTH,
    };
    let mut extension = CustomExtension::from_oid_content(OID_EXTENDED_KEY_USAGE, content.to_vec());
    extension.set_criticality(true);
    extension
}

fn read_file(path: &Path) -> Result<String, CertificateError> {
    fs::read_to_string(path).map_err(|source| CertificateError::File {
        operation: "read",
        path: path.to_owned(),
        source,
    })
}

fn write_file(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .map_err(|source| CertificateError::File {
            operation: "write",
            path: path.to_owned(),
            source,
        })
}
