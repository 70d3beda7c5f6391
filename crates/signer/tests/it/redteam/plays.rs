//! What the team tries, one play after the other.

use bitcoin::Psbt;
use domain::Timestamp;
use signer::names::JobId;
use signer::{IntentKind, Owner, SignRequest};
use tx::Coin;

use super::Team;
use crate::world::*;

/// Small payments, as many as it gets, on both sides of every hour and day.
fn many_small_ones(team: &mut Team) {
    for _ in 0..1 + team.below(6) {
        let amount = [1, 100_000, 999_999, 1_000_000, 1_000_001][team.random.index(5)];
        let of_tokens = team.below(2) == 0;
        let payment = team.evm(amount);
        team.ask(if of_tokens { payment.coin(Coin::Token(token())).request("x") } else { payment.request("x") });
        let (number, now) = (team.number(), team.now);
        team.ask(tron(number, amount, Coin::Native, now, HOUR));
    }
}

/// What was signed before, in another slot, for another amount, to somebody else, in another round, or again.
fn the_same_job_again(team: &mut Team) {
    if team.got.is_empty() {
        return;
    }
    let place = team.random.index(team.got.len());
    let before = team.got[place].request.clone();
    team.ask_as_it_is(before.clone());
    team.ask(before.clone());
    let JobId::Withdrawal(_) = before.intents[0].job else { return };
    let Some(payment) = before.intents[0].payment().cloned() else { return };
    let chain = before.chain.to_string();
    for change in 0..4 {
        let mut again = match chain.as_str() {
            "bsc" => {
                let nonce = u64::try_from(team.number()).unwrap();
                let group = if before.group.as_str() == "gas-bsc" { "gas-bsc" } else { "hot-bsc" };
                let mut other = evm(0, nonce, 1).from(group, before.index).at(team.now);
                other.payment = payment.clone();
                if let IntentKind::Pay { owner, .. } = &before.intents[0].kind {
                    other.owner.clone_from(owner);
                }
                other.request("x")
            }
            "tron" => {
                let mut other = tron(1, 1, payment.coin.clone(), team.now, HOUR);
                other = rebuilt_tron(&other, &payment, team.now);
                // The team knows what was signed, and may name it.
                other.replaces = (team.below(4) > 0).then(|| signer::digest::sha256(&before.payload));
                other
            }
            _ => {
                let held = 2_000_000;
                let input = team.input(held);
                let satoshi = u64::try_from(payment.amount.to_u256()).unwrap();
                let mut other = team.bitcoin(&[input], satoshi, 2_000, Some(CHANGE));
                // The job's own recipient follows from its number, so this is another payment of the same job.
                other.intents.truncate(1);
                other
            }
        };
        again.intents[0].job = before.intents[0].job;
        again.intents[0].round = before.intents[0].round + u32::from(change % 2 == 1);
        if change >= 2 {
            again.approvals.clone_from(&before.approvals);
            again.intents[0].expires = before.intents[0].expires;
            again.intents[0].most_fee = before.intents[0].most_fee;
            again.intents[0].requester = before.intents[0].requester.clone();
            again.intents[0].builds = before.intents[0].builds;
        }
        team.ask(again);
    }
}

/// The same TRON payment with other times.
fn rebuilt_tron(like: &SignRequest, payment: &tx::Payment, now: i64) -> SignRequest {
    let amount = u128::try_from(payment.amount.to_u256()).unwrap();
    let mut other = tron(1, amount, payment.coin.clone(), now, HOUR);
    other.intents[0].signer = like.intents[0].signer.clone();
    other
}

/// The signer's own cancel lets a job move; what then is signed counts again.
fn cancel_and_move(team: &mut Team) {
    let amount = u128::from(100_000 + team.below(900_000));
    let payment = team.evm(amount);
    if !team.ask(payment.request("x")) {
        return;
    }
    let number = team.number();
    let cancel = evm(number, payment.nonce, 1).at(team.now).gas_price(20).cancelling(vec![payment.job]);
    if team.below(3) > 0 {
        team.ask(cancel.request("x"));
    }
    let mut moved = payment.clone().round(1).at(team.now);
    moved.nonce = u64::try_from(team.number()).unwrap();
    team.ask(moved.request("x"));
    // And back, and on, without another cancel.
    let mut back = payment.clone().round(2).at(team.now);
    team.ask(back.request("x"));
    back.nonce = u64::try_from(team.number()).unwrap();
    team.ask(back.request("x"));
}

/// What was signed, with more in it: in the same slot, and under the same id.
fn more_in_the_slot(team: &mut Team) {
    let first = team.evm(1_000);
    let mut asked = first.request("x");
    team.ask(asked.clone());
    let mut more = first.clone();
    more.payment.amount = raw(90_000_000);
    team.ask(more.request("x"));
    more = first.to(stranger(9).evm());
    team.ask(more.request("x"));
    // The id that it was signed under.
    asked.id = format!("r-{}", team.asked - 2).parse().unwrap();
    let larger = team.evm(90_000_000).request("x");
    (asked.payload, asked.intents) = (larger.payload, larger.intents);
    team.ask_as_it_is(asked);
}

/// All that fees may cost.
fn burning(team: &mut Team) {
    for _ in 0..if team.below(4) == 0 { 130 } else { 3 } {
        let dear = team.evm(1).gas_price(149);
        if !team.ask(dear.request("x")) {
            return;
        }
    }
}

/// A nonce that is taken, for another job; with a lower and a higher price.
fn slots_of_others(team: &mut Team) {
    let amount = u128::from(1 + team.below(1_000_000));
    let first = team.evm(amount);
    team.ask(first.request("x"));
    let mut second = team.evm(amount);
    second.nonce = first.nonce;
    team.ask(second.gas_price(30).request("x"));
}

/// People's signatures for something else: another amount, recipient, job, round, network; the requester's own; one person's twice.
fn borrowed_approvals(team: &mut Team) {
    let mut real = team.evm(4_000_000).request("x");
    let who = if team.below(2) == 0 { "bob" } else { "carol" };
    team.approved_by_people(&mut real, &[who]);
    team.ask(real.clone());
    let larger = [4_000_001, 5_000_000, 5_000_001, 90_000_000][team.random.index(4)];
    let mut forged = team.evm(larger).request("x");
    forged.approvals.clone_from(&real.approvals);
    team.ask(forged.clone());
    // With the digest that would be needed written over it.
    for approval in &mut forged.approvals {
        approval.digest = forged.intents[0].digest();
    }
    team.ask(forged.clone());
    // One that people gave for this, and is one too few: the requester's own, and one person's second key.
    let mut large = team.evm(60_000_000).request("x");
    let digest = large.intents[0].digest();
    large.approvals = ["carol", "carol-2"].map(|name| approve(name, digest)).to_vec();
    team.ask(large.clone());
    large.approvals = ["erin", "dave"].map(|name| approve(name, digest)).to_vec();
    team.ask(large.clone());
    // All that it ever saw.
    let all = team.approvals.clone();
    let from = all.len().saturating_sub(40);
    large.approvals = all[from..].to_vec();
    team.ask(large);
    // What was approved once, in a second slot.
    let mut second = real.clone();
    let mut other = evm(0, u64::try_from(team.number()).unwrap(), 4_000_000).at(team.now);
    other.job = real.intents[0].job;
    second.payload = other.payload();
    team.ask(second.clone());
    second.intents[0].round = 1;
    team.ask(second);
}

/// TRON has no slots: an approval is for so many transactions, and none may overlap with the one before.
fn tron_rebuilds(team: &mut Team) {
    let (number, now) = (team.number(), team.now);
    let mut first = tron(number, 3_500_000, Coin::Native, now, HOUR);
    first.intents[0].builds = 1 + u32::try_from(team.below(2)).unwrap();
    team.approved_by_people(&mut first, &["bob"]);
    team.ask(first.clone());
    for later in [MINUTE, 59 * MINUTE, HOUR + 3 * HOUR, 8 * HOUR, 12 * HOUR] {
        let mut again = tron(number, 3_500_000, Coin::Native, now + later, HOUR);
        again.intents.clone_from(&first.intents);
        again.approvals.clone_from(&first.approvals);
        let before = team.now;
        // Time passes for everybody; it does not come back.
        team.now = before.max(now + later);
        team.ask(again);
    }
    // One that is good for longer than any network takes it today.
    let (number, now) = (team.number(), team.now);
    let late = tron(number, 900_000, Coin::Native, now + 5 * DAY, 20 * HOUR);
    let late = team.fresh(late);
    team.ask(late);
}

/// Everything out of wallets that are not for paying strangers.
fn other_roles(team: &mut Team) {
    let amount = u128::from(1 + team.below(100_000));
    for role in ["deposit-bsc", "gas-bsc", "treasury-bsc"] {
        let payment = team.evm(amount).from(role, 1);
        team.ask(payment.request("x"));
        // With a row that says whose address it is.
        for owner in ["deposit-bsc", "hot-bsc", "treasury-bsc", "gas-bsc"] {
            let mut lie = team.evm(amount).from(role, 1);
            lie.owner = Some(Owner { group: group(owner), index: 3 });
            team.ask(lie.request("x"));
            // Ours, at a number that only the team knows.
            let far = team.evm(amount).from(role, 1).owned(owner, 1 << 40);
            if owner != "deposit-bsc" {
                team.ask(far.request("x"));
            }
        }
    }
    let gas = u128::from(1 + team.below(110_000));
    let topped = team.evm(gas).from("gas-bsc", 0).owned("deposit-bsc", 77);
    team.ask(topped.request("x"));
    let mut tokens = team.evm(gas).from("gas-bsc", 0).owned("deposit-bsc", 77);
    tokens.payment.coin = Coin::Token(token());
    team.ask(tokens.request("x"));
    // A user's coins to another user, who is of the team.
    let between = team.evm(amount).from("deposit-bsc", 5).owned("deposit-bsc", 77);
    team.ask(between.request("x"));
}

/// A payload that does more than its intent says.
fn lies(team: &mut Team) {
    let small = u128::from(1 + team.below(1_000));
    let honest = team.evm(small);
    let mut lie = honest.request("x");
    let mut other = honest.clone();
    other.payment.amount = raw(900_000_000);
    lie.payload = other.payload();
    team.ask(lie);
    let mut lie = team.evm(small).request("x");
    lie.index = 4;
    lie.chain = "btc".parse().unwrap();
    team.ask(lie);
    let mut future = team.evm(small).request("x");
    future.intents[0].job = job(i64::MAX / 1_000_000_000_000_000);
    future.intents[0].expires = Timestamp::from_micros(NOW + team.now + 400 * DAY);
    team.ask(future);
    let fee = team.evm(small).gas_price(151);
    team.ask(fee.request("x"));
}

/// Amounts that are not true: each input's signature fits the amount that was said for it, so two versions make one whole.
fn bitcoin_fees(team: &mut Team) {
    let (one, other) = (team.input(25_000_000), team.input(25_000_000));
    // The first version says the truth of the first input, the second of the second. Everything else is the same, and both look cheap.
    let mut understated = other;
    understated.0.amount_sat = 10_000;
    let first = team.bitcoin(&[one, understated], 60_000, 2_000, Some(CHANGE));
    team.ask(first.clone());
    let mut second = first;
    let mut psbt = Psbt::deserialize(&second.payload).unwrap();
    for (input, satoshi) in psbt.inputs.iter_mut().zip([10_000, 25_000_000]) {
        input.witness_utxo.as_mut().unwrap().value = bitcoin::Amount::from_sat(satoshi);
    }
    second.payload = psbt.serialize();
    team.ask(second);
    // All of it as a fee; change to numbers that only the team knows.
    let coin = team.input(5_000_000);
    for fee in [90_000, 110_000] {
        let burnt = team.bitcoin(std::slice::from_ref(&coin), 60_000, fee, Some(CHANGE));
        team.ask(burnt);
    }
    for number in [1 << 40, CHANGE + 1, 12, 3] {
        // An input of its own each time: one that is taken would be refused for that.
        let coin = team.input(5_000_000);
        if coin.1 != number {
            let hidden = team.bitcoin(std::slice::from_ref(&coin), 60_000, 2_000, Some(number));
            team.ask(hidden);
        }
    }
    // Versions of one payout that could all be mined: each shares an input with one before it.
    let chain: Vec<_> = (0..4).map(|_| team.input(900_000)).collect();
    let number = team.number();
    for pair in [[0, 1], [1, 2], [0, 3], [2, 3]] {
        let pair = pair.map(|place: usize| chain[place].clone());
        let version = team.fresh(bitcoin_of("hot-btc", Some(CHANGE), 3_000, "b", &pair, &[(number, 700_000)]));
        team.ask(version);
    }
}

/// A policy that allows everything: unsigned, with old signatures, and the first one again.
fn policies(team: &mut Team) {
    let old = policy(1);
    let loose = policy(2)
        .replace("hour = \"3000000\"", "hour = \"3000000000\"")
        .replace("day = \"10000000\"", "day = \"10000000000\"");
    let moment = after(team.now);
    for (text, by) in
        [(&loose, signed(&old, &["ada", "ben"])), (&loose, signed(&loose, &["ada"])), (&loose, Vec::new())]
    {
        assert!(team.signer.apply_policy(text.as_bytes(), &by, moment).is_err(), "a policy that nobody signed");
    }
    team.signer.apply_policy(old.as_bytes(), &signed(&old, &["ada", "ben"]), moment).unwrap();
}

/// It makes the signer fall, and start again from its log.
fn restart(team: &mut Team) {
    if team.below(2) == 0 {
        team.signer.snapshot(90 * DAY, after(team.now)).unwrap();
    }
    team.signer = reopen(&team.folder, Some(team.signer.head()), team.now);
}

pub const PLAYS: [fn(&mut Team); 13] = [
    many_small_ones,
    more_in_the_slot,
    burning,
    the_same_job_again,
    cancel_and_move,
    slots_of_others,
    borrowed_approvals,
    tron_rebuilds,
    other_roles,
    lies,
    bitcoin_fees,
    policies,
    restart,
];
