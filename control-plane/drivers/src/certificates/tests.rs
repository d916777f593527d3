use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::*;

fn openssl(args: &[&str]) -> (bool, String) {
    let output = Command::new("openssl")
        .args(args)
        .output()
        .expect("run openssl: the openssl program must be installed for this test");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.success(), text)
}

fn text_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_server_certificate_passes_strict_verification_by_openssl() {
    let dir = tempfile::tempdir().unwrap();
    let ca = CertificateAuthority::load_or_create(&dir.path().join("ca")).unwrap();
    let amphora = AmphoraId::random();
    let server = ca.issue_server(amphora).unwrap();
    let leaf = dir.path().join("server.pem");
    std::fs::write(&leaf, server.pem.expose()).unwrap();
    let authority = dir.path().join("ca/server_ca.pem");
    let (good, text) = openssl(&[
        "verify",
        "-x509_strict",
        "-purpose",
        "sslserver",
        "-verify_hostname",
        &amphora.to_string(),
        "-CAfile",
        text_of(&authority),
        text_of(&leaf),
    ]);
    assert!(good, "{text}");
    let (good, text) = openssl(&["pkey", "-in", text_of(&leaf), "-noout", "-check"]);
    assert!(good, "{text}");
    let (_, text) = openssl(&["x509", "-in", text_of(&leaf), "-noout", "-text"]);
    for wanted in [
        "X509v3 Basic Constraints: critical",
        "CA:FALSE",
        "X509v3 Key Usage: critical",
        "X509v3 Extended Key Usage: critical",
        "X509v3 Subject Key Identifier",
        "X509v3 Authority Key Identifier",
        &format!("DNS:{amphora}"),
    ] {
        assert!(text.contains(wanted), "{wanted} is missing in {text}");
    }
}

#[test]
fn an_amphora_certificate_is_no_client_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let ca = CertificateAuthority::load_or_create(&dir.path().join("ca")).unwrap();
    let server = ca.issue_server(AmphoraId::random()).unwrap();
    let leaf = dir.path().join("server.pem");
    std::fs::write(&leaf, server.pem.expose()).unwrap();
    let client_ca = dir.path().join("ca/client_ca.pem");
    let (good, text) = openssl(&[
        "verify",
        "-purpose",
        "sslclient",
        "-CAfile",
        text_of(&client_ca),
        text_of(&leaf),
    ]);
    assert!(
        !good,
        "the client authority accepts an amphora's certificate: {text}"
    );
}

#[test]
fn authorities_survive_a_restart_and_their_keys_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca");
    let first = CertificateAuthority::load_or_create(&path).unwrap();
    let second = CertificateAuthority::load_or_create(&path).unwrap();
    assert_eq!(first.server_ca_pem(), second.server_ca_pem());
    assert_eq!(first.client_ca_pem(), second.client_ca_pem());
    assert_ne!(first.server_ca_pem(), first.client_ca_pem());
    for name in ["server_ca.key", "client_ca.key"] {
        let mode = std::fs::metadata(path.join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn processes_that_start_at_once_agree_on_one_set() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca");
    let made: Vec<String> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    CertificateAuthority::load_or_create(&path)
                        .unwrap()
                        .server_ca_pem()
                        .to_owned()
                })
            })
            .collect();
        started
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(made.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_foreign_key_a_missing_file_and_garbage_are_each_one_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let (mine, other) = (dir.path().join("mine"), dir.path().join("other"));
    CertificateAuthority::load_or_create(&mine).unwrap();
    CertificateAuthority::load_or_create(&other).unwrap();

    std::fs::copy(other.join("server_ca.key"), mine.join("server_ca.key")).unwrap();
    let error = CertificateAuthority::load_or_create(&mine).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("is not the key of the first certificate"),
        "{error}"
    );

    std::fs::write(mine.join("server_ca.key"), "garbage").unwrap();
    let error = CertificateAuthority::load_or_create(&mine).unwrap_err();
    assert!(error.to_string().contains("not a private key"), "{error}");

    std::fs::remove_file(mine.join("server_ca.key")).unwrap();
    let error = CertificateAuthority::load_or_create(&mine).unwrap_err();
    assert!(
        error.to_string().contains("server_ca.key"),
        "a missing key is named: {error}"
    );

    std::fs::write(other.join("client_ca.pem"), "").unwrap();
    let error = CertificateAuthority::load_or_create(&other).unwrap_err();
    assert!(
        error.to_string().contains("holds no certificate"),
        "{error}"
    );
}

#[test]
fn a_leaf_certificate_is_not_taken_for_an_authority() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca");
    let ca = CertificateAuthority::load_or_create(&path).unwrap();
    let leaf = ca.issue_server(AmphoraId::random()).unwrap();
    std::fs::write(path.join("server_ca.pem"), leaf.pem.expose()).unwrap();
    let error = CertificateAuthority::load_or_create(&path).unwrap_err();
    assert!(
        error.to_string().contains("is not a certificate authority"),
        "{error}"
    );
}

#[test]
fn a_second_certificate_in_the_file_is_trusted_and_does_not_sign() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let previous = CertificateAuthority::load_or_create(&old).unwrap();
    let current = CertificateAuthority::load_or_create(&new).unwrap();
    let both = format!("{}{}", current.server_ca_pem(), previous.server_ca_pem());
    std::fs::write(new.join("server_ca.pem"), both).unwrap();
    let rotated = CertificateAuthority::load_or_create(&new).unwrap();

    let bundle = new.join("server_ca.pem");
    for issuer in [&previous, &rotated] {
        let leaf = dir.path().join("leaf.pem");
        let issued = issuer.issue_server(AmphoraId::random()).unwrap();
        std::fs::write(&leaf, issued.pem.expose()).unwrap();
        let (good, text) = openssl(&[
            "verify",
            "-x509_strict",
            "-CAfile",
            text_of(&bundle),
            text_of(&leaf),
        ]);
        assert!(good, "{text}");
    }
    assert!(rotated.client_config().is_ok());
}

#[test]
fn the_client_configuration_is_kept_until_half_of_the_certificates_life() {
    let dir = tempfile::tempdir().unwrap();
    let ca = CertificateAuthority::load_or_create(&dir.path().join("ca")).unwrap();
    let first = ca.client_config().unwrap();
    let second = ca.client_config().unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    ca.client_config.lock().unwrap().as_mut().unwrap().renew_at = OffsetDateTime::now_utc();
    let third = ca.client_config().unwrap();
    assert!(!Arc::ptr_eq(&first, &third));
}
