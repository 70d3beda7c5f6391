//! Wallets and their addresses.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use domain::Timestamp;

use super::events::{lock, publish_all, refused};
use super::load::{hash, number};
use super::types::{
    Added, AddressKind, AddressRow, Hash, Network, NewAddress, Path, Paths, UtxoError, UtxoRefusal, Wallet, WalletId,
    WalletStatus,
};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::rows::{
    Column, ColumnType::Bytes, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, expect_rows, fetch_rows,
};
use crate::transact;

statements! {
    INSERT_WALLET = "INSERT INTO wallets (name, network, status, created_at)
        VALUES ($1, $2, 'active', $3) RETURNING id";
    READ_WALLETS = "SELECT id, name, network, status, unread_from FROM wallets ORDER BY id";
    BEGIN_RESTORE = "UPDATE wallets SET status = 'restoring' WHERE id = $1";
    BEGIN_IMPORT = "UPDATE wallets SET status = 'restoring', unread_from = 0 WHERE id = $1";
    END_IMPORT = "UPDATE wallets SET status = 'restoring', unread_from = $2 WHERE id = $1";
    MARK_ALL_UNREAD = "UPDATE wallets SET status = 'restoring',
            unread_from = CASE WHEN unread_from < $1 THEN unread_from ELSE $1 END";
    /// Unless more is unread by now than was read.
    FINISH_RESTORE = "UPDATE wallets SET status = 'active', unread_from = NULL
        WHERE id = $1 AND (unread_from IS NULL OR unread_from >= $2)";
    /// $2: an account, or -1 for all; $3: begin after; $4: how many.
    LIST_ADDRESSES = "SELECT a.id, a.account, a.kind, a.branch, a.child_index, a.script_pub_key, b.label, a.created_at,
            EXISTS (SELECT 1 FROM utxos u WHERE u.wallet_id = a.wallet_id AND u.address_id = a.id)
        FROM addresses a LEFT JOIN address_labels b ON b.wallet_id = a.wallet_id AND b.address_id = a.id
        WHERE a.wallet_id = $1 AND a.id > $3 AND ($2 < 0 OR a.account = $2) ORDER BY a.id LIMIT $4";
    COUNT_SCRIPT = "SELECT COUNT(*) FROM addresses WHERE script_pub_key = $1";
    READ_PENDING = "SELECT tx_hash FROM transactions
        WHERE wallet_id = $1 AND block_height IS NULL AND status IN ('pending', 'published') AND status = 'pending'";
}

static READ_SCRIPTS: RowsSql = RowsSql::new(
    "READ_SCRIPTS",
    "SELECT a.script_pub_key, a.wallet_id, a.account, a.branch, a.child_index
     FROM {rows} {join} addresses a ON a.script_pub_key = r.script",
    &[("script", Bytes)],
);

static READ_PATHS: RowsSql = RowsSql::new(
    "READ_PATHS",
    "SELECT a.account, a.kind, a.branch, a.child_index
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

    /// Adds addresses. From now on outputs that pay them are ours; outputs that paid them before are found when their
    /// blocks are read again. One that was added without a path can be given again with it: then it can be spent from.
    pub async fn add_addresses(
        &self,
        wallet: WalletId,
        given: &[NewAddress],
        paths: Paths,
        at: Timestamp,
    ) -> Result<Added, UtxoError> {
        Ok(transact!(self, tx => refused(add(tx, wallet, given, paths, at).await))??)
    }

    /// The wallet's addresses in the order in which they were added, a page at a time.
    pub async fn addresses(
        &self,
        wallet: WalletId,
        account: Option<u32>,
        after: Option<i64>,
        most: u32,
    ) -> Result<Vec<AddressRow>, UtxoError> {
        type Row = (i64, i64, String, Option<i64>, Option<i64>, Vec<u8>, Option<String>, i64, bool);
        let (account, after) = (account.map_or(-1, i64::from), after.unwrap_or(i64::MIN));
        let mut tx = self.read().await?;
        let rows = fetch_all!(&mut tx, LIST_ADDRESSES => Row, wallet.0, account, after, i64::from(most))?;
        let address = |(id, account, text, branch, index, script, label, added, paid): Row| {
            Ok(AddressRow {
                id,
                account: number(account)?,
                kind: kind(&text)?,
                path: branch.zip(index).map(|(branch, index)| path_of(branch, index)).transpose()?,
                script,
                label,
                paid,
                added: Timestamp::from_micros(added),
            })
        };
        rows.into_iter().map(address).collect()
    }

    /// A backup was put back: until the nodes were asked what became of the unconfirmed transactions, nothing is
    /// selected. A transaction that is pending in the backup may have been broadcast since, so it can no longer be
    /// abandoned.
    pub async fn begin_restore(&self, wallet: WalletId, at: Timestamp) -> Result<(), UtxoError> {
        Ok(transact!(self, tx => refused(begin_restore(tx, wallet, at).await))??)
    }

    /// Another wallet's addresses and history are about to be added. Until [`Db::end_import`] none of it is
    /// believed: the wallet counts as unread from the first block of the chain on.
    pub async fn begin_import(&self, wallet: WalletId) -> Result<(), UtxoError> {
        Ok(transact!(self, tx => {
            lock(tx).await?;
            execute!(tx, BEGIN_IMPORT, wallet.0)?;
            refused(known(tx, wallet).await)
        })??)
    }

    /// All of it is there, and every output of the wallet is as the source says. The source does not know the chain
    /// from this block on; it must be read before anything is selected.
    pub async fn end_import(&self, wallet: WalletId, unread_from: u32) -> Result<(), UtxoError> {
        Ok(transact!(self, tx => {
            lock(tx).await?;
            execute!(tx, END_IMPORT, wallet.0, i64::from(unread_from))?;
            refused(known(tx, wallet).await)
        })??)
    }

    /// The nodes were asked, and the blocks from a height on were read.
    pub async fn finish_restore(&self, wallet: WalletId, read_from: Option<u32>) -> Result<(), UtxoError> {
        Ok(transact!(self, tx => refused(finish_restore(tx, wallet, read_from).await))??)
    }
}

/// Whether some wallet watches the script.
pub async fn is_watched(tx: &mut Tx, script: &[u8]) -> Result<bool, StoreError> {
    Ok(fetch_optional!(tx, COUNT_SCRIPT => (i64,), script)?.is_some_and(|(count,)| count > 0))
}

async fn known(tx: &mut Tx, wallet: WalletId) -> Result<(), UtxoError> {
    let known = read_wallets(tx).await?.iter().any(|one| one.id == wallet);
    if known { Ok(()) } else { Err(UtxoRefusal::UnknownWallet.into()) }
}

pub(super) async fn begin_restore(tx: &mut Tx, wallet: WalletId, at: Timestamp) -> Result<(), UtxoError> {
    lock(tx).await?;
    known(tx, wallet).await?;
    execute!(tx, BEGIN_RESTORE, wallet.0)?;
    let rows = fetch_all!(tx, READ_PENDING => (Vec<u8>,), wallet.0)?;
    let pending: Vec<Hash> = rows.iter().map(|row| hash(&row.0)).collect::<Result<_, _>>()?;
    publish_all(tx, pending, "may have been broadcast since the backup", at).await.map(|_| ())
}

async fn finish_restore(tx: &mut Tx, wallet: WalletId, read_from: Option<u32>) -> Result<(), UtxoError> {
    lock(tx).await?;
    known(tx, wallet).await?;
    let read_from = read_from.map_or(i64::MAX, i64::from);
    match execute!(tx, FINISH_RESTORE, wallet.0, read_from)? {
        0 => Err(UtxoRefusal::Restoring.into()),
        _ => Ok(()),
    }
}

/// Blocks must be read again before any wallet is spent from.
pub(super) async fn mark_all_unread(tx: &mut Tx, from: u32) -> Result<(), StoreError> {
    execute!(tx, MARK_ALL_UNREAD, i64::from(from)).map(|_| ())
}

pub(super) async fn read_wallets(tx: &mut Tx) -> Result<Vec<Wallet>, StoreError> {
    type Row = (i64, String, String, String, Option<i64>);
    let rows = fetch_all!(tx, READ_WALLETS => Row)?;
    let wallet = |(id, name, network, status, unread_from): Row| {
        let odd = || StoreError::Corrupt { what: format!("wallet {id} has a network or status that does not exist") };
        let network = Network::of_text(&network).ok_or_else(odd)?;
        let status = WalletStatus::of_text(&status).ok_or_else(odd)?;
        let unread_from = unread_from.map(number).transpose()?;
        Ok(Wallet { id: WalletId(id), name, network, status, unread_from })
    };
    rows.into_iter().map(wallet).collect()
}

pub(crate) async fn create(tx: &mut Tx, name: &str, network: Network, at: Timestamp) -> Result<WalletId, UtxoError> {
    lock(tx).await?;
    let wallets = read_wallets(tx).await?;
    if let Some(other) = wallets.iter().find(|wallet| wallet.network != network) {
        return Err(UtxoRefusal::OtherNetwork(other.network).into());
    }
    if let Some(same) = wallets.iter().find(|wallet| wallet.name == name) {
        return Ok(same.id);
    }
    let row = fetch_optional!(tx, INSERT_WALLET => (i64,), name, network.text(), at.micros())?;
    row.map(|(id,)| WalletId(id)).ok_or_else(|| super::load::corrupt("a new wallet has no id").into())
}

pub(crate) async fn add(
    tx: &mut Tx,
    wallet: WalletId,
    given: &[NewAddress],
    paths: Paths,
    at: Timestamp,
) -> Result<Added, UtxoError> {
    lock(tx).await?;
    known(tx, wallet).await?;
    let mut stored = read_known(tx, given).await?;
    let mut taken = read_taken(tx, wallet, given).await?;
    let (mut fresh, mut learned): (BTreeMap<&[u8], NewAddress>, Vec<NewAddress>) = Default::default();
    for one in given {
        let there = stored.get(one.script.as_slice()).copied();
        if there.is_some_and(|(owner, account, _)| (owner, account) != (wallet, one.account)) {
            return Err(UtxoRefusal::AddressTaken(shown(&one.script)).into());
        }
        // The path that it gets now.
        let path = match (one.path, there.and_then(|(.., path)| path)) {
            (None, _) => None,
            (Some(path), Some(known)) if path == known => None,
            (Some(_), Some(known)) if paths == Paths::Exact => {
                return Err(UtxoRefusal::OtherPath { script: shown(&one.script), path: known }.into());
            }
            (Some(_), Some(_)) => None,
            (Some(path), None) if taken.insert((one.account, one.kind, path)) => Some(path),
            (Some(path), None) if paths == Paths::Exact => {
                return Err(UtxoRefusal::PathTaken { account: one.account, path }.into());
            }
            (Some(_), None) => None,
        };
        let kind = if path == one.path { one.kind } else { AddressKind::Other };
        let new = NewAddress { path, kind, ..one.clone() };
        match (there, path, fresh.get_mut(one.script.as_slice())) {
            (None, ..) => {
                fresh.insert(&one.script, new);
            }
            // Twice in one list, the second time with its path.
            (Some(_), Some(_), Some(first)) => *first = new,
            (Some(_), Some(_), None) => learned.push(new),
            (Some(_), None, _) => continue,
        }
        stored.insert(&one.script, (wallet, one.account, path));
    }
    let fresh: Vec<NewAddress> = fresh.into_values().collect();
    insert_addresses(tx, wallet, &fresh, at).await?;
    learn_paths(tx, &learned).await?;
    if !fresh.is_empty() {
        super::followed::count_addresses(tx, fresh.len()).await?;
    }
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
    fresh: &[NewAddress],
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
async fn learn_paths(tx: &mut Tx, learned: &[NewAddress]) -> Result<(), StoreError> {
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

/// A path leads to one script of a kind. Those of these that lead to one already.
async fn read_taken(
    tx: &mut Tx,
    wallet: WalletId,
    given: &[NewAddress],
) -> Result<HashSet<(u32, AddressKind, Path)>, StoreError> {
    let with_path: Vec<(&NewAddress, Path)> = given.iter().filter_map(|one| Some((one, one.path?))).collect();
    if with_path.is_empty() {
        return Ok(HashSet::new());
    }
    let columns = vec![
        Column::Ints(vec![wallet.0; with_path.len()]),
        Column::Ints(with_path.iter().map(|(one, _)| i64::from(one.account)).collect()),
        Column::Texts(with_path.iter().map(|(one, _)| one.kind.text()).collect()),
        Column::Ints(with_path.iter().map(|(_, path)| i64::from(path.branch)).collect()),
        Column::Ints(with_path.iter().map(|(_, path)| i64::from(path.index)).collect()),
    ];
    let rows: Vec<(i64, String, i64, i64)> = fetch_rows(tx, &READ_PATHS, columns).await?;
    let taken = |(account, text, branch, index): (i64, String, i64, i64)| {
        Ok((number(account)?, kind(&text)?, path_of(branch, index)?))
    };
    rows.into_iter().map(taken).collect()
}

fn shown(script: &[u8]) -> String {
    script.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn kind(text: &str) -> Result<AddressKind, StoreError> {
    AddressKind::of_text(text).ok_or_else(|| super::load::corrupt("an address has a kind that does not exist"))
}
