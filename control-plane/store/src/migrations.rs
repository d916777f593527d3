//! The schema, as steps that only go forward. A step that was released is never changed; a new one is added.

mod m0001_first;

use sea_orm_migration::prelude::*;

pub(crate) struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![Box::new(m0001_first::Migration)]
    }
}

/// Every statement of every step, for the test that keeps `schema/*.sql`.
#[cfg(test)]
pub(crate) fn statements(
    backend: sea_orm::DbBackend,
) -> (Vec<TableCreateStatement>, Vec<IndexCreateStatement>) {
    (m0001_first::tables(backend), m0001_first::indexes())
}
