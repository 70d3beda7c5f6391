//! Outputs as they are read: candidates for a selection, lists, and what it takes to spend one.

use domain::Timestamp;

use super::cluster::limits;
use super::lease::last_mature;
use super::load::{bytes, corrupt, hash, number, status};
use super::types::{
    Candidate, ChainSize, Coin, ListFilter, OutPoint, OutputRow, Path, UtxoError, UtxoId, UtxoRefusal, WalletId,
    WalletStatus, Want,
};
use super::wallet::kind;
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, RowsSql, fetch_rows};

/// How many candidates are read at once, on each side of the amount wanted. One coin of about the right size is enough for
/// most payments, so few are read first. The statements have it as a literal: a planner that does not know the limit
/// prepares for reading everything.
const PAGE: usize = 40;

/// So many final coins are read at most.
pub const MOST_FINAL: usize = 1_000;

/// A transaction with more inputs than this is too large for nodes to relay.
const MOST_CANDIDATES: usize = 1_600;

statements! {
    /// All that a selection must know besides the outputs.
    READ_TERMS = "SELECT w.status, w.most_chained, w.most_chained_bytes, (SELECT MAX(block_height) FROM blocks)
        FROM wallets w WHERE w.id = $1";

    /// From an amount upwards. SQLite is told which indexes have all the columns; left to itself it would read the
    /// tables. $5: the last height at which a coinbase is mature; $6, $7: pending and other people's unconfirmed
    /// outputs are wanted too; $8: now; $9: the last block whose payments by strangers count.
    READ_LARGER = "SELECT u.id, u.amount, a.kind, t.block_height IS NOT NULL, u.tx_id
        FROM utxos u {INDEXED BY idx_utxos_unspent}
            {join} transactions t {INDEXED BY idx_transactions_covering} ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
            {join} addresses a {INDEXED BY idx_addresses_covering} ON a.wallet_id = u.wallet_id AND a.id = u.address_id
        WHERE u.wallet_id = $1 AND u.account = $2 AND u.spent_by_tx_id IS NULL AND u.valid
            AND (u.amount, u.id) >= ($3, $4) AND a.kind <> 'other'
            AND ((t.block_height IS NOT NULL AND (NOT t.is_coinbase OR t.block_height <= $5) AND (t.is_own OR t.block_height <= $9))
                OR (t.block_height IS NULL AND t.status = 'published' AND (t.is_own OR $7 <> 0))
                OR (t.status = 'pending' AND $6 <> 0))
            AND NOT EXISTS (SELECT 1 FROM utxo_leases l
                WHERE l.wallet_id = u.wallet_id AND l.utxo_id = u.id AND l.expires_at > $8)
            AND NOT EXISTS (SELECT 1 FROM utxo_claims c WHERE c.wallet_id = u.wallet_id AND c.utxo_id = u.id)
        ORDER BY u.amount, u.id LIMIT 40";

    /// From an amount downwards.
    READ_SMALLER = "SELECT u.id, u.amount, a.kind, t.block_height IS NOT NULL, u.tx_id
        FROM utxos u {INDEXED BY idx_utxos_unspent}
            {join} transactions t {INDEXED BY idx_transactions_covering} ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
            {join} addresses a {INDEXED BY idx_addresses_covering} ON a.wallet_id = u.wallet_id AND a.id = u.address_id
        WHERE u.wallet_id = $1 AND u.account = $2 AND u.spent_by_tx_id IS NULL AND u.valid
            AND (u.amount, u.id) < ($3, $4) AND a.kind <> 'other'
            AND ((t.block_height IS NOT NULL AND (NOT t.is_coinbase OR t.block_height <= $5) AND (t.is_own OR t.block_height <= $9))
                OR (t.block_height IS NULL AND t.status = 'published' AND (t.is_own OR $7 <> 0))
                OR (t.status = 'pending' AND $6 <> 0))
            AND NOT EXISTS (SELECT 1 FROM utxo_leases l
                WHERE l.wallet_id = u.wallet_id AND l.utxo_id = u.id AND l.expires_at > $8)
            AND NOT EXISTS (SELECT 1 FROM utxo_claims c WHERE c.wallet_id = u.wallet_id AND c.utxo_id = u.id)
        ORDER BY u.amount DESC, u.id DESC LIMIT 40";

    /// The largest in blocks up to one, our own change among them, with all that it takes to spend them. $3: that block; $4: the last height at
    /// which a coinbase is mature; $5: now.
    READ_FINAL(COIN) = "SELECT {columns}
        FROM utxos u {INDEXED BY idx_utxos_unspent}
            {join} transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
            {join} addresses a ON a.wallet_id = u.wallet_id AND a.id = u.address_id
        WHERE u.wallet_id = $1 AND u.account = $2 AND u.spent_by_tx_id IS NULL AND u.valid AND a.kind <> 'other'
            AND t.block_height <= $3 AND (NOT t.is_coinbase OR t.block_height <= $4)
            AND NOT EXISTS (SELECT 1 FROM utxo_leases l
                WHERE l.wallet_id = u.wallet_id AND l.utxo_id = u.id AND l.expires_at > $5)
            AND NOT EXISTS (SELECT 1 FROM utxo_claims c WHERE c.wallet_id = u.wallet_id AND c.utxo_id = u.id)
        ORDER BY u.amount DESC, u.id DESC LIMIT 1000";

    /// $2: an account, or -1 for all; $3: only unspent ones; $4: begin after; $5: how many; $6: now.
    LIST_OUTPUTS(OUTPUT) = "SELECT {columns}
        FROM utxos u JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
            JOIN addresses a ON a.wallet_id = u.wallet_id AND a.id = u.address_id
            LEFT JOIN transactions s ON s.wallet_id = u.wallet_id AND s.id = u.spent_by_tx_id
            LEFT JOIN utxo_leases l ON l.wallet_id = u.wallet_id AND l.utxo_id = u.id AND l.expires_at > $6
            LEFT JOIN utxo_claims c ON c.wallet_id = u.wallet_id AND c.utxo_id = u.id
            LEFT JOIN address_labels b ON b.wallet_id = u.wallet_id AND b.address_id = u.address_id
        WHERE u.wallet_id = $1 AND u.id > $4 AND ($2 < 0 OR u.account = $2)
            AND ($3 = 0 OR (u.spent_by_tx_id IS NULL AND u.valid))
        ORDER BY u.id LIMIT $5";

    LIST_OUTPUTS_OF(OUTPUT) = "SELECT {columns}
        FROM transactions t JOIN utxos u ON u.wallet_id = t.wallet_id AND u.tx_id = t.id
            JOIN addresses a ON a.wallet_id = u.wallet_id AND a.id = u.address_id
            LEFT JOIN transactions s ON s.wallet_id = u.wallet_id AND s.id = u.spent_by_tx_id
            LEFT JOIN utxo_leases l ON l.wallet_id = u.wallet_id AND l.utxo_id = u.id AND l.expires_at > $3
            LEFT JOIN utxo_claims c ON c.wallet_id = u.wallet_id AND c.utxo_id = u.id
            LEFT JOIN address_labels b ON b.wallet_id = u.wallet_id AND b.address_id = u.address_id
        WHERE t.wallet_id = $1 AND t.tx_hash = $2 ORDER BY u.output_index";
}

static READ_COINS: RowsSql = RowsSql::listing(
    "READ_COINS",
    "SELECT {columns}
     FROM {rows} {join} utxos u ON u.wallet_id = r.wallet
             AND u.tx_id = (SELECT same.id FROM transactions same WHERE same.tx_hash = r.hash AND same.wallet_id = r.wallet)
             AND u.output_index = r.output_index
         {join} transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
         {join} addresses a ON a.wallet_id = u.wallet_id AND a.id = u.address_id
     ORDER BY u.id",
    COIN,
    &[("hash", Bytes), ("output_index", Int), ("wallet", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&READ_COINS];

/// The columns of a [`CoinRow`], in its order, of an output `u`, its transaction `t` and its address `a`.
pub(super) const COIN: &str =
    "u.id, t.tx_hash, u.output_index, u.amount, a.kind, a.script_pub_key, u.account, a.branch, a.child_index";

/// Id, outpoint, amount, kind, script, account, branch, index.
pub(super) type CoinRow = (i64, Vec<u8>, i64, i64, String, Vec<u8>, i64, Option<i64>, Option<i64>);

pub(super) fn coin(row: CoinRow) -> Result<Coin, StoreError> {
    let (id, made_by, index, amount, kind_text, script, account, branch, child_index) = row;
    Ok(Coin {
        id: UtxoId(id),
        outpoint: OutPoint { hash: hash(&made_by)?, index: number(index)? },
        amount,
        kind: kind(&kind_text)?,
        script,
        account: number(account)?,
        path: path(branch, child_index)?,
    })
}

fn path(branch: Option<i64>, index: Option<i64>) -> Result<Option<Path>, StoreError> {
    let (Some(branch), Some(index)) = (branch, index) else { return Ok(None) };
    let branch = u8::try_from(branch).map_err(|_| corrupt("a path has a branch that does not exist"))?;
    Ok(Some(Path { branch, index: number(index)? }))
}

impl Db {
    /// Outputs around the amount wanted that may be spent now: a bounded number, however many there are.
    pub async fn candidates(
        &self,
        wallet: WalletId,
        account: u32,
        want: &Want,
        now: Timestamp,
    ) -> Result<Vec<Candidate>, UtxoError> {
        let mut tx = self.read().await?;
        let terms = Terms::read(&mut tx, wallet).await?;
        let mut window = Window::around(wallet, account, want, now, terms);
        window.read_enough(&mut tx).await?;
        Ok(window.offered.into_iter().map(|one| one.candidate).collect())
    }

    /// The largest outputs in blocks up to one that nobody is about to spend, [`MOST_FINAL`] at most.
    pub async fn final_coins(
        &self,
        wallet: WalletId,
        account: u32,
        last: i64,
        now: Timestamp,
    ) -> Result<Vec<Coin>, UtxoError> {
        let mut tx = self.read().await?;
        let terms = Terms::read(&mut tx, wallet).await?;
        let rows =
            fetch_all!(&mut tx, READ_FINAL => CoinRow, wallet.0, i64::from(account), last, terms.mature, now.micros())?;
        Ok(rows.into_iter().map(coin).collect::<Result<_, _>>()?)
    }

    /// What it takes to spend these outputs, as far as they are this wallet's; spent ones too.
    pub async fn coins_of(&self, wallet: WalletId, outpoints: &[OutPoint]) -> Result<Vec<Coin>, UtxoError> {
        if outpoints.is_empty() {
            return Ok(Vec::new());
        }
        let columns = vec![
            bytes(outpoints.iter().map(|one| &one.hash)),
            Column::Ints(outpoints.iter().map(|one| i64::from(one.index)).collect()),
            Column::Ints(vec![wallet.0; outpoints.len()]),
        ];
        let rows: Vec<CoinRow> = fetch_rows(&mut self.read().await?, &READ_COINS, columns).await?;
        Ok(rows.into_iter().map(coin).collect::<Result<_, _>>()?)
    }

    /// The wallet's outputs by their ids, a page at a time.
    pub async fn list_outputs(
        &self,
        wallet: WalletId,
        filter: &ListFilter,
        now: Timestamp,
    ) -> Result<Vec<OutputRow>, UtxoError> {
        let account = filter.account.map_or(-1, i64::from);
        let after = filter.after.map_or(i64::MIN, |id| id.0);
        let mut tx = self.read().await?;
        let rows = fetch_all!(&mut tx, LIST_OUTPUTS => Listed, wallet.0, account, i64::from(filter.unspent_only), after,
            i64::from(filter.most), now.micros())?;
        Ok(rows.into_iter().map(output_row).collect::<Result<_, _>>()?)
    }
}

/// What holds for a whole selection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The last height at which a coinbase is mature.
    mature: i64,
    pub most: ChainSize,
}

impl Terms {
    /// A wallet that is being restored must not be spent from.
    pub async fn read(tx: &mut Tx, wallet: WalletId) -> Result<Self, UtxoError> {
        let row = fetch_optional!(tx, READ_TERMS => (String, i64, i64, Option<i64>), wallet.0)?;
        let (status, most, most_bytes, tip) = row.ok_or(UtxoRefusal::UnknownWallet)?;
        if status != WalletStatus::Active.text() {
            return Err(UtxoRefusal::Restoring.into());
        }
        Ok(Self { mature: last_mature(tip.map(number).transpose()?), most: limits((most, most_bytes))? })
    }
}

/// A candidate, and the number of the transaction that made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    pub candidate: Candidate,
    pub tx: i64,
}

type OfferedRow = (i64, i64, String, bool, i64);

/// The outputs of an account around an amount, as far as they were read.
pub(super) struct Window {
    pub wallet: WalletId,
    account: i64,
    terms: Terms,
    want: Want,
    now: i64,
    from: i64,
    /// Where the next page of smaller ones begins.
    below: (i64, i64),
    pub offered: Vec<Offered>,
}

impl Window {
    pub fn around(wallet: WalletId, account: u32, want: &Want, now: Timestamp, terms: Terms) -> Self {
        let (account, now, from) = (i64::from(account), now.micros(), around(want));
        Self { wallet, account, terms, want: *want, now, from, below: (from, i64::MIN), offered: Vec::new() }
    }

    /// From the largest output of the account downwards: no output holds as much as this.
    pub fn largest(wallet: WalletId, account: u32, want: &Want, now: Timestamp, terms: Terms) -> Self {
        Self::around(wallet, account, &Want { target: i64::MAX / 2, ..*want }, now, terms)
    }

    /// A page of larger ones, and of smaller ones until they hold twice the target, which leaves room for the fees.
    pub async fn read_enough(&mut self, tx: &mut Tx) -> Result<(), StoreError> {
        let (pending, foreign) = self.allowed();
        let rows = fetch_all!(tx, READ_LARGER => OfferedRow, self.wallet.0, self.account, self.from, i64::MIN,
            self.terms.mature, pending, foreign, self.now, self.settled())?;
        self.take(rows)?;
        while self.read_smaller(tx).await? && self.held() / 2 < self.want.target {}
        Ok(())
    }

    /// The next page of smaller ones. False: there is none after it, or there are enough for any transaction.
    pub async fn read_smaller(&mut self, tx: &mut Tx) -> Result<bool, StoreError> {
        let (pending, foreign) = self.allowed();
        let rows = fetch_all!(tx, READ_SMALLER => OfferedRow, self.wallet.0, self.account, self.below.0, self.below.1,
            self.terms.mature, pending, foreign, self.now, self.settled())?;
        let full = rows.len() == PAGE;
        if let Some(last) = rows.last() {
            self.below = (last.1, last.0);
        }
        self.take(rows)?;
        Ok(full && self.offered.len() < MOST_CANDIDATES)
    }

    fn settled(&self) -> i64 {
        self.want.allow.settled.map_or(i64::MAX, i64::from)
    }

    fn allowed(&self) -> (i64, i64) {
        (i64::from(self.want.allow.pending), i64::from(self.want.allow.unconfirmed_foreign))
    }

    fn held(&self) -> i64 {
        let amounts = self.offered.iter().map(|one| one.candidate.amount);
        amounts.fold(0, i64::saturating_add)
    }

    fn take(&mut self, rows: Vec<OfferedRow>) -> Result<(), StoreError> {
        for (id, amount, text, confirmed, tx) in rows {
            let candidate = Candidate { id: UtxoId(id), amount, kind: kind(&text)?, confirmed };
            self.offered.push(Offered { candidate, tx });
        }
        Ok(())
    }
}

/// Somewhere between the target and a quarter above it: selections that happen at once look at different places.
fn around(want: &Want) -> i64 {
    let target = want.target.max(0);
    let spread = u64::try_from(target / 4).unwrap_or(0);
    let offset = domain::random::Random::from_seed(want.seed).below(spread + 1);
    target.saturating_add(i64::try_from(offset).unwrap_or(0))
}

/// The columns of a [`Listed`], in its order: as of a [`COIN`], with its label `b`, spender `s`, lease `l` and claim `c`.
const OUTPUT: &str =
    "u.id, t.tx_hash, u.output_index, u.amount, u.account, a.kind, a.script_pub_key, a.branch, a.child_index,
    b.label, t.status, t.block_height, t.is_coinbase, s.tx_hash, l.expires_at, c.claimant";

pub(super) type Listed = (
    i64,
    Vec<u8>,
    i64,
    i64,
    i64,
    String,
    Vec<u8>,
    Option<i64>,
    Option<i64>,
    Option<String>,
    String,
    Option<i64>,
    bool,
    Option<Vec<u8>>,
    Option<i64>,
    Option<Vec<u8>>,
);

pub(super) fn output_row(listed: Listed) -> Result<OutputRow, StoreError> {
    Ok(OutputRow {
        id: UtxoId(listed.0),
        outpoint: OutPoint { hash: hash(&listed.1)?, index: number(listed.2)? },
        amount: listed.3,
        account: number(listed.4)?,
        kind: kind(&listed.5)?,
        script: listed.6,
        path: path(listed.7, listed.8)?,
        label: listed.9,
        status: status(&listed.10)?,
        height: listed.11.map(number).transpose()?,
        coinbase: listed.12,
        spent_by: listed.13.map(|bytes| hash(&bytes)).transpose()?,
        leased_until: listed.14.map(Timestamp::from_micros),
        claimed_by: listed.15.map(|bytes| hash(&bytes)).transpose()?,
    })
}
