//! An [`Export`] into the store, and the proof that nothing is missing.

use std::collections::BTreeMap;

use domain::Timestamp;
use store::Db;
use store::utxo::{
    Balance, FINAL_DEPTH, Hash, ListFilter, NewAddress, OutPoint, OutputRow, Paths, UtxoRefusal, WalletId, is_mature,
};

use super::{Claim, Export, ImportError};

/// So many addresses, transactions and outputs at a time: each chunk is one database transaction, which is over soon.
const ADDRESSES: usize = 2_000;
const TRANSACTIONS: usize = 500;
const OUTPUTS: u32 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Addresses,
    Transactions,
    /// The stored outputs are held against those that the source claims.
    Check,
}

/// How far a stage has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: Stage,
    pub done: usize,
    pub of: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub wallet: WalletId,
    pub addresses: usize,
    pub transactions: usize,
    /// How many addresses were not there before, and how many changes of transactions were written: none of either when
    /// the import is run again.
    pub new_addresses: usize,
    pub changes: usize,
    pub left_out: usize,
    pub balance: Balance,
}

/// Stores the wallet under a name, and compares it with the claims of its source. It may be run again at any time: rows
/// that are there are passed over.
pub async fn import(
    db: &Db,
    name: &str,
    export: &Export,
    at: Timestamp,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Report, ImportError> {
    in_chunks(db, name, export, at, TRANSACTIONS, progress).await
}

async fn in_chunks(
    db: &Db,
    name: &str,
    export: &Export,
    at: Timestamp,
    chunk: usize,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Report, ImportError> {
    check_first(db, name, export).await?;
    let wallet = db.create_wallet(name, export.network, at).await?;
    // Half of a history shows coins that the other half has spent, and the source may be behind the chain. So nothing
    // is selected before `Follow::restore` has read the blocks that the source had not, and compared the others with
    // the nodes.
    db.begin_import(wallet).await?;
    let mut tell = |stage, done: usize, of| progress(Progress { stage, done: done.min(of), of });

    let (mut new_addresses, mut changes) = (0, 0);
    let of = export.addresses.len();
    tell(Stage::Addresses, 0, of);
    for (number, addresses) in (1_usize..).zip(export.addresses.chunks(ADDRESSES)) {
        new_addresses += db.add_addresses(wallet, addresses, Paths::WhereFree, at).await?.new;
        tell(Stage::Addresses, number * ADDRESSES, of);
    }
    let of = export.transactions.len();
    tell(Stage::Transactions, 0, of);
    for (number, transactions) in (1_usize..).zip(export.transactions.chunks(chunk)) {
        changes += db.import_transactions(transactions, at).await?.transactions.len();
        tell(Stage::Transactions, number * chunk, of);
    }

    db.analyse_after_growth().await.map_err(store::utxo::UtxoError::from)?;
    let balance = check(db, wallet, export, at, &mut |done| tell(Stage::Check, done, export.unspent.len())).await?;
    // The last blocks of the source may be of a branch that the chain has left since: they are read again.
    db.end_import(wallet, export.tip.map_or(0, |(height, _)| height.saturating_sub(FINAL_DEPTH))).await?;
    Ok(Report {
        wallet,
        addresses: export.addresses.len(),
        transactions: export.transactions.len(),
        new_addresses,
        changes,
        left_out: export.left_out.len(),
        balance,
    })
}

/// Refuses an import that cannot succeed, before anything is stored.
async fn check_first(db: &Db, name: &str, export: &Export) -> Result<(), ImportError> {
    let wallets = db.wallets().await?;
    let same = wallets.iter().find(|wallet| wallet.name == name).map(|wallet| wallet.id);
    for some in export.addresses.chunks(ADDRESSES) {
        let owners = db.owners_of(some.iter().map(|one| one.script.as_slice()).collect()).await?;
        let is_other = |one: &&NewAddress| {
            owners.get(&one.script).is_some_and(|(owner, account)| (Some(*owner), *account) != (same, one.account))
        };
        if let Some(taken) = some.iter().find(is_other) {
            return Err(ImportError::Store(UtxoRefusal::AddressTaken(shown(&taken.script)).into()));
        }
    }
    check_blocks(db, export).await?;
    if wallets.iter().all(|wallet| Some(wallet.id) == same) {
        return Ok(());
    }
    // All wallets share the blocks, and follow the chain from the highest one. An import must not raise it past blocks
    // that another wallet has not seen.
    let tip = db.tip().await?;
    let highest = export.transactions.iter().filter_map(|given| given.block).map(|block| block.0).max();
    if highest > tip.map(|tip| tip.0) {
        return Err(ImportError::Store(UtxoRefusal::NotOnTip(tip).into()));
    }
    Ok(())
}

/// Refuses a source whose blocks are not of the chain that the store follows.
async fn check_blocks(db: &Db, export: &Export) -> Result<(), ImportError> {
    let given: BTreeMap<u32, Hash> =
        export.transactions.iter().filter_map(|given| given.block).map(|(height, hash, _)| (height, hash)).collect();
    let (Some(first), Some(last)) = (given.keys().next(), given.keys().next_back()) else { return Ok(()) };
    for (height, hash) in db.block_hashes(*first, *last).await? {
        if given.get(&height).is_some_and(|given| *given != hash) {
            return Err(ImportError::Store(UtxoRefusal::OtherChain { height }.into()));
        }
    }
    Ok(())
}

fn shown(script: &[u8]) -> String {
    script.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that the store and the source have the same unspent outputs, and that the totals of the store come to the
/// same.
async fn check(
    db: &Db,
    wallet: WalletId,
    export: &Export,
    now: Timestamp,
    progress: &mut (dyn FnMut(usize) + Send),
) -> Result<Balance, ImportError> {
    progress(0);
    let mut differences = Vec::new();
    let mut missing: BTreeMap<OutPoint, Claim> = export.unspent.clone();
    let mut filter = ListFilter { account: None, unspent_only: true, after: None, most: OUTPUTS };
    loop {
        let page = db.list_outputs(wallet, &filter, now).await?;
        for row in &page {
            differences.extend(difference(row, missing.remove(&row.outpoint)));
        }
        progress(export.unspent.len() - missing.len());
        match page.last() {
            Some(last) => filter.after = Some(last.id),
            None => break,
        }
    }
    let not_there = missing.iter().map(|(outpoint, claim)| format!("{outpoint} of {} is not there", claim.amount));
    differences.extend(not_there);

    let stored = total(db.balance(wallet, now).await?);
    let tip = db.tip().await?.map_or(0, |tip| tip.0);
    let claimed = claimed(export, tip);
    let kinds = [
        ("confirmed", stored.confirmed, claimed.confirmed),
        ("unconfirmed", stored.unconfirmed, claimed.unconfirmed),
        ("immature", stored.immature, claimed.immature),
        ("number of outputs", stored.outputs, claimed.outputs),
    ];
    let unequal = kinds.into_iter().filter(|(_, stored, claimed)| stored != claimed);
    differences.extend(unequal.map(|(kind, stored, claimed)| format!("{kind} is {stored} instead of {claimed}")));
    if differences.is_empty() { Ok(stored) } else { Err(ImportError::Mismatch(differences)) }
}

fn difference(row: &OutputRow, claim: Option<Claim>) -> Option<String> {
    let outpoint = row.outpoint;
    match claim {
        None => Some(format!("{outpoint} of {} is not in the source", row.amount)),
        Some(claim) if claim.amount != row.amount => {
            Some(format!("{outpoint} is of {} instead of {}", row.amount, claim.amount))
        }
        Some(claim) if (claim.height, claim.coinbase) != (row.height, row.coinbase) => {
            let at = |height: Option<u32>| height.map_or("no block".to_owned(), |height| format!("block {height}"));
            Some(format!("{outpoint} is in {} instead of {}", at(row.height), at(claim.height)))
        }
        Some(_) => None,
    }
}

/// The sum over all accounts. An i64 has room for four thousand times all the coins there can be, so no sum overflows.
fn total(accounts: BTreeMap<u32, Balance>) -> Balance {
    accounts.into_values().fold(Balance::default(), |sum, account| Balance {
        confirmed: sum.confirmed.saturating_add(account.confirmed),
        unconfirmed: sum.unconfirmed.saturating_add(account.unconfirmed),
        immature: sum.immature.saturating_add(account.immature),
        leased: sum.leased.saturating_add(account.leased),
        outputs: sum.outputs.saturating_add(account.outputs),
    })
}

/// The sum of the claims. Whether a coinbase is immature depends on the last block, and here that is the store's: it
/// has only those blocks that hold transactions of the wallet, so its tip may lie below the source's.
fn claimed(export: &Export, tip: u32) -> Balance {
    export.unspent.values().fold(Balance::default(), |sum, claim| {
        let immature = claim.coinbase && claim.height.is_some_and(|height| !is_mature(height, tip));
        let of = |counts: bool| if counts { claim.amount } else { 0 };
        Balance {
            confirmed: sum.confirmed.saturating_add(of(claim.height.is_some())),
            unconfirmed: sum.unconfirmed.saturating_add(of(claim.height.is_none())),
            immature: sum.immature.saturating_add(of(immature)),
            leased: 0,
            outputs: sum.outputs.saturating_add(1),
        }
    })
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
