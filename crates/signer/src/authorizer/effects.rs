//! How a job stands to what was signed for it before, and what an approval changes.

use domain::RawAmount;

use super::Authorizer;
use crate::intent::{Intent, IntentKind, SignRequest, coin_text};
use crate::log::entry::Effects;
use crate::log::folder::Folder;
use crate::policy::Policy;
use crate::policy::judge::{Standing, Way};
use crate::reading::Reading;
use crate::refusal::SignerRefusal;
use crate::slots::{Held, JobRecord, KeptJob, SlotStanding};
use crate::text::{Hash, RawText, SpentOutput};

/// An intent's place in the slots: how it stands to what was signed before, and what it will hold.
pub(super) type Place = (SlotStanding, Held);

fn sum(one: RawAmount, other: RawAmount) -> RawAmount {
    one.checked_add(other).unwrap_or(RawAmount::MAX)
}

impl<F: Folder> Authorizer<F> {
    /// What was counted of fees for the job, as long as it is where it was.
    fn counted(&self, intent: &Intent, standing: &SlotStanding) -> RawAmount {
        let record = self.state.slots.job(intent.job).filter(|_| *standing == SlotStanding::Again);
        record.map_or(RawAmount::ZERO, KeptJob::fee)
    }

    /// A fee counts beyond what was counted for the transaction's jobs before. What is added is counted for one of them, so
    /// what can be mined together, which never has a job twice, costs at most what all its jobs were counted for.
    pub(super) fn fee_added(&self, request: &SignRequest, places: &[Place], fee: RawAmount) -> RawAmount {
        let counted = request.intents.iter().zip(places).map(|(intent, (standing, _))| self.counted(intent, standing));
        fee.checked_sub(counted.fold(RawAmount::ZERO, sum)).unwrap_or(RawAmount::ZERO)
    }

    /// Whether this very intent was signed last for the job, or approved for it, where it is now.
    pub(super) fn is_known(&self, intent: &Intent) -> bool {
        let digest = Hash(intent.digest());
        let record = self.state.slots.job(intent.job);
        record.is_some_and(|record| record.intent == digest || record.approved() == Some(digest))
    }

    /// Whether caps or approvals were settled when the job was signed before.
    pub(super) fn standing(&self, intent: &Intent, standing: &SlotStanding) -> Standing {
        let record = self.state.slots.job(intent.job).filter(|_| *standing == SlotStanding::Again);
        // It was within the caps then, or people approved this very intent. Another fee needs them again. What is built
        // again on TRON pays again, so it is asked anew whoever has taken an approval back since.
        match record {
            Some(record) if record.approved().is_none_or(|approved| approved == Hash(intent.digest())) => {
                Standing::Again
            }
            Some(_) | None => Standing::New,
        }
    }

    /// An approval is for so many transactions, whatever was signed for the job in between, and for no more than the policy says: each that was
    /// built could have been mined, and who asks also shows people what they sign.
    pub(super) fn check_builds(
        &self,
        request: &SignRequest,
        places: &[Place],
        ways: &[Way],
        policy: &Policy,
    ) -> Result<(), SignerRefusal> {
        for ((intent, (standing, _)), way) in request.intents.iter().zip(places).zip(ways) {
            let record = self.state.slots.job(intent.job);
            let built = record.map_or(0, |record| record.built(&Hash(intent.digest())));
            let most = intent.builds.min(policy.most_tron_builds);
            if *way == Way::Approved && *standing != SlotStanding::Again && built >= most {
                return Err(SignerRefusal::BuildsUsedUp(intent.job));
            }
        }
        Ok(())
    }

    pub(super) fn effects(
        &self,
        request: &SignRequest,
        reading: &Reading,
        payload: Hash,
        places: Vec<Place>,
        ways: &[Way],
    ) -> Effects {
        let mut added = self.fee_added(request, &places, reading.fee);
        let mut effects = Effects { payload, ..Effects::default() };
        for ((intent, (standing, held)), way) in request.intents.iter().zip(places).zip(ways) {
            let before = self.state.slots.job(intent.job);
            let same_slot = before.filter(|_| standing != SlotStanding::Taken);
            let digest = Hash(intent.digest());
            let approved = match way {
                Way::Approved => Some(digest),
                Way::Free => None,
                Way::Uncounted => same_slot.and_then(KeptJob::approved),
            };
            let mut builds = before.map(KeptJob::builds).unwrap_or_default();
            if *way == Way::Approved && standing != SlotStanding::Again {
                let built = builds.entry(digest).or_default();
                *built = built.saturating_add(1);
            }
            let fee = sum(self.counted(intent, &standing), std::mem::replace(&mut added, RawAmount::ZERO));
            let cancels = match &intent.kind {
                IntentKind::Cancel { jobs } => jobs.clone(),
                IntentKind::Pay { .. } => Vec::new(),
            };
            if let (Way::Free, Some(payment)) = (way, intent.payment()) {
                effects.counted.push((coin_text(&payment.coin), RawText(payment.amount)));
            }
            let record = JobRecord {
                payment: Hash(intent.payment_digest()),
                round: intent.round,
                held,
                cancelled: false,
                cancels,
                intent: digest,
                approved,
                builds,
                fee: RawText(fee),
                payload,
            };
            effects.jobs.push((intent.job, record));
        }
        for spent in &reading.inputs {
            let input = SpentOutput(spent.input.transaction, spent.input.index);
            effects.amounts.push((input, spent.input.amount_sat));
        }
        effects
    }
}
