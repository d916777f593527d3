//! Tests on real SQLite files, each in a directory of its own.

mod fixtures;
mod graphs;
mod health;
mod leases;
mod lists;
mod schema;
mod statistics;
