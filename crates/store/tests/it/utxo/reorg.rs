//! Forks with everything across them, long chains, spends before their parents, and law 5.

use std::collections::BTreeSet;

use store::testing::TestDb;
use store::utxo::*;
use store::{Engine, db_test};

use super::candidates::everything;
use super::model::Event;
use super::stage::*;

/// What two branches fight about.
struct Fork {
    /// Funds everything below.
    funding: NewTx,
    /// A payment that both branches have, in different blocks.
    payment: NewTx,
    /// Published, then replaced. One branch mines the replacement, the other the replaced.
    replaced: NewTx,
    replacement: NewTx,
    /// Takes the input that the chain of spends in the first branch begins with.
    double_spend: NewTx,
}

impl Fork {
    async fn open(stage: &mut Stage<'_>) -> Self {
        let ours = |account, amount| (script(0, account, 0), amount);
        let funding =
            tx("funding", &[elsewhere("funding")], &[ours(0, 50_000), ours(1, 60_000), (script(1, 0, 0), 70_000)]);
        let payment = tx("payment", &[elsewhere("payment")], &[(script(1, 1, 1), 8_000)]);
        let replaced = tx("replaced", &[output(&funding, 1)], &[ours(1, 59_000)]);
        let replacement = tx("replacement", &[output(&funding, 1)], &[ours(1, 58_000)]);
        let double_spend = tx("double spend", &[output(&funding, 0)], &[(script(1, 0, 2), 49_000)]);
        stage.mine("root", &[coinbase("root reward", &[(script(0, 0, 1), 5_000)]), funding.clone()]).await.unwrap();
        stage.play(Event::See(vec![payment.clone()])).await.unwrap();
        stage.play(Event::Pending(0, replaced.clone())).await.unwrap();
        stage.play(Event::Publish(replaced.hash)).await.unwrap();
        stage.play(Event::Replace(0, replacement.clone())).await.unwrap();
        stage.play(Event::Publish(replacement.hash)).await.unwrap();
        Self { funding, payment, replaced, replacement, double_spend }
    }

    /// Every block pays us its reward and spends an output of the one before; later ones spend rewards as well.
    fn first_branch(&self, length: usize) -> Vec<Vec<NewTx>> {
        let mut blocks: Vec<Vec<NewTx>> = Vec::new();
        let mut last = output(&self.funding, 0);
        for number in 0..length {
            let wallet = number % 2;
            let reward = coinbase(&format!("first reward {number}"), &[(script(wallet, 0, 1), 6_000)]);
            let spend = tx(&format!("first spend {number}"), &[last], &[(script(0, 0, 2), 40_000)]);
            last = output(&spend, 0);
            let mut txs = vec![reward, spend];
            if number > 0 {
                let earlier = output(&blocks[number - 1][0], 0);
                txs.push(tx(&format!("first reward spent {number}"), &[earlier], &[(script(1, 1, 0), 5_500)]));
            }
            blocks.push(txs);
        }
        blocks[0].push(self.payment.clone());
        blocks[length - 1].push(self.replacement.clone());
        blocks
    }

    fn second_branch(&self, length: usize) -> Vec<Vec<NewTx>> {
        let reward = |number| coinbase(&format!("second reward {number}"), &[(script(1, 1, 2), 6_500)]);
        let mut blocks: Vec<Vec<NewTx>> = (0..length).map(|number| vec![reward(number)]).collect();
        blocks[0].extend([self.replaced.clone(), self.double_spend.clone()]);
        blocks[1].push(self.payment.clone());
        blocks
    }
}

/// Compares after every block when there are few, else at the last.
async fn mine_all(stage: &mut Stage<'_>, branch: &str, blocks: &[Vec<NewTx>]) {
    for txs in blocks {
        let next = Event::Connect(stage.next_block(branch), txs.clone());
        if blocks.len() < 10 {
            stage.play(next).await.unwrap();
        } else {
            stage.play_unseen(&next).await;
        }
    }
    stage.assert_same().await;
}

/// What counts: what is valid or in a block, all outputs and their spenders, the totals. Edges and the two ways of
/// being invalid are history, and a reorg adds to it.
fn lasting(rows: BTreeSet<String>) -> BTreeSet<String> {
    let history =
        |row: &String| row.starts_with("edge") || [" replaced ", " failed "].iter().any(|status| row.contains(status));
    rows.into_iter().filter(|row| !history(row)).collect()
}

async fn there_and_back(db: &TestDb, depth: usize) {
    let mut stage = Stage::open(db, 2).await;
    let fork = Fork::open(&mut stage).await;
    let at = stage.model.tip().unwrap().height;
    let (first, second) = (fork.first_branch(depth), fork.second_branch(depth + 1));
    mine_all(&mut stage, "first", &first).await;
    let before = lasting(stage.model.rows());
    let balances = stage.model.balances();
    assert!(stage.model.is_confirmed(&fork.replacement.hash));

    stage.play(Event::Disconnect(at, vec![])).await.unwrap();
    mine_all(&mut stage, "second", &second).await;
    assert_eq!(stage.status(&fork.replacement), Status::Failed);
    assert!(stage.model.is_confirmed(&fork.replaced.hash));
    assert!(first.iter().all(|txs| stage.status(&txs[0]) == Status::Orphaned));
    assert!(first.iter().all(|txs| stage.status(&txs[1]) == Status::Failed), "the chain falls with its first spend");
    assert_ne!(stage.model.balances(), balances);
    stage.assert_checked().await;

    stage.play(Event::Disconnect(at, vec![])).await.unwrap();
    mine_all(&mut stage, "first", &first).await;
    let after = lasting(stage.reader.rows().await);
    let gone: Vec<_> = before.difference(&after).collect();
    assert!(gone.is_empty(), "not as before: {gone:#?}");
    assert_eq!(stage.model.balances(), balances);
    assert!(second.iter().all(|txs| stage.status(&txs[0]) == Status::Orphaned));
    assert_eq!((stage.status(&fork.replaced), stage.status(&fork.double_spend)), (Status::Failed, Status::Failed));
    stage.assert_checked().await;
}

/// Rows of so many transactions, each a child of the one before it, the first of one whose hash is zero. Their hashes
/// are their numbers.
fn long_line(engine: Engine, length: usize) -> String {
    let hash = |number: &str| match engine {
        Engine::Postgres => format!("decode(lpad(to_hex({number}), 64, '0'), 'hex')"),
        Engine::Sqlite => format!("unhex(printf('%064x', {number}))"),
    };
    let (own, parent) = (hash("n"), hash("n - 1"));
    let numbers = format!("WITH RECURSIVE line(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM line WHERE n < {length})");
    format!(
        "INSERT INTO transactions (wallet_id, tx_hash, raw_tx, status, received_time, is_coinbase, is_own)
         {numbers} SELECT 1, {own}, {own}, 'published', 0, FALSE, FALSE FROM line;
         INSERT INTO tx_inputs (wallet_id, tx_id, input_index, prev_hash, prev_index, active)
         {numbers} SELECT 1, t.id, 0, {parent}, 0, TRUE FROM line JOIN transactions t ON t.tx_hash = {own};"
    )
}

db_test! {
    async fn a_fork_of_one_block_and_back(db: TestDb) {
        there_and_back(db, 1).await;
    }

    async fn a_fork_of_six_blocks_and_back(db: TestDb) {
        there_and_back(db, 6).await;
    }

    async fn a_fork_of_a_hundred_blocks_and_back(db: TestDb) {
        there_and_back(db, 100).await;
    }

    /// Two followers find the same fork; the second one comes when the first is on the right branch already.
    async fn what_was_decided_for_another_tip_undoes_nothing(db: TestDb) {
        let mut stage = Stage::open(db, 1).await;
        let pays = |name: &str| coinbase(name, &[(script(0, 0, 1), 5_000)]);
        stage.mine("root", &[pays("root reward")]).await.unwrap();
        let base = db.tip().await.unwrap().unwrap().0;
        stage.mine("stale", &[pays("stale reward")]).await.unwrap();
        let stale = db.tip().await.unwrap().unwrap();
        stage.play(Event::Disconnect(base, Vec::new())).await.unwrap();
        stage.mine("good", &[pays("good reward")]).await.unwrap();
        let good = db.tip().await.unwrap();
        assert_ne!(good, Some(stale));
        let late = db.disconnect_blocks(stale, base, &[], store::testing::NOW).await.unwrap_err();
        assert!(matches!(late, UtxoError::Refused(UtxoRefusal::NotOnTip(tip)) if tip == good), "{late:?}");
        assert_eq!(db.tip().await.unwrap(), good);
        stage.assert_checked().await;
    }

    async fn a_transaction_can_be_confirmed_again_in_another_block(db: TestDb) {
        let mut stage = Stage::open(db, 1).await;
        let payment = tx("payment", &[elsewhere("x")], &[(script(0, 0, 0), 9_000)]);
        stage.mine("root", &[]).await.unwrap();
        let state = |stage: &Stage<'_>| {
            let tx = &stage.model.txs[&payment.hash];
            (tx.status, tx.height, stage.model.balances()[&(0, 0)].confirmed)
        };
        stage.mine("first", std::slice::from_ref(&payment)).await.unwrap();
        assert_eq!(state(&stage), (Status::Published, Some(BASE + 1), 9_000));
        stage.play(Event::Disconnect(BASE, vec![])).await.unwrap();
        assert_eq!(state(&stage), (Status::Published, None, 0));
        stage.mine("second", &[]).await.unwrap();
        stage.mine("second", std::slice::from_ref(&payment)).await.unwrap();
        assert_eq!(state(&stage), (Status::Published, Some(BASE + 2), 9_000));
        stage.assert_checked().await;
    }

    async fn a_reward_ripens_with_the_hundredth_block_and_a_fork_makes_it_unripe(db: TestDb) {
        let mut stage = Stage::open(db, 1).await;
        stage.mine("root", &[coinbase("reward", &[(script(0, 0, 0), 5_000)])]).await.unwrap();
        let immature = async |stage: &Stage<'_>| db.balance(stage.wallets[0], stage.now).await.unwrap()[&0].immature;
        for _ in 1..100 {
            let next = Event::Connect(stage.next_block("on"), vec![]);
            stage.play_unseen(&next).await;
        }
        stage.assert_same().await;
        assert_eq!(immature(&stage).await, 5_000);
        stage.mine("on", &[]).await.unwrap();
        assert_eq!(immature(&stage).await, 0);
        stage.play(Event::Disconnect(BASE + 99, vec![])).await.unwrap();
        assert_eq!(immature(&stage).await, 5_000);
    }

    async fn a_thousand_descendants_fall_with_their_root(db: TestDb) {
        let mut stage = Stage::open(db, 2).await;
        let coin = tx("coin", &[elsewhere("coin")], &[(script(0, 0, 0), 1_000_000)]);
        stage.mine("root", std::slice::from_ref(&coin)).await.unwrap();
        let root = tx("root", &[output(&coin, 0)], &[(script(0, 0, 0), 999_999)]);
        let mut line = vec![root];
        for number in 1..=1_000_u32 {
            let pay = script(usize::from(number % 2 == 0), number % 2, number % 3);
            let parent = output(&line[line.len() - 1], 0);
            line.push(tx(&format!("descendant {number}"), &[parent], &[(pay, 500_000 - i64::from(number))]));
        }
        for part in line.chunks(100) {
            stage.play_unseen(&Event::See(part.to_vec())).await;
        }
        stage.assert_same().await;
        let double_spend = tx("double spend", &[output(&coin, 0)], &[(foreign_script(), 900_000)]);
        let changed = stage.mine("root", std::slice::from_ref(&double_spend)).await.unwrap();
        let failed: BTreeSet<Hash> =
            changed.iter().filter(|(_, _, status, _)| *status == Status::Failed).map(|(_, hash, ..)| *hash).collect();
        assert_eq!(failed.len(), 1_001);
        assert!(stage.model.balances().is_empty(), "{:?}", stage.model.balances());
        stage.assert_checked().await;
    }

    /// Longer lines are reported, and nothing is done by half.
    async fn a_line_of_descendants_beyond_the_bound_is_refused_whole(db: TestDb) {
        let mut stage = Stage::open(db, 1).await;
        let coin = tx("coin", &[elsewhere("coin")], &[(script(0, 0, 0), 1_000_000)]);
        stage.mine("root", std::slice::from_ref(&coin)).await.unwrap();
        let root = NewTx { hash: Hash([0; 32]), ..tx("root", &[output(&coin, 0)], &[(foreign_script(), 1)]) };
        db.see_transactions(std::slice::from_ref(&root), stage.now).await.unwrap();
        db.by_hand(&long_line(db.engine(), MOST_GENERATIONS + 1)).await.unwrap();
        let before = stage.reader.rows().await;
        let double_spend = tx("double spend", &[output(&coin, 0)], &[(foreign_script(), 900_000)]);
        let error = db.connect_block(&stage.next_block("root"), &[double_spend], stage.now).await.unwrap_err();
        assert!(
            matches!(error, UtxoError::Refused(UtxoRefusal::CascadeTooDeep { most: MOST_GENERATIONS, .. })),
            "{error:?}"
        );
        assert_eq!(stage.reader.rows().await, before);
    }

    async fn a_spend_may_arrive_before_its_parent(db: TestDb) {
        let mut stage = Stage::open(db, 3).await;
        stage.mine("root", &[]).await.unwrap();
        let parent = tx("parent", &[elsewhere("x")], &[(script(1, 0, 0), 9_000), (script(0, 0, 0), 800)]);
        let child = tx("child", &[output(&parent, 0)], &[(script(2, 0, 0), 8_000)]);
        stage.play(Event::See(vec![child.clone()])).await.unwrap();
        assert_eq!(stage.model.txs[&child.hash].wallets, [2].into());
        stage.play(Event::See(vec![parent.clone()])).await.unwrap();
        assert_eq!(stage.model.txs[&child.hash].wallets, [1, 2].into(), "it spends from the parent's wallet");
        assert_eq!(stage.model.balances().get(&(1, 0)), None, "what came was spent before it came");
        let coins = db.candidates(stage.wallets[1], 0, &everything(), stage.now).await.unwrap();
        assert!(coins.is_empty(), "{coins:?}");
        // The parent's double spend takes the child with it, in every wallet.
        let double_spend = tx("double spend", &parent.inputs, &[(foreign_script(), 1)]);
        stage.mine("root", &[double_spend]).await.unwrap();
        assert_eq!((stage.status(&parent), stage.status(&child)), (Status::Failed, Status::Failed));
        stage.assert_checked().await;
    }

    async fn a_spend_in_the_mempool_may_arrive_before_its_parent_in_a_block(db: TestDb) {
        let mut stage = Stage::open(db, 2).await;
        stage.mine("root", &[]).await.unwrap();
        let parent = tx("parent", &[elsewhere("x")], &[(script(1, 0, 0), 9_000)]);
        let child = tx("child", &[output(&parent, 0)], &[(script(0, 0, 0), 8_000)]);
        stage.play(Event::See(vec![child.clone()])).await.unwrap();
        stage.mine("root", std::slice::from_ref(&parent)).await.unwrap();
        assert_eq!(stage.model.balances().get(&(1, 0)), None);
        stage.mine("root", std::slice::from_ref(&child)).await.unwrap();
        stage.play(Event::Disconnect(BASE, vec![])).await.unwrap();
        stage.assert_checked().await;
    }
}
