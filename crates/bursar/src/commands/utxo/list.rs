//! `bursar utxo list`: a wallet's outputs, a page at a time.

use domain::Clock;
use serde_json::{Value, json};
use store::Db;
use store::utxo::{ListFilter, UtxoId};
use terminal::clock::SystemClock;
use terminal::failure::CommandResult;

use super::super::Context;
use super::{known_wallet, shown};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The wallet's name
    wallet: String,
    /// Only the outputs of this account
    #[arg(long)]
    account: Option<u32>,
    /// Spent outputs too, and those of transactions that are no longer valid
    #[arg(long)]
    all: bool,
    /// Only ids above this one: the next page
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    after: Option<i64>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

pub async fn run(context: &Context, db: &Db, arguments: &Arguments) -> CommandResult {
    let wallet = known_wallet(db, &arguments.wallet).await?;
    let filter = ListFilter {
        account: arguments.account,
        unspent_only: !arguments.all,
        after: arguments.after.map(UtxoId),
        most: arguments.limit,
    };
    let rows = db.list_outputs(wallet.id, &filter, SystemClock.now()).await?;
    let tip = db.tip().await?.map(|(height, _)| height);
    let full = rows.len() == usize::try_from(arguments.limit).unwrap_or(0);
    let next = rows.last().filter(|_| full).map(|row| row.id.0);
    let body: Vec<Value> = rows.iter().map(|row| shown::output_json(row, wallet.network)).collect();
    context.print(&json!({ "wallet": wallet.name, "outputs": body, "next_after": next }), || {
        if rows.is_empty() {
            let more = if arguments.after.is_some() { " after this one" } else { "" };
            let of = arguments.account.map_or_else(String::new, |account| format!(" in account {account}"));
            return match arguments.all {
                true => format!("no outputs{of}{more}"),
                false => format!("no unspent outputs{of}{more}; --all shows the others"),
            };
        }
        let more = next.map_or_else(String::new, |id| format!("\nmore: --after {id}"));
        format!("{}{more}", shown::outputs(&rows, wallet.network, tip))
    });
    Ok(())
}
