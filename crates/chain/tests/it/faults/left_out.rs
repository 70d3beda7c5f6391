//! A node that leaves out a log or a transaction of a block.
//!
//! | asked | of one node | of a quorum |
//! |---|---|---|
//! | `scan` on EVM and TRON | fooled: the payment is not found, and nothing tells | as of one: it reads from one node |
//! | `scan` on Bitcoin | not fooled: the bytes do not fit the block's hash | the same |
//! | `prove` | fooled | not fooled |
//!
//! So a quorum protects what is credited, and nothing here protects from what is never found: a scan that another node has
//! not repeated may lack deposits. `prove_blocks` finds it, by the roots in the header: see `proven`.

use chain::ChainError;
use devnet::{Lie, View};
use domain::ChainKind;

use super::unsigned;
use crate::rig::{Rig, happened, on_every_chain, was_found_lying, watch};

on_every_chain! { hasty:
    what_one_node_leaves_out_is_found_by_a_quorum_when_it_is_asked_for
}

async fn what_one_node_leaves_out_is_found_by_a_quorum_when_it_is_asked_for(rig: Rig) {
    let owner = rig.address(50);
    let watched = watch(&[&owner]);
    rig.mine(6);
    let deposit = rig.deposit(&owner, &rig.coin(), 700_000).await;
    let at = rig.height();
    rig.mine(2);
    let scanned = unsigned(rig.truth.scan(at, at, &watched).await.unwrap());
    let proven = rig.truth.prove(deposit, &watched).await.unwrap();
    assert_eq!((scanned.outputs.len(), proven.as_ref().map(|proven| proven.outputs.len())), (1, Some(1)));
    for lie in [Lie::LogLeftOut, Lie::TransactionLeftOut] {
        rig.view(0, View { lie, ..View::default() });
        let alone = rig.client_of(0);
        let scan = alone.scan(at, at, &watched).await.map(unsigned);
        let proof = alone.prove(deposit, &watched).await;
        match (rig.kind, lie) {
            (ChainKind::Bitcoin, Lie::LogLeftOut) => {
                assert_eq!((scan.as_ref(), proof.as_ref()), (Ok(&scanned), Ok(&proven)), "there are no logs");
            }
            (ChainKind::Bitcoin, _) => {
                assert!(matches!(scan, Err(ChainError::Unreachable(_))), "a block proves itself: {scan:?}");
                assert_eq!(proof, Ok(None), "fooled");
            }
            (ChainKind::Evm | ChainKind::Tron, lie) => {
                let scan = scan.unwrap();
                assert_eq!((&scan.headers, scan.outputs.len()), (&scanned.headers, 0), "fooled");
                match lie {
                    Lie::LogLeftOut => assert_eq!(proof.unwrap().map(|proven| proven.outputs.len()), Some(0), "fooled"),
                    _ => assert_eq!(proof, Ok(None), "fooled"),
                }
            }
        }
        for endpoint in 0..2 {
            rig.heal();
            rig.view(endpoint, View { lie, ..View::default() });
            let (chain, mut events) = rig.client(2);
            assert_eq!(chain.prove(deposit, &watched).await.as_ref(), Ok(&proven), "{lie:?} on {endpoint}");
            let found = was_found_lying(&happened(&mut events), endpoint);
            assert!(found || rig.kind == ChainKind::Bitcoin, "{lie:?} on {endpoint}");
        }
        rig.heal();
    }
}
