//! Reading the rows around an event, many at a time.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::graph::{Graph, Ours, Row, Spent, State, TxEntry};
use super::types::{Hash, OutPoint, Status, WalletId};
use crate::db::Tx;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, RowsSql, fetch_rows};

static READ_OWNERS: RowsSql = RowsSql::new(
    "READ_OWNERS",
    "SELECT a.script_pub_key, a.wallet_id, a.id, a.account
     FROM {rows} {join} addresses a ON a.script_pub_key = r.script",
    &[("script", Bytes)],
);

static READ_ENTRIES: RowsSql = RowsSql::new(
    "READ_ENTRIES",
    "SELECT t.tx_hash, t.wallet_id, t.status, t.block_height, t.is_coinbase, t.is_own, t.id
     FROM {rows} {join} transactions t ON t.tx_hash = r.hash",
    &[("hash", Bytes)],
);

static READ_INPUTS: RowsSql = RowsSql::new(
    "READ_INPUTS",
    "SELECT t.tx_hash, i.input_index, i.prev_hash, i.prev_index
     FROM {rows} {join} transactions t ON t.tx_hash = r.hash AND t.wallet_id = r.wallet
         {join} tx_inputs i ON i.wallet_id = t.wallet_id AND i.tx_id = t.id
     ORDER BY t.tx_hash, i.input_index",
    &[("hash", Bytes), ("wallet", Int)],
);

/// The valid spenders of outpoints, ours or not.
static READ_SPENDERS: RowsSql = RowsSql::new(
    "READ_SPENDERS",
    "SELECT i.prev_hash, i.prev_index, t.tx_hash, i.input_index
     FROM {rows} {join} tx_inputs i ON i.prev_hash = r.hash AND i.prev_index = r.output_index AND i.active
         {join} transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id",
    &[("hash", Bytes), ("output_index", Int)],
);

/// The valid spenders of any output of transactions.
static READ_CHILDREN: RowsSql = RowsSql::new(
    "READ_CHILDREN",
    "SELECT i.prev_hash, i.prev_index, t.tx_hash, i.input_index
     FROM {rows} {join} tx_inputs i ON i.prev_hash = r.hash AND i.active
         {join} transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id",
    &[("hash", Bytes)],
);

/// The columns of a [`CoinRow`], in its order: of an output `u`, who made it (`p`) and who spends it (`s`).
const COIN: &str = "p.tx_hash, u.output_index, u.wallet_id, u.account, u.amount, s.tx_hash";

static READ_COINS_AT: RowsSql = RowsSql::listing(
    "READ_COINS_AT",
    "SELECT {columns}
     FROM {rows} {join} transactions p ON p.tx_hash = r.hash
         {join} utxos u ON u.wallet_id = p.wallet_id AND u.tx_id = p.id AND u.output_index = r.output_index
         LEFT JOIN transactions s ON s.wallet_id = u.wallet_id AND s.id = u.spent_by_tx_id",
    COIN,
    &[("hash", Bytes), ("output_index", Int)],
);

static READ_COINS_MADE: RowsSql = RowsSql::listing(
    "READ_COINS_MADE",
    "SELECT {columns}
     FROM {rows} {join} transactions p ON p.tx_hash = r.hash
         {join} utxos u ON u.wallet_id = p.wallet_id AND u.tx_id = p.id
         LEFT JOIN transactions s ON s.wallet_id = u.wallet_id AND s.id = u.spent_by_tx_id",
    COIN,
    &[("hash", Bytes)],
);

static READ_COINS_SPENT: RowsSql = RowsSql::listing(
    "READ_COINS_SPENT",
    "SELECT {columns}
     FROM {rows} {join} transactions s ON s.tx_hash = r.hash
         {join} utxos u ON u.wallet_id = s.wallet_id AND u.spent_by_tx_id = s.id
         {join} transactions p ON p.wallet_id = u.wallet_id AND p.id = u.tx_id",
    COIN,
    &[("hash", Bytes)],
);

/// Invalid transactions that would spend these outpoints.
static READ_WAITING_FOR: RowsSql = RowsSql::new(
    "READ_WAITING_FOR",
    "SELECT DISTINCT i.prev_hash, i.prev_index, t.tx_hash
     FROM {rows} {join} tx_inputs i ON i.prev_hash = r.hash AND i.prev_index = r.output_index AND NOT i.active
         {join} transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id",
    &[("hash", Bytes), ("output_index", Int)],
);

/// Invalid transactions that would spend any output of these.
static READ_WAITING_ON: RowsSql = RowsSql::new(
    "READ_WAITING_ON",
    "SELECT DISTINCT t.tx_hash
     FROM {rows} {join} tx_inputs i ON i.prev_hash = r.hash AND NOT i.active
         {join} transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id",
    &[("hash", Bytes)],
);

/// The transactions that these have replaced, the newest last.
static READ_REPLACED: RowsSql = RowsSql::new(
    "READ_REPLACED",
    "SELECT e.id, y.tx_hash
     FROM {rows} {join} transactions x ON x.tx_hash = r.hash
         {join} tx_replacements e ON e.wallet_id = x.wallet_id AND e.replacement_tx_id = x.id
         {join} transactions y ON y.wallet_id = e.wallet_id AND y.id = e.replaced_tx_id
     ORDER BY e.id",
    &[("hash", Bytes)],
);

/// Which of these were once published; and which were in a block and then pruned.
static READ_ONCE: RowsSql = RowsSql::new(
    "READ_ONCE",
    "SELECT DISTINCT e.wallet_id, e.tx_hash, e.status
     FROM {rows} {join} transaction_events e ON e.tx_hash = r.hash
     WHERE e.status = 'published' OR (e.status = 'pruned' AND e.block_height IS NOT NULL)",
    &[("hash", Bytes)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 12] = [
    &READ_OWNERS,
    &READ_ENTRIES,
    &READ_INPUTS,
    &READ_SPENDERS,
    &READ_CHILDREN,
    &READ_COINS_AT,
    &READ_COINS_MADE,
    &READ_COINS_SPENT,
    &READ_WAITING_FOR,
    &READ_WAITING_ON,
    &READ_ONCE,
    &READ_REPLACED,
];

statements! {
    READ_IS_IMPORTED = "SELECT block_height FROM blocks WHERE block_height = $1 AND NOT connected";
}

/// Whether the block is only known from an import: it was not read from the chain.
pub(super) async fn is_imported(tx: &mut Tx, height: u32) -> Result<bool, StoreError> {
    Ok(fetch_optional!(tx, READ_IS_IMPORTED => (i64,), i64::from(height))?.is_some())
}

pub(super) fn bytes<'b>(hashes: impl IntoIterator<Item = &'b Hash>) -> Column<'static> {
    Column::Bytes(hashes.into_iter().map(|hash| hash.0.to_vec()).collect())
}

pub(super) fn outpoint_columns(outpoints: &[OutPoint]) -> Vec<Column<'static>> {
    vec![
        bytes(outpoints.iter().map(|one| &one.hash)),
        Column::Ints(outpoints.iter().map(|one| i64::from(one.index)).collect()),
    ]
}

pub(super) fn hash(bytes: &[u8]) -> Result<Hash, StoreError> {
    bytes.try_into().map(Hash).map_err(|_| corrupt("a hash is not 32 bytes long"))
}

pub(super) fn number(stored: i64) -> Result<u32, StoreError> {
    u32::try_from(stored).map_err(|_| corrupt("an index or a height is out of range"))
}

pub(super) fn status(text: &str) -> Result<Status, StoreError> {
    Status::of_text(text).ok_or_else(|| corrupt("a transaction has a status that does not exist"))
}

pub(super) fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt { what: what.to_owned() }
}

/// Whose these scripts are: wallet, address, account.
pub(super) async fn owners(
    tx: &mut Tx,
    scripts: HashSet<&[u8]>,
) -> Result<HashMap<Vec<u8>, (WalletId, i64, u32)>, StoreError> {
    if scripts.is_empty() {
        return Ok(HashMap::new());
    }
    let column = Column::Bytes(scripts.into_iter().map(<[u8]>::to_vec).collect());
    let rows: Vec<(Vec<u8>, i64, i64, i64)> = fetch_rows(tx, &READ_OWNERS, vec![column]).await?;
    rows.into_iter()
        .map(|(script, wallet, id, account)| Ok((script, (WalletId(wallet), id, number(account)?))))
        .collect()
}

/// Those of these that were once published; and which wallets have pruned which of them out of a block.
pub(super) async fn once(
    tx: &mut Tx,
    hashes: &[Hash],
) -> Result<(HashSet<Hash>, HashSet<(WalletId, Hash)>), StoreError> {
    let (mut published, mut pruned) = (HashSet::new(), HashSet::new());
    if hashes.is_empty() {
        return Ok((published, pruned));
    }
    let rows: Vec<(i64, Vec<u8>, String)> = fetch_rows(tx, &READ_ONCE, vec![bytes(hashes)]).await?;
    for (wallet, one, text) in rows {
        let one = hash(&one)?;
        if text == "pruned" {
            pruned.insert((WalletId(wallet), one));
        } else {
            published.insert(one);
        }
    }
    Ok((published, pruned))
}

/// The transactions that these have replaced, each with the number of the newest replacement.
pub(super) async fn replaced(tx: &mut Tx, winners: &[Hash]) -> Result<Vec<(Hash, i64)>, StoreError> {
    if winners.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<(i64, Vec<u8>)> = fetch_rows(tx, &READ_REPLACED, vec![bytes(winners)]).await?;
    rows.iter().map(|(number, victim)| Ok((hash(victim)?, *number))).collect()
}

/// Invalid stored transactions that would spend these outpoints, or any output of these transactions.
pub(super) async fn waiting(tx: &mut Tx, freed: &[OutPoint], risen: &[Hash]) -> Result<Vec<Hash>, StoreError> {
    let mut rows: Vec<(Vec<u8>,)> = Vec::new();
    if !freed.is_empty() {
        let found: Vec<(Vec<u8>, i64, Vec<u8>)> = fetch_rows(tx, &READ_WAITING_FOR, outpoint_columns(freed)).await?;
        rows.extend(found.into_iter().map(|(_, _, waiting)| (waiting,)));
    }
    if !risen.is_empty() {
        rows.extend(fetch_rows(tx, &READ_WAITING_ON, vec![bytes(risen)]).await?);
    }
    rows.iter().map(|row| hash(&row.0)).collect()
}

impl Graph<'_> {
    /// The transactions of these hashes, as far as they are stored and not loaded yet.
    pub async fn load_entries(
        &mut self,
        tx: &mut Tx,
        hashes: impl IntoIterator<Item = Hash>,
    ) -> Result<(), StoreError> {
        let missing: BTreeSet<Hash> = hashes.into_iter().filter(|one| !self.entries.contains_key(one)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        type Stored = (Vec<u8>, i64, String, Option<i64>, bool, bool, i64);
        let rows: Vec<Stored> = fetch_rows(tx, &READ_ENTRIES, vec![bytes(&missing)]).await?;
        for (one, wallet, text, height, coinbase, own, id) in rows {
            let state = State { status: status(&text)?, height: height.map(number).transpose()? };
            let entry = self.entries.entry(hash(&one)?).or_insert_with(|| TxEntry {
                before: Some(state),
                now: state,
                coinbase,
                own,
                stored_in: BTreeSet::new(),
                joins: BTreeSet::new(),
                inputs: Vec::new(),
                given: None,
                age: id,
                once_published: state.status == Status::Published,
                reason: "",
                cause: None,
            });
            if entry.before != Some(state) {
                return Err(corrupt("a transaction has another state in another wallet"));
            }
            entry.age = entry.age.min(id);
            entry.stored_in.insert(WalletId(wallet));
        }
        Ok(())
    }

    /// The inputs of stored transactions, where they are not loaded yet.
    pub async fn load_inputs(&mut self, tx: &mut Tx, hashes: &[Hash]) -> Result<(), StoreError> {
        let (mut missing, mut wallets) = (Vec::new(), Vec::new());
        for one in hashes.iter().collect::<BTreeSet<_>>() {
            let entry = self.entries.get(one).filter(|entry| entry.inputs.is_empty() && !entry.coinbase);
            if let Some(wallet) = entry.and_then(|entry| entry.stored_in.first()) {
                missing.push(*one);
                wallets.push(wallet.0);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let columns = vec![bytes(&missing), Column::Ints(wallets)];
        let rows: Vec<(Vec<u8>, i64, Vec<u8>, i64)> = fetch_rows(tx, &READ_INPUTS, columns).await?;
        for (one, _, prev_hash, prev_index) in rows {
            let input = OutPoint { hash: hash(&prev_hash)?, index: number(prev_index)? };
            self.entries.entry(hash(&one)?).and_modify(|entry| entry.inputs.push(input));
        }
        Ok(())
    }

    /// Who validly spends these outpoints, with those transactions.
    pub async fn load_spenders(&mut self, tx: &mut Tx, outpoints: &[OutPoint]) -> Result<(), StoreError> {
        let missing: Vec<OutPoint> =
            outpoints.iter().filter(|one| !self.spenders.contains_key(*one)).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let rows: Vec<Spend> = fetch_rows(tx, &READ_SPENDERS, outpoint_columns(&missing)).await?;
        self.spenders.extend(missing.into_iter().map(|outpoint| (outpoint, Spent::No)));
        self.take_spends(tx, rows).await.map(|_| ())
    }

    /// The stored transactions that are not valid and would spend these outpoints.
    pub async fn load_rivals(&mut self, tx: &mut Tx, outpoints: &[OutPoint]) -> Result<(), StoreError> {
        if outpoints.is_empty() {
            return Ok(());
        }
        let rows: Vec<(Vec<u8>, i64, Vec<u8>)> = fetch_rows(tx, &READ_WAITING_FOR, outpoint_columns(outpoints)).await?;
        let mut rivals = BTreeSet::new();
        for (prev_hash, prev_index, rival) in rows {
            let (outpoint, rival) = (OutPoint { hash: hash(&prev_hash)?, index: number(prev_index)? }, hash(&rival)?);
            self.rivals.entry(outpoint).or_default().push(rival);
            rivals.insert(rival);
        }
        self.load_entries(tx, rivals).await
    }

    /// The valid stored transactions that spend any output of these, with those transactions.
    pub async fn load_children(&mut self, tx: &mut Tx, parents: &[Hash]) -> Result<Vec<Hash>, StoreError> {
        if parents.is_empty() {
            return Ok(Vec::new());
        }
        let rows: Vec<Spend> = fetch_rows(tx, &READ_CHILDREN, vec![bytes(parents)]).await?;
        self.take_spends(tx, rows).await
    }

    async fn take_spends(&mut self, tx: &mut Tx, rows: Vec<Spend>) -> Result<Vec<Hash>, StoreError> {
        let mut spends = Vec::with_capacity(rows.len());
        for (prev_hash, prev_index, spender, input_index) in rows {
            let outpoint = OutPoint { hash: hash(&prev_hash)?, index: number(prev_index)? };
            spends.push((outpoint, hash(&spender)?, number(input_index)?));
        }
        let hashes: BTreeSet<Hash> = spends.iter().map(|(_, spender, _)| *spender).collect();
        self.load_entries(tx, hashes.iter().copied()).await?;
        for (outpoint, spender, index) in spends {
            // A change of this event is newer than the row.
            let is_news = self.spenders.get(&outpoint).is_none_or(|spent| *spent == Spent::No);
            if is_news && self.entries.get(&spender).is_some_and(|entry| entry.is_valid()) {
                self.spenders.insert(outpoint, Spent::By { spender, input: index });
            }
        }
        Ok(hashes.into_iter().collect())
    }

    /// Our outputs at these outpoints, with their transactions.
    pub async fn load_coins_at(&mut self, tx: &mut Tx, outpoints: &[OutPoint]) -> Result<(), StoreError> {
        if outpoints.is_empty() {
            return Ok(());
        }
        let rows = fetch_rows(tx, &READ_COINS_AT, outpoint_columns(outpoints)).await?;
        self.take_coins(tx, rows).await
    }

    /// Our outputs that these have made.
    pub async fn load_coins_made(&mut self, tx: &mut Tx, hashes: &[Hash]) -> Result<(), StoreError> {
        if hashes.is_empty() {
            return Ok(());
        }
        let rows = fetch_rows(tx, &READ_COINS_MADE, vec![bytes(hashes)]).await?;
        self.take_coins(tx, rows).await
    }

    /// Our outputs that these spend, as it is stored.
    pub async fn load_coins_spent(&mut self, tx: &mut Tx, hashes: &[Hash]) -> Result<(), StoreError> {
        if hashes.is_empty() {
            return Ok(());
        }
        let rows = fetch_rows(tx, &READ_COINS_SPENT, vec![bytes(hashes)]).await?;
        self.take_coins(tx, rows).await
    }

    async fn take_coins(&mut self, tx: &mut Tx, rows: Vec<CoinRow>) -> Result<(), StoreError> {
        let mut makers = BTreeSet::new();
        for (made_by, index, wallet, account, amount, spender) in rows {
            let outpoint = OutPoint { hash: hash(&made_by)?, index: number(index)? };
            let spender = spender.map(|bytes| hash(&bytes)).transpose()?;
            makers.insert(outpoint.hash);
            let row = Row::Stored { spender };
            self.coins.insert(outpoint, Ours { wallet: WalletId(wallet), account: number(account)?, amount, row });
        }
        self.load_entries(tx, makers).await
    }
}

/// Outpoint, spender, with which of its inputs.
type Spend = (Vec<u8>, i64, Vec<u8>, i64);

/// Outpoint, wallet, account, amount, spender.
type CoinRow = (Vec<u8>, i64, i64, i64, i64, Option<Vec<u8>>);
