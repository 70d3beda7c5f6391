//! A draft of a policy against the log: what would have been decided otherwise.
//!
//! Only what the policy decides is asked again: roles, coins, destinations, caps, fees, steps, lives. What a payload did
//! not explain, or a slot that was taken, stays refused under any policy. Counters run as the draft would have had them.

use std::collections::BTreeSet;

use domain::{ChainName, RawAmount, Timestamp};

use super::Policy;
use super::judge::{Counter, Part, Question, Standing, Way};
use crate::caps::SpentByMinute;
use crate::intent::{Intent, coin_text};
use crate::log::entry::{Decision, Entry};
use crate::names::RequestId;
use crate::refusal::SignerRefusal;
use crate::text::Hash;

/// One decision that would have been another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub entry: u64,
    pub at: Timestamp,
    pub request: RequestId,
    /// `approved`, or a code.
    pub was: String,
    pub was_rule: String,
    pub would: String,
    pub would_rule: String,
}

/// Runs a draft beside the log: entries go in, in their order.
pub struct Simulation<'a> {
    draft: &'a Policy,
    spent: SpentByMinute,
    pub asked: u64,
    pub differences: Vec<Difference>,
}

const APPROVED: &str = "approved";

/// The codes that a policy answers with. Others stay as they are, whatever it says.
fn is_policys(code: &str) -> bool {
    let limits = [
        SignerRefusal::RoleForbids(""),
        SignerRefusal::CoinNotListed,
        SignerRefusal::DestinationForbidden,
        SignerRefusal::ChangeForbidden,
        SignerRefusal::FeeAboveCap,
        SignerRefusal::CapReached(""),
        SignerRefusal::ApprovalsMissing { given: 0, needed: 0 },
        SignerRefusal::AboveAllSteps,
        SignerRefusal::IntentLivesTooLong,
    ];
    limits.iter().any(|refusal| refusal.code() == code)
}

impl<'a> Simulation<'a> {
    pub fn new(draft: &'a Policy) -> Self {
        Self { draft, spent: SpentByMinute::default(), asked: 0, differences: Vec::new() }
    }

    pub fn take(&mut self, number: u64, entry: &Entry) {
        let (decision, was) = match entry {
            Entry::Approved { decision, .. } => (decision, APPROVED),
            Entry::Refused { decision, code, .. } if is_policys(code) => (decision, code.as_str()),
            Entry::Refused { .. } | Entry::Policy { .. } | Entry::Revoked { .. } => return,
        };
        self.asked += 1;
        let at = Timestamp::from_micros(decision.at);
        let (would, would_rule) = match self.judge(decision, at) {
            Ok(rule) => (APPROVED.to_owned(), rule),
            Err((refusal, rule)) => (refusal.code().to_owned(), rule),
        };
        if would != was {
            self.differences.push(Difference {
                entry: number,
                at,
                request: decision.request.clone(),
                was: was.to_owned(),
                was_rule: format!("version {}: {}", decision.policy, decision.rule),
                would,
                would_rule,
            });
        }
    }

    fn judge(&mut self, decision: &Decision, at: Timestamp) -> Result<String, (SignerRefusal, String)> {
        let unknown = || (SignerRefusal::GroupUnknown(decision.group.clone()), "groups".to_owned());
        let name: ChainName = decision.chain.parse().map_err(|_| unknown())?;
        let chain = *self.draft.chains.get(&name).ok_or_else(unknown)?;
        let read = |text: &crate::log::entry::IntentText| text.read(&self.draft.signer, &name, &decision.group, chain);
        let intents: Vec<Intent> = decision.intents.iter().map(read).collect::<Option<_>>().ok_or_else(unknown)?;
        for intent in intents.iter().filter(|intent| !decision.again.contains(&intent.job)) {
            if intent.expires > at.plus_micros(self.draft.most_intent_life_us) {
                return Err((SignerRefusal::IntentLivesTooLong, "expiry".to_owned()));
            }
        }
        let parts = intents.iter().map(|intent| self.part(intent, decision)).collect();
        let fee = decision.fee.map_or(RawAmount::ZERO, |fee| fee.0);
        let question = Question {
            chain: &name,
            group: &decision.group,
            parts,
            inputs: &decision.indexes,
            change: &decision.change,
            fee,
            fee_added: decision.fee_added.0,
        };
        let spent = |group: &_, counter: &_| self.spent.spent(&decision.chain, group, counter, at);
        let allowed = self.draft.judge(&question, &spent).map_err(|refused| (refused.refusal, refused.rule))?;
        let ways = allowed.ways;
        for (intent, way) in intents.iter().zip(ways) {
            if let (Way::Free, Some(payment)) = (way, intent.payment()) {
                self.spent.add(&decision.chain, &decision.group, &coin_text(&payment.coin), payment.amount, at);
            }
        }
        self.spent.add(&decision.chain, &decision.group, &Counter::Fee.text(), decision.fee_added.0, at);
        Ok(allowed.rule)
    }

    fn part<'i>(&self, intent: &'i Intent, decision: &Decision) -> Part<'i> {
        let digest = Hash(intent.digest());
        let knows = |approval: &&crate::log::entry::ApprovalText| {
            let known = self.draft.approvers.get(&approval.key);
            approval.digest == digest && known.is_some_and(|known| known.person == approval.person)
        };
        let approved_by: BTreeSet<_> =
            decision.approvals.iter().filter(knows).map(|approval| approval.person.clone()).collect();
        let again = decision.again.contains(&intent.job);
        Part { intent, standing: if again { Standing::Again } else { Standing::New }, approved_by }
    }
}
