//! Reading the rows around an event, many at a time.

use std::collections::{BTreeSet, HashMap, HashSet};

use domain::utxo::{Graph, Ours, Row, Spent, State, TxEntry};

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

/// The columns of an [`EntryRow`], in its order.
const ENTRY: &str = "t.tx_hash, t.wallet_id, t.status, t.block_height, t.is_coinbase, t.is_own, t.given_up, t.id";

static READ_ENTRIES: RowsSql = RowsSql::listing(
    "READ_ENTRIES",
    "SELECT {columns} FROM {rows} {join} transactions t ON t.tx_hash = r.hash",
    ENTRY,
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

/// The columns of a [`ClaimRow`], in its order: an outpoint, with which input it is spent, and an [`ENTRY`].
const CLAIM: &str = "i.prev_hash, i.prev_index, i.input_index,
         t.tx_hash, t.wallet_id, t.status, t.block_height, t.is_coinbase, t.is_own, t.given_up, t.id";

/// The valid spenders of outpoints, ours or not.
static READ_SPENDERS: RowsSql = RowsSql::listing(
    "READ_SPENDERS",
    "SELECT {columns}
     FROM {rows} {join} tx_inputs i ON i.prev_hash = r.hash AND i.prev_index = r.output_index AND i.active
         {join} transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id",
    CLAIM,
    &[("hash", Bytes), ("output_index", Int)],
);

/// The valid spenders of any output of transactions.
static READ_CHILDREN: RowsSql = RowsSql::listing(
    "READ_CHILDREN",
    "SELECT {columns}
     FROM {rows} {join} tx_inputs i ON i.prev_hash = r.hash AND i.active
         {join} transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id",
    CLAIM,
    &[("hash", Bytes)],
);

/// The columns of a [`CoinRow`], in its order: of an output `u`, who made it (`p`) and who spends it (`s`).
const COIN: &str = "p.tx_hash, u.output_index, u.id, u.wallet_id, u.account, u.amount, s.tx_hash";

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

/// Invalid transactions that would spend these outpoints.
static READ_WAITING_FOR: RowsSql = RowsSql::listing(
    "READ_WAITING_FOR",
    "SELECT {columns}
     FROM {rows} {join} tx_inputs i ON i.prev_hash = r.hash AND i.prev_index = r.output_index AND NOT i.active
         {join} transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id",
    CLAIM,
    &[("hash", Bytes), ("output_index", Int)],
);

/// Invalid transactions that would spend any output of these.
static READ_WAITING_ON: RowsSql = RowsSql::listing(
    "READ_WAITING_ON",
    "SELECT {columns}
     FROM {rows} {join} tx_inputs i ON i.prev_hash = r.hash AND NOT i.active
         {join} transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id",
    CLAIM,
    &[("hash", Bytes)],
);

/// The transactions that these have replaced, in the order in which that happened.
static READ_REPLACED: RowsSql = RowsSql::new(
    "READ_REPLACED",
    "SELECT e.id, x.tx_hash, y.tx_hash
     FROM {rows} {join} transactions x ON x.tx_hash = r.hash
         {join} tx_replacements e ON e.wallet_id = x.wallet_id AND e.replacement_tx_id = x.id
         {join} transactions y ON y.wallet_id = e.wallet_id AND y.id = e.replaced_tx_id
     ORDER BY e.id",
    &[("hash", Bytes)],
);

/// Which of these were once published, and when last; and which were in a block and then pruned.
static READ_ONCE: RowsSql = RowsSql::new(
    "READ_ONCE",
    "SELECT e.wallet_id, e.tx_hash, e.status, MAX(e.at)
     FROM {rows} {join} transaction_events e ON e.tx_hash = r.hash
     WHERE e.status = 'published' OR (e.status = 'pruned' AND e.block_height IS NOT NULL)
     GROUP BY e.wallet_id, e.tx_hash, e.status",
    &[("hash", Bytes)],
);

/// Those of these blocks that are only known from an import: they were not read from the chain.
static READ_IMPORTED_AT: RowsSql = RowsSql::new(
    "READ_IMPORTED_AT",
    "SELECT b.block_height FROM {rows} {join} blocks b ON b.block_height = r.height WHERE NOT b.connected",
    &[("height", Int)],
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
    &READ_WAITING_FOR,
    &READ_WAITING_ON,
    &READ_ONCE,
    &READ_REPLACED,
    &READ_IMPORTED_AT,
];

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

/// What the history says of transactions: when each was last published, if ever; and which wallets have pruned which
/// of them out of a block.
#[derive(Default)]
pub(super) struct Once {
    pub published: HashMap<Hash, i64>,
    pub pruned: HashSet<(WalletId, Hash)>,
}

pub(super) async fn once(tx: &mut Tx, hashes: &[Hash]) -> Result<Once, StoreError> {
    let mut once = Once::default();
    if hashes.is_empty() {
        return Ok(once);
    }
    let rows: Vec<(i64, Vec<u8>, String, i64)> = fetch_rows(tx, &READ_ONCE, vec![bytes(hashes)]).await?;
    for (wallet, one, text, at) in rows {
        let one = hash(&one)?;
        if text == "pruned" {
            once.pruned.insert((WalletId(wallet), one));
        } else {
            let last = once.published.entry(one).or_insert(at);
            *last = at.max(*last);
        }
    }
    Ok(once)
}

/// A transaction's row: hash, wallet, status, height, coinbase, own, given up, id.
type EntryRow = (Vec<u8>, i64, String, Option<i64>, bool, bool, bool, i64);

/// Outpoint, with which input, and the row of the transaction that has it.
type ClaimRow = (Vec<u8>, i64, i64, Vec<u8>, i64, String, Option<i64>, bool, bool, bool, i64);

/// Outpoint, id, wallet, account, amount, spender.
type CoinRow = (Vec<u8>, i64, i64, i64, i64, i64, Option<Vec<u8>>);

/// A graph while it is being loaded.
#[derive(Default)]
pub(super) struct Around<'a> {
    pub graph: Graph<'a>,
    /// When transactions that were looked up were last published, if ever.
    pub published: HashMap<Hash, i64>,
}

impl Around<'_> {
    /// The transactions of these hashes, as far as they are stored and not loaded yet.
    pub async fn load_entries(
        &mut self,
        tx: &mut Tx,
        hashes: impl IntoIterator<Item = Hash>,
    ) -> Result<(), StoreError> {
        let known = &self.graph.entries;
        let missing: BTreeSet<Hash> = hashes.into_iter().filter(|one| !known.contains_key(one)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let rows: Vec<EntryRow> = fetch_rows(tx, &READ_ENTRIES, vec![bytes(&missing)]).await?;
        rows.into_iter().try_for_each(|row| self.take_entry(row).map(|_| ()))
    }

    fn take_entry(&mut self, row: EntryRow) -> Result<Hash, StoreError> {
        let (one, wallet, text, height, coinbase, own, given_up, id) = row;
        let one = hash(&one)?;
        let state = State { status: status(&text)?, height: height.map(number).transpose()? };
        let entry = self.graph.entries.entry(one).or_insert_with(|| TxEntry {
            given_up_before: given_up,
            given_up,
            ..TxEntry::stored(state, coinbase, own, id)
        });
        if entry.before != Some(state) || entry.given_up_before != given_up {
            return Err(corrupt("a transaction has another state in another wallet"));
        }
        entry.age = entry.age.min(id);
        entry.stored_in.insert(WalletId(wallet));
        Ok(one)
    }

    /// Which of these were published once, for those that are stored.
    pub async fn load_once(&mut self, tx: &mut Tx, hashes: &[Hash]) -> Result<Once, StoreError> {
        let once = once(tx, hashes).await?;
        for (one, at) in &once.published {
            self.graph.entries.entry(*one).and_modify(|entry| entry.once_published = true);
            self.published.insert(*one, *at);
        }
        Ok(once)
    }

    /// Which blocks of these transactions are only known from an import.
    pub async fn load_imported(&mut self, tx: &mut Tx, hashes: &[Hash]) -> Result<(), StoreError> {
        let heights: BTreeSet<i64> =
            hashes.iter().filter_map(|one| self.graph.state(*one)?.height).map(i64::from).collect();
        if heights.is_empty() {
            return Ok(());
        }
        let column = Column::Ints(heights.into_iter().collect());
        let rows: Vec<(i64,)> = fetch_rows(tx, &READ_IMPORTED_AT, vec![column]).await?;
        self.graph.imported = rows.into_iter().map(|(height,)| number(height)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The inputs of stored transactions, where they are not loaded yet.
    pub async fn load_inputs(&mut self, tx: &mut Tx, hashes: &BTreeSet<Hash>) -> Result<(), StoreError> {
        let (mut missing, mut wallets) = (Vec::new(), Vec::new());
        for one in hashes {
            let entry = self.graph.entries.get(one).filter(|entry| entry.inputs.is_empty() && !entry.coinbase);
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
        for (one, index, prev_hash, prev_index) in rows {
            let (one, input) = (hash(&one)?, OutPoint { hash: hash(&prev_hash)?, index: number(prev_index)? });
            self.graph.entries.entry(one).and_modify(|entry| entry.inputs.push(input));
            self.graph.add_claim(input, one, number(index)?);
        }
        Ok(())
    }

    /// Who validly spends these outpoints, with those transactions.
    pub async fn load_spenders(&mut self, tx: &mut Tx, outpoints: &[OutPoint]) -> Result<(), StoreError> {
        let known = &self.graph.spenders;
        let missing: Vec<OutPoint> = outpoints.iter().filter(|one| !known.contains_key(*one)).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let rows: Vec<ClaimRow> = fetch_rows(tx, &READ_SPENDERS, outpoint_columns(&missing)).await?;
        self.graph.spenders.extend(missing.into_iter().map(|outpoint| (outpoint, Spent::No)));
        self.take_claims(rows).map(|_| ())
    }

    /// The stored transactions that are not valid and would spend these outpoints.
    pub async fn load_waiting_for(
        &mut self,
        tx: &mut Tx,
        outpoints: &[OutPoint],
    ) -> Result<BTreeSet<Hash>, StoreError> {
        if outpoints.is_empty() {
            return Ok(BTreeSet::new());
        }
        let rows = fetch_rows(tx, &READ_WAITING_FOR, outpoint_columns(outpoints)).await?;
        self.take_claims(rows)
    }

    /// The stored transactions that are not valid and would spend any output of these.
    pub async fn load_waiting_on(&mut self, tx: &mut Tx, parents: &[Hash]) -> Result<BTreeSet<Hash>, StoreError> {
        if parents.is_empty() {
            return Ok(BTreeSet::new());
        }
        let rows = fetch_rows(tx, &READ_WAITING_ON, vec![bytes(parents)]).await?;
        self.take_claims(rows)
    }

    /// The valid stored transactions that spend any output of these.
    pub async fn load_children(&mut self, tx: &mut Tx, parents: &[Hash]) -> Result<BTreeSet<Hash>, StoreError> {
        if parents.is_empty() {
            return Ok(BTreeSet::new());
        }
        let rows = fetch_rows(tx, &READ_CHILDREN, vec![bytes(parents)]).await?;
        self.take_claims(rows)
    }

    fn take_claims(&mut self, rows: Vec<ClaimRow>) -> Result<BTreeSet<Hash>, StoreError> {
        let mut found = BTreeSet::new();
        for (prev_hash, prev_index, input, one, wallet, text, height, coinbase, own, given_up, id) in rows {
            let outpoint = OutPoint { hash: hash(&prev_hash)?, index: number(prev_index)? };
            let claimant = self.take_entry((one, wallet, text, height, coinbase, own, given_up, id))?;
            self.graph.add_claim(outpoint, claimant, number(input)?);
            found.insert(claimant);
        }
        Ok(found)
    }

    /// Whom these have replaced before.
    pub async fn load_replaced(&mut self, tx: &mut Tx, winners: Vec<Hash>) -> Result<(), StoreError> {
        if winners.is_empty() {
            return Ok(());
        }
        let rows: Vec<(i64, Vec<u8>, Vec<u8>)> = fetch_rows(tx, &READ_REPLACED, vec![bytes(&winners)]).await?;
        for (number, winner, victim) in rows {
            // A wallet that joined later has a row of its own with a higher number: it was the same replacement.
            self.graph.had_replaced.entry(hash(&winner)?).or_default().entry(hash(&victim)?).or_insert(number);
        }
        Ok(())
    }

    /// Our outputs at these outpoints, with their transactions.
    pub async fn load_coins_at(&mut self, tx: &mut Tx, outpoints: &[OutPoint]) -> Result<(), StoreError> {
        let known = &self.graph.coins;
        let missing: Vec<OutPoint> = outpoints.iter().filter(|one| !known.contains_key(*one)).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let rows = fetch_rows(tx, &READ_COINS_AT, outpoint_columns(&missing)).await?;
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

    async fn take_coins(&mut self, tx: &mut Tx, rows: Vec<CoinRow>) -> Result<(), StoreError> {
        let mut makers = BTreeSet::new();
        for (made_by, index, id, wallet, account, amount, spender) in rows {
            let outpoint = OutPoint { hash: hash(&made_by)?, index: number(index)? };
            let spender = spender.map(|bytes| hash(&bytes)).transpose()?;
            makers.insert(outpoint.hash);
            let row = Row::Stored { id, spender };
            self.graph
                .coins
                .insert(outpoint, Ours { wallet: WalletId(wallet), account: number(account)?, amount, row });
        }
        self.load_entries(tx, makers).await
    }
}
