//! `bursar utxo label`: names for transactions and addresses.

use domain::Clock;
use serde_json::json;
use store::Db;
use store::utxo::Wallet;
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};

use super::super::Context;
use super::super::transfer::said;
use super::{input, known_wallet};

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    Tx,
    Address,
}

#[derive(Debug, clap::Args)]
#[command(override_usage = "bursar utxo label [OPTIONS] --actor <ACTOR> <WALLET> <KIND> <TARGET> <TEXT|--clear>")]
#[command(group = clap::ArgGroup::new("said").required(true).args(["text", "clear"]))]
pub struct Arguments {
    /// The wallet's name
    wallet: String,
    /// What is named
    #[arg(value_enum)]
    kind: Kind,
    /// The transaction's hash; or the address, or its output script in hexadecimal digits
    target: String,
    /// The label, 1 to 500 characters; it takes the place of the one before
    #[arg(value_parser = input::readable)]
    text: Option<String>,
    /// Take the label away
    #[arg(long)]
    clear: bool,
    /// Who does this
    #[arg(long, env = "BURSAR_ACTOR", value_parser = said)]
    actor: String,
}

pub async fn run(context: &Context, db: &Db, arguments: &Arguments) -> CommandResult {
    let wallet = known_wallet(db, &arguments.wallet).await?;
    let (label, actor, now) = (arguments.text.as_deref(), arguments.actor.as_str(), SystemClock.now());
    let target = arguments.target.as_str();
    let kind = match arguments.kind {
        Kind::Tx => {
            let hash = input::hash(target).map_err(|why| {
                Failure::bad_input("BAD_USAGE", format!("{target:?}: {why}"), "bursar utxo list shows hashes")
            })?;
            db.label_transaction(wallet.id, hash, label, actor, now).await?;
            "transaction"
        }
        Kind::Address => {
            db.label_address(wallet.id, &script(target, &wallet)?, label, actor, now).await?;
            "address"
        }
    };
    let body = json!({ "wallet": wallet.name, "kind": kind, "target": target, "label": label });
    context.print(&body, || match label {
        Some(label) => format!("{kind} {target} is labelled {label:?}"),
        None => format!("{kind} {target} has no label"),
    });
    Ok(())
}

/// Some scripts have no address; no address looks like a script.
fn script(target: &str, wallet: &Wallet) -> Result<Vec<u8>, Failure> {
    input::script_of(target, wallet.network).or_else(|failure| input::script(target).map_err(|_| failure))
}
