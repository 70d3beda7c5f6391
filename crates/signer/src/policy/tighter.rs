//! Whether one policy allows nothing that another does not. Whatever is not provably tighter is a loosening.
//!
//! | field | tighter is |
//! |---|---|
//! | administrators | as many needed or more, of the very same keys: whoever is removed could no longer stop what follows |
//! | cooling-off, TRON margin | longer |
//! | life of intents and of TRON payloads | shorter |
//! | builds under one approval | fewer |
//! | approvers, operators | fewer; the key, person, relying party of each the same; origins fewer |
//! | chains, groups, coins | fewer; the role of each the same |
//! | caps, fee caps, highest index | lower |
//! | steps | at every amount so many people that as many as before are of the list from before; nothing above what was the highest |
//! | destinations | fewer; a list where there was none |

use super::{CoinRule, Group, Policy, PublicKey, Step};
use domain::RawAmount;

/// What of `new` is looser than `old`, one line for each; none if it is tighter or the same.
pub fn loosened(old: &Policy, new: &Policy) -> Vec<String> {
    let mut found = Vec::new();
    let mut need = |tighter: bool, what: String| {
        if !tighter {
            found.push(what);
        }
    };
    let (before, after) = (&old.administrators, &new.administrators);
    need(after.needed >= before.needed && after.keys == before.keys, "administrators".to_owned());
    need(new.cooling_off_us >= old.cooling_off_us, "cooling_off_hours".to_owned());
    need(new.most_intent_life_us <= old.most_intent_life_us, "most_intent_life_hours".to_owned());
    need(new.most_tron_life_us <= old.most_tron_life_us, "most_tron_life_hours".to_owned());
    need(new.tron_margin_us >= old.tron_margin_us, "tron_margin_minutes".to_owned());
    need(new.most_tron_builds <= old.most_tron_builds, "most_tron_builds".to_owned());
    need(new.operators.is_subset(&old.operators), "operators".to_owned());
    for (name, approver) in &new.approvers {
        let same = old
            .approvers
            .get(name)
            .is_some_and(|before| before.person == approver.person && same_or_narrower(&before.key, &approver.key));
        need(same, format!("approver {name}"));
    }
    for (name, protocol) in &new.chains {
        need(old.chains.get(name) == Some(protocol), format!("chain {name}"));
    }
    for ((id, chain), group) in &new.groups {
        match old.group(id, chain) {
            None => need(false, format!("group {id} on {chain}")),
            Some(before) => {
                for what in group_loosened(before, group) {
                    need(false, format!("group {id} on {chain}: {what}"));
                }
            }
        }
    }
    found
}

fn same_or_narrower(old: &PublicKey, new: &PublicKey) -> bool {
    match (old, new) {
        (PublicKey::Ed25519(old), PublicKey::Ed25519(new)) => old == new,
        (PublicKey::Passkey(old), PublicKey::Passkey(new)) => {
            old.public == new.public && old.relying_party == new.relying_party && new.origins.is_subset(&old.origins)
        }
        _ => false,
    }
}

fn group_loosened(old: &Group, new: &Group) -> Vec<String> {
    let mut found = Vec::new();
    if old.role != new.role {
        found.push("role".to_owned());
    }
    if new.most_fee > old.most_fee || new.most_fee_day > old.most_fee_day {
        found.push("fee caps".to_owned());
    }
    if new.highest_index > old.highest_index {
        found.push("highest_index".to_owned());
    }
    let narrower = match (&old.destinations, &new.destinations) {
        (None, None) => true,
        // A hot wallet goes anywhere without a list, a treasury nowhere.
        (None, Some(list)) => old.role == super::Role::Hot || list.is_empty(),
        (Some(_), None) => old.role == super::Role::Treasury,
        (Some(old), Some(new)) => new.is_subset(old),
    };
    if !narrower {
        found.push("destinations".to_owned());
    }
    for (coin, rule) in &new.coins {
        let tighter = old.coins.get(coin).is_some_and(|before| coin_tighter(before, rule));
        if !tighter {
            found.push(format!("coin {}", crate::intent::coin_text(coin)));
        }
    }
    found
}

fn coin_tighter(old: &CoinRule, new: &CoinRule) -> bool {
    let caps = match (old.free, new.free) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(old), Some(new)) => new.payment <= old.payment && new.hour <= old.hour && new.day <= old.day,
    };
    // What is needed only changes at the amounts that a step ends with, so these are all that have to be looked at.
    let amounts = old.steps.iter().chain(&new.steps).map(|step| step.up_to);
    caps && amounts.into_iter().all(|amount| step_tighter(at(&old.steps, amount), at(&new.steps, amount)))
}

fn at(steps: &[Step], amount: RawAmount) -> Option<&Step> {
    steps.iter().find(|step| amount <= step.up_to)
}

fn step_tighter(old: Option<&Step>, new: Option<&Step>) -> bool {
    match (old, new) {
        (_, None) => true,
        (None, Some(_)) => false,
        // Of any so many people of the new list at most the added ones are not of the old list.
        (Some(old), Some(new)) => {
            let added = new.of.difference(&old.of).count();
            new.approvals >= old.approvals.saturating_add(added)
        }
    }
}
