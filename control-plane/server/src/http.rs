//! Serving the API to strangers: so many connections at once, so long for a request's head, and an end that comes.
//!
//! An answer that comes before the whole request was read (413, 408) is followed by a lingering close: closing with
//! bytes unread resets the connection, and a client that is still sending would never see the answer.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::StatusCode;
use axum::{Extension, Router};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use lb_api::RemoteAddress;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Connections served at once; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 4096;
/// For a request's head, from the first byte or from the end of the last answer; so idle connections end, too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// For answers in progress when the end is asked for.
const GRACE: Duration = Duration::from_secs(5);
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// For what a client still sends after it was answered.
const LINGER: Duration = Duration::from_secs(30);

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
            Ok((stream, from)) => spawn(stream, from, router.clone(), connections, permit),
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
    from: SocketAddr,
    router: Router,
    connections: &GracefulShutdown,
    permit: Option<OwnedSemaphorePermit>,
) {
    // Without it answers are only later.
    let _ = stream.set_nodelay(true);
    let unread = Arc::new(AtomicBool::new(false));
    let stream = Lingering {
        stream,
        unread: Arc::clone(&unread),
        until: None,
    };
    let router = TowerToHyperService::new(router.layer(Extension(RemoteAddress(from))));
    let service = service_fn(move |request| {
        let (answer, unread) = (router.call(request), Arc::clone(&unread));
        async move {
            let answer = answer.await;
            let status = answer.as_ref().map(|response| response.status());
            if let Ok(StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) = status {
                unread.store(true, Ordering::Relaxed);
            }
            answer
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended");
        }
        drop(permit);
    });
}

/// A connection whose shutdown reads on when there is something left unread.
struct Lingering {
    stream: TcpStream,
    unread: Arc<AtomicBool>,
    /// Set once our side is shut.
    until: Option<Pin<Box<Sleep>>>,
}

impl AsyncRead for Lingering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.until.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        if !this.unread.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let until = this
            .until
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        let mut scrap = [0; 8192];
        while until.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut scrap);
            match ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                // It has ended, or it is broken.
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_client_that_sends_on_before_it_reads_gets_its_answer() {
        let router = Router::new().route("/", post(async || StatusCode::PAYLOAD_TOO_LARGE));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, router, async {
            let _ = stopped.await;
        }));
        let mut client = TcpStream::connect(address).await.unwrap();
        let body = vec![b'x'; 20_000_000];
        let head = format!(
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&body).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        drop(client);
        stop.send(()).unwrap();
        server.await.unwrap();
    }
}
