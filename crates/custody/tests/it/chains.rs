//! Change is spent again before it is in a block, as often as nodes take it and no oftener.

use custody::bitcoin::{Aim, Target, chooser, learn_chain_limits};
use store::Engine;
use store::testing::on;
use store::utxo::{Allow, ChainSize, LockId, UtxoError, Want};

use crate::node::Node;
use crate::wallet::{KINDS, QUICK, Wallet, change_kind, our_address};
use crate::world::pay;

/// So many transactions the nodes of releases before 31 take in one chain; this one is told to do the same.
const LIKE_BEFORE_31: &[&str] = &["-limitclustercount=25"];

async fn on_node(options: &'static [&'static str], test: impl AsyncFnOnce(&mut Wallet<'_>)) {
    let db = store::testing::fresh(Engine::Sqlite).await;
    db.migrate(store::testing::NOW).await.unwrap();
    let node = Node::start_with(options).await;
    let chain = node.client();
    let mut wallet = Wallet::open(&db, &chain, node).await;
    test(&mut wallet).await;
}

/// Whether a selection finds coins for it now; they are given back.
async fn selects(wallet: &mut Wallet<'_>, amount: u64) -> Result<bool, UtxoError> {
    let target = Target { recipients: pay(&[amount]), change: change_kind(KINDS[0]), costs: QUICK, aim: Aim::Pay };
    let (want, mut refused) = (Want { target: target.wanted().unwrap(), allow: Allow::default(), seed: 1 }, None);
    let (lock, now) = (LockId([99; 32]), wallet.tick());
    let choose = chooser(&target, &mut refused);
    let until = now.plus_micros(1_000_000);
    let coins = wallet.db.select_and_lease(wallet.id, 0, &want, lock, until, now, choose).await?;
    wallet.db.release(wallet.id, lock).await?;
    Ok(coins.is_some())
}

/// Thirty payouts, each of which the node takes. How often a block had to come first.
async fn thirty_payouts(wallet: &mut Wallet<'_>) -> u32 {
    let mut waited = 0;
    for number in 0..30 {
        match selects(wallet, 5_000).await {
            Ok(found) => assert!(found, "payout {number}"),
            Err(error) => {
                assert_eq!(error.code(), "UTXO_CHAIN_TOO_LONG", "{error:?}");
                waited += 1;
                wallet.mine(1, "room").await;
            }
        }
        // The node is asked whether it takes it, and then takes it.
        wallet.pay(0, pay(&[5_000]), QUICK).await.unwrap();
    }
    wallet.sync_and_agree("thirty payouts").await;
    wallet.mine(1, "all of them").await;
    waited
}

#[test]
fn bitcoind_takes_all_of_thirty_payouts_from_one_coin() {
    on(Engine::Sqlite, async |_| {
        on_node(LIKE_BEFORE_31, async |wallet| {
            wallet.deposit(&[(our_address(0, 0, KINDS[0]), 9_000_000)], 3_000).await;
            wallet.mine(1, "one coin").await;
            assert_eq!(thirty_payouts(wallet).await, 1, "the 26th waits for a block");
        })
        .await;
    });
}

#[test]
fn bitcoind_takes_thirty_payouts_at_once_where_there_are_two_coins() {
    on(Engine::Sqlite, async |_| {
        on_node(LIKE_BEFORE_31, async |wallet| {
            for (key, amount) in [(0, 9_000_000), (1, 8_000_000)] {
                wallet.deposit(&[(our_address(0, key, KINDS[0]), amount)], 3_000).await;
            }
            wallet.mine(1, "two coins").await;
            assert_eq!(thirty_payouts(wallet).await, 0, "the 26th takes the other coin");
        })
        .await;
    });
}

#[test]
fn the_limits_of_bitcoind_are_learned() {
    on(Engine::Sqlite, async |_| {
        on_node(&["-limitclustercount=7", "-limitclustersize=50"], async |wallet| {
            assert_eq!(wallet.db.chain_limits(wallet.id).await.unwrap(), ChainSize::USUAL);
            learn_chain_limits(wallet.db, wallet.chain).await.unwrap();
            let learned = ChainSize { transactions: 7, bytes: 50_000 };
            assert_eq!(wallet.db.chain_limits(wallet.id).await.unwrap(), learned);
            wallet.deposit(&[(our_address(0, 0, KINDS[0]), 9_000_000)], 3_000).await;
            wallet.mine(1, "one coin").await;
            assert_eq!(thirty_payouts(wallet).await, 4, "seven in each block");
        })
        .await;
        // What this node takes beyond the usual may not reach the miners.
        on_node(&[], async |wallet| {
            learn_chain_limits(wallet.db, wallet.chain).await.unwrap();
            assert_eq!(wallet.db.chain_limits(wallet.id).await.unwrap(), ChainSize::USUAL);
        })
        .await;
    });
}
