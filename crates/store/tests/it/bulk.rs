//! The load of a bench drops indexes and lets triggers rest: never in a database that has anything to lose.

use sqlx::{AssertSqlSafe, Connection};
use store::testing::{NOW, TestDb};
use store::utxo::{
    AddressKind, Block, Hash, Imported, Network, NewAddress, NewOutput, NewTx, OutPoint, Paths, UtxoError, UtxoRefusal,
    WalletId,
};
use store::{Db, Engine, db_test};

use crate::support::*;

fn address() -> NewAddress {
    NewAddress { account: 0, path: None, kind: AddressKind::P2wpkh, script: [&[0, 20][..], &[7; 20]].concat() }
}

async fn wallet(db: &Db) -> WalletId {
    let wallet = db.create_wallet("bench", Network::Regtest, NOW).await.unwrap();
    db.add_addresses(wallet, &[address()], Paths::Exact, NOW).await.unwrap();
    wallet
}

/// One deposit, in a block.
fn history() -> Vec<Imported> {
    let inputs = vec![OutPoint { hash: Hash([9; 32]), index: 0 }];
    let outputs = vec![NewOutput { script: address().script, amount: 500 }];
    let tx = NewTx { hash: Hash([1; 32]), raw: vec![1], coinbase: false, inputs, outputs };
    vec![Imported { tx, block: Some((100, Hash([2; 32]), 0)), lost: false }]
}

async fn indexes(db: &TestDb) -> i64 {
    match db.engine() {
        Engine::Postgres => {
            let mut connection = sqlx::PgConnection::connect(&db.url).await.unwrap();
            let text = AssertSqlSafe("SELECT COUNT(*) FROM pg_indexes WHERE schemaname = 'public'".to_owned());
            sqlx::query_scalar(text).fetch_one(&mut connection).await.unwrap()
        }
        Engine::Sqlite => {
            let mut connection = sqlx::SqliteConnection::connect(&db.url).await.unwrap();
            let text = AssertSqlSafe("SELECT COUNT(*) FROM sqlite_schema WHERE type = 'index'".to_owned());
            sqlx::query_scalar(text).fetch_one(&mut connection).await.unwrap()
        }
    }
}

/// Refused with a code, with all indexes as before and nothing written.
async fn assert_refused(db: &TestDb, wallet: WalletId) {
    let before = (indexes(db).await, db.count_transactions().await.unwrap(), movements(db).await);
    let error = db.load_bulk(wallet, &history(), NOW, |_| panic!("nothing is written")).await.unwrap_err();
    assert!(matches!(error, UtxoError::Refused(UtxoRefusal::NotEmpty(_))), "{error:?}");
    assert_eq!(error.code(), "NOT_A_SCRATCH_DATABASE");
    let after = (indexes(db).await, db.count_transactions().await.unwrap(), movements(db).await);
    assert_eq!(before, after);
}

db_test! {
    async fn an_empty_database_is_filled_once(db: TestDb) {
        let wallet = wallet(db).await;
        let before = indexes(db).await;
        db.load_bulk(wallet, &history(), NOW, |_| {}).await.unwrap();
        assert_eq!(indexes(db).await, before);
        assert_eq!(db.check_utxo().await.unwrap(), []);
        assert_eq!(db.balance(wallet, NOW).await.unwrap()[&0].confirmed, 500);
        assert_refused(db, wallet).await;
    }

    async fn a_database_with_another_wallet_is_left_alone(db: TestDb) {
        let wallet = wallet(db).await;
        db.create_wallet("hot", Network::Regtest, NOW).await.unwrap();
        assert_refused(db, wallet).await;
    }

    async fn a_database_with_a_transaction_is_left_alone(db: TestDb) {
        let wallet = wallet(db).await;
        db.see_transactions(&[history().remove(0).tx], NOW).await.unwrap();
        assert_refused(db, wallet).await;
    }

    async fn a_database_with_a_block_is_left_alone(db: TestDb) {
        let wallet = wallet(db).await;
        let block = Block { height: 7, hash: Hash([3; 32]), parent: Hash([4; 32]), time: 0 };
        db.connect_block(&block, &[], NOW).await.unwrap();
        assert_refused(db, wallet).await;
    }

    async fn a_database_with_a_ledger_is_left_alone(db: TestDb) {
        let wallet = wallet(db).await;
        Bank::open(db, 1, 100).await;
        assert_refused(db, wallet).await;
    }
}
