//! What `bursar chaos custody` and `bursar sim deposits` need of a database and nobody else does: leases that end at once, the chain's own
//! books read out whole, and all states of deposits and all balances at a glance.

use crate::db::Db;
use crate::entry::ChainRow;
use crate::error::StoreError;
use crate::transact;

/// One change of a balance of ours, as the books have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookedEntry {
    pub id: i64,
    pub address: String,
    pub asset: String,
    pub height: i64,
    /// As the chain's rows have it. `None` for what only a look at the balance has shown.
    pub transaction: Option<Vec<u8>>,
    pub place: String,
    pub cause: String,
    /// Chain units, with a sign.
    pub raw: String,
}

statements! {
    LAPSE_LANES = "UPDATE outbound_leases SET lease_until = 0";
    LAPSE_CHAINS = "UPDATE chain_cursors SET lease_until = 0";
    LAPSE_RULES = "UPDATE rule_cursors SET lease_until = 0";
    READ_BOOKED = "SELECT e.id, e.address, a.symbol, e.height, e.tx_hash, e.place, e.cause, e.amount_raw FROM chain_entries e
            JOIN asset_on_chain l ON l.id = e.listing_id JOIN assets a ON a.id = l.asset_id
        WHERE e.chain_id = $1 AND e.id > $2 AND e.alive ORDER BY e.id LIMIT $3";
    READ_GLANCE = "SELECT COALESCE(STRING_AGG(id || state, ' ' ORDER BY id), '') FROM deposits WHERE id >= $1"
        | "SELECT COALESCE(GROUP_CONCAT(told, ' '), '') FROM (SELECT id || state AS told FROM deposits WHERE id >= $1 ORDER BY id)";
    READ_BALANCES_AT_A_GLANCE = "SELECT COALESCE(STRING_AGG(b.address || ' ' || a.symbol || ' ' || b.on_chain_balance_raw, ';'), '')
        FROM wallet_balances b JOIN asset_on_chain l ON l.id = b.listing_id JOIN assets a ON a.id = l.asset_id WHERE b.chain_id = $1"
        | "SELECT COALESCE(GROUP_CONCAT(b.address || ' ' || a.symbol || ' ' || b.on_chain_balance_raw, ';'), '')
        FROM wallet_balances b JOIN asset_on_chain l ON l.id = b.listing_id JOIN assets a ON a.id = l.asset_id WHERE b.chain_id = $1";
}

impl Db {
    /// What an hour does to leases that nobody renews: whoever comes next may have the lanes, chains and rules. If their holder is alive, it was
    /// paused for so long and must find out that it is too late.
    pub async fn let_leases_pass(&self) -> Result<(), StoreError> {
        transact!(self, tx => {
            execute!(tx, LAPSE_LANES)?;
            execute!(tx, LAPSE_CHAINS)?;
            execute!(tx, LAPSE_RULES)?;
            Ok(())
        })
    }

    /// The states of all deposits from a number on, in one text: while it is the same, none of them has come, gone or changed its state.
    pub async fn glance_at_deposits(&self, from: i64) -> Result<String, StoreError> {
        let row = fetch_optional!(&mut self.read().await?, READ_GLANCE => (String,), from)?;
        Ok(row.map_or_else(String::new, |(told,)| told))
    }

    /// All balances of a chain in one text: address, asset and chain units of each, in no order, with semicolons between them. To read thousands of
    /// rows takes twenty times as long.
    pub async fn glance_at_balances(&self, chain: &ChainRow) -> Result<String, StoreError> {
        let row = fetch_optional!(&mut self.read().await?, READ_BALANCES_AT_A_GLANCE => (String,), chain.id.0)?;
        Ok(row.map_or_else(String::new, |(told,)| told))
    }

    /// The entries of a chain whose blocks are in it, a page at a time, behind a number.
    pub async fn booked_entries(
        &self,
        chain: &ChainRow,
        after: i64,
        most: i64,
    ) -> Result<Vec<BookedEntry>, StoreError> {
        type Row = (i64, String, String, i64, Option<Vec<u8>>, String, String, String);
        let rows = fetch_all!(&mut self.read().await?, READ_BOOKED => Row, chain.id.0, after, most)?;
        let entry = |(id, address, asset, height, transaction, place, cause, raw): Row| BookedEntry {
            id,
            address,
            asset,
            height,
            transaction,
            place,
            cause,
            raw,
        };
        Ok(rows.into_iter().map(entry).collect())
    }
}
