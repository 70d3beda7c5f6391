//! Whether what was read is allowed, and by which rule. The table of roles is in CUSTODY.md §5 of the design.

use std::collections::{BTreeMap, BTreeSet};

use domain::{ChainName, RawAmount};
use tx::{Address, Coin};

use super::{FIRST_CHANGE, Group, Policy, Role};
use crate::intent::{Intent, IntentKind, Owner, coin_text};
use crate::names::{GroupId, Person};
use crate::refusal::SignerRefusal;

/// What a group has sent of something in the hour and the day before now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    pub hour: RawAmount,
    pub day: RawAmount,
}

/// What is counted for a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    Coin(Coin),
    Fee,
    /// Inputs that were not spent before.
    Inputs,
}

impl Counter {
    pub fn text(&self) -> String {
        match self {
            Self::Coin(coin) => coin_text(coin),
            Self::Fee => "fee".to_owned(),
            Self::Inputs => "inputs".to_owned(),
        }
    }
}

/// How a payment stands that was signed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A slot of its own: caps count, or approvals are needed.
    New,
    /// The same payment in the same slot: it is counted, or approved, already.
    Again,
}

pub struct Part<'a> {
    pub intent: &'a Intent,
    pub standing: Standing,
    /// The people whose good approvals of this intent were given.
    pub approved_by: BTreeSet<Person>,
}

pub struct Question<'a> {
    pub chain: &'a ChainName,
    pub group: &'a GroupId,
    pub parts: Vec<Part<'a>>,
    /// The numbers of the wallets that pay.
    pub inputs: &'a [u64],
    /// Bitcoin: the numbers that change goes to.
    pub change: &'a [u64],
    /// The most that the transaction can cost.
    pub fee: RawAmount,
    /// Of that, what was not counted for an earlier transaction in the same slot.
    pub fee_added: RawAmount,
}

/// How a payment was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Within the caps. It counts.
    Free,
    /// By so many people. It does not count.
    Approved,
    /// It stays with us, or pays nothing, or was allowed before.
    Uncounted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// For each part, in its order.
    pub ways: Vec<Way>,
    pub rule: String,
}

/// A refusal, and the rule that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub refusal: SignerRefusal,
    pub rule: String,
}

impl Policy {
    /// Decides. `spent` tells what the group has sent; parts of one question add up.
    pub fn judge(
        &self,
        question: &Question<'_>,
        spent: &dyn Fn(&GroupId, &Counter) -> Spent,
    ) -> Result<Allowed, Refused> {
        let id = question.group;
        let refused = |rule: String| move |refusal| Refused { refusal, rule };
        let group = self
            .group(id, question.chain)
            .ok_or_else(|| refused("groups".to_owned())(SignerRefusal::GroupUnknown(id.clone())))?;
        if question.fee > group.most_fee {
            return Err(refused(format!("{id}/most_fee"))(SignerRefusal::FeeAboveCap));
        }
        let fees = spent(id, &Counter::Fee).day.checked_add(question.fee_added);
        if question.fee_added > RawAmount::ZERO && fees.is_none_or(|fees| fees > group.most_fee_day) {
            return Err(refused(format!("{id}/most_fee_day"))(SignerRefusal::FeesOfTheDay));
        }
        check_change(group, question).map_err(refused(format!("{id}/change")))?;
        let mut sent: BTreeMap<&Coin, RawAmount> = BTreeMap::new();
        let (mut ways, mut rules) = (Vec::with_capacity(question.parts.len()), BTreeSet::new());
        for part in &question.parts {
            let (way, rule) = match &part.intent.kind {
                IntentKind::Cancel { .. } => (Way::Uncounted, format!("{id}/cancel")),
                IntentKind::Pay { payment, owner } => {
                    let coin = coin_text(&payment.coin);
                    self.check_destination(question.chain, group, &payment.coin, &payment.to, owner.as_ref())
                        .map_err(refused(format!("{id}/{coin}/to")))?;
                    let so_far = sent.entry(&payment.coin).or_default();
                    let mut total = spent(id, &Counter::Coin(payment.coin.clone()));
                    total.hour = total.hour.checked_add(*so_far).unwrap_or(RawAmount::MAX);
                    total.day = total.day.checked_add(*so_far).unwrap_or(RawAmount::MAX);
                    let home =
                        group.role == Role::Hot && self.role_of(question.chain, owner.as_ref()) == Some(Role::Treasury);
                    let (way, rule) = if home {
                        // What goes to our own treasury is lost to nobody, and customers' payouts must not wait for it.
                        (Way::Uncounted, "home".to_owned())
                    } else {
                        check_amount(group, part, &payment.coin, payment.amount, total)
                            .map_err(|(refusal, rule)| refused(format!("{id}/{coin}/{rule}"))(refusal))?
                    };
                    if way == Way::Free {
                        *so_far = so_far.checked_add(payment.amount).unwrap_or(RawAmount::MAX);
                    }
                    (way, format!("{id}/{coin}/{rule}"))
                }
            };
            ways.push(way);
            rules.insert(rule);
        }
        Ok(Allowed { ways, rule: rules.into_iter().collect::<Vec<_>>().join(", ") })
    }

    /// What the owner of an address is for. The address was derived by the signer when the payload was read.
    fn role_of(&self, chain: &ChainName, owner: Option<&Owner>) -> Option<Role> {
        let owner = owner?;
        let group = self.group(&owner.group, chain)?;
        group.may_hold(owner.index).then_some(group.role)
    }

    fn check_destination(
        &self,
        chain: &ChainName,
        group: &Group,
        coin: &Coin,
        to: &Address,
        owner: Option<&Owner>,
    ) -> Result<(), SignerRefusal> {
        if group.role == Role::Gas && *coin != Coin::Native {
            return Err(SignerRefusal::RoleForbids("a gas wallet sends the chain's own coin only"));
        }
        if !group.coins.contains_key(coin) {
            return Err(SignerRefusal::CoinNotListed);
        }
        let role = self.role_of(chain, owner);
        let listed = group.destinations.as_ref().is_some_and(|list| list.contains(to));
        let allowed = match group.role {
            Role::Gas => role == Some(Role::Deposit),
            Role::Deposit => matches!(role, Some(Role::Treasury | Role::Hot)),
            Role::Hot => group.destinations.is_none() || listed || role.is_some(),
            Role::Treasury => listed || role == Some(Role::Hot),
        };
        if allowed { Ok(()) } else { Err(SignerRefusal::DestinationForbidden) }
    }
}

/// Change stays where the coins were, or beside the first address. It is in no cap and no approval, so it goes nowhere else;
/// and from a user's wallet there is none, because the next user's is in the same group.
fn check_change(group: &Group, question: &Question<'_>) -> Result<(), SignerRefusal> {
    let inputs: BTreeSet<&u64> = question.inputs.iter().collect();
    let stays = |index: &u64| *index == FIRST_CHANGE || inputs.contains(index) && group.may_hold(*index);
    let good = question.change.iter().all(|index| group.role != Role::Deposit && stays(index));
    if good { Ok(()) } else { Err(SignerRefusal::ChangeForbidden) }
}

type RuleRefusal = (SignerRefusal, String);

fn check_amount(
    group: &Group,
    part: &Part<'_>,
    coin: &Coin,
    amount: RawAmount,
    spent: Spent,
) -> Result<(Way, String), RuleRefusal> {
    let Some(rule) = group.coins.get(coin) else {
        return Err((SignerRefusal::CoinNotListed, "coin".to_owned()));
    };
    if part.standing == Standing::Again {
        return Ok((Way::Uncounted, "again".to_owned()));
    }
    let Some(caps) = rule.free else { return Ok((Way::Uncounted, "ours".to_owned())) };
    let within = |spent: RawAmount, cap: RawAmount| spent.checked_add(amount).is_some_and(|sum| sum <= cap);
    let reached = if amount > caps.payment {
        Some("payment")
    } else if !within(spent.hour, caps.hour) {
        Some("hour")
    } else if !within(spent.day, caps.day) {
        Some("day")
    } else {
        None
    };
    let Some(reached) = reached else { return Ok((Way::Free, "free".to_owned())) };
    if rule.steps.is_empty() {
        return Err((SignerRefusal::CapReached(reached), reached.to_owned()));
    }
    let step = rule.steps.iter().enumerate().find(|(_, step)| amount <= step.up_to);
    let Some((number, step)) = step else { return Err((SignerRefusal::AboveAllSteps, "steps".to_owned())) };
    // Whoever asked for it may sign what he likes.
    let given = part.approved_by.intersection(&step.of).filter(|person| **person != part.intent.requester).count();
    let rule = format!("step {} ({} of {})", number + 1, step.approvals, step.of.len());
    if given < step.approvals {
        return Err((SignerRefusal::ApprovalsMissing { given, needed: step.approvals }, rule));
    }
    Ok((Way::Approved, rule))
}
