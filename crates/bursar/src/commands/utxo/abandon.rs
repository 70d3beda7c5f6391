//! `bursar utxo abandon`: gives up a transaction that was never broadcast.

use domain::Clock;
use serde_json::json;
use store::Db;
use store::utxo::{Hash, UtxoError, UtxoRefusal};
use terminal::clock::SystemClock;
use terminal::failure::CommandResult;

use super::super::Context;
use super::super::transfer::AuthorArguments;
use super::{input, known_wallet, shown};

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

pub async fn run(context: &Context, db: &Db, arguments: &Arguments) -> CommandResult {
    let wallet = known_wallet(db, &arguments.wallet).await?;
    let (hash, now) = (arguments.hash, SystemClock.now());
    if db.transaction(wallet.id, hash, now).await?.is_none() {
        return Err(UtxoError::Refused(UtxoRefusal::UnknownTransaction(hash)).into());
    }
    let changes = db.abandon(hash, &arguments.author.actor, &arguments.author.reason, now).await?;
    let changed: Vec<_> = changes.transactions.iter().filter(|one| one.wallet == wallet.id).collect();
    let body = changed.iter().map(|one| shown::change_json(one)).collect::<Vec<_>>();
    context.print(&json!({ "wallet": wallet.name, "hash": hash.to_string(), "changed": body }), || {
        let told = match changed.is_empty() {
            true => format!("transaction {hash} had failed already; nothing was changed"),
            false => format!("transaction {hash} is given up"),
        };
        told + &shown::changes_of_others(&changed, hash)
    });
    Ok(())
}
