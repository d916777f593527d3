//! A TCP balancer as stands before a database cluster: round robin, and the next one when one does not take a
//! connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Takes connections until it is dropped.
#[derive(Debug)]
pub struct Balancer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Balancer {
    /// Listens on a free port of loopback.
    pub async fn start(targets: Vec<SocketAddr>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("bind balancer")?;
        let address = listener.local_addr()?;
        let targets: Arc<[SocketAddr]> = targets.into();
        let turn = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    continue;
                };
                let first = turn.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(carry(client, targets.clone(), first));
            }
        });
        Ok(Self { address, task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut client: TcpStream, targets: Arc<[SocketAddr]>, first: usize) {
    for target in targets
        .iter()
        .cycle()
        .skip(first % targets.len().max(1))
        .take(targets.len())
    {
        if let Ok(mut server) = TcpStream::connect(target).await {
            // Either side may be killed at any moment; the other one is told by the end of its connection.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}
