//! Which schema a database has, and bringing it to this program's.
//!
//! Replicas may upgrade at once: one of them does, the others wait. The right to is a row, as a lock of the database's
//! own would not hold across the nodes of a Galera cluster. Its holder raises `beat` while it works; one whose beat
//! stands still is dead, and another one goes on where it ended.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use sea_orm::sea_query::{ColumnDef, Expr, ExprTrait, OnConflict, Order, Query, Table};
use sea_orm::{ConnectionTrait, DbErr};
use sea_orm_migration::{MigratorTrait, SchemaManager};
use uuid::Uuid;

use crate::error::Failure;
use crate::migrations::Migrator;
use crate::{Store, StoreError};

const MIGRATIONS: &str = "seaql_migrations";
const LOCK: &str = "schema_lock";
/// Time between beats of a holder, and between looks of those who wait.
const BEAT: Duration = Duration::from_millis(200);
/// Without a beat for so long a holder is dead.
const DEAD: Duration = Duration::from_secs(15);
/// Makers of the lock's table may meet.
const TRIES: u32 = 10;

impl Store {
    /// Brings the schema to this program's version. Does nothing when it is there; refuses one of a newer program.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        match self.check().await {
            Err(StoreError::SchemaBehind(_)) => {}
            answer => return answer,
        }
        let _turn = self.writer_turn().await;
        let lock = Lock::take(self).await.map_err(StoreError::Migrate)?;
        let upgraded = tokio::select! {
            upgraded = Migrator::up(self.connection(), None) => upgraded,
            lost = lock.hold() => match lost { Err(error) => Err(error), Ok(never) => match never {} },
        };
        lock.release().await;
        upgraded.map_err(StoreError::Migrate)
    }

    /// That the database answers and has exactly this program's schema.
    pub async fn check(&self) -> Result<(), StoreError> {
        let known: Vec<String> = Migrator::migrations()
            .iter()
            .map(|migration| migration.name().to_owned())
            .collect();
        let applied = self.schema_version().await?;
        let without = |names: &[String], others: &[String]| -> Vec<String> {
            names
                .iter()
                .filter(|name| !others.contains(name))
                .cloned()
                .collect()
        };
        let unknown = without(&applied, &known);
        if !unknown.is_empty() {
            return Err(StoreError::SchemaAhead(unknown));
        }
        let missing = without(&known, &applied);
        if !missing.is_empty() {
            return Err(StoreError::SchemaBehind(missing));
        }
        Ok(())
    }

    /// Names of the migrations the database has, in order. Asks for no right but that to read.
    pub async fn schema_version(&self) -> Result<Vec<String>, StoreError> {
        if !SchemaManager::new(self.connection())
            .has_table(MIGRATIONS)
            .await?
        {
            return Ok(Vec::new());
        }
        let mut select = Query::select();
        select
            .column("version")
            .from(MIGRATIONS)
            .order_by("version", Order::Asc);
        self.db
            .query_all(&select)
            .await?
            .iter()
            .map(|row| Ok(row.try_get("", "version")?))
            .collect()
    }
}

/// The right to upgrade.
struct Lock<'a> {
    store: &'a Store,
    owner: String,
}

/// What the lock's row says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    owner: Option<String>,
    beat: i64,
}

impl<'a> Lock<'a> {
    /// Waits for the holder there is.
    async fn take(store: &'a Store) -> Result<Self, DbErr> {
        prepare(store).await?;
        let lock = Self {
            store,
            owner: Uuid::new_v4().to_string(),
        };
        let mut seen: Option<(State, Instant)> = None;
        loop {
            let state = read(store).await?;
            let since = match &seen {
                Some((last, since)) if *last == state => *since,
                _ => Instant::now(),
            };
            if state.owner.is_none() || since.elapsed() >= DEAD {
                if lock.write(&state, Some(&lock.owner)).await? {
                    return Ok(lock);
                }
            } else if seen.is_none() {
                tracing::info!("another process upgrades the schema, waiting for it");
            }
            seen = Some((state, since));
            tokio::time::sleep(BEAT).await;
        }
    }

    /// Beats; returns when the lock is lost.
    async fn hold(&self) -> Result<Infallible, DbErr> {
        loop {
            tokio::time::sleep(BEAT).await;
            // SQLite has one writer, and that is the upgrade; it needs no beat, either: it takes far less than `DEAD`.
            if self.store.backend() == sea_orm::DbBackend::Sqlite {
                continue;
            }
            let state = read(self.store).await?;
            if state.owner.as_deref() != Some(&self.owner) {
                return Err(DbErr::Custom(
                    "another process took over the upgrade".to_owned(),
                ));
            }
            // When another one was faster the next look tells.
            self.write(&state, Some(&self.owner)).await?;
        }
    }

    async fn release(&self) {
        let released = async {
            let state = read(self.store).await?;
            if state.owner.as_deref() == Some(&self.owner) {
                self.write(&state, None).await?;
            }
            Ok::<(), DbErr>(())
        };
        if let Err(error) = released.await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "give back the right to upgrade; it runs out"
            );
        }
    }

    /// Compare-and-set of the row.
    async fn write(&self, before: &State, owner: Option<&str>) -> Result<bool, DbErr> {
        let mut update = Query::update();
        update
            .table(LOCK)
            .value("owner", owner)
            .value("beat", before.beat.wrapping_add(1))
            .and_where(Expr::col("id").eq(1))
            .and_where(Expr::col("beat").eq(before.beat));
        match self.store.connection().execute(&update).await {
            Ok(result) => Ok(result.rows_affected() == 1),
            // Another node's write came first.
            Err(error) if Failure::of(&error) == Failure::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Makes the row exist.
async fn prepare(store: &Store) -> Result<(), DbErr> {
    let mut table = Table::create();
    table
        .table(LOCK)
        .if_not_exists()
        .col(ColumnDef::new("id").integer().not_null().primary_key())
        .col(ColumnDef::new("owner").string_len(36).null())
        .col(ColumnDef::new("beat").big_integer().not_null());
    let mut row = Query::insert();
    row.into_table(LOCK)
        .columns(["id", "owner", "beat"])
        .values_panic([1.into(), Option::<String>::None.into(), 0_i64.into()])
        .on_conflict(OnConflict::column("id").update_column("id").to_owned());
    let mut tries = 0;
    loop {
        let made = async {
            store.connection().execute(&table).await?;
            store.connection().execute(&row).await
        };
        match made.await {
            Ok(_) => return Ok(()),
            Err(error) if tries >= TRIES => return Err(error),
            Err(_) => tokio::time::sleep(BEAT / 2).await,
        }
        tries += 1;
    }
}

async fn read(store: &Store) -> Result<State, DbErr> {
    let mut select = Query::select();
    select
        .columns(["owner", "beat"])
        .from(LOCK)
        .and_where(Expr::col("id").eq(1));
    let row = store.connection().query_one(&select).await?;
    let row = row.ok_or_else(|| DbErr::Custom("the row of the schema lock is gone".to_owned()))?;
    Ok(State {
        owner: row.try_get("", "owner")?,
        beat: row.try_get("", "beat")?,
    })
}
