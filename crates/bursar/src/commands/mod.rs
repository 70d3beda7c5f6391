//! One file per command. Each reads its arguments, talks to the store, and prints a table or JSON.

pub mod account;
pub mod adjust;
pub mod apply;
pub mod approval;
pub mod approve;
pub mod audit;
pub mod balances;
pub mod chain;
pub mod checkpoint;
pub mod config;
pub mod copy;
pub mod deposit;
#[cfg(feature = "lab")]
pub mod devnet;
pub mod explain;
pub mod grants;
pub mod import;
pub mod job;
pub mod journal;
pub mod lane;
pub mod migrate;
pub mod openapi;
pub mod operator;
pub mod policy;
pub mod reconcile;
pub mod rule;
pub mod run;
pub mod serve;
pub mod signer;
pub mod spot;
pub mod stops;
pub mod token;
pub mod transfer;
pub mod treasury;
pub mod utxo;
pub mod wallet;
pub mod withdrawal;

use std::path::PathBuf;

use domain::{Amount, Precision};
use store::Db;
use terminal::failure::Failure;
use terminal::output::say;

use crate::config::Config;

/// What every command is given.
pub struct Context {
    pub config: Config,
    /// The file that the configuration was read from. `None`: there is none, and every setting has its default.
    pub file: Option<PathBuf>,
    pub json: bool,
}

impl Context {
    /// A database with exactly the schema that this program knows.
    pub async fn open(&self) -> Result<Db, Failure> {
        let db = Db::connect(&self.config.database.url, &self.config.store_options()).await?;
        db.check_schema().await?;
        Ok(db)
    }

    /// JSON when it was asked for, else the text.
    pub fn print(&self, json: &serde_json::Value, text: impl FnOnce() -> String) {
        if self.json {
            say(json);
        } else {
            say(text());
        }
    }
}

/// Ledger units as a decimal string of the asset. A sum beyond 64 bits is shown in units: it is never cut.
pub fn decimal(units: i128, precision: Precision) -> String {
    match i64::try_from(units) {
        Ok(units) => Amount::from_units(units).display(precision).to_string(),
        Err(_) => format!("{units} units"),
    }
}
