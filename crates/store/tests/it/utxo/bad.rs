//! Other wallets' addresses, and what no chain could show: refused or ignored, never half written.

use store::db_test;
use store::utxo::*;

use super::model::Event;
use super::stage::*;

/// The most there can be.
const ALL_BITCOIN: i64 = 2_100_000_000_000_000;

fn strange(coins: &NewTx) -> Vec<(&'static str, NewTx)> {
    let ours = |amount| (script(0, 0, 0), amount);
    let coin = output(coins, 0);
    let mut itself = tx("spends itself", &[], &[ours(1)]);
    itself.inputs = vec![coin, output(&itself, 0)];
    vec![
        ("the same input twice", tx("same input twice", &[coin, coin], &[ours(1)])),
        ("no input", tx("no input", &[], &[ours(1)])),
        ("a coinbase with an input", NewTx { coinbase: true, ..tx("spending coinbase", &[coin], &[ours(1)]) }),
        ("less than nothing", tx("less than nothing", &[coin], &[ours(-1)])),
        ("more than there is", tx("more than there is", &[coin], &[ours(ALL_BITCOIN + 1)])),
        ("more than a number can say in sum", tx("too large a sum", &[coin], &[ours(i64::MAX), ours(i64::MAX)])),
        ("itself spent", itself),
    ]
}

fn is_bad(result: &Result<Changes, UtxoError>) -> bool {
    matches!(result, Err(UtxoError::Refused(UtxoRefusal::BadTransaction(_))))
}

db_test! {
    async fn what_makes_no_sense_is_refused_by_its_name(db: TestDb) {
        let mut stage = Stage::open(db, 2).await;
        let coins = tx("coins", &[elsewhere("x")], &[(script(0, 0, 0), 9_000)]);
        stage.mine("root", std::slice::from_ref(&coins)).await.unwrap();
        for (what, tx) in strange(&coins) {
            let ways = [
                Event::Connect(stage.next_block("bad"), vec![tx.clone()]),
                Event::See(vec![tx.clone()]),
                Event::Pending(0, tx.clone()),
                Event::Replace(0, tx.clone()),
            ];
            for event in ways {
                let result = deliver(db, &stage.wallets, &event, stage.now).await;
                assert!(is_bad(&result), "{what}: {event:?} gave {result:?}");
                stage.assert_same().await;
            }
        }
        stage.assert_checked().await;
    }

    /// A node that shows impossible blocks is not believed: nothing of the block is taken.
    async fn impossible_blocks_are_refused(db: TestDb) {
        let mut stage = Stage::open(db, 2).await;
        let ours = |amount| (script(0, 0, 0), amount);
        let coins = tx("coins", &[elsewhere("x")], &[ours(1_000), ours(2_000)]);
        stage.mine("root", std::slice::from_ref(&coins)).await.unwrap();
        let spend = tx("spend", &[output(&coins, 0)], &[ours(900)]);
        stage.mine("root", std::slice::from_ref(&spend)).await.unwrap();
        let again = tx("again", &[output(&coins, 0)], &[ours(800)]);
        let (one, other) = (tx("one", &[output(&coins, 1)], &[ours(1)]), tx("other", &[output(&coins, 1)], &[ours(2)]));
        let (left, right) = (tx("left", &[elsewhere("l")], &[ours(3)]), tx("right", &[elsewhere("l")], &[ours(4)]));
        for (what, txs) in [
            ("a second spend of what is spent in the chain", vec![again]),
            ("two spends of one output in a block", vec![one, other]),
            ("two spends of somebody else's output in a block", vec![left, right]),
            ("what is in the chain already", vec![spend]),
        ] {
            let good = tx("good", &[elsewhere("good")], &[ours(7)]);
            let next = block(BASE + 2, what, stage.model.tip().unwrap().hash);
            let result = db.connect_block(&next, &[vec![good], txs].concat(), stage.now).await;
            assert!(is_bad(&result), "{what}: {result:?}");
            stage.assert_same().await;
        }
        stage.assert_checked().await;
    }

    async fn a_transaction_that_a_block_shows_twice_is_there_once_or_refused(db: TestDb) {
        let mut stage = Stage::open(db, 1).await;
        stage.mine("root", &[]).await.unwrap();
        let twice = tx("twice", &[elsewhere("t")], &[(script(0, 0, 0), 5)]);
        let result = db.connect_block(&stage.next_block("on"), &[twice.clone(), twice], stage.now).await;
        assert!(result.is_ok() || is_bad(&result), "{result:?}");
        stage.assert_checked().await;
        assert!(db.balance(stage.wallets[0], stage.now).await.unwrap().values().all(|balance| balance.outputs <= 1));
    }

    /// A transaction that takes the inputs of its own ancestor can never be mined.
    async fn a_transaction_that_replaces_its_ancestor_is_refused(db: TestDb) {
        let mut stage = Stage::open(db, 1).await;
        let ours = |amount| (script(0, 0, 0), amount);
        let coins = tx("coins", &[elsewhere("x")], &[ours(1_000), ours(2_000)]);
        stage.mine("root", std::slice::from_ref(&coins)).await.unwrap();
        let grandparent = tx("grandparent", &[output(&coins, 0)], &[ours(900)]);
        let parent = tx("parent", &[output(&grandparent, 0)], &[ours(800)]);
        stage.play(Event::See(vec![grandparent.clone(), parent.clone()])).await.unwrap();
        for ancestor in [&grandparent, &parent] {
            let child = tx("child", &[output(ancestor, 0), output(&coins, 0)], &[ours(700)]);
            // Of the two only one spends an output that is still free.
            let replaced = db.replace(stage.wallets[0], &child, None, stage.now).await;
            assert!(is_bad(&replaced), "{replaced:?}");
            let seen = db.see_transactions(&[child], stage.now).await;
            assert!(is_bad(&seen), "{seen:?}");
            stage.assert_same().await;
        }
        stage.assert_checked().await;
    }

    async fn a_script_has_one_owner(db: TestDb) {
        let mut stage = Stage::open(db, 2).await;
        let taken = |account| NewAddress { account, path: None, kind: AddressKind::P2wpkh, script: script(0, 0, 0) };
        let fresh = NewAddress { account: 0, path: None, kind: AddressKind::P2tr, script: b"a new one".to_vec() };
        for (wallet, account) in [(1, 0), (0, 1)] {
            let both = [fresh.clone(), taken(account)];
            let error = db.add_addresses(stage.wallets[wallet], &both, Paths::Exact, stage.now).await.unwrap_err();
            assert_eq!(error.code(), "UTXO_ADDRESS_TAKEN", "{error:?}");
        }
        // Nothing of the refused ones was added: what pays the new script concerns nobody.
        stage.mine("root", &[tx("coin", &[elsewhere("x")], &[(b"a new one".to_vec(), 1)])]).await.unwrap();
        let again = db.add_addresses(stage.wallets[0], &addresses(0), Paths::Exact, stage.now).await.unwrap();
        assert_eq!(again, Added::default(), "nothing new");
        assert_eq!(db.add_addresses(stage.wallets[0], &[fresh.clone(), fresh], Paths::Exact, stage.now).await.unwrap().new, 1);
        let nobody = db.add_addresses(WalletId(99), &addresses(5), Paths::Exact, stage.now).await.unwrap_err();
        assert_eq!(nobody.code(), "UTXO_UNKNOWN_WALLET", "{nobody:?}");
    }

    /// Past all of our code: the database itself refuses an output of one wallet at an address of another, or of
    /// another account.
    async fn an_output_at_another_wallets_address_is_refused_by_the_database(db: TestDb) {
        let mut stage = Stage::open(db, 2).await;
        let coins = tx("coins", &[elsewhere("x")], &[(script(0, 0, 0), 9_000)]);
        stage.mine("root", std::slice::from_ref(&coins)).await.unwrap();
        let insert = |index: u32, address: &str, account: u32| {
            format!(
                "INSERT INTO utxos (wallet_id, tx_id, output_index, amount, address_id, account, valid)
                 SELECT t.wallet_id, t.id, {index}, 1, a.id, {account}, TRUE FROM transactions t, addresses a
                 WHERE t.wallet_id = 1 AND {address}"
            )
        };
        let first = |wallet: i64| {
            format!("a.wallet_id = {wallet} AND a.account = 0 AND a.child_index = 0")
        };
        for (address, account) in [(first(2), 0), (first(1), 1)] {
            let error = db.by_hand(&insert(5, &address, account)).await.unwrap_err().to_string().to_lowercase();
            assert!(error.contains("foreign key"), "{error}");
        }
        db.by_hand(&insert(5, &first(1), 0)).await.expect("its own address is fine");
    }

    async fn wallets_are_made_once_and_on_one_network(db: TestDb) {
        let stage = Stage::open(db, 2).await;
        let again = db.create_wallet("wallet 0", Network::Regtest, stage.now).await.unwrap();
        assert_eq!(again, stage.wallets[0]);
        assert_eq!(db.wallets().await.unwrap().len(), 2);
        for name in ["wallet 0", "a new one"] {
            let error = db.create_wallet(name, Network::Bitcoin, stage.now).await.unwrap_err();
            assert_eq!(error.code(), "UTXO_OTHER_NETWORK", "{error:?}");
        }
        assert_eq!(db.wallets().await.unwrap().len(), 2);
    }

    async fn an_unknown_wallet_pays_nothing(db: TestDb) {
        let mut stage = Stage::open(db, 1).await;
        let coins = tx("coins", &[elsewhere("x")], &[(script(0, 0, 0), 9_000)]);
        stage.mine("root", std::slice::from_ref(&coins)).await.unwrap();
        let payment = tx("payment", &[output(&coins, 0)], &[(foreign_script(), 1)]);
        let error = db.add_pending(WalletId(99), &payment, None, stage.now).await.unwrap_err();
        assert!(["UTXO_UNKNOWN_WALLET", "UTXO_BAD_TRANSACTION"].contains(&error.code()), "{error:?}");
        stage.assert_same().await;
    }
}
