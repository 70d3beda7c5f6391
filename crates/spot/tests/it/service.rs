//! The running engine: batches, bounds, snapshots under load, and the ways it ends.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use domain::{AssetId, ManualClock};
use spot::service::{Ended, Limits};
use spot::sim::{Faults, FaultyDisk};
use spot::storage::File;
use spot::{Answer, Core, Decision, Disk, Engine, NoAnswer, Request, Storage};

use crate::common::{NOW, applied, create, deposit, open, settings, user, withdraw};

fn start<S: Storage>(core: Core<S>, limits: Limits) -> Engine {
    Engine::start(core, limits, Arc::new(ManualClock::at(NOW))).expect("threads")
}

#[tokio::test]
async fn what_is_answered_is_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = || Arc::new(Disk::exclusive(folder.path()).expect("opened").expect("free"));
    Core::create(&*disk(), 7, &settings()).expect("a new log");
    let (core, _) = Core::open(disk(), &settings(), &mut |_| {}).expect("opened");
    let engine = start(core, Limits::default());
    let requests: Vec<Request> = (1..=500).map(|number| deposit(number, 1, 2).into()).collect();
    assert_eq!(engine.submit(requests).await.expect("answered"), applied(500));
    assert_eq!(engine.ask(withdraw(501, 1, 1_000)).await, Ok(Answer::First(Decision::Applied)));
    assert_eq!(engine.ask(withdraw(501, 1, 1_000)).await, Ok(Answer::Replay(Decision::Applied)));
    assert!(Disk::exclusive(folder.path()).expect("looked").is_none(), "the folder is taken");
    assert!(matches!(engine.stop().await, Ended::Asked));
    assert_eq!(engine.ask(deposit(502, 1, 1)).await, Err(NoAnswer::Stopped));
    let (core, started) = Core::open(disk(), &settings(), &mut |_| {}).expect("sound");
    assert_eq!(started.torn, None);
    assert_eq!(core.state().balance(user(1), AssetId(1)).expect("there").available.units(), 0);
    assert_eq!(core.state().standings().count(), 501);
}

/// Nobody asked it anything for nine days; then it was killed. The next start believes a clock that never jumped.
#[tokio::test]
async fn an_idle_engine_keeps_its_own_time_on_the_disk() {
    let disk = FaultyDisk::new(21);
    let clock = Arc::new(ManualClock::at(NOW));
    let limits = Limits { idle: std::time::Duration::from_millis(1), ..Limits::default() };
    let engine = Engine::start(create(&disk), limits, clock.clone()).expect("threads");
    engine.ask(deposit(1, 1, 1)).await.expect("answered");
    let mut now = NOW;
    for _ in 0..9 {
        now = now.plus_micros(24 * 3_600_000_000);
        clock.set(now);
        let logged = async {
            while !open(&disk).is_ok_and(|(core, _)| core.state().window().time == now) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), logged).await.expect("the time is in the log");
    }
    disk.kill();
    let (core, _) = open(&disk).expect("sound");
    assert!(!core.clock_is_ahead(now.plus_micros(3_600_000_000)));
    assert!(core.clock_is_ahead(now.plus_micros(8 * 24 * 3_600_000_000)), "a jump is still not believed");
}

#[tokio::test]
async fn the_last_handle_closes_the_log() {
    let disk = FaultyDisk::new(1);
    let engine = start(create(&disk), Limits::default());
    engine.ask(deposit(1, 1, 1)).await.expect("answered");
    let other = engine.clone();
    drop(engine);
    other.ask(deposit(2, 1, 1)).await.expect("answered");
    let mut ended = Box::pin(other.ended());
    assert!(tokio::time::timeout(std::time::Duration::from_millis(20), &mut ended).await.is_err(), "it runs");
    drop(ended);
    drop(other);
    for _ in 0..200 {
        // The close is a third record.
        if open(&disk).is_ok_and(|(_, started)| started.sequence == 3) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the log was not closed");
}

/// A disk whose syncs wait until the gate is opened, and under which the snapshot thread panics on demand.
#[derive(Clone)]
struct Gated {
    disk: FaultyDisk,
    gate: Arc<(Mutex<bool>, Condvar)>,
    panics: Arc<AtomicBool>,
}

struct GatedFile(<FaultyDisk as Storage>::File, Arc<(Mutex<bool>, Condvar)>);

impl Gated {
    /// Open, and without panics.
    fn new(disk: FaultyDisk) -> Self {
        Self { disk, gate: Arc::new((Mutex::new(true), Condvar::new())), panics: Arc::default() }
    }

    fn set(&self, open: bool) {
        *self.gate.0.lock().expect("not poisoned") = open;
        self.gate.1.notify_all();
    }
}

impl Storage for Gated {
    type File = GatedFile;

    fn names(&self) -> io::Result<Vec<String>> {
        let in_snapshot = std::thread::current().name() == Some("spot-snapshots");
        assert!(!(in_snapshot && self.panics.load(Ordering::SeqCst)), "on purpose");
        self.disk.names()
    }
    fn create(&self, name: &str) -> io::Result<GatedFile> {
        Ok(GatedFile(self.disk.create(name)?, Arc::clone(&self.gate)))
    }
    fn open(&self, name: &str) -> io::Result<GatedFile> {
        Ok(GatedFile(self.disk.open(name)?, Arc::clone(&self.gate)))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory()
    }
    fn describe(&self, name: &str) -> String {
        self.disk.describe(name)
    }
}

impl File for GatedFile {
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buffer, at)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.0.write_at(bytes, at)
    }
    fn forget_cached(&self) -> io::Result<()> {
        self.0.forget_cached()
    }
    fn sync(&self) -> io::Result<()> {
        let open = self.1.0.lock().expect("not poisoned");
        drop(self.1.1.wait_while(open, |open| !*open).expect("not poisoned"));
        self.0.sync()
    }
}

#[tokio::test]
async fn nothing_is_answered_before_the_sync_and_too_much_is_refused_at_once() {
    let disk = FaultyDisk::new(2);
    drop(create(&disk));
    let gated = Gated::new(disk);
    let (core, _) = Core::open(Arc::new(gated.clone()), &settings(), &mut |_| {}).expect("opened");
    let engine = start(core, Limits { queue: 4_096, ..Limits::default() });
    engine.ask(deposit(1, 1, 10)).await.expect("answered");
    gated.set(false);
    let first = engine.enqueue(vec![withdraw(2, 1, 5).into()]).expect("taken");
    let mut first = Box::pin(first.answers());
    // Reads wait too: they would tell of what is not durable yet.
    let read = engine.enqueue(vec![Request::Balance { user: user(1), asset: AssetId(1) }]).expect("taken");
    let mut read = Box::pin(read.answers());
    let pause = std::time::Duration::from_millis(50);
    assert!(tokio::time::timeout(pause, &mut first).await.is_err(), "answered before it was durable");
    assert!(tokio::time::timeout(pause, &mut read).await.is_err(), "told before it was durable");
    let filler: Vec<Request> = (10..10 + 4_000).map(|number| deposit(number, 2, 1).into()).collect();
    let waiting = engine.enqueue(filler.clone()).expect("there is room");
    assert_eq!(engine.enqueue(filler.clone()).err(), Some(NoAnswer::Busy));
    assert_eq!(engine.enqueue(vec![filler[0]; 4_097]).err(), Some(NoAnswer::Size));
    assert_eq!(engine.enqueue(Vec::new()).err(), Some(NoAnswer::Size));
    gated.set(true);
    assert_eq!(first.await.expect("answered"), applied(1));
    let Answer::Balance(Some(balance)) = read.await.expect("answered")[0] else { panic!("no balance") };
    assert_eq!(balance.available.units(), 5);
    assert_eq!(waiting.answers().await.expect("answered").len(), 4_000);
    assert_eq!(engine.submit(filler).await.expect("room again").len(), 4_000);
}

#[tokio::test]
async fn a_failing_disk_ends_the_engine_and_whoever_waits_is_told() {
    let disk = FaultyDisk::new(3);
    let engine = start(create(&disk), Limits::default());
    engine.ask(deposit(1, 1, 10)).await.expect("answered");
    disk.set_faults(Faults { sync_error: 1_000, ..Faults::default() });
    let asked: Vec<_> = (2..20).map(|number| engine.enqueue(vec![deposit(number, 1, 1).into()])).collect();
    for pending in asked {
        match pending {
            Ok(pending) => assert_eq!(pending.answers().await, Err(NoAnswer::Stopped)),
            Err(none) => assert_eq!(none, NoAnswer::Stopped),
        }
    }
    let Ended::Failed(error) = engine.ended().await else { panic!("it goes on") };
    assert_eq!(error.code(), "SPOT_STORAGE_FAILED");
    assert_eq!(engine.ask(deposit(30, 1, 1)).await, Err(NoAnswer::Stopped));
    assert_eq!(engine.snapshot().await.expect_err("stopped").code(), "SPOT_STOPPED");
}

#[tokio::test]
async fn snapshots_are_taken_under_load_and_old_files_go() {
    let disk = FaultyDisk::new(4);
    // A snapshot after each mebibyte of log at first, later whenever the log has grown by the size of the state.
    let engine = start(create(&disk), Limits { snapshot_bytes: 1, ..Limits::default() });
    for round in 0..150_i64 {
        let requests: Vec<Request> =
            (0..4_000).map(|number| deposit(round * 4_000 + number, number % 500 + 1, 1).into()).collect();
        assert_eq!(engine.submit(requests).await.expect("answered").len(), 4_000);
    }
    let header = engine.snapshot().await.expect("taken").expect("there was something new");
    assert_eq!(engine.snapshot().await.expect("taken"), None, "nothing new since");
    assert_eq!(header.ids, 600_000);
    assert!(matches!(engine.stop().await, Ended::Asked));
    let kept = spot::snapshot::snapshots(&disk).expect("listed");
    assert_eq!((kept.len(), kept[0]), (2, header.sequence));
    let verified = spot::tools::verify(&disk, &mut |_| {}, &mut |_, _, _| {}).expect("sound");
    assert_eq!(verified.snapshots.len(), 2);
    assert!(verified.segments < 20, "{} segments are left", verified.segments);
    assert_eq!(verified.state.totals().next().expect("an asset").1.units(), 600_000);
    let (core, started) = open(&disk).expect("sound");
    assert_eq!(started.snapshot, Some(header.sequence));
    assert_eq!(core.state().digest(), verified.state.digest());
}

#[tokio::test]
async fn a_snapshot_that_fails_is_counted_and_the_engine_goes_on() {
    let disk = FaultyDisk::new(5);
    let engine = start(create(&disk), Limits::default());
    engine.ask(deposit(1, 1, 10)).await.expect("answered");
    engine.snapshot().await.expect("taken").expect("new");
    engine.ask(deposit(2, 1, 10)).await.expect("answered");
    // The segment is damaged under the running engine: the snapshot, which reads it back, finds this.
    let mut bytes = disk.read(&crate::common::segment(2)).expect("there");
    let name = crate::common::segment(2);
    bytes[4_096 + 70] ^= 0xff;
    disk.put(&name, bytes);
    assert_eq!(engine.snapshot().await.expect_err("damaged").code(), "SPOT_LOG_DAMAGED");
    assert_eq!(engine.counters().snapshot_failures.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(engine.ask(deposit(3, 1, 10)).await, Ok(Answer::First(Decision::Applied)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_panics_is_reported_and_taken_after_a_pause() {
    let disk = FaultyDisk::new(5);
    drop(create(&disk));
    let gated = Gated::new(disk);
    let (core, _) = Core::open(Arc::new(gated.clone()), &settings(), &mut |_| {}).expect("opened");
    let engine = start(core, Limits::default());
    engine.ask(deposit(1, 1, 10)).await.expect("answered");
    gated.panics.store(true, Ordering::SeqCst);
    let asked = tokio::spawn({
        let engine = engine.clone();
        async move { engine.snapshot().await }
    });
    while !engine.counters().snapshots_panicking.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.ask(deposit(2, 1, 10)).await, Ok(Answer::First(Decision::Applied)), "the writer goes on");
    gated.panics.store(false, Ordering::SeqCst);
    asked.await.expect("no panic").expect("taken").expect("new");
    assert!(!engine.counters().snapshots_panicking.load(Ordering::Relaxed), "it is well again");
    // An engine that ends does not wait for a pause to be over.
    gated.panics.store(true, Ordering::SeqCst);
    engine.ask(deposit(3, 1, 10)).await.expect("answered");
    let asked = tokio::spawn({
        let engine = engine.clone();
        async move { engine.snapshot().await }
    });
    while !engine.counters().snapshots_panicking.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    assert!(matches!(engine.stop().await, Ended::Asked));
    assert_eq!(asked.await.expect("no panic").expect_err("stopped").code(), "SPOT_STOPPED");
    let (core, _) = open(&gated.disk).expect("sound");
    assert_eq!(core.state().totals().next().expect("an asset").1.units(), 30, "every deposit is there");
}

/// Seals race with the thread that prepares segments, and with full segments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_asked_for_without_pause_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = || Arc::new(Disk::exclusive(folder.path()).expect("opened").expect("free"));
    Core::create(&*disk(), 7, &settings()).expect("a new log");
    let (core, _) = Core::open(disk(), &settings(), &mut |_| {}).expect("opened");
    let engine = start(core, Limits { snapshot_bytes: 1, ..Limits::default() });
    let asking = {
        let engine = engine.clone();
        tokio::spawn(async move {
            let (mut taken, mut running) = (0, 0);
            while taken < 30 {
                let (one, other) = tokio::join!(engine.snapshot(), engine.snapshot());
                for result in [one, other] {
                    match result {
                        Ok(_) => taken += 1,
                        Err(error) => {
                            assert_eq!(error.code(), "SPOT_SNAPSHOT_RUNNING");
                            running += 1;
                        }
                    }
                }
            }
            (taken, running)
        })
    };
    let mut number = 0;
    while !asking.is_finished() {
        // Small batches: each takes a block, so that segments fill up too, and the state stays small.
        let requests: Vec<Request> = (0..2).map(|one| deposit(number + one, 1, 1).into()).collect();
        assert_eq!(engine.submit(requests).await.expect("answered"), applied(2));
        number += 2;
    }
    let (taken, running) = asking.await.expect("no panic");
    assert!(taken >= 30 && running > 0, "{taken} taken, {running} refused");
    engine.stop().await;
    let (core, _) = Core::open(disk(), &settings(), &mut |_| {}).expect("sound");
    assert_eq!(core.state().totals().next().expect("an asset").1.units(), number);
    let verified = spot::tools::verify(&Disk::for_reading(folder.path()), &mut |_| {}, &mut |_, _, _| {});
    assert_eq!(verified.expect("sound").state.digest(), core.state().digest());
}

#[tokio::test]
async fn a_running_engine_outlasts_a_clock_that_jumps_and_comes_back() {
    let clock = Arc::new(ManualClock::at(NOW));
    let engine = Engine::start(create(&FaultyDisk::new(6)), Limits::default(), clock.clone()).expect("threads");
    engine.ask(deposit(1, 1, 10)).await.expect("answered");
    let ahead = NOW.plus_micros(40 * 24 * 3_600_000_000);
    clock.set(ahead);
    let id = spot::OpId::new(domain::id::first_at(ahead)).expect("positive");
    let from_ahead = spot::Operation::Deposit(spot::Move { id, ..crate::common::of(1, 1, 10) });
    assert_eq!(engine.ask(from_ahead).await, Ok(Answer::TooEarly));
    // A caller whose clock is right is served meanwhile, and after.
    assert_eq!(engine.ask(deposit(2, 1, 10)).await, Ok(Answer::First(Decision::Applied)));
    clock.set(NOW);
    assert_eq!(engine.ask(deposit(3, 1, 10)).await, Ok(Answer::First(Decision::Applied)));
}
