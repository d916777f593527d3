//! `/healthcheck`: whether this process can serve, for load balancers and monitors in front of it.
//!
//! Needs no token. What is found is kept for a while, and one caller at a time looks: however often it is asked, the
//! database is asked seldom. Bodies are those of oslo.middleware's healthcheck.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use lb_store::Store;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::fault::{Chain, empty};

/// `[healthcheck]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthcheckConfig {
    /// Says what each check found, not only that it did; tells strangers more than they need.
    pub detailed: bool,
    /// `octavia_db_check` among `backends`.
    pub database: bool,
    /// `disable_by_file_path`: while this file exists the process asks to be left alone.
    pub disable_by_file: Option<PathBuf>,
    /// `healthcheck_refresh_interval`
    pub refresh: Duration,
}

impl Default for HealthcheckConfig {
    fn default() -> Self {
        Self {
            detailed: false,
            database: true,
            disable_by_file: None,
            refresh: Duration::from_secs(5),
        }
    }
}

/// A database that takes longer is as good as away.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(5);

/// What one check found.
#[derive(Debug, Clone)]
struct Finding {
    check: &'static str,
    healthy: bool,
    reason: &'static str,
    details: String,
}

/// What was found last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health(Arc<Mutex<Option<Look>>>);

#[derive(Debug)]
struct Look {
    at: Instant,
    findings: Vec<Finding>,
}

impl Health {
    /// Answers `GET` and `HEAD`.
    pub(crate) async fn answer(
        &self,
        config: &HealthcheckConfig,
        store: &Store,
        method: &Method,
        headers: &HeaderMap,
    ) -> Response<Body> {
        let findings = self.findings(config, store).await;
        let healthy = findings.iter().all(|finding| finding.healthy);
        if method == Method::HEAD {
            let status = if healthy {
                StatusCode::NO_CONTENT
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            return empty(status);
        }
        let status = match (healthy, findings.is_empty() && !config.detailed) {
            (false, _) => StatusCode::SERVICE_UNAVAILABLE,
            (true, true) => StatusCode::NO_CONTENT,
            (true, false) => StatusCode::OK,
        };
        if status == StatusCode::NO_CONTENT {
            return empty(status);
        }
        let (content_type, body) = match Form::of(headers) {
            Form::Text => ("text/plain; charset=UTF-8", as_text(config, &findings)),
            Form::Json => ("application/json", as_json(config, &findings).to_string()),
            Form::Html => ("text/html; charset=UTF-8", as_html(config, &findings)),
        };
        with_body(status, content_type, body)
    }

    async fn findings(&self, config: &HealthcheckConfig, store: &Store) -> Vec<Finding> {
        let mut last = self.0.lock().await;
        if let Some(look) = last.as_ref()
            && look.at.elapsed() < config.refresh
        {
            return look.findings.clone();
        }
        let findings = look(config, store).await;
        *last = Some(Look {
            at: Instant::now(),
            findings: findings.clone(),
        });
        findings
    }
}

async fn look(config: &HealthcheckConfig, store: &Store) -> Vec<Finding> {
    let mut findings = Vec::new();
    if config.database {
        let asked = tokio::time::timeout(DATABASE_TIMEOUT, store.ping()).await;
        let details = match asked {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                tracing::warn!(error = %Chain(&error), "health check: database is away");
                Some(error.to_string())
            }
            Err(_) => {
                tracing::warn!("health check: database does not answer in time");
                Some("it does not answer in time".to_owned())
            }
        };
        findings.push(Finding {
            check: "OctaviaDBHealthcheck",
            healthy: details.is_none(),
            reason: if details.is_none() {
                "OK"
            } else {
                "The Octavia Database is unavailable"
            },
            details: details.unwrap_or_default(),
        });
    }
    if let Some(path) = &config.disable_by_file {
        let there = tokio::fs::try_exists(path).await.unwrap_or(false);
        findings.push(Finding {
            check: "DisableByFileHealthcheck",
            healthy: !there,
            reason: if there { "DISABLED BY FILE" } else { "OK" },
            details: format!("Path '{}' was checked", path.display()),
        });
    }
    findings
}

/// How a caller wants it told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Html,
}

impl Form {
    /// The first form that is named; text when none is.
    fn of(headers: &HeaderMap) -> Self {
        let mut named = headers.get_all(ACCEPT).iter().filter_map(|value| {
            let ranges = value.to_str().ok()?.split(',');
            ranges
                .map(|range| range.split(';').next().unwrap_or_default().trim())
                .find_map(|media| match media.to_ascii_lowercase().as_str() {
                    "application/json" => Some(Self::Json),
                    "text/html" => Some(Self::Html),
                    "text/plain" => Some(Self::Text),
                    _ => None,
                })
        });
        named.next().unwrap_or(Self::Text)
    }
}

fn as_text(config: &HealthcheckConfig, findings: &[Finding]) -> String {
    let lines: Vec<String> = findings
        .iter()
        .map(
            |finding| match (config.detailed, finding.details.as_str()) {
                (true, details) if !details.is_empty() => format!("{}: {details}", finding.reason),
                _ => finding.reason.to_owned(),
            },
        )
        .collect();
    lines.join("\n")
}

fn as_json(config: &HealthcheckConfig, findings: &[Finding]) -> Value {
    let reasons: Vec<Value> = findings
        .iter()
        .map(|finding| {
            if config.detailed {
                json!({
                    "class": finding.check,
                    "reason": finding.reason,
                    "details": finding.details,
                })
            } else {
                Value::from(finding.reason)
            }
        })
        .collect();
    json!({"detailed": config.detailed, "reasons": reasons})
}

fn as_html(config: &HealthcheckConfig, findings: &[Finding]) -> String {
    let mut rows = String::new();
    for finding in findings {
        rows.push_str("<tr>");
        let mut cells = vec![finding.reason];
        if config.detailed {
            cells = vec![finding.check, finding.reason, &finding.details];
        }
        for cell in cells {
            rows.push_str("<td>");
            rows.push_str(&escaped(cell));
            rows.push_str("</td>");
        }
        rows.push_str("</tr>");
    }
    format!(
        "<!DOCTYPE html><html><head><title>Healthcheck Status</title></head><body><h2>Result of {} checks:</h2><table>{rows}</table></body></html>",
        findings.len()
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn with_body(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
