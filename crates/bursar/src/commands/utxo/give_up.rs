//! `bursar utxo give-up`: ends a transaction that was broadcast and can never be mined, as two people have seen.
//!
//! **The nodes are asked first.** What waits at one of them, or could, is not given up: its coins would look free while it may be
//! mined at any time (law 5).

use chain::bitcoin::{BitcoinChain, Prospect};
use chain::{Chain, ChainError};
use custody::bitcoin::{hash_of_block, tx_hash_of};
use domain::Clock;
use serde_json::json;
use store::Db;
use store::utxo::{Hash, InputRow, UtxoError, UtxoRefusal};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};

use super::super::Context;
use super::super::approval::ApprovalArguments;
use super::nodes::{NodeArguments, chain};
use super::{input, known_wallet, shown};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The wallet's name
    wallet: String,
    /// The transaction's hash, as a node prints it
    #[arg(value_parser = input::hash)]
    hash: Hash,
    #[command(flatten)]
    people: ApprovalArguments,
    #[command(flatten)]
    nodes: NodeArguments,
}

pub async fn run(context: &Context, db: &Db, arguments: &Arguments) -> CommandResult {
    let people = arguments.people.approval()?;
    let wallet = known_wallet(db, &arguments.wallet).await?;
    let (hash, now) = (arguments.hash, SystemClock.now());
    let Some(detail) = db.transaction(wallet.id, hash, now).await? else {
        return Err(UtxoError::Refused(UtxoRefusal::UnknownTransaction(hash)).into());
    };
    let (chain, _) = chain(context, db, &arguments.nodes).await?;
    check_nodes(db, &chain, hash, &detail.inputs).await?;
    let changes = db.give_up(hash, &people, now).await?;
    let changed: Vec<_> = changes.transactions.iter().filter(|one| one.wallet == wallet.id).collect();
    let body = json!({
        "wallet": wallet.name, "hash": hash.to_string(), "actor": people.actor(), "second": people.second(),
        "changed": changed.iter().map(|one| shown::change_json(one)).collect::<Vec<_>>(),
    });
    context.print(&body, || {
        let told = match changed.is_empty() {
            true => format!("transaction {hash} was given up already; nothing was changed"),
            false => format!("transaction {hash} is given up; a node that shows it brings it back"),
        };
        told + &shown::changes_of_others(&changed, hash)
    });
    Ok(())
}

/// Refuses what may still be mined as far as the nodes can tell, and whatever they say while the store lacks blocks of theirs.
async fn check_nodes(db: &Db, chain: &BitcoinChain, hash: Hash, inputs: &[InputRow]) -> CommandResult {
    chain.check_network().await.map_err(unanswered)?;
    let nodes = chain.head().await.map_err(unanswered)?.tip;
    let store = db.tip().await?;
    if store.map(|(_, last)| last) != Some(hash_of_block(nodes.hash)) {
        let at = store.map_or_else(|| "at no block".to_owned(), |(height, last)| format!("at block {height} {last}"));
        let message = format!("the wallets are {at}, the nodes at block {} {}", nodes.height, nodes.hash);
        let hint = "bring the wallets up to the nodes' last block first: bursar utxo follow --once";
        return Err(Failure::bad_input("UTXO_NOT_ON_TIP", message, hint));
    }
    let spent: Vec<_> = inputs.iter().map(|one| (tx_hash_of(one.outpoint.hash), one.outpoint.index)).collect();
    let why = match chain.prospect(tx_hash_of(hash), &spent).await.map_err(unanswered)? {
        None => return Ok(()),
        Some(Prospect::Waits) => "it waits in a node's mempool",
        Some(Prospect::Unspent) => "all that it spends is there at a node, so anybody who has it can send it again",
    };
    let message = format!("the transaction {hash} may still be mined: {why}");
    Err(Failure::bad_input("UTXO_MAY_BE_MINED", message, "replace it by one that spends all of its inputs"))
}

fn unanswered(error: ChainError) -> Failure {
    Failure::outside(error.code(), &error, "nothing was changed; the nodes must be asked before anything is given up")
}
