//! Payments that a look had found before they were read, when people may have given that money out since.
//!
//! A look's find is in `suspense`, and people may hand it out. The payment that explains it may be read later, and the find is taken
//! back then. Whoever credits the payment although its money was handed out pays twice. So the batch that books it decides, by the
//! journal's own order: the clocks of the worker and of those people may differ.

use std::collections::BTreeSet;

use domain::AssetId;

use crate::db::Tx;
use crate::dialect::Many;
use crate::entry::{ChainId, ListingId};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, fetch_rows};

/// A payment that is to be booked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payment<'a> {
    pub id: i64,
    pub address: &'a str,
    pub listing: ListingId,
    pub asset: AssetId,
    pub height: i64,
}

statements! {
    /// Whoever adjusts `suspense` locks the same row, and before the users' accounts as well.
    LOCK_SUSPENSE = "SELECT id FROM accounts WHERE id < 0 AND kind = 'suspense' AND asset_id {in $1} ORDER BY id {FOR UPDATE}";
}

/// Those whose address had a find in the books at their block or above it, from before they were read themselves. The rest is written
/// so that no index of all that are due, or of all finds, seems to serve.
static READ_FOUND_BEFORE: RowsSql = RowsSql::new(
    "READ_FOUND_BEFORE",
    "SELECT DISTINCT r.id FROM {rows} {join} chain_entries e
         ON e.address = r.address AND e.chain_id = r.chain_id AND e.listing_id = r.listing_id AND e.id < r.id
     WHERE COALESCE(e.place, '') = 'balance' AND e.side = 1 AND e.reverses IS NULL AND e.posting + 0 = 1 AND e.height >= r.height",
    &[("id", Int), ("chain_id", Int), ("address", Text), ("listing_id", Int), ("height", Int)],
);

/// Of those: the ones in an asset of which people have taken something out of `suspense` while it had the find.
static READ_GIVEN_OUT: RowsSql = RowsSql::new(
    "READ_GIVEN_OUT",
    "SELECT DISTINCT r.id FROM {rows} {join} chain_entries e
         ON e.address = r.address AND e.chain_id = r.chain_id AND e.listing_id = r.listing_id AND e.id < r.id
     WHERE COALESCE(e.place, '') = 'balance' AND e.side = 1 AND e.reverses IS NULL AND e.posting + 0 = 1 AND e.height >= r.height
         AND EXISTS (SELECT 1 FROM movements m JOIN accounts f ON f.id = m.from_account
             WHERE m.op_key >= 'adjust:' AND m.op_key < 'adjust;' AND m.outcome = 0 AND f.kind = 'suspense'
                 AND m.asset_id = r.asset_id
                 AND m.id > (SELECT MIN(p.id) FROM movements p WHERE p.op_key = 'entry:' || e.id)
                 AND NOT EXISTS (SELECT 1 FROM chain_entries b JOIN movements q ON q.op_key = 'entry:' || b.id
                     WHERE b.reverses = e.id AND q.id < m.id))",
    &[("id", Int), ("chain_id", Int), ("address", Text), ("listing_id", Int), ("height", Int), ("asset_id", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 2] = [&READ_FOUND_BEFORE, &READ_GIVEN_OUT];

/// Which of these payments people have given out before, as far as anybody can tell. `finds_end`: the assets of finds that this batch takes
/// back. Until the transaction ends nobody takes anything out of `suspense` of the assets concerned.
///
/// It comes before the users' accounts are locked: `suspense` has the lower id.
pub(super) async fn given_out(
    tx: &mut Tx,
    chain: ChainId,
    payments: &[Payment<'_>],
    finds_end: BTreeSet<AssetId>,
) -> Result<BTreeSet<i64>, StoreError> {
    let found = read(tx, &READ_FOUND_BEFORE, named(chain, payments)).await?;
    let payments: Vec<Payment<'_>> = payments.iter().filter(|payment| found.contains(&payment.id)).copied().collect();
    let mut assets = finds_end;
    assets.extend(payments.iter().map(|payment| payment.asset));
    if assets.is_empty() {
        return Ok(BTreeSet::new());
    }
    let assets = Many(assets.into_iter().map(|asset| asset.0).collect::<Vec<i64>>());
    fetch_all!(tx, LOCK_SUSPENSE => (i64,), assets.clone())?;
    let mut columns = named(chain, &payments);
    columns.push(Column::Ints(payments.iter().map(|payment| payment.asset.0).collect()));
    read(tx, &READ_GIVEN_OUT, columns).await
}

fn named<'a>(chain: ChainId, payments: &[Payment<'a>]) -> Vec<Column<'a>> {
    vec![
        Column::Ints(payments.iter().map(|payment| payment.id).collect()),
        Column::Ints(vec![chain.0; payments.len()]),
        Column::Texts(payments.iter().map(|payment| payment.address).collect()),
        Column::Ints(payments.iter().map(|payment| payment.listing.0).collect()),
        Column::Ints(payments.iter().map(|payment| payment.height).collect()),
    ]
}

async fn read(tx: &mut Tx, sql: &RowsSql, columns: Vec<Column<'_>>) -> Result<BTreeSet<i64>, StoreError> {
    if columns.first().is_none_or(|column| column.len() == 0) {
        return Ok(BTreeSet::new());
    }
    let rows: Vec<(i64,)> = fetch_rows(tx, sql, columns).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}
