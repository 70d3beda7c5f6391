//! What can be withdrawn where, kept in memory and read anew every second: names, precisions, contracts, and each coin's policy.
//!
//! The gate reads requests by it, and answers are worded by it. It decides nothing about money: what is judged is read again, under lock, by the store.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use domain::withdrawal::WithdrawalPolicy;
use domain::{Asset, AssetId, Chain, ChainName, Listing, Symbol};
use store::catalog::read_catalog;
use store::entry::{ChainId, ListingId};
use store::error::Causes;
use store::withdrawal::coin_names;
use store::{Db, StoreError};
use tx::Family;

const REFRESH: Duration = Duration::from_secs(1);

/// An asset on a chain.
#[derive(Clone, Debug)]
pub struct CoinOnChain {
    pub listing: ListingId,
    pub asset_id: AssetId,
    pub chain_id: ChainId,
    pub asset: Asset,
    pub chain: Chain,
    pub form: Listing,
    /// `None`: there are no addresses on that chain that are known here.
    pub family: Option<Family>,
    /// The newest that was seen. `None`: it cannot be withdrawn there.
    pub policy: Option<WithdrawalPolicy>,
}

pub type CoinsByName = BTreeMap<(Symbol, ChainName), CoinOnChain>;

/// Coins are few: they are looked through.
pub fn coin_of(coins: &CoinsByName, listing: ListingId) -> Option<&CoinOnChain> {
    coins.values().find(|coin| coin.listing == listing)
}

#[derive(Debug, Default)]
pub struct Coins(RwLock<Arc<CoinsByName>>);

impl Coins {
    pub async fn load(db: &Db) -> Result<Self, StoreError> {
        let coins = Self::default();
        coins.refresh(db).await?;
        Ok(coins)
    }

    pub async fn refresh(&self, db: &Db) -> Result<(), StoreError> {
        let read = Arc::new(read(db).await?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    /// Reads the coins anew for ever. While the database does not answer, those read last stay in use.
    pub async fn follow(&self, db: &Db) {
        loop {
            tokio::time::sleep(REFRESH).await;
            if let Err(error) = self.refresh(db).await {
                // Whoever watches the database says so when it is away.
                tracing::debug!(code = error.code(), error = %Causes(&error), "the coins could not be read anew");
            }
        }
    }

    pub fn all(&self) -> Arc<CoinsByName> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn by_name(&self, asset: &Symbol, chain: &ChainName) -> Option<CoinOnChain> {
        self.all().get(&(asset.clone(), chain.clone())).cloned()
    }

    pub fn knows_chain(&self, chain: &ChainName) -> bool {
        self.all().keys().any(|(_, known)| known == chain)
    }
}

async fn read(db: &Db) -> Result<CoinsByName, StoreError> {
    let mut tx = db.read().await?;
    let catalog = read_catalog(&mut tx).await?;
    let names = coin_names(&mut tx).await?;
    let coin = |name: store::withdrawal::CoinName| {
        let key = name.names;
        let asset = catalog.assets.get(&key.0)?.clone();
        let chain = catalog.chains.get(&key.1)?.clone();
        let coin = CoinOnChain {
            listing: name.listing,
            asset_id: name.asset,
            chain_id: name.chain,
            family: Family::of_chain(chain.kind, &chain.network),
            policy: catalog.withdrawals.get(&key).map(|setting| setting.policy.clone()),
            form: catalog.listings.get(&key)?.clone(),
            asset,
            chain,
        };
        Some((key, coin))
    };
    Ok(names.into_iter().filter_map(coin).collect())
}
