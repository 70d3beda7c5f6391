//! `bursar chain rescan`, `resume` and `rewind`: what people order the worker of a chain to do.

use std::sync::Arc;

use domain::utxo::Hash;
use domain::{ChainName, Clock};
use serde_json::json;
use store::Db;
use store::catalog::read_catalog;
use store::entry::{ChainRow, OrderRefusal};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};

use super::super::Context;
use super::super::approval::ApprovalArguments;
use crate::chains::{open, unknown};

/// So many of the newest blocks that have paid us are held against the quorum's before a chain goes back.
const COMPARED: i64 = 50;

#[derive(Debug, clap::Args)]
pub struct RescanArguments {
    chain: String,
    /// The first block to read again
    #[arg(required_unless_present = "stop")]
    from: Option<u64>,
    /// The last one
    #[arg(required_unless_present = "stop")]
    to: Option<u64>,
    /// Read nothing again any more
    #[arg(long, conflicts_with_all = ["from", "to"])]
    stop: bool,
}

#[derive(Debug, clap::Args)]
pub struct ResumeArguments {
    chain: String,
    /// Why, for the history
    #[arg(long)]
    reason: String,
    /// Who does this
    #[arg(long, env = "BURSAR_ACTOR")]
    actor: String,
}

#[derive(Debug, clap::Args)]
pub struct RewindArguments {
    chain: String,
    /// The last block that is right
    #[arg(long, value_name = "HEIGHT")]
    to: u64,
    #[command(flatten)]
    people: ApprovalArguments,
}

pub async fn chain_row(db: &Db, name: &str) -> Result<ChainRow, Failure> {
    let known = match name.parse::<ChainName>() {
        Ok(name) => db.chain(&name).await?,
        Err(_) => None,
    };
    match known {
        Some(row) => Ok(row),
        None => Err(unknown(name, &read_catalog(&mut db.read().await?).await?)),
    }
}

fn refused(chain: &ChainRow, refusal: &OrderRefusal) -> Failure {
    let (code, hint) = match refusal {
        OrderRefusal::NotBegun => ("CHAIN_NOT_BEGUN", "bursar run deposits begins them".to_owned()),
        OrderRefusal::OutOfRange { .. } => {
            ("INVALID_BLOCKS", format!("bursar chain status shows how far {} is proven", chain.name))
        }
        OrderRefusal::Bitcoin => ("INVALID_CHAIN", "see bursar utxo follow --help: --rescan-from".to_owned()),
        OrderRefusal::PartsBelow { .. } => ("INVALID_BLOCKS", "name an earlier block".to_owned()),
        OrderRefusal::NotHalted => ("CHAIN_NOT_HALTED", "there is nothing to do".to_owned()),
    };
    Failure::bad_input(code, format!("{}: {refusal}", chain.name), hint)
}

pub async fn rescan(context: &Context, db: &Db, arguments: &RescanArguments) -> CommandResult {
    let row = chain_row(db, &arguments.chain).await?;
    let name = row.name.as_str();
    let (Some(from), Some(to)) = (arguments.from, arguments.to) else {
        let stopped = db.stop_rescan(&row, SystemClock.now()).await?;
        let words = if stopped { "reads no old blocks any more" } else { "was reading no old blocks" };
        context.print(&json!({ "chain": name, "stopped": stopped }), || format!("{name} {words}"));
        return Ok(());
    };
    db.order_rescan(&row, (from, to), SystemClock.now()).await?.map_err(|refusal| refused(&row, &refusal))?;
    context.print(&json!({ "chain": name, "from": from, "to": to }), || {
        format!(
            "{name}: blocks {from} to {to} will be read again by its worker; bursar chain status shows how far it is"
        )
    });
    Ok(())
}

pub async fn resume(context: &Context, db: &Db, arguments: &ResumeArguments) -> CommandResult {
    let row = chain_row(db, &arguments.chain).await?;
    let (actor, reason) = (arguments.actor.trim(), arguments.reason.trim());
    if actor.is_empty() || reason.is_empty() {
        let hint = "--actor ann --reason \"the nodes are mended\"";
        return Err(Failure::bad_input("REASON_MISSING", "somebody has to say why", hint));
    }
    let done = db.resume_chain(&row, (actor, reason), SystemClock.now()).await?;
    done.map_err(|refusal| refused(&row, &refusal))?;
    let name = row.name.as_str();
    context.print(&json!({ "chain": name, "resumed": true }), || {
        format!("{name} goes on where it was; if its nodes still part from it, it halts again")
    });
    Ok(())
}

pub async fn rewind(context: &Context, db: &Db, arguments: &RewindArguments) -> CommandResult {
    let row = chain_row(db, &arguments.chain).await?;
    let people = arguments.people.approval()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let followed = open(&context.config, db, &clock).await?;
    let Some(mine) = followed.iter().find(|chain| chain.row.name == row.name) else {
        let message = format!("{} has no nodes in the configuration: nobody can say what its block is", row.name);
        return Err(Failure::bad_input("CONFIG_INVALID", message, "see chains in examples/bursar.toml"));
    };
    // What a quorum has there: from it on blocks are read anew. What was read below it must be the quorum's too.
    let asked = mine.client.shared();
    let below = db.entry_blocks(row.id, arguments.to, COMPARED).await?;
    let heights: Vec<u64> = [arguments.to].into_iter().chain(below.iter().map(|(height, _)| *height)).collect();
    let headers = asked.headers(&heights).await;
    let headers = headers.map_err(|error| Failure::outside(error.code(), &error, "see bursar chain check"))?;
    let parts = below.iter().zip(headers.iter().skip(1)).find(|((_, ours), theirs)| ours.0 != theirs.hash.0);
    if let Some(((height, _), _)) = parts {
        return Err(refused(&row, &OrderRefusal::PartsBelow { height: *height }));
    }
    let Some(header) = headers.first() else {
        let message = format!("no quorum has block {}", arguments.to);
        return Err(Failure::bad_input("CHAIN_BLOCK_MISSING", message, "see bursar chain check"));
    };
    let (height, hash) = (arguments.to, Hash(header.hash.0));
    let done = db.rewind_chain(&row, (height, hash), &people, SystemClock.now()).await?;
    let count = done.map_err(|refusal| refused(&row, &refusal))?;
    let name = row.name.as_str();
    context.print(
        &json!({ "chain": name, "block": height, "hash": header.hash.to_string(), "taken_back": count }),
        || {
            format!(
                "{name} stands on block {height} again, {count} entries were taken back; its worker goes on from there"
            )
        },
    );
    Ok(())
}
