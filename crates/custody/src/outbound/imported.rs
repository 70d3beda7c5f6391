//! What the chain says of payments that another program has sent: there is a hash, and no bytes that would say what was meant.
//!
//! | the chain shows | it is |
//! |---|---|
//! | the hash in a block that a quorum has, and that block, proven, has the coin going from the job's wallet to its recipient in exactly the job's amount | paid |
//! | the hash in a block, and anything else: it reverted, another sender, recipient, coin or amount, or more besides | for two people to judge |
//! | nothing | nothing: it may still be mined |
//!
//! **Nothing here ends a job unpaid**, so none is ever paid again by itself.

use std::collections::HashMap;

use chain::{Place, Scan, WatchKey, Watched};
use domain::outbound::Effect;
use domain::utxo::Hash;
use domain::{ChainKind, RawAmount};
use store::outbound::{JobRow, LaneId, MinedAttempt, SlotId, WatchedSlot};
use tx::{Address, Payment, TxHash};

use super::OutboundError;
use super::watch::{Found, WatchWorker};

impl WatchWorker<'_> {
    /// What has become of those of these slots that another program has used.
    pub(super) async fn judge_imported(
        &self,
        slots: &[&WatchedSlot],
        own: &HashMap<LaneId, Address>,
    ) -> Result<HashMap<SlotId, Result<Found, OutboundError>>, OutboundError> {
        let ids: Vec<SlotId> = slots.iter().filter(|slot| slot.imported).map(|slot| slot.id).collect();
        let mut judged = HashMap::new();
        if ids.is_empty() {
            return Ok(judged);
        }
        let jobs = self.db.imported_jobs(&ids).await?;
        for slot in slots.iter().filter(|slot| slot.imported) {
            let found = match (jobs.get(&slot.id), own.get(&slot.lane)) {
                (Some(job), Some(sender)) => self.look_for(slot, job, sender).await,
                // Whose wallet it is, this worker cannot say: another can.
                (None, _) | (_, None) => Ok(Found::Nothing),
            };
            judged.insert(slot.id, found);
        }
        Ok(judged)
    }

    async fn look_for(&self, slot: &WatchedSlot, job: &JobRow, sender: &Address) -> Result<Found, OutboundError> {
        let attempt = slot.attempts.iter().find_map(|one| Some((one.number, one.signed.as_ref()?.1)));
        let (Some((number, hash)), Ok(payment)) = (attempt, self.ground.payment(job)) else {
            return Ok(Found::Nothing);
        };
        // An input of Bitcoin does not say whose coin it was: none is taken over there.
        if self.ground.row.kind == ChainKind::Bitcoin {
            return Ok(Found::Nothing);
        }
        let mut watched = Watched::default();
        watched.insert(WatchKey::of(sender));
        watched.insert(WatchKey::of(&payment.to));
        let hash = TxHash(hash.0);
        let Some(mined) = self.chain.prove(hash, &watched).await? else { return Ok(Found::Nothing) };
        let height = mined.block.height;
        let scan = self.chain.prove_blocks(height, height, &watched).await?;
        if !scan.headers.iter().any(|header| header.height == height && header.hash == mined.block.hash) {
            // It moved in between: the next round sees where it is.
            return Ok(Found::Nothing);
        }
        let fate = if mined.ok && has_paid(&scan, hash, sender, &payment) { Effect::InFull } else { Effect::Unclear };
        let fee =
            scan.spends.iter().find(|one| one.transaction == hash && one.place == Place::Fee).map(|one| one.amount);
        Ok(Found::Mined(number, MinedAttempt { height, block: Hash(mined.block.hash.0), fate, fee }))
    }
}

/// Whether the transaction took exactly this from the sender, and gave exactly this to the recipient.
fn has_paid(scan: &Scan, hash: TxHash, sender: &Address, payment: &Payment) -> bool {
    let sum = |amounts: Vec<RawAmount>| amounts.into_iter().try_fold(RawAmount::ZERO, RawAmount::checked_add);
    let left = scan.spends.iter().filter(|one| {
        one.transaction == hash && one.place != Place::Fee && one.from == *sender && one.coin == payment.coin
    });
    let to_them = left.clone().all(|one| one.ok && one.to.as_ref() == Some(&payment.to));
    let came =
        scan.outputs.iter().filter(|one| one.transaction == hash && one.to == payment.to && one.coin == payment.coin);
    let ran = came.clone().all(|one| one.ok);
    let left = sum(left.map(|one| one.amount).collect());
    let came = sum(came.map(|one| one.amount).collect());
    to_them && ran && left == Some(payment.amount) && came == Some(payment.amount) && *sender != payment.to
}
