//! `/healthcheck`.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use lb_api::HealthcheckConfig;
use lb_drivers::identity::NoIdentity;
use serde_json::json;

use crate::support::{Answer, Api};

async fn api(config: HealthcheckConfig) -> Api {
    let configure = |api: &mut lb_api::ApiConfig| api.healthcheck = Some(config);
    Api::with(configure, std::sync::Arc::new(NoIdentity)).await
}

/// Looks each time it is asked.
fn fresh() -> HealthcheckConfig {
    HealthcheckConfig {
        refresh: Duration::ZERO,
        ..HealthcheckConfig::default()
    }
}

async fn ask(api: &Api, accept: &str) -> Answer {
    let request = Request::get("/healthcheck").header("accept", accept);
    api.send(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn health_is_told_as_text_json_or_html_to_anybody() {
    let api = api(fresh()).await;
    for path in [
        "/healthcheck",
        "/healthcheck/",
        "/load-balancer/healthcheck",
    ] {
        let answer = api.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.text.as_str()),
            (200, "OK"),
            "{path}"
        );
        assert_eq!(answer.headers["content-type"], "text/plain; charset=UTF-8");
    }
    let answer = ask(&api, "application/json").await;
    assert_eq!(answer.body, json!({"detailed": false, "reasons": ["OK"]}));
    let answer = ask(&api, "text/html,*/*;q=0.1").await;
    assert!(answer.text.contains("<td>OK</td>"), "{}", answer.text);
    let head = api.call("HEAD", "/healthcheck", None).await;
    assert_eq!((head.status.as_u16(), head.text.as_str()), (204, ""));
    let post = api.call("POST", "/healthcheck", None).await;
    assert_eq!(post.status, 405);
    assert_eq!(post.headers["allow"], "GET, HEAD");
    assert_eq!(post.headers["content-type"], "text/plain");
}

#[tokio::test]
async fn there_is_no_health_check_unless_it_is_configured() {
    let api = Api::new().await;
    assert_eq!(api.get("/healthcheck").await.status, 404);
}

#[tokio::test]
async fn without_anything_to_check_there_is_nothing_to_say() {
    let config = HealthcheckConfig {
        database: false,
        ..fresh()
    };
    let api = api(config).await;
    let answer = ask(&api, "application/json").await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (204, ""));
}

#[tokio::test]
async fn a_database_that_is_away_is_503() {
    let api = api(HealthcheckConfig {
        detailed: true,
        ..fresh()
    })
    .await;
    let well = ask(&api, "application/json").await;
    assert_eq!(well.body["reasons"][0]["class"], "OctaviaDBHealthcheck");
    assert_eq!(well.body["reasons"][0]["reason"], "OK");
    api.store.close().await;
    let answer = ask(&api, "application/json").await;
    assert_eq!(answer.status, 503, "{}", answer.text);
    let head = api.call("HEAD", "/healthcheck", None).await;
    assert_eq!(head.status, 503);
    let text = api.get("/healthcheck").await;
    assert!(text.text.starts_with("The Octavia Database is unavailable"));
}

#[tokio::test]
async fn what_was_found_is_kept_for_a_while() {
    let api = api(HealthcheckConfig {
        refresh: Duration::from_secs(3600),
        ..HealthcheckConfig::default()
    })
    .await;
    assert_eq!(api.get("/healthcheck").await.status, 200);
    api.store.close().await;
    assert_eq!(api.get("/healthcheck").await.status, 200);
}

#[tokio::test]
async fn a_file_takes_the_process_out_of_service() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disabled");
    let api = api(HealthcheckConfig {
        disable_by_file: Some(file.clone()),
        ..fresh()
    })
    .await;
    assert_eq!(api.get("/healthcheck").await.text, "OK\nOK");
    std::fs::write(&file, "").unwrap();
    let answer = api.get("/healthcheck").await;
    assert_eq!(answer.status, 503);
    assert!(answer.text.contains("DISABLED BY FILE"), "{}", answer.text);
}
