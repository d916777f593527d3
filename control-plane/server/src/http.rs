//! Serving the API to strangers: so many connections at once, so long for a request's head, and an end that comes.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections served at once; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 4096;
/// For a request's head, from the first byte or from the end of the last answer; so idle connections end, too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// For answers in progress when the end is asked for.
const GRACE: Duration = Duration::from_secs(5);
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Serves until `stopped` is done, then lets answers in progress finish, for at most five seconds.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    stopped: impl Future<Output = ()>,
) {
    let connections = GracefulShutdown::new();
    tokio::select! {
        never = accept(&listener, &router, &connections) => match never {},
        () = stopped => {}
    }
    drop(listener);
    if tokio::time::timeout(GRACE, connections.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("connections that did not end are cut off");
    }
}

async fn accept(
    listener: &TcpListener,
    router: &Router,
    connections: &GracefulShutdown,
) -> Infallible {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let permit = Arc::clone(&room).acquire_owned().await.ok();
        match listener.accept().await {
            Ok((stream, _)) => spawn(stream, router.clone(), connections, permit),
            Err(error) => {
                // Out of file descriptors, most likely; others may end meanwhile.
                tracing::warn!(%error, "accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn spawn(
    stream: TcpStream,
    router: Router,
    connections: &GracefulShutdown,
    permit: Option<OwnedSemaphorePermit>,
) {
    // Without it answers are only later.
    let _ = stream.set_nodelay(true);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended");
        }
        drop(permit);
    });
}
