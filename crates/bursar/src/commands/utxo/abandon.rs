//! `bursar utxo abandon`: gives up a transaction that nobody has seen.

use domain::Clock;
use serde_json::json;
use store::Db;
use store::utxo::{Hash, Refusal, UtxoError};

use super::super::Context;
use super::super::transfer::AuthorArguments;
use super::{input, known_wallet};
use crate::clock::SystemClock;
use crate::failure::Outcome;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The wallet's name
    wallet: String,
    /// The transaction's hash, as a node prints it
    #[arg(value_parser = input::hash)]
    hash: Hash,
    #[command(flatten)]
    author: AuthorArguments,
}

pub async fn run(context: &Context, db: &Db, arguments: &Arguments) -> Outcome {
    let wallet = known_wallet(db, &arguments.wallet).await?;
    let (hash, now) = (arguments.hash, SystemClock.now());
    if db.transaction(wallet.id, hash, now).await?.is_none() {
        return Err(UtxoError::Refused(Refusal::UnknownTransaction(hash)).into());
    }
    let changes = db.abandon(hash, &arguments.author.actor, &arguments.author.reason, now).await?;
    let changed: Vec<_> = changes
        .transactions
        .iter()
        .map(|one| json!({ "hash": one.hash.to_string(), "status": one.status.text(), "reason": one.reason }))
        .collect();
    context.print(&json!({ "wallet": wallet.name, "hash": hash.to_string(), "changed": changed }), || {
        match changed.len() {
            0 => format!("transaction {hash} was given up before; nothing was changed"),
            1 => format!("transaction {hash} is given up; what it would have spent is free again"),
            more => format!(
                "transaction {hash} is given up; what it would have spent is free again\n{} more have changed with it: \
                 bursar utxo tx {} {hash}",
                more - 1,
                wallet.name
            ),
        }
    });
    Ok(())
}
