//! Tests on real SQLite files, each in a directory of its own.

mod fixtures;
mod graphs;
mod health;
mod leases;
mod lists;
mod offers;
mod quotas;
mod receipts;
mod schema;
mod statistics;
