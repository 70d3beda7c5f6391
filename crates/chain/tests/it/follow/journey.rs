//! Long ways with everything that can happen on them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chain::Output;
use chain::follow::{FollowError, Follower, Step};
use devnet::{Fate, View};
use domain::ChainKind;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use tx::BlockRef;

use super::{KEEP, MOST, WIRE_FAULTS, refs, trail};
use crate::rig::{ENDPOINTS, Rig, on_every_chain, watch};

on_every_chain! { start: what_changes_while_it_is_read_is_read_right }

/// What a follower has delivered and not taken back, by block.
#[derive(Default)]
struct Delivered(BTreeMap<u64, (BlockRef, Vec<Output>)>);

impl Delivered {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Idle => {}
            Step::Forward(scan) => {
                for header in &scan.headers {
                    let outputs = scan.outputs.iter().filter(|output| output.block == header.at()).cloned().collect();
                    assert!(self.0.insert(header.height, (header.at(), outputs)).is_none(), "a height comes twice");
                }
                assert!(scan.outputs.iter().all(|output| scan.headers.iter().any(|one| one.at() == output.block)));
            }
            Step::Fork { point, gone } => {
                assert!(!gone.is_empty(), "a fork that takes nothing");
                let heights: Vec<u64> = gone.iter().map(|block| block.height).collect();
                let expected: Vec<u64> = (1..=gone.len() as u64).rev().map(|above| point.height + above).collect();
                assert_eq!(heights, expected, "newest first, none left out");
                for block in gone {
                    let (known, _) = self.0.remove(&block.height).expect("what is gone was delivered");
                    assert_eq!(known, *block);
                }
            }
        }
    }

    fn outputs(&self) -> Vec<Output> {
        self.0.values().flat_map(|(_, outputs)| outputs.clone()).collect()
    }
}

#[derive(Clone, Debug)]
enum Act {
    Mine(u64),
    Deposit(u64),
    Reorg(u64, Fate),
    Lag(usize, u64),
    /// From so many blocks below the tip, and lagging by so many.
    Contradict(usize, u64, u64),
    Wire(usize, usize),
    Heal,
    /// The follower ends, and another goes on from its trail.
    Restart,
    Step(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let fate = prop_oneof![Just(Fate::Moved), Just(Fate::Dropped), Just(Fate::Returned)];
    prop_oneof![
        3 => (1_u64..5).prop_map(Act::Mine),
        4 => (600_000_u64..900_000).prop_map(Act::Deposit),
        3 => (1_u64..13, fate).prop_map(|(depth, fate)| Act::Reorg(depth, fate)),
        1 => (0..ENDPOINTS, 1_u64..8).prop_map(|(endpoint, lag)| Act::Lag(endpoint, lag)),
        1 => (0..ENDPOINTS, 0_u64..12, 0_u64..4).prop_map(|(endpoint, below, lag)| Act::Contradict(endpoint, below, lag)),
        1 => (0..ENDPOINTS, 0..WIRE_FAULTS.len()).prop_map(|(endpoint, fault)| Act::Wire(endpoint, fault)),
        1 => Just(Act::Heal),
        1 => Just(Act::Restart),
        8 => (1_u64..6).prop_map(Act::Step),
    ]
}

/// Whatever happens on the way, in the end the trail is the chain and every deposit in it was delivered once, net of
/// what was taken back.
async fn arrives(kind: ChainKind, acts: Vec<Act>) {
    let rig = Rig::start(kind).await;
    let owner = rig.address(50);
    let watched = watch(&[&owner]);
    rig.mine(14);
    let start = rig.height();
    let mut follower = Follower::start(&*rig.chain, start, KEEP).await.unwrap();
    let mut delivered = Delivered::default();
    for act in acts {
        match act {
            Act::Mine(blocks) => rig.mine(blocks),
            Act::Deposit(amount) => {
                rig.fund(&owner, &rig.coin(), amount);
                rig.mine(1);
            }
            // Never below where it began: that is another test.
            Act::Reorg(depth, fate) => {
                let depth = depth.min(rig.height() - start);
                if depth > 0 {
                    rig.reorg(depth, fate, &[]);
                }
            }
            Act::Lag(endpoint, lag) => rig.view(endpoint, View { lag, ..View::default() }),
            Act::Contradict(endpoint, below, lag) => {
                // One liar; two could outvote the truth.
                (0..ENDPOINTS).for_each(|endpoint| rig.view(endpoint, View::default()));
                let from = (rig.height() - below).max(start + 1);
                rig.view(endpoint, View { contradict: Some(from), lag, ..View::default() });
            }
            Act::Wire(endpoint, fault) => rig.wire(endpoint, WIRE_FAULTS[fault]),
            Act::Heal => rig.heal(),
            Act::Restart => follower = Follower::resume(trail(&follower), KEEP).unwrap(),
            Act::Step(most) => {
                let before = trail(&follower);
                match follower.step(&*rig.chain, &watched, most).await {
                    Ok(step) => delivered.take(&step),
                    Err(FollowError::Chain(_)) => assert_eq!(trail(&follower), before),
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
    }
    rig.heal();
    comes_to_rest(&rig, &mut follower, &mut delivered, start).await;
}

/// On a chain that is well again and stays as it is.
async fn comes_to_rest(rig: &Rig, follower: &mut Follower, delivered: &mut Delivered, start: u64) {
    let watched = &watch(&[&rig.address(50)]);
    let mut idle = 0;
    for _ in 0..200 {
        rig.wait(200);
        match follower.step(&*rig.chain, watched, MOST).await {
            Ok(Step::Idle) => idle += 1,
            Ok(step) => {
                delivered.take(&step);
                idle = 0;
            }
            Err(FollowError::Chain(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
        if idle == 5 {
            break;
        }
    }
    let height = rig.height();
    assert_eq!(follower.at().unwrap().height, height);
    let newest = trail(follower);
    assert_eq!(newest, refs(&rig.headers(newest[0].height, height).await));
    let scan = rig.truth.scan(start + 1, height, watched).await.unwrap();
    assert_eq!(delivered.outputs(), scan.outputs);
    let blocks: Vec<BlockRef> = delivered.0.values().map(|(block, _)| *block).collect();
    assert_eq!(blocks, refs(&scan.headers));
    for output in scan.outputs {
        let proven = rig.chain.prove(output.transaction, watched).await.unwrap().expect("it is mined");
        assert!(proven.outputs.contains(&output), "{output:?} in {proven:?}");
    }
}

/// The chain moves on and forks while it is read.
async fn what_changes_while_it_is_read_is_read_right(rig: Rig) {
    rig.mine(14);
    let (owner, start) = (rig.address(50), rig.height());
    let watched = watch(&[&owner]);
    let mut follower = Follower::start(&*rig.chain, start, KEEP).await.unwrap();
    let (mut delivered, over) = (Delivered::default(), AtomicBool::new(false));
    let (mut steps, mut forks, mut failures) = (0, 0, 0);
    let chain = &*rig.chain;
    let follow = async {
        while !over.load(Ordering::SeqCst) {
            let before = trail(&follower);
            match follower.step(chain, &watched, 3).await {
                Ok(step) => {
                    forks += u32::from(matches!(step, Step::Fork { .. }));
                    steps += u32::from(matches!(step, Step::Forward(_)));
                    delivered.take(&step);
                }
                Err(FollowError::Chain(_)) => {
                    failures += 1;
                    assert_eq!(trail(&follower), before);
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    };
    let live = async {
        let mut random = domain::random::Random::from_seed(7);
        for number in 0..150 {
            // Between any two calls of the follower, wherever it stands.
            for _ in 0..random.below(12) {
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_micros(random.below(300))).await;
            }
            match random.below(6) {
                0 | 1 => {
                    rig.fund(&owner, &rig.coin(), 600_000 + number);
                    rig.mine(1);
                }
                2 => {
                    let depth = (1 + random.below(8)).min(rig.height() - start);
                    let fate = [Fate::Moved, Fate::Dropped, Fate::Returned][random.index(3)];
                    if depth > 0 {
                        rig.reorg(depth, fate, &[]);
                    }
                }
                _ => rig.mine(1 + random.below(3)),
            }
        }
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(follow, live);
    assert!(steps > 10 && forks > 0, "{steps} steps, {forks} forks, {failures} failures");
    comes_to_rest(&rig, &mut follower, &mut delivered, start).await;
}

fn property(kind: ChainKind, cases: u32) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    // The same journeys each time: some wait for silent nodes, and how long a test takes should not be chance.
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, random);
    let acts = prop::collection::vec(act(), 10..60);
    let outcome = runner.run(&acts, |acts| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(arrives(kind, acts));
        Ok(())
    });
    outcome.unwrap();
}

/// What the property test once found.
#[tokio::test]
async fn evm_nodes_that_were_silent_for_a_while_are_heard_again() {
    let acts = [
        Act::Lag(0, 2),
        Act::Deposit(603_050),
        Act::Step(2),
        Act::Deposit(870_863),
        Act::Step(2),
        Act::Wire(1, 4),
        Act::Wire(2, 3),
        Act::Step(4),
        Act::Step(3),
        Act::Reorg(4, Fate::Returned),
        Act::Step(3),
    ];
    arrives(ChainKind::Evm, acts.into()).await;
}

#[test]
fn evm_a_follower_arrives_whatever_happens_on_the_way() {
    property(ChainKind::Evm, 20);
}

#[test]
fn tron_a_follower_arrives_whatever_happens_on_the_way() {
    property(ChainKind::Tron, 6);
}

#[test]
fn bitcoin_a_follower_arrives_whatever_happens_on_the_way() {
    property(ChainKind::Bitcoin, 6);
}
