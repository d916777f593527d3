use std::collections::BTreeSet;

use sea_orm::sea_query::{
    MysqlQueryBuilder, PostgresQueryBuilder, SchemaBuilder, SqliteQueryBuilder,
};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, IdenStatic, Iterable, QueryResult,
    Statement,
};

use super::fixtures::database;
use crate::testing::TestDatabase;
use crate::{Store, StoreError, tables};

/// The schema as text, for each database. `UPDATE_SCHEMA=1` writes the files anew; the change is then for review.
#[test]
fn the_schema_of_each_database_is_the_one_on_file() {
    fn text<B: SchemaBuilder>(backend: DbBackend, builder: impl Fn() -> B) -> String {
        let (tables, indexes) = crate::migrations::statements(backend);
        let mut lines: Vec<String> = tables
            .iter()
            .map(|table| table.to_string(builder()))
            .collect();
        lines.extend(indexes.iter().map(|index| index.to_string(builder())));
        let mut text = lines
            .join(";\n")
            .replace(", \"", ",\n  \"")
            .replace(", `", ",\n  `");
        text.push_str(";\n");
        text
    }
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    for (name, text) in [
        ("sqlite.sql", text(DbBackend::Sqlite, || SqliteQueryBuilder)),
        ("mysql.sql", text(DbBackend::MySql, || MysqlQueryBuilder)),
        (
            "postgres.sql",
            text(DbBackend::Postgres, || PostgresQueryBuilder),
        ),
    ] {
        let path = directory.join(name);
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let on_file = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, on_file, "{name}");
    }
}

/// Lines that say everything of the tables, their columns, indexes and keys.
async fn described(store: &Store) -> Vec<String> {
    let statement = match store.backend() {
        DbBackend::Sqlite => {
            "SELECT sql AS line FROM sqlite_master WHERE sql IS NOT NULL \
             AND tbl_name NOT IN ('seaql_migrations', 'schema_lock')"
        }
        DbBackend::MySql => {
            "SELECT CONCAT_WS(' ', table_name, column_name, column_type, is_nullable, \
                 COALESCE(collation_name, ''), column_key) AS line \
             FROM information_schema.columns WHERE table_schema = database() \
             AND table_name NOT IN ('seaql_migrations', 'schema_lock') \
             UNION ALL SELECT CONCAT_WS(' ', table_name, index_name, seq_in_index, column_name, non_unique) \
             FROM information_schema.statistics WHERE table_schema = database() \
             AND table_name NOT IN ('seaql_migrations', 'schema_lock') \
             UNION ALL SELECT CONCAT_WS(' ', constraint_name, table_name, column_name, referenced_table_name) \
             FROM information_schema.key_column_usage WHERE table_schema = database() \
             AND referenced_table_name IS NOT NULL"
        }
        _ => {
            "SELECT CONCAT_WS(' ', table_name, column_name, data_type, character_maximum_length, \
                 is_nullable, collation_name) AS line \
             FROM information_schema.columns WHERE table_schema = current_schema() \
             AND table_name NOT IN ('seaql_migrations', 'schema_lock') \
             UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() \
             AND tablename NOT IN ('seaql_migrations', 'schema_lock') \
             UNION ALL SELECT CONCAT_WS(' ', conrelid::regclass, conname, pg_get_constraintdef(oid)) \
             FROM pg_constraint WHERE connamespace = current_schema()::regnamespace AND contype = 'f'"
        }
    };
    let mut lines: Vec<String> = rows(store, statement)
        .await
        .iter()
        .map(|row| {
            let line: String = row.try_get("", "line").unwrap();
            line.split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .replace(" IF NOT EXISTS ", " ")
        })
        .collect();
    lines.sort();
    lines
}

async fn rows(store: &Store, statement: &str) -> Vec<QueryResult> {
    let statement = Statement::from_string(store.backend(), statement);
    store.connection().query_all_raw(statement).await.unwrap()
}

#[tokio::test]
async fn all_migrations_make_the_schema_on_file() {
    let migrated = database().await.store;
    let empty = TestDatabase::empty().await;
    let fresh = empty.store().await;
    let name = match fresh.backend() {
        DbBackend::Sqlite => "sqlite.sql",
        DbBackend::MySql => "mysql.sql",
        _ => "postgres.sql",
    };
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("schema")
        .join(name);
    let script = std::fs::read_to_string(path).unwrap();
    for statement in script.split(";\n").filter(|text| !text.trim().is_empty()) {
        fresh
            .connection()
            .execute_unprepared(statement)
            .await
            .unwrap();
    }
    let expected = described(&fresh).await;
    assert!(expected.len() > 30, "{}", expected.len());
    assert_eq!(described(&migrated).await, expected);
    fresh.close().await;
}

#[tokio::test]
async fn every_table_has_the_columns_of_its_entity() {
    async fn compare<E: EntityTrait>(store: &Store, entity: E) {
        let name = entity.table_name().to_owned();
        let statement = match store.backend() {
            DbBackend::Sqlite => format!(
                "SELECT name, CASE \"notnull\" WHEN 1 THEN 'NO' ELSE 'YES' END AS nullable \
                 FROM pragma_table_info('{name}')"
            ),
            DbBackend::MySql => format!(
                "SELECT column_name AS name, is_nullable AS nullable FROM information_schema.columns \
                 WHERE table_schema = database() AND table_name = '{name}'"
            ),
            _ => format!(
                "SELECT column_name::text AS name, is_nullable::text AS nullable \
                 FROM information_schema.columns \
                 WHERE table_schema = current_schema() AND table_name = '{name}'"
            ),
        };
        let there: BTreeSet<(String, bool)> = rows(store, &statement)
            .await
            .iter()
            .map(|row| {
                let nullable: String = row.try_get("", "nullable").unwrap();
                (row.try_get("", "name").unwrap(), nullable == "NO")
            })
            .collect();
        let meant: BTreeSet<(String, bool)> = E::Column::iter()
            .map(|column| (column.as_str().to_owned(), !column.def().is_null()))
            .collect();
        assert_eq!(there, meant, "{name}");
    }
    let database = database().await;
    let store = database.store;
    compare(&store, tables::load_balancer::Entity).await;
    compare(&store, tables::listener::Entity).await;
    compare(&store, tables::pool::Entity).await;
    compare(&store, tables::member::Entity).await;
    compare(&store, tables::health_monitor::Entity).await;
    compare(&store, tables::l7policy::Entity).await;
    compare(&store, tables::l7rule::Entity).await;
    compare(&store, tables::amphora::Entity).await;
    compare(&store, tables::amphora_health::Entity).await;
    compare(&store, tables::listener_statistics::Entity).await;
    compare(&store, tables::reconcile_outcome::Entity).await;
    compare(&store, tables::tag::Entity).await;
    compare(&store, tables::quota::Entity).await;
    compare(&store, tables::receipt::Entity).await;
    compare(&store, tables::offer::flavor::Entity).await;
    compare(&store, tables::offer::flavor_profile::Entity).await;
    compare(&store, tables::offer::availability_zone::Entity).await;
    compare(&store, tables::offer::availability_zone_profile::Entity).await;
}

#[tokio::test]
async fn check_tells_an_older_and_a_newer_schema() {
    let empty = TestDatabase::empty().await;
    let store = empty.store().await;
    assert!(
        matches!(store.check().await, Err(StoreError::SchemaBehind(names)) if !names.is_empty())
    );
    assert_eq!(store.schema_version().await.unwrap(), Vec::<String>::new());
    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    store
        .connection()
        .execute_unprepared("INSERT INTO seaql_migrations VALUES ('m9999_future', 0)")
        .await
        .unwrap();
    for answer in [store.check().await, store.migrate().await] {
        assert!(matches!(
            answer,
            Err(StoreError::SchemaAhead(names)) if names == ["m9999_future"]
        ));
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_at_once_make_one_schema() {
    let empty = TestDatabase::empty().await;
    let mut upgrades = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let store = empty.store().await;
        upgrades.spawn(async move {
            store.migrate().await.unwrap();
            store.check().await.unwrap();
            store.close().await;
        });
    }
    upgrades.join_all().await;
    let store = empty.store().await;
    assert_eq!(
        described(&store).await,
        described(&database().await.store).await
    );
    store.close().await;
}

#[tokio::test]
async fn an_upgrade_that_died_half_way_is_finished_by_the_next() {
    let empty = TestDatabase::empty().await;
    let store = empty.store().await;
    let (tables, indexes) = crate::migrations::statements(store.backend());
    for table in &tables {
        store.connection().execute(table).await.unwrap();
    }
    for index in indexes.iter().take(indexes.len() / 2) {
        store.connection().execute(index).await.unwrap();
    }
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    assert_eq!(
        described(&store).await,
        described(&database().await.store).await
    );
    store.close().await;
}
