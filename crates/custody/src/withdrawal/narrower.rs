//! Whether the server's policy for withdrawals is narrower than what the signer signs. Whatever the server lets out and the signer does not sign waits
//! for people, or for ever: nothing is lost by it, and customers wait. So it is to be found before it happens.
//!
//! It takes values: no database, no network.

use domain::withdrawal::WithdrawalPolicy;
use domain::{Amount, AssetOnChain, ChainName, RawAmount};
use signer::policy::{Caps, CoinRule, Group, Policy, PublicKey, Role};
use store::operator::{OperatorKey, ShownOperator};
use tx::{Coin, Family};

/// A coin of the server, with the policy that holds for it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyCoin<'a> {
    pub chain: &'a ChainName,
    pub family: Family,
    pub form: &'a AssetOnChain,
    pub policy: &'a WithdrawalPolicy,
    /// The most that one payment may cost, in the chain's own coin.
    pub fee_cap: RawAmount,
}

/// Where the two differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyGap {
    /// The hot group, as the signer's policy calls it; empty where it has none.
    pub group: String,
    pub what: PolicyLimit,
    /// An amount, a number of people, or `any`.
    pub server: PolicyWord,
    pub signer: PolicyWord,
    /// The server allows what the signer does not.
    pub wider: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyLimit {
    /// Whether the coin is sent at all.
    Coin,
    /// Where to.
    Destinations,
    /// The largest amount that nobody agrees to.
    WithoutPeople,
    /// How much of that leaves in an hour, and in a day.
    InAnHour,
    InADay,
    /// How many people agree to a payment of this amount.
    People(Amount),
    /// The largest payment at all.
    Largest,
    /// How long one may be signed after it was asked for.
    Life,
    /// The most that one payment may cost.
    Cost,
    /// The same against what the group may spend on all of a day.
    CostOfADay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyWord {
    Amount(RawAmount),
    /// In the smallest unit of the chain's own coin.
    Cost(RawAmount),
    People(u64),
    Seconds(i64),
    Any,
    /// Only those of a list of so many.
    Listed(u64),
    Nothing,
}

/// Every difference between what the server lets out of a coin and what the signer signs of it. A payment may be made by any hot wallet, so the server
/// has to be narrower than each hot group.
pub fn gaps(coin: &PolicyCoin<'_>, signer: &Policy) -> Vec<PolicyGap> {
    if !coin.policy.enabled {
        return Vec::new();
    }
    let gap =
        |group: &str, what, server, signer, wider| PolicyGap { group: group.to_owned(), what, server, signer, wider };
    let hot = signer.groups.iter().filter(|((_, chain), group)| chain == coin.chain && group.role == Role::Hot);
    let hot: Vec<_> = hot.collect();
    let name = match coin.form.contract() {
        None => Some(Coin::Native),
        Some(contract) => coin.family.parse_address(contract).ok().map(Coin::Token),
    };
    if hot.is_empty() {
        return vec![gap("", PolicyLimit::Coin, PolicyWord::Any, PolicyWord::Nothing, true)];
    }
    let mut gaps = Vec::new();
    let (life, most) = (coin.policy.life_us, signer.most_intent_life_us);
    if life > most {
        let (server, signer) = (PolicyWord::Seconds(life / 1_000_000), PolicyWord::Seconds(most / 1_000_000));
        gaps.push(gap("", PolicyLimit::Life, server, signer, true));
    }
    for ((id, _), group) in hot {
        let Some(rule) = name.as_ref().and_then(|name| group.coins.get(name)) else {
            gaps.push(gap(id.as_str(), PolicyLimit::Coin, PolicyWord::Any, PolicyWord::Nothing, true));
            continue;
        };
        if let Some(listed) = &group.destinations {
            let listed = PolicyWord::Listed(u64::try_from(listed.len()).unwrap_or(u64::MAX));
            gaps.push(gap(id.as_str(), PolicyLimit::Destinations, PolicyWord::Any, listed, true));
        }
        let found = [cost(coin, group), without_people(coin, rule), with_people(coin, rule)].concat();
        gaps.extend(
            found.into_iter().map(|(what, server, signer, wider)| gap(id.as_str(), what, server, signer, wider)),
        );
    }
    gaps
}

type Found = (PolicyLimit, PolicyWord, PolicyWord, bool);

/// What a payment may cost. A signer that allows more is no fault; and of a day's costs it is only certain that the first payment must find room.
fn cost(coin: &PolicyCoin<'_>, group: &Group) -> Vec<Found> {
    let caps = [(PolicyLimit::Cost, group.most_fee), (PolicyLimit::CostOfADay, group.most_fee_day)];
    let wider = caps.into_iter().filter(|(_, cap)| coin.fee_cap > *cap);
    wider.map(|(what, cap)| (what, PolicyWord::Cost(coin.fee_cap), PolicyWord::Cost(cap), true)).collect()
}

/// What leaves without a person.
fn without_people(coin: &PolicyCoin<'_>, rule: &CoinRule) -> Vec<Found> {
    let policy = coin.policy;
    let caps = rule.free.unwrap_or_default();
    let largest = policy.auto_approve.min(policy.max);
    if policy.incident || largest < policy.min {
        return Vec::new();
    }
    let mut found = Vec::new();
    let raw = raw(coin, largest);
    if raw != caps.payment {
        let (server, signer) = (PolicyWord::Amount(raw), PolicyWord::Amount(caps.payment));
        found.push((PolicyLimit::WithoutPeople, server, signer, raw > caps.payment));
    }
    let total = policy.daily_total.map(|total| self::raw(coin, total));
    let word = total.map_or(PolicyWord::Any, PolicyWord::Amount);
    let Caps { payment: _, hour, day } = caps;
    // More in an hour only comes later; more in a day does not come without people.
    for (what, cap, is_limit) in [(PolicyLimit::InAnHour, hour, false), (PolicyLimit::InADay, day, true)] {
        let above = total.is_none_or(|total| total > cap);
        if above {
            found.push((what, word, PolicyWord::Amount(cap), is_limit));
        }
    }
    found
}

/// How many people agree to what is larger. Both sides are steps, so it is enough to look at where one of them begins.
fn with_people(coin: &PolicyCoin<'_>, rule: &CoinRule) -> Vec<Found> {
    let policy = coin.policy;
    let free = rule.free.unwrap_or_default().payment;
    let ends = std::iter::once(free).chain(rule.steps.iter().map(|step| step.up_to));
    let unit = Amount::from_units(1);
    let behind = ends.filter_map(|end| end.to_ledger(coin.form).ok()?.amount.checked_add(unit));
    let own =
        [policy.auto_approve, policy.two_above, policy.many_above].into_iter().filter_map(|end| end.checked_add(unit));
    let mut places: Vec<Amount> = behind.chain(own).chain([policy.min, policy.max]).collect();
    places.retain(|amount| *amount >= policy.min && *amount <= policy.max);
    places.sort_unstable();
    places.dedup();
    let mut found: Vec<Found> = Vec::new();
    for amount in places {
        let raw = raw(coin, amount);
        let server = u64::from(policy.people(amount));
        let signer = if raw <= free {
            Some(0)
        } else {
            let step = rule.steps.iter().find(|step| raw <= step.up_to);
            step.map(|step| u64::try_from(step.approvals).unwrap_or(u64::MAX))
        };
        let Some(signer) = signer else {
            let top = rule.steps.last().map_or(free, |step| step.up_to);
            let largest = self::raw(coin, policy.max);
            found.push((PolicyLimit::Largest, PolicyWord::Amount(largest), PolicyWord::Amount(top), true));
            break;
        };
        let (one, other) = (PolicyWord::People(server), PolicyWord::People(signer));
        let same_as_before = found.last().is_some_and(|(_, before, after, _)| (*before, *after) == (one, other));
        if server != signer && !same_as_before {
            found.push((PolicyLimit::People(amount), one, other, server < signer));
        }
    }
    found
}

/// A policy's amounts are positive and fit its chain; one that did not would be more than anything.
fn raw(coin: &PolicyCoin<'_>, amount: Amount) -> RawAmount {
    RawAmount::from_ledger(amount, coin.form).unwrap_or(RawAmount::MAX)
}

/// A key with which somebody may agree by the treasury file, and of which the signer thinks otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGap {
    pub operator: String,
    pub key: String,
    pub what: KeyDifference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDifference {
    /// The signer's policy has no approver with a key of that name.
    Missing,
    /// It is another key there, or a passkey for another place.
    Other,
}

/// What is signed with such a key the server counts, and the signer refuses; and with it the good ones that were sent beside it.
pub fn key_gaps(operators: &[ShownOperator], signer: &Policy) -> Vec<KeyGap> {
    let signing = operators.iter().filter(|operator| operator.row.active && operator.row.role.signs());
    let keys = signing.flat_map(|operator| operator.keys.iter().map(move |(name, key)| (operator, name, key)));
    let gap = |(operator, name, (key, is_active)): (&ShownOperator, &String, &(OperatorKey, bool))| {
        if !is_active {
            return None;
        }
        let known = name.parse().ok().and_then(|name| signer.approvers.get(&name));
        let what = match known {
            None => KeyDifference::Missing,
            Some(approver) if !is_same(key, &approver.key) => KeyDifference::Other,
            Some(_) => return None,
        };
        Some(KeyGap { operator: operator.row.name.to_string(), key: name.clone(), what })
    };
    keys.filter_map(gap).collect()
}

/// Whether the signer takes whatever the server takes of this key.
fn is_same(ours: &OperatorKey, theirs: &PublicKey) -> bool {
    let is = |bytes: &[u8]| ours.public == signer::digest::hex(bytes);
    match (theirs, &ours.place) {
        (PublicKey::Ed25519(public), None) => is(public),
        (PublicKey::Passkey(passkey), Some(place)) => {
            is(&passkey.public)
                && passkey.relying_party == place.relying_party
                && place.origins.is_subset(&passkey.origins)
        }
        (PublicKey::Ed25519(_), Some(_)) | (PublicKey::Passkey(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use domain::Timestamp;
    use domain::operator::OperatorRole;
    use store::operator::{OperatorRow, PasskeyPlace};

    use domain::Precision;
    use domain::withdrawal::{FeeRule, USUAL_LIFE_US, WhenShort};
    use signer::policy::file::parse;

    use super::*;

    const HEAD: &str = r#"
signer = "one"
version = 1
cooling_off_hours = 24
most_intent_life_hours = 48
[administrators]
needed = 1
[administrators.keys]
root = "2152f8d19b791d24453242e15f2eab6cb7cffa7b6a5ed30097960e069881db12"
[[approver]]
key = "ann"
person = "ann"
ed25519 = "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
[[approver]]
key = "ben"
person = "ben"
ed25519 = "4cb5abf6ad79fbf5abbccafcc269d85cd2651ed4b885b5869f241aedf0a5ba29"
[[chain]]
name = "bsc"
kind = "evm"
chain_id = 56
[[group]]
id = "hot-evm"
chain = "bsc"
role = "hot"
most_fee = "1"
most_fee_day = "1"
"#;
    /// With two decimals more on the chain than in the ledger.
    const COIN: &str = r#"
[[group.coin]]
coin = "native"
payment = "100000"
hour = "300000"
day = "1000000"
[[group.coin.step]]
up_to = "1000000"
approvals = 1
of = ["ann", "ben"]
[[group.coin.step]]
up_to = "5000000"
approvals = 2
of = ["ann", "ben"]
"#;

    /// As wide as the signer's and no wider.
    fn policy() -> WithdrawalPolicy {
        let units = Amount::from_units;
        WithdrawalPolicy {
            version: 1,
            enabled: true,
            incident: false,
            min: units(10),
            max: units(50_000),
            fee: FeeRule { fixed: units(0), share_bps: 0, least: units(0) },
            auto_approve: units(1_000),
            two_above: units(10_000),
            many_above: units(50_000),
            many: 3,
            daily_user: None,
            daily_total: Some(units(3_000)),
            velocity: None,
            cooling_off_us: 0,
            book_only: false,
            quote_life_us: 0,
            auto_approve_daily: None,
            when_short: WhenShort::Fail,
            life_us: USUAL_LIFE_US,
        }
    }

    fn found(signer: &str, change: impl FnOnce(&mut WithdrawalPolicy)) -> Vec<(PolicyLimit, bool)> {
        found_at(signer, 1, change)
    }

    /// Where a payment may cost so much.
    fn found_at(signer: &str, fee_cap: u64, change: impl FnOnce(&mut WithdrawalPolicy)) -> Vec<(PolicyLimit, bool)> {
        let mut policy = policy();
        change(&mut policy);
        let fee_cap: RawAmount = fee_cap.to_string().parse().expect("an amount");
        let form = AssetOnChain::new(Precision::new(2).expect("two"), 4, None).expect("a form");
        let chain: ChainName = "bsc".parse().expect("a name");
        let coin = PolicyCoin { chain: &chain, family: Family::Evm, form: &form, policy: &policy, fee_cap };
        let signer = parse(signer.as_bytes()).expect("a policy");
        gaps(&coin, &signer).into_iter().map(|gap| (gap.what, gap.wider)).collect()
    }

    fn signer() -> String {
        format!("{HEAD}{COIN}")
    }

    #[test]
    fn one_that_is_as_wide_has_no_gaps() {
        assert_eq!(found(&signer(), |_| ()), []);
    }

    #[test]
    fn each_limit_that_is_wider_is_said_and_a_narrower_one_is_no_fault() {
        use PolicyLimit::{InADay, InAnHour, Largest, People, WithoutPeople};
        let units = Amount::from_units;
        type Change = fn(&mut WithdrawalPolicy);
        let table: [(Change, Vec<(PolicyLimit, bool)>); 9] = [
            (|p| p.auto_approve = Amount::from_units(1_001), vec![(WithoutPeople, true), (People(units(1_001)), true)]),
            (|p| p.auto_approve = Amount::from_units(999), vec![(WithoutPeople, false), (People(units(1_000)), false)]),
            (|p| p.daily_total = Some(Amount::from_units(3_001)), vec![(InAnHour, false)]),
            (|p| p.daily_total = Some(Amount::from_units(10_001)), vec![(InAnHour, false), (InADay, true)]),
            (|p| p.daily_total = None, vec![(InAnHour, false), (InADay, true)]),
            (|p| p.two_above = Amount::from_units(10_001), vec![(People(units(10_001)), true)]),
            (|p| p.two_above = Amount::from_units(9_999), vec![(People(units(10_000)), false)]),
            (
                |p| (p.max, p.many_above) = (Amount::from_units(50_001), Amount::from_units(50_001)),
                vec![(Largest, true)],
            ),
            (|p| p.max = Amount::from_units(20_000), vec![]),
        ];
        for (at, (change, wanted)) in table.into_iter().enumerate() {
            assert_eq!(found(&signer(), change), wanted, "row {at}");
        }
    }

    #[test]
    fn a_payment_that_may_cost_more_than_the_signer_pays_is_wider() {
        let dear = signer().replace("most_fee = \"1\"", "most_fee = \"50\"");
        let dear = dear.replace("most_fee_day = \"1\"", "most_fee_day = \"80\"");
        assert_eq!(found_at(&dear, 50, |_| ()), []);
        assert_eq!(found_at(&dear, 51, |_| ()), [(PolicyLimit::Cost, true)]);
        let both = [(PolicyLimit::Cost, true), (PolicyLimit::CostOfADay, true)];
        assert_eq!(found_at(&dear, 81, |_| ()), both);
        assert_eq!(found_at(&dear, 81, |policy| policy.enabled = false), []);
    }

    /// The keys of the policy above are ann and ben.
    #[test]
    fn a_key_that_the_signer_has_not_or_has_otherwise_is_said() {
        let good = [
            ("ann", "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"),
            ("ben", "4cb5abf6ad79fbf5abbccafcc269d85cd2651ed4b885b5869f241aedf0a5ba29"),
        ];
        let key = |public: &str| OperatorKey { public: public.to_owned(), place: None };
        let person = |name: &str, role, active, key_name: &str, key: OperatorKey, is_on: bool| ShownOperator {
            row: OperatorRow { id: 1, name: name.parse().expect("a name"), role, user: None, active },
            keys: BTreeMap::from([(key_name.to_owned(), (key, is_on))]),
            created: Timestamp::from_micros(0),
            updated: Timestamp::from_micros(0),
        };
        let approver =
            |name: &str, key_name: &str, key| person(name, OperatorRole::Approver, true, key_name, key, true);
        let said = |operators: &[ShownOperator]| {
            let gaps = key_gaps(operators, &parse(signer().as_bytes()).expect("a policy"));
            gaps.into_iter().map(|gap| format!("{} {} {:?}", gap.operator, gap.key, gap.what)).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(said(&good.map(|(name, public)| approver(name, name, key(public)))), none);
        assert_eq!(said(&[approver("ann", "ann", key(good[1].1))]), ["ann ann Other"]);
        assert_eq!(said(&[approver("cat", "cat", key(good[0].1))]), ["cat cat Missing"]);
        let place = PasskeyPlace { relying_party: "bursar".to_owned(), origins: Default::default() };
        let passkey = OperatorKey { place: Some(place), ..key(good[0].1) };
        assert_eq!(said(&[approver("ann", "ann", passkey)]), ["ann ann Other"]);
        // An administrator signs too; who does not sign, or has left, or a key that is off, spoils nothing.
        let stranger = || key(good[1].1);
        assert_eq!(
            said(&[person("dan", OperatorRole::Administrator, true, "dan", stranger(), true)]),
            ["dan dan Missing"]
        );
        assert_eq!(said(&[person("eve", OperatorRole::Operator, true, "eve", stranger(), true)]), none);
        assert_eq!(said(&[person("dan", OperatorRole::Approver, false, "dan", stranger(), true)]), none);
        assert_eq!(said(&[person("dan", OperatorRole::Approver, true, "dan", stranger(), false)]), none);
    }

    #[test]
    fn what_the_signer_does_not_send_at_all_is_wider() {
        let other = signer().replace("coin = \"native\"", "coin = \"0x55d398326f99059fF775485246999027B3197955\"");
        assert_eq!(found(&other, |_| ()), [(PolicyLimit::Coin, true)]);
        let elsewhere =
            signer().replace("name = \"bsc\"", "name = \"eth\"").replace("chain = \"bsc\"", "chain = \"eth\"");
        assert_eq!(found(&elsewhere, |_| ()), [(PolicyLimit::Coin, true)]);
        let listed = signer().replace(
            "most_fee_day = \"1\"",
            "most_fee_day = \"1\"\ndestinations = [\"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed\"]",
        );
        assert_eq!(found(&listed, |_| ()), [(PolicyLimit::Destinations, true)]);
        assert_eq!(found(&elsewhere, |policy| policy.enabled = false), [], "nothing leaves that is switched off");
        // Without a person nothing leaves in an incident.
        let incident = found(&signer(), |policy| (policy.incident, policy.daily_total) = (true, None));
        assert_eq!(incident, [(PolicyLimit::People(Amount::from_units(10)), false)]);
    }
}
