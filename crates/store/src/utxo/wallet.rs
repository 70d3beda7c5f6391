//! Wallets and their addresses.

use std::collections::{BTreeSet, HashMap, HashSet};

use domain::Timestamp;

use super::events::{lock, refused};
use super::load::number;
use super::types::{Added, AddressKind, Network, NewAddress, Path, Refusal, UtxoError, Wallet, WalletId, WalletStatus};
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
    "SELECT a.script_pub_key, a.wallet_id, a.account, a.branch, a.child_index
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

static LEARN_PATHS: RowsSql = RowsSql::new(
    "LEARN_PATHS",
    "UPDATE addresses SET kind = r.kind, branch = r.branch, child_index = r.child_index
     FROM {rows} WHERE addresses.script_pub_key = r.script AND addresses.branch IS NULL",
    &[("script", Bytes), ("kind", Text), ("branch", Int), ("child_index", Int)],
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
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 5] =
    [&READ_SCRIPTS, &READ_PATHS, &INSERT_ADDRESSES, &LEARN_PATHS, &INSERT_TOTALS];

impl Db {
    /// Makes a wallet; the same name again is the same wallet.
    pub async fn create_wallet(&self, name: &str, network: Network, at: Timestamp) -> Result<WalletId, UtxoError> {
        Ok(transact!(self, tx => refused(create(tx, name, network, at).await))??)
    }

    pub async fn wallets(&self) -> Result<Vec<Wallet>, UtxoError> {
        Ok(read_wallets(&mut self.read().await?).await?)
    }

    /// Adds addresses. From now on what pays them is ours; what has paid them before is found by whoever shows it once
    /// more. One that was added without a path can be given again with it: then it can be spent from.
    pub async fn add_addresses(&self, wallet: WalletId, new: &[NewAddress], at: Timestamp) -> Result<Added, UtxoError> {
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

async fn add(tx: &mut Tx, wallet: WalletId, given: &[NewAddress], at: Timestamp) -> Result<Added, UtxoError> {
    lock(tx).await?;
    if !read_wallets(tx).await?.iter().any(|one| one.id == wallet) {
        return Err(Refusal::UnknownWallet.into());
    }
    let mut known = read_known(tx, given).await?;
    let (mut fresh, mut learned): (Vec<&NewAddress>, Vec<&NewAddress>) = (Vec::new(), Vec::new());
    for one in given {
        let Some((owner, account, path)) = known.get_mut(one.script.as_slice()) else {
            known.insert(&one.script, (wallet, one.account, one.path));
            fresh.push(one);
            continue;
        };
        if (*owner, *account) != (wallet, one.account) {
            return Err(Refusal::AddressTaken(shown(&one.script)).into());
        }
        match (&path, one.path) {
            (_, None) => {}
            (Some(path), Some(other)) if *path == other => {}
            (Some(path), Some(_)) => return Err(Refusal::OtherPath { script: shown(&one.script), path: *path }.into()),
            (None, Some(_)) => {
                *path = one.path;
                learned.push(one);
            }
        }
    }
    check_paths(tx, wallet, fresh.iter().chain(&learned)).await?;
    insert_addresses(tx, wallet, &fresh, at).await?;
    learn_paths(tx, &learned).await?;
    Ok(Added { new: fresh.len(), learned: learned.len() })
}

/// Of these scripts those that are stored: whose they are, and with what path.
async fn read_known<'n>(
    tx: &mut Tx,
    given: &'n [NewAddress],
) -> Result<HashMap<&'n [u8], (WalletId, u32, Option<Path>)>, StoreError> {
    if given.is_empty() {
        return Ok(HashMap::new());
    }
    let scripts: HashSet<&'n [u8]> = given.iter().map(|one| one.script.as_slice()).collect();
    let column = Column::Bytes(scripts.iter().map(|script| script.to_vec()).collect());
    type Stored = (Vec<u8>, i64, i64, Option<i64>, Option<i64>);
    let rows: Vec<Stored> = fetch_rows(tx, &READ_SCRIPTS, vec![column]).await?;
    let mut known = HashMap::new();
    for (script, owner, account, branch, index) in rows {
        let path = branch.zip(index).map(|(branch, index)| path_of(branch, index)).transpose()?;
        if let Some(script) = scripts.get(script.as_slice()) {
            known.insert(*script, (WalletId(owner), number(account)?, path));
        }
    }
    Ok(known)
}

async fn insert_addresses(
    tx: &mut Tx,
    wallet: WalletId,
    fresh: &[&NewAddress],
    at: Timestamp,
) -> Result<(), StoreError> {
    if fresh.is_empty() {
        return Ok(());
    }
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
    execute_rows(tx, &INSERT_TOTALS, columns).await.map(|_| ())
}

/// They were only watched: without its path no signer finds the key.
async fn learn_paths(tx: &mut Tx, learned: &[&NewAddress]) -> Result<(), StoreError> {
    if learned.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Bytes(learned.iter().map(|one| one.script.clone()).collect()),
        Column::Texts(learned.iter().map(|one| one.kind.text()).collect()),
        Column::OptionalInts(learned.iter().map(|one| one.path.map(|path| i64::from(path.branch))).collect()),
        Column::OptionalInts(learned.iter().map(|one| one.path.map(|path| i64::from(path.index))).collect()),
    ];
    expect_rows(execute_rows(tx, &LEARN_PATHS, columns).await?, learned.len(), "addresses")
}

fn path_of(branch: i64, index: i64) -> Result<Path, StoreError> {
    let odd = |_| super::load::corrupt("a path has a branch that does not exist");
    Ok(Path { branch: u8::try_from(branch).map_err(odd)?, index: number(index)? })
}

/// A path leads to one script of a kind. Whoever gives another has mixed up two keys, or two wallets.
async fn check_paths<'n>(
    tx: &mut Tx,
    wallet: WalletId,
    added: impl Iterator<Item = &'n &'n NewAddress>,
) -> Result<(), UtxoError> {
    let with_path: Vec<(&NewAddress, Path)> = added.filter_map(|one| Some((*one, one.path?))).collect();
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
            Err(Refusal::PathTaken { account: number(*account)?, path: path_of(*branch, *index)? }.into())
        }
    }
}

fn shown(script: &[u8]) -> String {
    script.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn kind(text: &str) -> Result<AddressKind, StoreError> {
    AddressKind::of_text(text).ok_or_else(|| super::load::corrupt("an address has a kind that does not exist"))
}
