//! Balances at one named block, and what each node says of itself.

use chain::{ChainError, Feature, Has};
use devnet::{Connection, Garbage, View};
use domain::ChainKind;
use tx::Coin;

use super::faulty;
use crate::rig::{ENDPOINTS, Rig, happened, on_every_chain, raw};

on_every_chain! { hasty:
    balances_are_of_the_block_that_is_named
    a_node_on_another_branch_has_no_word_in_a_balance
    a_survey_tells_what_each_node_says
}

async fn balances_are_of_the_block_that_is_named(rig: Rig) {
    let owner = rig.address(50);
    let wanted = [(owner.clone(), Coin::Native), (owner.clone(), rig.coin()), (rig.address(60), Coin::Native)];
    rig.mine(3);
    rig.deposit(&owner, &Coin::Native, 700_000).await;
    let near = rig.truth.head().await.unwrap().tip.at();
    rig.deposit(&owner, &Coin::Native, 50_000).await;
    // So that the first is settled where the state of settled blocks is what there is.
    if rig.kind == ChainKind::Tron {
        rig.mine(rig.depth() - 1);
    }
    let (at, found) = rig.chain.balances_at(&wanted, near).await.unwrap();
    let native = match rig.kind {
        ChainKind::Evm | ChainKind::Tron => {
            assert_eq!(at, near);
            700_000
        }
        ChainKind::Bitcoin => {
            assert_eq!(at, rig.truth.head().await.unwrap().tip.at());
            750_000
        }
    };
    let other = if rig.token().is_some() { 0 } else { native };
    assert_eq!(found, [raw(native), raw(other), raw(0)]);
    if rig.kind == ChainKind::Evm {
        // The block of this hash is gone: nobody has a balance at it.
        rig.reorg(3, devnet::Fate::Dropped, &[]);
        let gone = rig.chain.balances_at(&wanted, near).await;
        assert!(matches!(gone, Err(ChainError::Refused(_) | ChainError::NoQuorum { .. })), "{gone:?}");
    }
}

async fn a_node_on_another_branch_has_no_word_in_a_balance(rig: Rig) {
    let owner = rig.address(50);
    rig.mine(3);
    rig.deposit(&owner, &Coin::Native, 700_000).await;
    rig.mine(if rig.kind == ChainKind::Tron { rig.depth() } else { 1 });
    let near = rig.truth.head().await.unwrap().tip.at();
    let wanted = [(owner, Coin::Native)];
    let truth = rig.truth.balances_at(&wanted, near).await.unwrap();
    assert_eq!(truth.1, [raw(700_000)]);
    for endpoint in 0..ENDPOINTS {
        for view in [View { contradict: Some(2), ..View::default() }, View { lag: 1, ..View::default() }] {
            let (chain, mut events) = rig.client(2);
            rig.view(endpoint, view.clone());
            assert_eq!(chain.balances_at(&wanted, near).await.as_ref(), Ok(&truth), "{view:?} on {endpoint}");
            rig.heal();
            let events = happened(&mut events);
            let slandered = events.iter().any(|event| matches!(event, chain::endpoint::Event::SetAside { .. }));
            assert!(!slandered, "{view:?} on {endpoint}: {events:?}");
        }
        // Where all must agree, one that is elsewhere leaves no answer.
        let (chain, _) = rig.client(3);
        rig.view(endpoint, View { contradict: Some(2), ..View::default() });
        let none = chain.balances_at(&wanted, near).await;
        assert!(matches!(none, Err(ChainError::NoQuorum { .. } | ChainError::Refused(_))), "{none:?}");
        rig.heal();
    }
}

async fn a_survey_tells_what_each_node_says(rig: Rig) {
    rig.mine(12);
    let healthy = rig.chain.survey().await.unwrap();
    assert_eq!(healthy.len(), ENDPOINTS);
    for (number, report) in healthy.iter().enumerate() {
        assert_eq!(report.endpoint, format!("node {number}"));
        assert!(report.right_network && report.network.is_some(), "{report:?}");
        let expected = (Some(rig.height()), Some(0), Some(true), None);
        assert_eq!((report.height, report.lag, report.agrees, report.error.clone()), expected);
        assert!(report.latency_ms.is_some());
        let has = |feature| report.features.iter().find(|(one, _)| *one == feature).map(|(_, has)| *has);
        match rig.kind {
            ChainKind::Evm => {
                for feature in [Feature::ReceiptsByBlock, Feature::Traces, Feature::BalancesByBlockHash] {
                    assert_eq!(has(feature), Some(Has::Yes), "{feature:?}");
                }
            }
            ChainKind::Tron => {
                assert_eq!(has(Feature::SolidifiedState), Some(Has::Yes));
                assert_eq!(has(Feature::ReceiptsByBlock), Some(Has::Yes));
                assert_eq!(has(Feature::InternalTransactions), Some(Has::Unknown));
            }
            ChainKind::Bitcoin => {
                assert_eq!(has(Feature::BlocksFrom(0)), Some(Has::Yes));
                assert!(has(Feature::TransactionIndex).is_some());
            }
        }
    }
    rig.view(1, View { lag: 4, ..View::default() });
    rig.view(2, View { contradict: Some(2), ..View::default() });
    let odd = rig.client(2).0.survey().await.unwrap();
    let told: Vec<_> = odd.iter().map(|report| (report.lag, report.agrees)).collect();
    assert_eq!(told, [(Some(0), Some(true)), (Some(4), Some(true)), (Some(0), Some(false))]);
    rig.heal();
    rig.wire(0, faulty(Some(Garbage::Html), Connection::Whole));
    let broken = rig.client(2).0.survey().await.unwrap();
    assert!(broken[0].error.is_some() && broken[0].height.is_none(), "{:?}", broken[0]);
    assert_eq!(broken[1].agrees, Some(true));
}
