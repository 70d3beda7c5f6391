//! Whoever owns the server asks the signer for anything, in any order. Each test here is such an asker's sequence.

use domain::Timestamp;
use signer::approval::{move_digest, revoke_digest};
use signer::authorizer::ApplyError;
use signer::keys::Purpose;
use signer::log::entry::Entry;
use signer::log::{Head, Log, LogError, walk};
use signer::policy::file::parse;
use signer::policy::judge::Counter;
use signer::policy::signed::PolicyError;
use signer::text::Hash;
use signer::{Addresses, Authorizer, GroupId, Intent, IntentKind, Owner, SignRequest, SignerChain, SignerRefusal};
use tx::{Address, Coin};

use crate::faulty::FaultyFolder;
use crate::world::*;

/// A TRON payment that bob approves: two of them that expire at other times are two approvals of one payment.
fn tron_build(amount: u128, at: i64, builds: u32, expires: i64, approvals: &[&str]) -> SignRequest {
    let mut request = tron(5, amount, Coin::Native, at, HOUR);
    request.id = format!("build-{at}-{expires}").parse().unwrap();
    request.intents[0].expires = Timestamp::from_micros(NOW + expires);
    request.intents[0].builds = builds;
    // The builds of a test are two hours apart.
    let before = tron(5, amount, Coin::Native, at - 2 * HOUR, HOUR);
    request.replaces = (at > 0).then(|| signer::digest::sha256(&before.payload));
    let digest = request.intents[0].digest();
    request.approvals = approvals.iter().map(|name| approve(name, digest)).collect();
    request
}

#[test]
fn an_approval_pays_as_often_as_it_says_however_it_is_mixed_with_others() {
    let (mut signer, folder) = signer();
    let ask = |at, expires| tron_build(4_000_000, at, 1, expires, &["bob"]);
    approved(&mut signer, &ask(0, DAY), 0);
    approved(&mut signer, &ask(2 * HOUR, DAY + 1), 2 * HOUR);
    let used_up = SignerRefusal::BuildsUsedUp(job(5));
    assert_eq!(refusal(&mut signer, &ask(4 * HOUR, DAY), 4 * HOUR), used_up);
    assert_eq!(refusal(&mut signer, &ask(4 * HOUR, DAY + 1), 4 * HOUR), used_up);
    let mut signer = reopen(&folder, Some(signer.head()), 4 * HOUR);
    assert_eq!(refusal(&mut signer, &ask(4 * HOUR, DAY), 4 * HOUR), used_up, "after a start too");
}

#[test]
fn a_build_within_the_caps_does_not_give_an_approval_back() {
    let (mut signer, _) = signer();
    let fill = |signer: &mut Authorizer<FaultyFolder>, at: i64, first: i64| {
        for number in first..first + 3 {
            // Built a millisecond apart: the same bytes would be one transaction.
            approved(signer, &tron(number, 1_000_000, Coin::Native, at + number * 1_000, HOUR), at);
        }
    };
    let ask = |at| tron_build(900_000, at, 1, DAY, &["bob"]);
    fill(&mut signer, 0, 20);
    assert_eq!(approved(&mut signer, &ask(0), 0), "hot-tron/native/step 1 (1 of 3)");
    assert_eq!(approved(&mut signer, &ask(2 * HOUR), 2 * HOUR), "hot-tron/native/free");
    fill(&mut signer, 4 * HOUR, 30);
    assert_eq!(refusal(&mut signer, &ask(4 * HOUR), 4 * HOUR), SignerRefusal::BuildsUsedUp(job(5)));
}

#[test]
fn a_revoked_or_missing_approval_builds_nothing_more() {
    let (mut signer, _) = signer();
    let ask = |at, approvals: &[&str]| tron_build(4_000_000, at, 3, DAY, approvals);
    let first = ask(0, &["bob"]);
    approved(&mut signer, &first, 0);
    let missing = SignerRefusal::ApprovalsMissing { given: 0, needed: 1 };
    assert_eq!(refusal(&mut signer, &ask(2 * HOUR, &[]), 2 * HOUR), missing);
    let digest = first.intents[0].digest();
    signer.revoke(&Hash(digest), &approve("bob", revoke_digest(&digest)), after(2 * HOUR)).unwrap();
    assert_eq!(refusal(&mut signer, &ask(2 * HOUR, &["bob"]), 2 * HOUR), missing);
    assert_eq!(approved(&mut signer, &ask(2 * HOUR, &["carol"]), 2 * HOUR), "hot-tron/native/step 1 (1 of 3)");
}

#[test]
fn an_operators_word_that_was_taken_back_moves_nothing() {
    let (mut signer, _) = signer();
    approved(&mut signer, &evm(1, 4, 900).request("a"), 0);
    let held = format!("bsc:{}:4", own("hot-bsc", 0));
    let mut moved = evm(1, 5, 900).round(1).request("b");
    let digest = move_digest(&moved.intents[0], &held);
    moved.approvals.push(approve("olga", digest));
    signer.revoke(&Hash(digest), &approve("olga", revoke_digest(&digest)), after(0)).unwrap();
    assert_eq!(refusal(&mut signer, &moved, 0), SignerRefusal::SlotDiffers(job(1)));
}

fn fees(signer: &Authorizer<FaultyFolder>) -> u128 {
    let spent = signer.state().spent.spent("btc", &group("hot-btc"), &Counter::Fee, after(0).date);
    u128::try_from(spent.day.to_u256()).unwrap()
}

/// A payout joins a transaction, and leaves it again with an input of its own: of all these, those that stand alone can all
/// be mined.
#[test]
fn fees_of_transactions_that_can_all_be_mined_all_count() {
    let (mut signer, _) = signer();
    let input = |number: u8| coin_input(number, u64::from(number), 90_000);
    approved(&mut signer, &bitcoin_request("a", &[input(1)], &[(1, 5_000)]), 0);
    for number in 2..8_u8 {
        let other = (i64::from(number), 5_000);
        approved(
            &mut signer,
            &bitcoin_request(&format!("joins-{number}"), &[input(1), input(number)], &[(1, 5_000), other]),
            0,
        );
        approved(&mut signer, &bitcoin_request(&format!("leaves-{number}"), &[input(number)], &[other]), 0);
    }
    assert!(fees(&signer) >= 7 * 2_000, "{} counted, and seven times 2,000 can be mined", fees(&signer));
}

/// A raise that is counted once, for all payouts together, is not a raise of each.
#[test]
fn a_fee_raised_together_is_not_counted_for_each_alone() {
    let (mut signer, _) = signer();
    let input = |number: u8| coin_input(number, u64::from(number), 90_000);
    let paying = |fee, id: &str, numbers: &[u8]| {
        let inputs: Vec<_> = numbers.iter().map(|number| input(*number)).collect();
        let payouts: Vec<_> = numbers.iter().map(|number| (i64::from(*number), 5_000)).collect();
        bitcoin_of("hot-btc", Some(CHANGE), fee, id, &inputs, &payouts)
    };
    for number in 1..6 {
        approved(&mut signer, &paying(500, &format!("low-{number}"), &[number]), 0);
    }
    approved(&mut signer, &paying(20_000, "together", &[1, 2, 3, 4, 5]), 0);
    assert_eq!(fees(&signer), 20_000, "of the transactions so far, those that can be mined together cost no more");
    for number in 1..6 {
        approved(&mut signer, &paying(20_000, &format!("high-{number}"), &[number]), 0);
    }
    assert_eq!(fees(&signer), 5 * 20_000);
}

#[test]
fn two_administrators_do_not_shut_the_others_out_at_once() {
    let (mut signer, _) = signer();
    let text = policy(2);
    let cyd = text.find(", cyd = \"").unwrap();
    let end = cyd + text[cyd..].find(" }").unwrap();
    let coup = format!("{}{}", &text[..cyd], &text[end..]);
    let accepted = signer.apply_policy(coup.as_bytes(), &signed(&coup, &["ada", "ben"]), after(0)).unwrap().unwrap();
    assert_eq!(accepted.effective.micros(), NOW + DAY);
    // Meanwhile the one who is to go can stop it, with any other.
    let text = policy(3);
    signer.apply_policy(text.as_bytes(), &signed(&text, &["ben", "cyd"]), after(HOUR)).unwrap().unwrap();
    assert_eq!(signer.policy(after(9 * DAY)).unwrap().administrators.keys.len(), 3);
}

#[test]
fn no_number_of_a_policy_runs_over_and_no_chain_has_two_names() {
    let refused = |from: &str, to: &str| {
        let text = policy(1);
        assert!(text.contains(from), "{from}");
        assert!(parse(text.replace(from, to).as_bytes()).is_err(), "{to}");
    };
    for hours in ["4294967295", "2562047788", "87601"] {
        refused("cooling_off_hours = 24", &format!("cooling_off_hours = {hours}"));
        refused("most_intent_life_hours = 48", &format!("most_intent_life_hours = {hours}"));
    }
    refused("operators", "tron_margin_minutes = 4294967295\noperators");
    // Each name would have caps and nonces of its own, for the same coins.
    refused(
        "[[chain]]\nname = \"tron\"",
        "[[chain]]\nname = \"bsc-2\"\nkind = \"evm\"\nchain_id = 56\n\n[[chain]]\nname = \"tron\"",
    );
    refused(
        "[[chain]]\nname = \"tron\"",
        "[[chain]]\nname = \"btc-2\"\nkind = \"bitcoin\"\nnetwork = \"regtest\"\n\n[[chain]]\nname = \"tron\"",
    );
}

/// The keys themselves say what they are for.
#[test]
fn a_policy_gives_no_keys_another_role() {
    struct Other;
    impl Addresses for Other {
        fn address(&self, group: &GroupId, index: u64) -> Option<Address> {
            Wallets.address(group, index)
        }

        fn purpose(&self, group: &GroupId) -> Option<Purpose> {
            if group.as_str() == "hot-bsc" { Some(Purpose::Deposit) } else { Wallets.purpose(group) }
        }
    }
    let (mut signer, _) = signer();
    let differs = SignerRefusal::PurposeDiffers(group("hot-bsc"));
    for request in
        [evm(1, 4, 900).request("from"), evm(2, 5, 900).from("deposit-bsc", 7).owned("hot-bsc", 0).request("to")]
    {
        let verdicts = signer.decide(std::slice::from_ref(&request), after(0), &Other).unwrap().verdicts;
        assert_eq!(verdicts[0].refusal(), Some(&differs));
        approved(&mut signer, &request, 0);
    }
}

/// People approved it when fees were high, and it was never used. It is nobody's wish any more.
#[test]
fn an_expired_intent_with_other_terms_is_not_good_in_the_jobs_slot() {
    let (mut signer, _) = signer();
    let ask = |id: &str, price: u128| {
        let mut request = evm(1, 4, 20_000_000).gas_price(price).request(id);
        let digest = request.intents[0].digest();
        request.approvals = ["bob", "dave"].map(|name| approve(name, digest)).to_vec();
        request
    };
    approved(&mut signer, &ask("a", 10), 0);
    assert_eq!(refusal(&mut signer, &ask("b", 140), DAY + HOUR), SignerRefusal::IntentExpired);
    // The one that was signed is replaced for as long as it takes.
    assert_eq!(approved(&mut signer, &ask("c", 10), DAY + HOUR), "hot-bsc/native/again");
}

/// One free payment of 546 satoshi, all coins of the wallet as inputs, and the change to a number that only the asker knows.
#[test]
fn change_goes_to_no_number_that_only_the_asker_knows() {
    let (mut signer, folder) = signer();
    let all = [coin_input(1, 5, 900_000), coin_input(2, 6, 700_000)];
    let change = |id: &str, number| bitcoin_of("hot-btc", Some(number), 2_000, id, &all, &[(1, 546)]);
    // 2^31 + 6 would be beside one of the inputs; 7 is a wallet of the group, and none of those that pay.
    for number in [0x1234_5678_9abc_def0 >> 2, 10, 7, CHANGE + 6, CHANGE + 1] {
        assert_eq!(refusal(&mut signer, &change("far", number), 0), SignerRefusal::ChangeForbidden, "{number}");
    }
    // A coin that the asker himself has sent to such a number does not make it a good one.
    let far = [coin_input(1, 5, 900_000), coin_input(3, 1 << 40, 600)];
    let request = bitcoin_of("hot-btc", Some(1 << 40), 2_000, "dust", &far, &[(1, 546)]);
    assert_eq!(refusal(&mut signer, &request, 0), SignerRefusal::ChangeForbidden);
    approved(&mut signer, &change("back", 6), 0);
    approved(&mut signer, &change("beside", CHANGE), 0);
    let mut logged = Vec::new();
    walk(&folder, |_, entry| {
        if let Entry::Approved { decision, .. } = entry {
            logged.push((decision.indexes.clone(), decision.change.clone()));
        }
    })
    .unwrap();
    assert_eq!(logged, [(vec![5, 6], vec![6]), (vec![5, 6], vec![CHANGE])], "the log says where it went");
}

/// The asker is a user, too: his address is a number of the deposit group.
#[test]
fn from_a_users_wallet_there_is_no_change_and_nothing_goes_to_a_far_number() {
    let (mut signer, _) = signer();
    let input = input_of("deposit-btc", [1; 32], 77, 90_000);
    let sweep = |id: &str, change, paid| {
        let mut request = bitcoin_of("deposit-btc", change, 2_000, id, std::slice::from_ref(&input), &[(1, paid)]);
        let to = own("treasury-btc", 0);
        let mut payload = bitcoin::Psbt::deserialize(&request.payload).unwrap();
        payload.unsigned_tx.output[0].script_pubkey = to.script_bytes().unwrap().into();
        request.payload = payload.serialize();
        let IntentKind::Pay { payment, owner } = &mut request.intents[0].kind else { panic!("a payment") };
        payment.to = to;
        *owner = Some(Owner { group: group("treasury-btc"), index: 0 });
        request
    };
    for number in [666, 77, CHANGE] {
        let request = sweep("change", Some(number), 546);
        assert_eq!(refusal(&mut signer, &request, 0), SignerRefusal::ChangeForbidden, "{number}");
    }
    approved(&mut signer, &sweep("whole", None, 88_000), 0);
    // Nor does a hot wallet's or a treasury's number take coins that nobody would find there.
    let far = |number, id: &str| evm(9, 9, 500).from("deposit-bsc", 77).owned("treasury-bsc", number).request(id);
    for number in [10, CHANGE, 1 << 60] {
        assert_eq!(refusal(&mut signer, &far(number, "far"), 0), SignerRefusal::DestinationForbidden, "{number}");
    }
    approved(&mut signer, &far(9, "near"), 0);
}

#[test]
fn a_request_without_bounds_is_refused_and_the_signer_goes_on() {
    let (mut signer, _) = signer();
    let base = bitcoin_request("base", &[coin_input(1, 5, 900_000)], &[(1, 546)]);
    let with = |id: String, intents: usize| {
        let intents =
            (0..intents).map(|number| Intent { job: job(i64::try_from(number).unwrap()), ..base.intents[0].clone() });
        SignRequest { id: id.parse().unwrap(), intents: intents.collect(), ..base.clone() }
    };
    let inconsistent = |refusal: &SignerRefusal| matches!(refusal, SignerRefusal::Inconsistent(_));
    // The entry of this one alone would be longer than the log can write.
    assert!(inconsistent(&refusal(&mut signer, &with("long".to_owned(), 250_000), 0)));
    // A batch of requests that each could be one.
    let batch: Vec<_> = (0..100).map(|number| with(format!("many-{number}"), 4_000)).collect();
    let verdicts = signer.decide(&batch, after(0), &Wallets).unwrap().verdicts;
    assert!(verdicts.iter().all(|verdict| verdict.refusal().is_some()));
    approved(&mut signer, &base, 0);
    // A cancel names each job once, and no more than a transaction can pay.
    let cancel = |id: &str, jobs: Vec<_>| {
        let mut request = with(id.to_owned(), 1);
        request.intents[0].job = job(90);
        request.intents[0].kind = IntentKind::Cancel { jobs };
        request
    };
    for jobs in [vec![job(1); 2], vec![job(1); 100_000], (0..4_001).map(job).collect()] {
        assert!(inconsistent(&refusal(&mut signer, &cancel("cancel", jobs), 0)));
    }
}

/// Each amount of an input is kept for ever, and nothing proves that the input exists.
#[test]
fn invented_inputs_do_not_fill_the_signers_memory() {
    let (mut signer, folder) = signer();
    let invented = |first: u32, count: u32| -> Vec<_> {
        let input = |number: u32| {
            let mut hash = [7; 32];
            hash[..4].copy_from_slice(&number.to_be_bytes());
            input_of("hot-btc", hash, 5, 1_000)
        };
        (first..first + count).map(input).collect()
    };
    let ask = |number: u32, count| {
        let request =
            bitcoin_request(&format!("i-{number}"), &invented(number * 2_000, count), &[(i64::from(number), 546)]);
        SignRequest { id: format!("i-{number}-{count}").parse().unwrap(), ..request }
    };
    let mut larger = ask(0, 10);
    larger.bitcoin.as_mut().unwrap().inputs = vec![5; 1_501];
    assert!(matches!(refusal(&mut signer, &larger, 0), SignerRefusal::Inconsistent(_)));
    for number in 1..5 {
        approved(&mut signer, &ask(number, 1_200), 0);
    }
    assert_eq!(refusal(&mut signer, &ask(5, 1_200), 0), SignerRefusal::TooManyInputs);
    let mut signer = reopen(&folder, Some(signer.head()), 0);
    assert_eq!(refusal(&mut signer, &ask(5, 201), 0), SignerRefusal::TooManyInputs, "after a start too");
    approved(&mut signer, &ask(5, 200), 0);
    approved(&mut signer, &ask(6, 100), 2 * HOUR);
    assert_eq!(signer.state().amounts["btc"].len(), 5_100);
}

/// The same people, the same names of chains and groups, the same keys of approvers: on another signer, or another network.
#[test]
fn what_was_approved_for_one_signer_or_network_is_good_for_no_other() {
    let (mut signer, _) = signer();
    let large = |id: &str, change: fn(&mut Intent)| {
        let mut request = evm(1, 4, 20_000_000).request(id);
        change(&mut request.intents[0]);
        let digest = request.intents[0].digest();
        request.approvals = ["bob", "dave"].map(|name| approve(name, digest)).to_vec();
        request
    };
    let staging = large("staging", |intent| intent.signer = "staging".parse().unwrap());
    let testnet = large("testnet", |intent| intent.network = SignerChain::Evm { chain_id: 97 });
    for elsewhere in [staging, testnet] {
        assert_eq!(refusal(&mut signer, &elsewhere, 0), SignerRefusal::OtherSigner);
        // Their approvals, beside an intent that is for here.
        let moved = SignRequest { intents: large("x", |_| {}).intents, ..elsewhere };
        assert!(matches!(refusal(&mut signer, &moved, 0), SignerRefusal::BadApproval(..)));
    }
    // An operator's word is for one signer, too.
    approved(&mut signer, &large("here", |_| {}), 0);
    let mut moved = evm(1, 5, 20_000_000).round(1).request("moved");
    let held = format!("bsc:{}:4", own("hot-bsc", 0));
    let elsewhere = Intent { signer: "staging".parse().unwrap(), ..moved.intents[0].clone() };
    moved.approvals.push(approve("olga", move_digest(&elsewhere, &held)));
    assert!(matches!(refusal(&mut signer, &moved, 0), SignerRefusal::BadApproval(..)));
}

#[test]
fn a_signer_keeps_its_name_and_takes_no_policy_of_another() {
    let (mut signer, _) = signer();
    let text = policy(2).replace("signer = \"test\"", "signer = \"staging\"");
    let applied = signer.apply_policy(text.as_bytes(), &signed(&text, &["ada", "ben"]), after(0));
    assert!(matches!(applied, Err(ApplyError::Policy(PolicyError::OtherSigner(_)))), "{applied:?}");
    assert!(parse(policy(1).replace("signer = \"test\"\n", "").as_bytes()).is_err(), "each policy names its signer");
}

/// The same script has an address on every network. People who approve one have seen that text.
#[test]
fn an_address_of_another_bitcoin_network_is_not_paid() {
    let (mut signer, _) = signer();
    let mut request = bitcoin_request("a", &[coin_input(1, 5, 90_000)], &[(1, 5_000)]);
    let IntentKind::Pay { payment, .. } = &mut request.intents[0].kind else { panic!("a payment") };
    let good = payment.to.clone();
    payment.to = stranger(21).bitcoin(bitcoin::Network::Bitcoin);
    assert_eq!(payment.to.script_bytes(), good.script_bytes());
    assert_eq!(refusal(&mut signer, &request, 0), SignerRefusal::NotPaid);
}

/// The last frame was answered, and somebody damages it so that the start takes it for a torn write.
#[test]
fn the_end_of_the_log_is_cut_only_after_the_pin_was_asked_and_is_kept() {
    let (mut signer, folder) = signer();
    approved(&mut signer, &evm(1, 4, 900).request("a"), 0);
    let name = folder.files().into_iter().rfind(|name| name.starts_with("log-")).unwrap();
    let before = folder.frames(&name).len();
    approved(&mut signer, &evm(2, 5, 900).request("b"), 0);
    let (mut damaged, end) = (folder.read(&name), folder.frames(&name).len());
    assert!(end < damaged.len(), "there is room behind it");
    damaged[end - 1] ^= 1;
    folder.put(&name, Some(damaged.clone()));
    let opened = Log::open(folder.clone(), Some(signer.head()));
    assert!(matches!(opened, Err(LogError::RolledBack { .. })));
    assert_eq!(folder.read(&name), damaged, "who has the head finds the log as it was");
    // Nobody has a head: the end is cut, as after a crash, and what was there can still be looked at.
    reopen(&folder, None, 0);
    assert_eq!(folder.read(&name), damaged[..before]);
    let aside: Vec<_> = folder.files().into_iter().filter(|name| name.starts_with("torn-")).collect();
    assert_eq!(aside.len(), 1);
    assert_eq!(folder.read(&aside[0]), damaged[before..end]);
    reopen(&folder, None, 0);
}

#[test]
fn a_head_from_before_the_snapshot_is_looked_for_too() {
    let (mut signer, folder) = signer();
    let mut heads = Vec::new();
    for number in 0..8_u32 {
        approved(&mut signer, &evm(i64::from(number), number.into(), 5).request(&format!("h-{number}")), 0);
        heads.push(signer.head());
        if number % 2 == 1 {
            signer.snapshot(30 * DAY, after(0)).unwrap();
        }
    }
    let signer = reopen(&folder, None, 0);
    for head in heads {
        signer.check_pinned(&head).unwrap();
        Log::open(folder.clone(), Some(head)).map(|_| ()).unwrap();
        let other = Head { hash: Hash([9; 32]), ..head };
        assert!(matches!(signer.check_pinned(&other), Err(LogError::Diverged { .. })), "entry {}", head.entries);
        assert!(matches!(Log::open(folder.clone(), Some(other)), Err(LogError::Diverged { .. })));
    }
}
