//! A database that is a test's own.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a failing unwrap is a failing test"
)]

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use sea_orm::{
    ConnectionTrait, Database, DatabaseConnection, DbBackend, Statement, TransactionTrait,
};
use tempfile::TempDir;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::Store;

/// The server whose databases tests use.
const VARIABLE: &str = "LB_TEST_DATABASE";

/// Tables that are not data.
const KEPT: [&str; 2] = ["seaql_migrations", "schema_lock"];

/// A database; it goes with the value, or is emptied and used again.
#[derive(Debug)]
pub struct TestDatabase {
    url: String,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// In a directory of its own.
    File { _directory: TempDir },
    /// Given back when dropped.
    Shared { name: String },
    /// Removed when dropped.
    Own { server: String, name: String },
}

/// Databases of this process with the schema, that nobody uses now; and how many were made.
static FREE: Mutex<(Vec<String>, usize)> = Mutex::new((Vec::new(), 0));

impl TestDatabase {
    /// With this program's schema and no rows.
    pub async fn new() -> Self {
        let Some(server) = server() else {
            return Self::sqlite().await;
        };
        let (name, known) = take_free();
        let url = with_name(&server, &name);
        if !known {
            let admin = administrator(&server).await;
            create(&admin, &name).await;
            close(admin).await;
        }
        let store = Store::connect(&url)
            .await
            .expect("connect to a test database");
        store.migrate().await.expect("migrate a test database");
        empty_tables(store.connection()).await;
        store.close().await;
        Self {
            url,
            place: Place::Shared { name },
        }
    }

    /// With nothing in it.
    pub async fn empty() -> Self {
        let Some(server) = server() else {
            return file(&[]);
        };
        let name = format!("lb_{}", Uuid::new_v4().simple());
        let admin = administrator(&server).await;
        create(&admin, &name).await;
        close(admin).await;
        Self {
            url: with_name(&server, &name),
            place: Place::Own { server, name },
        }
    }

    /// As [`TestDatabase::new`], in SQLite whatever the run asks for.
    pub async fn sqlite() -> Self {
        static TEMPLATE: OnceCell<Vec<u8>> = OnceCell::const_new();
        let template = TEMPLATE
            .get_or_init(|| async {
                let database = file(&[]);
                let store = database.store().await;
                store.migrate().await.expect("migrate a test database");
                store.close().await;
                std::fs::read(path(&database.url)).expect("read the template")
            })
            .await;
        file(template)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// A store with a pool of its own, as another process would have it.
    pub async fn store(&self) -> Store {
        Store::connect(&self.url)
            .await
            .expect("connect to a test database")
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        match &self.place {
            Place::File { .. } => {}
            Place::Shared { name } => free().0.push(name.clone()),
            Place::Own { server, name } => {
                let (server, name) = (server.clone(), name.clone());
                let dropped = std::thread::spawn(move || {
                    tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .expect("make a runtime")
                        .block_on(async {
                            let admin = administrator(&server).await;
                            drop_database(&admin, &name).await;
                            close(admin).await;
                        });
                });
                // The server goes after the tests, and the database with it.
                let _ = dropped.join();
            }
        }
    }
}

fn server() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|url| !url.is_empty())
}

fn with_name(server: &str, name: &str) -> String {
    let (base, options) = server.split_once('?').unwrap_or((server, ""));
    format!("{}/{name}?{options}", base.trim_end_matches('/'))
}

fn free() -> std::sync::MutexGuard<'static, (Vec<String>, usize)> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name nobody uses at the same time, and whether this process made such a database before: tests that run at once
/// have different slots, or are one process.
fn take_free() -> (String, bool) {
    let mut free = free();
    if let Some(name) = free.0.pop() {
        return (name, true);
    }
    free.1 += 1;
    let number = free.1;
    let name = match std::env::var("NEXTEST_TEST_GLOBAL_SLOT") {
        Ok(slot) => format!("lb_slot_{slot}_{number}"),
        Err(_) => format!("lb_process_{}_{number}", std::process::id()),
    };
    (name, false)
}

/// A file with this content. In memory where there is some: tests are about order, not about disks.
fn file(content: &[u8]) -> TestDatabase {
    let directory = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("make a directory");
    let url = format!("sqlite://{}", directory.path().join("lb.sqlite").display());
    if !content.is_empty() {
        std::fs::write(path(&url), content).expect("write the template");
    }
    TestDatabase {
        url,
        place: Place::File {
            _directory: directory,
        },
    }
}

fn path(url: &str) -> PathBuf {
    PathBuf::from(url.trim_start_matches("sqlite://"))
}

async fn administrator(server: &str) -> DatabaseConnection {
    let url = if server.starts_with("postgres") {
        with_name(server, "postgres")
    } else {
        server.to_owned()
    };
    let mut options = sea_orm::ConnectOptions::new(url);
    options.max_connections(1).sqlx_logging(false);
    Database::connect(options)
        .await
        .expect("connect to the server of LB_TEST_DATABASE")
}

async fn close(connection: DatabaseConnection) {
    connection.close().await.expect("close a connection");
}

async fn create(admin: &DatabaseConnection, name: &str) {
    if admin.get_database_backend() == DbBackend::MySql {
        run(admin, &format!("CREATE DATABASE IF NOT EXISTS {name}")).await;
        return;
    }
    let found = format!("SELECT 1 FROM pg_database WHERE datname = '{name}'");
    if rows(admin, found).await.is_empty() {
        run(admin, &format!("CREATE DATABASE {name}")).await;
    }
}

async fn drop_database(admin: &DatabaseConnection, name: &str) {
    let force = match admin.get_database_backend() {
        DbBackend::Postgres => " WITH (FORCE)",
        _ => "",
    };
    run(admin, &format!("DROP DATABASE IF EXISTS {name}{force}")).await;
}

/// Deletes all rows; foreign keys would dictate an order.
async fn empty_tables(connection: &DatabaseConnection) {
    let (schema, off, on) = match connection.get_database_backend() {
        DbBackend::MySql => (
            "database()",
            "SET SESSION foreign_key_checks = 0",
            "SET SESSION foreign_key_checks = 1",
        ),
        _ => (
            "current_schema()",
            "SET SESSION session_replication_role = replica",
            "SET SESSION session_replication_role = origin",
        ),
    };
    let tables = format!(
        "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = {schema}"
    );
    let tables = rows(connection, tables).await;
    // One connection for all of it.
    let transaction = connection.begin().await.expect("begin");
    run(&transaction, off).await;
    for row in tables {
        let name: String = row.try_get("", "name").expect("the name of a table");
        if !KEPT.contains(&name.as_str()) {
            run(&transaction, &format!("DELETE FROM {name}")).await;
        }
    }
    run(&transaction, on).await;
    transaction.commit().await.expect("commit");
}

async fn run<C: ConnectionTrait>(connection: &C, statement: &str) {
    if let Err(error) = connection.execute_unprepared(statement).await {
        panic!("{statement}: {error}");
    }
}

async fn rows(connection: &DatabaseConnection, statement: String) -> Vec<sea_orm::QueryResult> {
    let statement = Statement::from_string(connection.get_database_backend(), statement);
    connection.query_all_raw(statement).await.expect("a query")
}
