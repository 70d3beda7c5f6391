//! Nodes that do nothing wrong, or nothing at all, and what that costs the others.

use chain::endpoint::Event;
use chain::{ChainError, Status};
use devnet::{Connection, View};

use super::{faulty, in_time};
use crate::rig::{ENDPOINTS, Rig, happened, on_every_chain, watch};

on_every_chain! { patient:
    a_node_that_is_a_block_ahead_is_not_set_aside
    a_status_does_not_wait_for_nodes_that_hang
}

async fn a_node_that_is_a_block_ahead_is_not_set_aside(rig: Rig) {
    let watched = watch(&[&rig.address(51)]);
    rig.mine(8);
    for (payer, ahead) in (0..).zip(0..ENDPOINTS) {
        let (chain, mut events) = rig.client(2);
        chain.head().await.unwrap();
        let paid = rig.pay(payer, 51, 1_000_000).await;
        rig.send(&paid).await;
        for other in (0..ENDPOINTS).filter(|other| *other != ahead) {
            rig.view(other, View { lag: 1, ..View::default() });
        }
        rig.mine(1);
        let tip = rig.height();
        for _ in 0..5 {
            let headers = chain.headers(&[tip - 1, tip]).await;
            assert_eq!(headers, Err(ChainError::BlockMissing { height: tip }), "one node alone has it");
            let status = chain.status(&paid.sent).await.unwrap();
            assert!(matches!(status, Status::Mempool | Status::Unknown), "{status:?}");
            assert!(matches!(chain.prove(paid.sent.hash, &watched).await, Ok(None) | Err(ChainError::NoQuorum { .. })));
        }
        let events = happened(&mut events);
        let slandered = events.iter().any(|event| matches!(event, Event::Contradicts { .. } | Event::SetAside { .. }));
        assert!(!slandered, "node {ahead} is ahead: {events:?}");
        rig.heal();
        assert!(matches!(chain.status(&paid.sent).await, Ok(Status::Mined(_))));
    }
}

/// A node that takes a call and never answers has its own deadline, thirty seconds here. The others have answered long since.
async fn a_status_does_not_wait_for_nodes_that_hang(rig: Rig) {
    rig.mine(6);
    let mined = rig.pay(0, 51, 1_000_000).await;
    rig.send(&mined).await;
    rig.mine(2);
    let waiting = rig.pay(1, 51, 1_000_000).await;
    rig.send(&waiting).await;
    let unheard = rig.pay(2, 51, 1_000_000).await;
    for endpoint in 0..ENDPOINTS {
        let (chain, _) = rig.client(2);
        rig.wire(endpoint, faulty(None, Connection::Silent));
        in_time(15, async {
            for _ in 0..2 {
                assert!(matches!(chain.status(&mined.sent).await, Ok(Status::Mined(_))));
                assert_eq!(chain.status(&waiting.sent).await, Ok(Status::Mempool));
                assert_eq!(chain.status(&unheard.sent).await, Ok(Status::Unknown));
            }
        })
        .await;
        rig.heal();
    }
}
