use std::collections::BTreeSet;

use sea_orm::sea_query::{
    MysqlQueryBuilder, PostgresQueryBuilder, SchemaBuilder, SqliteQueryBuilder,
};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, IdenStatic, Iterable, Statement,
};
use sea_orm_migration::MigratorTrait;

use super::fixtures::database;
use crate::StoreError;
use crate::tables;

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

#[tokio::test]
async fn all_migrations_make_the_schema_on_file() {
    let database = database().await;
    let migrated = database.store;
    let directory = tempfile::tempdir().unwrap();
    let url = format!(
        "sqlite://{}",
        directory.path().join("fresh.sqlite").display()
    );
    let fresh = crate::Store::connect(&url).await.unwrap();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/sqlite.sql");
    let script = std::fs::read_to_string(path).unwrap();
    fresh.db.execute_unprepared(&script).await.unwrap();
    let dump = async |store: &crate::Store| {
        let rows = store
            .db
            .query_all_raw(Statement::from_string(
                DbBackend::Sqlite,
                "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name <> 'seaql_migrations' ORDER BY name",
            ))
            .await
            .unwrap();
        rows.iter()
            .map(|row| {
                let sql: String = row.try_get("", "sql").unwrap();
                sql.split_whitespace().collect::<Vec<_>>().join(" ")
            })
            .collect::<Vec<_>>()
    };
    let expected = dump(&fresh).await;
    assert!(expected.len() > 30, "{}", expected.len());
    assert_eq!(dump(&migrated).await, expected);
}

#[tokio::test]
async fn every_table_has_the_columns_of_its_entity() {
    async fn compare<E: EntityTrait>(store: &crate::Store, entity: E) {
        let name = entity.table_name().to_owned();
        let rows = store
            .db
            .query_all_raw(Statement::from_string(
                DbBackend::Sqlite,
                format!("SELECT name, \"notnull\" FROM pragma_table_info('{name}')"),
            ))
            .await
            .unwrap();
        let there: BTreeSet<(String, bool)> = rows
            .iter()
            .map(|row| {
                let required: i64 = row.try_get("", "notnull").unwrap();
                (row.try_get("", "name").unwrap(), required == 1)
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
}

#[tokio::test]
async fn check_tells_an_older_and_a_newer_schema() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", directory.path().join("lb.sqlite").display());
    let store = crate::Store::connect(&url).await.unwrap();
    crate::migrations::Migrator::install(&store.db)
        .await
        .unwrap();
    assert!(
        matches!(store.check().await, Err(StoreError::SchemaBehind(names)) if !names.is_empty())
    );
    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    store
        .db
        .execute_unprepared("INSERT INTO seaql_migrations VALUES ('m9999_future', 0)")
        .await
        .unwrap();
    assert!(matches!(
        store.check().await,
        Err(StoreError::SchemaAhead(names)) if names == ["m9999_future"]
    ));
}
