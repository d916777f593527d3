//! Ciphers, versions and ALPN names, for listeners and pools alike.

use crate::{Fault, Rules};

/// Oldest first.
const VERSIONS: &[&str] = &["SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];

pub(super) fn check_tls_options(
    ciphers: Option<&str>,
    versions: Option<&[String]>,
    alpn: Option<&[String]>,
    rules: &Rules,
) -> Result<(), Fault> {
    if let Some(ciphers) = ciphers {
        check_ciphers(ciphers, rules)?;
    }
    if let Some(versions) = versions {
        check_versions(versions, rules)?;
    }
    if alpn.is_some_and(<[String]>::is_empty) {
        return Err(Fault::validation("Empty ALPN protocol list"));
    }
    Ok(())
}

fn check_ciphers(ciphers: &str, rules: &Rules) -> Result<(), Fault> {
    let clean = ciphers
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-+!:@=_.".contains(&byte));
    if !clean || ciphers.is_empty() {
        return Err(Fault::validation(
            "tls_ciphers has characters that are not allowed in an OpenSSL cipher list",
        ));
    }
    let refused: Vec<&str> = ciphers
        .split(':')
        .filter(|cipher| rules.prohibited_ciphers.iter().any(|item| item == cipher))
        .collect();
    if refused.is_empty() {
        Ok(())
    } else {
        Err(Fault::validation(format!(
            "The following ciphers have been prohibited by an administrator: {}",
            refused.join(", ")
        )))
    }
}

fn check_versions(versions: &[String], rules: &Rules) -> Result<(), Fault> {
    if versions.is_empty() {
        return Err(Fault::validation("Empty TLS version list"));
    }
    let rank = |name: &str| VERSIONS.iter().position(|version| *version == name);
    let minimum = rules.minimum_tls_version.as_deref().and_then(rank);
    for version in versions {
        let Some(position) = rank(version) else {
            return Err(Fault::validation(format!(
                "Invalid TLS versions: {version}"
            )));
        };
        if minimum.is_some_and(|minimum| position < minimum) {
            return Err(Fault::validation(format!(
                "Requested TLS versions are less than the minimum: {version}"
            )));
        }
    }
    Ok(())
}
