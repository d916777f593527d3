//! One check of one member. Every probe ends by itself, with an outcome.

mod http;
mod ping;
mod udp;

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::scheduler::{Outcome, connect_limit};
use crate::target::{Check, Target};

/// Why a member did not pass. The text is for the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("connect: {0}")]
    Connect(#[source] io::Error),
    #[error("connect timed out")]
    ConnectTimeout,
    #[error("exchange: {0}")]
    Exchange(#[source] io::Error),
    #[error("no answer in time")]
    Timeout,
    #[error("status {0}")]
    Status(u16),
    #[error("not an HTTP answer")]
    NotHttp,
    /// Must not happen with what the API lets through.
    #[error("the monitor's request is not valid")]
    Request,
}

pub(crate) async fn make(target: &Target) -> Outcome {
    let result = match &target.check {
        Check::Tcp => connect(target).await.map(drop),
        Check::Http { .. } => http::make(target).await,
        Check::UdpConnect => udp::make(target).await,
        Check::Ping => ping::make(target).await,
    };
    match result {
        Ok(()) => Outcome::Success,
        Err(failure) => Outcome::Failure(failure.to_string()),
    }
}

/// A connection that is reset when it is dropped: checks leave no port in TIME_WAIT.
async fn connect(target: &Target) -> Result<TcpStream, Failure> {
    let socket = if target.address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }
    .map_err(Failure::Connect)?;
    SockRef::from(&socket)
        .set_linger(Some(Duration::ZERO))
        .map_err(Failure::Connect)?;
    match timeout(connect_limit(target), socket.connect(target.address)).await {
        Ok(connected) => connected.map_err(Failure::Connect),
        Err(_) => Err(Failure::ConnectTimeout),
    }
}
