//! The store's behaviour, each test on SQLite and on PostgreSQL.

mod audit;
mod catalog;
mod constraints;
mod faults;
mod ledger;
mod model;
mod schema;
mod support;
