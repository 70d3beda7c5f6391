//! `bursar wallet`: whose address is whose. Every address is derived from the keys of the treasury file before it is shown.

mod add;
mod show;
pub mod signer;
mod verify;

use custody::wallet::{Difference, ROW_DIFFERS, UserWallet, WalletError};
use domain::{GroupId, UserId};
use serde_json::{Value, json};
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::{table, thousands};

use super::Context;
use crate::pins;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Give users their deposit wallets in a group; whoever has one keeps it
    ///
    ///   bursar wallet add --group users-evm --user 7 --user 8
    ///   bursar wallet add --group users-evm --from 1 --to 100000
    #[command(verbatim_doc_comment)]
    Add(add::Arguments),
    /// List users' deposit wallets, a page at a time
    List(show::List),
    /// Show one user's deposit wallets; without --user, the wallet groups and the house's own wallets
    Show(show::Show),
    /// Derive every address again from the keys of the treasury file, and ask the signer whether it has these keys; exit 1 and every row that differs
    Verify(verify::Arguments),
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let db = context.open().await?;
    let pinned = pins::pinned(&context.config, &db).await?;
    let signer = signer::configured(&context.config)?;
    if let (Command::Add(_), Some(signer)) = (command, &signer) {
        // What is paid to an address that nobody has the key of is lost.
        signer::demand(signer, &db, &pinned).await?;
    }
    let done = match command {
        Command::Add(arguments) => add::run(context, &db, &pinned, arguments).await,
        Command::List(arguments) => show::list(context, &db, &pinned, arguments).await,
        Command::Show(arguments) => show::show(context, &db, &pinned, arguments).await,
        Command::Verify(arguments) => verify::run(context, &db, &pinned, signer.as_deref(), arguments).await,
    };
    db.close().await;
    done
}

pub(super) fn failed(error: WalletError) -> Failure {
    let (code, hint) = (error.code(), error.hint());
    match error {
        WalletError::Store(error) => error.into(),
        WalletError::Bitcoin(error) => error.into(),
        WalletError::GroupUnusable { .. } | WalletError::NoDepositGroup { .. } | WalletError::Derivation(_) => {
            Failure::bad_input(code, error.to_string(), hint)
        }
        WalletError::Differs(difference) => Failure {
            code: code.into(),
            messages: vec![format!("{}: {}", difference.row, difference.what)],
            hint: hint.to_owned(),
            exit: Exit::Found,
        },
        WalletError::Ended(_) => Failure::outside(code, &error, hint),
    }
}

fn group(text: &str) -> Result<GroupId, Failure> {
    text.parse().map_err(|error: domain::BadName| {
        Failure::bad_input("WALLET_GROUP_UNUSABLE", error.to_string(), "bursar wallet show lists the groups")
    })
}

fn user(number: i64) -> Result<UserId, Failure> {
    UserId::new(number).ok_or_else(|| {
        Failure::bad_input("INVALID_USER", format!("{number} is no user"), "users have positive numbers")
    })
}

fn wallet_json(wallet: &UserWallet) -> Value {
    // Numbers from 2^53 on are no numbers in JavaScript.
    json!({
        "id": wallet.id, "user": wallet.user.get().to_string(), "group": wallet.group.as_str(),
        "derivation_index": wallet.user.get().to_string(), "address": wallet.address.to_string(),
    })
}

fn difference_json(difference: &Difference) -> Value {
    json!({ "row": difference.row, "what": difference.what })
}

fn wallet_table(wallets: &[UserWallet]) -> String {
    if wallets.is_empty() {
        return "no wallets".to_owned();
    }
    let row = |wallet: &UserWallet| {
        vec![wallet.id.to_string(), wallet.user.get().to_string(), wallet.group.to_string(), wallet.address.to_string()]
    };
    table(&["id", "user", "group", "address"], &[0, 1], &wallets.iter().map(row).collect::<Vec<_>>())
}

/// Rows that differ are no success, whatever else there was to show.
fn verdict(count: u64, first: Option<&Difference>) -> CommandResult {
    let Some(first) = first else { return Ok(()) };
    let rows = if count == 1 { "1 row is".to_owned() } else { format!("{} rows are", thousands(count)) };
    let message = format!("{rows} not as the keys of the treasury file say; the first: {}: {}", first.row, first.what);
    Err(Failure {
        code: ROW_DIFFERS.into(),
        messages: vec![message],
        hint:
            "find out who changed the database, and put the rows back from a backup; nothing is paid to them meanwhile"
                .to_owned(),
        exit: Exit::Found,
    })
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
