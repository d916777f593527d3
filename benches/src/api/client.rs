//! A client with one connection that stays, as far as the server lets it.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Method;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// What is asked.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: Bytes::new(),
        }
    }

    pub(crate) fn post(path: &str, body: &Value) -> Self {
        Self {
            method: Method::POST,
            path: path.to_owned(),
            body: body.to_string().into(),
        }
    }
}

/// What is answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body, when the status is the wanted one.
    pub(crate) fn json(&self, status: u16) -> Result<Value> {
        anyhow::ensure!(
            self.status == status,
            "{} in place of {status}: {}",
            self.status,
            String::from_utf8_lossy(&self.body)
        );
        serde_json::from_slice(&self.body).context("the answer is not JSON")
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            connection: None,
        }
    }

    pub(crate) async fn call(&mut self, call: &Call) -> Result<Answer> {
        let what = || format!("{} {}", call.method, call.path);
        loop {
            let kept = self.connection.take().filter(|it| !it.is_closed());
            let again = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => connect(self.address).await?,
            };
            match exchange(&mut connection, self.address, call).await {
                Ok(answer) => {
                    self.connection = Some(connection);
                    return Ok(answer);
                }
                // The server closed the connection while it was idle: nothing was sent.
                Err(error) if again && error.is_canceled() => {}
                Err(error) => return Err(error).with_context(what),
            }
        }
    }
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>> {
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .with_context(|| format!("connect to {address}"))?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // How it ends is seen by who sends.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

async fn exchange(
    connection: &mut SendRequest<Full<Bytes>>,
    address: SocketAddr,
    call: &Call,
) -> hyper::Result<Answer> {
    connection.ready().await?;
    let mut request = hyper::Request::new(Full::new(call.body.clone()));
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = call.path.parse().unwrap_or_default();
    let headers = request.headers_mut();
    if let Ok(host) = address.to_string().parse() {
        headers.insert(HOST, host);
    }
    headers.insert(ACCEPT, JSON);
    if !call.body.is_empty() {
        headers.insert(CONTENT_TYPE, JSON);
    }
    let response = connection.send_request(request).await?;
    Ok(Answer {
        status: response.status().as_u16(),
        body: response.into_body().collect().await?.to_bytes(),
    })
}

const JSON: hyper::header::HeaderValue =
    hyper::header::HeaderValue::from_static("application/json");
