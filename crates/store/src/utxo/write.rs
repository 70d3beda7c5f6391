//! Writing what an event has changed, many rows at a time.

use std::collections::{HashMap, HashSet};

use domain::Timestamp;
use domain::utxo::{Delta, Graph, Row, Spent, State, Told, TxEntry};

use super::load::{bytes, corrupt};
use super::types::{Changes, Hash, OutPoint, TxChange, WalletId};
use crate::db::Tx;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, ColumnType::Text, RowsSql, Writes};
use crate::rows::{execute_rows, expect_rows, fetch_rows};

/// A lease locks its outputs in this order too, so that two transactions that meet wait for each other in one
/// direction.
static LOCK_COINS: RowsSql = RowsSql::new(
    "LOCK_COINS",
    "SELECT u.id FROM {rows} {join} utxos u ON u.wallet_id = r.wallet AND u.id = r.id
     ORDER BY u.id {FOR NO KEY UPDATE OF u}",
    &[("wallet", Int), ("id", Int)],
);

static CHANGE_TRANSACTIONS: RowsSql = RowsSql::new(
    "CHANGE_TRANSACTIONS",
    "UPDATE transactions SET status = r.status, block_height = r.height, is_own = r.own <> 0,
         given_up = r.given_up <> 0
     FROM {rows} WHERE transactions.tx_hash = r.hash AND transactions.wallet_id = r.wallet",
    &[("wallet", Int), ("hash", Bytes), ("status", Text), ("height", Int), ("own", Int), ("given_up", Int)],
);

static INSERT_TRANSACTIONS: RowsSql = RowsSql::new(
    "INSERT_TRANSACTIONS",
    "INSERT INTO transactions (wallet_id, tx_hash, raw_tx, block_height, status, received_time, is_coinbase, is_own)
     SELECT wallet, hash, raw, height, status, at, coinbase <> 0, own <> 0 FROM {rows}",
    &[
        ("wallet", Int),
        ("hash", Bytes),
        ("raw", Bytes),
        ("height", Int),
        ("status", Text),
        ("at", Int),
        ("coinbase", Int),
        ("own", Int),
    ],
);

/// A wallet that a stored transaction did not concern before gets its row from one that has it.
static COPY_TRANSACTIONS: RowsSql = RowsSql::new(
    "COPY_TRANSACTIONS",
    "INSERT INTO transactions (wallet_id, tx_hash, raw_tx, block_height, status, received_time, is_coinbase, is_own,
         given_up)
     SELECT r.wallet, t.tx_hash, t.raw_tx, t.block_height, t.status, t.received_time, t.is_coinbase, t.is_own, t.given_up
     FROM {rows} {join} transactions t ON t.tx_hash = r.hash AND t.wallet_id = r.source",
    &[("wallet", Int), ("hash", Bytes), ("source", Int)],
);

static COPY_INPUTS: RowsSql = RowsSql::new(
    "COPY_INPUTS",
    "INSERT INTO tx_inputs (wallet_id, tx_id, input_index, prev_hash, prev_index, active)
     SELECT n.wallet_id, n.id, i.input_index, i.prev_hash, i.prev_index, i.active
     FROM {rows} {join} transactions t ON t.tx_hash = r.hash AND t.wallet_id = r.source
         {join} tx_inputs i ON i.wallet_id = t.wallet_id AND i.tx_id = t.id
         {join} transactions n ON n.tx_hash = r.hash AND n.wallet_id = r.wallet",
    &[("wallet", Int), ("hash", Bytes), ("source", Int)],
);

static INSERT_INPUTS: RowsSql = RowsSql::new(
    "INSERT_INPUTS",
    "INSERT INTO tx_inputs (wallet_id, tx_id, input_index, prev_hash, prev_index, active)
     SELECT t.wallet_id, t.id, r.input_index, r.prev_hash, r.prev_index, t.status IN ('pending', 'published')
     FROM {rows} {join} transactions t ON t.tx_hash = r.hash AND t.wallet_id = r.wallet",
    &[("wallet", Int), ("hash", Bytes), ("input_index", Int), ("prev_hash", Bytes), ("prev_index", Int)],
);

/// With the spender, if the same event has shown it.
static INSERT_UTXOS: RowsSql = RowsSql::new(
    "INSERT_UTXOS",
    "INSERT INTO utxos (wallet_id, tx_id, output_index, amount, address_id, account, valid,
         spent_by_tx_id, spent_input_index)
     SELECT t.wallet_id, t.id, r.output_index, r.amount, r.address, r.account, t.status IN ('pending', 'published'),
         (SELECT s.id FROM transactions s WHERE s.tx_hash = r.spender AND s.wallet_id = r.wallet), r.input_index
     FROM {rows} {join} transactions t ON t.tx_hash = r.hash AND t.wallet_id = r.wallet",
    &[
        ("wallet", Int),
        ("hash", Bytes),
        ("output_index", Int),
        ("amount", Int),
        ("address", Int),
        ("account", Int),
        ("spender", Bytes),
        ("input_index", Int),
    ],
);

/// By their ids, and the spender by a lookup of its own: a planner that knows nothing of the tables yet must not get
/// the idea to read all of a wallet's outputs.
static SPEND_UTXOS: RowsSql = RowsSql::new(
    "SPEND_UTXOS",
    "UPDATE utxos SET spent_input_index = r.input_index,
         spent_by_tx_id = (SELECT s.id FROM transactions s WHERE s.tx_hash = r.spender AND s.wallet_id = r.wallet)
     FROM {rows} WHERE utxos.wallet_id = r.wallet AND utxos.id = r.id",
    &[("wallet", Int), ("id", Int), ("spender", Bytes), ("input_index", Int)],
);

/// A pair that is stored already is left as it is.
static INSERT_REPLACEMENTS: RowsSql = RowsSql::new(
    "INSERT_REPLACEMENTS",
    "INSERT INTO tx_replacements (wallet_id, replaced_tx_id, replacement_tx_id, created_at)
     SELECT x.wallet, x.replaced, x.replacement, x.at FROM (
         SELECT r.wallet, r.at,
             (SELECT t.id FROM transactions t WHERE t.tx_hash = r.victim AND t.wallet_id = r.wallet) AS replaced,
             (SELECT t.id FROM transactions t WHERE t.tx_hash = r.winner AND t.wallet_id = r.wallet) AS replacement
         FROM {rows}) AS x
     WHERE x.replaced IS NOT NULL AND x.replacement IS NOT NULL
     ON CONFLICT (wallet_id, replaced_tx_id, replacement_tx_id) DO NOTHING",
    &[("wallet", Int), ("victim", Bytes), ("winner", Bytes), ("at", Int)],
);

/// An output that is spent cannot be leased any longer. What a rescan holds, by a lease without an end, it holds on to.
static END_LEASES: RowsSql = RowsSql::new(
    "END_LEASES",
    "DELETE FROM utxo_leases WHERE expires_at < 9223372036854775807
         AND (wallet_id, utxo_id) IN (SELECT wallet, id FROM {rows})",
    &[("wallet", Int), ("id", Int)],
);

pub(super) static INSERT_EVENTS: RowsSql = RowsSql::new(
    "INSERT_EVENTS",
    "INSERT INTO transaction_events (wallet_id, tx_hash, status, block_height, reason, cause, actor, at)
     SELECT wallet, hash, status, height, reason, cause, actor, at FROM {rows}",
    &[
        ("wallet", Int),
        ("hash", Bytes),
        ("status", Text),
        ("height", Int),
        ("reason", Text),
        ("cause", Bytes),
        ("actor", Text),
        ("at", Int),
    ],
);

static CHANGE_TOTALS: RowsSql = RowsSql::new(
    "CHANGE_TOTALS",
    "UPDATE account_totals SET confirmed = account_totals.confirmed + r.confirmed,
         confirmed_count = account_totals.confirmed_count + r.confirmed_count,
         unconfirmed = account_totals.unconfirmed + r.unconfirmed,
         unconfirmed_count = account_totals.unconfirmed_count + r.unconfirmed_count
     FROM {rows} WHERE account_totals.wallet_id = r.wallet AND account_totals.account = r.account",
    &[
        ("wallet", Int),
        ("account", Int),
        ("confirmed", Int),
        ("confirmed_count", Int),
        ("unconfirmed", Int),
        ("unconfirmed_count", Int),
    ],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 12] = [
    &LOCK_COINS,
    &CHANGE_TRANSACTIONS,
    &INSERT_TRANSACTIONS,
    &COPY_TRANSACTIONS,
    &COPY_INPUTS,
    &INSERT_INPUTS,
    &INSERT_UTXOS,
    &SPEND_UTXOS,
    &INSERT_REPLACEMENTS,
    &END_LEASES,
    &INSERT_EVENTS,
    &CHANGE_TOTALS,
];

/// A stored output: its wallet and its id.
pub(super) type Place = (WalletId, i64);

pub(super) fn place_columns(places: &[Place]) -> Vec<Column<'static>> {
    vec![
        Column::Ints(places.iter().map(|place| place.0.0).collect()),
        Column::Ints(places.iter().map(|place| place.1).collect()),
    ]
}

/// Keeps leases of these outputs from coming and going until this transaction ends.
async fn lock_coins(tx: &mut Tx, places: &[Place]) -> Result<(), StoreError> {
    if places.is_empty() {
        return Ok(());
    }
    fetch_rows::<(i64,)>(tx, &LOCK_COINS, place_columns(places)).await.map(|_| ())
}

/// The actor, the reason in words, and the time of a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'a> {
    pub actor: &'a str,
    /// The reason that the operator gave for one of the transactions.
    pub words: Option<(Hash, &'a str)>,
    pub at: Timestamp,
}

/// A stored output that gets a spender, the spender, and with which input.
pub(super) type Spend = (Place, Hash, u32);

type Changed<'g, 'a> = Vec<(Hash, &'g TxEntry<'a>)>;

/// Writes a graph that was decided.
pub(super) struct Writer<'g, 'a>(pub &'g Graph<'a>);

impl Writer<'_, '_> {
    /// Writes all of it. An event that changes nothing writes nothing.
    pub async fn write(&self, tx: &mut Tx, written: Written<'_>) -> Result<Changes, StoreError> {
        let spends = self.lock_affected(tx, &[]).await?;
        self.write_transactions(tx, written.at).await?;
        self.write_coins(tx, &spends).await?;
        self.write_claims(tx).await?;
        self.write_edges(tx, written.at).await?;
        let changes = self.changes();
        let mut writes = Writes::default();
        self.add_events(&mut writes, written);
        self.add_totals(&mut writes)?;
        writes.run(tx).await?;
        Ok(Changes { transactions: changes })
    }

    /// Locks every stored output of which something changes, and these, so that no lease comes or goes until all is
    /// written. Returns those that get a spender.
    pub async fn lock_affected(&self, tx: &mut Tx, besides: &[OutPoint]) -> Result<Vec<Spend>, StoreError> {
        let (mut locked, mut spends) = (Vec::new(), Vec::new());
        for (outpoint, coin) in &self.0.coins {
            let Row::Stored { id, spender: before } = coin.row else { continue };
            let place = (coin.wallet, id);
            let maker_changes = self.0.entries.get(&outpoint.hash).is_some_and(|entry| entry.before != Some(entry.now));
            let after = self.0.spender_after(outpoint, coin);
            if maker_changes || before != after || besides.contains(outpoint) {
                locked.push(place);
            }
            if let Some(Spent::By { spender, input }) = self.0.spenders.get(outpoint).filter(|_| after != before) {
                spends.push((place, *spender, *input));
            }
        }
        spends.sort_unstable();
        lock_coins(tx, &locked).await?;
        Ok(spends)
    }

    /// First the transactions that become invalid: they make room for those that become valid.
    async fn write_transactions(&self, tx: &mut Tx, at: Timestamp) -> Result<(), StoreError> {
        let mut changed: Changed<'_, '_> = self.0.entries.iter().map(|(hash, entry)| (*hash, entry)).collect();
        // New ones get their ids in the order in which they came.
        changed.sort_unstable_by_key(|(hash, entry)| (entry.age, *hash));
        for valid in [false, true] {
            let rows: Changed<'_, '_> =
                changed.iter().filter(|(_, entry)| entry.is_changed() && entry.is_valid() == valid).copied().collect();
            change(tx, &rows).await?;
        }
        let joining: Changed<'_, '_> = changed.iter().filter(|(_, entry)| !entry.joins.is_empty()).copied().collect();
        insert(tx, &joining, at).await?;
        copy(tx, &joining).await
    }

    async fn write_coins(&self, tx: &mut Tx, spends: &[Spend]) -> Result<(), StoreError> {
        let mut new: Vec<(OutPoint, WalletId, i64, i64, u32)> = Vec::new();
        for (outpoint, coin) in self.0.coins.iter().filter(|(outpoint, coin)| self.0.is_real(outpoint, coin)) {
            if let Row::New { address } = coin.row {
                new.push((*outpoint, coin.wallet, coin.amount, address, coin.account));
            }
        }
        new.sort_unstable();
        let spent = |outpoint: &OutPoint| match self.0.spenders.get(outpoint) {
            Some(Spent::By { spender, input }) => Some((*spender, *input)),
            Some(Spent::No) | None => None,
        };
        if !new.is_empty() {
            let columns = vec![
                Column::Ints(new.iter().map(|row| row.1.0).collect()),
                bytes(new.iter().map(|row| &row.0.hash)),
                Column::Ints(new.iter().map(|row| i64::from(row.0.index)).collect()),
                Column::Ints(new.iter().map(|row| row.2).collect()),
                Column::Ints(new.iter().map(|row| row.3).collect()),
                Column::Ints(new.iter().map(|row| i64::from(row.4)).collect()),
                Column::OptionalBytes(new.iter().map(|row| spent(&row.0).map(|by| by.0.0.to_vec())).collect()),
                Column::OptionalInts(new.iter().map(|row| spent(&row.0).map(|by| i64::from(by.1))).collect()),
            ];
            expect_rows(execute_rows(tx, &INSERT_UTXOS, columns).await?, new.len(), "outputs")?;
        }
        if !spends.is_empty() {
            let places: Vec<Place> = spends.iter().map(|row| row.0).collect();
            let mut columns = place_columns(&places);
            columns.push(bytes(spends.iter().map(|row| &row.1)));
            columns.push(Column::Ints(spends.iter().map(|row| i64::from(row.2)).collect()));
            expect_rows(execute_rows(tx, &SPEND_UTXOS, columns).await?, spends.len(), "spends")?;
            execute_rows(tx, &END_LEASES, place_columns(&places)).await?;
        }
        Ok(())
    }

    /// In each wallet that knows both.
    async fn write_edges(&self, tx: &mut Tx, at: Timestamp) -> Result<(), StoreError> {
        let mut rows: Vec<(WalletId, Hash, Hash)> = Vec::new();
        for (victim, winner) in &self.0.edges {
            let wallets = self.0.entries.get(victim).into_iter().flat_map(TxEntry::wallets);
            rows.extend(wallets.map(|wallet| (wallet, *victim, *winner)));
        }
        if rows.is_empty() {
            return Ok(());
        }
        let columns = vec![
            Column::Ints(rows.iter().map(|row| row.0.0).collect()),
            bytes(rows.iter().map(|row| &row.1)),
            bytes(rows.iter().map(|row| &row.2)),
            Column::Ints(vec![at.micros(); rows.len()]),
        ];
        execute_rows(tx, &INSERT_REPLACEMENTS, columns).await.map(|_| ())
    }

    /// In the order in which they happened, each with its last state.
    fn changes(&self) -> Vec<TxChange> {
        let mut told = HashSet::new();
        let first = self.0.changed.iter().filter(|change| told.insert(change.0));
        let changed = first.filter_map(|change| Some((change.0, self.0.entries.get(&change.0)?)));
        let of = |(hash, entry): (Hash, &TxEntry<'_>)| {
            let moved = entry.before != Some(entry.now);
            let wallets: Vec<WalletId> =
                entry.stored_in.iter().filter(|_| moved).chain(&entry.joins).copied().collect();
            let (status, height, reason) = (entry.now.status, entry.now.height, entry.reason);
            wallets.into_iter().map(move |wallet| TxChange { wallet, hash, status, height, reason })
        };
        changed.flat_map(of).collect()
    }

    /// Every change goes into the history of each wallet to which it is new.
    fn add_events(&self, writes: &mut Writes, written: Written<'_>) {
        let mut rows: Vec<(WalletId, &Told)> = Vec::new();
        let mut last: HashMap<(WalletId, Hash), State> = HashMap::new();
        for told in &self.0.changed {
            let Some(entry) = self.0.entries.get(&told.0) else { continue };
            for wallet in entry.wallets() {
                let before = last.insert((wallet, told.0), told.1);
                let before = before.or(entry.before.filter(|_| entry.stored_in.contains(&wallet)));
                // What an operator says is kept in any case.
                if before != Some(told.1) || written.words.is_some_and(|(hash, _)| hash == told.0) {
                    rows.push((wallet, told));
                }
            }
        }
        let words = |(_, told): &(WalletId, &Told)| match written.words {
            Some((hash, words)) if hash == told.0 => format!("{}: {words}", told.2),
            Some(_) | None => told.2.to_owned(),
        };
        let columns = vec![
            Column::Ints(rows.iter().map(|(wallet, _)| wallet.0).collect()),
            bytes(rows.iter().map(|(_, told)| &told.0)),
            Column::Texts(rows.iter().map(|(_, told)| told.1.status.text()).collect()),
            Column::OptionalInts(rows.iter().map(|(_, told)| told.1.height.map(i64::from)).collect()),
            Column::Strings(rows.iter().map(words).collect()),
            Column::OptionalBytes(rows.iter().map(|(_, told)| told.3.map(|cause| cause.0.to_vec())).collect()),
            Column::Strings(vec![written.actor.to_owned(); rows.len()]),
            Column::Ints(vec![written.at.micros(); rows.len()]),
        ];
        writes.add(&INSERT_EVENTS, columns, "events");
    }

    fn add_totals(&self, writes: &mut Writes) -> Result<(), StoreError> {
        let deltas = self.0.deltas().ok_or_else(|| corrupt("more money than there can be"))?;
        let ints = |each: &dyn Fn(&(WalletId, u32), &Delta) -> i64| {
            Column::Ints(deltas.iter().map(|(key, delta)| each(key, delta)).collect())
        };
        let columns = vec![
            ints(&|(wallet, _), _| wallet.0),
            ints(&|(_, account), _| i64::from(*account)),
            ints(&|_, delta| delta.confirmed),
            ints(&|_, delta| delta.confirmed_count),
            ints(&|_, delta| delta.unconfirmed),
            ints(&|_, delta| delta.unconfirmed_count),
        ];
        writes.add(&CHANGE_TOTALS, columns, "accounts' totals");
        Ok(())
    }
}

async fn change(tx: &mut Tx, changed: &Changed<'_, '_>) -> Result<(), StoreError> {
    let rows: Vec<(WalletId, Hash, &TxEntry<'_>)> = changed
        .iter()
        .flat_map(|(hash, entry)| entry.stored_in.iter().map(move |wallet| (*wallet, *hash, *entry)))
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(rows.iter().map(|row| row.0.0).collect()),
        bytes(rows.iter().map(|row| &row.1)),
        Column::Texts(rows.iter().map(|row| row.2.now.status.text()).collect()),
        Column::OptionalInts(rows.iter().map(|row| row.2.now.height.map(i64::from)).collect()),
        Column::Ints(rows.iter().map(|row| i64::from(row.2.own)).collect()),
        Column::Ints(rows.iter().map(|row| i64::from(row.2.given_up)).collect()),
    ];
    expect_rows(execute_rows(tx, &CHANGE_TRANSACTIONS, columns).await?, rows.len(), "transactions")
}

/// In wallets that did not have them, where the event has shown them.
async fn insert(tx: &mut Tx, joining: &Changed<'_, '_>, at: Timestamp) -> Result<(), StoreError> {
    let mut rows = Vec::new();
    for (hash, entry) in joining {
        let Some(given) = entry.given else { continue };
        rows.extend(entry.joins.iter().map(|wallet| (*wallet, *hash, *entry, given)));
    }
    if rows.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(rows.iter().map(|row| row.0.0).collect()),
        bytes(rows.iter().map(|row| &row.1)),
        Column::Bytes(rows.iter().map(|row| row.3.raw.clone()).collect()),
        Column::OptionalInts(rows.iter().map(|row| row.2.now.height.map(i64::from)).collect()),
        Column::Texts(rows.iter().map(|row| row.2.now.status.text()).collect()),
        Column::Ints(vec![at.micros(); rows.len()]),
        Column::Ints(rows.iter().map(|row| i64::from(row.2.coinbase)).collect()),
        Column::Ints(rows.iter().map(|row| i64::from(row.2.own)).collect()),
    ];
    expect_rows(execute_rows(tx, &INSERT_TRANSACTIONS, columns).await?, rows.len(), "transactions")?;
    let mut inputs: Vec<(WalletId, Hash, u32, OutPoint)> = Vec::new();
    for (wallet, hash, entry, _) in &rows {
        inputs.extend((0_u32..).zip(&entry.inputs).map(|(index, input)| (*wallet, *hash, index, *input)));
    }
    if inputs.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(inputs.iter().map(|row| row.0.0).collect()),
        bytes(inputs.iter().map(|row| &row.1)),
        Column::Ints(inputs.iter().map(|row| i64::from(row.2)).collect()),
        bytes(inputs.iter().map(|row| &row.3.hash)),
        Column::Ints(inputs.iter().map(|row| i64::from(row.3.index)).collect()),
    ];
    expect_rows(execute_rows(tx, &INSERT_INPUTS, columns).await?, inputs.len(), "inputs")
}

async fn copy(tx: &mut Tx, joining: &Changed<'_, '_>) -> Result<(), StoreError> {
    let mut rows: Vec<(WalletId, Hash, WalletId)> = Vec::new();
    for (hash, entry) in joining.iter().filter(|(_, entry)| entry.given.is_none()) {
        let Some(source) = entry.stored_in.first() else { continue };
        rows.extend(entry.joins.iter().map(|wallet| (*wallet, *hash, *source)));
    }
    if rows.is_empty() {
        return Ok(());
    }
    let columns = || {
        vec![
            Column::Ints(rows.iter().map(|row| row.0.0).collect()),
            bytes(rows.iter().map(|row| &row.1)),
            Column::Ints(rows.iter().map(|row| row.2.0).collect()),
        ]
    };
    expect_rows(execute_rows(tx, &COPY_TRANSACTIONS, columns()).await?, rows.len(), "transactions")?;
    execute_rows(tx, &COPY_INPUTS, columns()).await.map(|_| ())
}
