//! What addresses of ours have, by their entries.

use domain::Symbol;

use super::types::{ChainRow, malformed};
use crate::db::Db;
use crate::error::StoreError;

/// What one address has of one coin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalletBalance {
    pub address: String,
    pub asset: Symbol,
    /// Chain units, with a sign: an address that had coins before the books began may seem to have paid more than it got.
    pub raw: String,
    pub changed_height: i64,
}

statements! {
    READ_WALLET_BALANCES = "SELECT b.address, a.symbol, b.on_chain_balance_raw, b.changed_height FROM wallet_balances b
        JOIN asset_on_chain l ON l.id = b.listing_id JOIN assets a ON a.id = l.asset_id
        WHERE b.chain_id = $1 AND b.address > $2 ORDER BY b.address, b.listing_id LIMIT $3";
}

impl Db {
    /// A page of balances of a chain, behind an address.
    pub async fn wallet_balances(
        &self,
        chain: &ChainRow,
        after: &str,
        most: i64,
    ) -> Result<Vec<WalletBalance>, StoreError> {
        type Row = (String, String, String, i64);
        let rows = fetch_all!(&mut self.read().await?, READ_WALLET_BALANCES => Row, chain.id.0, after, most)?;
        let balance = |(address, asset, raw, changed_height): Row| {
            let asset = asset.parse().map_err(|_| malformed("symbol"))?;
            Ok(WalletBalance { address, asset, raw, changed_height })
        };
        rows.into_iter().map(balance).collect()
    }
}
