//! A database that is copied is the same database: nothing is missing, nothing can be done twice, and a copy that breaks off
//! leaves nothing behind.

use std::sync::atomic::{AtomicU32, Ordering};

use domain::ledger::Reply;
use store::catalog::Author;
use store::copy::{CopiedTable, CopyError, copy};
use store::faults::{Faults, Point, Strike, simulated};
use store::testing::{NOW, TestDb, drop_database, fresh, schema};
use store::utxo::*;
use store::{Db, Engine, StoreError, db_test};

use crate::support::*;

/// Something in every corner: money, holds, refusals, odd texts, bytes, and a wallet with a transaction that was given up.
async fn fill(db: &TestDb) -> Bank {
    let bank = Bank::open(db, 3, 1_000).await;
    db.post(&[bank.hold("hold-1", 0, 400), bank.hold("too-much", 1, 5_000)], NOW).await.unwrap();
    let mut changed = catalog();
    changed.chains.values_mut().for_each(|chain| chain.confirmations = 20);
    let author = Author { actor: "Ann \"the\" O'Hara", reason: "line\nbreak, tab\t, \u{1f4b0} and \\ \u{e9}" };
    db.apply_catalog(&changed, &author, NOW).await.unwrap();
    db.checkpoint(NOW).await.unwrap();
    let wallet = db.create_wallet("hot", Network::Regtest, NOW).await.unwrap();
    let script = vec![0x00, 0x14, 0xff, 0x00, 0x22];
    let address = NewAddress {
        account: 0,
        path: Some(Path { branch: 0, index: 0 }),
        kind: AddressKind::P2wpkh,
        script: script.clone(),
    };
    db.add_addresses(wallet, &[address], Paths::Exact, NOW).await.unwrap();
    let hash = |byte: u8| Hash([byte; 32]);
    let output = |amount: i64| NewOutput { script: script.clone(), amount };
    let paid = NewTx {
        hash: hash(2),
        raw: vec![0, 1, 2, 0xff],
        coinbase: false,
        inputs: vec![OutPoint { hash: hash(9), index: 0 }],
        outputs: vec![output(5_000), output(7_000)],
    };
    let block = Block { height: 1_000, hash: hash(1), parent: hash(0), time: 1_700_000_000 };
    db.connect_block(&block, &[paid], NOW).await.unwrap();
    for (byte, spends) in [(3, 0), (4, 1)] {
        let spend = NewTx {
            hash: hash(byte),
            raw: vec![byte],
            coinbase: false,
            inputs: vec![OutPoint { hash: hash(2), index: spends }],
            outputs: vec![output(4_000)],
        };
        db.add_pending(wallet, &spend, None, NOW).await.unwrap();
    }
    db.abandon(hash(3), "test", "the test says so", NOW).await.unwrap();
    bank
}

async fn empty_database(engine: Engine) -> TestDb {
    let db = fresh(engine).await;
    db.migrate(NOW).await.unwrap();
    db
}

async fn copied(source: &Db, target: &Db) -> Vec<CopiedTable> {
    copy(source, target, NOW, |_, _| {}).await.unwrap()
}

/// What a database comes to, by copying it into a file that is thrown away.
async fn contents(db: &Db) -> Vec<CopiedTable> {
    let scratch = empty_database(Engine::Sqlite).await;
    copied(db, &scratch).await
}

/// The history of a transaction cannot be changed: a trigger sees to it.
async fn triggers_are_awake(db: &TestDb) -> bool {
    db.by_hand("UPDATE transaction_events SET reason = 'x'").await.is_err()
}

db_test! {
    async fn everything_arrives_and_the_books_go_on(db: TestDb) {
        let bank = fill(db).await;
        let target = empty_database(Engine::Sqlite).await;
        let sent = copied(db, &target).await;
        let mut tables: Vec<String> = schema(db).await.into_iter().map(|(table, ..)| table).collect();
        tables.dedup();
        tables.retain(|table| table != "schema_migrations");
        assert_eq!(sent.iter().map(|one| one.table.clone()).collect::<Vec<_>>(), tables, "every table of the schema");
        let rows = |name: &str| sent.iter().find(|one| one.table == name).unwrap().rows;
        assert_eq!((rows("movements"), rows("transactions"), rows("utxos")), (5, 3, 4));
        assert_eq!(contents(db).await, sent, "the source is as it was");
        // And back to the engine that it came from.
        let back = empty_database(db.engine()).await;
        assert_eq!(copied(&target, &back).await, sent);
        for copy in [&target, &back] {
            copy.check_schema().await.unwrap();
            assert!(copy.audit(|_| {}).await.unwrap().clean());
            assert!(triggers_are_awake(copy).await);
            // What was done is not done again, and what is new has a number of its own.
            let replies = copy.post(&[bank.deposit("fund-0", 0, 1_000), bank.deposit("new", 0, 5)], NOW).await.unwrap();
            assert!(matches!(&replies[..], [Reply::Replay(_), Reply::First(_)]), "{replies:?}");
            assert_eq!(contents(copy).await.iter().find(|one| one.table == "movements").unwrap().rows, 6);
            let wallet = copy.create_wallet("second", Network::Regtest, NOW).await.unwrap();
            assert_eq!(wallet.0, 2);
        }
        drop_database(&back).await;
    }

    async fn a_target_that_has_rows_is_refused_and_left_alone(db: TestDb) {
        fill(db).await;
        let target = empty_database(db.engine()).await;
        Bank::open(&target, 1, 10).await;
        let before = contents(&target).await;
        let error = copy(db, &target, NOW, |_, _| {}).await.unwrap_err();
        assert!(matches!(&error, CopyError::TargetNotEmpty { .. }), "{error:?}");
        assert_eq!(contents(&target).await, before);
        drop_database(&target).await;
    }

    async fn a_source_that_a_server_uses_is_refused(db: TestDb) {
        fill(db).await;
        db.lease_node("host/1", NOW, NOW.plus_micros(60_000_000)).await.unwrap();
        let target = empty_database(Engine::Sqlite).await;
        let error = copy(db, &target, NOW, |_, _| {}).await.unwrap_err();
        assert!(matches!(&error, CopyError::SourceInUse { holder, .. } if holder == "host/1"), "{error:?}");
        copy(db, &target, NOW.plus_micros(61_000_000), |_, _| {}).await.unwrap();
    }

    async fn a_copy_that_breaks_off_leaves_nothing_behind(db: TestDb) {
        fill(db).await;
        let target = empty_database(db.engine()).await;
        let nothing = contents(&target).await;
        // One try that counts the statements, on a database of its own.
        let count = std::sync::Arc::new(Breaks { at: u32::MAX, seen: AtomicU32::new(0), commit: false });
        let other = empty_database(db.engine()).await;
        copied(db, &other.with_faults(count.clone())).await;
        let all = count.seen.load(Ordering::Relaxed);
        assert!(all > 30, "only {all} statements");
        for (at, commit) in [(2, false), (all / 3, false), (all / 2, false), (all - 1, false), (u32::MAX, true)] {
            let faults = std::sync::Arc::new(Breaks { at, seen: AtomicU32::new(0), commit });
            let error = copy(db, &target.with_faults(faults), NOW, |_, _| {}).await.unwrap_err();
            assert!(matches!(&error, CopyError::Store(StoreError::Unavailable(_))), "{at}: {error:?}");
            assert_eq!(contents(&target).await, nothing, "broken off at {at}");
            target.check_schema().await.unwrap();
        }
        let sent = copied(db, &target).await;
        assert_eq!(sent, contents(db).await);
        assert!(triggers_are_awake(&target).await);
        drop_database(&target).await;
        drop_database(&other).await;
    }
}

/// Fails before one statement, or before the commit.
#[derive(Debug)]
struct Breaks {
    at: u32,
    seen: AtomicU32,
    commit: bool,
}

impl Faults for Breaks {
    fn strike(&self, point: Point) -> Strike {
        let fails = match point {
            Point::Statement => self.seen.fetch_add(1, Ordering::Relaxed) == self.at,
            Point::BeforeCommit => self.commit,
            Point::AfterCommit => false,
        };
        Box::pin(async move { if fails { Err(StoreError::Unavailable(simulated())) } else { Ok(()) } })
    }
}
