//! Holds the rows against the bytes of the transactions that they were made from.

use std::collections::HashSet;

use store::Db;
use store::utxo::{Finding, StoredTx, UtxoError, WalletId};

use super::read::tx_of_bytes;

/// Every row that disagrees with the facts: what the store finds by itself, and what does not fit the transactions'
/// bytes. `progress` is told how many transactions were read.
pub async fn check(db: &Db, mut progress: impl FnMut(u64)) -> Result<Vec<Finding>, UtxoError> {
    let mut findings = db.check_utxo().await?;
    let mut after = None;
    loop {
        let page = db.stored_transactions(after).await?;
        let Some(last) = page.last() else { return Ok(findings) };
        after = Some((last.wallet, last.id));
        findings.extend(check_page(db, &page).await?);
        progress(u64::try_from(page.len()).unwrap_or(0));
    }
}

async fn check_page(db: &Db, page: &[StoredTx]) -> Result<Vec<Finding>, UtxoError> {
    let mut findings = Vec::new();
    let mut read = Vec::with_capacity(page.len());
    for stored in page {
        match tx_of_bytes(&stored.raw) {
            Ok(transaction) => read.push((stored, transaction)),
            Err(error) => findings.push(finding(stored, &format!("its bytes cannot be read: {error}"))),
        }
    }
    let scripts: HashSet<&[u8]> =
        read.iter().flat_map(|(_, one)| &one.outputs).map(|output| output.script.as_slice()).collect();
    let owners = db.owners_of(scripts).await?;
    for (stored, transaction) in &read {
        if transaction.hash != stored.hash {
            findings.push(finding(stored, &format!("its bytes are those of {}", transaction.hash)));
            continue;
        }
        if transaction.coinbase != stored.coinbase {
            findings.push(finding(stored, "it is a coinbase by its bytes or by its row, not by both"));
        }
        if transaction.inputs != stored.inputs {
            findings.push(finding(stored, "its inputs are not those of its bytes"));
        }
        let ours = |script: &Vec<u8>| owners.get(script).is_some_and(|(wallet, _)| *wallet == stored.wallet);
        let expected: Vec<(u32, i64, Vec<u8>)> = (0_u32..)
            .zip(&transaction.outputs)
            .filter(|(_, output)| ours(&output.script))
            .map(|(index, output)| (index, output.amount, output.script.clone()))
            .collect();
        if !stored.outputs.iter().all(|output| expected.contains(output)) {
            findings.push(finding(stored, "its outputs are not those of its bytes that pay the wallet"));
        } else if stored.outputs.len() != expected.len() && stored.status.is_valid() {
            // A transaction that is not valid gets its outputs when it is shown to the store again.
            let next = "was an address added since? bursar utxo follow --rescan-from HEIGHT";
            findings.push(finding(stored, &format!("it pays the wallet more than is stored; {next}")));
        }
    }
    Ok(findings)
}

fn finding(stored: &StoredTx, what: &str) -> Finding {
    let StoredTx { wallet: WalletId(wallet), hash, .. } = stored;
    Finding { check: "bytes", wallet: WalletId(*wallet), what: format!("transaction {hash}: {what}") }
}
