//! What we build is taken by a real node, at the fee rate that was asked for by the node's own measure.

use custody::bitcoin::{Aim, Costs, ScriptKind, SpendError, Target};
use store::Engine;
use store::testing::on;
use store::utxo::{AddressKind, Allow};

use crate::node::Node;
use crate::wallet::{KINDS, QUICK, Wallet, change_kind, our_address, our_script};
use crate::world::{fee_for, pay};

const RATES: [u64; 5] = [100, 1_000, 2_345, 10_000, 200_000];

/// Coins of these kinds, in one account.
async fn fund(wallet: &mut Wallet<'_>, kinds: &[AddressKind]) {
    for (number, amount) in (0_u32..).zip([90_000, 150_000, 270_000, 640_000, 910_000, 1_300_000, 5_000_000, 9_000_000])
    {
        let kind = kinds[usize::try_from(number).unwrap() % kinds.len()];
        wallet.deposit(&[(our_address(0, number, kind), amount)], 3_000).await;
    }
    wallet.mine(1, "coins").await;
}

async fn built(kinds: &'static [AddressKind]) {
    on_new(async |wallet| {
        fund(wallet, kinds).await;
        let mut changes = [0, 0];
        for (rate, count) in RATES.into_iter().flat_map(|rate| [1, 2, 100].map(|count| (rate, count))) {
            for (amount, change) in [(20_000, KINDS[0]), (45_678, KINDS[1]), (130_123, KINDS[0])] {
                let amount = if count == 100 { amount / 10 } else { amount };
                let costs = Costs { rate, long_term_rate: 2_000, most_fee: 2_000_000 };
                let recipients = pay(&vec![amount; count]);
                let target = Target { recipients, change: change_kind(change), costs, aim: Aim::Pay };
                let made = wallet.make(0, &target, &our_script(0, 2, change), Allow::default()).await;
                let (payout, lock) = made.unwrap();
                assert!(payout.plan.coins.iter().all(|coin| kinds.contains(&coin.kind)));
                wallet.fair(&payout).await;
                changes[usize::from(payout.plan.change.is_some())] += 1;
                wallet.db.release(wallet.id, lock).await.unwrap();
            }
        }
        assert!(changes[1] > 20, "{changes:?}");
        // The node takes each transaction that it has tested; each is paid out of the change of the one before.
        for count in [1, 2, 100] {
            wallet.pay(0, pay(&vec![5_000; count]), QUICK).await.unwrap();
            wallet.sync_and_agree("taken").await;
        }
        wallet.mine(1, "mined").await;
    })
    .await;
}

async fn on_new(test: impl AsyncFnOnce(&mut Wallet<'_>)) {
    let db = store::testing::fresh(Engine::Sqlite).await;
    db.migrate(store::testing::NOW).await.unwrap();
    let node = Node::start().await;
    let chain = node.client();
    let mut wallet = Wallet::open(&db, &chain, node).await;
    test(&mut wallet).await;
}

#[test]
fn bitcoind_takes_what_spends_p2wpkh() {
    on(Engine::Sqlite, async |_| built(&[AddressKind::P2wpkh]).await);
}

#[test]
fn bitcoind_takes_what_spends_p2tr() {
    on(Engine::Sqlite, async |_| built(&[AddressKind::P2tr]).await);
}

#[test]
fn bitcoind_takes_what_spends_both() {
    on(Engine::Sqlite, async |_| built(&KINDS).await);
}

/// A rest that is too small for change goes to the miner.
#[test]
fn bitcoind_takes_what_has_no_change() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        fund(&mut wallet, &KINDS).await;
        for (rate, amount) in RATES.into_iter().zip([90_000_u64, 150_000, 270_000, 640_000, 910_000]) {
            let costs = Costs { rate, long_term_rate: 2_000, most_fee: 2_000_000 };
            // One input, one output; and 100 satoshi, too few for change.
            let fee = fee_for(rate, 4 * 111) + 100;
            let target = Target { recipients: pay(&[amount - fee]), change: ScriptKind::P2wpkh, costs, aim: Aim::Pay };
            let made = wallet.make(0, &target, &our_script(0, 2, KINDS[0]), Allow::default()).await;
            let (payout, lock) = made.unwrap();
            wallet.fair(&payout).await;
            let wasted = payout.plan.fee - fee_for(rate, payout.plan.weight);
            let change = fee_for(rate, ScriptKind::P2wpkh.output_weight() + 4)
                + fee_for(costs.long_term_rate, ScriptKind::P2wpkh.input_weight())
                + ScriptKind::P2wpkh.dust();
            assert!(payout.plan.change.is_some() || wasted <= change, "{wasted} of {payout:?}");
            wallet.db.add_pending(wallet.id, &payout.new_tx(), Some(lock), wallet.now).await.unwrap();
            wallet.broadcast(&payout).await;
            wallet.sync_and_agree("no change").await;
        }
        wallet.mine(1, "mined").await;
        assert!(matches!(wallet.pay(0, pay(&[900_000_000]), QUICK).await, Err(SpendError::InsufficientFunds { .. })));
        wallet.sync_and_agree("refused").await;
    });
}

/// A replacement that needs a further coin, and one of a transaction with many outputs.
#[test]
fn bitcoind_takes_replacements_at_the_rate_asked_for() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        fund(&mut wallet, &KINDS).await;
        for count in [1, 2, 100] {
            let mut payout = wallet.pay(0, pay(&vec![2_000; count]), Costs { rate: 100, ..QUICK }).await.unwrap();
            for rate in [150, 1_000, 20_000, 20_000, 150_000] {
                let costs = Costs { rate, most_fee: 5_000_000, ..QUICK };
                let recipients = payout.recipients();
                payout = wallet.replace(&payout, costs).await.unwrap();
                assert_eq!(payout.recipients(), recipients);
                wallet.sync_and_agree("replaced").await;
            }
        }
        wallet.mine(1, "mined").await;
        assert_eq!(db.unconfirmed(wallet.id).await.unwrap(), []);
    });
}
