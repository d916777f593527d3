//! UDP checks: a datagram; an ICMP error is a failure, an answer or silence a success.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::Failure;
use crate::target::Target;

/// What netcat's probe sends, which Octavia uses.
const PROBE: &[u8] = b"X";

pub(super) async fn make(target: &Target) -> Result<(), Failure> {
    let local: SocketAddr = if target.address.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(local).await.map_err(Failure::Connect)?;
    // A connected socket is told of ICMP errors.
    socket
        .connect(target.address)
        .await
        .map_err(Failure::Connect)?;
    socket.send(PROBE).await.map_err(Failure::Exchange)?;
    let mut answer = [0; 1];
    match timeout(target.timeout, socket.recv(&mut answer)).await {
        Ok(Err(error)) => Err(Failure::Exchange(error)),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}
