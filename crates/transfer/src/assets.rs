//! The assets of the database, kept in memory and read anew every second.
//!
//! The gate uses them, and legs that need an asset's symbol. The coordinator does not: it reads an asset's rules
//! together with the account that it locks.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use domain::{Asset, AssetId, Symbol};
use store::catalog::read_assets;
use store::error::Causes;
use store::{Db, StoreError};

const REFRESH: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Assets(RwLock<Arc<BTreeMap<AssetId, Asset>>>);

impl Assets {
    pub async fn load(db: &Db) -> Result<Self, StoreError> {
        let assets = Self::default();
        assets.refresh(db).await?;
        Ok(assets)
    }

    pub async fn refresh(&self, db: &Db) -> Result<(), StoreError> {
        let read = Arc::new(read_assets(&mut db.read().await?).await?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    /// Reads the assets anew for ever. While the database does not answer, those read last stay in use.
    pub async fn follow(&self, db: &Db) {
        loop {
            tokio::time::sleep(REFRESH).await;
            if let Err(error) = self.refresh(db).await {
                // Whoever watches the database says so when it is away.
                tracing::debug!(code = error.code(), error = %Causes(&error), "the assets could not be read anew");
            }
        }
    }

    pub fn all(&self) -> Arc<BTreeMap<AssetId, Asset>> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn by_symbol(&self, symbol: &Symbol) -> Option<(AssetId, Asset)> {
        self.all().iter().find(|(_, asset)| asset.symbol == *symbol).map(|(id, asset)| (*id, asset.clone()))
    }
}
