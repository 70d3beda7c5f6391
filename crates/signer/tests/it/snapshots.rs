//! The service writes snapshots beside its work: nobody waits for one, and none that fails stops anybody.

use std::time::Duration;

use signer::client::SignerClient;
use signer::service::{Limits, Standing};

use crate::faulty::{Faults, FaultyFolder};
use crate::served::*;
use crate::world::*;

const EVERY_TEN: Limits = Limits {
    connections: 128,
    header_time: Duration::from_secs(30),
    body_time: Duration::from_secs(10),
    body_bytes: 16 << 20,
    queue: 1_024,
    batch: 1_024,
    snapshot_entries: 10,
    horizon_us: 90 * DAY,
    drain: Duration::from_secs(20),
};

fn snapshots(disk: &FaultyFolder) -> Vec<String> {
    let is_whole = |name: &String| name.starts_with("snapshot-") && !name.ends_with(".new");
    disk.files().into_iter().filter(is_whole).collect()
}

fn unfinished(disk: &FaultyFolder) -> Vec<String> {
    disk.files().into_iter().filter(|name| name.ends_with(".new")).collect()
}

/// Signs one payment for each number.
async fn sign(client: &SignerClient, numbers: std::ops::Range<i64>) {
    for number in numbers {
        let request = evm(100 + number, u64::try_from(number).unwrap(), 100).request(&format!("r-{number}"));
        bytes_of(&client.sign(&[request]).await.unwrap()[0]);
    }
}

/// Another thread is at work, so this is waited for. Nothing else may happen meanwhile.
async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_while_a_snapshot_is_written() {
    let (served, disk) = Served::new(EVERY_TEN);
    let client = served.client("server");
    disk.hold_snapshots(true);
    sign(&client, 0..9).await;
    eventually("a snapshot is begun", || unfinished(&disk) == ["snapshot-00000000000000000010.new"]).await;
    // Its thread stands still. Everybody else is served, and no second snapshot is begun.
    sign(&client, 9..40).await;
    assert_eq!((snapshots(&disk).len(), unfinished(&disk).len()), (0, 1));
    // A machine that loses its power now has the log, and all of it.
    let crashed = disk.copy();
    crashed.crash();
    let next = reopen(&crashed, client.head(), 0);
    assert_eq!((next.state().requests.len(), next.head()), (40, client.head().unwrap()));
    assert_eq!((next.since_snapshot(), unfinished(&crashed).len()), (41, 0));
    disk.hold_snapshots(false);
    // What came meanwhile is behind it, and so much that the next one is due at once.
    let names = ["snapshot-00000000000000000010", "snapshot-00000000000000000041"];
    eventually("both snapshots are finished", || snapshots(&disk) == names).await;
    disk.put(names[1], None);
    let behind = reopen(&disk.copy(), client.head(), 0);
    assert_eq!((behind.since_snapshot(), behind.state().requests.len()), (31, 40));
    sign(&client, 40..52).await;
    assert!(matches!(served.stop().await, Standing::Stopped));
    let last = reopen(&disk, client.head(), 0);
    assert_eq!((last.since_snapshot(), last.state().requests.len()), (0, 52));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_replays_little_however_much_is_remembered() {
    let (served, disk) = Served::new(EVERY_TEN);
    let client = served.client("server");
    for round in 0..12 {
        sign(&client, round * 10..round * 10 + 10).await;
        eventually("a snapshot", || reopen(&disk.copy(), client.head(), 0).since_snapshot() < 10).await;
    }
    assert_eq!(reopen(&disk.copy(), client.head(), 0).state().requests.len(), 120);
    // Each is as large as all that is remembered, so old ones go.
    eventually("old ones go", || snapshots(&disk).len() == 2).await;
    assert!(matches!(served.stop().await, Standing::Stopped));
    assert_eq!(snapshots(&disk).len(), 2);
    // The log is whole without them.
    let head = signer::log::walk(&disk, |_, _| {}).unwrap();
    assert_eq!((Some(head), reopen(&disk, client.head(), 0).since_snapshot()), (client.head(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_finds_the_disk_full_stops_nobody_and_leaves_nothing() {
    let (served, disk) = Served::new(EVERY_TEN);
    let client = served.client("server");
    disk.hold_snapshots(true);
    sign(&client, 0..9).await;
    eventually("a snapshot is begun", || !unfinished(&disk).is_empty()).await;
    let used: usize = disk.files().iter().map(|name| disk.read(name).len()).sum();
    disk.set_faults(Faults { capacity: Some(used + 100), ..Faults::default() });
    disk.hold_snapshots(false);
    // What was written of it is gone, so the log has room again.
    eventually("it is given up", || unfinished(&disk).is_empty()).await;
    disk.set_faults(Faults::default());
    sign(&client, 9..12).await;
    let (_, metrics) = served.send("GET /metrics", None, b"").await;
    assert!(metrics.contains("bursar_signer_snapshots_failed_total 1\n"), "{metrics}");
    assert!(metrics.contains("bursar_signer_snapshots_total 0\n"), "{metrics}");
    assert_eq!(snapshots(&disk).len(), 0, "not tried again at once");
    // It is tried again when the log has grown.
    sign(&client, 12..20).await;
    eventually("the next try", || snapshots(&disk).len() == 1).await;
    let next = reopen(&disk.copy(), client.head(), 0);
    assert_eq!(next.state().requests.len(), 20);
    assert!(matches!(served.stop().await, Standing::Stopped));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_waits_for_the_snapshot_that_is_written() {
    let (served, disk) = Served::new(EVERY_TEN);
    let client = served.client("server");
    disk.hold_snapshots(true);
    sign(&client, 0..15).await;
    eventually("a snapshot is begun", || !unfinished(&disk).is_empty()).await;
    let service = served.service.clone();
    let stopping = tokio::spawn(served.stop());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(matches!(service.standing(), Standing::Running), "the snapshot is not written yet");
    disk.hold_snapshots(false);
    assert!(matches!(stopping.await.unwrap(), Standing::Stopped));
    assert_eq!((snapshots(&disk).len(), unfinished(&disk).len()), (2, 0));
    let next = reopen(&disk, client.head(), 0);
    assert_eq!((next.since_snapshot(), next.state().requests.len()), (0, 15));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_killed_while_it_writes_a_snapshot_loses_nothing() {
    // The power goes at every operation of the disk around a snapshot: of its thread, or of the one that decides.
    let mut lives = 0;
    for step in 0..60 {
        let (served, disk) = Served::new(EVERY_TEN);
        let settings = signer::client::ClientSettings { deadline: Duration::from_millis(100), ..QUICK };
        let first = served.client_with("server", QUICK, None);
        sign(&first, 0..8).await;
        let client = served.client_with("server", settings, first.pinned());
        disk.set_faults(Faults { power_after: Some(step), ..Faults::default() });
        let mut signed = 8;
        for number in 8..20_i64 {
            let request = evm(100 + number, u64::try_from(number).unwrap(), 100).request(&format!("r-{number}"));
            match client.sign(&[request]).await {
                Ok(answers) => bytes_of(&answers[0]),
                Err(_) => break,
            };
            signed += 1;
        }
        let head = client.head();
        let standing = served.stop().await;
        lives += usize::from(matches!(standing, Standing::Failed(_)));
        disk.crash();
        let next = reopen(&disk, head, 0);
        assert!((signed..=signed + 1).contains(&next.state().requests.len()), "step {step}: {signed}");
    }
    assert!(lives > 30, "{lives} of 60 died");
}
