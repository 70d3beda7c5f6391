//! Laws 4 and 5: what was sent may have arrived, what is unknown is not failed, and only a proof says that a payment can
//! never be mined.

use chain::client::{Chain, Sent};
use chain::status::{Mined, Paid, Reason};
use chain::{Broadcast, ChainError, Status};
use devnet::{BroadcastFault, Connection, Fate, Garbage, Lie, View, WireFaults};
use domain::{ChainKind, RawAmount};
use tx::{Coin, Fee, Payment};

use super::{GARBAGE, faulty, in_time};
use crate::rig::{ENDPOINTS, Rig, SignedPayment, happened, on_every_chain, raw, was_found_lying, watch};

on_every_chain! { hasty:
    a_broadcast_without_an_answer_may_have_arrived
    a_broadcast_that_was_not_taken_up_is_unknown
    a_dropped_broadcast_stays_unknown
    a_delayed_broadcast_waits_until_it_is_mined
    a_payment_that_is_delivered_twice_pays_once
    the_same_bytes_again_change_nothing_at_any_stage
    a_payment_follows_its_blocks
    only_a_settled_conflict_makes_a_payment_impossible
    a_payment_that_comes_back_is_mined_again
    a_fee_spike_is_capped_and_said
    a_halted_chain_stays_where_it_is
    what_failed_on_chain_is_mined_and_not_ok
    a_payment_goes_its_way_through_the_trait_alone
}

/// The request was acted on, whatever came back.
async fn a_broadcast_without_an_answer_may_have_arrived(rig: Rig) {
    rig.mine(3);
    let garbage = GARBAGE.into_iter().map(|garbage| faulty(Some(garbage), Connection::Whole));
    let connections = [Connection::HalfClosed, Connection::Silent].map(|connection| faulty(None, connection));
    for (number, faults) in (0..).zip(connections.into_iter().chain(garbage)) {
        let paid = rig.pay(number, 51, 1_000_000).await;
        let (chain, _) = rig.client(2);
        rig.wire_all(faults);
        let said = in_time(60, chain.broadcast(&paid.bytes)).await;
        rig.heal();
        match said {
            Err(ChainError::Unreachable(_)) => {}
            // The answer has no number that could be spoilt.
            Ok(Broadcast::Taken) if faults.garbage == Some(Garbage::Absurd) => {}
            other => panic!("{faults:?}: {other:?}"),
        }
        let (chain, _) = rig.client(2);
        assert_eq!(chain.status(&paid.sent).await, Ok(Status::Mempool), "{faults:?}");
        rig.mine(1);
        assert!(
            matches!(chain.status(&paid.sent).await, Ok(Status::Mined(Mined { paid: Paid::InFull, .. }))),
            "{faults:?}"
        );
    }
}

/// Nobody has acted on it, but nobody has refused it either.
async fn a_broadcast_that_was_not_taken_up_is_unknown(rig: Rig) {
    rig.mine(3);
    let paid = rig.pay(0, 51, 1_000_000).await;
    rig.wire_all(WireFaults { rate_limit: Some(0), ..WireFaults::default() });
    let said = rig.chain.broadcast(&paid.bytes).await;
    assert!(matches!(said, Err(ChainError::Unreachable(_))), "{said:?}");
    rig.heal();
    let (chain, _) = rig.client(2);
    assert_eq!(chain.status(&paid.sent).await, Ok(Status::Unknown));
    // Somebody else may send it at any time.
    assert_eq!(chain.broadcast(&paid.bytes).await, Ok(Broadcast::Taken));
    assert_eq!(chain.status(&paid.sent).await, Ok(Status::Mempool));
}

async fn a_dropped_broadcast_stays_unknown(rig: Rig) {
    rig.mine(35);
    let paid = rig.pay(0, 51, 1_000_000).await;
    rig.model(|model, _| model.broadcasts(BroadcastFault::Drop));
    rig.send(&paid).await;
    let expires = match paid.sent.meaning.slot {
        tx::Slot::Expiry(expires) => Some(expires),
        tx::Slot::Nonce(_) | tx::Slot::Inputs(_) => None,
    };
    let mut ended = 0;
    for _ in 0..60 {
        let status = rig.status(&paid).await;
        let settled = rig.truth.head().await.unwrap().settled.unwrap();
        let settled = rig.headers(settled, settled).await[0];
        if expires.is_some_and(|expires| settled.time > expires) {
            ended += 1;
            let Status::Impossible(proof) = status else { panic!("{status:?} though the expiry is solidified") };
            let Reason::Expired { solidified, time } = proof.reason() else { panic!("{proof:?}") };
            assert!(solidified.height <= settled.height && Some(time) >= expires);
            assert_eq!(rig.headers(solidified.height, solidified.height).await[0].at(), solidified);
        } else if expires.is_none_or(|expires| settled.time < expires) {
            assert_eq!(status, Status::Unknown);
        }
        rig.mine(1);
    }
    assert_eq!(ended > 0, rig.kind == ChainKind::Tron);
}

async fn a_delayed_broadcast_waits_until_it_is_mined(rig: Rig) {
    rig.mine(3);
    let paid = rig.pay(0, 51, 1_000_000).await;
    rig.model(|model, _| model.broadcasts(BroadcastFault::Delay(4)));
    rig.send(&paid).await;
    for _ in 0..4 {
        assert_eq!(rig.status(&paid).await, Status::Mempool);
        rig.mine(1);
    }
    assert_eq!(rig.status(&paid).await, Status::Mempool);
    rig.mine(1);
    let Status::Mined(mined) = rig.status(&paid).await else { panic!("it is mined") };
    assert_eq!((mined.block.height, mined.paid), (rig.height(), Paid::InFull));
}

async fn balance(rig: &Rig, of: u32) -> RawAmount {
    rig.chain.balances(&[(rig.address(of), Coin::Native)]).await.unwrap()[0]
}

async fn a_payment_that_is_delivered_twice_pays_once(rig: Rig) {
    rig.mine(3);
    let paid = rig.pay(0, 51, 1_000_000).await;
    rig.model(|model, _| model.broadcasts(BroadcastFault::Duplicate));
    rig.send(&paid).await;
    rig.mine(1);
    let first = rig.status(&paid).await;
    assert!(matches!(first, Status::Mined(Mined { paid: Paid::InFull, .. })));
    rig.mine(3);
    assert_eq!(rig.status(&paid).await, first);
    assert_eq!(balance(&rig, 51).await, raw(1_000_000));
}

async fn the_same_bytes_again_change_nothing_at_any_stage(rig: Rig) {
    rig.mine(35);
    let paid = rig.pay(0, 51, 1_000_000).await;
    rig.send(&paid).await;
    for blocks in [0, 1, 1, rig.depth(), 60] {
        rig.mine(blocks);
        let (before, paid_before) = (rig.status(&paid).await, balance(&rig, 51).await);
        for _ in 0..2 {
            match rig.chain.broadcast(&paid.bytes).await.unwrap() {
                Broadcast::Taken => {}
                Broadcast::Refused(..) => assert!(matches!(before, Status::Mined(_)), "{before:?}"),
            }
        }
        assert_eq!((rig.status(&paid).await, balance(&rig, 51).await), (before, paid_before));
    }
    rig.mine(2);
    assert_eq!(balance(&rig, 51).await, raw(1_000_000));
}

async fn a_payment_follows_its_blocks(rig: Rig) {
    rig.mine(4);
    let paid = rig.pay(0, 51, 1_000_000).await;
    rig.send(&paid).await;
    assert_eq!(rig.status(&paid).await, Status::Mempool);
    rig.mine(1);
    let Status::Mined(first) = rig.status(&paid).await else { panic!("mined") };
    rig.reorg(1, Fate::Moved, &[]);
    let Status::Mined(moved) = rig.status(&paid).await else { panic!("mined again") };
    assert_ne!(first.block, moved.block);
    assert_eq!(rig.headers(moved.block.height, moved.block.height).await[0].at(), moved.block);
    rig.reorg(1, Fate::Returned, &[]);
    assert_eq!(rig.status(&paid).await, Status::Mempool);
    rig.mine(1);
    assert!(matches!(rig.status(&paid).await, Status::Mined(_)));
    rig.reorg(1, Fate::Dropped, &[]);
    for _ in 0..3 {
        assert_eq!(rig.status(&paid).await, Status::Unknown);
        rig.mine(1);
    }
    // Unknown is not failed: it can come back.
    rig.send(&paid).await;
    rig.mine(1);
    assert!(matches!(rig.status(&paid).await, Status::Mined(_)));
    assert_eq!(balance(&rig, 51).await, raw(1_000_000));
}

fn is_proof_of(status: Status, paid: &SignedPayment, by: &SignedPayment, block: tx::BlockRef) -> bool {
    let Status::Impossible(proof) = status else { return false };
    match (proof.reason(), &paid.sent.meaning.slot) {
        (Reason::NonceTaken { by: taker, block: at }, tx::Slot::Nonce(_)) => taker == by.sent.hash && at == block,
        (Reason::InputSpent { input, by: spender, block: at }, tx::Slot::Inputs(inputs)) => {
            inputs.contains(&input) && spender == by.sent.hash && at == block
        }
        _ => false,
    }
}

async fn only_a_settled_conflict_makes_a_payment_impossible(rig: Rig) {
    rig.mine(4);
    let paid = rig.pay(0, 51, 1_000_000).await;
    let Some(conflict) = rig.conflicting(&paid, 52) else {
        assert_eq!(rig.kind, ChainKind::Tron, "nothing conflicts there");
        return;
    };
    rig.send(&paid).await;
    rig.mine(1);
    assert!(matches!(rig.status(&paid).await, Status::Mined(_)));
    rig.reorg(1, Fate::Returned, std::slice::from_ref(&conflict.bytes));
    let Status::Mined(mined) = rig.status(&conflict).await else { panic!("the conflict is mined") };
    for liar in [None, Some(0), Some(1)] {
        if let Some(liar) = liar {
            rig.view(liar, View { lag: 2, ..View::default() });
        }
        let above = rig.height() - mined.block.height;
        assert!(above < rig.depth());
        assert_eq!(rig.status(&paid).await, Status::Unknown, "{above} blocks above the conflict");
        rig.heal();
        rig.wait(10);
    }
    while rig.height() - mined.block.height < rig.depth() {
        assert_eq!(rig.status(&paid).await, Status::Unknown);
        rig.mine(1);
    }
    for _ in 0..3 {
        let status = rig.status(&paid).await;
        assert!(is_proof_of(status, &paid, &conflict, mined.block), "{status:?}");
        assert!(matches!(rig.status(&conflict).await, Status::Mined(_)), "the other one is as mined as before");
        rig.mine(1);
    }
    // One node that hides it, or that is on another branch, cannot undo the proof, nor make one.
    for endpoint in 0..ENDPOINTS {
        for view in [
            View { lie: Lie::Missing, ..View::default() },
            View { lag: 30, ..View::default() },
            View { contradict: Some(mined.block.height), ..View::default() },
        ] {
            let (chain, _) = rig.client(2);
            rig.view(endpoint, view.clone());
            let status = chain.status(&paid.sent).await.unwrap();
            assert!(is_proof_of(status, &paid, &conflict, mined.block), "{view:?} on {endpoint}: {status:?}");
            rig.heal();
        }
    }
    assert_eq!(balance(&rig, 51).await, raw(0));
    assert_eq!(balance(&rig, 52).await, raw(1_000_000));
}

async fn a_payment_that_comes_back_is_mined_again(rig: Rig) {
    rig.mine(4);
    let paid = rig.pay(0, 51, 1_000_000).await;
    let Some(conflict) = rig.conflicting(&paid, 52) else { return };
    rig.send(&paid).await;
    rig.mine(1);
    rig.reorg(1, Fate::Dropped, std::slice::from_ref(&conflict.bytes));
    rig.mine(rig.depth() - 3);
    assert_eq!(rig.status(&paid).await, Status::Unknown, "two blocks less than settled");
    rig.reorg(rig.depth() - 1, Fate::Dropped, std::slice::from_ref(&paid.bytes));
    assert!(matches!(rig.status(&paid).await, Status::Mined(Mined { paid: Paid::InFull, .. })));
    assert_eq!(rig.status(&conflict).await, Status::Unknown, "one block less than settled");
    rig.mine(1);
    let Status::Mined(mined) = rig.status(&paid).await else { panic!("mined") };
    let status = rig.status(&conflict).await;
    assert!(is_proof_of(status, &conflict, &paid, mined.block), "{status:?}");
}

async fn a_fee_spike_is_capped_and_said(rig: Rig) {
    rig.mine(3);
    let (from, payment) = (rig.address(0), rig.payment(51, rig.coin(), 5_000));
    let usual = rig.chain.quote(&from, &payment, rig.cap()).await.unwrap();
    assert!(!usual.capped);
    rig.model(|model, _| model.fee_factor(10_000));
    rig.mine(1);
    let spike = rig.chain.quote(&from, &payment, rig.cap()).await.unwrap();
    assert!(spike.capped);
    match (spike.fee, rig.cap().0) {
        (Fee::Eip1559 { max_fee, max_priority }, Fee::Eip1559 { max_fee: most, .. }) => {
            assert!(max_fee == most && max_priority <= max_fee);
        }
        (fee, cap) => assert_eq!(fee, cap),
    }
    rig.model(|model, _| model.fee_factor(1));
    rig.mine(1);
    assert!(!rig.chain.quote(&from, &payment, rig.cap()).await.unwrap().capped);
}

async fn a_halted_chain_stays_where_it_is(rig: Rig) {
    rig.mine(3);
    let paid = rig.pay(0, 51, 1_000_000).await;
    rig.send(&paid).await;
    let head = rig.chain.head().await.unwrap();
    for _ in 0..5 {
        rig.wait(1_000);
        assert_eq!(rig.chain.head().await.unwrap(), head);
        // TRON's clock is its blocks': what has expired by ours has not by theirs.
        assert_eq!(rig.status(&paid).await, Status::Mempool);
    }
}

fn much() -> RawAmount {
    "1000000000000000000000000000000".parse().unwrap()
}

async fn what_failed_on_chain_is_mined_and_not_ok(rig: Rig) {
    let Some(token) = rig.token() else { return };
    rig.mine(3);
    let owner = rig.address(51);
    let watched = watch(&[&owner]);
    let limit = if rig.kind == ChainKind::Evm { 25_000 } else { 2_000 };
    let poor = Payment { to: owner.clone(), coin: token.clone(), amount: much() };
    let reverts = rig.pay_coin(0, poor, (rig.kind == ChainKind::Evm).then_some(200_000)).await;
    let runs_out = rig.pay_coin(1, rig.payment(51, token, 5_000), Some(limit)).await;
    for paid in [&reverts, &runs_out] {
        rig.send(paid).await;
    }
    rig.mine(1);
    for blocks in [0, 1, rig.depth(), 60] {
        rig.mine(blocks);
        for paid in [&reverts, &runs_out] {
            let status = rig.status(paid).await;
            assert!(matches!(status, Status::Mined(Mined { paid: Paid::Nothing, .. })), "{status:?}");
            let proven = rig.chain.prove(paid.sent.hash, &watched).await.unwrap().expect("it is mined");
            assert!(!proven.ok && proven.outputs.iter().all(|output| !output.ok), "{proven:?}");
        }
    }
    for lie in [Lie::Missing, Lie::Flipped] {
        let (chain, mut events) = rig.client(2);
        rig.view(0, View { lie, ..View::default() });
        for paid in [&reverts, &runs_out] {
            let status = chain.status(&paid.sent).await.unwrap();
            assert!(matches!(status, Status::Mined(Mined { paid: Paid::Nothing, .. })), "{status:?}");
        }
        // On EVM a flipped receipt has no log of the token, so it says the same as the truth: nothing was paid.
        let harmless = lie == Lie::Flipped && rig.kind == ChainKind::Evm;
        assert!(harmless || was_found_lying(&happened(&mut events), 0), "{lie:?}");
        rig.heal();
    }
}

async fn a_payment_goes_its_way_through_the_trait_alone(rig: Rig) {
    rig.mine(4);
    let chain: &dyn Chain = &*rig.chain;
    for (from, coin) in [(0, Coin::Native), (1, rig.coin())] {
        let to = 60 + from;
        let paid = rig.pay_coin(from, rig.payment(to, coin.clone(), 1_000_000), None).await;
        let meaning = chain.decode_signed(&paid.bytes).unwrap();
        assert_eq!(meaning.payments[0], paid.payment);
        if rig.kind != ChainKind::Bitcoin {
            assert_eq!(meaning.from, Some(rig.address(from)));
            assert_eq!(meaning.payments.len(), 1);
        }
        let sent = Sent { hash: meaning.hash.unwrap(), meaning, since: rig.height() };
        assert_eq!(chain.status(&sent).await, Ok(Status::Unknown));
        assert_eq!(chain.broadcast(&paid.bytes).await, Ok(Broadcast::Taken));
        assert_eq!(chain.status(&sent).await, Ok(Status::Mempool));
        rig.mine(1);
        let Status::Mined(mined) = chain.status(&sent).await.unwrap() else { panic!("mined") };
        assert!(mined.paid == Paid::InFull && mined.fee.is_some());
        assert_eq!(mined.block, chain.head().await.unwrap().tip.at());
        let proven = chain.prove(sent.hash, &watch(&[&rig.address(to)])).await.unwrap().expect("it is mined");
        assert_eq!(proven.block, mined.block);
        let outputs: Vec<_> = proven.outputs.iter().map(|output| (&output.to, &output.coin, output.amount)).collect();
        assert_eq!(outputs, [(&rig.address(to), &coin, raw(1_000_000))]);
        assert_eq!(chain.balances(&[(rig.address(to), coin.clone())]).await.unwrap(), [raw(1_000_000)]);
        // Fee and payment together are what the payer lost, where it is counted.
        let most = sent.meaning.most_fee;
        if let (Some(most), Some(fee)) = (most, mined.fee) {
            assert!(fee.to_u256() <= most.to_u256(), "{fee} is above {most}");
        }
    }
}
