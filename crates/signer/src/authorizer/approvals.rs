//! Which of the approvals that a request brings are good.

use std::collections::{BTreeMap, BTreeSet};

use super::{Authorizer, Findings};
use crate::approval::{GivenApproval, move_digest};
use crate::intent::{Intent, SignRequest};
use crate::log::entry::ApprovalText;
use crate::log::folder::Folder;
use crate::names::{JobId, Person};
use crate::policy::Policy;
use crate::refusal::SignerRefusal;
use crate::text::Hash;

#[derive(Default)]
pub(super) struct GoodApprovals {
    people: BTreeMap<JobId, BTreeSet<Person>>,
    pub(super) moved: BTreeSet<JobId>,
}

impl GoodApprovals {
    pub(super) fn people(&self, intent: &Intent) -> BTreeSet<Person> {
        self.people.get(&intent.job).cloned().unwrap_or_default()
    }
}

impl<F: Folder> Authorizer<F> {
    /// Every approval that a request brings must be good, and for something that is asked for.
    pub(super) fn check_approvals(
        &self,
        request: &SignRequest,
        policy: &Policy,
        findings: &mut Findings,
    ) -> Result<GoodApprovals, SignerRefusal> {
        if request.approvals.is_empty() {
            return Ok(GoodApprovals::default());
        }
        let intents: BTreeMap<Hash, &Intent> =
            request.intents.iter().map(|intent| (Hash(intent.digest()), intent)).collect();
        let moves: BTreeMap<Hash, &Intent> =
            request.intents.iter().filter_map(|intent| Some((self.move_digest(intent)?, intent))).collect();
        let mut good = GoodApprovals::default();
        for given in &request.approvals {
            let bad = |why| SignerRefusal::BadApproval(given.key.clone(), why);
            let digest = Hash(given.digest);
            let person = self.check_approval(given, policy, findings).map_err(bad)?;
            if let Some(intent) = intents.get(&digest) {
                if !self.state.revoked.contains(&(digest, person.clone())) {
                    good.people.entry(intent.job).or_default().insert(person);
                }
            } else if let Some(intent) = moves.get(&digest) {
                let revoked = self.state.revoked.contains(&(digest, person.clone()));
                if person != intent.requester && policy.operators.contains(&person) && !revoked {
                    good.moved.insert(intent.job);
                }
            } else {
                return Err(bad("it is for nothing that is asked for"));
            }
        }
        Ok(good)
    }

    fn check_approval(
        &self,
        given: &GivenApproval,
        policy: &Policy,
        findings: &mut Findings,
    ) -> Result<Person, &'static str> {
        let approver = policy.approvers.get(&given.key).ok_or("the policy has no such key")?;
        let counter = given.check(approver)?;
        let digest = Hash(given.digest);
        if let Some(counter) = counter {
            let seen = findings.approvals.iter().any(|other| {
                other.key == given.key && other.counter == counter && counter > 0 && other.digest != digest
            });
            if seen || !self.state.counter_is_good(&given.key, counter, &digest) {
                return Err("its counter says that the passkey was copied");
            }
        }
        findings.approvals.push(ApprovalText {
            digest,
            key: given.key.clone(),
            person: approver.person.clone(),
            counter: counter.unwrap_or_default(),
        });
        Ok(approver.person.clone())
    }

    /// What an operator would have to sign for the job to leave where it is.
    fn move_digest(&self, intent: &Intent) -> Option<Hash> {
        let held = self.state.slots.held_by(intent.job)?;
        Some(Hash(move_digest(intent, &held.text())))
    }
}
