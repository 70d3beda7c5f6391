//! What coins are worth, as people or a feed of theirs say. The newest counts.

use std::collections::HashMap;

use domain::treasury::Price;
use domain::{AssetId, Symbol, Timestamp};

use super::malformed;
use crate::db::Db;
use crate::error::StoreError;
use crate::transact;

/// A price, who said it, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceRow {
    pub asset: AssetId,
    pub symbol: Symbol,
    pub price: Price,
    pub actor: String,
    pub at: Timestamp,
}

/// A price counts for so long.
pub const PRICE_LIFE_MICROS: i64 = 24 * 3_600 * 1_000_000;

statements! {
    INSERT_PRICE = "INSERT INTO asset_prices (asset_id, price_micros, actor, at) SELECT id, $2, $3, $4 FROM assets WHERE symbol = $1";
    READ_PRICES = "SELECT p.asset_id, a.symbol, p.price_micros, p.actor, p.at FROM asset_prices p JOIN assets a ON a.id = p.asset_id
        WHERE p.id = (SELECT MAX(n.id) FROM asset_prices n WHERE n.asset_id = p.asset_id) ORDER BY a.symbol";
}

impl Db {
    /// False: there is no such asset.
    pub async fn set_price(
        &self,
        asset: &Symbol,
        price: Price,
        actor: &str,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let micros = i64::try_from(price.0).map_err(|_| malformed("price"))?;
        transact!(self, tx => Ok(execute!(tx, INSERT_PRICE, asset.as_str(), micros, actor, at.micros())? == 1))
    }

    /// The newest of each asset.
    pub async fn prices(&self) -> Result<Vec<PriceRow>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_PRICES => (i64, String, i64, String, i64))?;
        let row = |(asset, symbol, micros, actor, at): (i64, String, i64, String, i64)| {
            Ok(PriceRow {
                asset: AssetId(asset),
                symbol: symbol.parse().map_err(|_| malformed("symbol"))?,
                price: Price(u64::try_from(micros).map_err(|_| malformed("price"))?),
                actor,
                at: Timestamp::from_micros(at),
            })
        };
        rows.into_iter().map(row).collect()
    }

    /// The same by asset.
    pub async fn newest_prices(&self) -> Result<HashMap<AssetId, Price>, StoreError> {
        Ok(self.prices().await?.into_iter().map(|row| (row.asset, row.price)).collect())
    }

    /// The same, of those that were said within a day: a feed that has died must not decide.
    pub async fn price_of_assets(&self, now: Timestamp) -> Result<HashMap<AssetId, Price>, StoreError> {
        let prices = self.prices().await?.into_iter();
        let fresh = prices.filter(|row| row.at.plus_micros(PRICE_LIFE_MICROS) > now);
        Ok(fresh.map(|row| (row.asset, row.price)).collect())
    }
}
