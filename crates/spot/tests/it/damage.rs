//! Files that are not as they were written. The start is right or refused, never wrong.

use crate::common::{LOG, NOW, applied, batch, create, deposit, open, segment, user, withdraw};
use domain::{Amount, AssetId};
use spot::log::BLOCK;
use spot::sim::FaultyDisk;
use spot::snapshot::{self, snapshot_name, snapshots};
use spot::{Operation, Settle};

/// A log of five records in segment 1 (the last of more than one block), and the digest after each of them.
fn small_log(close: bool) -> (FaultyDisk, Vec<u64>) {
    let disk = FaultyDisk::new(1);
    let mut core = create(&disk);
    let mut digests = vec![core.state().digest()];
    let many: Vec<Operation> = (100..300).map(|number| deposit(number, number % 7 + 1, 5)).collect();
    let batches: [&[Operation]; 5] = [
        &[deposit(1, 1, 100), deposit(2, 2, 100)],
        &[withdraw(3, 1, 30), withdraw(4, 2, 300)],
        &many,
        &[Operation::Rollback(crate::common::of(3, 1, 30))],
        &many[..0],
    ];
    for operations in &batches[..4] {
        batch(&mut core, operations).expect("durable");
        digests.push(core.state().digest());
    }
    // A trade without fees: its last 16 bytes are zeros.
    let mut last: Vec<Operation> = (300..312).map(|number| deposit(number, 3, 2)).collect();
    last.push(Operation::Settle(Settle {
        id: crate::common::op_id(312),
        buyer: user(1),
        seller: user(2),
        fees: user(3),
        base: AssetId(1),
        quote: AssetId(2),
        base_amount: Amount::from_units(5),
        quote_amount: Amount::from_units(5),
        buyer_fee: Amount::ZERO,
        seller_fee: Amount::ZERO,
    }));
    batch(&mut core, &last).expect("durable");
    digests.push(core.state().digest());
    if close {
        core.close().expect("closed");
    }
    (disk, digests)
}

/// Where each record begins, and where the log ends.
fn offsets(disk: &FaultyDisk) -> Vec<usize> {
    let mut offsets = Vec::new();
    let end = spot::log::read::walk(disk, None, 1, None, |record| {
        offsets.push(usize::try_from(record.offset).expect("small"));
        Ok(())
    });
    offsets.push(usize::try_from(end.expect("sound").offset).expect("small"));
    offsets
}

#[test]
fn a_log_torn_at_every_offset_of_its_last_two_records_goes_back_to_the_record_before() {
    let (disk, digests) = small_log(false);
    let offsets = offsets(&disk);
    let [.., fourth, fifth, end] = offsets[..] else { panic!("{offsets:?}") };
    let whole = disk.read(&segment(1)).expect("there");
    for cut in fourth..end {
        let torn = FaultyDisk::new(2);
        let mut bytes = whole.clone();
        bytes[cut..].fill(0);
        // Zeros at the end of a block were there before.
        let complete = |from: usize, to: usize| bytes[from..to] == whole[from..to];
        let expected = 3 + usize::from(complete(fourth, fifth)) + usize::from(complete(fourth, end));
        torn.put(&segment(1), bytes.clone());
        let lost: u32 = bytes.iter().zip(&whole).map(|(now, then)| (now ^ then).count_ones()).sum();
        if lost == 1 {
            // Nothing tells this from rot, and rot may have hit what was acknowledged.
            assert_eq!(open(&torn).err().expect("refused").code(), "SPOT_LOG_DAMAGED");
            continue;
        }
        let (mut core, started) = open(&torn).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        assert_eq!(core.state().digest(), digests[expected], "cut at {cut}");
        assert_eq!(started.sequence, expected as u64, "cut at {cut}");
        // The engine goes on from there and writes over the remains.
        if cut.is_multiple_of(97) {
            assert_eq!(batch(&mut core, &[deposit(900, 1, 1)]).expect("durable"), applied(1));
            let after = core.state().digest();
            drop(core);
            assert_eq!(open(&torn).expect("sound").0.state().digest(), after, "cut at {cut}");
        }
    }
}

#[test]
fn a_file_cut_short_at_every_offset_of_its_last_two_records_is_refused() {
    let (disk, _) = small_log(false);
    let offsets = offsets(&disk);
    let [.., fourth, _, end] = offsets[..] else { panic!("{offsets:?}") };
    let whole = disk.read(&segment(1)).expect("there");
    for cut in (fourth..end).chain([0, 1, 63, 64, BLOCK, whole.len() - 1]) {
        let short = FaultyDisk::new(2);
        short.put(&segment(1), whole[..cut].to_vec());
        let error = open(&short).err().unwrap_or_else(|| panic!("cut at {cut}: it started"));
        assert_eq!(error.code(), "SPOT_LOG_DAMAGED", "cut at {cut}: {error}");
        assert!(error.to_string().contains(&segment(1)), "{error}");
    }
}

/// Flips one bit at each of the offsets; the start must be refused, or be right.
fn flip_bits(disk: &FaultyDisk, name: &str, offsets: impl Iterator<Item = usize>, digest: u64) -> (usize, usize) {
    let whole = disk.read(name).expect("there");
    let (mut right, mut refused) = (0, 0);
    let flipped = disk.copy(3);
    for offset in offsets {
        let mut bytes = whole.clone();
        bytes[offset] ^= 1 << (offset % 8);
        flipped.put(name, bytes);
        match open(&flipped) {
            Ok((core, _)) => {
                assert_eq!(core.state().digest(), digest, "bit {} of byte {offset} of {name}", offset % 8);
                right += 1;
            }
            Err(error) => {
                let known = ["SPOT_LOG_DAMAGED", "SPOT_LOG_FOREIGN", "SPOT_LOG_NEWER"];
                assert!(known.contains(&error.code()), "byte {offset}: {error}");
                refused += 1;
            }
        }
    }
    (right, refused)
}

#[test]
fn one_bit_flipped_at_every_offset_is_noticed_or_harmless() {
    // Every offset of a log that was not closed; a sample of one that was.
    for (close, step) in [(false, 1), (true, 13)] {
        let (disk, digests) = small_log(close);
        let end = *offsets(&disk).last().expect("an end");
        let offsets = (0..end + 2 * BLOCK).step_by(step);
        let (right, refused) = flip_bits(&disk, &segment(1), offsets, digests[5]);
        // Headers and operations are noticed; padding and the unused rest do not matter.
        assert!(right > BLOCK / step && refused > 200 * 32 / step, "{right} right, {refused} refused");
    }
}

#[test]
fn a_damaged_record_names_the_file_and_the_offset() {
    let (disk, _) = small_log(true);
    let second = offsets(&disk)[1];
    let mut bytes = disk.read(&segment(1)).expect("there");
    bytes[second + 80] ^= 0xff;
    bytes[second + 90] ^= 0xff;
    disk.put(&segment(1), bytes);
    let error = open(&disk).err().expect("refused").to_string();
    assert!(error.contains(&format!("{} is damaged at offset {second}", segment(1))), "{error}");
    assert!(error.contains("behind it"), "{error}");
    let verified = spot::tools::verify(&disk, &mut |_| {}, &mut |_, _, _| {});
    assert_eq!(verified.err().expect("refused").to_string(), error);
}

/// A log with two snapshots and a segment after each.
fn log_with_snapshots() -> (FaultyDisk, u64) {
    let disk = FaultyDisk::new(5);
    let mut core = create(&disk);
    for round in 0..3 {
        let first = round * 100;
        let operations: Vec<Operation> = (first..first + 60).map(|number| deposit(number, number % 9 + 1, 7)).collect();
        batch(&mut core, &operations).expect("durable");
        if round < 2 {
            let sealed = core.seal().expect("sealed");
            assert!(snapshot::take(&disk, sealed).expect("taken").is_some());
        }
    }
    let digest = core.state().digest();
    (disk, digest)
}

#[test]
fn a_snapshot_torn_at_every_offset_gives_way_to_the_older_one() {
    let (disk, digest) = log_with_snapshots();
    assert_eq!(snapshots(&disk).expect("listed"), [2, 1]);
    let name = snapshot_name(2);
    let whole = disk.read(&name).expect("there");
    for cut in 0..whole.len() {
        let torn = disk.copy(6);
        let mut bytes = whole[..cut].to_vec();
        if cut % 2 == 0 {
            // The length was durable, the bytes were not.
            bytes.resize(whole.len(), 0);
        }
        let same = bytes == whole;
        torn.put(&name, bytes);
        let (core, started) = open(&torn).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        assert_eq!(core.state().digest(), digest, "cut at {cut}");
        assert_eq!(
            (started.snapshot, started.unusable.len()),
            if same { (Some(2), 0) } else { (Some(1), 1) },
            "cut at {cut}"
        );
    }
    let (right, refused) = flip_bits(&disk, &name, 0..whole.len(), digest);
    assert_eq!((right, refused), (whole.len(), 0));
}

#[test]
fn with_no_snapshot_left_the_start_is_refused() {
    let (disk, _) = log_with_snapshots();
    for batch in [1, 2] {
        let mut bytes = disk.read(&snapshot_name(batch)).expect("there");
        bytes[40] ^= 1;
        disk.put(&snapshot_name(batch), bytes);
    }
    assert!(disk.read(&segment(1)).is_none(), "the two snapshots made it superfluous");
    let error = open(&disk).err().expect("refused");
    assert_eq!(error.code(), "SPOT_LOG_DAMAGED", "{error}");
    assert!(error.to_string().contains(&snapshot_name(2)), "{error}");
}

#[test]
fn with_its_only_snapshot_gone_the_whole_log_stands_in() {
    let disk = FaultyDisk::new(5);
    let mut core = create(&disk);
    batch(&mut core, &[deposit(1, 1, 5)]).expect("durable");
    let sealed = core.seal().expect("sealed");
    snapshot::take(&disk, sealed).expect("taken");
    batch(&mut core, &[deposit(2, 1, 5)]).expect("durable");
    let digest = core.state().digest();
    drop(core);
    disk.put(&snapshot_name(1), vec![0; 100]);
    let (mut core, started) = open(&disk).expect("sound");
    assert_eq!((core.state().digest(), started.snapshot, started.unusable.len()), (digest, None, 1));
    // The next snapshot sets the damaged one aside: it must not count as one of the two that are kept.
    let sealed = core.seal().expect("sealed");
    snapshot::take(&disk, sealed).expect("taken");
    assert_eq!(snapshots(&disk).expect("listed"), [2]);
    assert!(disk.read(&format!("{}.damaged", snapshot_name(1))).is_some());
    assert!(disk.read(&segment(1)).is_some());
}

#[test]
fn a_missing_segment_is_refused() {
    let (disk, _) = log_with_snapshots();
    let copy = FaultyDisk::new(8);
    copy.put(&snapshot_name(2), disk.read(&snapshot_name(2)).expect("there"));
    // The segment before it does not replace it.
    copy.put(&segment(2), disk.read(&segment(2)).expect("there"));
    let verified = spot::tools::verify(&copy, &mut |_| {}, &mut |_, _, _| {});
    assert_eq!(verified.err().expect("refused").code(), "SPOT_LOG_INCOMPLETE");
    let error = open(&copy).err().expect("refused");
    assert_eq!(error.code(), "SPOT_LOG_INCOMPLETE", "{error}");
    assert!(error.to_string().contains(&segment(3)), "{error}");
    // Nor does an older snapshot, from which all that is left can be read.
    copy.put(&snapshot_name(1), disk.read(&snapshot_name(1)).expect("there"));
    let verified = spot::tools::verify(&copy, &mut |_| {}, &mut |_, _, _| {});
    assert!(verified.err().expect("refused").to_string().contains(&segment(3)));
}

#[test]
fn a_segment_of_another_log_is_refused() {
    let (disk, _) = log_with_snapshots();
    let other = FaultyDisk::new(9);
    spot::Core::create(&other, LOG + 1, &crate::common::settings()).expect("a new log");
    disk.put(&segment(4), {
        let mut bytes = other.read(&segment(1)).expect("there");
        let header = spot::sim::SegmentHeader { log_id: LOG + 1, number: 4, bytes: 1 << 20 };
        bytes[..64].copy_from_slice(&header.encode());
        bytes
    });
    let error = open(&disk).err().expect("refused");
    assert_eq!(error.code(), "SPOT_LOG_FOREIGN", "{error}");
    // A snapshot of another log is the one that is named, not the segments.
    let (disk, _) = log_with_snapshots();
    let stranger = FaultyDisk::new(9);
    spot::Core::create(&stranger, LOG + 1, &crate::common::settings()).expect("a new log");
    let (mut core, _) = open(&stranger).expect("opened");
    for number in 0..5 {
        batch(&mut core, &[deposit(number, 1, 1)]).expect("durable");
        let sealed = core.seal().expect("sealed");
        if number == 2 {
            snapshot::take(&stranger, sealed).expect("taken");
        }
    }
    disk.put(&snapshot_name(3), stranger.read(&snapshot_name(3)).expect("there"));
    let mut blank = disk.read(&segment(3)).expect("there");
    blank[..64].copy_from_slice(&spot::sim::SegmentHeader { log_id: LOG, number: 4, bytes: 1 << 20 }.encode());
    blank[64..].fill(0);
    disk.put(&segment(4), blank);
    let error = open(&disk).err().expect("refused");
    assert_eq!(error.code(), "SPOT_LOG_FOREIGN", "{error}");
    assert!(error.to_string().starts_with(&snapshot_name(3)), "{error}");
}

#[test]
fn damage_in_what_a_snapshot_covers_does_not_keep_the_engine_from_starting() {
    let (disk, digest) = log_with_snapshots();
    spoil(&disk, 2, BLOCK + 70);
    assert_eq!(open(&disk).expect("the newest snapshot holds it").0.state().digest(), digest);
    let verified = spot::tools::verify(&disk, &mut |_| {}, &mut |_, _, _| {});
    assert_eq!(verified.err().expect("found").code(), "SPOT_LOG_DAMAGED");
}

#[test]
fn a_gap_between_segments_is_refused() {
    let disk = FaultyDisk::new(10);
    let mut core = create(&disk);
    for round in 0..3 {
        batch(&mut core, &[deposit(round, 1, 1)]).expect("durable");
        core.seal().expect("sealed");
    }
    let renamed = disk.read(&segment(3)).expect("there");
    drop(core);
    // Segment 2 was lost, and segment 3 stands in its place, with its name and its number.
    let mut header = renamed.clone();
    header[..64].copy_from_slice(&spot::sim::SegmentHeader { log_id: LOG, number: 2, bytes: 1 << 20 }.encode());
    disk.put(&segment(2), header);
    let error = open(&disk).err().expect("refused");
    assert_eq!(error.code(), "SPOT_LOG_DAMAGED");
    assert!(error.to_string().contains("batch 3 follows batch 1"), "{error}");
}

#[test]
fn a_record_that_decides_otherwise_than_it_did_is_refused() {
    let disk = FaultyDisk::new(11);
    let mut core = create(&disk);
    batch(&mut core, &[deposit(1, 1, 5)]).expect("durable");
    drop(core);
    // The same bytes with another decision, under a good checksum: a version with other rules would have written them.
    let mut bytes = disk.read(&segment(1)).expect("there");
    let header = bytes[BLOCK..BLOCK + 64].first_chunk::<64>().expect("64 bytes");
    let mut record = spot::sim::RecordHeader::decode(header).expect("a header");
    record.decisions ^= 1;
    bytes[BLOCK..BLOCK + 64].copy_from_slice(&record.encode());
    disk.put(&segment(1), bytes);
    assert_eq!(open(&disk).err().expect("refused").code(), "SPOT_LOG_DIVERGED");
}

#[test]
fn a_newer_format_is_never_taken_for_a_torn_tail() {
    let (disk, _) = small_log(false);
    let last = offsets(&disk)[4];
    let mut bytes = disk.read(&segment(1)).expect("there");
    bytes[last + 8] = 3;
    let checksum = crc32c::crc32c(&bytes[last..last + 60]);
    bytes[last + 60..last + 64].copy_from_slice(&checksum.to_le_bytes());
    disk.put(&segment(1), bytes);
    assert_eq!(open(&disk).err().expect("refused").code(), "SPOT_LOG_NEWER");
}

#[test]
fn a_folder_without_a_log_is_not_taken_for_an_empty_one() {
    let disk = FaultyDisk::new(12);
    assert_eq!(open(&disk).err().expect("refused").code(), "SPOT_LOG_MISSING");
    let mut core = create(&disk);
    batch(&mut core, &[deposit(1, 1, 5)]).expect("durable");
    let again = spot::Core::create(&disk, 1, &crate::common::settings());
    assert_eq!(again.expect_err("refused").code(), "SPOT_LOG_EXISTS");
    assert_eq!(core.state().window().time, NOW);
}

/// Three segments with one batch each; segment 3 holds the last.
fn three_segments() -> (FaultyDisk, u64) {
    let disk = FaultyDisk::new(13);
    let mut core = create(&disk);
    for number in 1..=3 {
        batch(&mut core, &[deposit(number, 1, 5)]).expect("durable");
        if number < 3 {
            core.seal().expect("sealed");
        }
    }
    (disk, core.state().digest())
}

fn spoil(disk: &FaultyDisk, number: u64, at: usize) {
    let mut bytes = disk.read(&segment(number)).expect("there");
    bytes[at..at + 20].fill(0xaa);
    disk.put(&segment(number), bytes);
}

#[test]
fn a_damaged_batch_is_not_taken_for_torn_because_the_next_is_torn_too() {
    let (disk, _) = three_segments();
    spoil(&disk, 2, BLOCK + 70);
    spoil(&disk, 3, BLOCK + 70);
    let error = open(&disk).err().expect("refused").to_string();
    assert!(error.contains(&format!("{} is damaged at offset {BLOCK}", segment(2))), "{error}");
}

#[test]
fn the_last_batch_of_a_segment_that_others_follow_is_missed() {
    let (disk, _) = three_segments();
    spoil(&disk, 2, BLOCK + 70);
    let error = open(&disk).err().expect("refused").to_string();
    assert!(error.contains(&format!("{} is damaged at offset {BLOCK}", segment(2))), "{error}");
    // A batch that is gone without a trace is missed too.
    let (disk, _) = three_segments();
    let mut bytes = disk.read(&segment(2)).expect("there");
    bytes[BLOCK..].fill(0);
    disk.put(&segment(2), bytes);
    let error = open(&disk).err().expect("refused").to_string();
    assert!(error.contains("batch 3 follows batch 1"), "{error}");
}

#[test]
fn rot_behind_the_last_batch_of_a_segment_does_not_matter() {
    let (disk, digest) = three_segments();
    spoil(&disk, 2, 3 * BLOCK + 70);
    spoil(&disk, 1, 9 * BLOCK);
    assert_eq!(open(&disk).expect("every batch is there").0.state().digest(), digest);
}
