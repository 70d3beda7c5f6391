//! All that is remembered comes back, from a snapshot, from the log, and from a log that an older version wrote.

use std::collections::HashMap;

use domain::random::Random;
use signer::approval::{move_digest, revoke_digest};
use signer::digest::{Digest32, sha256};
use signer::log::entry::{ApprovalText, Decision, Effects, Entry};
use signer::log::{Head, Log, LogError, walk};
use signer::names::JobId;
use signer::reading::Claim;
use signer::slot::{Held, Slot};
use signer::slots::{JobRecord, claimed};
use signer::state::State;
use signer::text::{Hash, RawText, SpentOutput};
use signer::{Authorizer, SignRequest};
use tx::Coin;

use crate::faulty::FaultyFolder;
use crate::world::*;

/// A life of payments, replacements, cancels, moves, approvals and revocations on three chains, with mistakes among them.
/// Gives how many requests were approved.
fn storm(
    signer: &mut Authorizer<FaultyFolder>,
    seed: u64,
    steps: i64,
    mut between: impl FnMut(&mut Authorizer<FaultyFolder>, i64),
) -> usize {
    let mut random = Random::from_seed(seed);
    let (mut now, mut signed) = (0, 0);
    // What was last built for each job of TRON.
    let mut built: HashMap<JobId, Digest32> = HashMap::new();
    for step in 0..steps {
        now += i64::try_from(random.below(20 * 60)).unwrap() * 1_000_000 + 3;
        let number = i64::try_from(random.below(60)).unwrap();
        let nonce = u64::try_from(number).unwrap() + random.below(3) * 100;
        let id = format!("s-{seed}-{step}");
        let mut request = match random.below(8) {
            0..3 => {
                let evm = evm(number, nonce, 1 + u128::try_from(number).unwrap())
                    .at(now)
                    .gas_price(u128::from(1 + random.below(30)));
                evm.round(u32::try_from(random.below(2)).unwrap()).request(&id)
            }
            3 => evm(1_000 + number, nonce, 1).at(now).cancelling(vec![job(number)]).gas_price(40).request(&id),
            4 => {
                let mut request = evm(number, nonce, 1 + u128::try_from(number).unwrap()).at(now).round(1).request(&id);
                let held = format!("bsc:{}:{number}", own("hot-bsc", 0));
                request.approvals.push(approve("olga", move_digest(&request.intents[0], &held)));
                request
            }
            5 => {
                let number = u8::try_from(number).unwrap();
                let inputs: Vec<_> = (0..=random.below(3))
                    .map(|more| {
                        let which = number / 4 + u8::try_from(more).unwrap();
                        coin_input(which, which.into(), 200_000)
                    })
                    .collect();
                let payouts: Vec<_> = (0..=random.below(2))
                    .map(|more| (2_000 + i64::from(number / 4) + i64::try_from(more).unwrap(), 5_000))
                    .collect();
                let mut request = bitcoin_request(&id, &inputs, &payouts);
                request
                    .intents
                    .iter_mut()
                    .for_each(|intent| intent.expires = domain::Timestamp::from_micros(NOW + now + DAY));
                request
            }
            6 => SignRequest { id: id.parse().unwrap(), ..tron(3_000 + number % 7, 900, Coin::Native, now, HOUR) },
            _ => {
                let mut request = tron(4_000 + number % 5, 4_000_000, Coin::Native, now, HOUR);
                request.id = id.parse().unwrap();
                request.intents[0].builds = 3;
                // Three hours in a row it is the same intent.
                request.intents[0].expires = domain::Timestamp::from_micros(NOW + (now / (3 * HOUR) + 2) * 3 * HOUR);
                let digest = request.intents[0].digest();
                request.approvals.push(approve("bob", digest));
                if random.below(4) == 0 {
                    signer.revoke(&Hash(digest), &approve("bob", revoke_digest(&digest)), after(now)).unwrap();
                }
                request
            }
        };
        let job = request.intents[0].job;
        if request.chain.as_str() == "tron" {
            request.replaces = built.get(&job).copied();
        }
        if ask(signer, &request, now).approved().is_some() {
            signed += 1;
            built.insert(job, sha256(&request.payload));
        }
        between(signer, now);
    }
    signed
}

fn stored(folder: &FaultyFolder) -> State {
    Log::open(folder.copy(), None).unwrap().1
}

/// From when on jobs are known is in a snapshot alone: a start without one knows them all again.
fn knowing_since(other: &State, state: State) -> State {
    State { forgotten_before: other.forgotten_before, ..state }
}

fn without_snapshots(folder: &FaultyFolder) -> FaultyFolder {
    let copy = folder.copy();
    for name in folder.files().iter().filter(|name| name.starts_with("snapshot-")) {
        copy.put(name, None);
    }
    copy
}

#[test]
fn a_start_from_a_snapshot_and_its_tail_is_a_start_from_the_whole_log() {
    for seed in 0..6 {
        let (mut signer, folder) = signer();
        let mut random = Random::from_seed(100 + seed);
        let signed = storm(&mut signer, seed, 150, |signer, now| {
            if random.below(30) == 0 {
                signer.snapshot(90 * DAY, after(now)).unwrap();
            }
            if random.below(30) == 0 {
                assert_eq!(stored(&folder), *signer.state(), "seed {seed}");
            }
        });
        assert!(signed > 40, "{signed}");
        assert!(folder.files().iter().filter(|name| name.starts_with("snapshot-")).count() > 1);
        assert_eq!(stored(&folder), *signer.state(), "seed {seed}");
        let whole = knowing_since(signer.state(), stored(&without_snapshots(&folder)));
        assert_eq!(whole, *signer.state(), "seed {seed}, the whole log");
    }
}

#[test]
fn what_was_forgotten_stays_forgotten_after_a_start() {
    let (mut signer, folder) = signer();
    let mut random = Random::from_seed(5);
    let mut counts = Vec::new();
    storm(&mut signer, 11, 300, |signer, now| {
        if random.below(20) == 0 {
            let before = signer.state().slots.count();
            // All jobs of the world are made at its beginning: they are forgotten as a whole, once.
            signer.snapshot(if now > DAY { DAY } else { 30 * DAY }, after(now)).unwrap();
            counts.push((before, signer.state().slots.count()));
            assert_eq!(stored(&folder), *signer.state());
        }
    });
    assert!(
        counts.iter().any(|(before, now)| before > now) && counts.iter().any(|(before, _)| *before > 10),
        "{counts:?}"
    );
    assert_eq!(stored(&folder), *signer.state());
}

/// Entries of any content, as a log could have them: more than the rules would ever let through.
fn any_entry(random: &mut Random, number: i64) -> Entry {
    let any = |random: &mut Random| Hash(sha256(&random.below(50).to_be_bytes()));
    let any_job = |random: &mut Random| {
        let number = 1 + i64::try_from(random.below(400)).unwrap();
        if random.below(3) == 0 { JobId::Job(number) } else { job(number) }
    };
    let chain = ["bsc", "btc", "btc-2", "a", "0123456789abcdef"][random.index(5)];
    let input =
        |random: &mut Random| -> Slot { format!("{chain}:{}:{}", any(random), random.below(12)).parse().unwrap() };
    let held = match random.below(3) {
        0 => {
            let account = stranger(u32::try_from(random.below(5)).unwrap()).evm();
            Held::Nonce(format!("{chain}:{account}:{}", random.below(40)).parse().unwrap())
        }
        1 => Held::Inputs((0..random.below(5)).map(|_| input(random)).collect()),
        _ => Held::Until(i64::try_from(random.below(1 << 40)).unwrap()),
    };
    let fee = [0, 7, u128::from(u64::MAX), u128::from(u64::MAX) + 1, u128::MAX][random.index(5)];
    let record = JobRecord {
        payment: any(random),
        round: u32::try_from(random.below(3)).unwrap(),
        held,
        cancelled: false,
        cancels: (0..random.below(6).saturating_sub(3)).map(|_| any_job(random)).collect(),
        intent: any(random),
        approved: (random.below(3) == 0).then(|| any(random)),
        builds: (0..random.below(6).saturating_sub(3))
            .map(|built| (any(random), u32::try_from(built).unwrap()))
            .collect(),
        fee: RawText(raw(fee)),
        payload: any(random),
    };
    let output = || SpentOutput(tx::TxHash([u8::try_from(number % 200).unwrap(); 32]), 4);
    let effects = Effects {
        payload: record.payload,
        jobs: vec![(any_job(random), record)],
        counted: vec![("native".to_owned(), RawText(raw(fee)))],
        amounts: if number % 3 == 0 { vec![(output(), random.below(1 << 50))] } else { Vec::new() },
    };
    let approval = |counter| ApprovalText {
        digest: Hash([9; 32]),
        key: "bob".parse().unwrap(),
        person: "bob".parse().unwrap(),
        counter,
    };
    let decision = Decision {
        at: NOW + number * MINUTE,
        request: format!("r-{}", random.below(500)).parse().unwrap(),
        content: any(random),
        policy: 1,
        rule: "any".to_owned(),
        chain: chain.to_owned(),
        group: group("hot-bsc"),
        intents: Vec::new(),
        approvals: vec![approval(u32::try_from(random.below(3_000)).unwrap())],
        fee: None,
        fee_added: RawText(raw(fee)),
        indexes: Vec::new(),
        change: Vec::new(),
        again: Vec::new(),
    };
    match random.below(20) {
        0 => Entry::Revoked {
            at: NOW + number,
            digest: any(random),
            person: "bob".parse().unwrap(),
            key: "bob".parse().unwrap(),
        },
        1 if number % 100 == 7 => {
            Entry::Policy { at: NOW + number, text: policy(2), effective: NOW + number + HOUR, signed_by: Vec::new() }
        }
        2 => Entry::Refused { decision, code: "CODE".to_owned(), why: "why".to_owned() },
        _ => Entry::Approved { decision, effects },
    }
}

/// A log with such entries, and its state.
fn any_log(seed: u64, entries: i64, policies: usize) -> (Log<FaultyFolder>, FaultyFolder, State) {
    let folder = FaultyFolder::new(seed);
    let (mut log, mut state) = Log::open(folder.clone(), None).unwrap();
    let mut random = Random::from_seed(seed);
    let first = Entry::Policy { at: NOW, text: policy(1), effective: NOW, signed_by: Vec::new() };
    let first = std::iter::repeat_n(first, policies);
    let made: Vec<Entry> = first.chain((0..entries).map(|number| any_entry(&mut random, number))).collect();
    for batch in made.chunks(40) {
        batch.iter().for_each(|entry| state.apply(entry).unwrap());
        log.append(batch).unwrap();
    }
    (log, folder, state)
}

#[test]
fn any_state_comes_back_from_its_snapshot_and_from_its_entries() {
    for seed in 0..12 {
        let (mut log, folder, state) = any_log(seed, 1_200, 1);
        assert!(state.slots.count() > 300 && !state.amounts.is_empty() && !state.revoked.is_empty());
        assert_eq!(stored(&folder), state, "seed {seed}: from the entries");
        log.snapshot(&state).unwrap();
        assert_eq!(stored(&folder), state, "seed {seed}: from the snapshot");
        // Nothing that follows the snapshot differs, either.
        let mut random = Random::from_seed(seed + 900);
        let (mut one, mut other) = (state, stored(&folder));
        for number in 0..200 {
            let entry = any_entry(&mut random, 2_000 + number);
            one.apply(&entry).unwrap();
            other.apply(&entry).unwrap();
        }
        assert_eq!(one, other, "seed {seed}");
        let before = domain::Timestamp::from_micros(NOW - MINUTE);
        one.forget(before);
        other.forget(before);
        assert!(one == other && one != stored(&folder), "seed {seed}");
    }
}

#[test]
fn an_entry_is_read_as_it_was_written_and_says_first_what_it_is() {
    let (_, folder, _) = any_log(9, 400, 1);
    let mut kinds = std::collections::BTreeSet::new();
    walk(&folder, |_, entry| {
        let text = serde_json::to_string(entry).unwrap();
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), *entry);
        let (kind, rest) = text.strip_prefix('{').unwrap().split_once(',').unwrap();
        kinds.insert(kind.to_owned());
        let behind = format!("{{{},{kind}}}", rest.strip_suffix('}').unwrap());
        assert!(serde_json::from_str::<Entry>(&behind).is_err(), "{behind}");
        assert!(serde_json::from_str::<Entry>(&format!("{{{rest}")).is_err(), "it does not say what it is");
        assert!(serde_json::from_str::<Entry>(&text.replacen("entry\":\"", "entry\":\"x", 1)).is_err());
    })
    .unwrap();
    assert_eq!(kinds.len(), 4, "{kinds:?}");
}

fn snapshot_name(folder: &FaultyFolder) -> String {
    folder.files().into_iter().rfind(|name| name.starts_with("snapshot-")).unwrap()
}

fn is_damaged(folder: &FaultyFolder, bytes: Vec<u8>) -> bool {
    let copy = folder.copy();
    copy.put(&snapshot_name(folder), Some(bytes));
    matches!(Log::open(copy, None), Err(LogError::Damaged { .. }))
}

#[test]
fn a_snapshot_that_is_cut_longer_or_changed_is_damaged() {
    // Without a policy, which takes long to read, every place; with one, some.
    for (policies, step) in [(0, 1), (1, 97)] {
        let (mut log, folder, state) = any_log(3, 25, policies);
        log.snapshot(&state).unwrap();
        folder.put("log-00000000000000000001", None);
        assert_eq!(stored(&folder), state);
        let bytes = folder.read(&snapshot_name(&folder));
        for length in (0..bytes.len()).step_by(step) {
            assert!(is_damaged(&folder, bytes[..length].to_vec()), "cut to {length} of {}", bytes.len());
        }
        assert!(is_damaged(&folder, [&bytes[..], &[0]].concat()));
        let mut random = Random::from_seed(4);
        for _ in 0..3_000 / step {
            let mut changed = bytes.clone();
            let bit = random.index(bytes.len() * 8);
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(is_damaged(&folder, changed), "bit {bit}");
        }
    }
}

/// Whoever can write the file can make its hash fit. No bytes may make the start panic or take memory that is not in the file.
#[test]
fn bytes_whose_hash_fits_are_a_state_or_damaged_and_never_a_panic() {
    let (mut log, folder, state) = any_log(5, 120, 0);
    log.snapshot(&state).unwrap();
    let bytes = folder.read(&snapshot_name(&folder));
    let content = &bytes[..bytes.len() - 32];
    let mut random = Random::from_seed(6);
    let (mut damaged, tries) = (0, 6_000);
    for _ in 0..tries {
        let mut changed = content.to_vec();
        for _ in 0..=random.below(3) {
            let at = random.index(changed.len());
            match random.below(4) {
                0 => changed.truncate(at.max(30)),
                1 => changed[at] = u8::try_from(random.below(256)).unwrap(),
                // Lengths have their first bytes zero: a list without an end.
                2 => changed[at] = 0xff,
                _ => drop(changed.splice(at..at, [0; 8])),
            }
        }
        let same = changed == content;
        let check = sha256(&changed);
        changed.extend_from_slice(&check);
        let is_damaged = is_damaged(&folder, changed);
        assert!(!(same && is_damaged));
        damaged += usize::from(is_damaged);
    }
    // Behind the last record there is nothing, whatever the hash covers.
    let longer = [content, &[0]].concat();
    assert!(is_damaged(&folder, [&longer[..], &sha256(&longer)].concat()));
    // A hash or an amount can be any other; most of the rest cannot.
    assert!(damaged > tries / 4, "{damaged} of {tries}");
}

#[test]
fn signing_goes_on_while_a_snapshot_is_written() {
    let (mut signer, folder) = signer();
    storm(&mut signer, 21, 80, |_, _| {});
    let at = 80 * 20 * MINUTE;
    let taken = signer.take_snapshot(90 * DAY, after(at)).unwrap().unwrap();
    let as_taken = signer.state().clone();
    // The file is not whole yet: a start reads the log.
    approved(&mut signer, &evm(700, 700, 5).at(at).request("meanwhile"), at);
    assert_eq!(knowing_since(signer.state(), stored(&folder)), *signer.state());
    let written = std::thread::scope(|threads| threads.spawn(|| taken.write()).join().unwrap()).unwrap();
    approved(&mut signer, &evm(701, 701, 5).at(at).request("not-named-yet"), at);
    assert_eq!(knowing_since(signer.state(), stored(&folder)), *signer.state());
    let replayed = signer.since_snapshot();
    signer.finish_snapshot(&written).unwrap();
    assert_eq!((signer.since_snapshot(), replayed > 2), (2, true));
    assert_eq!(stored(&folder), *signer.state());
    assert_ne!(as_taken, *signer.state());
    // The first segment is not needed any more: the snapshot is what was taken, and two entries follow.
    let first = folder.files().into_iter().find(|name| name.starts_with("log-")).unwrap();
    folder.put(&first, None);
    assert_eq!(stored(&folder), *signer.state());
    // One that is never finished leaves the log as it is.
    approved(&mut signer, &evm(702, 702, 5).at(at).request("again"), at);
    drop(signer.take_snapshot(90 * DAY, after(at)).unwrap().unwrap());
    approved(&mut signer, &evm(703, 703, 5).at(at).request("and-again"), at);
    let mut signer = reopen(&folder, Some(signer.head()), at);
    assert_eq!(stored(&folder), *signer.state());
    signer.snapshot(90 * DAY, after(at)).unwrap();
    assert_eq!(signer.since_snapshot(), 0);
    assert_eq!(stored(&folder), *signer.state());
}

/// Written by the version at commit aef58f8, by the storm of seed 7: 160 steps, with snapshots after 60 and 120.
fn older_versions_folder() -> (FaultyFolder, Head) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/log-v1");
    let folder = FaultyFolder::new(1);
    for file in std::fs::read_dir(&path).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        if name != "head" {
            folder.put(&name, Some(std::fs::read(file.path()).unwrap()));
        }
    }
    let head = std::fs::read_to_string(path.join("head")).unwrap();
    let (entries, hash) = head.trim().split_once(' ').unwrap();
    (folder, Head { entries: entries.parse().unwrap(), hash: hash.parse().unwrap() })
}

#[test]
fn an_older_versions_log_and_snapshots_open_and_mean_the_same() {
    let (folder, head) = older_versions_folder();
    assert_eq!(folder.files().len(), 5);
    let whole = knowing_since(&stored(&folder), stored(&without_snapshots(&folder)));
    assert_eq!(stored(&folder), whole);
    // The snapshot in the middle, too.
    let middle = folder.copy();
    middle.put(&snapshot_name(&folder), None);
    assert_eq!(knowing_since(&whole, stored(&middle)), whole);
    // It is this very log, and the same life makes it again, byte for byte.
    let (mut again, made) = signer();
    let mut step = 0;
    storm(&mut again, 7, 160, |signer, now| {
        step += 1;
        if step == 60 || step == 120 {
            signer.snapshot(30 * DAY, after(now)).unwrap();
        }
    });
    assert_eq!((again.head(), again.state()), (head, &whole));
    for name in folder.files().iter().filter(|name| name.starts_with("log-")) {
        // This version leaves room behind the last frame.
        assert!(made.frames(name) == folder.read(name), "{name}");
    }
    // And it goes on: from the old snapshot, and from one of ours after it.
    let now = 160 * 20 * MINUTE;
    let mut signer = reopen(&folder, Some(head), now);
    approved(&mut signer, &evm(700, 700, 5).at(now).request("goes-on"), now);
    signer.snapshot(90 * DAY, after(now)).unwrap();
    assert_eq!(stored(&folder), *signer.state());
    // A flipped bit of the old one is noticed.
    let (folder, head) = older_versions_folder();
    let name = snapshot_name(&folder);
    let mut bytes = folder.read(&name);
    bytes[5_000] ^= 1;
    folder.put(&name, Some(bytes));
    assert!(matches!(Log::open(folder, Some(head)), Err(LogError::Damaged { .. })));
}

#[test]
fn a_slot_has_one_text_and_operators_sign_it_in_the_order_of_texts() {
    let account = own("hot-bsc", 0).to_string();
    let transaction = "ab".repeat(32);
    for text in
        [format!("bsc:{account}:0"), format!("a-2:{account}:18446744073709551615"), format!("btc:{transaction}:10")]
    {
        assert_eq!(text.parse::<Slot>().unwrap().to_string(), text);
    }
    for text in [
        format!("bsc:{}:0", account.to_lowercase()),
        format!("bsc:{account}:00"),
        format!("bsc:{account}:+1"),
        format!("bsc:{account}:18446744073709551616"),
        format!("BSC:{account}:1"),
        format!("{account}:1"),
        format!("btc:{}:1", transaction.to_uppercase()),
        format!("btc:0x{transaction}:1"),
        format!("btc:{transaction}:4294967296"),
        format!("btc:{transaction}:01"),
        String::new(),
    ] {
        assert!(text.parse::<Slot>().is_err(), "{text}");
    }
    let claim = Claim::Inputs([2, 10, 1, 100].map(|output| (tx::TxHash([0xab; 32]), output)).to_vec());
    let slots: Vec<Slot> =
        claimed(&claim).into_iter().map(|place| Slot { chain: "btc".parse().unwrap(), place }).collect();
    let text = Held::Inputs(slots.clone()).text();
    assert_eq!(text, [1, 10, 100, 2].map(|output| format!("btc:{transaction}:{output}")).join(","));
    let json = serde_json::to_value(Held::Inputs(slots)).unwrap();
    assert_eq!(json["inputs"][1], format!("btc:{transaction}:10"));
    let (nonce, input) = (format!("bsc:{account}:0"), format!("btc:{transaction}:10"));
    let reads = |json: serde_json::Value| serde_json::from_value::<Held>(json).is_ok();
    assert!(reads(serde_json::json!({ "nonce": nonce })) && reads(serde_json::json!({ "inputs": [input] })));
    assert!(!reads(serde_json::json!({ "nonce": input })) && !reads(serde_json::json!({ "inputs": [input, nonce] })));
}
