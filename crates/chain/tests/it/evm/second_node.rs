//! Blocks that are proven by a second node, where roots cost too much.

use chain::endpoint::Event;
use chain::evm::{BlockProof, EvmChain, EvmSettings};
use chain::{Chain, ChainError, Scan};
use devnet::evm::TETHER;
use devnet::{Lie, Model, View};
use std::sync::PoisonError;
use tx::Address;

use super::net::{CHAIN_ID, CONFIRMATIONS, devnet, fresh, pool, raw, watch};

#[tokio::test]
async fn a_quorum_must_read_the_same() {
    let served = devnet(3).await;
    let act = |what: &dyn Fn(&mut devnet::evm::EvmDevnet)| {
        what(&mut served.model.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let to = Address::Evm(fresh(1)).to_string();
    act(&|model| {
        model.fund(&to, None, raw(700), served.now()).expect("a gift");
        model.fund(&to, Some("USDT"), raw(50), served.now()).expect("a gift");
    });
    served.mine(2);
    let urls: Vec<String> = served.endpoints.iter().map(devnet::Endpoint::url).collect();
    let client = |quorum: usize| {
        let settings = EvmSettings {
            tokens: vec![TETHER],
            proof: BlockProof::SecondNode,
            ..EvmSettings::new(CHAIN_ID, CONFIRMATIONS)
        };
        let pool = pool(&urls, quorum);
        let events = pool.events();
        (EvmChain::new(settings, pool), events)
    };
    let watched = watch(&[fresh(1)]);
    let truth = client(3).0.prove_blocks(0, 2, &watched).await.expect("all say the same");
    assert_eq!(truth.outputs.len(), 2);
    for lie in [Lie::LogLeftOut, Lie::TransactionLeftOut, Lie::Inflated, Lie::ValueInflated, Lie::Flipped] {
        for liar in 0..3 {
            let view = |lie| {
                *served.endpoints[liar].view.lock().unwrap_or_else(PoisonError::into_inner) =
                    View { lie, ..View::default() }
            };
            view(lie);
            let (chain, mut events) = client(2);
            assert_eq!(chain.prove_blocks(0, 2, &watched).await.as_ref(), Ok(&truth), "{lie:?} on {liar}");
            let name = format!("node {liar}");
            while let Ok(event) = events.try_recv() {
                assert!(
                    matches!(&event, Event::Contradicts { endpoint, .. } | Event::SetAside { endpoint, .. } if *endpoint == name),
                    "{event:?}"
                );
            }
            let all: Result<Scan, ChainError> = client(3).0.prove_blocks(0, 2, &watched).await;
            assert!(matches!(all, Err(ChainError::NoQuorum { wanted: 3, .. })), "{lie:?}: {all:?}");
            view(Lie::Truth);
        }
    }
    assert_eq!(client(2).0.prove_blocks(2, 9, &watched).await, Err(ChainError::BlockMissing { height: 3 }));
}
