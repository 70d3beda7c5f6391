//! Whom `any` asks: who is well, who is fast, who has room, and who gets another chance.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use chain::ChainError;
use chain::endpoint::{BadEndpoint, CallError, Node, Why};
use domain::ManualClock;

use super::*;

const SECOND: i64 = 1_000_000;

fn lost(node: &Node) -> CallError {
    CallError::Unreachable { endpoint: node.name().to_owned() }
}

/// The node that answered, when those of `broken` do not.
async fn who(pool: &Pool, broken: &[&str]) -> Result<String, ChainError> {
    pool.any(
        |node| async move { if broken.contains(&node.name()) { Err(lost(&node)) } else { Ok(node.name().to_owned()) } },
    )
    .await
}

/// Fails on the first node until it is set aside.
async fn break_first(pool: &Pool) {
    for _ in 0..1_000 {
        if pool.health()[0].aside.is_some() {
            return;
        }
        who(pool, &["0"]).await.unwrap();
    }
    panic!("it is never set aside");
}

fn manual(count: usize, settings: &PoolSettings) -> (Pool, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(0)));
    (Pool::new(&offline(count), settings, clock.clone()).unwrap(), clock)
}

fn asked(pool: &Pool) -> Vec<u64> {
    pool.health().iter().map(|health| health.asked).collect()
}

#[tokio::test(start_paused = true)]
async fn a_failure_goes_to_the_next_and_a_refusal_does_not() {
    let (pool, _) = manual(3, &PoolSettings::default());
    assert!(who(&pool, &["0", "1"]).await.is_ok());
    assert_eq!(who(&pool, &["0", "1", "2"]).await.unwrap_err().code(), "CHAIN_UNREACHABLE");
    let before: u64 = asked(&pool).iter().sum();
    let refused = pool.any(|node| async move {
        Err::<(), _>(CallError::Refused { endpoint: node.name().to_owned(), code: 3, message: String::new() })
    });
    assert!(matches!(refused.await, Err(ChainError::Refused(_))));
    assert_eq!(asked(&pool).iter().sum::<u64>(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn who_lacks_it_is_well_and_another_is_asked() {
    let (pool, _) = manual(3, &PoolSettings::default());
    let ask = async |lacking: &[&str], broken: &[&str]| {
        pool.any(|node| async move {
            match node.name() {
                name if lacking.contains(&name) => Err(node.lacks("old state")),
                name if broken.contains(&name) => Err(lost(&node)),
                name => Ok(name.to_owned()),
            }
        })
        .await
    };
    for _ in 0..20 {
        assert_eq!(ask(&["0", "1"], &[]).await.unwrap(), "2");
        let all = ask(&["0", "1", "2"], &[]).await;
        assert!(matches!(all, Err(ChainError::Refused(CallError::Lacks { .. }))), "{all:?}");
    }
    assert!(pool.health().iter().all(|health| health.failures == 0 && health.aside.is_none()));
    let mixed = ask(&["0", "1"], &["2"]).await;
    assert!(matches!(mixed, Err(ChainError::Unreachable(CallError::Unreachable { .. }))), "{mixed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_may_have_what_the_others_lack() {
    let (pool, clock) = manual(3, &PoolSettings::default());
    break_first(&pool).await;
    clock.set(Timestamp::from_micros(400 * SECOND));
    let answer = pool.any(|node| async move { if node.name() == "0" { Ok(5) } else { Err(node.lacks("it")) } });
    assert_eq!(answer.await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn no_procedure_runs_on_more_nodes_than_allowed() {
    let (pool, _) = manual(9, &PoolSettings { attempts: 3, ..PoolSettings::default() });
    let all = ["0", "1", "2", "3", "4", "5", "6", "7", "8"];
    assert!(who(&pool, &all).await.is_err());
    assert_eq!(asked(&pool).iter().sum::<u64>(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dying_provider_does_not_multiply_the_load() {
    let settings = PoolSettings { retries: 5, retries_per_second: 1, failures: u32::MAX, ..PoolSettings::default() };
    let (pool, clock) = manual(2, &settings);
    for _ in 0..20 {
        assert!(who(&pool, &["0", "1"]).await.is_err());
    }
    assert_eq!(asked(&pool).iter().sum::<u64>(), 25, "twenty first attempts and five retries");
    clock.set(Timestamp::from_micros(2 * SECOND));
    for _ in 0..20 {
        assert!(who(&pool, &["0", "1"]).await.is_err());
    }
    assert_eq!(asked(&pool).iter().sum::<u64>(), 47, "and two more after two seconds");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_fails_is_set_aside_and_probed_after_its_pause() {
    let settings = PoolSettings { failures: 3, pause: Duration::from_secs(1), ..PoolSettings::default() };
    let (pool, clock) = manual(2, &settings);
    let mut events = pool.events();
    break_first(&pool).await;
    let aside = drain(&mut events);
    let [Event::SetAside { endpoint, why: Why::Fails { failures: 3 }, pause_micros }] = &aside[..] else {
        panic!("{aside:?}")
    };
    assert_eq!(endpoint, "0");
    assert!((1_000_000..=1_250_000).contains(pause_micros));
    let before = asked(&pool)[0];
    for _ in 0..50 {
        assert_eq!(who(&pool, &[]).await.unwrap(), "1");
    }
    assert_eq!(asked(&pool)[0], before, "not within the pause");
    clock.set(Timestamp::from_micros(2 * SECOND));
    // The probe fails: the next pause is longer. It costs the caller nothing.
    assert_eq!(who(&pool, &["0"]).await.unwrap(), "1");
    assert_eq!(asked(&pool)[0], before + 1);
    let again = drain(&mut events);
    assert!(matches!(&again[..], [Event::SetAside { pause_micros: 2_000_000..=2_500_000, .. }]), "{again:?}");
    clock.set(Timestamp::from_micros(3 * SECOND));
    assert_eq!(who(&pool, &[]).await.unwrap(), "1");
    assert_eq!(asked(&pool)[0], before + 1);
    clock.set(Timestamp::from_micros(5 * SECOND));
    assert!(who(&pool, &[]).await.is_ok());
    assert_eq!(drain(&mut events), [Event::Back { endpoint: "0".to_owned() }]);
    assert_eq!((pool.health()[0].aside, pool.health()[0].failures), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_holds_nobody_up_and_is_only_one() {
    let settings = PoolSettings { failures: 1, hedge: Duration::from_millis(100), ..PoolSettings::default() };
    let clock = RuntimeClock::start();
    let pool = Pool::new(&offline(2), &settings, clock.clone()).unwrap();
    break_first(&pool).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = (asked(&pool)[0], clock.now().micros());
    let procedure =
        |node: Arc<Node>| async move { if node.name() == "0" { std::future::pending().await } else { Ok(1) } };
    let answers = futures_util::future::join_all((0..10).map(|_| pool.any(procedure))).await;
    assert!(answers.iter().all(|answer| *answer == Ok(1)));
    assert_eq!(asked(&pool)[0], before.0 + 1);
    assert!(clock.now().micros() - before.1 <= 110_000);
    assert!(pool.health()[0].pause_micros >= 1_900_000, "a longer pause than before");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_given_up_leaves_room_for_the_next() {
    let settings = PoolSettings { failures: 1, ..PoolSettings::default() };
    let pool = pool(2, &settings);
    break_first(&pool).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let hanging = pool.any(|_| std::future::pending::<Result<(), CallError>>());
    assert!(tokio::time::timeout(Duration::from_secs(3), hanging).await.is_err());
    who(&pool, &[]).await.unwrap();
    assert_eq!(pool.health()[0].aside, None);
}

#[tokio::test(start_paused = true)]
async fn a_probe_is_no_second_attempt_on_the_same_node() {
    let pool = pool(2, &PoolSettings { failures: 1, ..PoolSettings::default() });
    break_first(&pool).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = asked(&pool)[0];
    who(&pool, &["0", "1"]).await.unwrap_err();
    assert_eq!(asked(&pool)[0], before + 1);
}

#[tokio::test(start_paused = true)]
async fn with_nobody_else_a_probe_has_all_the_time() {
    let pool = pool(1, &PoolSettings { failures: 1, hedge: Duration::from_millis(10), ..PoolSettings::default() });
    assert_eq!(
        who(&pool, &["0"]).await,
        Err(ChainError::Unreachable(CallError::Unreachable { endpoint: "0".to_owned() }))
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    let slow = pool.any(|_| async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(1)
    });
    assert_eq!(slow.await, Ok(1));
    assert_eq!(pool.health()[0].aside, None);
}

#[tokio::test(start_paused = true)]
async fn when_all_are_set_aside_they_are_asked_all_the_same() {
    let (pool, _) = manual(2, &PoolSettings { failures: 1, ..PoolSettings::default() });
    assert!(who(&pool, &["0", "1"]).await.is_err());
    assert!(pool.health().iter().all(|health| health.aside.is_some()));
    assert!(who(&pool, &["0"]).await.is_ok());
    assert_eq!(pool.health()[1].aside, None);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_procedure_covers_failover() {
    let settings = PoolSettings { procedure_deadline: Duration::from_secs(5), ..PoolSettings::default() };
    let clock = RuntimeClock::start();
    let pool = Pool::new(&offline(4), &settings, clock.clone()).unwrap();
    let slow_to_fail = |node: Arc<Node>| async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        Err::<(), _>(lost(&node))
    };
    let answer = pool.any(slow_to_fail).await;
    assert!(matches!(answer, Err(ChainError::Unreachable(CallError::Timeout { .. }))), "{answer:?}");
    assert!((4_990_000..=5_010_000).contains(&clock.now().micros()));
    let began = clock.now().micros();
    let answers = pool.each(|_| std::future::pending::<Result<(), CallError>>()).await;
    assert!(answers.iter().all(|(_, answer)| matches!(answer, Err(CallError::Timeout { .. }))));
    assert!((4_990_000..=5_010_000).contains(&(clock.now().micros() - began)));
}

#[tokio::test]
async fn the_fast_node_is_preferred_and_the_slow_one_not_forgotten() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(0)));
    let served = |micros: i64| {
        let clock = Arc::clone(&clock);
        Stub::start(move |_| {
            clock.set(clock.now().plus_micros(micros));
            Act::Send(json("{}"))
        })
    };
    let (slow, fast) = (served(90_000).await, served(5_000).await);
    let endpoints = [endpoint("slow", &slow.url), endpoint("fast", &fast.url)];
    let pool = Pool::new(&endpoints, &PoolSettings::default(), clock.clone()).unwrap();
    for _ in 0..200 {
        pool.any(|node| async move { node.post("", Bytes::from("{}")).await.map(|_| ()) }).await.unwrap();
    }
    assert!(fast.requests() > 170, "{}", fast.requests());
    assert!(slow.requests() > 2, "{}", slow.requests());
    let latencies: Vec<_> = pool.health().iter().map(|health| health.latency_micros.unwrap()).collect();
    assert!((89_900..=90_000).contains(&latencies[0]) && (4_900..=5_000).contains(&latencies[1]), "{latencies:?}");
}

#[tokio::test]
async fn who_has_no_room_is_passed_over_for_one_that_has() {
    let (first, second) = (Stub::saying(json("{}")).await, Stub::saying(json("{}")).await);
    let endpoints =
        [EndpointSettings { per_second: 3, ..endpoint("first", &first.url) }, endpoint("second", &second.url)];
    // The clock stands still: all of this happens within one second.
    let clock = Arc::new(ManualClock::default());
    let pool = Pool::new(&endpoints, &PoolSettings::default(), clock).unwrap();
    for _ in 0..40 {
        pool.any(|node| async move { node.post("", Bytes::from("{}")).await.map(|_| ()) }).await.unwrap();
    }
    assert!((1..=3).contains(&first.requests()), "{}", first.requests());
    assert_eq!(first.requests() + second.requests(), 40);
}

#[tokio::test(start_paused = true)]
async fn many_at_once_spread_over_the_nodes() {
    let pool = pool(4, &PoolSettings::default());
    let most = AtomicUsize::new(0);
    let calls = (0..40).map(|_| {
        pool.any(|node| {
            let most = &most;
            async move {
                most.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok(node.name().to_owned())
            }
        })
    });
    futures_util::future::join_all(calls).await;
    assert!(asked(&pool).iter().all(|asked| (5..=15).contains(asked)), "{:?}", asked(&pool));
    assert!(pool.health().iter().all(|health| health.running == 0));
}

#[test]
fn a_node_that_is_there_twice_is_refused() {
    let twice = |other: EndpointSettings| {
        let endpoints = [endpoint("a", "http://host/x"), other];
        Pool::new(&endpoints, &PoolSettings::default(), Arc::new(ManualClock::default())).unwrap_err()
    };
    assert_eq!(twice(endpoint("a", "http://other")), BadEndpoint::Twice { name: "a".to_owned() });
    assert_eq!(twice(endpoint("b", "HTTP://Host/x/")), BadEndpoint::Twice { name: "b".to_owned() });
    for quorum in [0, 1, 3] {
        let settings = PoolSettings { quorum: Some(quorum), ..PoolSettings::default() };
        let made = Pool::new(&offline(2), &settings, Arc::new(ManualClock::default()));
        assert_eq!(made.unwrap_err(), BadEndpoint::Quorum { quorum, endpoints: 2 });
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_listen_costs_no_memory() {
    let (pool, clock) = manual(2, &PoolSettings { failures: 1, ..PoolSettings::default() });
    let mut events = pool.events();
    for second in 0..1_000 {
        clock.set(Timestamp::from_micros(second * 1_000 * SECOND));
        who(&pool, &["0"]).await.unwrap();
    }
    assert!(matches!(events.try_recv(), Err(tokio::sync::broadcast::error::TryRecvError::Lagged(_))));
    assert!(drain(&mut events).len() <= 256);
}
