//! Outputs that somebody is about to spend: one holder each, until a moment.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use domain::Timestamp;
use sqlx::{Connection, PgConnection};
use store::testing::TestDb;
use store::utxo::*;
use store::{Db, Engine, Options, db_test};
use tokio::sync::Barrier;

use super::candidates::{everything, want};
use super::model::Event;
use super::stage::*;

pub const MINUTE: i64 = 60_000_000;

pub fn lock(number: u8) -> LockId {
    LockId([number; 32])
}

/// One wallet with so many confirmed outputs of 1,000, 1,001, … in account 0.
pub async fn funded(db: &TestDb, count: i64) -> (Stage<'_>, NewTx) {
    let mut stage = Stage::open(db, 1).await;
    let outputs: Vec<_> = (0..count).map(|number| (script(0, 0, 0), 1_000 + number)).collect();
    let coins = tx("coins", &[elsewhere("coins")], &outputs);
    stage.mine("root", std::slice::from_ref(&coins)).await.unwrap();
    (stage, coins)
}

pub fn first(count: usize) -> impl FnMut(&[Candidate]) -> Option<Vec<UtxoId>> {
    move |coins| {
        let ids: Vec<UtxoId> = coins.iter().take(count).map(|coin| coin.id).collect();
        if ids.is_empty() { None } else { Some(ids) }
    }
}

async fn select(db: &Db, wallet: WalletId, holder: LockId, until: Timestamp, now: Timestamp) -> Option<Vec<Coin>> {
    db.select_and_lease(wallet, 0, &want(Allow::default()), holder, until, now, first(1)).await.unwrap()
}

/// So many selections of one to three outputs each find something while nobody has taken more than his share.
const SHARE: u64 = 12;

/// All outputs that a writer got, one selection after another until there was nothing left.
async fn take_all(url: String, wallet: WalletId, number: u8, now: Timestamp, start: Arc<Barrier>) -> Vec<OutPoint> {
    // A pool of its own, as another process has.
    let db = Db::connect(&url, &Options::default()).await.unwrap();
    start.wait().await;
    let mut taken = Vec::new();
    for round in 0.. {
        if round == SHARE {
            start.wait().await;
        }
        let want = Want { target: 2_500, allow: Allow::default(), seed: round * 8 + u64::from(number) };
        let until = now.plus_micros(MINUTE);
        let mut holder = [number; 32];
        holder[..8].copy_from_slice(&round.to_be_bytes());
        let some = usize::try_from(round % 3).unwrap() + 1;
        // Half of them name their outputs in the order that is worst for the locks of the others.
        let choose = |coins: &[Candidate]| {
            let mut ids: Vec<UtxoId> = coins.iter().take(some).map(|coin| coin.id).collect();
            if number.is_multiple_of(2) {
                ids.reverse();
            }
            if ids.is_empty() { None } else { Some(ids) }
        };
        match db.select_and_lease(wallet, 0, &want, LockId(holder), until, now, choose).await.unwrap() {
            None => {
                assert!(round >= SHARE, "writer {number} got nothing in round {round}, when there was enough for all");
                break;
            }
            Some(coins) => {
                assert!(coins.len() == some || round >= SHARE, "writer {number} got {} of {some}", coins.len());
                taken.extend(coins.iter().map(|coin| coin.outpoint));
            }
        }
        tokio::task::yield_now().await;
    }
    db.close().await;
    taken
}

/// How often two of them waited for each other until the server noticed. SQLite has one writer.
async fn deadlocks(db: &TestDb) -> i64 {
    if db.engine() == Engine::Sqlite {
        return 0;
    }
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    // The sessions that are closed have told the server by now, or do so within moments.
    tokio::time::sleep(Duration::from_millis(300)).await;
    sqlx::query_scalar("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

db_test! {
    async fn eight_writers_never_get_the_same_output(db: TestDb) {
        let (stage, coins) = funded(db, 240).await;
        let start = Arc::new(Barrier::new(8));
        let writer = |number| take_all(db.url.clone(), stage.wallets[0], number, stage.now, start.clone());
        let writers: Vec<_> = (0..8).map(|number| tokio::spawn(writer(number))).collect();
        let mut taken = Vec::new();
        for writer in writers {
            taken.extend(writer.await.expect("no writer gave up"));
        }
        let different: BTreeSet<OutPoint> = taken.iter().copied().collect();
        assert_eq!(different.len(), taken.len(), "an output was given twice");
        assert_eq!(different.len(), coins.outputs.len(), "some were given to nobody");
        assert_eq!(deadlocks(db).await, 0, "each makes somebody wait for a second");
    }

    async fn a_selection_returns_all_that_a_transaction_needs(db: TestDb) {
        let (stage, coins) = funded(db, 1).await;
        let got = select(db, stage.wallets[0], lock(1), stage.now.plus_micros(MINUTE), stage.now).await.unwrap();
        let expected = Coin {
            id: got[0].id,
            outpoint: output(&coins, 0),
            amount: 1_000,
            kind: AddressKind::P2wpkh,
            script: script(0, 0, 0),
            account: 0,
            path: Some(Path { branch: 0, index: 0 }),
        };
        assert_eq!(db.coins_of(stage.wallets[0], &[output(&coins, 0)]).await.unwrap(), got);
        assert_eq!(got, [expected]);
    }

    async fn a_selection_that_finds_nothing_leases_nothing(db: TestDb) {
        let (stage, _) = funded(db, 3).await;
        let until = stage.now.plus_micros(MINUTE);
        let want = want(Allow::default());
        let nothing = db.select_and_lease(stage.wallets[0], 0, &want, lock(1), until, stage.now, |_| None).await;
        assert_eq!(nothing.unwrap(), None);
        assert_eq!(db.candidates(stage.wallets[0], 0, &want, stage.now).await.unwrap().len(), 3);
        assert_eq!(db.balance(stage.wallets[0], stage.now).await.unwrap()[&0].leased, 0);
    }

    /// Whoever was first keeps it until its moment; then another may take it, and the first has lost it.
    async fn an_expired_lease_is_taken_over_and_its_old_holder_cannot_spend(db: TestDb) {
        let (mut stage, coins) = funded(db, 1).await;
        let wallet = stage.wallets[0];
        let ends = stage.now.plus_micros(MINUTE);
        assert!(select(db, wallet, lock(1), ends, stage.now).await.is_some());
        let just_before = ends.plus_micros(-1);
        assert_eq!(select(db, wallet, lock(2), ends, just_before).await, None);
        let later = ends.plus_micros(MINUTE);
        assert!(select(db, wallet, lock(2), later, ends).await.is_some());
        let payment = tx("payment", &[output(&coins, 0)], &[(foreign_script(), 900)]);
        for old in [Some(lock(1)), None] {
            let error = db.add_pending(wallet, &payment, old, ends).await.unwrap_err();
            assert_eq!(error.code(), "UTXO_LEASED", "{error:?}");
        }
        // Read at a moment when no lease is left.
        stage.now = later;
        stage.assert_same().await;
        db.add_pending(wallet, &payment, Some(lock(2)), ends).await.unwrap();
        // The spend ended the lease: when it is given up, the output is free at once.
        db.abandon(payment.hash, "test", "no longer wanted", ends).await.unwrap();
        assert!(select(db, wallet, lock(3), later, ends).await.is_some());
    }

    async fn a_replacement_respects_leases_too(db: TestDb) {
        let (stage, coins) = funded(db, 2).await;
        let wallet = stage.wallets[0];
        let first = tx("first", &[output(&coins, 0)], &[(foreign_script(), 900)]);
        db.add_pending(wallet, &first, None, stage.now).await.unwrap();
        db.lease(wallet, &[output(&coins, 1)], lock(1), stage.now.plus_micros(MINUTE), stage.now).await.unwrap();
        let second = tx("second", &[output(&coins, 0), output(&coins, 1)], &[(foreign_script(), 1_800)]);
        let error = db.replace(wallet, &second, Some(lock(2)), stage.now).await.unwrap_err();
        assert_eq!(error.code(), "UTXO_LEASED", "{error:?}");
        db.replace(wallet, &second, Some(lock(1)), stage.now).await.unwrap();
    }

    async fn leases_of_other_wallets_and_spent_outputs_are_refused(db: TestDb) {
        let mut stage = Stage::open(db, 2).await;
        let (ours, theirs) = (|amount| (script(0, 0, 0), amount), (script(1, 0, 0), 2_000));
        let coins = tx("coins", &[elsewhere("x")], &[ours(1_000), theirs, ours(3_000)]);
        stage.mine("root", std::slice::from_ref(&coins)).await.unwrap();
        let spend = tx("spend", &[output(&coins, 2)], &[(foreign_script(), 900)]);
        stage.play(Event::See(vec![spend])).await.unwrap();
        let until = stage.now.plus_micros(MINUTE);
        for wrong in [output(&coins, 1), output(&coins, 2), output(&coins, 7), elsewhere("nothing")] {
            // All or nothing: the good one beside it stays free.
            let both = [output(&coins, 0), wrong];
            let error = db.lease(stage.wallets[0], &both, lock(1), until, stage.now).await.unwrap_err();
            assert_eq!(error.code(), "UTXO_NOT_SPENDABLE", "{error:?}");
        }
        assert_eq!(db.candidates(stage.wallets[0], 0, &everything(), stage.now).await.unwrap().len(), 1);
        db.lease(stage.wallets[0], &[output(&coins, 0)], lock(1), until, stage.now).await.unwrap();
        // The same holder again, later: renewed. Another: refused.
        db.lease(stage.wallets[0], &[output(&coins, 0)], lock(1), until.plus_micros(MINUTE), stage.now).await.unwrap();
        let error = db.lease(stage.wallets[0], &[output(&coins, 0)], lock(2), until, stage.now).await.unwrap_err();
        assert_eq!(error.code(), "UTXO_LEASED", "{error:?}");
        let later = select(db, stage.wallets[0], lock(2), until.plus_micros(MINUTE), until).await;
        assert_eq!(later, None, "it was renewed");
    }

    async fn leases_are_renewed_released_and_swept_by_their_holder_and_moment(db: TestDb) {
        let (stage, coins) = funded(db, 4).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let minute = |count: i64| now.plus_micros(count * MINUTE);
        let two = [output(&coins, 0), output(&coins, 1)];
        db.lease(wallet, &two, lock(1), minute(1), now).await.unwrap();
        db.lease(wallet, &[output(&coins, 2)], lock(2), minute(2), now).await.unwrap();
        let leased = async |at| db.balance(wallet, at).await.unwrap()[&0].leased;
        assert_eq!(leased(now).await, 1_000 + 1_001 + 1_002);
        assert_eq!(db.renew(wallet, lock(1), minute(3), now).await.unwrap(), 2);
        assert_eq!(leased(minute(1)).await, 1_000 + 1_001 + 1_002);
        assert_eq!(db.renew(wallet, lock(9), minute(9), now).await.unwrap(), 0);
        // A lease that has ended is not renewed: somebody else may have seen it free.
        assert_eq!(db.renew(wallet, lock(2), minute(9), minute(2)).await.unwrap(), 0);
        assert_eq!(db.sweep_leases(minute(2).plus_micros(-1)).await.unwrap(), 0);
        assert_eq!(db.sweep_leases(minute(2)).await.unwrap(), 1);
        assert_eq!(leased(now).await, 1_000 + 1_001);
        assert_eq!(db.release(wallet, lock(2)).await.unwrap(), 0);
        assert_eq!(db.release(wallet, lock(1)).await.unwrap(), 2);
        assert_eq!(db.release(wallet, lock(1)).await.unwrap(), 0);
        assert_eq!(leased(now).await, 0);
    }

    /// Nodes refuse to spend a coinbase with fewer than a hundred blocks on top.
    async fn an_immature_coinbase_is_not_leased(db: TestDb) {
        let mut stage = Stage::open(db, 1).await;
        let reward = coinbase("reward", &[(script(0, 0, 0), 1_000)]);
        let plain = tx("plain", &[elsewhere("x")], &[(script(0, 0, 1), 2_000)]);
        stage.mine("root", &[reward.clone(), plain.clone()]).await.unwrap();
        for _ in 0..99 {
            stage.play_unseen(&Event::Connect(stage.next_block("on"), vec![])).await;
        }
        let (wallet, now) = (stage.wallets[0], stage.now);
        let until = now.plus_micros(MINUTE);
        let both = [output(&plain, 0), output(&reward, 0)];
        let error = db.lease(wallet, &both, lock(1), until, now).await.unwrap_err();
        let refusal = UtxoRefusal::Immature { outpoint: output(&reward, 0), from: BASE + 100 };
        assert!(matches!(&error, UtxoError::Refused(found) if *found == refusal), "{error:?}");
        assert_eq!(db.leases(wallet, None, 10).await.unwrap(), [], "all or none");
        stage.play_unseen(&Event::Connect(stage.next_block("on"), vec![])).await;
        db.lease(wallet, &both, lock(1), until, now).await.unwrap();
        // A fork makes it unripe again: whoever holds it learns that when it renews.
        let down_to = stage.model.tip().unwrap().height - 1;
        stage.play_unseen(&Event::Disconnect(down_to, Vec::new())).await;
        let error = db.renew(wallet, lock(1), until.plus_micros(MINUTE), now).await.unwrap_err();
        assert_eq!(error.code(), "UTXO_IMMATURE", "{error:?}");
        assert_eq!(db.balance(wallet, until).await.unwrap()[&0].leased, 0, "nothing was renewed");
    }

    async fn a_transaction_that_spends_an_immature_coinbase_is_not_taken(db: TestDb) {
        let mut stage = Stage::open(db, 1).await;
        let reward = coinbase("reward", &[(script(0, 0, 0), 1_000)]);
        let plain = tx("plain", &[elsewhere("x")], &[(script(0, 0, 1), 2_000)]);
        stage.mine("root", &[reward.clone(), plain.clone()]).await.unwrap();
        for _ in 0..99 {
            stage.play_unseen(&Event::Connect(stage.next_block("on"), vec![])).await;
        }
        let early = tx("early", &[output(&plain, 0), output(&reward, 0)], &[(foreign_script(), 900)]);
        assert_eq!(stage.play(Event::Pending(0, early.clone())).await, Err("UTXO_IMMATURE"));
        let other = tx("other", &[output(&plain, 0)], &[(foreign_script(), 900)]);
        stage.play(Event::Pending(0, other)).await.unwrap();
        assert_eq!(stage.play(Event::Replace(0, early.clone())).await, Err("UTXO_IMMATURE"));
        stage.play_unseen(&Event::Connect(stage.next_block("on"), vec![])).await;
        stage.play(Event::Replace(0, early)).await.unwrap();
    }

    async fn what_could_not_be_leased_is_not_renewed(db: TestDb) {
        let (mut stage, coins) = funded(db, 2).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let until = now.plus_micros(MINUTE);
        let later = until.plus_micros(MINUTE);
        let change = tx("change", &[output(&coins, 0)], &[(script(0, 0, 1), 900)]);
        stage.play(Event::Pending(0, change.clone())).await.unwrap();
        db.lease(wallet, &[output(&coins, 1), output(&change, 0)], lock(1), until, now).await.unwrap();
        db.by_hand("UPDATE wallets SET status = 'restoring'").await.unwrap();
        let error = db.renew(wallet, lock(1), later, now).await.unwrap_err();
        assert_eq!(error.code(), "UTXO_RESTORING", "{error:?}");
        db.by_hand("UPDATE wallets SET status = 'active'").await.unwrap();
        // The change that it holds is no longer worth anything.
        db.abandon(change.hash, "test", "no longer wanted", now).await.unwrap();
        let error = db.renew(wallet, lock(1), later, now).await.unwrap_err();
        assert!(matches!(&error, UtxoError::Refused(UtxoRefusal::NotSpendable(one)) if *one == output(&change, 0)), "{error:?}");
        assert_eq!(db.balance(wallet, until).await.unwrap()[&0].leased, 0, "all or none");
    }

    /// A statement that removed a million at once would keep others waiting.
    async fn ended_leases_are_swept_a_bounded_number_at_a_time(db: TestDb) {
        let count = i64::try_from(SWEPT_AT_ONCE).unwrap() + 7;
        let (stage, coins) = funded(db, count + 1).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let minute = |count: i64| now.plus_micros(count * MINUTE);
        let outpoints: Vec<OutPoint> = (0..u32::try_from(count).unwrap()).map(|index| output(&coins, index)).collect();
        db.lease(wallet, &outpoints[7..], lock(1), minute(2), now).await.unwrap();
        db.lease(wallet, &outpoints[..7], lock(2), minute(1), now).await.unwrap();
        db.lease(wallet, &[output(&coins, u32::try_from(count).unwrap())], lock(3), minute(9), now).await.unwrap();
        let stat = db.lease_stat(minute(2)).await.unwrap();
        assert_eq!((stat.active, stat.ended, stat.oldest_end), (1, count, Some(minute(1))));
        let first = db.sweep_some_leases(minute(2)).await.unwrap();
        assert_eq!(first, Swept { count: SWEPT_AT_ONCE, oldest: Some(minute(1)) }, "the oldest first");
        let second = db.sweep_some_leases(minute(2)).await.unwrap();
        assert_eq!(second, Swept { count: 7, oldest: Some(minute(2)) });
        assert_eq!(db.sweep_some_leases(minute(2)).await.unwrap(), Swept::default());
        assert_eq!(db.lease_stat(minute(2)).await.unwrap(), LeaseStat { active: 1, ..LeaseStat::default() });
        let made = db.utxo_rows_made().await.unwrap();
        let utxos = made.iter().find(|one| one.table == "utxos").unwrap();
        assert_eq!((utxos.rows, db.unspent_count().await.unwrap()), (count + 1, count + 1));
        let rows = db.utxo_rows().await.unwrap();
        assert!(rows.contains(&TableStat { table: "utxo_leases".into(), rows: 1 }), "{rows:?}");
        assert!(rows.contains(&TableStat { table: "transactions".into(), rows: 1 }), "{rows:?}");
        assert!(db.bytes().await.unwrap() > 10_000);
    }

    async fn addresses_are_listed_by_page(db: TestDb) {
        let stage = Stage::open(db, 2).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let coin = tx("coin", &[elsewhere("x")], &[(script(0, 0, 1), 1_000)]);
        db.connect_block(&block(BASE, "root", hash("before all")), &[coin], now).await.unwrap();
        let labelled = db.label_address(wallet, &script(0, 1, 0), Some("customer 7"), "ann", now).await;
        labelled.unwrap();
        let all = db.addresses(wallet, None, None, 100).await.unwrap();
        assert_eq!(all.len(), usize::try_from(ACCOUNTS * ADDRESSES).unwrap());
        let told = |row: &AddressRow| (row.account, row.path.map(|path| path.index), row.paid, row.label.clone());
        assert_eq!(told(&all[1]), (0, Some(1), true, None));
        assert_eq!(told(&all[3]), (1, Some(0), false, Some("customer 7".to_owned())));
        assert_eq!((all[1].kind, &all[1].script), (AddressKind::P2tr, &script(0, 0, 1)));
        assert_eq!(db.addresses(wallet, None, None, 2).await.unwrap(), all[..2]);
        assert_eq!(db.addresses(wallet, None, Some(all[1].id), 100).await.unwrap(), all[2..]);
        assert_eq!(db.addresses(wallet, Some(1), None, 100).await.unwrap(), all[3..]);
    }

    async fn a_wallet_that_is_being_restored_selects_nothing(db: TestDb) {
        let (stage, _) = funded(db, 1).await;
        db.by_hand("UPDATE wallets SET status = 'restoring'").await.unwrap();
        let until = stage.now.plus_micros(MINUTE);
        let selected = db
            .select_and_lease(stage.wallets[0], 0, &want(Allow::default()), lock(1), until, stage.now, first(1))
            .await;
        assert_eq!(selected.unwrap_err().code(), "UTXO_RESTORING");
    }

    /// While one is choosing, another asks for the same. Whatever the engine makes of it, nothing is given twice.
    async fn a_selection_that_is_overtaken_gets_other_outputs_or_none(db: TestDb) {
        let (stage, coins) = funded(db, 2).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let until = now.plus_micros(MINUTE);
        let (finished, overtaker) = mpsc::channel();
        let url = db.url.clone();
        let mut rival = None;
        let choose = |candidates: &[Candidate]| {
            if rival.is_none() {
                let (url, finished) = (url.clone(), finished.clone());
                rival = Some(std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    let got = runtime.block_on(async {
                        let db = Db::connect(&url, &Options::default()).await.unwrap();
                        let got = select(&db, wallet, lock(2), until, now).await;
                        db.close().await;
                        got
                    });
                    finished.send(()).unwrap();
                    got
                }));
                // If it has to wait for us it is not done by then.
                overtaker.recv_timeout(Duration::from_millis(400)).unwrap_or(());
            }
            first(1)(candidates)
        };
        let ours = db.select_and_lease(wallet, 0, &want(Allow::default()), lock(1), until, now, choose).await.unwrap();
        let theirs = rival.expect("it chose").join().unwrap();
        let both: Vec<OutPoint> = ours.into_iter().chain(theirs).flatten().map(|coin| coin.outpoint).collect();
        let different: BTreeSet<OutPoint> = both.iter().copied().collect();
        assert_eq!(different.len(), both.len(), "given twice");
        assert_eq!(both.len(), coins.outputs.len(), "there was enough for both");
    }
}
