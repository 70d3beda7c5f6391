//! The wallets that the treasury file pins, and whether the database has the same ones.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use custody::wallet::{Pinned, WalletRows, compare_settings};
use store::Db;
use store::catalog::read_catalog;
use store::error::Causes;
use store::wallet::read_wallet_settings;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::files::read_pinned;

use crate::config::Config;
use crate::treasury;

/// The groups and operation wallets of `treasury.file`. None, if there is no such file.
pub async fn pinned(config: &Config, db: &Db) -> Result<Arc<Pinned>, Failure> {
    let file = &config.treasury.file;
    if file.is_empty() {
        return Ok(Arc::default());
    }
    let text = read_pinned(Path::new(file))?;
    let known = read_catalog(&mut db.read().await?).await?;
    Ok(Arc::new(treasury::parse(&text, file, &known)?.pinned))
}

/// Before anything is served: the rows of groups and operation wallets are those of the treasury file, in two statements.
pub async fn check(config: &Config, db: &Db, pinned: &Pinned) -> CommandResult {
    let rows = read_wallet_settings(&mut db.read().await?).await?;
    let differ = compare_settings(pinned, &rows);
    let Some(first) = differ.first() else { return Ok(()) };
    let file = &config.treasury.file;
    let hint = if file.is_empty() {
        "name the treasury file that bursar apply was given: treasury.file in the configuration".to_owned()
    } else {
        format!("if {file} was changed on purpose: bursar apply {file}; else the database was: bursar wallet verify")
    };
    let message = format!(
        "the database's wallets are not those of the treasury file, in {} places; the first: {}: {}",
        differ.len(),
        first.row,
        first.what
    );
    Err(Failure { code: "WALLET_GROUPS_DIFFER".into(), messages: vec![message], hint, exit: Exit::Found })
}

/// Goes through the rows of the wallets, a page at a time, for ever. What differs is an alert, and in `/metrics`.
pub async fn watch(rows: Arc<WalletRows>, db: Db, pinned: Arc<Pinned>, pause: Duration) {
    loop {
        // Readiness tells of a database that is away; the next look finds what this one has missed.
        if let Err(error) = rows.look(&db, &pinned).await {
            tracing::debug!(code = error.code(), error = %Causes(&error), "rows of the wallets could not be checked");
        }
        tokio::time::sleep(pause).await;
    }
}
