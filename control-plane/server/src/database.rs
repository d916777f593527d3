//! The database: waiting for it, its schema, and the commands of operators.

use std::time::Duration;

use anyhow::{Context, Result};
use lb_store::{Store, StoreError};

use crate::config::Config;

/// Time between tries to reach the database at start; it doubles up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// For roles that start: waits as long as the database is away, and sees that it has this program's schema.
pub(crate) async fn open(config: &Config) -> Result<Store> {
    let mut wait = FIRST_WAIT;
    loop {
        match try_open(config).await {
            Ok(store) => return Ok(store),
            Err(error) if error.is_transient() => {
                let reason = format!("{:#}", anyhow::Error::new(error));
                tracing::warn!(
                    reason,
                    next_try_s = wait.as_secs_f32(),
                    "the database does not answer, waiting for it"
                );
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            Err(error @ StoreError::SchemaBehind(_)) => {
                return Err(error).context(
                    "the database is older than this program: run `control-plane db upgrade`",
                );
            }
            Err(error @ StoreError::SchemaAhead(_)) => {
                return Err(error).context(
                    "the database is newer than this program: run the version that upgraded it",
                );
            }
            Err(error) => return Err(error).context("open the database"),
        }
    }
}

/// A SQLite file belongs to this program and is upgraded on the way; a server's schema is for its operator to upgrade.
async fn try_open(config: &Config) -> Result<Store, StoreError> {
    let url = url(config);
    let store = Store::connect(&url)
        .await?
        .with_default_quota(config.quotas.limits());
    if url.starts_with("sqlite:") {
        store.migrate().await?;
    } else {
        store.check().await?;
    }
    Ok(store)
}

/// By default a file in the state directory.
fn url(config: &Config) -> String {
    if config.database.url.is_empty() {
        let file = config.local.state_dir.join("control-plane.db");
        format!("sqlite://{}", file.display())
    } else {
        config.database.url.clone()
    }
}

/// Where a database is that nobody configured.
pub(crate) fn make_state_dir(config: &Config) -> Result<()> {
    let directory = &config.local.state_dir;
    std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))
}

/// Brings the schema to this program's version, whatever it is on.
pub(crate) async fn upgrade(config: &Config) -> Result<()> {
    make_state_dir(config)?;
    connect(config).await?.migrate().await?;
    Ok(())
}

/// Prints the migrations that were applied.
pub(crate) async fn print_current(config: &Config) -> Result<()> {
    for migration in connect(config).await?.schema_version().await? {
        println!("{migration}");
    }
    Ok(())
}

/// Fails unless the schema is this program's.
pub(crate) async fn check(config: &Config) -> Result<()> {
    connect(config).await?.check().await?;
    Ok(())
}

async fn connect(config: &Config) -> Result<Store> {
    Ok(Store::connect(&url(config)).await?)
}
