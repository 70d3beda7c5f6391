//! Nothing leaves before its entry is durable, and whatever left is remembered, wherever the power goes.

use std::collections::BTreeMap;

use signer::log::{Head, Log, LogError, walk};
use signer::names::RequestId;
use signer::policy::judge::Counter;
use signer::{Authorizer, SignRequest, SignerRefusal};
use tx::Coin;

use crate::faulty::{Faults, FaultyFolder};
use crate::world::*;

/// Batches of a short life: payments, a refusal, a replacement, Bitcoin, a snapshot in between.
fn batches() -> Vec<Vec<SignRequest>> {
    let bitcoin = bitcoin_request("btc", &[coin_input(1, 5, 80_000)], &[(70, 60_000)]);
    vec![
        vec![evm(1, 1, 1_000).request("a"), evm(2, 2, 2_000).request("b")],
        vec![evm(3, 3, 4_000).request("c"), evm(3, 4, 4_000).request("refused"), bitcoin],
        vec![evm(1, 1, 1_000).gas_price(20).request("a-again"), tron(80, 8_000, Coin::Native, 0, HOUR)],
        vec![evm(4, 5, 16_000).request("d")],
        vec![evm(5, 6, 32_000).request("e"), evm(6, 7, 64_000).request("f")],
    ]
}

/// What left the signer before it died.
#[derive(Default)]
struct Left {
    approved: BTreeMap<RequestId, SignRequest>,
    head: Option<Head>,
}

fn live(folder: &FaultyFolder, left: &mut Left) -> Result<(), LogError> {
    let mut signer = Authorizer::open(folder.clone(), left.head, after(0))?;
    let text = policy(1);
    match signer.apply_policy(text.as_bytes(), &signed(&text, &["ada", "ben"]), after(0)) {
        Ok(_) => left.head = Some(signer.head()),
        Err(signer::authorizer::ApplyError::Log(error)) => return Err(error),
        Err(error) => panic!("{error}"),
    }
    let mut taken = None;
    for (number, batch) in batches().iter().enumerate() {
        let answer = signer.decide(batch, after(0), &Wallets)?;
        left.head = Some(answer.head);
        for (request, verdict) in batch.iter().zip(answer.verdicts) {
            if verdict.approved().is_some() {
                left.approved.insert(request.id.clone(), request.clone());
            }
        }
        // A snapshot is taken after one batch, and written and finished after the next one.
        if let Some(taken) = taken.take() {
            finish(&mut signer, taken)?;
        }
        match number {
            1 => taken = signer.take_snapshot(30 * DAY, after(0))?,
            // And one while nothing is signed.
            3 => signer.snapshot(30 * DAY, after(0))?,
            _ => {}
        }
    }
    signer.drop_old_snapshots()
}

fn finish(
    signer: &mut Authorizer<FaultyFolder>,
    taken: signer::log::TakenSnapshot<crate::faulty::FaultyFile>,
) -> Result<(), LogError> {
    let written = taken.write()?;
    signer.finish_snapshot(&written)
}

/// Holds the signer of the next life against what left in the one before.
fn check(folder: &FaultyFolder, left: &Left, note: &str) {
    let mut signer =
        Authorizer::open(folder.clone(), left.head, after(0)).unwrap_or_else(|error| panic!("{note}: {error}"));
    let mut logged: BTreeMap<RequestId, u128> = BTreeMap::new();
    walk(folder, |_, entry| {
        if let signer::log::entry::Entry::Approved { decision, effects } = entry {
            let sum = effects.counted.iter().map(|(_, amount)| u128::try_from(amount.0.to_u256()).unwrap()).sum();
            assert_eq!(logged.insert(decision.request.clone(), sum), None, "{note}: an entry twice");
        }
    })
    .unwrap_or_else(|error| panic!("{note}: {error}"));
    for (id, request) in &left.approved {
        assert!(logged.contains_key(id), "{note}: {id} left without its entry");
        if signer.policy(after(0)).is_some() {
            assert_eq!(approved(&mut signer, request, 0), "replay", "{note}: {id}");
        }
    }
    // The counters are the sum of the entries, whatever snapshot they come from.
    let counted: u128 =
        logged.iter().filter(|(id, _)| !["btc", "tron-80-0"].contains(&id.as_str())).map(|(_, sum)| sum).sum();
    let spent = signer.state().spent.spent("bsc", &group("hot-bsc"), &Counter::Coin(Coin::Native), after(0).date);
    assert_eq!(spent.day, raw(counted), "{note}");
    // Slots and amounts stand: another job gets none of them.
    if left.approved.contains_key(&"b".parse().unwrap()) {
        assert_eq!(
            refusal(&mut signer, &evm(99, 2, 5).request("thief"), 0),
            SignerRefusal::SlotTaken(job(2)),
            "{note}"
        );
    }
    if left.approved.contains_key(&"btc".parse().unwrap()) {
        let lie = bitcoin_request("lie", &[coin_input(1, 5, 90_000)], &[(70, 60_000)]);
        assert_eq!(refusal(&mut signer, &lie, 0), SignerRefusal::AmountContradicts, "{note}");
    }
}

/// How many operations such a life takes, with so much room ahead of the log.
fn operations(room: usize) -> u64 {
    let folder = FaultyFolder::new(1);
    folder.set_room(room);
    live(&folder, &mut Left::default()).unwrap();
    folder.operations()
}

#[test]
fn a_crash_at_any_step_loses_no_entry_and_no_counter() {
    // None at all, less than a frame, a few frames, all of them.
    let rooms = [0, 100, 3_000, 30_000].map(|room| (room, operations(room)));
    assert!(rooms.iter().all(|(_, steps)| *steps > 40), "{rooms:?}");
    let mut crashes = 0;
    for (seed, (room, steps)) in (0..).zip(rooms.iter().flat_map(|room| [room; 4])) {
        for step in 0..*steps {
            let folder = FaultyFolder::new(seed);
            folder.set_room(*room);
            let mut left = Left::default();
            folder.set_faults(Faults { power_after: Some(step), short_writes: seed % 2 == 1, ..Faults::default() });
            assert!(live(&folder, &mut left).is_err() || seed % 2 == 1, "step {step}");
            if seed % 4 == 3 {
                folder.kill()
            } else {
                folder.crash()
            }
            let note = format!("step {step}, seed {seed}, room {room}");
            check(&folder, &left, &note);
            // The life after goes on where this one ended, and comes to the same end.
            live(&folder, &mut left).unwrap_or_else(|error| panic!("{note}: {error}"));
            check(&folder, &left, &note);
            assert_eq!(left.approved.len(), 9, "{note}");
            crashes += 1;
        }
    }
    println!("{crashes} crashes in {rooms:?}");
    assert!(crashes >= 640);
}

#[test]
fn a_full_disk_or_a_failed_sync_stops_the_signer_until_it_is_started_again() {
    let full = {
        let folder = FaultyFolder::new(1);
        live(&folder, &mut Left::default()).unwrap();
        folder.files().iter().map(|name| folder.read(name).len()).sum::<usize>()
    };
    // Full before, in the middle of and after each write.
    for capacity in (0..full + 500).step_by(97) {
        let folder = FaultyFolder::new(1);
        let mut left = Left::default();
        folder.set_faults(Faults { capacity: Some(capacity), ..Faults::default() });
        if live(&folder, &mut left).is_ok() {
            continue;
        }
        folder.kill();
        check(&folder, &left, &format!("capacity {capacity}"));
        live(&folder, &mut left).unwrap();
    }
    let (mut signer, folder) = signer();
    folder.set_faults(Faults { sync_fails: true, ..Faults::default() });
    let request = evm(1, 1, 5).request("a");
    let batch = std::slice::from_ref(&request);
    assert!(matches!(signer.decide(batch, after(0), &Wallets), Err(LogError::Storage { what: "sync", .. })));
    assert!(matches!(signer.decide(batch, after(0), &Wallets), Err(LogError::Stopped)), "the disk is fine again");
    assert!(matches!(signer.decide(&[], after(0), &Wallets), Err(LogError::Stopped)));
    folder.crash();
    approved(&mut reopen(&folder, None, 0), &request, 0);
}

/// A folder with two segments and a snapshot, and its head.
fn written() -> (FaultyFolder, Head) {
    let folder = FaultyFolder::new(1);
    let mut left = Left::default();
    live(&folder, &mut left).unwrap();
    (folder, left.head.unwrap())
}

#[test]
fn any_flipped_bit_is_noticed() {
    let (folder, head) = written();
    for name in folder.files() {
        let (bytes, frames) = (folder.read(&name), folder.frames(&name).len());
        for bit in 0..bytes.len() * 8 {
            // Every bit of what is short, a bit of every fifth byte of what is long.
            if bytes.len() > 400 && (bit / 8 % 5 != 0 || bit % 8 != bit / 40 % 8) {
                continue;
            }
            let copy = folder.copy();
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            copy.put(&name, Some(changed));
            // A start reads the newest snapshot and what follows. The whole chain is read by `verify`.
            let opened = Log::open(copy.clone(), Some(head)).map(|_| ());
            let verified = walk(&copy, |_, _| {}).map(|found| found == head);
            if name.starts_with("log-") && bit / 8 >= frames {
                // The room behind the last frame, where nothing was.
                assert!(opened.is_ok() && matches!(verified, Ok(true)), "{name}, bit {bit} of the room");
                continue;
            }
            let newest = name == newest(&folder, "snapshot-") || name == newest(&folder, "log-");
            assert!(!newest || opened.is_err(), "{name}, bit {bit}: started");
            assert!(name.starts_with("snapshot-") || !matches!(verified, Ok(true)), "{name}, bit {bit}: verified");
        }
    }
}

/// Nobody has a head here: the log itself must show that what follows was durable once.
#[test]
fn damage_before_the_last_frame_stops_the_start_without_anybodys_help() {
    let (mut signer, folder) = signer();
    for number in 0..4_i64 {
        approved(&mut signer, &evm(number, u64::try_from(number).unwrap(), 5).request(&format!("d-{number}")), 0);
    }
    let name = newest(&folder, "log-");
    let before = folder.frames(&name).len();
    approved(&mut signer, &evm(9, 9, 5).request("last"), 0);
    let bytes = folder.read(&name);
    for byte in 0..before {
        let copy = folder.copy();
        let mut changed = bytes.clone();
        changed[byte] ^= 1 << (byte % 8);
        copy.put(&name, Some(changed));
        assert!(matches!(Log::open(copy, None), Err(LogError::Damaged { .. })), "byte {byte}");
    }
    // A frame that is gone as a whole, too.
    let copy = folder.copy();
    let frame = bytes.windows(4).rposition(|four| four == b"BSL1").unwrap();
    let last = &bytes[frame..];
    let second = bytes[..frame].windows(4).rposition(|four| four == b"BSL1").unwrap();
    copy.put(&name, Some([&bytes[..second], last].concat()));
    assert!(matches!(Log::open(copy, None), Err(LogError::Damaged { .. })));
}

fn newest(folder: &FaultyFolder, prefix: &str) -> String {
    folder.files().into_iter().rfind(|name| name.starts_with(prefix)).unwrap()
}

#[test]
fn a_log_that_is_cut_removed_swapped_or_rolled_back_is_noticed() {
    let (folder, head) = written();
    let name = newest(&folder, "log-");
    let bytes = folder.frames(&name);
    // Cut anywhere, even between two entries, where nothing is torn.
    for length in 0..bytes.len() {
        let copy = folder.copy();
        copy.put(&name, Some(bytes[..length].to_vec()));
        assert!(Log::open(copy, Some(head)).is_err(), "cut to {length}");
    }
    // A file less.
    for name in folder.files() {
        let copy = folder.copy();
        copy.put(&name, None);
        let oldest = !name.ends_with(&newest(&folder, "log-")[4..]) && !name.starts_with("snapshot-");
        let verified = walk(&copy, |_, _| {}).map(|found| found == head);
        assert!(
            Log::open(copy, Some(head)).is_err() || !matches!(verified, Ok(true)) || name.starts_with("snapshot-"),
            "{name} {oldest}"
        );
    }
    // Yesterday's folder is good in itself; whoever has today's head does not take it.
    let (mut signer, folder) = signer();
    let yesterday = folder.copy();
    approved(&mut signer, &evm(1, 1, 5).request("a"), 0);
    let pinned = signer.head();
    assert!(matches!(Log::open(yesterday.copy(), Some(pinned)), Err(LogError::RolledBack { .. })));
    let mut other = reopen(&yesterday, None, 0);
    approved(&mut other, &evm(2, 1, 5).request("b"), 0);
    assert!(matches!(Log::open(yesterday, Some(pinned)), Err(LogError::Diverged { .. })));
    assert!(other.check_pinned(&pinned).is_err() && signer.check_pinned(&pinned).is_ok());
    assert!(Log::open(FaultyFolder::new(3), Some(pinned)).is_err(), "an empty folder");
}

#[test]
fn a_start_after_a_snapshot_reads_only_what_came_after() {
    let (mut signer, folder) = signer();
    for number in 0..200_i64 {
        approved(&mut signer, &evm(number, u64::try_from(number).unwrap(), 5).request(&format!("s-{number}")), 0);
    }
    signer.snapshot(30 * DAY, after(0)).unwrap();
    approved(&mut signer, &evm(900, 900, 5).request("after"), 0);
    let before = signer.state().clone();
    let head = signer.head();
    // The first segment may be read by nobody at all.
    let first = folder.files().into_iter().find(|name| name.starts_with("log-")).unwrap();
    folder.put(&first, None);
    let (log, state) = Log::open(folder, Some(head)).unwrap();
    assert_eq!((log.head(), state), (head, before));
}

#[test]
fn a_real_folder_is_one_processs_alone() {
    use signer::log::folder::DiskFolder;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("signer");
    let disk = DiskFolder::exclusive(&path).unwrap().unwrap();
    assert!(DiskFolder::exclusive(&path).unwrap().is_none(), "another one has it");
    let mut signer = Authorizer::open(disk, None, after(0)).unwrap();
    let text = policy(1);
    signer.apply_policy(text.as_bytes(), &signed(&text, &["ada", "ben"]), after(0)).unwrap();
    let request = evm(1, 1, 5).request("a");
    let answer = signer.decide(std::slice::from_ref(&request), after(0), &Wallets).unwrap();
    signer.snapshot(DAY, after(0)).unwrap();
    drop(signer);
    let disk = DiskFolder::exclusive(&path).unwrap().unwrap();
    let mut signer = Authorizer::open(disk, Some(answer.head), after(0)).unwrap();
    let again = signer.decide(&[request], after(0), &Wallets).unwrap();
    assert_eq!(again.verdicts[0].approved(), answer.verdicts[0].approved());
    assert_eq!(walk(&DiskFolder::for_reading(&path), |_, _| {}).unwrap(), answer.head);
}
