//! A client of the Octavia API that shows requests and answers as they are.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method};
use hyper_util::rt::TokioIo;
use serde_json::Value;

/// Speaks to one API server; one connection a request.
#[derive(Debug, Clone, Copy)]
pub struct Api {
    address: SocketAddr,
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
        Self { address }
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
        tokio::time::timeout(Duration::from_secs(30), self.exchange(method, path, body))
            .await
            .with_context(|| format!("{what}: no answer within 30 s"))?
            .context(what)
    }

    async fn exchange(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        let stream = tokio::net::TcpStream::connect(self.address)
            .await
            .context("connect")?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(format!("/v2/{path}"))
            .header("host", self.address.to_string())
            .header("accept", "application/json");
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let response = sender.send_request(request.body(Full::new(bytes))?).await?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let bytes = response.into_body().collect().await?.to_bytes();
        connection.abort();
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).context("answer is not JSON")?
        };
        Ok(Answer {
            status,
            headers,
            body,
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
