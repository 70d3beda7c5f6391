//! `bursar balances`: what the books come to, per asset; the last line is always zero.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use store::Db;
use store::catalog::read_assets;
use store::ledger::balances::{Totals, totals};
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;

use super::{Context, decimal};

pub async fn run(context: &Context) -> CommandResult {
    let db = context.open().await?;
    let sheet = Sheet::read(&db).await?;
    db.close().await;
    context.print(&json!({ "balances": sheet.json() }), || sheet.text());
    Ok(())
}

/// Balances by asset and kind of account, as decimal strings.
struct Sheet {
    symbols: Vec<String>,
    /// Name of the line, then one cell per asset.
    lines: Vec<(String, Vec<String>)>,
}

impl Sheet {
    async fn read(db: &Db) -> Result<Self, Failure> {
        let mut tx = db.read().await?;
        let assets = read_assets(&mut tx).await?;
        let totals = totals(&mut tx).await?;
        let none = Totals::default();
        let columns: Vec<_> = assets.iter().map(|(id, asset)| (asset, totals.get(id).unwrap_or(&none))).collect();
        let kinds: BTreeSet<&String> = columns.iter().flat_map(|(_, total)| total.system.keys()).collect();
        let line = |name: &str, cell: &dyn Fn(&Totals) -> Option<i128>| {
            let cells = columns.iter().map(|(asset, total)| {
                cell(total).map_or_else(|| "-".to_owned(), |units| decimal(units, asset.precision))
            });
            (name.to_owned(), cells.collect())
        };
        let mut lines = vec![
            line("users, available", &|total| Some(total.users_available)),
            line("users, held", &|total| Some(total.users_frozen)),
        ];
        lines.extend(kinds.into_iter().map(|kind| line(kind, &|total| total.system.get(kind).copied())));
        lines.push(line("sum", &|total| Some(total.sum())));
        let symbols = columns.iter().map(|(asset, _)| asset.symbol.to_string()).collect();
        Ok(Self { symbols, lines })
    }

    fn text(&self) -> String {
        let header: Vec<&str> = std::iter::once("account").chain(self.symbols.iter().map(String::as_str)).collect();
        let right: Vec<usize> = (1..header.len()).collect();
        let rows: Vec<Vec<String>> =
            self.lines.iter().map(|(name, cells)| [&[name.clone()][..], cells].concat()).collect();
        table(&header, &right, &rows)
    }

    fn json(&self) -> Value {
        let assets = self.symbols.iter().enumerate().map(|(at, symbol)| {
            let lines = self.lines.iter().filter_map(|(name, cells)| Some((name, cells.get(at)?)));
            let fields: Map<String, Value> =
                lines.filter(|(_, cell)| *cell != "-").map(|(name, cell)| (name.clone(), json!(cell))).collect();
            (symbol.clone(), Value::Object(fields))
        });
        Value::Object(assets.collect())
    }
}
