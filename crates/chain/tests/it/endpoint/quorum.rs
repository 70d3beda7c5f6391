//! The read quorum: fewer nodes than the quorum can neither forge an answer nor block one.

use std::collections::BTreeMap;

use chain::ChainError;
use chain::endpoint::{CallError, Node, Why};
use proptest::prelude::*;

use super::*;

/// What a node does when it is asked, after so many milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Says(u32, u64),
    Refuses(i64, u64),
    Fails(u64),
    Hangs,
}

use Does::{Fails, Hangs, Refuses, Says};

async fn act(node: Arc<Node>, does: Does) -> Result<u32, CallError> {
    let endpoint = node.name().to_owned();
    let wait = |millis| tokio::time::sleep(Duration::from_millis(millis));
    match does {
        Does::Says(answer, after) => {
            wait(after).await;
            Ok(answer)
        }
        Does::Refuses(code, after) => {
            // The words differ, as they do between makes of nodes.
            let message = format!("{endpoint} says no");
            wait(after).await;
            Err(CallError::Refused { endpoint, code, message })
        }
        Does::Fails(after) => {
            wait(after).await;
            Err(CallError::Unreachable { endpoint })
        }
        Does::Hangs => std::future::pending().await,
    }
}

async fn agree(pool: &Pool, does: &[Does]) -> Result<u32, ChainError> {
    pool.agree(|node| {
        let does = does[node.name().parse::<usize>().unwrap()];
        act(node, does)
    })
    .await
}

fn asked(pool: &Pool) -> Vec<u64> {
    pool.health().iter().map(|health| health.asked).collect()
}

fn settings(quorum: usize) -> PoolSettings {
    PoolSettings { quorum: Some(quorum), hedge: Duration::from_secs(1), ..PoolSettings::default() }
}

#[tokio::test(start_paused = true)]
async fn no_more_nodes_are_asked_than_needed() {
    let pool = pool(5, &settings(3));
    assert_eq!(agree(&pool, &[Says(7, 10); 5]).await, Ok(7));
    assert_eq!(asked(&pool).iter().sum::<u64>(), 3);
    assert_eq!(agree(&pool, &[Says(7, 10); 5]).await, Ok(7));
    assert_eq!(asked(&pool).iter().sum::<u64>(), 6);
}

#[tokio::test(start_paused = true)]
async fn who_contradicts_a_quorum_is_set_aside_for_longer_each_time() {
    let clock = RuntimeClock::start();
    let pool = Pool::new(&offline(3), &settings(2), clock).unwrap();
    let mut events = pool.events();
    let lies = [Says(666, 0), Says(7, 1), Says(7, 2)];
    assert_eq!(agree(&pool, &lies).await, Ok(7));
    let endpoint = || "0".to_owned();
    let found = drain(&mut events);
    assert_eq!(found[0], Event::Contradicts { endpoint: endpoint(), agreed: 2 });
    assert!(matches!(found[1], Event::SetAside { why: Why::Contradicts, pause_micros: 1_000_000..=1_250_000, .. }));
    assert_eq!(found.len(), 2);
    // It is not asked meanwhile while the others agree.
    assert_eq!(agree(&pool, &lies).await, Ok(7));
    assert_eq!(asked(&pool)[0], 1);
    assert_ne!(pool.any(|node| async move { Ok(node.name().to_owned()) }).await.unwrap(), "0");
    assert_eq!(asked(&pool)[0], 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_ne!(pool.any(|node| async move { Ok(node.name().to_owned()) }).await.unwrap(), "0", "no proof of honesty");
    assert_eq!(asked(&pool)[0], 1, "so it is not tried there");
    assert_eq!(agree(&pool, &lies).await, Ok(7));
    let found = drain(&mut events);
    assert!(matches!(found[1], Event::SetAside { pause_micros: 2_000_000..=2_500_000, .. }), "{found:?}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(agree(&pool, &[Says(7, 5); 3]).await, Ok(7));
    assert_eq!(drain(&mut events), [Event::Back { endpoint: endpoint() }]);
}

#[tokio::test(start_paused = true)]
async fn disagreement_without_a_quorum_sets_nobody_aside() {
    let pool = pool(4, &settings(3));
    let mut events = pool.events();
    let answer = agree(&pool, &[Says(1, 0), Says(2, 0), Says(1, 0), Says(2, 0)]).await;
    assert_eq!(answer, Err(ChainError::NoQuorum { wanted: 3, agreed: 2 }));
    assert_eq!(drain(&mut events), [Event::Disagreement { answers: 2, agreed: 2, wanted: 3 }]);
    assert!(pool.health().iter().all(|health| health.aside.is_none()));
}

#[tokio::test(start_paused = true)]
async fn who_only_fails_contradicts_nobody() {
    let pool = pool(3, &settings(2));
    let mut events = pool.events();
    assert_eq!(agree(&pool, &[Fails(0), Says(7, 0), Says(7, 0)]).await, Ok(7));
    assert_eq!(
        agree(&pool, &[Fails(0), Fails(0), Says(7, 0)]).await,
        Err(ChainError::NoQuorum { wanted: 2, agreed: 1 })
    );
    assert_eq!(agree(&pool, &[Fails(0); 3]).await, Err(ChainError::NoQuorum { wanted: 2, agreed: 0 }));
    assert!(drain(&mut events).iter().all(|event| matches!(event, Event::SetAside { why: Why::Fails { .. }, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_a_quorum_is_a_refusal() {
    let pool = pool(3, &settings(2));
    let mut events = pool.events();
    let refused = agree(&pool, &[Refuses(-5, 0), Refuses(-5, 0), Says(1, 0)]).await;
    assert!(matches!(refused, Err(ChainError::Refused(CallError::Refused { code: -5, .. }))));
    let answer = agree(&pool, &[Refuses(-5, 0), Refuses(-6, 0), Says(1, 0)]).await;
    assert_eq!(answer, Err(ChainError::NoQuorum { wanted: 2, agreed: 1 }));
    assert_eq!(drain(&mut events), [Event::Disagreement { answers: 3, agreed: 1, wanted: 2 }]);
    // A node without history is no liar.
    assert_eq!(agree(&pool, &[Refuses(-5, 0), Says(1, 0), Says(1, 0)]).await, Ok(1));
    assert_eq!(drain(&mut events), [Event::Differs { endpoint: "0".to_owned(), agreed: 2 }]);
    assert!(pool.health().iter().all(|health| health.aside.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_holds_up_nobody_for_longer_than_the_hedge() {
    let clock = RuntimeClock::start();
    let pool = Pool::new(&offline(3), &settings(2), clock.clone()).unwrap();
    let does = [Hangs, Says(7, 10), Says(7, 10)];
    assert_eq!(agree(&pool, &does).await, Ok(7));
    assert!(clock.now().micros() <= 1_100_000, "{}", clock.now().micros());
    // And it comes last from now on.
    let before = clock.now().micros();
    assert_eq!(agree(&pool, &does).await, Ok(7));
    assert!(clock.now().micros() - before <= 20_000);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_holds_up_a_quorum_for_one_hedge_and_is_paused_again() {
    let clock = RuntimeClock::start();
    let pool = Pool::new(&offline(3), &PoolSettings { failures: 1, ..settings(2) }, clock.clone()).unwrap();
    assert_eq!(agree(&pool, &[Fails(0), Says(7, 0), Says(7, 0)]).await, Ok(7));
    assert!(pool.health()[0].aside.is_some());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let began = clock.now().micros();
    assert_eq!(agree(&pool, &[Hangs, Says(7, 10), Says(7, 10)]).await, Ok(7));
    assert!(clock.now().micros() - began <= 1_020_000);
    assert!(pool.health()[0].pause_micros >= 1_900_000, "a longer pause than before");
    let began = clock.now().micros();
    assert_eq!(agree(&pool, &[Hangs, Says(7, 10), Says(7, 10)]).await, Ok(7));
    assert!(clock.now().micros() - began <= 20_000);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(agree(&pool, &[Says(7, 500), Says(7, 10), Says(7, 10)]).await, Ok(7));
    assert_eq!(pool.health()[0].aside, None, "a slower node comes back as well");
}

#[tokio::test(start_paused = true)]
async fn when_a_quorum_is_out_of_reach_nobody_waits_for_those_that_hang() {
    let clock = RuntimeClock::start();
    let pool = Pool::new(&offline(3), &settings(3), clock.clone()).unwrap();
    let answer = agree(&pool, &[Hangs, Says(1, 10), Says(2, 10)]).await;
    assert_eq!(answer, Err(ChainError::NoQuorum { wanted: 3, agreed: 1 }));
    assert!(clock.now().micros() <= 20_000);
    // Where it is within reach, the deadline ends the waiting.
    let answer = agree(&pool, &[Hangs, Says(1, 10), Says(1, 10)]).await;
    assert_eq!(answer, Err(ChainError::NoQuorum { wanted: 3, agreed: 2 }));
    assert!(clock.now().micros() <= 60_100_000);
}

#[tokio::test(start_paused = true)]
async fn failing_nodes_are_the_last_resort_of_a_quorum() {
    let pool = pool(2, &PoolSettings { failures: 1, ..settings(2) });
    assert!(agree(&pool, &[Fails(0), Fails(0)]).await.is_err());
    assert!(pool.health().iter().any(|health| health.aside.is_some()));
    assert_eq!(agree(&pool, &[Says(7, 0), Says(7, 0)]).await, Ok(7));
}

const TRUTH: u32 = 7;

fn honest() -> impl Strategy<Value = Does> {
    prop_oneof![
        6 => (0_u64..900).prop_map(|after| Says(TRUTH, after)),
        1 => (0_u64..3_000).prop_map(Fails),
        1 => Just(Hangs),
    ]
}

fn lying() -> impl Strategy<Value = Does> {
    prop_oneof![
        (600_u32..603, 0_u64..3_000).prop_map(|(answer, after)| Says(answer, after)),
        (1_i64..3, 0_u64..3_000).prop_map(|(code, after)| Refuses(code, after)),
        (0_u64..3_000).prop_map(Fails),
        Just(Hangs),
        (0_u64..900).prop_map(|after| Says(TRUTH, after)),
    ]
}

/// The quorum, who is honest, and what each does in each round, after a pause.
type Rounds = (usize, Vec<bool>, Vec<(u64, Vec<Does>)>);

/// Nodes that stay honest or dishonest, over several rounds, with pauses between them.
fn rounds() -> impl Strategy<Value = Rounds> {
    (1_usize..8).prop_flat_map(|nodes| {
        let roles = prop::collection::vec(prop::bool::weighted(0.7), nodes);
        (nodes / 2 + 1..=nodes, roles).prop_flat_map(|(quorum, roles)| {
            let does: Vec<_> =
                roles.iter().map(|role| if *role { honest().boxed() } else { lying().boxed() }).collect();
            let rounds = prop::collection::vec((0_u64..5_000, does), 1..12);
            (Just(quorum), Just(roles), rounds)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_minority_neither_forges_nor_blocks_an_answer((quorum, roles, rounds) in rounds()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let clock = RuntimeClock::start();
            let pool = Pool::new(&offline(roles.len()), &settings(quorum), clock.clone()).unwrap();
            let liars = roles.iter().filter(|honest| !**honest).count();
            for (pause, does) in rounds {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                let (before, began) = (asked(&pool), clock.now().micros());
                let answer = agree(&pool, &does).await;
                let took = clock.now().micros() - began;
                for (was, is) in before.iter().zip(asked(&pool)) {
                    prop_assert!(is - was <= 1, "asked twice for one answer");
                }
                // The oracle: how many could have said what.
                let mut said: BTreeMap<u32, usize> = BTreeMap::new();
                let mut refused: BTreeMap<i64, usize> = BTreeMap::new();
                for one in &does {
                    match one {
                        Says(value, _) => *said.entry(*value).or_default() += 1,
                        Refuses(code, _) => *refused.entry(*code).or_default() += 1,
                        Fails(_) | Hangs => {}
                    }
                }
                match &answer {
                    Ok(value) => prop_assert!(said.get(value).is_some_and(|count| *count >= quorum)),
                    Err(ChainError::Refused(CallError::Refused { code, .. })) => {
                        prop_assert!(refused.get(code).is_some_and(|count| *count >= quorum));
                    }
                    Err(ChainError::NoQuorum { wanted, agreed }) => prop_assert!(*wanted == quorum && *agreed < quorum),
                    Err(other) => prop_assert!(false, "{other:?}"),
                }
                let truthful = does.iter().zip(&roles).filter(|(does, role)| **role && matches!(does, Says(..))).count();
                if liars < quorum && truthful >= quorum {
                    prop_assert_eq!(&answer, &Ok(TRUTH));
                    // Each that hangs or lets us wait costs one hedge at most, and a probe one more.
                    let most = i64::try_from(roles.len() + 2).unwrap() * 1_000_000;
                    prop_assert!(took <= most, "{} µs", took);
                }
                if liars < quorum {
                    for (health, honest) in pool.health().iter().zip(&roles) {
                        prop_assert!(!honest || health.aside != Some(Why::Contradicts), "an honest node was set aside");
                    }
                }
            }
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn who_lacks_it_has_no_vote() {
    let ask = async |lacking: &[&str], broken: &[&str]| {
        let pool = pool(5, &PoolSettings { quorum: Some(3), ..PoolSettings::default() });
        let mut events = pool.events();
        let answer = pool.agree(|node| async move {
            match node.name() {
                name if lacking.contains(&name) => Err(node.lacks("old state")),
                name if broken.contains(&name) => Err(node.bad("x")),
                _ => Ok(7),
            }
        });
        let answer = answer.await;
        assert_eq!(drain(&mut events), [], "nobody is to blame");
        answer
    };
    for lacking in [["0", "1"], ["1", "2"], ["3", "4"], ["0", "4"]] {
        assert_eq!(ask(&lacking, &[]).await, Ok(7), "{lacking:?}");
    }
    // Too few have it, whoever of them is asked first.
    for lacking in [&["0", "1", "2", "3", "4"][..], &["0", "1", "2"], &["1", "2", "3"]] {
        let refused = ask(lacking, &[]).await;
        assert!(matches!(refused, Err(ChainError::Refused(CallError::Lacks { .. }))), "{refused:?}");
    }
    assert_eq!(ask(&["0", "1"], &["2", "3", "4"]).await, Err(ChainError::NoQuorum { wanted: 3, agreed: 0 }));
}

#[tokio::test(start_paused = true)]
async fn a_disagreement_is_not_put_down_to_one_who_lacks_it() {
    let pool = pool(3, &PoolSettings { quorum: Some(2), ..PoolSettings::default() });
    let mut events = pool.events();
    let answer = pool.agree(|node| async move {
        if node.name() == "0" { Err(node.lacks("old state")) } else { Ok(node.name().to_owned()) }
    });
    assert_eq!(answer.await, Err(ChainError::NoQuorum { wanted: 2, agreed: 1 }));
    assert_eq!(drain(&mut events), [Event::Disagreement { answers: 2, agreed: 1, wanted: 2 }]);
}

/// An honest node whose newest block lost against that of two others looks like a liar. If its vote were lost, one liar among the rest
/// could block every answer.
#[tokio::test(start_paused = true)]
async fn who_was_outvoted_is_asked_when_the_others_do_not_agree() {
    let pool = Pool::new(&offline(3), &settings(2), RuntimeClock::start()).unwrap();
    // The first has the block already; the second is behind, and the third sides with it.
    assert_eq!(agree(&pool, &[Says(7, 2), Says(0, 0), Says(0, 0)]).await, Ok(0));
    assert_eq!(agree(&pool, &[Says(7, 0), Says(0, 1), Says(0, 2)]).await, Ok(0));
    // Now the second has it too, and the third goes on lying.
    assert_eq!(agree(&pool, &[Says(7, 0), Says(7, 0), Says(666, 0)]).await, Ok(7));
    // Its word alone is still nothing.
    let alone = agree(&pool, &[Says(666, 0), Fails(0), Fails(0)]).await;
    assert!(matches!(alone, Err(ChainError::NoQuorum { wanted: 2, .. })), "{alone:?}");
}

/// A node that is a block ahead says honestly what the others cannot say yet. At a height that they have passed it is a lie.
#[tokio::test(start_paused = true)]
async fn who_is_ahead_of_a_quorum_is_not_set_aside_and_who_makes_up_the_past_is() {
    let ask = async |pool: &Pool, claimed: u64| {
        let said = pool.agree_unless_ahead(
            |node| async move { Ok(Some(claimed).filter(|_| node.name() == "0")) },
            |one: &Option<u64>, agreed: &Option<u64>| one.filter(|_| agreed.is_none()),
        );
        assert_eq!(said.await, Ok(None));
    };
    for (claimed, honest) in [(101, true), (100, true), (99, false), (1, false)] {
        let pool = pool(3, &settings(2));
        let mut events = pool.events();
        for (node, height) in pool.each(|_| async { Ok(()) }).await.iter().map(|(node, _)| node).zip([101, 100, 100]) {
            pool.saw_height(node, height);
        }
        ask(&pool, claimed).await;
        let found = drain(&mut events);
        let aside = pool.health()[0].aside;
        if honest {
            assert_eq!(found, [Event::Differs { endpoint: "0".to_owned(), agreed: 2 }], "{claimed}");
            assert_eq!(aside, None, "{claimed}");
        } else {
            assert_eq!(aside, Some(Why::Contradicts), "{claimed}: {found:?}");
        }
    }
    // Nobody has told a height yet: nobody is slandered.
    let pool = pool(3, &settings(2));
    ask(&pool, 1).await;
    assert_eq!(pool.health()[0].aside, None);
}

/// Half of the nodes is no quorum: the other half could agree on something else.
#[tokio::test]
async fn more_than_half_of_the_nodes_is_the_least_quorum_and_the_default() {
    for nodes in 1..8 {
        let made = |quorum| {
            Pool::new(&offline(nodes), &PoolSettings { quorum, ..PoolSettings::default() }, RuntimeClock::start())
        };
        assert_eq!(made(None).unwrap().quorum(), nodes / 2 + 1, "{nodes}");
        for quorum in 0..=nodes + 1 {
            let good = 2 * quorum > nodes && quorum <= nodes;
            assert_eq!(made(Some(quorum)).is_ok(), good, "{quorum} of {nodes}");
        }
    }
}
