//! For tests: fresh databases on whatever server the run asks for, and faults in transactions.
//!
//! `LB_TEST_DATABASE` names a server, `mysql://user@host/?options` or `postgres://…`; without it each database is a
//! SQLite file. The same tests run on all three (`cargo xtask test-on mariadb`).

mod database;
mod faults;

pub use database::TestDatabase;
pub use faults::{FaultPlan, StoreFaults};
