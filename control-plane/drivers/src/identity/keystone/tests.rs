//! Against a small Keystone on loopback that does as it is told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use super::*;
use crate::Secret;

const PASSWORD: &str = "s3rvice-pa55";

/// What the Keystone knows and how it behaves.
#[derive(Default)]
struct Mood {
    /// Tokens of callers, with what is said of them.
    tokens: BTreeMap<String, Value>,
    /// Tokens given to the service user that still work.
    own: Vec<String>,
    own_lives_s: i64,
    /// Instead of validations' answers.
    instead: Option<Instead>,
    /// Validations are answered after this opens.
    gate: Option<Arc<Semaphore>>,
    forbidden: bool,
    authentications: Vec<Value>,
    validations: Vec<String>,
}

#[derive(Clone)]
enum Instead {
    Status(u16),
    Body(Vec<u8>),
    HangUp,
}

#[derive(Clone, Default)]
struct FakeKeystone(Arc<Mutex<Mood>>);

impl FakeKeystone {
    fn mood<T>(&self, f: impl FnOnce(&mut Mood) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves on loopback as long as the test runs.
    async fn start() -> (Self, SocketAddr) {
        let fake = Self::default();
        fake.mood(|mood| mood.own_lives_s = 3600);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = fake.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        (fake, address)
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = service_fn(move |request| {
            let fake = self.clone();
            async move { fake.answer(request).await }
        });
        // A client that hangs up is part of some tests.
        let _ = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    async fn answer(&self, request: Request<Incoming>) -> std::io::Result<Response<Full<Bytes>>> {
        assert_eq!(request.uri().path(), "/identity/v3/auth/tokens");
        let header = |name: &str| {
            request
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        let (own, subject) = (header("x-auth-token"), header("x-subject-token"));
        match *request.method() {
            Method::POST => {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                Ok(self.authenticate(serde_json::from_slice(&body).unwrap()))
            }
            Method::GET => self.validate(&own.unwrap(), &subject.unwrap()).await,
            _ => Ok(status(405)),
        }
    }

    fn authenticate(&self, body: Value) -> Response<Full<Bytes>> {
        self.mood(|mood| {
            let text = body.to_string();
            mood.authentications.push(body);
            if !text.contains(PASSWORD) {
                return status(401);
            }
            let token = format!("own-{}", mood.authentications.len());
            mood.own.push(token.clone());
            let mut answer = json_answer(201, &document("octavia", &[], mood.own_lives_s));
            answer
                .headers_mut()
                .insert("x-subject-token", token.parse().unwrap());
            answer
        })
    }

    async fn validate(&self, own: &str, subject: &str) -> std::io::Result<Response<Full<Bytes>>> {
        let gate = self.mood(|mood| {
            mood.validations.push(subject.to_owned());
            mood.gate.clone()
        });
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        self.mood(|mood| {
            if !mood.own.iter().any(|token| token == own) {
                return Ok(status(401));
            }
            if mood.forbidden {
                return Ok(status(403));
            }
            match &mood.instead {
                Some(Instead::Status(code)) => Ok(status(*code)),
                Some(Instead::Body(body)) => Ok(Response::new(Full::from(body.clone()))),
                Some(Instead::HangUp) => Err(std::io::Error::other("hang up")),
                None => Ok(match mood.tokens.get(subject) {
                    Some(token) => json_answer(200, token),
                    None => status(404),
                }),
            }
        })
    }

    fn knows(&self, token: &str, document: Value) {
        self.mood(|mood| mood.tokens.insert(token.to_owned(), document));
    }

    fn validations(&self) -> usize {
        self.mood(|mood| mood.validations.len())
    }
}

fn status(code: u16) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn json_answer(code: u16, body: &Value) -> Response<Full<Bytes>> {
    let mut response = status(code);
    *response.body_mut() = Full::from(body.to_string());
    response
}

fn document(user: &str, roles: &[&str], lives_s: i64) -> Value {
    let expires = time::OffsetDateTime::now_utc() + time::Duration::seconds(lives_s);
    let expires = expires
        .format(&time::format_description::well_known::Rfc3339)
        .unwrap();
    let roles: Vec<Value> = roles
        .iter()
        .map(|role| json!({"id": "r", "name": role}))
        .collect();
    json!({"token": {
        "expires_at": expires,
        "user": {"id": user, "name": user, "domain": {"id": "default", "name": "Default"}},
        "project": {"id": "blue", "name": "blue", "domain": {"id": "default", "name": "Default"}},
        "roles": roles,
    }})
}

fn password(text: &str) -> ServiceCredentials {
    let name = |name: &str| InDomain::Name {
        name: name.to_owned(),
        domain: Domain::Name("Default".to_owned()),
    };
    ServiceCredentials::Password {
        user: name("octavia"),
        password: Secret::new(text),
        scope: Scope::Project(name("service")),
    }
}

fn config(address: SocketAddr) -> KeystoneConfig {
    KeystoneConfig {
        http_request_max_retries: 0,
        ..KeystoneConfig::new(format!("http://{address}/identity/"), password(PASSWORD))
    }
}

fn identity(config: &KeystoneConfig) -> KeystoneIdentity {
    KeystoneIdentity::new(config).unwrap()
}

async fn rig() -> (FakeKeystone, KeystoneIdentity) {
    let (fake, address) = FakeKeystone::start().await;
    let identity = identity(&config(address));
    (fake, identity)
}

fn unavailable(result: Result<Arc<Caller>, IdentityError>) -> String {
    match result {
        Err(IdentityError::Unavailable { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

fn is_unauthenticated(result: &Result<Arc<Caller>, IdentityError>) -> bool {
    matches!(result, Err(IdentityError::Unauthenticated { .. }))
}

#[tokio::test]
async fn a_valid_token_is_a_caller_and_is_asked_for_once() {
    let (fake, identity) = rig().await;
    fake.knows("good", document("alice", &["member", "reader"], 3600));
    for _ in 0..3 {
        let caller = identity.authenticate(Some("good")).await.unwrap();
        assert_eq!(caller.user_id.as_deref(), Some("alice"));
        assert_eq!(caller.project_id.as_deref(), Some("blue"));
        assert_eq!(caller.roles, ["member", "reader"]);
        assert!(!caller.is_admin);
    }
    assert_eq!(fake.validations(), 1);
    let authentications = fake.mood(|mood| mood.authentications.clone());
    assert_eq!(
        authentications,
        [json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": "octavia", "domain": {"name": "Default"}, "password": PASSWORD,
            }}},
            "scope": {"project": {"name": "service", "domain": {"name": "Default"}}},
        }})]
    );
}

#[tokio::test]
async fn an_application_credential_is_another_way_to_the_own_token() {
    let (fake, address) = FakeKeystone::start().await;
    fake.knows("good", document("alice", &[], 3600));
    let identity = identity(&KeystoneConfig {
        credentials: ServiceCredentials::ApplicationCredential {
            credential: ApplicationCredential::Id("ac".to_owned()),
            secret: Secret::new(PASSWORD),
        },
        ..config(address)
    });
    identity.authenticate(Some("good")).await.unwrap();
    let authentications = fake.mood(|mood| mood.authentications.clone());
    assert_eq!(
        authentications,
        [json!({"auth": {"identity": {
            "methods": ["application_credential"],
            "application_credential": {"id": "ac", "secret": PASSWORD},
        }}})]
    );
}

#[tokio::test]
async fn no_token_and_what_cannot_be_one_are_refused_without_asking() {
    let (fake, identity) = rig().await;
    let long = "x".repeat(MAX_TOKEN_BYTES + 1);
    for token in [None, Some(""), Some("a b"), Some("a\u{e9}"), Some(&*long)] {
        let result = identity.authenticate(token).await;
        assert!(is_unauthenticated(&result), "{result:?}");
    }
    assert_eq!(fake.validations(), 0);
}

#[tokio::test]
async fn an_unknown_token_is_refused_with_the_way_to_keystone_and_asked_for_once() {
    let (fake, identity) = rig().await;
    for _ in 0..3 {
        match identity.authenticate(Some("expired")).await {
            Err(IdentityError::Unauthenticated { challenge }) => {
                assert!(challenge.starts_with("Keystone uri=\"http://127.0.0.1:"));
                assert!(challenge.ends_with("/identity/\""));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fake.validations(), 1);
}

#[tokio::test]
async fn a_token_is_not_believed_past_its_expiry_nor_past_the_cache_time() {
    let (fake, address) = FakeKeystone::start().await;
    fake.knows("over", document("alice", &[], -5));
    fake.knows("good", document("alice", &[], 3600));
    let uncached = identity(&KeystoneConfig {
        token_cache_time: Duration::ZERO,
        ..config(address)
    });
    // Keystone, whose clock may be another, took it for valid just now; that is not remembered.
    uncached.authenticate(Some("over")).await.unwrap();
    uncached.authenticate(Some("good")).await.unwrap();
    fake.mood(|mood| mood.tokens.clear());
    for token in ["over", "good"] {
        let revoked = uncached.authenticate(Some(token)).await;
        assert!(is_unauthenticated(&revoked), "{token}: {revoked:?}");
    }
    assert_eq!(fake.validations(), 4);
}

#[tokio::test]
async fn many_requests_with_one_token_ask_once() {
    let (fake, identity) = rig().await;
    fake.knows("good", document("alice", &[], 3600));
    let gate = Arc::new(Semaphore::new(0));
    fake.mood(|mood| mood.gate = Some(Arc::clone(&gate)));
    let identity = Arc::new(identity);
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let identity = Arc::clone(&identity);
            tokio::spawn(async move { identity.authenticate(Some("good")).await })
        })
        .collect();
    gate.add_permits(50);
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    assert_eq!(fake.validations(), 1);
}

#[tokio::test]
async fn the_own_token_is_renewed_when_keystone_no_longer_takes_it() {
    let (fake, identity) = rig().await;
    fake.knows("one", document("alice", &[], 3600));
    fake.knows("two", document("bob", &[], 3600));
    identity.authenticate(Some("one")).await.unwrap();
    fake.mood(|mood| mood.own.clear());
    let caller = identity.authenticate(Some("two")).await.unwrap();
    assert_eq!(caller.user_id.as_deref(), Some("bob"));
    assert_eq!(fake.mood(|mood| mood.authentications.len()), 2);
}

#[tokio::test]
async fn the_own_token_is_renewed_before_it_expires() {
    let (fake, identity) = rig().await;
    fake.knows("one", document("alice", &[], 3600));
    fake.knows("two", document("bob", &[], 3600));
    // Over as soon as it is there.
    fake.mood(|mood| mood.own_lives_s = 0);
    identity.authenticate(Some("one")).await.unwrap();
    identity.authenticate(Some("two")).await.unwrap();
    let used = fake.mood(|mood| (mood.authentications.len(), mood.validations.len()));
    assert_eq!(used, (2, 2));
}

#[tokio::test]
async fn a_refused_service_user_is_the_services_fault_and_does_not_hammer() {
    let (fake, address) = FakeKeystone::start().await;
    let identity = identity(&KeystoneConfig {
        credentials: password("wr0ng-pa55"),
        ..config(address)
    });
    for token in ["a", "b", "c"] {
        let reason = unavailable(identity.authenticate(Some(token)).await);
        assert!(reason.contains("service user gets no token"), "{reason}");
        assert!(!reason.contains("wr0ng-pa55"), "{reason}");
    }
    assert_eq!(fake.mood(|mood| mood.authentications.len()), 1);
    assert_eq!(fake.validations(), 0);
}

#[tokio::test]
async fn a_service_user_without_the_role_is_the_services_fault() {
    let (fake, identity) = rig().await;
    fake.mood(|mood| mood.forbidden = true);
    let reason = unavailable(identity.authenticate(Some("good")).await);
    assert!(reason.contains("may not validate tokens"), "{reason}");
}

#[tokio::test]
async fn answers_that_say_nothing_of_the_token_do_not_refuse_it_and_are_not_kept() {
    let (fake, identity) = rig().await;
    fake.knows("good", document("alice", &[], 3600));
    let cases = [
        (Instead::Status(500), "status 500"),
        (Instead::Status(503), "status 503"),
        (Instead::Status(302), "status 302"),
        (Instead::Body(b"<html>".to_vec()), "not understood"),
        (Instead::Body(b"{\"token\": {}}".to_vec()), "not understood"),
        (Instead::Body(vec![b' '; 2 * 1024 * 1024]), "longer than"),
        (Instead::HangUp, "exchange with the server"),
    ];
    for (instead, expected) in cases {
        fake.mood(|mood| mood.instead = Some(instead));
        let reason = unavailable(identity.authenticate(Some("good")).await);
        assert!(reason.contains(expected), "{expected}: {reason}");
        assert!(!reason.contains("own-1"), "{reason}");
    }
    fake.mood(|mood| mood.instead = None);
    identity.authenticate(Some("good")).await.unwrap();
}

#[tokio::test]
async fn a_slow_keystone_is_given_up_and_the_next_call_asks_again() {
    let (fake, address) = FakeKeystone::start().await;
    fake.knows("good", document("alice", &[], 3600));
    let gate = Arc::new(Semaphore::new(0));
    fake.mood(|mood| mood.gate = Some(Arc::clone(&gate)));
    let identity = identity(&KeystoneConfig {
        timeout: Duration::from_secs(2),
        ..config(address)
    });
    let reason = unavailable(identity.authenticate(Some("good")).await);
    assert!(reason.contains("no answer within"), "{reason}");
    fake.mood(|mood| mood.gate = None);
    identity.authenticate(Some("good")).await.unwrap();
}

#[tokio::test]
async fn a_keystone_that_is_not_there_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let identity = identity(&KeystoneConfig {
        http_request_max_retries: 1,
        ..config(address)
    });
    let reason = unavailable(identity.authenticate(Some("good")).await);
    assert!(reason.contains("connect to 127.0.0.1"), "{reason}");
}

#[tokio::test]
async fn over_tls_only_a_server_of_the_named_authority_is_asked() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .signed_by(&key, &Issuer::new(ca, ca_key))
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls_pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let fake = FakeKeystone::default();
    fake.knows("good", document("alice", &[], 3600));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = fake.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(serving.clone().serve(stream));
            }
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let cafile = dir.path().join("ca.pem");
    let at = |cafile: Option<std::path::PathBuf>| {
        identity(&KeystoneConfig {
            cafile,
            http_request_max_retries: 0,
            ..KeystoneConfig::new(
                format!("https://localhost:{port}/identity/v3"),
                password(PASSWORD),
            )
        })
    };
    std::fs::write(&cafile, ca_pem).unwrap();
    at(Some(cafile.clone()))
        .authenticate(Some("good"))
        .await
        .unwrap();
    let other_key = KeyPair::generate().unwrap();
    let mut other = CertificateParams::new(Vec::new()).unwrap();
    other.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(&cafile, other.self_signed(&other_key).unwrap().pem()).unwrap();
    let reason = unavailable(at(Some(cafile)).authenticate(Some("good")).await);
    assert!(reason.contains("connect to localhost"), "{reason}");
}

#[test]
fn debug_output_of_the_settings_does_not_show_the_secret() {
    let config = KeystoneConfig::new("http://keystone", password(PASSWORD));
    assert!(!format!("{config:?}").contains(PASSWORD));
}
