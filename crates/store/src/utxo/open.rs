//! What is not settled around unconfirmed transactions, and has to be asked of the nodes.

use super::load::hash;
use super::types::{Hash, UtxoError};
use crate::db::Db;

statements! {
    /// Transactions that are not stored, and whose outputs valid unconfirmed ones spend; or ones that would be
    /// unconfirmed without the blocks above a height.
    READ_UNKNOWN_PARENTS = "SELECT i.prev_hash FROM transactions t
            JOIN tx_inputs i ON i.wallet_id = t.wallet_id AND i.tx_id = t.id
        WHERE t.block_height IS NULL AND t.status IN ('pending', 'published')
            AND NOT EXISTS (SELECT 1 FROM transactions p WHERE p.tx_hash = i.prev_hash)
        UNION SELECT i.prev_hash FROM transactions t
            JOIN tx_inputs i ON i.wallet_id = t.wallet_id AND i.tx_id = t.id
        WHERE t.block_height > $1
            AND NOT EXISTS (SELECT 1 FROM transactions p WHERE p.tx_hash = i.prev_hash)";

    /// Invalid transactions that want an input of a published one which is in no block.
    READ_CONTESTED = "SELECT DISTINCT o.tx_hash FROM transactions t
            JOIN tx_inputs i ON i.wallet_id = t.wallet_id AND i.tx_id = t.id
            JOIN tx_inputs c ON c.prev_hash = i.prev_hash AND c.prev_index = i.prev_index AND NOT c.active
            JOIN transactions o ON o.wallet_id = c.wallet_id AND o.id = c.tx_id
        WHERE t.block_height IS NULL AND t.status IN ('pending', 'published') AND t.status = 'published'";
}

impl Db {
    /// Transactions that are not stored although valid unconfirmed ones depend on them; `without`: as if the blocks
    /// above this height were not there.
    pub async fn unknown_parents(&self, without: Option<u32>) -> Result<Vec<Hash>, UtxoError> {
        let height = without.map_or(i64::MAX, i64::from);
        let rows = fetch_all!(&mut self.read().await?, READ_UNKNOWN_PARENTS => (Vec<u8>,), height)?;
        rows.iter().map(|row| Ok(hash(&row.0)?)).collect()
    }

    /// Invalid transactions that may stand again if a mempool has them and not the one that took their inputs.
    pub async fn contested(&self) -> Result<Vec<Hash>, UtxoError> {
        let rows = fetch_all!(&mut self.read().await?, READ_CONTESTED => (Vec<u8>,))?;
        rows.iter().map(|row| Ok(hash(&row.0)?)).collect()
    }
}
