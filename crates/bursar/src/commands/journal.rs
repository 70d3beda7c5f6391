//! `bursar journal`: lists movements, newest first.

use std::collections::BTreeMap;

use domain::ledger::Outcome as Decided;
use domain::{Asset, AssetId, Timestamp};
use serde_json::json;
use store::Tx;
use store::catalog::read_assets;
use store::ledger::journal::{AccountFilter, MovementFilter, list_accounts, list_movements};
use store::ledger::row::MovementRow;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;

use super::{Context, decimal};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only what this account paid, held and got; each hold with what ended it
    #[arg(long, conflicts_with = "key", allow_negative_numbers = true)]
    account: Option<i64>,
    /// Only the movements of the operation with this key
    #[arg(long)]
    key: Option<String>,
    /// Only ids below this one: the next page
    #[arg(long, default_value_t = i64::MAX, hide_default_value = true)]
    before: i64,
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

pub async fn run(context: &Context, arguments: &Arguments) -> CommandResult {
    let filter = match (arguments.account, &arguments.key) {
        (Some(account), _) => MovementFilter::Account(account),
        (None, Some(key)) => MovementFilter::Key(key.clone()),
        (None, None) => MovementFilter::All,
    };
    let db = context.open().await?;
    let mut tx = db.read().await?;
    let assets = read_assets(&mut tx).await?;
    let page = list_movements(&mut tx, &filter, arguments.before, arguments.limit).await?;
    if let (Some(id), true) = (arguments.account, page.movements.is_empty()) {
        // No movements of an account, and no account, are two things.
        check_account(&mut tx, id).await?;
    }
    drop(tx);
    db.close().await;
    let lines: Vec<Line<'_>> = page.movements.iter().map(|row| Line::new(row, &assets)).collect();
    let body: Vec<_> = lines.iter().map(Line::json).collect();
    context.print(&json!({ "movements": body, "next_before": page.next_before }), || {
        let cells: Vec<Vec<String>> = lines.iter().map(Line::cells).collect();
        let header = ["id", "time", "key", "leg", "action", "outcome", "from", "to", "amount", "asset", "reference"];
        if cells.is_empty() {
            return "no movements".to_owned();
        }
        let more = page.next_before.map_or_else(String::new, |id| format!("\nmore: --before {id}"));
        format!("{}{more}", table(&header, &[0, 3, 6, 7, 8], &cells))
    });
    Ok(())
}

async fn check_account(tx: &mut Tx, id: i64) -> CommandResult {
    let next = list_accounts(tx, &AccountFilter::All, id.saturating_sub(1), 1).await?;
    if next.first().is_some_and(|account| account.id == id) {
        return Ok(());
    }
    let hint = "bursar account lists the accounts; those of one user: bursar account --user 7";
    Err(Failure::bad_input("ACCOUNT_NOT_FOUND", format!("there is no account {id}"), hint))
}

/// A row with its numbers turned into words.
struct Line<'a> {
    row: &'a MovementRow,
    action: &'static str,
    outcome: &'static str,
    amount: String,
    asset: &'a str,
}

impl<'a> Line<'a> {
    fn new(row: &'a MovementRow, assets: &'a BTreeMap<AssetId, Asset>) -> Self {
        let asset = assets.get(&AssetId(row.asset_id));
        let units = i128::from(row.amount);
        Self {
            row,
            action: row.action().map_or("unknown", |action| action.name()),
            outcome: match row.outcome() {
                Some(Decided::Applied) => "applied",
                Some(Decided::Refused(refusal)) => refusal.code(),
                None => "unknown",
            },
            amount: asset.map_or_else(|| format!("{units} units"), |asset| decimal(units, asset.precision)),
            asset: asset.map_or("?", |asset| asset.symbol.as_str()),
        }
    }

    fn json(&self) -> serde_json::Value {
        let row = self.row;
        json!({
            "id": row.id, "at": Timestamp::from_micros(row.at).to_string(), "key": row.op_key, "leg": row.position,
            "action": self.action, "outcome": self.outcome, "from": row.from_account, "to": row.to_account,
            "amount": self.amount, "asset": self.asset, "hold": row.hold_key, "reference": row.reference,
        })
    }

    fn cells(&self) -> Vec<String> {
        let row = self.row;
        vec![
            row.id.to_string(),
            Timestamp::from_micros(row.at).to_string(),
            row.op_key.clone(),
            row.position.to_string(),
            self.action.to_owned(),
            self.outcome.to_owned(),
            row.from_account.to_string(),
            row.to_account.to_string(),
            self.amount.clone(),
            self.asset.to_owned(),
            row.reference.clone(),
        ]
    }
}
