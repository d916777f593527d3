//! Plain TCP listeners: a member for each connection, and bytes both ways.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::dial::{DialError, dial};
use crate::http::body::Framing;
use crate::pump::Pump;
use crate::router::Route;
use crate::stats::Refusal;
use crate::timer::Timer;
use crate::transport::{Counted, Peer, Stream};
use crate::tunnel;
use crate::worker::Worker;

pub(crate) async fn serve<S: Stream>(
    worker: &Worker,
    stream: S,
    peer: SocketAddr,
    mut route: Route,
) {
    let counters = Arc::clone(&route.listener.counters);
    let mut client = Counted::new(stream, Peer::Client, counters, worker.index);
    let mut dialed = match dial(worker, &mut route, peer.ip(), false, None).await {
        Ok(dialed) => dialed,
        // The client is closed; there is nothing to say it with.
        Err(DialError::NoMember) => return worker.shared.refusals.count(Refusal::NoMember),
        Err(DialError::ConnectFailed) => {
            return worker.shared.refusals.count(Refusal::ConnectFailed);
        }
    };
    let config = &route.listener.config;
    let timeout = config.timeout_client_data.min(config.timeout_member_data);
    tunnel::join(
        &mut client,
        &mut dialed.stream,
        Pump::new(Framing::NONE),
        Pump::new(Framing::NONE),
        timeout,
        &mut Timer::default(),
    )
    .await;
}
