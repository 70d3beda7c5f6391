//! The engine's threads under a seed: many clients at once, snapshots between them, and the power goes at a moment that the
//! seed draws. Whatever a client was answered must be there afterwards: an answer that left before its sync is found here.
//!
//! `BURSAR_TEST_ROUNDS=10000 cargo test -p spot --test it storm` runs it for longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use domain::random::Random;
use domain::{AssetId, ManualClock};
use spot::service::Limits;
use spot::sim::{Faults, FaultyDisk};
use spot::{Answer, Engine, Operation, Request};

use crate::common::{NOW, create, deposit, open, user, withdraw};

const CLIENTS: i64 = 8;

fn rounds(short: u64) -> u64 {
    std::env::var("BURSAR_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

/// What a client was answered, in order, until the engine answered no more.
async fn client(engine: Engine, number: i64, seed: u64, next: Arc<AtomicI64>) -> Vec<(Operation, Answer)> {
    let mut random = Random::from_seed(seed ^ number.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut told = Vec::new();
    loop {
        let count = 1 + random.below(4);
        let operations: Vec<Operation> = (0..count)
            .map(|_| {
                let id = next.fetch_add(1, Ordering::Relaxed);
                if random.below(3) == 0 { withdraw(id, 1 + number % 3, 3) } else { deposit(id, 1 + number % 3, 5) }
            })
            .collect();
        let requests: Vec<Request> = operations.iter().map(|operation| (*operation).into()).collect();
        // A client may go away before it is answered; the engine works on.
        let pending = match engine.enqueue(requests) {
            Ok(pending) if random.below(10) == 0 => {
                drop(pending);
                continue;
            }
            Ok(pending) => pending,
            Err(_) => return told,
        };
        match pending.answers().await {
            Ok(answers) => told.extend(operations.into_iter().zip(answers)),
            Err(_) => return told,
        }
    }
}

/// One engine from its start to the moment when the power goes. Says how many answers had left.
async fn storm(seed: u64) -> usize {
    let mut random = Random::from_seed(seed);
    let disk = FaultyDisk::new(seed);
    let engine = Engine::start(create(&disk), Limits::default(), Arc::new(ManualClock::at(NOW))).expect("threads");
    let next = Arc::new(AtomicI64::new(1));
    let faults = match random.below(4) {
        0 => Faults { sync_error: 20 + random.below(100), ..Faults::default() },
        _ => Faults { power_after: Some(5 + random.below(150)), ..Faults::default() },
    };
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(client(engine.clone(), number, seed, Arc::clone(&next)))).collect();
    disk.set_faults(faults);
    let snapshots = random.below(3);
    for _ in 0..snapshots {
        // It may fail with the disk, which is no reason to stop.
        drop(engine.snapshot().await);
    }
    let mut told = Vec::new();
    for client in clients {
        told.extend(client.await.expect("no client panics"));
    }
    engine.ended().await;
    disk.crash();
    disk.set_faults(Faults::default());
    let (mut core, _) = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    core.begin(NOW);
    for (operation, answer) in &told {
        let Answer::First(decision) = answer else { panic!("seed {seed}: {operation:?} was answered {answer:?}") };
        let again = core.answer(&Request::Run(*operation));
        assert_eq!(again, Answer::Replay(*decision), "seed {seed}: {operation:?} was acknowledged and is gone");
    }
    let total: i64 = (1..=3)
        .filter_map(|number| core.state().balance(user(number), AssetId(1)))
        .map(|balance| balance.available.units())
        .sum();
    let all = core.state().totals().next().map_or(0, |(_, total)| total.units());
    assert_eq!(total, all, "seed {seed}: the accounts add up");
    told.len()
}

#[test]
fn what_was_answered_is_there_after_the_power_went() {
    let mut answered = 0;
    for seed in 0..rounds(60) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        answered += runtime.block_on(storm(seed));
    }
    assert!(answered > 500, "only {answered} answers: the power goes too early to prove anything");
}
