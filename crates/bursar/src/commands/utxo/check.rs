//! `bursar utxo check`: every row held against the facts; exit 1 when one disagrees.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use store::Db;
use store::utxo::{Finding, Wallet};
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::{plain, table, thousands};

use super::super::Context;
use super::shown;

pub async fn run(context: &Context, db: &Db) -> CommandResult {
    let transactions = db.count_transactions().await?;
    let bar = if context.json { ProgressBar::hidden() } else { ProgressBar::new(transactions) };
    let template = "{spinner} holding rows against facts and bytes {bar:30} {human_pos}/{human_len} transactions";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    // The store's own check comes first; it reports no progress.
    bar.enable_steady_tick(Duration::from_millis(100));
    let found = custody::bitcoin::check(db, |read| bar.inc(read)).await;
    bar.finish_and_clear();
    let found = found?;
    let wallets = db.wallets().await?;
    let name = |finding: &Finding| name_of(&wallets, finding);
    let body: Vec<Value> = found
        .iter()
        .map(|finding| json!({ "check": finding.check, "wallet": name(finding), "what": finding.what }))
        .collect();
    let rescan_next = db.followed().await?.rescan_next;
    let body = json!({
        "clean": found.is_empty(), "transactions": transactions, "findings": body, "rescan_next": rescan_next,
    });
    context.print(&body, || {
        if found.is_empty() {
            let agree = format!("all {} transactions agree", thousands(transactions));
            return match rescan_next {
                None => agree,
                Some(next) => format!(
                    "{agree}\n\
                     a rescan is open: blocks from {next} on are still to be read, and what it found is held until then\n\
                     next: bursar utxo follow --node URL"
                ),
            };
        }
        let cells: Vec<Vec<String>> = found
            .iter()
            .map(|finding| vec![finding.check.to_owned(), name(finding), plain(&finding.what)])
            .collect();
        table(&["check", "wallet", "what"], &[], &cells)
    });
    verdict(&found, &wallets)
}

fn name_of(wallets: &[Wallet], finding: &Finding) -> String {
    let found = wallets.iter().find(|wallet| wallet.id == finding.wallet);
    found.map_or_else(|| format!("number {}", finding.wallet.0), |wallet| plain(&wallet.name))
}

fn verdict(found: &[Finding], wallets: &[Wallet]) -> CommandResult {
    match found.first() {
        None => Ok(()),
        Some(first) => Err(Failure {
            code: "UTXO_BROKEN".into(),
            messages: vec![format!(
                "not as the facts say: {}; the first: {} of wallet {}, {}",
                shown::counted(u64::try_from(found.len()).unwrap_or(u64::MAX), "row"),
                first.check,
                name_of(wallets, first),
                first.what
            )],
            hint: "stop the writers, keep the database as it is, and compare the rows with a backup".to_owned(),
            exit: Exit::Found,
        }),
    }
}
