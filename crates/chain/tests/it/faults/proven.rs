//! Blocks that are proven, of nodes that lie about them.
//!
//! | lie | Bitcoin | EVM | TRON |
//! |---|---|---|---|
//! | a transaction left out, swapped, with another value | does not hash | does not hash | does not hash |
//! | a log left out, an amount inflated | (has no logs) | does not hash | contradicts the quorum |
//! | an outcome flipped | (has none) | does not hash | does not hash: it is in the leaf |

use chain::endpoint::Event;
use chain::{Chain, ChainError, Scan, Watched};
use devnet::{Lie, View};
use domain::ChainKind;
use tx::Coin;

use super::unsigned;
use crate::rig::{ENDPOINTS, Rig, happened, on_every_chain, was_found_lying, watch};

on_every_chain! { hasty:
    what_is_proven_is_what_was_scanned
    no_lie_of_one_node_gets_into_a_proof
    lies_of_all_nodes_prove_nothing
    a_node_alone_cannot_lie_about_what_is_hashed
    a_reorganisation_is_proven_like_any_block
}

const LIES: [Lie; 6] =
    [Lie::Flipped, Lie::Inflated, Lie::LogLeftOut, Lie::TransactionLeftOut, Lie::ValueInflated, Lie::Swapped];

/// Blocks with payments in both coins, some by and some to watched addresses.
struct Scene {
    watched: Watched,
    from: u64,
    to: u64,
}

impl Scene {
    async fn new(rig: &Rig) -> Self {
        let watched = watch(&[&rig.address(50), &rig.address(51), &rig.address(0)]);
        rig.mine(3);
        let from = rig.height();
        rig.deposit(&rig.address(50), &Coin::Native, 700_000).await;
        rig.deposit(&rig.address(51), &rig.coin(), 40_000).await;
        for (payer, amount) in [(0, 1_000_000), (1, 2_000_000), (2, 3_000_000)] {
            let paid = rig.pay(payer, 51, amount).await;
            rig.send(&paid).await;
        }
        rig.mine(2);
        // The last word of a block is a token's, and it is ours.
        rig.deposit(&rig.address(50), &rig.coin(), 50_000).await;
        rig.mine(1);
        Self { watched, from, to: rig.height() }
    }

    async fn proven(&self, chain: &dyn Chain) -> Result<Scan, ChainError> {
        chain.prove_blocks(self.from, self.to, &self.watched).await.map(unsigned)
    }

    async fn truth(&self, rig: &Rig) -> Scan {
        unsigned(rig.truth.scan(self.from, self.to, &self.watched).await.unwrap())
    }
}

/// Whether the lie is about what the header of this chain commits to, so that one node is enough to find it out.
fn is_hashed(kind: ChainKind, lie: Lie) -> bool {
    match (kind, lie) {
        (_, Lie::Truth | Lie::Missing) | (ChainKind::Bitcoin, Lie::Flipped | Lie::LogLeftOut) => false,
        (ChainKind::Tron, Lie::Inflated | Lie::LogLeftOut) => false,
        (_, Lie::TransactionLeftOut | Lie::ValueInflated | Lie::Swapped) => true,
        (_, Lie::Flipped | Lie::Inflated | Lie::LogLeftOut) => true,
    }
}

/// Bitcoin has neither logs nor outcomes to lie about.
fn is_told(kind: ChainKind, lie: Lie) -> bool {
    kind != ChainKind::Bitcoin || is_hashed(kind, lie)
}

fn forged(events: &[Event], endpoint: usize) -> bool {
    let name = format!("node {endpoint}");
    events.iter().any(|event| matches!(event, Event::Forges { endpoint, .. } if *endpoint == name))
}

async fn what_is_proven_is_what_was_scanned(rig: Rig) {
    let scene = Scene::new(&rig).await;
    let truth = scene.truth(&rig).await;
    assert!(truth.outputs.len() >= 5, "{truth:?}");
    assert_eq!(truth.spends.is_empty(), rig.kind == ChainKind::Bitcoin);
    let (chain, mut events) = rig.client(2);
    let proven = chain.prove_blocks(scene.from, scene.to, &scene.watched).await.unwrap();
    assert!(proven.source.starts_with("node "), "{}", proven.source);
    assert_eq!(unsigned(proven), truth);
    let all = chain.prove_blocks(0, scene.to, &scene.watched).await.unwrap();
    assert_eq!(unsigned(all), unsigned(rig.truth.scan(0, scene.to, &scene.watched).await.unwrap()));
    assert_eq!(chain.prove_blocks(5, 4, &scene.watched).await, Ok(Scan::default()));
    let above = rig.height() + 1;
    let missing = chain.prove_blocks(above - 1, above, &scene.watched).await;
    assert_eq!(missing, Err(ChainError::BlockMissing { height: above }));
    let strangers = chain.prove_blocks(0, scene.to, &watch(&[&rig.address(70)])).await.unwrap();
    assert_eq!((strangers.outputs.len(), strangers.spends.len()), (0, 0));
    assert_eq!(happened(&mut events), []);
}

async fn no_lie_of_one_node_gets_into_a_proof(rig: Rig) {
    let scene = Scene::new(&rig).await;
    let truth = scene.truth(&rig).await;
    for lie in LIES {
        let mut found = 0;
        for endpoint in 0..ENDPOINTS {
            let (chain, mut events) = rig.client(2);
            rig.view(endpoint, View { lie, ..View::default() });
            assert_eq!(scene.proven(&*chain).await.as_ref(), Ok(&truth), "{lie:?} on {endpoint}");
            rig.heal();
            let events = happened(&mut events);
            let named = |node| forged(&events, node) || was_found_lying(&events, node);
            found += usize::from(named(endpoint));
            assert!(
                !(0..ENDPOINTS).any(|other| other != endpoint && named(other)),
                "{lie:?} on {endpoint}: {events:?}"
            );
        }
        assert!(found > 0 || !is_told(rig.kind, lie), "{lie:?} was found on no node");
    }
}

async fn lies_of_all_nodes_prove_nothing(rig: Rig) {
    let scene = Scene::new(&rig).await;
    let truth = scene.truth(&rig).await;
    for lie in LIES {
        let (chain, mut events) = rig.client(2);
        (0..ENDPOINTS).for_each(|endpoint| rig.view(endpoint, View { lie, ..View::default() }));
        let proven = scene.proven(&*chain).await;
        rig.heal();
        match (is_hashed(rig.kind, lie), is_told(rig.kind, lie)) {
            (true, _) => {
                let height = scene.from..=scene.to;
                let refused =
                    matches!(&proven, Err(ChainError::BlockNotProven { height: at, .. }) if height.contains(at));
                assert!(refused, "{lie:?}: {proven:?}");
                let events = happened(&mut events);
                assert!((0..ENDPOINTS).all(|endpoint| forged(&events, endpoint)), "{lie:?}: {events:?}");
            }
            // What no header commits to is what a quorum says.
            (false, true) => assert_ne!(proven.as_ref(), Ok(&truth), "{lie:?}"),
            (false, false) => assert_eq!(proven.as_ref(), Ok(&truth), "{lie:?}"),
        }
    }
}

async fn a_node_alone_cannot_lie_about_what_is_hashed(rig: Rig) {
    let scene = Scene::new(&rig).await;
    for lie in LIES.into_iter().filter(|lie| is_hashed(rig.kind, *lie)) {
        rig.view(0, View { lie, ..View::default() });
        let proven = scene.proven(&*rig.client_of(0)).await;
        assert!(matches!(proven, Err(ChainError::BlockNotProven { .. })), "{lie:?}: {proven:?}");
    }
    rig.heal();
    assert_eq!(scene.proven(&*rig.client_of(0)).await, Ok(scene.truth(&rig).await));
}

async fn a_reorganisation_is_proven_like_any_block(rig: Rig) {
    let scene = Scene::new(&rig).await;
    let before = scene.proven(&*rig.chain).await.unwrap();
    rig.reorg(2, devnet::Fate::Dropped, &[]);
    let after = scene.proven(&*rig.chain).await.unwrap();
    assert_ne!(before, after);
    assert_eq!(after, scene.truth(&rig).await);
}
