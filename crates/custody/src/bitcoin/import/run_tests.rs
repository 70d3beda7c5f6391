//! An import that is stopped anywhere and run again, on both engines.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use store::db_test;
use store::testing::{NOW, TestDb};
use store::utxo::{
    AddressKind, Hash, Imported, Network, NewAddress, NewOutput, NewTx, Path, Status, TransactionDetail, UtxoId,
    WalletStatus,
};

use super::*;

fn hash(number: u8) -> Hash {
    Hash([number; 32])
}

fn script(index: u8) -> Vec<u8> {
    vec![0, 20, index]
}

/// A transaction that spends and pays. Scripts below 50 are ours.
fn tx(number: u8, inputs: &[(u8, u32)], outputs: &[(u8, i64)], height: Option<u32>) -> Imported {
    let tx = NewTx {
        hash: hash(number),
        raw: vec![number],
        coinbase: inputs.is_empty(),
        inputs: inputs.iter().map(|(parent, index)| OutPoint { hash: hash(*parent), index: *index }).collect(),
        outputs: outputs.iter().map(|(to, amount)| NewOutput { script: script(*to), amount: *amount }).collect(),
    };
    let block = height.map(|height| (height, Hash([u8::try_from(height).unwrap(); 32]), height * 600));
    Imported { tx, block, lost: false }
}

fn claim(amount: i64, height: Option<u32>, coinbase: bool) -> Claim {
    Claim { amount, height, coinbase }
}

/// Coinbases, payments, a payout that was bumped twice, one that a block beat, and change of change.
fn export() -> Export {
    let transactions = vec![
        tx(1, &[], &[(1, 5_000)], Some(10)),
        tx(2, &[(90, 0)], &[(2, 700), (80, 5)], Some(11)),
        // A payout, and the one that a block had instead of it.
        tx(3, &[(2, 0)], &[(81, 600)], None),
        tx(4, &[(2, 0)], &[(82, 300), (3, 390)], Some(12)),
        tx(5, &[], &[(4, 5_000)], Some(105)),
        tx(6, &[(1, 0)], &[(83, 1_000), (5, 3_990)], Some(110)),
        // Bumped twice.
        tx(7, &[(6, 1)], &[(84, 100), (6, 3_880)], None),
        tx(8, &[(6, 1)], &[(84, 100), (6, 3_870)], None),
        tx(9, &[(6, 1)], &[(84, 100), (6, 3_860)], None),
        // Change of change, and a payment by others.
        tx(10, &[(9, 1)], &[(85, 60), (7, 3_790)], None),
        tx(11, &[(91, 3)], &[(8, 42)], None),
    ];
    let unspent = BTreeMap::from([
        (OutPoint { hash: hash(4), index: 1 }, claim(390, Some(12), false)),
        (OutPoint { hash: hash(5), index: 0 }, claim(5_000, Some(105), true)),
        (OutPoint { hash: hash(10), index: 1 }, claim(3_790, None, false)),
        (OutPoint { hash: hash(11), index: 0 }, claim(42, None, false)),
    ]);
    let address = |index: u8| NewAddress {
        account: u32::from(index % 2),
        path: Some(Path { branch: 0, index: u32::from(index) }),
        kind: AddressKind::P2wpkh,
        script: script(index),
    };
    Export {
        network: Network::Regtest,
        addresses: (0..50).map(address).collect(),
        tip: Some((120, hash(120))),
        transactions,
        unspent,
        left_out: vec![(hash(30), "abandoned")],
        notes: Vec::new(),
    }
}

/// Everything that is stored of the wallet. The ids depend on what was rolled back.
async fn rows(db: &TestDb, wallet: WalletId, export: &Export) -> (Vec<OutputRow>, Vec<Option<TransactionDetail>>) {
    let filter = ListFilter { account: None, unspent_only: false, after: None, most: 1_000 };
    let mut outputs = db.list_outputs(wallet, &filter, NOW).await.unwrap();
    outputs.iter_mut().for_each(|row| row.id = UtxoId(0));
    outputs.sort_by_key(|row| row.outpoint);
    let mut details = Vec::new();
    for given in &export.transactions {
        let mut detail = db.transaction(wallet, given.tx.hash, NOW).await.unwrap();
        detail.iter_mut().flat_map(|detail| &mut detail.outputs).for_each(|row| row.id = UtxoId(0));
        details.push(detail);
    }
    assert_eq!(db.check_utxo().await.unwrap(), []);
    (outputs, details)
}

async fn waits(db: &TestDb) -> Vec<(WalletStatus, Option<u32>)> {
    db.wallets().await.unwrap().iter().map(|wallet| (wallet.status, wallet.unread_from)).collect()
}

async fn whole(db: &TestDb, name: &str) -> Result<Report, ImportError> {
    in_chunks(db, name, &export(), NOW, 2, &mut |_| {}).await
}

/// Polls the import until it has told of so many steps, and then drops it in the middle of what it does next. `true`:
/// it came to its end before.
async fn killed_after(db: &TestDb, steps: usize) -> bool {
    let export = export();
    let told = AtomicUsize::new(0);
    let mut count = |_| {
        told.fetch_add(1, Ordering::Relaxed);
    };
    let mut import = pin!(in_chunks(db, "w", &export, NOW, 2, &mut count));
    std::future::poll_fn(|context| match import.as_mut().poll(context) {
        Poll::Ready(result) => {
            result.unwrap();
            Poll::Ready(true)
        }
        Poll::Pending if told.load(Ordering::Relaxed) >= steps => Poll::Ready(false),
        Poll::Pending => Poll::Pending,
    })
    .await
}

db_test! {
    async fn an_import_comes_to_what_its_source_says(db: TestDb) {
        let mut told = Vec::new();
        let report = in_chunks(db, "w", &export(), NOW, 4, &mut |progress| told.push(progress)).await.unwrap();
        assert_eq!((report.addresses, report.transactions, report.new_addresses, report.left_out), (50, 11, 50, 1));
        let balance = Balance { confirmed: 5_390, unconfirmed: 3_832, immature: 5_000, leased: 0, outputs: 4 };
        assert_eq!(report.balance, balance);
        let of = |stage| told.iter().filter(|one| one.stage == stage).map(|one| (one.done, one.of)).collect::<Vec<_>>();
        assert_eq!(of(Stage::Addresses), [(0, 50), (50, 50)]);
        assert_eq!(of(Stage::Transactions), [(0, 11), (4, 11), (8, 11), (11, 11)]);
        assert_eq!(of(Stage::Check).last(), Some(&(4, 4)));

        let (_, details) = rows(db, report.wallet, &export()).await;
        let status = |number: usize| details[number - 1].as_ref().map(|detail| detail.status);
        assert_eq!(status(3), Some(Status::Failed), "a block had another");
        assert_eq!((status(7), status(8), status(9)), (Some(Status::Replaced), Some(Status::Replaced), Some(Status::Published)));
        assert_eq!(details[9].as_ref().map(|detail| detail.own), Some(true), "change of our own change");

        let again = whole(db, "w").await.unwrap();
        assert_eq!((again.wallet, again.new_addresses, again.changes, again.balance), (report.wallet, 0, 0, balance));
        assert_eq!(waits(db).await, [(WalletStatus::Restoring, Some(20))], "a hundred blocks of the source may be stale");
    }

    async fn an_import_that_was_killed_is_run_again(db: TestDb) {
        // The result of an import without a break, in a database of its own.
        let calm = store::testing::fresh(db.db.engine()).await;
        calm.migrate(NOW).await.unwrap();
        let report = whole(&calm, "w").await.unwrap();
        let expected = rows(&calm, report.wallet, &export()).await;

        // Each try goes one step further than the one before, on top of what those have left.
        let mut steps = 0;
        while !killed_after(db, steps).await {
            steps += 1;
            assert!(steps < 100, "it ends at last");
        }
        assert!(steps >= 8, "it was killed in each chunk: {steps}");
        let wallet = db.wallets().await.unwrap()[0].id;
        assert_eq!(rows(db, wallet, &export()).await, expected);
        assert_eq!(whole(db, "w").await.unwrap().changes, 0);
    }

    async fn every_difference_is_told(db: TestDb) {
        let good = export();
        let (first, other) = (OutPoint { hash: hash(4), index: 1 }, OutPoint { hash: hash(99), index: 7 });
        let wrong = [
            ("is not in the source", first, None),
            ("63:7 of 9 is not there", other, Some(claim(9, None, false))),
            ("is of 390 instead of 391", first, Some(claim(391, Some(12), false))),
            ("is in block 12 instead of no block", first, Some(claim(390, None, false))),
            ("confirmed is 5390 instead of 5391", first, Some(claim(391, Some(12), false))),
            ("immature is 5000 instead of 5390", first, Some(claim(390, Some(12), true))),
        ];
        for (text, outpoint, said) in wrong {
            let mut export = good.clone();
            export.unspent.remove(&outpoint);
            export.unspent.extend(said.map(|claim| (outpoint, claim)));
            let error = import(db, "w", &export, NOW, &mut |_| {}).await.unwrap_err();
            assert_eq!(error.code(), "UTXO_IMPORT_MISMATCH");
            assert_eq!(waits(db).await, [(WalletStatus::Restoring, Some(0))], "nothing of it is believed");
            assert!(error.to_string().contains(text), "{text}: {error}");
        }
        // A transaction that the export lacks.
        let mut export = good.clone();
        export.transactions.pop();
        let fresh = store::testing::fresh(db.db.engine()).await;
        fresh.migrate(NOW).await.unwrap();
        let error = import(&fresh, "w", &export, NOW, &mut |_| {}).await.unwrap_err();
        assert!(matches!(error, ImportError::Mismatch(_)), "{error}");
        // The rows that a failed import left do no harm.
        assert_eq!(import(&fresh, "w", &good, NOW, &mut |_| {}).await.unwrap().balance.outputs, 4);
        assert_eq!(import(db, "w", &good, NOW, &mut |_| {}).await.unwrap().balance.outputs, 4);
    }

    async fn another_wallet_keeps_its_place_in_the_chain(db: TestDb) {
        let mut old = export();
        old.addresses = vec![NewAddress { account: 0, path: None, kind: AddressKind::Other, script: script(60) }];
        old.transactions = vec![tx(40, &[(92, 0)], &[(60, 7)], Some(50))];
        old.unspent = BTreeMap::from([(OutPoint { hash: hash(40), index: 0 }, claim(7, Some(50), false))]);
        import(db, "old", &old, NOW, &mut |_| {}).await.unwrap();

        let error = import(db, "new", &export(), NOW, &mut |_| {}).await.unwrap_err();
        assert_eq!(error.code(), "UTXO_NOT_ON_TIP");
        assert_eq!(db.wallets().await.unwrap().len(), 1, "nothing was stored");
        let mut low = export();
        low.transactions.retain(|given| given.block.is_some_and(|block| block.0 <= 12));
        low.unspent.retain(|_, claim| claim.height.is_some_and(|height| height <= 12));
        low.unspent.insert(OutPoint { hash: hash(1), index: 0 }, claim(5_000, Some(10), true));
        low.tip = Some((121, Hash([121; 32])));
        assert_eq!(import(db, "new", &low, NOW, &mut |_| {}).await.unwrap().balance.outputs, 2);
        assert_eq!(waits(db).await[1], (WalletStatus::Restoring, Some(21)), "the store was followed further");

        // An import that cannot succeed stores nothing.
        let mut other = low.clone();
        assert_eq!(import(db, "third", &other, NOW, &mut |_| {}).await.unwrap_err().code(), "UTXO_ADDRESS_TAKEN");
        other.addresses.clear();
        other.transactions[0].block = Some((50, Hash([51; 32]), 1));
        assert_eq!(import(db, "third", &other, NOW, &mut |_| {}).await.unwrap_err().code(), "UTXO_NOT_ON_TIP");
        assert_eq!(waits(db).await.len(), 2);
    }
}
