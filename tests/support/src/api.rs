//! A client of the Octavia API that shows requests and answers as they are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hyper::{HeaderMap, Method};
use serde_json::Value;

use crate::http;

/// Speaks to one API server; one connection a request.
#[derive(Debug, Clone)]
pub struct Api {
    address: SocketAddr,
    token: Option<Arc<str>>,
}

/// Status, headers and JSON body; `Value::Null` when the body is empty.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The body, if the status is the wanted one.
    pub fn expect(self, status: u16) -> Result<Value> {
        if self.status != status {
            bail!("expected {status}, got {}: {}", self.status, self.body);
        }
        Ok(self.body)
    }
}

impl Api {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            token: None,
        }
    }

    /// As somebody who has this token.
    pub fn with_token(&self, token: &str) -> Self {
        Self {
            address: self.address,
            token: Some(token.into()),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.call(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.call(Method::POST, path, Some(body)).await
    }

    pub async fn put(&self, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.call(Method::PUT, path, body).await
    }

    pub async fn delete(&self, path: &str) -> Result<Answer> {
        self.call(Method::DELETE, path, None).await
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        let what = format!("{method} {path}");
        let path = format!("/v2/{path}");
        let token = self.token.as_deref().map(|token| ("x-auth-token", token));
        let headers: Vec<_> = token.into_iter().collect();
        let exchange = http::exchange(self.address, method, &path, &headers, body);
        let reply = tokio::time::timeout(Duration::from_secs(30), exchange)
            .await
            .with_context(|| format!("{what}: no answer within 30 s"))?
            .context(what)?;
        Ok(Answer {
            status: reply.status,
            headers: reply.headers,
            body: reply.body,
        })
    }

    /// Reads `path` until the object under `root` has the wanted value at `field`.
    ///
    /// `ERROR` where something else is waited for ends the wait at once.
    pub async fn wait_for(
        &self,
        path: &str,
        root: &str,
        field: &str,
        wanted: &str,
        deadline: Duration,
    ) -> Result<Value> {
        let start = Instant::now();
        loop {
            let answer = self.get(path).await?;
            let seen = answer.body[root][field].as_str().unwrap_or("(absent)");
            if answer.status == 200 && seen == wanted {
                return Ok(answer.body[root].clone());
            }
            if answer.status != 200
                || start.elapsed() > deadline
                || (seen == "ERROR" && field == "provisioning_status")
            {
                bail!(
                    "{path}: waited {:.1?} for {field} {wanted}, last seen {} {}",
                    start.elapsed(),
                    answer.status,
                    answer.body
                );
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn wait_active(&self, load_balancer: &str) -> Result<Value> {
        self.wait_for(
            &format!("lbaas/loadbalancers/{load_balancer}"),
            "loadbalancer",
            "provisioning_status",
            "ACTIVE",
            Duration::from_secs(60),
        )
        .await
    }

    /// Reads a load balancer until it is gone.
    pub async fn wait_gone(&self, load_balancer: &str) -> Result<()> {
        let path = format!("lbaas/loadbalancers/{load_balancer}");
        let start = Instant::now();
        loop {
            let answer = self.get(&path).await?;
            if answer.status == 404 {
                return Ok(());
            }
            if start.elapsed() > Duration::from_secs(60) {
                bail!("{path}: waited 60 s for 404, last seen {}", answer.body);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
