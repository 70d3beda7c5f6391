//! One slot per job, one job per slot.

use std::collections::{BTreeMap, BTreeSet};

use domain::Timestamp;
use domain::id::first_at;
use signer::approval::move_digest;
use signer::names::JobId;
use signer::reading::Claim;
use signer::slots::{Held, JobRecord, SlotQuestion, SlotStanding, Slots, claimed};
use signer::text::{Hash, RawText};
use signer::{IntentKind, SignRequest, SignerRefusal};
use tx::{Address, Coin};

use crate::world::*;

#[test]
fn a_job_is_signed_again_only_in_its_slot_and_with_its_payment() {
    let (mut signer, folder) = signer();
    let first = evm(1, 4, 900);
    approved(&mut signer, &first.request("a"), 0);
    for again in [false, true] {
        if again {
            // After a start it is the same.
            signer = reopen(&folder, Some(signer.head()), MINUTE);
        }
        let id = |name: &str| format!("{name}-{again}");
        let mut refused = |request, expected| assert_eq!(refusal(&mut signer, &request, MINUTE), expected);
        refused(evm(1, 5, 900).request(&id("nonce")), SignerRefusal::SlotDiffers(job(1)));
        refused(evm(1, 5, 900).round(1).request(&id("round")), SignerRefusal::SlotDiffers(job(1)));
        refused(evm(1, 4, 900).round(1).request(&id("round-here")), SignerRefusal::SlotDiffers(job(1)));
        refused(evm(1, 4, 901).request(&id("amount")), SignerRefusal::JobChanged(job(1)));
        refused(evm(1, 4, 900).to(stranger(5).evm()).request(&id("to")), SignerRefusal::JobChanged(job(1)));
        refused(evm(1, 4, 900).coin(Coin::Token(token())).request(&id("coin")), SignerRefusal::JobChanged(job(1)));
        refused(evm(2, 4, 800).request(&id("other")), SignerRefusal::SlotTaken(job(1)));
        refused(evm(3, 9, 900).round(1).request(&id("fresh-round")), SignerRefusal::SlotDiffers(job(3)));
        // A replacement, with a higher fee.
        approved(&mut signer, &evm(1, 4, 900).gas_price(20 + u128::from(again)).request(&id("replace")), MINUTE);
    }
    // Another wallet has its own nonces.
    approved(&mut signer, &evm(2, 4, 800).from("hot-bsc", 1).request("other-wallet"), MINUTE);
}

#[test]
fn two_requests_for_one_slot_in_one_batch_get_one_of_them() {
    let (mut signer, _) = signer();
    let batch = [evm(1, 4, 900).request("a"), evm(2, 4, 800).request("b"), evm(2, 5, 800).request("c")];
    let verdicts = signer.decide(&batch, after(0), &Wallets).unwrap().verdicts;
    assert!(verdicts[0].approved().is_some());
    assert_eq!(verdicts[1].refusal(), Some(&SignerRefusal::SlotTaken(job(1))));
    assert!(verdicts[2].approved().is_some());
}

#[test]
fn the_same_request_gets_the_same_bytes_and_counts_once() {
    let (mut signer, folder) = signer();
    let request = evm(1, 4, 1_000_000).request("a");
    approved(&mut signer, &request, 0);
    let head = signer.head();
    for _ in 0..5 {
        assert_eq!(approved(&mut signer, &request, MINUTE), "replay");
    }
    let mut signer = reopen(&folder, Some(head), MINUTE);
    assert_eq!(approved(&mut signer, &request, MINUTE), "replay");
    assert_eq!(signer.head(), head, "a replay is no new entry");
    let other = signer::SignRequest { payload: evm(1, 4, 999_999).payload(), ..request };
    assert_eq!(refusal(&mut signer, &other, MINUTE), SignerRefusal::RequestReused);
    // Two more of the same size fit the hour's three, and not a third.
    approved(&mut signer, &evm(2, 5, 1_000_000).request("b"), MINUTE);
    approved(&mut signer, &evm(3, 6, 1_000_000).request("c"), MINUTE);
    assert_eq!(
        refusal(&mut signer, &evm(4, 7, 1_000_000).request("d"), MINUTE),
        SignerRefusal::ApprovalsMissing { given: 0, needed: 1 }
    );
}

#[test]
fn a_job_moves_only_after_the_signers_own_cancel_or_an_operators_word() {
    let (mut signer, folder) = signer();
    approved(&mut signer, &evm(1, 4, 900).request("a"), 0);
    let cancel = |id: &str, nonce, price| evm(50, nonce, 1).cancelling(vec![job(1)]).gas_price(price).request(id);
    assert_eq!(refusal(&mut signer, &cancel("c-0", 5, 20), 0), SignerRefusal::NothingToCancel, "another slot");
    let stray = evm(51, 4, 1).cancelling(vec![job(9)]).request("stray");
    assert_eq!(refusal(&mut signer, &stray, 0), SignerRefusal::NothingToCancel, "another job");
    approved(&mut signer, &cancel("c-1", 4, 20), 0);
    approved(&mut signer, &cancel("c-2", 4, 30), 0);
    // The job may still be replaced where it is, and then moves, once.
    approved(&mut signer, &evm(1, 4, 900).gas_price(40).request("a-2"), 0);
    let mut signer = reopen(&folder, Some(signer.head()), 0);
    approved(&mut signer, &evm(1, 6, 900).round(1).request("b"), 0);
    assert_eq!(refusal(&mut signer, &evm(1, 7, 900).round(2).request("c"), 0), SignerRefusal::SlotDiffers(job(1)));
    assert_eq!(refusal(&mut signer, &evm(1, 4, 900).request("d"), 0), SignerRefusal::SlotDiffers(job(1)));
    assert_eq!(refusal(&mut signer, &evm(2, 4, 900).request("e"), 0), SignerRefusal::SlotTaken(job(50)));
    approved(&mut signer, &cancel("c-3", 4, 50), 0);

    // An operator signs for one slot and one round; an approver who is no operator cannot.
    let held = format!("bsc:{}:6", own("hot-bsc", 0));
    let digest = |round, held: &str| move_digest(&evm(1, 8, 900).round(round).request("x").intents[0], held);
    let moved = |id: &str, name: &str, digest| {
        let mut request = evm(1, 8, 900).round(2).request(id);
        request.approvals.push(approve(name, digest));
        request
    };
    assert_eq!(refusal(&mut signer, &moved("m-1", "bob", digest(2, &held)), 0), SignerRefusal::SlotDiffers(job(1)));
    for wrong in [digest(3, &held), digest(2, "bsc:0x00:6")] {
        assert!(matches!(refusal(&mut signer, &moved("m-2", "olga", wrong), 0), SignerRefusal::BadApproval(..)));
    }
    approved(&mut signer, &moved("m-3", "olga", digest(2, &held)), 0);
}

#[test]
fn what_is_signed_again_in_another_slot_counts_again() {
    let (mut signer, _) = signer();
    for round in 0..3_u32 {
        let nonce = u64::from(round);
        approved(&mut signer, &evm(1, nonce, 1_000_000).round(round).request(&format!("r-{round}")), 0);
        approved(
            &mut signer,
            &evm(50 + i64::from(round), nonce, 1).cancelling(vec![job(1)]).request(&format!("c-{round}")),
            0,
        );
    }
    assert_eq!(
        refusal(&mut signer, &evm(1, 3, 1_000_000).round(3).request("r-3"), 0),
        SignerRefusal::ApprovalsMissing { given: 0, needed: 1 }
    );
}

#[test]
fn payouts_of_one_bitcoin_transaction_share_its_inputs_and_all_versions_share_one() {
    let (mut signer, folder) = signer();
    let (a, b, c, d) =
        (coin_input(1, 1, 90_000), coin_input(2, 2, 90_000), coin_input(3, 3, 190_000), coin_input(4, 4, 90_000));
    approved(&mut signer, &bitcoin_request("ab", &[a.clone(), b.clone()], &[(7, 50_000), (8, 40_000)]), 0);
    // Another job cannot have one of the inputs, and neither payout can be left out.
    let mut refused = |id: &str, inputs: &[_], payouts: &[_], expected| {
        assert_eq!(refusal(&mut signer, &bitcoin_request(id, inputs, payouts), 0), expected, "{id}");
    };
    refused("other", &[b.clone(), c.clone()], &[(9, 50_000)], SignerRefusal::SlotTaken(job(7)));
    refused("one", &[a.clone(), b.clone()], &[(7, 50_000)], SignerRefusal::SlotTaken(job(8)));
    refused("none", std::slice::from_ref(&c), &[(7, 50_000), (8, 40_000)], SignerRefusal::SlotDiffers(job(7)));
    // A replacement keeps b and joins c; a third payout joins in. Now a is free, and all versions have b.
    approved(&mut signer, &bitcoin_request("bc", &[b.clone(), c.clone()], &[(7, 50_000), (8, 40_000), (9, 30_000)]), 0);
    let mut signer = reopen(&folder, Some(signer.head()), 0);
    // a and c: it would conflict with each of the two, but there would be three without a common input.
    let chained = bitcoin_request("ac", &[a.clone(), c.clone()], &[(7, 50_000), (8, 40_000), (9, 30_000)]);
    assert_eq!(refusal(&mut signer, &chained, 0), SignerRefusal::SlotDiffers(job(7)));
    approved(&mut signer, &bitcoin_request("a", std::slice::from_ref(&a), &[(10, 20_000)]), 0);
    // c is job 9's until a version of it does without.
    let with_c = bitcoin_request("c", &[c], &[(11, 20_000)]);
    assert_eq!(refusal(&mut signer, &with_c, 0), SignerRefusal::SlotTaken(job(9)));
    approved(&mut signer, &bitcoin_request("bd", &[b, d], &[(7, 50_000), (8, 40_000), (9, 30_000)]), 0);
    approved(&mut signer, &with_c, 0);
}

#[test]
fn a_bitcoin_cancel_takes_a_common_input_back_to_change() {
    let (mut signer, _) = signer();
    let one = std::slice::from_ref;
    let (a, b) = (coin_input(1, 1, 90_000), coin_input(2, 2, 90_000));
    approved(&mut signer, &bitcoin_request("pay", one(&a), &[(7, 50_000), (8, 20_000)]), 0);
    // All goes to change: no payout is made, and one intent says whom it cancels.
    let cancel = |id: &str, inputs: &[_], jobs: Vec<_>| {
        let mut request = bitcoin_request(id, inputs, &[]);
        let mut intent = bitcoin_request("x", inputs, &[(50, 1_000)]).intents.remove(0);
        intent.kind = IntentKind::Cancel { jobs };
        request.intents = vec![intent];
        request
    };
    let both = || vec![job(7), job(8)];
    assert_eq!(refusal(&mut signer, &cancel("c-1", one(&b), both()), 0), SignerRefusal::NothingToCancel);
    assert_eq!(refusal(&mut signer, &cancel("c-2", one(&a), vec![job(7)]), 0), SignerRefusal::SlotTaken(job(8)));
    let moved = |id: &str| {
        let mut request = bitcoin_request(id, one(&b), &[(7, 50_000), (8, 20_000)]);
        request.intents.iter_mut().for_each(|intent| intent.round = 1);
        request
    };
    assert_eq!(refusal(&mut signer, &moved("m-1"), 0), SignerRefusal::SlotDiffers(job(7)));
    let mut paying = bitcoin_request("c-3", one(&a), &[(9, 1_000)]);
    paying.intents[0].kind = IntentKind::Cancel { jobs: both() };
    assert_eq!(refusal(&mut signer, &paying, 0), SignerRefusal::Unexplained, "a cancel pays nobody");
    assert_eq!(approved(&mut signer, &cancel("c-4", one(&a), both()), 0), "hot-btc/cancel");
    approved(&mut signer, &moved("m-2"), 0);
}

#[test]
fn payouts_whose_inputs_were_cancelled_may_have_some_of_them_again() {
    let (mut signer, _) = signer();
    let one = std::slice::from_ref;
    let (a, b, c) = (coin_input(1, 1, 90_000), coin_input(2, 2, 90_000), coin_input(3, 3, 90_000));
    approved(&mut signer, &bitcoin_request("pay", &[a.clone(), b.clone()], &[(7, 50_000), (8, 20_000)]), 0);
    let next = |id: &str, inputs: &[_], payouts: &[_]| {
        let mut request = bitcoin_request(id, inputs, payouts);
        request.intents.iter_mut().for_each(|intent| intent.round = 1);
        request
    };
    // b alone, in a second round: the first one may be mined still.
    let again = next("again", &[b.clone(), c.clone()], &[(7, 50_000)]);
    assert_eq!(refusal(&mut signer, &again, 0), SignerRefusal::SlotDiffers(job(7)));
    let mut cancel = bitcoin_request("cancel", &[a.clone(), b.clone()], &[]);
    let mut intent = bitcoin_request("x", one(&a), &[(50, 1_000)]).intents.remove(0);
    intent.kind = IntentKind::Cancel { jobs: vec![job(7), job(8)] };
    cancel.intents = vec![intent];
    approved(&mut signer, &cancel, 0);
    approved(&mut signer, &next("again-2", &[b.clone(), c.clone()], &[(7, 50_000)]), 0);
    // Now it is there for good: what it left is another's, what it has is its own.
    let other = next("other", one(&c), &[(8, 20_000)]);
    assert_eq!(refusal(&mut signer, &other, 0), SignerRefusal::SlotTaken(job(7)));
    approved(&mut signer, &next("other-2", one(&a), &[(8, 20_000)]), 0);
    let skipped = |id: &str| {
        let mut request = bitcoin_request(id, &[b.clone(), c.clone()], &[(7, 50_000)]);
        request.intents.iter_mut().for_each(|intent| intent.round = 2);
        request
    };
    assert_eq!(refusal(&mut signer, &skipped("skipped"), 0), SignerRefusal::SlotDiffers(job(7)));
}

#[test]
fn tron_is_signed_again_only_when_the_one_before_is_past_by_a_margin() {
    let (mut signer, folder) = signer();
    let first = tron(5, 900, Coin::Native, 0, HOUR);
    approved(&mut signer, &first, 0);
    // The same bytes under another name are the same transaction.
    let same = signer::SignRequest { id: "same".parse().unwrap(), ..first.clone() };
    assert_eq!(approved(&mut signer, &same, 10 * MINUTE), "hot-tron/native/again");
    let mut signer = reopen(&folder, Some(signer.head()), 10 * MINUTE);
    for at in [10 * MINUTE, HOUR, HOUR + 9 * MINUTE, HOUR + 10 * MINUTE] {
        assert_eq!(
            refusal(&mut signer, &tron(5, 900, Coin::Native, at, HOUR), at),
            SignerRefusal::NotExpiredYet(job(5))
        );
    }
    let at = HOUR + 11 * MINUTE;
    assert_eq!(refusal(&mut signer, &tron(5, 901, Coin::Native, at, HOUR), at), SignerRefusal::JobChanged(job(5)));
    let build = |at, replaces| signer::SignRequest { replaces, ..tron(5, 900, Coin::Native, at, HOUR) };
    let before = Some(signer::digest::sha256(&first.payload));
    assert_eq!(approved(&mut signer, &build(at, before), at), "hot-tron/native/free");
}

#[test]
fn rows_that_do_not_know_the_tron_transaction_before_get_no_second_one() {
    let (mut signer, folder) = signer();
    let first = tron(5, 900, Coin::Native, 0, HOUR);
    approved(&mut signer, &first, 0);
    let id = |request: &signer::SignRequest| Some(signer::digest::sha256(&request.payload));
    let build = |name: &str, at, round, replaces| {
        let mut request = signer::SignRequest { replaces, ..tron(5, 900, Coin::Native, at, HOUR) };
        request.id = name.parse().unwrap();
        request.intents[0].round = round;
        request
    };
    // A database that was put back from before the first, or from before the second, asks as if there was none.
    let unknown = SignerRefusal::BuildUnknown(job(5));
    let (second, third) = (2 * HOUR, 4 * HOUR);
    for (round, replaces) in [(0, None), (1, None), (0, Some([7; 32])), (1, Some([7; 32]))] {
        let name = format!("second-{round}-{}", replaces.is_some());
        assert_eq!(refusal(&mut signer, &build(&name, second, round, replaces), second), unknown);
    }
    let built = build("second", second, 1, id(&first));
    approved(&mut signer, &built, second);
    let mut signer = reopen(&folder, Some(signer.head()), third);
    assert_eq!(refusal(&mut signer, &build("third-first", third, 1, id(&first)), third), unknown);
    assert_eq!(refusal(&mut signer, &build("third-none", third, 2, None), third), unknown);
    approved(&mut signer, &build("third", third, 2, id(&built)), third);
}

#[test]
fn two_jobs_are_never_paid_by_one_tron_transaction() {
    let (mut signer, folder) = signer();
    let first = tron(5, 900, Coin::Native, 0, HOUR);
    approved(&mut signer, &first, 0);
    // Another withdrawal of as much to the same address, built at the same moment: the same bytes.
    let mut second = tron(6, 900, Coin::Native, 0, HOUR);
    assert_eq!(second.payload, first.payload);
    assert_eq!(refusal(&mut signer, &second, 0), SignerRefusal::SlotTaken(job(5)));
    signer.snapshot(30 * DAY, after(0)).unwrap();
    let mut signer = reopen(&folder, None, 0);
    second.id = "second".parse().unwrap();
    assert_eq!(refusal(&mut signer, &second, 0), SignerRefusal::SlotTaken(job(5)), "after a start too");
    // A millisecond later it is another transaction. The first job may have its own again.
    let later = tron(6, 900, Coin::Native, 1_000, HOUR);
    approved(&mut signer, &later, 1_000);
    let mut again = first;
    again.id = "again".parse().unwrap();
    approved(&mut signer, &again, 1_000);
}

/// A TRON payment that needs an approval, two hours after the one before.
fn approved_build(at: i64, builds: u32, approvals: &[&str]) -> SignRequest {
    let mut request = tron(5, 4_000_000, Coin::Native, at, HOUR);
    let before = tron(5, 4_000_000, Coin::Native, at - 2 * HOUR, HOUR);
    request.replaces = (at > 0).then(|| signer::digest::sha256(&before.payload));
    // The approvals are for one intent, whenever it is built.
    request.intents[0].expires = domain::Timestamp::from_micros(NOW + DAY);
    request.intents[0].builds = builds;
    let digest = request.intents[0].digest();
    request.approvals = approvals.iter().map(|name| approve(name, digest)).collect();
    request
}

/// Whoever owns the server shows people what they sign, and may write into it how often it is built.
#[test]
fn one_approval_builds_no_more_than_the_policy_says() {
    let used_up = SignerRefusal::BuildsUsedUp(job(5));
    let once = policy(1).replace("version = 1\n", "version = 1\nmost_tron_builds = 1\n");
    for (text, most) in [(once, 1), (policy(1), 3)] {
        let (mut signer, folder) = signer_with(&text);
        let ask = |number: i64, name: &str| approved_build(number * 2 * HOUR, 1_000, &[name]);
        for number in 0..most {
            approved(&mut signer, &ask(number, "bob"), number * 2 * HOUR);
        }
        let late = most * 2 * HOUR;
        assert_eq!(refusal(&mut signer, &ask(most, "bob"), late), used_up);
        let mut signer = reopen(&folder, Some(signer.head()), late);
        assert_eq!(refusal(&mut signer, &ask(most, "carol"), late), used_up, "after a start too, whoever signs it");
    }
}

#[test]
fn an_approved_tron_payment_is_built_as_often_as_its_approvals_say() {
    let (mut signer, _) = signer();
    let build = approved_build;
    let (second, third) = (2 * HOUR, 4 * HOUR);
    let missing = SignerRefusal::ApprovalsMissing { given: 0, needed: 1 };
    assert_eq!(refusal(&mut signer, &build(0, 2, &[]), 0), missing);
    assert_eq!(approved(&mut signer, &build(0, 2, &["bob"]), 0), "hot-tron/native/step 1 (1 of 3)");
    approved(&mut signer, &build(second, 2, &["bob"]), second);
    assert_eq!(refusal(&mut signer, &build(third, 2, &["bob"]), third), SignerRefusal::BuildsUsedUp(job(5)));
    approved(&mut signer, &build(third, 3, &["bob"]), third);
}

#[test]
fn a_gap_is_filled_by_a_cancel_of_nothing() {
    let (mut signer, _) = signer();
    assert_eq!(approved(&mut signer, &evm(50, 3, 1).cancelling(vec![]).request("gap"), 0), "hot-bsc/cancel");
    assert_eq!(refusal(&mut signer, &evm(1, 3, 900).request("a"), 0), SignerRefusal::SlotTaken(job(50)));
    let mut paid = evm(51, 4, 7).to(own("hot-bsc", 0)).request("pays");
    paid.intents[0].kind = IntentKind::Cancel { jobs: vec![] };
    assert_eq!(refusal(&mut signer, &paid, 0), SignerRefusal::Unexplained, "a cancel pays nothing");
}

#[test]
fn old_jobs_are_forgotten_and_refused_by_their_number() {
    let (mut signer, folder) = signer();
    let request = evm(1, 4, 900).request("a");
    approved(&mut signer, &request, 0);
    let later = 30 * DAY;
    assert_eq!(signer.state().slots.count(), 1);
    signer.snapshot(20 * DAY, after(later)).unwrap();
    assert_eq!(signer.state().slots.count(), 0);
    let mut fresh = evm(1, 4, 900).at(later).request("b");
    assert_eq!(refusal(&mut signer, &fresh, later), SignerRefusal::JobTooOld(job(1)));
    let mut signer = reopen(&folder, Some(signer.head()), later);
    // A longer horizon does not bring it back.
    signer.snapshot(90 * DAY, after(later)).unwrap();
    assert_eq!(refusal(&mut signer, &fresh, later), SignerRefusal::JobTooOld(job(1)));
    assert_eq!(refusal(&mut signer, &request, later), SignerRefusal::JobTooOld(job(1)), "nor does its old name");
    fresh.intents[0].job = job(1 << 55);
    assert!(matches!(refusal(&mut signer, &fresh, later), SignerRefusal::JobFromTheFuture(_)));
}

#[test]
fn what_a_forgotten_job_held_is_free() {
    let (mut signer, folder) = signer();
    approved(&mut signer, &evm(1, 4, 900).request("a"), 0);
    approved(&mut signer, &bitcoin_request("b", &[coin_input(1, 5, 80_000)], &[(70, 60_000)]), 0);
    let later = 30 * DAY;
    let made = JobId::Withdrawal(first_at(Timestamp::from_micros(NOW + later)));
    let mut nonce = evm(1, 4, 900).at(later).request("c");
    let mut input = bitcoin_request("d", &[coin_input(1, 5, 80_000)], &[(70, 60_000)]);
    for intent in nonce.intents.iter_mut().chain(&mut input.intents) {
        intent.job = made;
        intent.expires = Timestamp::from_micros(NOW + later + DAY);
    }
    input.intents[0].job = JobId::Withdrawal(made.number() + 1);
    assert_eq!(refusal(&mut signer, &nonce, later), SignerRefusal::SlotTaken(job(1)));
    assert_eq!(refusal(&mut signer, &input, later), SignerRefusal::SlotTaken(job(70)));
    signer.snapshot(20 * DAY, after(later)).unwrap();
    let mut signer = reopen(&folder, Some(signer.head()), later);
    approved(&mut signer, &nonce, later);
    approved(&mut signer, &input, later);
}

/// The keys of an EVM group are the same on every chain, so an account and a nonce alone say nothing.
#[test]
fn a_slot_on_another_chain_is_another_slot() {
    let account = own("hot-bsc", 0).to_string();
    let record = |chain: &str| JobRecord {
        payment: Hash(evm(1, 4, 900).request("x").intents[0].payment_digest()),
        round: 0,
        held: Held::Nonce(format!("{chain}:{account}:4").parse().unwrap()),
        cancelled: false,
        cancels: Vec::new(),
        intent: Hash::default(),
        approved: None,
        builds: BTreeMap::new(),
        fee: RawText(raw(1)),
        payload: Hash::default(),
    };
    let mut slots = Slots::default();
    slots.record(job(1), record("bsc"));
    // Both chains are known.
    let elsewhere = JobRecord { held: Held::Nonce(format!("opbnb:{account}:9").parse().unwrap()), ..record("opbnb") };
    slots.record(job(2), elsewhere);
    let Address::Evm(bytes) = own("hot-bsc", 0) else { panic!("an EVM address") };
    let claim = Claim::Nonce { account: bytes.into_array(), nonce: 4 };
    let wanted = claimed(&claim);
    let ask = |slots: &Slots, chain: &str, evm: Evm| {
        let (chain, intent) = (chain.parse().unwrap(), evm.request("x").intents.remove(0));
        let question = SlotQuestion {
            replaces: None,
            chain: &chain,
            jobs: &BTreeSet::from([intent.job]),
            intent: &intent,
            claim: &claim,
            wanted: &wanted,
            payload: Hash::default(),
            moved: false,
            now: Timestamp::from_micros(NOW),
            tron_margin_us: 0,
        };
        (slots.judge(&question), slots.check_holders(&question))
    };
    let cancel = || evm(50, 4, 1).cancelling(vec![job(1)]);
    assert_eq!(ask(&slots, "bsc", cancel()), (Ok(SlotStanding::Taken), Ok(())));
    assert_eq!(ask(&slots, "opbnb", cancel()), (Err(SignerRefusal::NothingToCancel), Ok(())));
    assert_eq!(ask(&slots, "bsc", evm(1, 4, 900)), (Ok(SlotStanding::Again), Ok(())));
    assert_eq!(ask(&slots, "opbnb", evm(1, 4, 900)), (Err(SignerRefusal::SlotDiffers(job(1))), Ok(())));
    assert_eq!(ask(&slots, "bsc", evm(3, 4, 900)), (Ok(SlotStanding::Taken), Err(SignerRefusal::SlotTaken(job(1)))));
    assert_eq!(ask(&slots, "opbnb", evm(3, 4, 900)), (Ok(SlotStanding::Taken), Ok(())));
    assert_eq!(ask(&slots, "never-seen", evm(3, 4, 900)), (Ok(SlotStanding::Taken), Ok(())));
    // A cancel that was signed on the other chain frees nothing on this one.
    slots.record(job(50), JobRecord { cancels: vec![job(1)], ..record("opbnb") });
    let moved = |slots: &Slots| ask(slots, "opbnb", evm(1, 4, 900).round(1)).0;
    assert_eq!(moved(&slots), Err(SignerRefusal::SlotDiffers(job(1))));
    slots.record(job(51), JobRecord { cancels: vec![job(1)], ..record("bsc") });
    assert_eq!(moved(&slots), Ok(SlotStanding::Taken));
}

/// Whoever does not know what a nonce was signed for is told, and has it cancelled: also where a cancel has it as well.
#[test]
fn whoever_meets_a_taken_nonce_can_cancel_what_holds_it() {
    let (mut signer, _) = signer();
    approved(&mut signer, &evm(9, 4, 900).request("a"), 0);
    let cancel = |id: &str, number, jobs| evm(number, 4, 1).cancelling(jobs).gas_price(20).request(id);
    assert_eq!(refusal(&mut signer, &cancel("gap", 49, vec![]), 0).holder(), Some(job(9)));
    approved(&mut signer, &cancel("first", 2, vec![job(9)]), 0);
    approved(&mut signer, &cancel("second", 3, vec![job(9)]), 0);
    // Neither of the cancels is named, but what they cancel.
    assert_eq!(refusal(&mut signer, &evm(60, 4, 800).request("b"), 0).holder(), Some(job(9)));
    approved(&mut signer, &cancel("third", 61, vec![job(9)]), 0);
}
