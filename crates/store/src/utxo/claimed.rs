//! Outputs that are claimed: free as far as valid transactions go, and yet among the inputs of one that was broadcast and may still
//! be mined (`domain::utxo` says which). A row of `utxo_claims` keeps everybody from selecting, leasing or spending one.
//!
//! **A claim is no lease.** An output may be under a lease when it becomes claimed, by a reorganisation: the lease stays, and its
//! holder cannot spend the output either. And nobody can release a claim: it goes when the rows say so, with the event that changes
//! them. (So a lease that is taken at the same moment does no harm, and no output is locked for a claim: whoever spends waits in the
//! line of all changes, and finds the claim there.)

use std::collections::BTreeSet;

use domain::utxo::Row;

use super::load::{Around, bytes, hash, number, outpoint_columns};
use super::types::{Hash, OutPoint, UtxoError, UtxoId, UtxoRefusal, WalletId};
use super::write::{Place, Writer, place_columns};
use crate::db::Tx;
use crate::dialect::Many;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, RowsSql, execute_rows, expect_rows, fetch_rows};

statements! {
    READ_FIRST_CLAIMED = "SELECT t.tx_hash, u.output_index, c.claimant
        FROM utxo_claims c JOIN utxos u ON u.wallet_id = c.wallet_id AND u.id = c.utxo_id
            JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
        WHERE c.wallet_id = $1 AND c.utxo_id {in $2} ORDER BY c.utxo_id LIMIT 1";
}

static READ_CLAIMS_AT: RowsSql = RowsSql::new(
    "READ_CLAIMS_AT",
    "SELECT p.tx_hash, u.output_index, c.claimant
     FROM {rows} {join} transactions p ON p.tx_hash = r.hash
         {join} utxos u ON u.wallet_id = p.wallet_id AND u.tx_id = p.id AND u.output_index = r.output_index
         {join} utxo_claims c ON c.wallet_id = u.wallet_id AND c.utxo_id = u.id",
    &[("hash", Bytes), ("output_index", Int)],
);

/// By outpoint: the output may be one that the same event has stored.
static INSERT_CLAIMS: RowsSql = RowsSql::new(
    "INSERT_CLAIMS",
    "INSERT INTO utxo_claims (wallet_id, utxo_id, claimant)
     SELECT u.wallet_id, u.id, r.claimant
     FROM {rows} {join} utxos u ON u.wallet_id = r.wallet
             AND u.tx_id = (SELECT p.id FROM transactions p WHERE p.tx_hash = r.hash AND p.wallet_id = r.wallet)
             AND u.output_index = r.output_index
     WHERE TRUE
     ON CONFLICT (wallet_id, utxo_id) DO UPDATE SET claimant = EXCLUDED.claimant",
    &[("wallet", Int), ("hash", Bytes), ("output_index", Int), ("claimant", Bytes)],
);

static DELETE_CLAIMS: RowsSql = RowsSql::new(
    "DELETE_CLAIMS",
    "DELETE FROM utxo_claims WHERE (wallet_id, utxo_id) IN (SELECT wallet, id FROM {rows})",
    &[("wallet", Int), ("id", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 3] = [&READ_CLAIMS_AT, &INSERT_CLAIMS, &DELETE_CLAIMS];

impl Around<'_> {
    /// Reads what it takes to say which outputs are claimed after an event that was decided.
    ///
    /// Whoever became invalid, or lost an input to a block, or has it back, or whose ancestors did: these are the suspects. What they spend is in
    /// question, and with it whoever else wants that, and all that those depend on. Where nothing is invalid this is two statements that find
    /// nothing.
    pub async fn load_claims(&mut self, tx: &mut Tx) -> Result<(), StoreError> {
        let stirred = self.graph.stirred();
        if stirred.is_empty() {
            return Ok(());
        }
        let inputs = self.graph.inputs_of(stirred.iter().copied());
        self.load_waiting_for(tx, &inputs).await?;
        self.load_waiting_on(tx, &stirred.iter().copied().collect::<Vec<_>>()).await?;
        let mut suspects = self.graph.suspects(&stirred);
        if suspects.is_empty() && !self.graph.some_were_invalid(&stirred) {
            return Ok(());
        }
        let mut generation = suspects.clone();
        while !generation.is_empty() {
            self.load_waiting_on(tx, &generation.iter().copied().collect::<Vec<_>>()).await?;
            generation = self.graph.invalid_children(&generation).difference(&suspects).copied().collect();
            suspects.extend(&generation);
        }
        self.load_inputs(tx, &suspects).await?;
        let wanted = self.graph.inputs_of(suspects.union(&stirred).copied());
        self.load_coins_at(tx, &wanted).await?;
        let ours: Vec<OutPoint> = wanted.into_iter().filter(|one| self.graph.coin(one).is_some()).collect();
        suspects.extend(self.load_waiting_for(tx, &ours).await?);
        suspects.retain(|one| self.graph.is_invalid(*one));
        self.load_prospects(tx, suspects).await?;
        self.graph.claimed_before = claims_at(tx, &ours).await?.into_iter().collect();
        self.graph.in_question = ours.into_iter().collect();
        Ok(())
    }

    /// Reads what it takes to say whether these may still be mined: what they spend, who has spent it, and all invalid transactions
    /// that they depend on.
    pub async fn load_prospects(&mut self, tx: &mut Tx, of: BTreeSet<Hash>) -> Result<(), StoreError> {
        let mut judged: BTreeSet<Hash> = BTreeSet::new();
        let mut generation = of;
        while !generation.is_empty() {
            self.load_inputs(tx, &generation).await?;
            let inputs = self.graph.inputs_of(generation.iter().copied());
            self.load_spenders(tx, &inputs).await?;
            self.load_entries(tx, inputs.iter().map(|input| input.hash)).await?;
            let parents = self.graph.invalid_parents(&generation);
            judged.extend(&generation);
            generation = parents.difference(&judged).copied().collect();
        }
        self.load_once(tx, &judged.into_iter().collect::<Vec<_>>()).await.map(|_| ())
    }
}

impl Writer<'_, '_> {
    /// Outputs whose claims change: those that are claimed now, by whom; and those that no longer are.
    fn changed_claims(&self) -> (Vec<(OutPoint, Hash)>, Vec<OutPoint>) {
        let (before, after) = (&self.0.claimed_before, self.0.claimed());
        let gone = before.keys().filter(|outpoint| !after.contains_key(*outpoint)).copied().collect();
        let new = after.into_iter().filter(|(outpoint, claimant)| before.get(outpoint) != Some(claimant)).collect();
        (new, gone)
    }

    /// Where it is stored.
    fn place(&self, outpoint: &OutPoint) -> Option<Place> {
        let coin = self.0.coins.get(outpoint)?;
        match coin.row {
            Row::Stored { id, .. } => Some((coin.wallet, id)),
            Row::New { .. } => None,
        }
    }

    pub async fn write_claims(&self, tx: &mut Tx) -> Result<(), StoreError> {
        let (new, gone) = self.changed_claims();
        if !gone.is_empty() {
            let places: Vec<Place> = gone.iter().filter_map(|outpoint| self.place(outpoint)).collect();
            expect_rows(execute_rows(tx, &DELETE_CLAIMS, place_columns(&places)).await?, places.len(), "claims")?;
        }
        if new.is_empty() {
            return Ok(());
        }
        let wallets = new.iter().map(|(outpoint, _)| self.0.coins.get(outpoint).map_or(0, |coin| coin.wallet.0));
        let columns = vec![
            Column::Ints(wallets.collect()),
            bytes(new.iter().map(|(outpoint, _)| &outpoint.hash)),
            Column::Ints(new.iter().map(|(outpoint, _)| i64::from(outpoint.index)).collect()),
            bytes(new.iter().map(|(_, claimant)| claimant)),
        ];
        expect_rows(execute_rows(tx, &INSERT_CLAIMS, columns).await?, new.len(), "claims")
    }
}

/// Who claims which of these outputs.
async fn claims_at(tx: &mut Tx, outpoints: &[OutPoint]) -> Result<Vec<(OutPoint, Hash)>, StoreError> {
    if outpoints.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<(Vec<u8>, i64, Vec<u8>)> = fetch_rows(tx, &READ_CLAIMS_AT, outpoint_columns(outpoints)).await?;
    let claim = |(made_by, index, claimant): (Vec<u8>, i64, Vec<u8>)| {
        Ok((OutPoint { hash: hash(&made_by)?, index: number(index)? }, hash(&claimant)?))
    };
    rows.into_iter().map(claim).collect()
}

/// Refuses to spend what is claimed.
pub(super) async fn check_unclaimed_at(tx: &mut Tx, outpoints: &[OutPoint]) -> Result<(), UtxoError> {
    match claims_at(tx, outpoints).await?.first() {
        None => Ok(()),
        Some((outpoint, by)) => Err(UtxoRefusal::Claimed { outpoint: *outpoint, by: *by }.into()),
    }
}

/// The same for outputs of one wallet.
pub(super) async fn check_unclaimed(tx: &mut Tx, wallet: WalletId, ids: &[UtxoId]) -> Result<(), UtxoError> {
    let ids = Many(ids.iter().map(|id| id.0).collect::<Vec<i64>>());
    let found = fetch_optional!(tx, READ_FIRST_CLAIMED => (Vec<u8>, i64, Vec<u8>), wallet.0, ids.clone())?;
    let Some((made_by, index, claimant)) = found else { return Ok(()) };
    let outpoint = OutPoint { hash: hash(&made_by)?, index: number(index)? };
    Err(UtxoRefusal::Claimed { outpoint, by: hash(&claimant)? }.into())
}
