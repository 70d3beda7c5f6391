//! One transaction with all that is known of it; labels.

use domain::Timestamp;

use super::coins::{LIST_OUTPUTS_OF, Listed, output_row};
use super::load::{hash, number, status};
use super::types::{EventRow, Hash, InputRow, OutPoint, TransactionDetail, UtxoError, UtxoRefusal, WalletId};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::transact;

statements! {
    READ_TRANSACTION = "SELECT t.status, t.block_height, t.received_time, t.is_coinbase, t.is_own, t.given_up, t.raw_tx, b.label
        FROM transactions t LEFT JOIN transaction_labels b ON b.wallet_id = t.wallet_id AND b.tx_id = t.id
        WHERE t.tx_hash = $2 AND t.wallet_id = $1";
    READ_INPUTS_OF = "SELECT i.prev_hash, i.prev_index, u.account, u.amount
        FROM transactions t JOIN tx_inputs i ON i.wallet_id = t.wallet_id AND i.tx_id = t.id
            LEFT JOIN transactions p ON p.tx_hash = i.prev_hash AND p.wallet_id = i.wallet_id
            LEFT JOIN utxos u ON u.wallet_id = p.wallet_id AND u.tx_id = p.id AND u.output_index = i.prev_index
        WHERE t.tx_hash = $2 AND t.wallet_id = $1 ORDER BY i.input_index";
    READ_REPLACED_BY = "SELECT o.tx_hash FROM transactions t
            JOIN tx_replacements e ON e.wallet_id = t.wallet_id AND e.replaced_tx_id = t.id
            JOIN transactions o ON o.wallet_id = e.wallet_id AND o.id = e.replacement_tx_id
        WHERE t.tx_hash = $2 AND t.wallet_id = $1 ORDER BY e.replacement_tx_id";
    READ_REPLACES = "SELECT o.tx_hash FROM transactions t
            JOIN tx_replacements e ON e.wallet_id = t.wallet_id AND e.replacement_tx_id = t.id
            JOIN transactions o ON o.wallet_id = e.wallet_id AND o.id = e.replaced_tx_id
        WHERE t.tx_hash = $2 AND t.wallet_id = $1 ORDER BY e.replaced_tx_id";
    READ_EVENTS = "SELECT status, block_height, reason, cause, actor, at FROM transaction_events
        WHERE wallet_id = $1 AND tx_hash = $2 ORDER BY id";
    READ_TX_ID = "SELECT id FROM transactions WHERE wallet_id = $1 AND tx_hash = $2";
    READ_ADDRESS_ID = "SELECT id FROM addresses WHERE wallet_id = $1 AND script_pub_key = $2";
    SET_TRANSACTION_LABEL = "INSERT INTO transaction_labels (wallet_id, tx_id, label, actor, updated_at)
        VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (wallet_id, tx_id) DO UPDATE SET label = EXCLUDED.label, actor = EXCLUDED.actor,
            updated_at = EXCLUDED.updated_at";
    SET_ADDRESS_LABEL = "INSERT INTO address_labels (wallet_id, address_id, label, actor, updated_at)
        VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (wallet_id, address_id) DO UPDATE SET label = EXCLUDED.label, actor = EXCLUDED.actor,
            updated_at = EXCLUDED.updated_at";
    CLEAR_TRANSACTION_LABEL = "DELETE FROM transaction_labels WHERE wallet_id = $1 AND tx_id = $2";
    CLEAR_ADDRESS_LABEL = "DELETE FROM address_labels WHERE wallet_id = $1 AND address_id = $2";
    LIST_UNCONFIRMED = "SELECT tx_hash, raw_tx, status FROM transactions
        WHERE wallet_id = $1 AND block_height IS NULL AND status IN ('pending', 'published') ORDER BY id";
}

impl Db {
    pub async fn transaction(
        &self,
        wallet: WalletId,
        wanted: Hash,
        now: Timestamp,
    ) -> Result<Option<TransactionDetail>, UtxoError> {
        Ok(detail(&mut self.read().await?, wallet, wanted, now).await?)
    }

    /// The history of a transaction, also of one that was pruned.
    pub async fn transaction_events(&self, wallet: WalletId, wanted: Hash) -> Result<Vec<EventRow>, UtxoError> {
        Ok(events(&mut self.read().await?, wallet, wanted).await?)
    }

    /// The valid transactions that are in no block, in the order in which they were stored, with their bytes.
    pub async fn unconfirmed(&self, wallet: WalletId) -> Result<Vec<(Hash, Vec<u8>, super::types::Status)>, UtxoError> {
        let mut tx = self.read().await?;
        let rows = fetch_all!(&mut tx, LIST_UNCONFIRMED => (Vec<u8>, Vec<u8>, String), wallet.0)?;
        rows.into_iter().map(|(one, raw, text)| Ok((hash(&one)?, raw, status(&text)?))).collect()
    }

    /// `None` takes the label away.
    pub async fn label_transaction(
        &self,
        wallet: WalletId,
        wanted: Hash,
        label: Option<&str>,
        actor: &str,
        at: Timestamp,
    ) -> Result<(), UtxoError> {
        check_label(label)?;
        let known = transact!(self, tx => {
            let row = fetch_optional!(tx, READ_TX_ID => (i64,), wallet.0, wanted.0.as_slice())?;
            if let Some((id,)) = row {
                match label {
                    Some(label) => execute!(tx, SET_TRANSACTION_LABEL, wallet.0, id, label, actor, at.micros())?,
                    None => execute!(tx, CLEAR_TRANSACTION_LABEL, wallet.0, id)?,
                };
            }
            Ok(row.is_some())
        })?;
        if known { Ok(()) } else { Err(UtxoRefusal::UnknownTransaction(wanted).into()) }
    }

    /// `None` takes the label away.
    pub async fn label_address(
        &self,
        wallet: WalletId,
        script: &[u8],
        label: Option<&str>,
        actor: &str,
        at: Timestamp,
    ) -> Result<(), UtxoError> {
        check_label(label)?;
        let known = transact!(self, tx => {
            let row = fetch_optional!(tx, READ_ADDRESS_ID => (i64,), wallet.0, script)?;
            if let Some((id,)) = row {
                match label {
                    Some(label) => execute!(tx, SET_ADDRESS_LABEL, wallet.0, id, label, actor, at.micros())?,
                    None => execute!(tx, CLEAR_ADDRESS_LABEL, wallet.0, id)?,
                };
            }
            Ok(row.is_some())
        })?;
        if known { Ok(()) } else { Err(UtxoRefusal::UnknownAddress.into()) }
    }
}

fn check_label(label: Option<&str>) -> Result<(), UtxoRefusal> {
    // PostgreSQL cannot store a zero byte in a text.
    let fits = |label: &str| (1..=500).contains(&label.chars().count()) && !label.contains('\0');
    if label.is_none_or(fits) { Ok(()) } else { Err(UtxoRefusal::BadLabel) }
}

async fn detail(
    tx: &mut Tx,
    wallet: WalletId,
    wanted: Hash,
    now: Timestamp,
) -> Result<Option<TransactionDetail>, StoreError> {
    let key = wanted.0.as_slice();
    type Stored = (String, Option<i64>, i64, bool, bool, bool, Vec<u8>, Option<String>);
    let Some(row) = fetch_optional!(tx, READ_TRANSACTION => Stored, wallet.0, key)? else { return Ok(None) };
    let (text, height, received, coinbase, own, given_up, raw, label) = row;
    let inputs = fetch_all!(tx, READ_INPUTS_OF => (Vec<u8>, i64, Option<i64>, Option<i64>), wallet.0, key)?;
    let outputs = fetch_all!(tx, LIST_OUTPUTS_OF => Listed, wallet.0, key, now.micros())?;
    let replaced = fetch_all!(tx, READ_REPLACES => (Vec<u8>,), wallet.0, key)?;
    let replaced_by = fetch_all!(tx, READ_REPLACED_BY => (Vec<u8>,), wallet.0, key)?;
    let hashes = |rows: Vec<(Vec<u8>,)>| rows.iter().map(|row| hash(&row.0)).collect::<Result<Vec<Hash>, _>>();
    let input = |(made_by, index, account, amount): (Vec<u8>, i64, Option<i64>, Option<i64>)| {
        let ours = account.map(number).transpose()?.zip(amount);
        Ok(InputRow { outpoint: OutPoint { hash: hash(&made_by)?, index: number(index)? }, ours })
    };
    Ok(Some(TransactionDetail {
        hash: wanted,
        status: status(&text)?,
        height: height.map(number).transpose()?,
        received: Timestamp::from_micros(received),
        coinbase,
        own,
        given_up,
        raw,
        label,
        inputs: inputs.into_iter().map(input).collect::<Result<_, StoreError>>()?,
        outputs: outputs.into_iter().map(output_row).collect::<Result<_, _>>()?,
        replaced: hashes(replaced)?,
        replaced_by: hashes(replaced_by)?,
        events: events(tx, wallet, wanted).await?,
    }))
}

async fn events(tx: &mut Tx, wallet: WalletId, wanted: Hash) -> Result<Vec<EventRow>, StoreError> {
    type Stored = (String, Option<i64>, String, Option<Vec<u8>>, String, i64);
    let rows = fetch_all!(tx, READ_EVENTS => Stored, wallet.0, wanted.0.as_slice())?;
    let event = |(status, height, reason, cause, actor, at): Stored| {
        Ok(EventRow {
            status,
            height: height.map(number).transpose()?,
            reason,
            cause: cause.map(|bytes| hash(&bytes)).transpose()?,
            actor,
            at: Timestamp::from_micros(at),
        })
    };
    rows.into_iter().map(event).collect()
}
