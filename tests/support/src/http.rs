//! One request over one connection of its own.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Method;
use hyper::header::HeaderMap;
use hyper_util::rt::TokioIo;
use serde_json::Value;

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    /// `Value::Null` when the body is empty.
    pub body: Value,
}

/// Sends JSON, or nothing, and expects JSON, or nothing.
pub async fn exchange(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Result<Reply> {
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .context("connect")?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("host", address.to_string())
        .header("accept", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
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
    Ok(Reply {
        status,
        headers,
        body,
    })
}
