//! The balance of an account: totals that are kept, and the parts that depend on the moment, read from their few rows.

use std::collections::BTreeMap;

use domain::Timestamp;

use super::blocks::read_tip;
use super::load::number;
use super::types::{Balance, COINBASE_MATURITY, UtxoError, UtxoRefusal, WalletId};
use crate::db::Db;

statements! {
    READ_WALLET_ID = "SELECT id FROM wallets WHERE id = $1";
    READ_TOTALS = "SELECT account, confirmed, confirmed_count, unconfirmed, unconfirmed_count
        FROM account_totals WHERE wallet_id = $1";
    /// $2: the last height at which a coinbase is mature.
    READ_IMMATURE = "SELECT u.account, CAST(SUM(u.amount) AS BIGINT)
        FROM transactions t {INDEXED BY idx_transactions_coinbase}
            {join} utxos u {INDEXED BY idx_utxos_by_tx} ON u.wallet_id = t.wallet_id AND u.tx_id = t.id
        WHERE t.wallet_id = $1 AND t.is_coinbase AND t.block_height > $2 AND u.spent_by_tx_id IS NULL AND u.valid
        GROUP BY u.account";
    READ_LEASED = "SELECT u.account, CAST(SUM(u.amount) AS BIGINT)
        FROM utxo_leases l
            {join} utxos u {INDEXED BY idx_utxos_unspent_by_id} ON u.wallet_id = l.wallet_id AND u.id = l.utxo_id
        WHERE l.wallet_id = $1 AND l.expires_at > $2 AND u.spent_by_tx_id IS NULL AND u.valid
        GROUP BY u.account";
    /// Those under a lease are counted with the leases.
    READ_CLAIMED = "SELECT u.account, CAST(SUM(u.amount) AS BIGINT)
        FROM utxo_claims c
            {join} utxos u {INDEXED BY idx_utxos_unspent_by_id} ON u.wallet_id = c.wallet_id AND u.id = c.utxo_id
        WHERE c.wallet_id = $1 AND u.spent_by_tx_id IS NULL AND u.valid
            AND NOT EXISTS (SELECT 1 FROM utxo_leases l
                WHERE l.wallet_id = c.wallet_id AND l.utxo_id = c.utxo_id AND l.expires_at > $2)
        GROUP BY u.account";
}

impl Db {
    /// By account.
    pub async fn balance(&self, wallet: WalletId, now: Timestamp) -> Result<BTreeMap<u32, Balance>, UtxoError> {
        let mut tx = self.read().await?;
        fetch_optional!(&mut tx, READ_WALLET_ID => (i64,), wallet.0)?.ok_or(UtxoRefusal::UnknownWallet)?;
        let mature = read_tip(&mut tx).await?.map_or(-1, |(tip, _)| i64::from(tip) - i64::from(COINBASE_MATURITY));
        let totals = fetch_all!(&mut tx, READ_TOTALS => (i64, i64, i64, i64, i64), wallet.0)?;
        let mut accounts: BTreeMap<u32, Balance> = BTreeMap::new();
        for (account, confirmed, confirmed_count, unconfirmed, unconfirmed_count) in totals {
            let outputs = confirmed_count + unconfirmed_count;
            accounts.insert(number(account)?, Balance { confirmed, unconfirmed, outputs, ..Balance::default() });
        }
        for (account, immature) in fetch_all!(&mut tx, READ_IMMATURE => (i64, i64), wallet.0, mature)? {
            accounts.entry(number(account)?).or_default().immature = immature;
        }
        for (account, leased) in fetch_all!(&mut tx, READ_LEASED => (i64, i64), wallet.0, now.micros())? {
            accounts.entry(number(account)?).or_default().leased = leased;
        }
        for (account, claimed) in fetch_all!(&mut tx, READ_CLAIMED => (i64, i64), wallet.0, now.micros())? {
            accounts.entry(number(account)?).or_default().leased += claimed;
        }
        Ok(accounts)
    }
}
