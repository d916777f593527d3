//! Cross-origin requests.

use axum::body::Body;
use axum::http::Request;
use lb_drivers::identity::NoIdentity;

use crate::support::{Answer, Api, MemberOf, PROJECT};

const PAGE: &str = "https://dashboard.example";
const PATH: &str = "/v2/lbaas/loadbalancers";

async fn api(origins: &[&str]) -> Api {
    let origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
    let configure = |config: &mut lb_api::ApiConfig| config.cors.allowed_origins = origins;
    Api::with(configure, std::sync::Arc::new(NoIdentity)).await
}

async fn send(api: &Api, method: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri(PATH);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    api.send(request.body(Body::empty()).unwrap()).await
}

/// Its headers of this matter, sorted.
fn cors_headers(answer: &Answer) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> = answer
        .headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("access-control-") || *name == "vary")
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    headers.sort();
    headers
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[tokio::test]
async fn a_preflight_is_answered_without_a_token_and_without_a_request_id() {
    let configure = |config: &mut lb_api::ApiConfig| {
        config.cors.allowed_origins = vec![PAGE.to_owned()];
    };
    let api = Api::with(configure, std::sync::Arc::new(MemberOf(PROJECT))).await;
    let asked = [
        ("origin", PAGE),
        ("x-auth-token", "bad"),
        ("access-control-request-method", "PUT"),
        (
            "access-control-request-headers",
            "x-auth-token, content-type",
        ),
    ];
    let answer = send(&api, "OPTIONS", &asked).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, ""));
    assert_eq!(
        cors_headers(&answer),
        pairs(&[
            ("access-control-allow-credentials", "true"),
            ("access-control-allow-headers", "x-auth-token, content-type"),
            ("access-control-allow-methods", "PUT"),
            ("access-control-allow-origin", PAGE),
            ("access-control-max-age", "3600"),
            ("vary", "Origin"),
        ])
    );
    assert!(!answer.headers.contains_key("x-openstack-request-id"));
}

#[tokio::test]
async fn a_preflight_for_what_is_not_allowed_has_no_headers() {
    let method = ("access-control-request-method", "GET");
    let header = "access-control-request-headers";
    for (origins, asked) in [
        (
            &[PAGE][..],
            vec![("origin", "https://evil.example"), method],
        ),
        (&[PAGE], vec![("origin", PAGE)]),
        (
            &[PAGE],
            vec![("origin", PAGE), ("access-control-request-method", "PATCH")],
        ),
        (&[PAGE], vec![("origin", PAGE), method, (header, "x-evil")]),
        (&[PAGE], vec![method]),
        (&[], vec![("origin", PAGE), method]),
    ] {
        let answer = send(&api(origins).await, "OPTIONS", &asked).await;
        assert_eq!(answer.status, 200, "{asked:?}");
        assert_eq!(cors_headers(&answer), [], "{asked:?}");
    }
}

#[tokio::test]
async fn answers_and_errors_can_be_read_by_an_allowed_page() {
    let api = api(&[PAGE]).await;
    let expected = pairs(&[
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-origin", PAGE),
        (
            "access-control-expose-headers",
            "X-Auth-Token,X-Openstack-Request-Id",
        ),
        ("vary", "Origin"),
    ]);
    for (method, status) in [("GET", 200), ("PATCH", 405), ("POST", 400)] {
        let answer = send(&api, method, &[("origin", PAGE)]).await;
        assert_eq!(answer.status, status, "{method}");
        assert_eq!(cors_headers(&answer), expected, "{method}");
    }
    let other = send(&api, "GET", &[("origin", "https://evil.example")]).await;
    assert_eq!(
        (other.status.as_u16(), cors_headers(&other)),
        (200, pairs(&[]))
    );
    assert_eq!(cors_headers(&send(&api, "GET", &[]).await), []);
}

#[tokio::test]
async fn any_page_may_be_allowed_without_credentials() {
    let api = api(&["*"]).await;
    let answer = send(&api, "GET", &[("origin", PAGE)]).await;
    assert_eq!(
        cors_headers(&answer),
        pairs(&[
            ("access-control-allow-origin", "*"),
            (
                "access-control-expose-headers",
                "X-Auth-Token,X-Openstack-Request-Id"
            ),
        ])
    );
}
