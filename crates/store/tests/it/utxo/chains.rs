//! Unconfirmed transactions that hang together: no more of them than nodes take.

use store::testing::TestDb;
use store::utxo::*;
use store::{Db, db_test};

use super::lease::{MINUTE, lock};
use super::model::Event;
use super::stage::*;

const MOST: u32 = ChainSize::USUAL.transactions;

fn want(target: i64) -> Want {
    Want { target, allow: Allow::default(), seed: 1 }
}

/// One wallet with these confirmed outputs in account 0.
async fn funded<'a>(db: &'a TestDb, amounts: &[i64]) -> (Stage<'a>, NewTx) {
    let mut stage = Stage::open(db, 1).await;
    let outputs: Vec<_> = amounts.iter().map(|amount| (script(0, 0, 0), *amount)).collect();
    let coins = tx("coins", &[elsewhere("coins")], &outputs);
    stage.mine("root", std::slice::from_ref(&coins)).await.unwrap();
    (stage, coins)
}

/// The largest output that is offered.
async fn select(stage: &Stage<'_>, target: i64) -> Result<Option<Vec<Coin>>, UtxoError> {
    let choose = |coins: &[Candidate]| {
        let enough = coins.iter().filter(|coin| coin.amount >= target);
        Some(vec![enough.max_by_key(|coin| (coin.amount, coin.id))?.id])
    };
    let until = stage.now.plus_micros(MINUTE);
    stage.db.select_and_lease(stage.wallets[0], 0, &want(target), lock(1), until, stage.now, choose).await
}

/// A payment of 10 from that output; the rest comes back.
fn payment(name: &str, from: &[OutPoint], held: i64) -> NewTx {
    tx(name, from, &[(foreign_script(), 10), (script(0, 0, 2), held - 10)])
}

async fn pay(stage: &mut Stage<'_>, name: &str) -> NewTx {
    let coins = select(stage, 100).await.unwrap().expect("a coin");
    let made = payment(name, &[coins[0].outpoint], coins[0].amount);
    stage.db.release(stage.wallets[0], lock(1)).await.unwrap();
    stage.play(Event::Pending(0, made.clone())).await.unwrap();
    stage.play(Event::Publish(made.hash)).await.unwrap();
    made
}

async fn publish(db: &Db, stage: &Stage<'_>, made: &NewTx) -> Result<Changes, UtxoError> {
    db.add_pending(stage.wallets[0], made, None, stage.now).await?;
    db.publish(made.hash, stage.now).await
}

db_test! {
    async fn change_is_not_chained_beyond_what_nodes_take(db: TestDb) {
        let (mut stage, _) = funded(db, &[1_000_000]).await;
        let mut last = None;
        for number in 0..MOST {
            last = Some(pay(&mut stage, &format!("payment {number}")).await);
        }
        let last = last.unwrap();
        let error = select(&stage, 100).await.unwrap_err();
        assert_eq!(error.code(), "UTXO_CHAIN_TOO_LONG", "{error:?}");
        assert_eq!(db.leases(stage.wallets[0], None, 10).await.unwrap(), [], "nothing was leased");
        // Whoever chose by himself is refused before it is stored, and so before it is sent.
        let next = payment("one too many", &[output(&last, 1)], last.outputs[1].amount);
        assert_eq!(stage.play(Event::Pending(0, next.clone())).await.unwrap_err(), "UTXO_CHAIN_TOO_LONG");
        // What the account does not have is still a matter of funds.
        assert_eq!(select(&stage, 5_000_000).await.unwrap(), None);
        // In a block they hang on nothing any more.
        let waiting: Vec<NewTx> = stage.model.txs.values().filter(|tx| tx.height.is_none()).map(|tx| (*tx.content).clone()).collect();
        stage.mine("on", &waiting).await.unwrap();
        assert!(select(&stage, 100).await.unwrap().is_some());
        db.release(stage.wallets[0], lock(1)).await.unwrap();
        stage.play(Event::Pending(0, next)).await.unwrap();
    }

    async fn other_coins_are_taken_where_a_chain_is_full(db: TestDb) {
        let (mut stage, coins) = funded(db, &[1_000_000, 500]).await;
        for number in 0..MOST {
            pay(&mut stage, &format!("payment {number}")).await;
        }
        let got = select(&stage, 100).await.unwrap().expect("the small coin is in a block");
        assert_eq!(got[0].outpoint, output(&coins, 1));
    }

    async fn a_replacement_takes_the_room_of_what_it_replaces(db: TestDb) {
        let (mut stage, _) = funded(db, &[1_000_000]).await;
        let mut chain = Vec::new();
        for number in 0..MOST {
            chain.push(pay(&mut stage, &format!("payment {number}")).await);
        }
        let last = chain.last().unwrap();
        let again = payment("again", &last.inputs, last.outputs[1].amount - 5);
        stage.play(Event::Replace(0, again)).await.unwrap();
        stage.assert_checked().await;
    }

    /// Two chains that are short enough each may be too long together.
    async fn chains_that_a_payment_would_join_count_together(db: TestDb) {
        let (stage, coins) = funded(db, &[1_000_000, 900_000]).await;
        let mut tips = Vec::new();
        for (chain, length) in [(0, 15), (1, 10)] {
            let mut tip = (output(&coins, chain), coins.outputs[usize::try_from(chain).unwrap()].amount);
            for number in 0..length {
                let made = payment(&format!("chain {chain} {number}"), &[tip.0], tip.1);
                publish(db, &stage, &made).await.unwrap();
                tip = (output(&made, 1), made.outputs[1].amount);
            }
            tips.push(tip);
        }
        let both = payment("both", &[tips[0].0, tips[1].0], tips[0].1 + tips[1].1);
        let error = publish(db, &stage, &both).await.unwrap_err();
        let size = ChainSize { transactions: 26, bytes: 0 };
        assert!(
            matches!(&error, UtxoError::Refused(UtxoRefusal::ChainTooLong { would, .. }) if would.transactions == size.transactions),
            "{error:?}"
        );
        // A selection that wants both gets one of them, if that is enough, and the reason if it is not.
        let choose = |enough: i64| move |coins: &[Candidate]| {
            let held: i64 = coins.iter().map(|coin| coin.amount).sum();
            (held >= enough).then(|| coins.iter().map(|coin| coin.id).collect::<Vec<_>>())
        };
        let (wallet, until) = (stage.wallets[0], stage.now.plus_micros(MINUTE));
        let error = db.select_and_lease(wallet, 0, &want(1_500_000), lock(1), until, stage.now, choose(1_500_000)).await;
        assert_eq!(error.unwrap_err().code(), "UTXO_CHAIN_TOO_LONG");
        let got = db.select_and_lease(wallet, 0, &want(500_000), lock(1), until, stage.now, choose(500_000)).await;
        let got = got.unwrap().expect("one of the two");
        assert_eq!(got.iter().map(|coin| coin.outpoint).collect::<Vec<_>>(), [tips[1].0], "the shorter chain");
    }

    /// A transaction with many outputs of ours: all that spend them hang together through it.
    async fn siblings_count(db: TestDb) {
        let (stage, coins) = funded(db, &[1_000_000]).await;
        let outputs: Vec<_> = (0..MOST).map(|_| (script(0, 0, 1), 1_000)).collect();
        let fan = tx("fan", &[output(&coins, 0)], &outputs);
        publish(db, &stage, &fan).await.unwrap();
        for index in 0..MOST - 1 {
            publish(db, &stage, &payment(&format!("child {index}"), &[output(&fan, index)], 1_000)).await.unwrap();
        }
        let last = payment("last", &[output(&fan, MOST - 1)], 1_000);
        assert_eq!(publish(db, &stage, &last).await.unwrap_err().code(), "UTXO_CHAIN_TOO_LONG");
    }

    async fn bytes_count_too_and_the_limits_are_what_the_nodes_say(db: TestDb) {
        let (stage, coins) = funded(db, &[1_000_000]).await;
        let wallet = stage.wallets[0];
        assert_eq!(db.chain_limits(wallet).await.unwrap(), ChainSize::USUAL);
        let large = NewTx { raw: vec![7; 60_000], ..payment("large", &[output(&coins, 0)], 1_000_000) };
        publish(db, &stage, &large).await.unwrap();
        let next = NewTx { raw: vec![8; 60_000], ..payment("next", &[output(&large, 1)], large.outputs[1].amount) };
        assert_eq!(publish(db, &stage, &next).await.unwrap_err().code(), "UTXO_CHAIN_TOO_LONG");
        let small = NewTx { raw: vec![9; 35_000], ..next.clone() };
        publish(db, &stage, &small).await.unwrap();
        // Too little is left for any payment to be begun.
        assert_eq!(select(&stage, 100).await.unwrap_err().code(), "UTXO_CHAIN_TOO_LONG");
        db.limit_chains(ChainSize { transactions: 2, bytes: 500_000 }).await.unwrap();
        assert_eq!(select(&stage, 100).await.unwrap_err().code(), "UTXO_CHAIN_TOO_LONG");
        db.limit_chains(ChainSize { transactions: 3, bytes: 500_000 }).await.unwrap();
        assert!(select(&stage, 100).await.unwrap().is_some());
    }
}
