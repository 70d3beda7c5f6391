//! `bursar utxo stat`: how large the tables are, and how the leases stand.

use domain::Clock;
use serde_json::json;
use store::Db;
use terminal::clock::SystemClock;
use terminal::failure::CommandResult;
use terminal::output::{table, thousands};

use super::super::Context;
use super::shown;

pub async fn run(context: &Context, db: &Db) -> CommandResult {
    let now = SystemClock.now();
    let (leases, rows, unspent, bytes) =
        (db.lease_stat(now).await?, db.utxo_rows().await?, db.unspent_count().await?, db.bytes().await?);
    let limits = match db.wallets().await?.first() {
        None => None,
        Some(wallet) => Some(db.chain_limits(wallet.id).await?),
    };
    let waits_s = leases.oldest_end.map(|end| now.micros().saturating_sub(end.micros()).max(0) / 1_000_000);
    let tables: serde_json::Map<String, serde_json::Value> =
        rows.iter().map(|one| (one.table.clone(), json!(one.rows))).collect();
    let body = json!({
        "rows": tables, "database_bytes": bytes, "unspent": unspent,
        "leases": { "active": leases.active, "ended": leases.ended, "oldest_ended_s": waits_s,
            "rescan": leases.found },
        "claimed": leases.claimed,
        "most_chained": limits.map(|most| json!({ "transactions": most.transactions, "bytes": most.bytes })),
    });
    context.print(&body, || {
        let count = |number: i64| thousands(u64::try_from(number).unwrap_or(0));
        let cells: Vec<Vec<String>> = rows.iter().map(|one| vec![one.table.clone(), count(one.rows)]).collect();
        let mut lines = vec![
            table(&["table", "rows"], &[1], &cells),
            String::new(),
            format!("database  {} bytes", count(bytes)),
            format!("unspent   {}", shown::counted(u64::try_from(unspent).unwrap_or(0), "output")),
            format!("leases    {} active, {} ended and not swept yet", count(leases.active), count(leases.ended)),
        ];
        lines.extend(waits_s.map(|seconds| format!("          the first of those ended {seconds} s ago")));
        if leases.found > 0 {
            lines.push(format!("          {} more by a rescan, until it has read all blocks", count(leases.found)));
        }
        if leases.claimed > 0 {
            let outputs = shown::counted(u64::try_from(leases.claimed).unwrap_or(0), "output");
            lines.push(format!("claimed   {outputs} by transactions that may still be mined: bursar utxo list"));
        }
        lines.extend(limits.map(|most| {
            let (transactions, bytes) = (most.transactions, thousands(u64::from(most.bytes)));
            format!("chains    at most {transactions} unconfirmed transactions of {bytes} bytes hang together")
        }));
        lines.join("\n")
    });
    Ok(())
}
