//! The schema, as steps that only go forward. A step that was released is never changed; a new one is added.
//!
//! MariaDB cannot undo half a step, so a step does nothing where it was done before: one that a crash cut off is
//! finished by running it again.

mod m0001_first;

use sea_orm::{ConnectionTrait, DbBackend};
use sea_orm_migration::prelude::*;

pub(crate) struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![Box::new(m0001_first::Migration)]
    }
}

/// Makes what is not there yet.
async fn create(
    manager: &SchemaManager<'_>,
    tables: Vec<TableCreateStatement>,
    indexes: Vec<IndexCreateStatement>,
) -> Result<(), DbErr> {
    for mut table in tables {
        manager
            .create_table(table.if_not_exists().to_owned())
            .await?;
    }
    for mut index in indexes {
        if manager.get_database_backend() == DbBackend::MySql {
            // MariaDB has the words, the builder of its dialect does not.
            let statement = index.to_string(MysqlQueryBuilder);
            let statement = statement.replacen("INDEX ", "INDEX IF NOT EXISTS ", 1);
            manager
                .get_connection()
                .execute_unprepared(&statement)
                .await?;
        } else {
            manager
                .create_index(index.if_not_exists().to_owned())
                .await?;
        }
    }
    Ok(())
}

/// The same table in the words of one database, so that it behaves as the others: text compares byte by byte, trailing
/// spaces included, and long text has no limit.
fn in_dialect(table: &TableCreateStatement, backend: DbBackend) -> TableCreateStatement {
    let mut statement = Table::create();
    if let Some(name) = table.get_table_name() {
        statement.table(name.clone());
    }
    for column in table.get_columns() {
        let mut column = column.clone();
        match (backend, column.get_column_type()) {
            (DbBackend::MySql, Some(ColumnType::Text)) => {
                column.custom("longtext");
            }
            (DbBackend::Postgres, Some(ColumnType::Text | ColumnType::String(_))) => {
                column.extra("COLLATE \"C\"");
            }
            _ => {}
        }
        statement.col(column);
    }
    for index in table.get_indexes() {
        statement.index(&mut index.clone());
    }
    for key in table.get_foreign_key_create_stmts() {
        statement.foreign_key(&mut key.clone());
    }
    if backend == DbBackend::MySql {
        statement
            .engine("InnoDB")
            .character_set("utf8mb4")
            .collate("utf8mb4_nopad_bin");
    }
    statement
}

/// Every statement of every step, for the test that keeps `schema/*.sql`.
#[cfg(test)]
pub(crate) fn statements(
    backend: DbBackend,
) -> (Vec<TableCreateStatement>, Vec<IndexCreateStatement>) {
    (m0001_first::tables(backend), m0001_first::indexes())
}
