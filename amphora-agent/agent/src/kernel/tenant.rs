//! A runtime inside the tenant's network namespace.
//!
//! Every thread of it enters the namespace before it runs anything, so that sockets made by its tasks belong to the
//! tenant. A thread that cannot enter must not run: traffic of the tenant on the management network would be the
//! worst outcome, so the process ends instead.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Runtime};

use super::namespace::Namespace;

pub struct Tenant {
    namespace: Namespace,
    /// Taken by `Drop` only.
    runtime: Option<Runtime>,
    handle: tokio::runtime::Handle,
}

impl Tenant {
    pub fn new(namespace: Namespace) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(4)
            .thread_name("tenant")
            .on_thread_start(entering(&namespace))
            .enable_all()
            .build()?;
        Ok(Tenant {
            namespace,
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Runs a future on the tenant's threads. Dropping what this returns does not stop it.
    pub async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        self.handle.spawn(future).await.map_err(io::Error::other)
    }

    /// Runs blocking work on one of the tenant's threads.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.handle
            .spawn_blocking(work)
            .await
            .map_err(io::Error::other)
    }

    pub fn handle(&self) -> &tokio::runtime::Handle {
        &self.handle
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Dropping a runtime within another one is not allowed to block.
            runtime.shutdown_background();
        }
    }
}

/// For the first thing a thread does.
pub fn entering(namespace: &Namespace) -> impl Fn() + Send + Sync + 'static {
    let namespace = namespace.clone();
    move || {
        if let Err(error) = namespace.enter() {
            tracing::error!(namespace = namespace.name(), %error, "enter network namespace");
            std::process::abort();
        }
    }
}
