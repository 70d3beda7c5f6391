//! Heights: who lags is set aside, who claims too much hurts nobody.

use chain::endpoint::{Node, Why};

use super::*;

const SETTINGS: fn() -> PoolSettings =
    || PoolSettings { quorum: Some(2), lag_blocks: 5, back_blocks: 10, ..PoolSettings::default() };

async fn nodes(pool: &Pool) -> Vec<Arc<Node>> {
    pool.each(|_| async { Ok(()) }).await.into_iter().map(|(node, _)| node).collect()
}

fn aside(pool: &Pool) -> Vec<String> {
    pool.health().into_iter().filter(|health| health.aside.is_some()).map(|health| health.endpoint).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lags_is_set_aside_until_it_has_caught_up() {
    let pool = pool(3, &SETTINGS());
    let (mut events, nodes) = (pool.events(), nodes(&pool).await);
    pool.saw_height(&nodes[0], 100);
    pool.saw_height(&nodes[1], 101);
    pool.saw_height(&nodes[2], 95);
    assert_eq!(drain(&mut events), [], "five behind is allowed");
    pool.saw_height(&nodes[2], 94);
    let endpoint = "2".to_owned();
    let [lags, set_aside] = &drain(&mut events)[..] else { panic!("not two events") };
    assert_eq!(*lags, Event::Lags { endpoint: endpoint.clone(), height: 94, confirmed: 100 });
    assert!(matches!(set_aside, Event::SetAside { why: Why::Lags { behind: 6 }, .. }));
    for _ in 0..50 {
        assert_ne!(pool.any(|node| async move { Ok(node.name().to_owned()) }).await.unwrap(), "2");
    }
    // Nor has it a vote, even when the others fail.
    let answer = pool.agree(|node| async move { if node.name() == "1" { Err(node.bad("x")) } else { Ok(1) } });
    assert_eq!(answer.await.unwrap_err().code(), "CHAIN_NO_QUORUM");
    // An answer does not heal a lag: only a height does.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let answer = pool.agree(|node| async move { if node.name() == "1" { Err(node.bad("x")) } else { Ok(1) } });
    assert_eq!(answer.await.unwrap_err().code(), "CHAIN_NO_QUORUM", "a probe of one that lags is no vote");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let answer = pool.any(|node| async move { if node.name() == "2" { Ok(1) } else { Err(node.bad("x")) } });
    assert_eq!(answer.await.unwrap_err().code(), "CHAIN_UNREACHABLE", "nor an answer");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let before = pool.health()[2].asked;
    for _ in 0..5 {
        assert_ne!(pool.any(|node| async move { Ok(node.name().to_owned()) }).await.unwrap(), "2");
    }
    assert_eq!(pool.health()[2].asked, before + 1, "one probe for each pause");
    drain(&mut events);
    pool.saw_height(&nodes[2], 94);
    assert_eq!(drain(&mut events), [], "that is known");
    assert_eq!(aside(&pool), ["2"]);
    pool.saw_height(&nodes[2], 99);
    assert_eq!(drain(&mut events), [Event::Back { endpoint }]);
    assert_eq!(aside(&pool), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lags_is_tried_again_so_that_it_can_tell_its_height() {
    let pool = pool(3, &SETTINGS());
    let nodes = nodes(&pool).await;
    for (node, height) in nodes.iter().zip([100, 100, 50]) {
        pool.saw_height(node, height);
    }
    assert_eq!(aside(&pool), ["2"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let pool = &pool;
    let head = pool.any(|node| async move {
        pool.saw_height(&node, 100);
        Ok(node.name().to_owned())
    });
    assert_ne!(head.await.unwrap(), "2");
    assert_eq!(aside(pool), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn one_absurd_height_sets_nobody_aside() {
    for quorum in [3, 4] {
        let pool = pool(4, &PoolSettings { quorum: Some(quorum), ..SETTINGS() });
        let nodes = nodes(&pool).await;
        pool.saw_height(&nodes[0], u64::MAX);
        for (node, height) in nodes[1..].iter().zip([100, 99, 98]) {
            pool.saw_height(node, height);
        }
        for (node, height) in nodes.iter().zip([u64::MAX, 101, 100, 99]) {
            pool.saw_height(node, height);
        }
        assert_eq!(aside(&pool), [""; 0], "quorum {quorum}");
    }
    // With two nodes nobody can tell who is right.
    let pool = pool(2, &PoolSettings { quorum: Some(2), ..SETTINGS() });
    let nodes = nodes(&pool).await;
    pool.saw_height(&nodes[0], u64::MAX);
    pool.saw_height(&nodes[1], 1);
    assert_eq!(aside(&pool), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_height_that_goes_far_back_is_an_event() {
    let pool = pool(2, &SETTINGS());
    let (mut events, nodes) = (pool.events(), nodes(&pool).await);
    pool.saw_height(&nodes[0], 100);
    pool.saw_height(&nodes[0], 90);
    assert_eq!(drain(&mut events), [], "a reorganisation");
    pool.saw_height(&nodes[0], 100);
    pool.saw_height(&nodes[0], 89);
    assert_eq!(drain(&mut events), [Event::WentBack { endpoint: "0".to_owned(), from: 100, to: 89 }]);
    pool.saw_height(&nodes[0], 0);
    pool.saw_height(&nodes[0], u64::MAX);
}

#[tokio::test(start_paused = true)]
async fn the_node_of_another_pool_says_nothing_here() {
    let (ours, theirs) = (pool(3, &SETTINGS()), pool(3, &SETTINGS()));
    for node in nodes(&theirs).await {
        ours.saw_height(&node, 5);
    }
    assert!(ours.health().iter().all(|health| health.height.is_none()));
}

/// Node `n` answers after so many milliseconds. Who answered, and how long that took.
#[expect(clippy::disallowed_methods, reason = "the runtime's time is the test's to control")]
async fn soon(pool: &Pool, millis: [u64; 3]) -> (Vec<String>, Duration) {
    let began = tokio::time::Instant::now();
    let answers = pool.each_soon(|node| async move {
        let number: usize = node.name().parse().unwrap();
        if millis[number] == NEVER {
            return Err(node.bad("x"));
        }
        tokio::time::sleep(Duration::from_millis(millis[number])).await;
        Ok(())
    });
    let answers = answers.await.into_iter().filter(|(_, answer)| answer.is_ok());
    let mut answered: Vec<String> = answers.map(|(node, _)| node.name().to_owned()).collect();
    answered.sort();
    (answered, began.elapsed())
}

const NEVER: u64 = u64::MAX;
const HANGS: u64 = 3_600_000;

#[tokio::test(start_paused = true)]
async fn who_hangs_delays_nobody_for_long() {
    let millis = Duration::from_millis;
    let pool = pool(3, &SETTINGS());
    assert_eq!(soon(&pool, [10, 20, 30]).await, (vec!["0".into(), "1".into(), "2".into()], millis(30)));
    assert_eq!(soon(&pool, [10, 500, 1_499]).await.1, millis(1_499), "within the hedge after the quorum");
    for _ in 0..3 {
        assert_eq!(soon(&pool, [10, 500, HANGS]).await, (vec!["0".into(), "1".into()], millis(1_500)));
    }
    assert_eq!(aside(&pool), ["2"], "three times is enough");
    assert_eq!(soon(&pool, [10, 500, HANGS]).await.1, millis(500), "nobody waits for it any more");
    assert_eq!(soon(&pool, [500, 10, 20]).await, (vec!["0".into(), "1".into(), "2".into()], millis(500)));
    assert_eq!(aside(&pool), [""; 0], "it answered");
    // Fewer than a quorum are left: their deadline ends it, and then one is enough for as long as the other fails.
    for _ in 0..3 {
        assert_eq!(soon(&pool, [10, NEVER, HANGS]).await.1, Duration::from_secs(60));
    }
    assert_eq!(soon(&pool, [10, NEVER, HANGS]).await, (vec!["0".into()], millis(10)));
    assert_eq!(soon(&pool, [NEVER, NEVER, NEVER]).await.0, [""; 0]);
}

#[tokio::test]
async fn who_told_us_to_wait_is_waited_for_without_blame() {
    let busy = Stub::saying(http("429 Too Many Requests", "retry-after: 5\r\n", "")).await;
    let endpoints = [endpoint("busy", &busy.url), offline(1).remove(0)];
    let settings = PoolSettings { failures: 1, hedge: Duration::from_millis(50), ..PoolSettings::default() };
    let pool = Pool::new(&endpoints, &settings, RuntimeClock::start()).unwrap();
    for _ in 0..3 {
        let answers = pool.each_soon(|node| async move {
            if node.name() == "busy" { node.post("", bytes::Bytes::new()).await.map(|_| ()) } else { Ok(()) }
        });
        assert_eq!(answers.await.iter().filter(|(_, answer)| answer.is_ok()).count(), 1);
    }
    assert_eq!(aside(&pool), [""; 0]);
}
