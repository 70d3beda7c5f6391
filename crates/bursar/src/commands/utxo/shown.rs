//! Amounts, addresses and places in words.

use custody::bitcoin::network_of;
use domain::{Precision, Timestamp};
use store::utxo::{EventRow, Hash, Network, OutputRow, Status, TxChange, is_mature};
use terminal::output::{plain, table, thousands};
use tx::bitcoin::address;

use super::super::decimal;

/// Satoshi as BTC, with all eight decimals.
pub fn btc(satoshi: impl Into<i128>) -> String {
    let satoshi = satoshi.into();
    Precision::new(8).map_or_else(|| format!("{satoshi} units"), |precision| decimal(satoshi, precision))
}

/// The address that a script pays, where there is one.
pub fn address(script: &[u8], network: Network) -> Option<String> {
    let script = bitcoin::Script::from_bytes(script);
    address::of_script(script, network_of(network)).map(|address| address.to_string())
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where a transaction stands: in a block, or what it is without one.
pub fn place(status: Status, height: Option<u32>) -> String {
    match (status, height) {
        (_, Some(height)) => format!("block {height}"),
        (Status::Published, None) => "unconfirmed".to_owned(),
        (Status::Pending | Status::Replaced | Status::Failed | Status::Orphaned, None) => status.to_string(),
    }
}

/// `1 output`, `2 outputs`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(count), if count == 1 { "" } else { "s" })
}

pub fn output_json(row: &OutputRow, network: Network) -> serde_json::Value {
    serde_json::json!({
        "id": row.id.0, "outpoint": row.outpoint.to_string(), "amount": btc(row.amount), "account": row.account,
        "kind": row.kind.text(), "script": hex(&row.script), "address": address(&row.script, network),
        "path": row.path.map(|path| format!("{}/{}", path.branch, path.index)), "label": row.label,
        "status": row.status.text(), "height": row.height, "coinbase": row.coinbase,
        "spent_by": row.spent_by.map(|hash| hash.to_string()),
        "leased_until": row.leased_until.map(|until| until.to_string()),
        "claimed_by": row.claimed_by.map(|hash| hash.to_string()),
    })
}

/// A table of outputs.
pub fn outputs(rows: &[OutputRow], network: Network, tip: Option<u32>) -> String {
    let header = [
        "id",
        "outpoint",
        "amount",
        "account",
        "in",
        "coinbase",
        "leased until",
        "claimed by",
        "spent by",
        "label",
        "address",
    ];
    let cells: Vec<Vec<String>> = rows.iter().map(|row| output_cells(row, network, tip)).collect();
    narrow_table(&header, &[0, 2, 3], &cells)
}

fn output_cells(row: &OutputRow, network: Network, tip: Option<u32>) -> Vec<String> {
    let mature = row.height.zip(tip).is_some_and(|(height, tip)| is_mature(height, tip));
    let coinbase = match (row.coinbase, mature) {
        (false, _) => "",
        (true, false) => "immature",
        (true, true) => "mature",
    };
    vec![
        row.id.0.to_string(),
        row.outpoint.to_string(),
        btc(row.amount),
        row.account.to_string(),
        place(row.status, row.height),
        coinbase.to_owned(),
        row.leased_until.map_or_else(String::new, end),
        row.claimed_by.map_or_else(String::new, |hash| hash.to_string()),
        row.spent_by.map_or_else(String::new, |hash| hash.to_string()),
        row.label.as_deref().map_or_else(String::new, plain),
        address(&row.script, network).unwrap_or_else(|| format!("script {}", hex(&row.script))),
    ]
}

/// When a lease ends. What a rescan holds has no end.
pub fn end(until: Timestamp) -> String {
    if until == Timestamp::from_micros(i64::MAX) { "the rescan ends".to_owned() } else { until.to_string() }
}

pub fn event_json(row: &EventRow) -> serde_json::Value {
    serde_json::json!({
        "at": row.at.to_string(), "status": row.status, "height": row.height, "reason": row.reason,
        "cause": row.cause.map(|hash| hash.to_string()), "actor": row.actor,
    })
}

/// A table of a transaction's history, the oldest first. Steps of the chain itself have no author.
pub fn events(rows: &[EventRow]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.at.to_string(),
                plain(&row.status),
                row.height.map_or_else(String::new, |height| height.to_string()),
                plain(&row.reason),
                row.cause.map_or_else(String::new, |hash| hash.to_string()),
                plain(&row.actor),
            ]
        })
        .collect();
    narrow_table(&["time", "became", "block", "reason", "cause", "by"], &[2], &cells)
}

pub fn change_json(one: &TxChange) -> serde_json::Value {
    serde_json::json!({ "hash": one.hash.to_string(), "status": one.status.text(), "reason": one.reason })
}

/// A line for each transaction that has changed with this one.
pub fn changes_of_others(changed: &[&TxChange], hash: Hash) -> String {
    let others = changed.iter().filter(|one| one.hash != hash);
    others.map(|one| format!("\n{} is {} now: {}", one.hash, one.status.text(), one.reason)).collect()
}

/// A table without the columns that are empty in every row: hashes make lines long enough.
pub fn narrow_table(header: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let filled = |column: &usize| rows.iter().any(|row| row.get(*column).is_some_and(|cell| !cell.is_empty()));
    let kept: Vec<usize> = (0..header.len()).filter(filled).collect();
    let header: Vec<&str> = kept.iter().filter_map(|column| header.get(*column).copied()).collect();
    let right: Vec<usize> = (0..kept.len()).filter(|at| kept.get(*at).is_some_and(|old| right.contains(old))).collect();
    let pick = |row: &Vec<String>| kept.iter().filter_map(|column| row.get(*column).cloned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(pick).collect();
    table(&header, &right, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn satoshi_are_shown_whole() {
        assert_eq!([0_i64, 1, 2_100_000_000_000_000].map(btc), ["0.00000000", "0.00000001", "21000000.00000000"]);
    }

    #[test]
    fn empty_columns_are_left_out() {
        let rows = [vec!["a".into(), String::new(), "1".into()], vec!["b".into(), String::new(), "10".into()]];
        expect_test::expect![[r#"
            x   z
            ─  ──
            a   1
            b  10"#]]
        .assert_eq(&narrow_table(&["x", "y", "z"], &[2], &rows));
    }
}
