//! `bursar utxo …`: the Bitcoin wallet as an operator sees it.
//!
//! | module | holds |
//! |---|---|
//! | `wallet` | `create`, `address add`, `address list` |
//! | `balance` | `balance`: what each account has |
//! | `list` | `list`: outputs, a page at a time |
//! | `tx` | `tx`: one transaction and its history, also of one that was pruned |
//! | `lease` | `lease take`, `renew`, `release`, `list`, `sweep` |
//! | `label` | `label`: names for transactions and addresses |
//! | `abandon` | `abandon`: a transaction that was never broadcast |
//! | `give_up` | `give-up`: a transaction that was broadcast and can never be mined |
//! | `prune` | `prune`: the only delete |
//! | `import` | `import`: another wallet's whole history |
//! | `follow` | `follow`: in step with the chain; after a backup |
//! | `mark` | a number outside of the database by which a backup is noticed |
//! | `nodes`, `trouble` | the nodes that `follow` and `give-up` ask, and what keeps `follow` from going on |
//! | `stat` | `stat`: how large the tables are, and how the leases stand |
//! | `check` | `check`: every row held against the facts |
//! | `input` | text to hashes, outpoints, scripts and addresses |
//! | `shown` | amounts, addresses and places in words |

mod abandon;
mod balance;
mod check;
mod follow;
mod give_up;
mod import;
mod input;
mod label;
mod lease;
mod list;
mod mark;
mod nodes;
mod prune;
mod shown;
mod stat;
mod trouble;
mod tx;
mod wallet;

use store::Db;
use store::utxo::{UtxoRefusal, Wallet};
use terminal::failure::{CommandResult, Failure};

use super::Context;
use crate::config::nearest;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a wallet; the same name again is the same wallet
    ///
    /// All wallets of a database are on one network.
    ///
    /// Example:
    ///   bursar utxo create hot --network regtest
    #[command(verbatim_doc_comment)]
    Create(wallet::CreateArguments),
    /// Addresses of a wallet
    #[command(subcommand)]
    Address(wallet::AddressCommand),
    /// Show what each account has, in BTC
    ///
    /// Immature coinbases and leased outputs are part of confirmed and unconfirmed, not beside
    /// them.
    ///
    /// Examples:
    ///   bursar utxo balance
    ///   bursar utxo balance hot --json
    #[command(verbatim_doc_comment)]
    Balance(balance::Arguments),
    /// List a wallet's outputs
    ///
    /// Examples:
    ///   bursar utxo list hot                        what is unspent
    ///   bursar utxo list hot --account 1 --all      spent and invalid ones too
    ///   bursar utxo list hot --after 4711           the next page
    #[command(verbatim_doc_comment)]
    List(list::Arguments),
    /// Show a transaction: what it spends and makes, who replaced it, and its history
    ///
    /// Of a transaction that was pruned the history is left, and is shown.
    ///
    /// Example:
    ///   bursar utxo tx hot 9f64…22
    #[command(verbatim_doc_comment)]
    Tx(tx::Arguments),
    /// Keep outputs from being spent by others for a while
    ///
    /// Examples:
    ///   bursar utxo lease take hot 9f64…22:0 --new-lock --for 10m
    ///   bursar utxo lease renew hot 5d1c…07 --for 10m
    ///   bursar utxo lease release hot 5d1c…07
    ///   bursar utxo lease list hot
    ///   bursar utxo lease sweep
    #[command(subcommand, verbatim_doc_comment)]
    Lease(lease::Command),
    /// Name a transaction or an address, or take the name away
    ///
    /// Examples:
    ///   bursar utxo label hot tx 9f64…22 "refill from cold" --actor ann
    ///   bursar utxo label hot address bcrt1q…xj "customer 7" --actor ann
    ///   bursar utxo label hot tx 9f64…22 --clear --actor ann
    #[command(verbatim_doc_comment)]
    Label(label::Arguments),
    /// Give up a transaction that was made here and never broadcast; what it would spend is free
    ///
    /// Only while it is pending: then nobody else has it. One that was broadcast may be mined at any
    /// time; it can only be replaced. After a backup was put back: bursar utxo follow --restore first.
    ///
    /// Example:
    ///   bursar utxo abandon hot 9f64…22 --actor ann --reason "its maker crashed"
    #[command(verbatim_doc_comment)]
    Abandon(abandon::Arguments),
    /// End a transaction that was broadcast and can never be mined: two people say so
    ///
    /// For a deposit, or a payout that spends one, of which an input is gone for good and nothing that
    /// is stored proves it. The nodes are asked first: what waits at one of them, or could, is refused.
    /// What it spends is free again, and all that depends on it fails with it. If a node shows it after
    /// all, in its mempool or in a block, it is back.
    ///
    /// Example:
    ///   bursar utxo give-up hot 9f64…22 --node http://127.0.0.1:8332 --actor ann --second bob \
    ///     --reason "its sender was paid back, case 4711"
    #[command(verbatim_doc_comment)]
    GiveUp(give_up::Arguments),
    /// Delete transactions that can never matter again; their history stays
    ///
    /// Only what is final goes: what a block with 100 more on top of it has settled. Nothing else
    /// in Bursar deletes a transaction. --all goes on until nothing more is final; stopped
    /// halfway, it can be run again.
    ///
    /// Examples:
    ///   bursar utxo prune hot --all --actor ann --reason "spring cleaning" --dry-run
    ///   bursar utxo prune hot --all --actor ann --reason "spring cleaning"
    ///   bursar utxo prune hot 9f64…22 --actor ann --reason "case 4711"
    #[command(verbatim_doc_comment)]
    Prune(prune::Arguments),
    /// Take over a wallet of Bitcoin Core or bdk_wallet with its whole history
    ///
    /// At the end every unspent output and the balance are compared with what the source says.
    /// Stopped halfway, it is run again as it was. docs/import.md says how to make the export.
    ///
    /// Examples:
    ///   bursar utxo import --from core --wallet savings export/
    ///   bursar utxo import --from bdk --wallet savings wallet.sqlite
    #[command(verbatim_doc_comment)]
    Import(import::Arguments),
    /// Keep all wallets in step with Bitcoin nodes: blocks, reorganisations, mempool
    ///
    /// It goes on until it is stopped, and can be stopped at any time. With --restore it first asks the
    /// nodes what became of the unconfirmed transactions, after a backup was put back; with
    /// --rescan-from it reads old blocks again, for addresses that were added since.
    ///
    /// Examples:
    ///   bursar utxo follow --node http://127.0.0.1:8332 --login-file ~/.bitcoin/.cookie
    ///   bursar utxo follow --node http://127.0.0.1:18443 --once
    #[command(verbatim_doc_comment)]
    Follow(follow::Arguments),
    /// Show how many rows the wallets' tables have, and how the leases stand
    ///
    /// It counts all rows. `bursar serve` has the same for a monitor at /metrics, without counting.
    ///
    /// Example:
    ///   bursar utxo stat --json
    #[command(verbatim_doc_comment)]
    Stat,
    /// Hold every row against the facts; exit 1 if one disagrees
    ///
    /// It reads all wallets, and the bytes of their transactions, and changes nothing.
    ///
    /// Example:
    ///   bursar utxo check --json
    #[command(verbatim_doc_comment)]
    Check,
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let db = context.open().await?;
    let done = match notice_backup(context, &db, command).await {
        Ok(()) => run_on(context, &db, command).await,
        Err(failure) => Err(failure),
    };
    db.close().await;
    done
}

/// Whoever takes coins, or gives a transaction up, must not do so in a database that is older than what happened. (A follower
/// notices it too, and says so.)
async fn notice_backup(context: &Context, db: &Db, command: &Command) -> CommandResult {
    match command {
        Command::Lease(_) | Command::Abandon(_) | Command::GiveUp(_) | Command::Prune(_) => {
            mark::Mark::of(context, db).await?.notice_backup(db).await.map(|_| ())
        }
        Command::Create(_)
        | Command::Address(_)
        | Command::Balance(_)
        | Command::List(_)
        | Command::Tx(_)
        | Command::Label(_)
        | Command::Import(_)
        | Command::Follow(_)
        | Command::Stat
        | Command::Check => Ok(()),
    }
}

async fn run_on(context: &Context, db: &Db, command: &Command) -> CommandResult {
    match command {
        Command::Create(arguments) => wallet::create(context, db, arguments).await,
        Command::Address(command) => wallet::address(context, db, command).await,
        Command::Balance(arguments) => balance::run(context, db, arguments).await,
        Command::List(arguments) => list::run(context, db, arguments).await,
        Command::Tx(arguments) => tx::run(context, db, arguments).await,
        Command::Lease(command) => lease::run(context, db, command).await,
        Command::Label(arguments) => label::run(context, db, arguments).await,
        Command::Abandon(arguments) => abandon::run(context, db, arguments).await,
        Command::GiveUp(arguments) => give_up::run(context, db, arguments).await,
        Command::Prune(arguments) => prune::run(context, db, arguments).await,
        Command::Import(arguments) => import::run(context, db, arguments).await,
        Command::Follow(arguments) => follow::run(context, db, arguments).await,
        Command::Stat => stat::run(context, db).await,
        Command::Check => check::run(context, db).await,
    }
}

/// A longer list of names would not be read.
const MOST_NAMES: usize = 20;

async fn known_wallet(db: &Db, name: &str) -> Result<Wallet, Failure> {
    let wallets = db.wallets().await?;
    if let Some(wallet) = wallets.iter().find(|wallet| wallet.name == name) {
        return Ok(wallet.clone());
    }
    let names: Vec<&str> = wallets.iter().map(|wallet| wallet.name.as_str()).collect();
    let shown = names.get(..MOST_NAMES).unwrap_or(&names).join(", ");
    let hint = match (names.is_empty(), nearest(name, &names)) {
        (true, _) => "there are none yet: bursar utxo create NAME --network regtest".to_owned(),
        (false, None) => format!("there are: {shown}"),
        (false, Some(nearest)) => format!("did you mean {nearest}? there are: {shown}"),
    };
    Err(Failure::bad_input(UtxoRefusal::UnknownWallet.code(), format!("there is no wallet {name:?}"), hint))
}
