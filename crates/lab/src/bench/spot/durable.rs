//! What the files cost: a start from the log or from a snapshot, and the operations while a snapshot is taken.

use std::sync::Arc;
use std::time::Duration;

use domain::Clock;
use domain::id::{Generator, NodeId};
use domain::random::Random;
use serde_json::{Value, json};
use spot::service::Limits;
use spot::sim::{SegmentHeader, prepare};
use spot::{Core, Disk, Engine, Request, Settings, SpotError};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::Failure;

use super::speed::{Measured, Source, funding, in_process, nanos};
use super::{Site, USERS, bug, disk_trouble, rounded};

/// Writes so many operations in batches of 4096, then times the start of the engine from them alone.
pub(super) fn recovery(site: &Site, operations: u64) -> Result<Value, Failure> {
    let folder = site.new_log("recovery")?;
    let settings = Settings::default();
    let ids = Arc::new(Generator::new(SystemClock, NodeId::new(3).ok_or_else(|| bug("node"))?));
    let (mut core, _) = Core::open(Arc::new(Disk::lock(&folder)?), &settings, &mut |_| {})?;
    let mut source = Source { ids: Arc::clone(&ids), random: Random::from_seed(1) };
    let mut run = |requests: &[Request]| -> Result<(), SpotError> {
        core.begin(SystemClock.now());
        for request in requests {
            core.answer(request);
        }
        core.commit()
    };
    for requests in funding(&ids, USERS)?.chunks(4_096) {
        run(requests)?;
    }
    let mut written = USERS;
    while written < operations {
        let requests: Result<Vec<Request>, Failure> = (0..4_096).map(|_| source.next().map(Request::Run)).collect();
        run(&requests?)?;
        written += 4_096;
    }
    let sequence = core.log().sequence();
    drop(core);
    let watch = Stopwatch::start();
    let (core, started) = Core::open(Arc::new(Disk::lock(&folder)?), &settings, &mut |_| {})?;
    let from_log = watch.elapsed();
    if started.sequence != sequence {
        return Err(bug("batches are missing after a recovery"));
    }
    // All that the writer itself does for a snapshot: it goes on in the next segment, which is there.
    let mut core = core;
    let current = core.log().segment();
    let next = SegmentHeader { number: current.number + 1, ..current };
    prepare(&*core.storage(), &core.spare(), &next)?;
    let watch = Stopwatch::start();
    let sealed = core.seal()?;
    let stop = watch.elapsed();
    drop(core);
    let disk = Disk::lock(&folder)?;
    let watch = Stopwatch::start();
    spot::snapshot::take(&disk, sealed)?;
    let snapshot = watch.elapsed();
    drop(disk);
    let watch = Stopwatch::start();
    let (core, _) = Core::open(Arc::new(Disk::lock(&folder)?), &settings, &mut |_| {})?;
    let from_snapshot = watch.elapsed();
    drop(core);
    std::fs::remove_dir_all(&folder).map_err(|error| disk_trouble(&error))?;
    Ok(json!({
        "operations": started.operations,
        "seconds": rounded(from_log.as_secs_f64()),
        "operations_per_s": (started.operations as f64 / from_log.as_secs_f64()).round(),
        "snapshot_writer_stop_us": rounded(stop.as_secs_f64() * 1e6),
        "snapshot_seconds": rounded(snapshot.as_secs_f64()),
        "seconds_from_snapshot": rounded(from_snapshot.as_secs_f64()),
    }))
}

/// What a snapshot costs the operations that run meanwhile: one after the other on so many accounts, first in peace, then
/// while a snapshot is taken.
pub(super) async fn snapshot(site: &Site, accounts: u64) -> Result<Value, Failure> {
    let folder = site.new_log("snapshot")?;
    let (core, _) = Core::open(Arc::new(Disk::lock(&folder)?), &Settings::default(), &mut |_| {})?;
    let engine = Engine::start(core, Limits::default(), Arc::new(SystemClock)).map_err(|error| disk_trouble(&error))?;
    let ids = Arc::new(Generator::new(SystemClock, NodeId::new(4).ok_or_else(|| bug("node"))?));
    for requests in funding(&ids, accounts.max(USERS))?.chunks(4_096) {
        engine.submit(requests.to_vec()).await.map_err(bug)?;
    }
    let peace = in_process(&engine, &ids, 1, Duration::from_secs(1)).await?;
    let watch = Stopwatch::start();
    let taking = tokio::spawn({
        let engine = engine.clone();
        async move { engine.snapshot().await }
    });
    let mut source = Source { ids, random: Random::from_seed(9) };
    let mut latencies = Vec::new();
    let mut before = watch.elapsed();
    while !taking.is_finished() {
        engine.ask(source.next()?).await.map_err(bug)?;
        let now = watch.elapsed();
        latencies.push(nanos(now - before));
        before = now;
    }
    taking.await.map_err(bug)??;
    let during = Measured::of(latencies, watch.elapsed());
    engine.stop().await;
    let longest = |measured: &Measured| rounded(measured.latencies.last().map_or(0.0, |nanos| f64::from(*nanos) / 1e3));
    Ok(json!({
        "accounts": accounts.max(USERS),
        "seconds": rounded(watch.elapsed().as_secs_f64()),
        "operations_meanwhile": during.latencies.len(),
        "p50_us_in_peace": rounded(peace.quantile_us(500)),
        "p50_us": rounded(during.quantile_us(500)),
        "longest_us_in_peace": longest(&peace),
        "longest_us": longest(&during),
    }))
}
