//! What is sifted in memory before the database is asked: the filter never hides what concerns a wallet.

use store::testing::NOW;
use store::utxo::*;
use store::{Db, Options, db_test};

use super::model::Event;
use super::stage::*;

db_test! {
    /// Another process adds an address and stores a transaction while this one has its filter.
    async fn what_another_process_has_added_is_watched_at_once(db: TestDb) {
        db.watch_in_memory();
        let mut stage = Stage::open(db, 1).await;
        stage.mine("root", &[tx("coins", &[elsewhere("coins")], &[(script(0, 0, 0), 1_000)])]).await.unwrap();
        let other = Db::connect(&db.url, &Options::default()).await.unwrap();
        let added = b"added by another process".to_vec();
        let address = NewAddress { account: 0, path: None, kind: AddressKind::P2wpkh, script: added.clone() };
        other.add_addresses(stage.wallets[0], &[address], Paths::Exact, NOW).await.unwrap();
        stage.model.scripts.insert(added.clone(), (0, 0));
        let deposit = tx("deposit", &[elsewhere("deposit")], &[(added, 2_000)]);
        stage.mine("root", std::slice::from_ref(&deposit)).await.unwrap();
        assert_eq!(stage.model.balances()[&(0, 0)].confirmed, 3_000);
        // It is spent by a payment that only the other process has stored.
        let spends = Event::See(vec![tx("spends", &[output(&deposit, 0)], &[(foreign_script(), 1_900)])]);
        stage.model.apply(&spends).unwrap();
        deliver(&other, &stage.wallets, &spends, stage.now).await.unwrap();
        let rival = tx("rival", &[output(&deposit, 0)], &[(foreign_script(), 1_800)]);
        stage.mine("root", &[rival]).await.unwrap();
        assert_eq!(stage.model.balances()[&(0, 0)].confirmed, 1_000);
        stage.assert_checked().await;
        other.close().await;
    }

    /// Within one block: what spends an output of ours that the same block made, and what wants the same input.
    async fn what_depends_on_the_same_block_is_not_sifted_out(db: TestDb) {
        db.watch_in_memory();
        let mut stage = Stage::open(db, 1).await;
        stage.mine("root", &[]).await.unwrap();
        let paid = tx("paid", &[elsewhere("a")], &[(script(0, 0, 0), 1_000)]);
        let passed_on = tx("passed on", &[output(&paid, 0)], &[(foreign_script(), 900)]);
        let crowd = (0..300).map(|number| tx(&format!("crowd {number}"), &[elsewhere(&format!("crowd {number}"))], &[(foreign_script(), 5)]));
        let block: Vec<NewTx> = [paid, passed_on.clone()].into_iter().chain(crowd).collect();
        stage.mine("root", &block).await.unwrap();
        assert_eq!(stage.status(&passed_on), Status::Published);
        assert!(stage.model.balances().is_empty());
        stage.play(Event::Disconnect(BASE, vec![])).await.unwrap();
        stage.assert_checked().await;
    }

    async fn a_wallet_that_comes_later_is_watched(db: TestDb) {
        db.watch_in_memory();
        let mut stage = Stage::open(db, 1).await;
        stage.mine("root", &[]).await.unwrap();
        let second = db.create_wallet("second", Network::Regtest, NOW).await.unwrap();
        db.add_addresses(second, &addresses(1), Paths::Exact, NOW).await.unwrap();
        let paid = tx("paid", &[elsewhere("a")], &[(script(1, 0, 0), 700)]);
        let block = stage.next_block("root");
        let changes = db.connect_block(&block, &[paid], NOW).await.unwrap();
        assert_eq!(changes.transactions.len(), 1);
        assert_eq!(db.balance(second, NOW).await.unwrap()[&0].confirmed, 700);
    }
}
