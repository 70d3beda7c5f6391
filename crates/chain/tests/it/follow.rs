//! The follower on chains that fork, and on nodes that lag, lie and fail.

mod ancestor;
mod journey;

use chain::endpoint::json_rpc;
use chain::follow::{FollowError, Follower, Step};
use chain::{Chain, ChainError, Header, Output, Watched};
use devnet::{Connection, Fate, Garbage, Key, View, WireFaults};
use domain::ChainKind;
use serde_json::json;
use tx::{BlockHash, BlockRef, Coin, Draft, Payment};

use crate::nodes::anvil::Anvil;
use crate::nodes::bitcoind::Bitcoind;
use crate::rig::{ENDPOINTS, Rig, happened, on_every_chain, raw, signed, was_found_lying, watch};

const KEEP: usize = 64;
const MOST: u64 = 7;

on_every_chain! { start:
    a_reorg_of_twenty_blocks_is_seen_with_the_right_fork_point
    a_lagging_node_is_no_fork
    a_lying_node_with_other_hashes_is_no_fork
    a_liar_that_also_lags_is_no_fork
    one_node_on_a_branch_of_its_own_cannot_lead_the_follower_out_of_its_trail
    a_fork_beyond_the_trail_is_an_error_and_changes_nothing
    a_fork_that_takes_the_whole_trail_but_its_oldest_block_is_found
    a_fork_deeper_than_one_question_is_found
    a_step_that_fails_changes_nothing
    a_fork_that_no_quorum_confirms_changes_nothing
    a_block_that_only_one_node_has_is_not_built_upon
}

fn trail(follower: &Follower) -> Vec<BlockRef> {
    follower.trail().collect()
}

fn refs(headers: &[Header]) -> Vec<BlockRef> {
    headers.iter().map(Header::at).collect()
}

/// Steps until nothing is new, and tells all steps.
async fn walk(follower: &mut Follower, chain: &dyn Chain, watched: &Watched) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..100 {
        match follower.step(chain, watched, MOST).await.expect("a step") {
            Step::Idle => return steps,
            step => steps.push(step),
        }
    }
    panic!("it never comes to the end");
}

fn outputs(steps: &[Step]) -> Vec<Output> {
    let forward = steps.iter().filter_map(|step| match step {
        Step::Forward(scan) => Some(scan.outputs.clone()),
        Step::Idle | Step::Back { .. } => None,
    });
    forward.flatten().collect()
}

async fn a_reorg_of_twenty_blocks_is_seen_with_the_right_fork_point(rig: Rig) {
    let owner = rig.address(50);
    let watched = watch(&[&owner]);
    rig.mine(20);
    let start = rig.height();
    let mut follower = Follower::start(&*rig.chain, start, KEEP).await.unwrap();
    let kept = rig.deposit(&owner, &rig.coin(), 700_000).await;
    let point = rig.height();
    rig.mine(3);
    let moved = rig.deposit(&owner, &rig.coin(), 800_000).await;
    rig.mine(16);
    assert_eq!(rig.height(), point + 20);
    let steps = walk(&mut follower, &*rig.chain, &watched).await;
    let before = outputs(&steps);
    assert_eq!(before.iter().map(|output| output.transaction).collect::<Vec<_>>(), [kept, moved]);
    let old = refs(&rig.headers(start, rig.height()).await);
    assert_eq!(trail(&follower), old);

    rig.reorg(20, Fate::Moved, &[]);
    assert_ne!(refs(&rig.headers(point + 1, point + 1).await)[0], old[usize::try_from(point - start).unwrap() + 1]);
    let mut gone: Vec<BlockRef> = old.iter().copied().filter(|block| block.height > point).collect();
    gone.reverse();
    let at = old[usize::try_from(point - start).unwrap()];
    let step = follower.step(&*rig.chain, &watched, MOST).await.unwrap();
    assert_eq!(step, Step::Back { to: at, gone: gone.clone() });
    assert!(gone.contains(&before[1].block) && !gone.contains(&before[0].block));

    let after = outputs(&walk(&mut follower, &*rig.chain, &watched).await);
    assert_eq!(after.len(), 1, "the deposit below the fork is not delivered again");
    assert_eq!((after[0].transaction, after[0].place), (before[1].transaction, before[1].place), "the key stays");
    assert_eq!(after[0].block.height, rig.height());
    assert_ne!(after[0].block, before[1].block);
    assert_eq!(trail(&follower), refs(&rig.headers(start, rig.height()).await));
    let proven = rig.chain.prove(moved, &watched).await.unwrap().expect("it is mined");
    assert_eq!(proven.outputs, after);
}

async fn a_lagging_node_is_no_fork(rig: Rig) {
    let watched = watch(&[&rig.address(50)]);
    rig.mine(8);
    let start = rig.height();
    let mut follower = Follower::start(&*rig.chain, start, KEEP).await.unwrap();
    rig.mine(10);
    walk(&mut follower, &*rig.chain, &watched).await;
    let old = trail(&follower);
    for lag in [1, 5, 12] {
        // Enough nodes are right for every quorum; which node is asked for the head is left to chance.
        for endpoint in 0..ENDPOINTS {
            rig.view(endpoint, View { lag, ..View::default() });
            let (chain, _) = rig.client(2);
            for _ in 0..8 {
                assert_eq!(follower.step(&*chain, &watched, MOST).await, Ok(Step::Idle), "{lag} on {endpoint}");
            }
            rig.heal();
        }
        (0..ENDPOINTS).for_each(|endpoint| rig.view(endpoint, View { lag, ..View::default() }));
        let (chain, _) = rig.client(2);
        assert_eq!(follower.step(&*chain, &watched, MOST).await, Ok(Step::Idle));
        rig.heal();
    }
    assert_eq!(trail(&follower), old);
    // Now there is something new, which one node does not have.
    rig.view(0, View { lag: 3, ..View::default() });
    rig.mine(3);
    for _ in 0..40 {
        rig.wait(1);
        match follower.step(&*rig.chain, &watched, 1).await {
            Ok(Step::Back { .. }) => panic!("nobody forked"),
            Ok(_) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    rig.heal();
    walk(&mut follower, &*rig.chain, &watched).await;
    assert_eq!(trail(&follower), refs(&rig.headers(start, rig.height()).await));
}

async fn a_lying_node_with_other_hashes_is_no_fork(rig: Rig) {
    let owner = rig.address(50);
    let watched = watch(&[&owner]);
    rig.mine(8);
    let start = rig.height();
    rig.mine(6);
    for endpoint in 0..ENDPOINTS {
        // It knows the trail's own blocks under other names, with and without something new on top.
        for new in [0, 2] {
            let (chain, mut events) = rig.client(2);
            let mut follower = Follower::start(&*chain, start, KEEP).await.unwrap();
            walk(&mut follower, &*chain, &watched).await;
            rig.view(endpoint, View { contradict: Some(rig.height() - 3), ..View::default() });
            rig.mine(new);
            for _ in 0..40 {
                rig.wait(1);
                let step = follower.step(&*chain, &watched, MOST).await.expect("a step");
                assert!(!matches!(step, Step::Back { .. }), "endpoint {endpoint}: {step:?}");
            }
            assert_eq!(trail(&follower), refs(&rig.headers(start, rig.height()).await));
            // Whether the liar is asked for something that matters is chance. No honest one is taken for it.
            let events = happened(&mut events);
            for other in (0..ENDPOINTS).filter(|other| *other != endpoint) {
                assert!(!was_found_lying(&events, other), "endpoint {endpoint}, {new} new: {events:?}");
            }
            rig.heal();
        }
    }
}

/// The quorum has the block at the liar's height: then nothing above it is gone either.
async fn a_liar_that_also_lags_is_no_fork(rig: Rig) {
    let watched = watch(&[&rig.address(50)]);
    rig.mine(8);
    let start = rig.height();
    rig.mine(10);
    for endpoint in 0..ENDPOINTS {
        let (chain, _) = rig.client(2);
        let mut follower = Follower::start(&*chain, start, KEEP).await.unwrap();
        walk(&mut follower, &*chain, &watched).await;
        let old = trail(&follower);
        rig.view(endpoint, View { lag: 3, contradict: Some(rig.height() - 6), ..View::default() });
        for _ in 0..40 {
            rig.wait(1);
            assert_eq!(follower.step(&*chain, &watched, MOST).await, Ok(Step::Idle), "endpoint {endpoint}");
        }
        assert_eq!(trail(&follower), old);
        rig.heal();
    }
}

/// Else it would stand there for good: nothing on its trail would be in the chain any more.
async fn one_node_on_a_branch_of_its_own_cannot_lead_the_follower_out_of_its_trail(rig: Rig) {
    let watched = watch(&[&rig.address(50)]);
    rig.mine(8);
    for (endpoint, most) in [(0, 1), (0, 3), (0, 100), (1, 1), (1, 100), (2, 100)] {
        let (chain, _) = rig.client(2);
        let mut follower = Follower::start(&*chain, rig.height(), 6).await.unwrap();
        rig.view(endpoint, View { contradict: Some(rig.height() + 1), ..View::default() });
        rig.mine(20);
        for _ in 0..60 {
            rig.wait(1);
            follower.step(&*chain, &watched, most).await.expect("a step");
            assert!(trail(&follower).len() <= 6);
        }
        rig.heal();
        walk(&mut follower, &*chain, &watched).await;
        assert_follows(&follower, &*rig.truth).await;
    }
}

async fn a_fork_beyond_the_trail_is_an_error_and_changes_nothing(rig: Rig) {
    let watched = watch(&[&rig.address(50)]);
    rig.mine(12);
    let mut follower = Follower::start(&*rig.chain, rig.height() - 11, 5).await.unwrap();
    walk(&mut follower, &*rig.chain, &watched).await;
    let old = trail(&follower);
    assert_eq!(old.len(), 5);
    // All five blocks of the trail go, and not one more.
    rig.reorg(5, Fate::Dropped, &[]);
    for _ in 0..3 {
        let error = follower.step(&*rig.chain, &watched, MOST).await.unwrap_err();
        assert_eq!(error, FollowError::ForkTooDeep { oldest: old[0] });
        assert_eq!(trail(&follower), old);
        rig.mine(1);
    }
}

async fn a_fork_that_takes_the_whole_trail_but_its_oldest_block_is_found(rig: Rig) {
    let watched = watch(&[&rig.address(50)]);
    rig.mine(12);
    let mut follower = Follower::start(&*rig.chain, rig.height() - 11, 6).await.unwrap();
    walk(&mut follower, &*rig.chain, &watched).await;
    let old = trail(&follower);
    rig.reorg(5, Fate::Dropped, &[]);
    let step = follower.step(&*rig.chain, &watched, MOST).await.unwrap();
    let gone: Vec<BlockRef> = old[1..].iter().rev().copied().collect();
    assert_eq!(step, Step::Back { to: old[0], gone });
    assert_eq!(trail(&follower), old[..1]);
}

async fn a_fork_deeper_than_one_question_is_found(rig: Rig) {
    let watched = watch(&[&rig.address(50)]);
    // TRON has nothing so deep that is not solidified.
    let depth = if rig.kind == ChainKind::Tron { 29 } else { 45 };
    rig.mine(60);
    let start = rig.height() - 50;
    let mut follower = Follower::start(&*rig.chain, start, KEEP).await.unwrap();
    walk(&mut follower, &*rig.chain, &watched).await;
    let old = trail(&follower);
    for _ in 0..2 {
        let before = trail(&follower);
        rig.reorg(depth, Fate::Dropped, &[]);
        let at = before.len() - usize::try_from(depth).unwrap();
        let gone: Vec<BlockRef> = before[at..].iter().rev().copied().collect();
        let step = follower.step(&*rig.chain, &watched, MOST).await.unwrap();
        assert_eq!(step, Step::Back { to: before[at - 1], gone });
        walk(&mut follower, &*rig.chain, &watched).await;
    }
    assert_eq!(trail(&follower)[0], old[0]);
    assert_follows(&follower, &*rig.chain).await;
}

#[tokio::test]
async fn a_broken_trail_is_refused() {
    let block = |height| BlockRef { height, hash: BlockHash([7; 32]) };
    let broken: [&[u64]; 8] = [&[], &[1, 3], &[3, 2], &[5, 5], &[1, 2, 4], &[0, 2], &[u64::MAX, 0], &[1, 2, 3, 3]];
    for heights in broken {
        let resumed = Follower::resume(heights.iter().copied().map(block), 2);
        assert_eq!(resumed.unwrap_err(), FollowError::BadTrail, "{heights:?}");
    }
    let follower = Follower::resume((10..20).map(block), 3).unwrap();
    assert_eq!(trail(&follower), (17..20).map(block).collect::<Vec<_>>());
    let follower = Follower::resume([block(u64::MAX)], 0).unwrap();
    assert_eq!(follower.at(), Ok(block(u64::MAX)), "the newest block is always kept");
}

const WIRE_FAULTS: [WireFaults; 8] = {
    const NONE: WireFaults = WireFaults { rate_limit: None, delay_ms: 0, garbage: None, connection: Connection::Whole };
    [
        WireFaults { rate_limit: Some(0), ..NONE },
        WireFaults { garbage: Some(Garbage::Html), ..NONE },
        WireFaults { garbage: Some(Garbage::HtmlOk), ..NONE },
        WireFaults { garbage: Some(Garbage::Empty), ..NONE },
        WireFaults { garbage: Some(Garbage::Truncated), ..NONE },
        WireFaults { garbage: Some(Garbage::WrongType), ..NONE },
        WireFaults { garbage: Some(Garbage::Absurd), ..NONE },
        WireFaults { connection: Connection::HalfClosed, ..NONE },
    ]
};

async fn a_step_that_fails_changes_nothing(rig: Rig) {
    let owner = rig.address(50);
    let watched = watch(&[&owner]);
    rig.mine(8);
    let start = rig.height();
    let mut follower = Follower::start(&*rig.chain, start, KEEP).await.unwrap();
    rig.mine(4);
    walk(&mut follower, &*rig.chain, &watched).await;
    rig.deposit(&owner, &rig.coin(), 900_000).await;
    let old = trail(&follower);
    let mut outputs_seen = Vec::new();
    for (number, faults) in WIRE_FAULTS.into_iter().enumerate() {
        let (chain, _) = rig.client(2);
        rig.wire_all(faults);
        assert!(follower.step(&*chain, &watched, MOST).await.is_err(), "{faults:?}");
        assert_eq!(trail(&follower), old, "{faults:?}");
        rig.heal();
        // The same when there is a fork to be found.
        let forked = number == 3;
        if forked {
            rig.reorg(2, Fate::Moved, &[]);
        }
    }
    let (chain, _) = rig.client(2);
    outputs_seen.extend(outputs(&walk(&mut follower, &*chain, &watched).await));
    assert_eq!(outputs_seen.len(), 1, "what was missed by failing comes once");
    assert_eq!(trail(&follower), refs(&rig.headers(start, rig.height()).await));
}

/// Heads and blocks come from the one node that is left, but whether the chain has forked is not for it to say.
async fn a_fork_that_no_quorum_confirms_changes_nothing(rig: Rig) {
    let watched = watch(&[&rig.address(50)]);
    rig.mine(8);
    let mut follower = Follower::start(&*rig.chain, rig.height() - 6, KEEP).await.unwrap();
    walk(&mut follower, &*rig.chain, &watched).await;
    let old = trail(&follower);
    rig.reorg(3, Fate::Dropped, &[]);
    let dead = WireFaults { garbage: Some(Garbage::Html), ..WireFaults::default() };
    rig.wire(1, dead);
    rig.wire(2, dead);
    for _ in 0..4 {
        let (chain, _) = rig.client(2);
        let error = follower.step(&*chain, &watched, MOST).await.unwrap_err();
        assert!(matches!(error, FollowError::Chain(ChainError::NoQuorum { .. })), "{error:?}");
        assert_eq!(trail(&follower), old);
    }
    rig.heal();
    let (chain, _) = rig.client(2);
    let step = follower.step(&*chain, &watched, MOST).await.unwrap();
    assert!(matches!(step, Step::Back { gone, .. } if gone.len() == 3));
}

async fn a_block_that_only_one_node_has_is_not_built_upon(rig: Rig) {
    let watched = watch(&[&rig.address(50)]);
    rig.mine(8);
    let mut follower = Follower::start(&*rig.chain, rig.height() - 4, KEEP).await.unwrap();
    walk(&mut follower, &*rig.chain, &watched).await;
    let old = trail(&follower);
    let late = |lag| [1, 2].map(|endpoint| rig.view(endpoint, View { lag, ..View::default() }));
    late(2);
    rig.mine(1);
    for _ in 0..20 {
        assert_eq!(follower.step(&*rig.chain, &watched, MOST).await, Ok(Step::Idle));
        assert_eq!(trail(&follower), old);
    }
    late(1);
    let (chain, _) = rig.client(2);
    assert_eq!(follower.step(&*chain, &watched, MOST).await, Ok(Step::Idle));
    late(0);
    let (chain, _) = rig.client(2);
    assert!(matches!(follower.step(&*chain, &watched, MOST).await, Ok(Step::Forward(_))));
    assert_eq!(trail(&follower)[..old.len()], old);
}

#[tokio::test]
async fn anvil_a_reorg_of_twenty_blocks_is_seen_with_the_right_fork_point() {
    let anvil = Anvil::start(31_337).await;
    let endpoint = chain::endpoint::EndpointSettings {
        name: "anvil".to_owned(),
        url: anvil.url.clone(),
        authorization: None,
        key: None,
        headers: Vec::new(),
        per_second: 0,
    };
    let pool = || crate::nodes::bitcoind::pool(std::slice::from_ref(&endpoint), 1);
    let chain = chain::evm::EvmChain::new(chain::evm::EvmSettings::new(31_337, 12), pool());
    let rpc = pool();
    let ask = async |method: &str, params: serde_json::Value| {
        let params = &params;
        let answer = rpc.any(|node| async move { json_rpc::call(&node, method, params.clone()).await });
        let _answer: serde_json::Value = answer.await.unwrap();
    };
    let (payer, owner) = (Key::numbered(0), Key::numbered(50).evm());
    let watched = watch(&[&owner]);
    ask("anvil_mine", json!(["0x5"])).await;
    let mut follower = Follower::start(&chain, 2, KEEP).await.unwrap();
    let payment = Payment { to: owner, coin: Coin::Native, amount: raw(800_000) };
    let fee = tx::Fee::Eip1559 { max_fee: 20_000_000_000, max_priority: 1_000_000_000 };
    let draft = Draft::Evm { from: payer.evm(), nonce: 0, payment, gas_limit: 21_000, fee };
    let unsigned = chain.build(&draft).unwrap();
    let bytes = signed(ChainKind::Evm, &payer, &unsigned.bytes);
    assert_eq!(chain.broadcast(&bytes).await, Ok(chain::Broadcast::Taken));
    ask("anvil_mine", json!(["0x14"])).await;
    let before = outputs(&walk(&mut follower, &chain, &watched).await);
    assert_eq!(before.len(), 1);
    let old = trail(&follower);
    ask("anvil_reorg", json!([20, []])).await;
    let step = follower.step(&chain, &watched, MOST).await.unwrap();
    let gone: Vec<BlockRef> = old.iter().rev().take(20).copied().collect();
    let point = old[old.len() - 21];
    assert_eq!(step, Step::Back { to: point, gone: gone.clone() });
    assert!(gone.contains(&before[0].block));
    assert!(outputs(&walk(&mut follower, &chain, &watched).await).is_empty(), "its transactions are not in the branch");
    // Sent again, it is the same deposit.
    assert_eq!(chain.broadcast(&bytes).await, Ok(chain::Broadcast::Taken));
    ask("anvil_mine", json!(["0x2"])).await;
    let after = outputs(&walk(&mut follower, &chain, &watched).await);
    assert_eq!(after.len(), 1);
    assert_eq!((after[0].transaction, after[0].place), (before[0].transaction, before[0].place));
    assert_follows(&follower, &chain).await;
}

#[tokio::test]
async fn bitcoind_a_reorg_of_twenty_blocks_is_seen_with_the_right_fork_point() {
    let mut node = Bitcoind::start().await;
    let chain = node.client(6);
    let owner = Key::numbered(50).bitcoin(::bitcoin::Network::Regtest);
    let watched = watch(&[&owner]);
    let mut follower = Follower::start(&chain, 108, KEEP).await.unwrap();
    node.fund(&[(owner.clone(), 800_000)]).await;
    node.mine(19).await;
    let before = outputs(&walk(&mut follower, &chain, &watched).await);
    assert_eq!(before.len(), 1);
    let old = trail(&follower);
    // Core brings back to the pool what was in the newest ten blocks only.
    let hash = before[0].transaction.to_string();
    let bytes: String = node.call("getrawtransaction", json!([hash])).await;
    node.reorg(20, &[]).await;
    let step = follower.step(&chain, &watched, MOST).await.unwrap();
    let gone: Vec<BlockRef> = old.iter().rev().take(20).copied().collect();
    let point = old[old.len() - 21];
    assert_eq!(step, Step::Back { to: point, gone: gone.clone() });
    assert!(gone.contains(&before[0].block));
    assert!(outputs(&walk(&mut follower, &chain, &watched).await).is_empty(), "it is in no block");
    let _hash: String = node.call("sendrawtransaction", json!([bytes])).await;
    node.mine(1).await;
    let after = outputs(&walk(&mut follower, &chain, &watched).await);
    assert_eq!(after.len(), 1);
    assert_eq!((after[0].transaction, after[0].place), (before[0].transaction, before[0].place));
    assert_follows(&follower, &chain).await;
}

async fn assert_follows(follower: &Follower, chain: &dyn Chain) {
    let heights: Vec<u64> = follower.trail().map(|block| block.height).collect();
    assert_eq!(trail(follower), refs(&chain.headers(&heights).await.unwrap()));
    assert_eq!(follower.at().unwrap(), chain.head().await.unwrap().tip.at());
}
