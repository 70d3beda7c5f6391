//! A disk that fails while the engine runs.

use crate::common::{applied, batch, create, deposit, open, withdraw};
use spot::sim::{Faults, FaultyDisk};
use spot::{Answer, Decision, Operation, Request, snapshot};

/// What a scripted run had acknowledged before the power went.
struct Acknowledged {
    operations: Vec<Operation>,
    answers: Vec<Answer>,
}

/// Two segments' worth of batches, a snapshot in between, and a close.
fn script(disk: &FaultyDisk) -> Acknowledged {
    let mut acknowledged = Acknowledged { operations: Vec::new(), answers: Vec::new() };
    let Ok((mut core, _)) = open(disk) else { return acknowledged };
    for round in 0..6_i64 {
        let operations: Vec<Operation> = (0..5)
            .map(|number| {
                let id = round * 10 + number;
                if number < 3 { deposit(id, number + 1, 10) } else { withdraw(id, number - 2, 4) }
            })
            .collect();
        let Ok(answers) = batch(&mut core, &operations) else { return acknowledged };
        acknowledged.operations.extend(operations);
        acknowledged.answers.extend(answers);
        if round % 2 == 1 {
            let Ok(sealed) = core.seal() else { return acknowledged };
            // A snapshot that fails is no reason to stop.
            snapshot::take(disk, sealed).ok();
        }
    }
    core.close().ok();
    acknowledged
}

/// All that was acknowledged is there, no batch is half there, and the money adds up.
fn holds_what_was_acknowledged(disk: &FaultyDisk, acknowledged: &Acknowledged, context: &str) {
    let (mut core, _) = open(disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    for (operation, answer) in acknowledged.operations.iter().zip(&acknowledged.answers) {
        let Answer::First(decision) = answer else { panic!("{answer:?}") };
        assert_eq!(core.answer(&Request::Run(*operation)), Answer::Replay(*decision), "{context}");
    }
    let ids = core.state().standings().count();
    assert!(ids == acknowledged.operations.len() || ids == acknowledged.operations.len() + 5, "{context}: {ids} ids");
    let total = core.state().totals().next().map_or(0, |(_, total)| total.units());
    assert_eq!(total, i64::try_from(ids / 5).expect("small") * (30 - 8), "{context}");
}

#[test]
fn the_power_may_go_at_every_single_operation_of_the_disk() {
    let fresh = FaultyDisk::new(1);
    drop(create(&fresh));
    let started = fresh.operations();
    script(&fresh);
    let operations = fresh.operations() - started;
    assert!(operations > 60, "{operations}");
    for seed in 0..6 {
        for after in 0..=operations {
            let disk = FaultyDisk::new(seed * 10_000 + after);
            drop(create(&disk));
            disk.set_faults(Faults { power_after: Some(after), ..Faults::default() });
            let acknowledged = script(&disk);
            disk.crash();
            holds_what_was_acknowledged(&disk, &acknowledged, &format!("seed {seed}, power gone after {after}"));
        }
    }
}

#[test]
fn short_writes_and_reads_change_nothing() {
    let disk = FaultyDisk::new(2);
    drop(create(&disk));
    disk.set_faults(Faults { short_write: 1_000, ..Faults::default() });
    let acknowledged = script(&disk);
    assert_eq!(acknowledged.operations.len(), 30);
    holds_what_was_acknowledged(&disk, &acknowledged, "short writes");
}

#[test]
fn after_a_failed_sync_nothing_is_answered_any_more() {
    let disk = FaultyDisk::new(3);
    let mut core = create(&disk);
    assert_eq!(batch(&mut core, &[deposit(1, 1, 10)]).expect("durable"), applied(1));
    disk.set_faults(Faults { sync_error: 1_000, ..Faults::default() });
    let error = batch(&mut core, &[deposit(2, 1, 10)]).expect_err("refused");
    assert_eq!(error.code(), "SPOT_STORAGE_FAILED");
    // The next sync of the same file would succeed, and lie: the kernel has forgotten what it could not write.
    disk.set_faults(Faults::default());
    // The same again, a question and nothing at all decide nothing and need no write. Memory would answer, and lie too.
    assert_eq!(batch(&mut core, &[deposit(2, 1, 10)]).expect_err("stopped").code(), "SPOT_STOPPED");
    core.answer(&Request::Total(domain::AssetId(1)));
    assert_eq!(core.commit().expect_err("stopped").code(), "SPOT_STOPPED");
    assert_eq!(batch(&mut core, &[]).expect_err("stopped").code(), "SPOT_STOPPED");
    assert_eq!(batch(&mut core, &[deposit(3, 1, 10)]).expect_err("stopped").code(), "SPOT_STOPPED");
    assert_eq!(core.close().expect_err("stopped").code(), "SPOT_STOPPED");
    disk.crash();
    let (core, _) = open(&disk).expect("sound");
    assert!(core.state().standings().count() <= 2);
}

#[test]
fn a_full_disk_stops_the_engine_and_loses_nothing() {
    let disk = FaultyDisk::new(4);
    let mut core = create(&disk);
    // Room for the segment that is there, and for half of the next.
    disk.set_faults(Faults { capacity: Some((1 << 20) + (1 << 19)), ..Faults::default() });
    let mut done = 0;
    let error = loop {
        let operations: Vec<Operation> = (0..500).map(|number| deposit(done * 500 + number, 1, 1)).collect();
        match batch(&mut core, &operations) {
            Ok(answers) => assert_eq!(answers, vec![Answer::First(Decision::Applied); 500]),
            Err(error) => break error,
        }
        done += 1;
    };
    assert_eq!(error.code(), "SPOT_STORAGE_FAILED");
    assert!(done > 20, "the preallocated segment could be filled");
    assert_eq!(batch(&mut core, &[deposit(1_000_000, 1, 1)]).expect_err("stopped").code(), "SPOT_STOPPED");
    drop(core);
    disk.crash();
    let (mut core, _) = open(&disk).expect("sound");
    assert_eq!(core.state().standings().count(), usize::try_from(done).expect("small") * 500);
    assert_eq!(batch(&mut core, &[deposit(1_000_000, 1, 1)]).expect("there is room again"), applied(1));
}

#[test]
fn a_snapshot_that_does_not_fit_leaves_everything_as_it_was() {
    let disk = FaultyDisk::new(5);
    let mut core = create(&disk);
    batch(&mut core, &[deposit(1, 1, 10)]).expect("durable");
    let sealed = core.seal().expect("sealed");
    disk.set_faults(Faults { capacity: Some(2 << 20), ..Faults::default() });
    assert_eq!(snapshot::take(&disk, sealed).expect_err("full").code(), "SPOT_STORAGE_FAILED");
    disk.set_faults(Faults::default());
    assert_eq!(batch(&mut core, &[deposit(2, 1, 10)]).expect("it goes on"), applied(1));
    assert!(snapshot::take(&disk, sealed).expect("taken").is_some());
    let digest = core.state().digest();
    drop(core);
    disk.crash();
    assert_eq!(open(&disk).expect("sound").0.state().digest(), digest);
}

#[test]
fn a_clock_that_steps_back_runs_nothing_twice_and_expires_nothing_anew() {
    let disk = FaultyDisk::new(6);
    let mut core = create(&disk);
    batch(&mut core, &[deposit(1, 1, 10)]).expect("durable");
    core.begin(crate::common::NOW);
    let window = core.state().window();
    core.begin(crate::common::NOW.plus_micros(-5 * 24 * 3_600_000_000));
    assert_eq!(core.state().window(), window);
    assert_eq!(core.answer(&deposit(1, 1, 10).into()), Answer::Replay(Decision::Applied));
    assert_eq!(core.answer(&deposit(2, 1, 10).into()), Answer::First(Decision::Applied));
    core.commit().expect("durable");
    drop(core);
    let (mut core, _) = open(&disk).expect("sound");
    core.begin(crate::common::NOW.plus_micros(-9 * 24 * 3_600_000_000));
    assert_eq!(core.state().window(), window);
    assert_eq!(core.answer(&deposit(2, 1, 10).into()), Answer::Replay(Decision::Applied));
}

#[test]
fn expired_ids_stay_expired_after_a_restart_and_a_snapshot() {
    let disk = FaultyDisk::new(7);
    let mut core = create(&disk);
    batch(&mut core, &[deposit(1, 1, 10)]).expect("durable");
    // An id a retention later moves the horizon past the first.
    let week = crate::common::settings().retention_micros;
    let later = crate::common::NOW.plus_micros(week + 2_000_000);
    let late = |number: i64| {
        let id = spot::OpId::new(domain::id::first_at(later) + number).expect("positive");
        Operation::Deposit(spot::Move { id, ..crate::common::of(1, 1, 10) })
    };
    // Half-way there first: a clock that jumps by more than the retention is not believed.
    let half = spot::OpId::new(domain::id::first_at(crate::common::NOW.plus_micros(week / 2))).expect("positive");
    let half = Operation::Deposit(spot::Move { id: half, ..crate::common::of(1, 1, 10) });
    for (time, operation) in [(crate::common::NOW.plus_micros(week / 2), half), (later, late(1)), (later, late(2))] {
        core.begin(time);
        assert_eq!(core.answer(&operation.into()), Answer::First(Decision::Applied));
        core.commit().expect("durable");
    }
    assert_eq!(core.answer(&deposit(1, 1, 10).into()), Answer::Expired);
    let sealed = core.seal().expect("sealed");
    snapshot::take(&disk, sealed).expect("taken");
    let digest = core.state().digest();
    drop(core);
    let (mut core, started) = open(&disk).expect("sound");
    assert_eq!(started.snapshot, Some(4));
    assert_eq!(core.state().digest(), digest);
    assert_eq!(core.answer(&deposit(1, 1, 10).into()), Answer::Expired);
    assert_eq!(core.answer(&late(1).into()), Answer::Replay(Decision::Applied));
}

#[test]
fn a_late_order_for_a_segment_does_not_replace_the_one_in_use() {
    let disk = FaultyDisk::new(8);
    let mut core = create(&disk);
    batch(&mut core, &[deposit(1, 1, 10)]).expect("durable");
    core.seal().expect("sealed");
    batch(&mut core, &[deposit(2, 1, 10)]).expect("durable");
    // The thread that prepares segments comes to this order only now.
    let header = core.log().segment();
    assert_eq!(header.number, 2);
    spot::sim::prepare(&disk, &core.spare(), &header).expect("nothing to do");
    batch(&mut core, &[deposit(3, 1, 10)]).expect("durable");
    let digest = core.state().digest();
    drop(core);
    disk.crash();
    assert_eq!(open(&disk).expect("sound").0.state().digest(), digest);
}

#[test]
fn what_a_killed_process_left_behind_is_durable_before_anything_is_answered_from_it() {
    for seed in 0..40 {
        let disk = FaultyDisk::new(seed);
        let mut core = create(&disk);
        batch(&mut core, &[deposit(1, 1, 10)]).expect("durable");
        // Killed between the write and the sync: the record is there to be read, and on no disk.
        disk.set_faults(Faults { power_after: Some(1), ..Faults::default() });
        batch(&mut core, &[deposit(2, 1, 10)]).expect_err("killed");
        disk.kill();
        let (mut core, started) = open(&disk).expect("sound");
        assert_eq!(started.sequence, 2);
        // A replay needs no write, so nothing else would sync it.
        assert_eq!(batch(&mut core, &[deposit(2, 1, 10)]).expect("answered"), [Answer::Replay(Decision::Applied)]);
        disk.crash();
        assert_eq!(open(&disk).expect("sound").1.sequence, 2, "seed {seed}");
    }
}

#[test]
fn what_a_failed_sync_left_in_memory_is_not_believed() {
    for seed in 0..40 {
        let disk = FaultyDisk::new(seed);
        let mut core = create(&disk);
        batch(&mut core, &[deposit(1, 1, 10)]).expect("durable");
        disk.set_faults(Faults { sync_error: 1_000, ..Faults::default() });
        batch(&mut core, &[deposit(2, 1, 10)]).expect_err("the sync fails");
        // Started again without a reboot: the kernel still shows what it failed to write, and calls it clean.
        disk.kill();
        let found = open(&disk).expect("sound").1.sequence;
        disk.crash();
        assert_eq!(open(&disk).expect("sound").1.sequence, found, "seed {seed}");
    }
}

#[test]
fn a_snapshot_that_can_be_read_again_hides_nothing_written_meanwhile() {
    let disk = FaultyDisk::new(9);
    let mut core = create(&disk);
    for number in 1..=2 {
        batch(&mut core, &[deposit(number, 1, 10)]).expect("durable");
        let sealed = core.seal().expect("sealed");
        snapshot::take(&disk, sealed).expect("taken");
    }
    drop(core);
    // The newest cannot be read for a while. The engine starts from the one before and goes on in segment 3, because
    // segment 2 has another one after it.
    let name = snapshot::snapshot_name(2);
    let whole = disk.read(&name).expect("there");
    disk.put(&name, vec![0; 50]);
    let (mut core, started) = open(&disk).expect("sound");
    assert_eq!((started.snapshot, started.sequence), (Some(1), 2));
    batch(&mut core, &[deposit(3, 1, 10)]).expect("durable");
    let digest = core.state().digest();
    drop(core);
    disk.put(&name, whole);
    let (core, started) = open(&disk).expect("sound");
    assert_eq!((started.snapshot, started.sequence), (Some(2), 3));
    assert_eq!(core.state().digest(), digest);
    let verified = spot::tools::verify(&disk, &mut |_| {}, &mut |_, _, _| {}).expect("sound");
    assert_eq!(verified.state.digest(), digest);
}

#[test]
fn expired_stays_true_after_a_crash_and_under_a_longer_retention() {
    let short = spot::Settings { retention_micros: 3_600_000_000, ..crate::common::settings() };
    let disk = FaultyDisk::new(10);
    spot::Core::create(&disk, 1, &short).expect("a new log");
    let start = |settings: &spot::Settings| {
        spot::Core::open(std::sync::Arc::new(disk.clone()), settings, &mut |_| {}).expect("sound").0
    };
    let mut core = start(&short);
    batch(&mut core, &[deposit(1, 1, 10)]).expect("durable");
    let old = Operation::Deposit(spot::Move {
        id: spot::OpId::new(domain::id::first_at(crate::common::NOW.plus_micros(-7_200_000_000))).expect("positive"),
        ..crate::common::of(1, 1, 10)
    });
    // Nothing is decided in this batch; its answer is a promise all the same.
    assert_eq!(batch(&mut core, &[old]).expect("durable"), [Answer::Expired]);
    drop(core);
    disk.crash();
    let mut core = start(&crate::common::settings());
    assert_eq!(batch(&mut core, &[old]).expect("answered"), [Answer::Expired]);
}

#[test]
fn a_clock_that_is_ahead_by_more_than_the_retention_is_not_believed() {
    let disk = FaultyDisk::new(11);
    let mut core = create(&disk);
    batch(&mut core, &[deposit(1, 1, 10)]).expect("durable");
    let ahead = crate::common::NOW.plus_micros(40 * 24 * 3_600_000_000);
    let at = |time: domain::Timestamp, number: i64| {
        let id = spot::OpId::new(domain::id::first_at(time) + number).expect("positive");
        Operation::Deposit(spot::Move { id, ..crate::common::of(1, 1, 10) })
    };
    assert!(core.clock_is_ahead(ahead));
    core.begin(ahead);
    // The maker of ids has the same wrong clock.
    assert_eq!(core.answer(&at(ahead, 1).into()), Answer::TooEarly);
    core.commit().expect("nothing to write");
    core.begin(crate::common::NOW);
    assert_eq!(core.answer(&deposit(2, 1, 10).into()), Answer::First(Decision::Applied));
    core.commit().expect("durable");
    drop(core);
    // Unless an operator says that the clock is right.
    let accept = spot::Settings { accept_clock: true, ..crate::common::settings() };
    let (mut core, _) = spot::Core::open(std::sync::Arc::new(disk), &accept, &mut |_| {}).expect("sound");
    core.begin(ahead);
    assert_eq!(core.answer(&at(ahead, 1).into()), Answer::First(Decision::Applied));
}

#[test]
fn what_could_not_be_finished_leaves_no_file_behind() {
    use spot::Storage;
    let disk = FaultyDisk::new(12);
    let mut core = create(&disk);
    batch(&mut core, &[deposit(1, 1, 10)]).expect("durable");
    let sealed = core.seal().expect("sealed");
    disk.set_faults(Faults { capacity: Some((2 << 20) + 50), ..Faults::default() });
    snapshot::take(&disk, sealed).expect_err("full");
    batch(&mut core, &[deposit(2, 1, 10)]).expect("durable");
    core.seal().expect_err("full");
    let names = disk.names().expect("listed");
    assert!(names.iter().all(|name| !name.ends_with(".tmp")), "{names:?}");
}
