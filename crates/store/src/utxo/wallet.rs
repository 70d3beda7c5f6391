//! Wallets and their addresses.

use std::collections::{BTreeSet, HashMap, HashSet};

use domain::Timestamp;

use super::events::{lock, refused};
use super::load::number;
use super::types::{AddressKind, Network, NewAddress, Path, Refusal, UtxoError, Wallet, WalletId, WalletStatus};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::sql::{
    Column, ColumnType::Bytes, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, expect_rows, fetch_rows,
};
use crate::transact;

statements! {
    INSERT_WALLET = "INSERT INTO wallets (name, network, status, created_at) VALUES ($1, $2, 'active', $3) RETURNING id";
    READ_WALLETS = "SELECT id, name, network, status FROM wallets ORDER BY id";
    CHANGE_WALLET_STATUS = "UPDATE wallets SET status = $2 WHERE id = $1 AND status <> $2";
}

static READ_SCRIPTS: RowsSql = RowsSql::new(
    "READ_SCRIPTS",
    "SELECT a.script_pub_key, a.wallet_id, a.account, a.kind, a.branch, a.child_index
     FROM {rows} {join} addresses a ON a.script_pub_key = r.script",
    &[("script", Bytes)],
);

static READ_PATHS: RowsSql = RowsSql::new(
    "READ_PATHS",
    "SELECT a.account, a.branch, a.child_index
     FROM {rows} {join} addresses a ON a.wallet_id = r.wallet AND a.account = r.account AND a.kind = r.kind
         AND a.branch = r.branch AND a.child_index = r.child_index",
    &[("wallet", Int), ("account", Int), ("kind", Text), ("branch", Int), ("child_index", Int)],
);

static INSERT_ADDRESSES: RowsSql = RowsSql::new(
    "INSERT_ADDRESSES",
    "INSERT INTO addresses (wallet_id, account, branch, child_index, kind, script_pub_key, created_at)
     SELECT wallet, account, branch, child_index, kind, script, at FROM {rows}",
    &[
        ("wallet", Int),
        ("account", Int),
        ("branch", Int),
        ("child_index", Int),
        ("kind", Text),
        ("script", Bytes),
        ("at", Int),
    ],
);

/// Every account has its totals from its first address on, so that events only ever change them.
static INSERT_TOTALS: RowsSql = RowsSql::new(
    "INSERT_TOTALS",
    "INSERT INTO account_totals (wallet_id, account, confirmed, confirmed_count, unconfirmed, unconfirmed_count)
     SELECT wallet, account, 0, 0, 0, 0 FROM {rows} WHERE TRUE
     ON CONFLICT (wallet_id, account) DO NOTHING",
    &[("wallet", Int), ("account", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 4] = [&READ_SCRIPTS, &READ_PATHS, &INSERT_ADDRESSES, &INSERT_TOTALS];

impl Db {
    /// Makes a wallet; the same name again is the same wallet.
    pub async fn create_wallet(&self, name: &str, network: Network, at: Timestamp) -> Result<WalletId, UtxoError> {
        Ok(transact!(self, tx => refused(create(tx, name, network, at).await))??)
    }

    pub async fn wallets(&self) -> Result<Vec<Wallet>, UtxoError> {
        Ok(read_wallets(&mut self.read().await?).await?)
    }

    /// Adds addresses and says how many were new. From now on what pays them is ours; what has paid them before is found
    /// by whoever shows it once more.
    pub async fn add_addresses(&self, wallet: WalletId, new: &[NewAddress], at: Timestamp) -> Result<usize, UtxoError> {
        Ok(transact!(self, tx => refused(add(tx, wallet, new, at).await))??)
    }

    /// A backup was put back: until the node was asked what became of the unconfirmed transactions, nothing is selected.
    pub async fn begin_restore(&self, wallet: WalletId) -> Result<(), UtxoError> {
        self.set_wallet_status(wallet, WalletStatus::Restoring).await
    }

    pub async fn finish_restore(&self, wallet: WalletId) -> Result<(), UtxoError> {
        self.set_wallet_status(wallet, WalletStatus::Active).await
    }

    async fn set_wallet_status(&self, wallet: WalletId, status: WalletStatus) -> Result<(), UtxoError> {
        let known = transact!(self, tx => {
            execute!(tx, CHANGE_WALLET_STATUS, wallet.0, status.text())?;
            Ok(read_wallets(tx).await?.iter().any(|one| one.id == wallet))
        })?;
        if known { Ok(()) } else { Err(Refusal::UnknownWallet.into()) }
    }
}

async fn read_wallets(tx: &mut Tx) -> Result<Vec<Wallet>, StoreError> {
    let rows = fetch_all!(tx, READ_WALLETS => (i64, String, String, String))?;
    let wallet = |(id, name, network, status): (i64, String, String, String)| {
        let odd = || StoreError::Corrupt { what: format!("wallet {id} has a network or status that does not exist") };
        let network = Network::of_text(&network).ok_or_else(odd)?;
        let status = WalletStatus::of_text(&status).ok_or_else(odd)?;
        Ok(Wallet { id: WalletId(id), name, network, status })
    };
    rows.into_iter().map(wallet).collect()
}

async fn create(tx: &mut Tx, name: &str, network: Network, at: Timestamp) -> Result<WalletId, UtxoError> {
    lock(tx).await?;
    let wallets = read_wallets(tx).await?;
    if let Some(other) = wallets.iter().find(|wallet| wallet.network != network) {
        return Err(Refusal::OtherNetwork(other.network).into());
    }
    if let Some(same) = wallets.iter().find(|wallet| wallet.name == name) {
        return Ok(same.id);
    }
    let row = fetch_optional!(tx, INSERT_WALLET => (i64,), name, network.text(), at.micros())?;
    row.map(|(id,)| WalletId(id)).ok_or_else(|| super::load::corrupt("a new wallet has no id").into())
}

async fn add(tx: &mut Tx, wallet: WalletId, new: &[NewAddress], at: Timestamp) -> Result<usize, UtxoError> {
    lock(tx).await?;
    if !read_wallets(tx).await?.iter().any(|one| one.id == wallet) {
        return Err(Refusal::UnknownWallet.into());
    }
    let scripts = Column::Bytes(new.iter().map(|one| one.script.clone()).collect());
    type Stored = (Vec<u8>, i64, i64, String, Option<i64>, Option<i64>);
    let rows: Vec<Stored> =
        if new.is_empty() { Vec::new() } else { fetch_rows(tx, &READ_SCRIPTS, vec![scripts]).await? };
    let mut owners: HashMap<Vec<u8>, (i64, u32)> = HashMap::new();
    for (script, owner, account, ..) in rows {
        owners.insert(script, (owner, number(account)?));
    }
    let mut fresh: Vec<&NewAddress> = Vec::new();
    for one in new {
        match owners.insert(one.script.clone(), (wallet.0, one.account)) {
            None => fresh.push(one),
            Some(owner) if owner == (wallet.0, one.account) => {}
            Some(_) => return Err(Refusal::AddressTaken(shown(&one.script)).into()),
        }
    }
    if fresh.is_empty() {
        return Ok(0);
    }
    check_paths(tx, wallet, &fresh).await?;
    let columns = vec![
        Column::Ints(vec![wallet.0; fresh.len()]),
        Column::Ints(fresh.iter().map(|one| i64::from(one.account)).collect()),
        Column::OptionalInts(fresh.iter().map(|one| one.path.map(|path| i64::from(path.branch))).collect()),
        Column::OptionalInts(fresh.iter().map(|one| one.path.map(|path| i64::from(path.index))).collect()),
        Column::Texts(fresh.iter().map(|one| one.kind.text()).collect()),
        Column::Bytes(fresh.iter().map(|one| one.script.clone()).collect()),
        Column::Ints(vec![at.micros(); fresh.len()]),
    ];
    expect_rows(execute_rows(tx, &INSERT_ADDRESSES, columns).await?, fresh.len(), "addresses")?;
    let accounts: BTreeSet<u32> = fresh.iter().map(|one| one.account).collect();
    let columns =
        vec![Column::Ints(vec![wallet.0; accounts.len()]), Column::Ints(accounts.into_iter().map(i64::from).collect())];
    execute_rows(tx, &INSERT_TOTALS, columns).await?;
    Ok(fresh.len())
}

/// A path leads to one script of a kind. Whoever gives another has mixed up two keys, or two wallets.
async fn check_paths(tx: &mut Tx, wallet: WalletId, fresh: &[&NewAddress]) -> Result<(), UtxoError> {
    let with_path: Vec<(&NewAddress, Path)> = fresh.iter().filter_map(|one| Some((*one, one.path?))).collect();
    let mut distinct = HashSet::new();
    for (one, path) in &with_path {
        if !distinct.insert((one.account, one.kind, *path)) {
            return Err(Refusal::PathTaken { account: one.account, path: *path }.into());
        }
    }
    if with_path.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(vec![wallet.0; with_path.len()]),
        Column::Ints(with_path.iter().map(|(one, _)| i64::from(one.account)).collect()),
        Column::Texts(with_path.iter().map(|(one, _)| one.kind.text()).collect()),
        Column::Ints(with_path.iter().map(|(_, path)| i64::from(path.branch)).collect()),
        Column::Ints(with_path.iter().map(|(_, path)| i64::from(path.index)).collect()),
    ];
    let taken: Vec<(i64, i64, i64)> = fetch_rows(tx, &READ_PATHS, columns).await?;
    match taken.first() {
        None => Ok(()),
        Some((account, branch, index)) => {
            let branch =
                u8::try_from(*branch).map_err(|_| super::load::corrupt("a path has a branch that does not exist"))?;
            Err(Refusal::PathTaken { account: number(*account)?, path: Path { branch, index: number(*index)? } }.into())
        }
    }
}

fn shown(script: &[u8]) -> String {
    script.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn kind(text: &str) -> Result<AddressKind, StoreError> {
    AddressKind::of_text(text).ok_or_else(|| super::load::corrupt("an address has a kind that does not exist"))
}
