//! Random worlds: after every event the rows, the balances and the answer are what the model says, on both engines.
//!
//! `BURSAR_TEST_UTXO_EVENTS` is how many events there are in all (900 if it is not set), `BURSAR_TEST_UTXO_SEED` the
//! first seed.

use std::collections::BTreeSet;

use store::Engine;
use store::testing::{NOW, TestDb, drop_database, fresh};

use super::model::Event;
use super::stage::Stage;
use super::universe::Universe;
use super::world::events;

const EVENTS_PER_SEED: usize = 150;

fn number_from(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Two or three.
fn wallets_of(seed: u64) -> usize {
    if seed.is_multiple_of(2) { 2 } else { 3 }
}

struct Failure {
    at: usize,
    difference: String,
}

impl Failure {
    /// What sorts of rows differ: a shorter list that fails in another way is about something else.
    fn kind(&self) -> BTreeSet<String> {
        // The engine's own errors are one line.
        let sort = |line: &str| line.split_whitespace().filter(|word| word.len() < 9).take(3).collect::<String>();
        self.difference.lines().map(sort).filter(|line| !line.is_empty()).collect()
    }
}

/// Plays all of it on a new database. Events that shorter lists have made impossible are left out.
async fn play(engine: Engine, seed: u64, all: &[Event], universe: &Universe) -> Result<(), Failure> {
    let db = fresh(engine).await;
    db.migrate(NOW).await.unwrap();
    let played = play_on(&db, seed, all, universe).await;
    db.close().await;
    drop_database(&db).await;
    played
}

async fn play_on(db: &TestDb, seed: u64, all: &[Event], universe: &Universe) -> Result<(), Failure> {
    // Blocks are sifted in memory first, or not: the rows are the same.
    if !seed.is_multiple_of(3) {
        db.watch_in_memory();
    }
    let mut stage = Stage::open(db, wallets_of(seed)).await;
    for (at, event) in all.iter().enumerate() {
        if universe.is_plausible(&stage.model, event) {
            stage.try_play(event).await.map(drop).map_err(|difference| Failure { at, difference })?;
        }
    }
    let findings = db.check_utxo().await.unwrap();
    if findings.is_empty() {
        Ok(())
    } else {
        Err(Failure { at: all.len() - 1, difference: format!("the check found {findings:#?}") })
    }
}

/// Leaves out what the failure does not need: larger pieces first, then event by event.
async fn shrink(
    engine: Engine,
    seed: u64,
    mut all: Vec<Event>,
    mut failure: Failure,
    universe: &Universe,
) -> (Vec<Event>, Failure) {
    let mut piece = all.len() / 2;
    while piece > 0 {
        let mut start = 0;
        while start < all.len() {
            let mut shorter = all.clone();
            shorter.drain(start..(start + piece).min(shorter.len()));
            match play(engine, seed, &shorter, universe).await {
                Err(found) if found.kind() == failure.kind() => {
                    shorter.truncate(found.at + 1);
                    (all, failure) = (shorter, found);
                }
                Err(_) | Ok(()) => start += piece,
            }
        }
        piece /= 2;
    }
    (all, failure)
}

/// Seeds whose worlds once disagreed. 2078: a child and its parent had been replaced by one transaction, and an older rival of the
/// child came back before the child, in the model only.
const ONCE_WRONG: [u64; 1] = [2078];

fn property(engine: Engine) {
    let count = number_from("BURSAR_TEST_UTXO_EVENTS").unwrap_or(900);
    let first = u64::try_from(number_from("BURSAR_TEST_UTXO_SEED").unwrap_or(0)).unwrap();
    let worlds = u64::try_from(count.div_ceil(EVENTS_PER_SEED)).unwrap();
    play_worlds(engine, first..first + worlds);
}

fn play_worlds(engine: Engine, seeds: impl IntoIterator<Item = u64>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for seed in seeds {
        let mut all = events(seed, wallets_of(seed), EVENTS_PER_SEED);
        let universe = Universe::of(&all);
        runtime.block_on(async {
            let Err(failure) = play(engine, seed, &all, &universe).await else { return };
            let (at, difference) = (failure.at, failure.difference.clone());
            all.truncate(failure.at + 1);
            let (least, last) = shrink(engine, seed, all, failure, &universe).await;
            let least: Vec<String> = least.iter().map(|event| format!("{event:?}")).collect();
            panic!(
                "{} disagrees with the model, seed {seed}, event {at}:\n{difference}\n\
                 It takes these {} events:\n{}\nand then\n{}",
                engine.name(),
                least.len(),
                least.join("\n"),
                last.difference
            );
        });
    }
}

mod rows_are_what_the_model_says_after_every_event {
    use super::*;

    #[test]
    fn sqlite() {
        property(Engine::Sqlite);
    }

    #[test]
    fn postgres() {
        property(Engine::Postgres);
    }
}

mod worlds_that_once_disagreed_agree {
    use super::*;

    #[test]
    fn sqlite() {
        play_worlds(Engine::Sqlite, ONCE_WRONG);
    }

    #[test]
    fn postgres() {
        play_worlds(Engine::Postgres, ONCE_WRONG);
    }
}

/// A generator that never makes something happen proves nothing about it.
#[test]
fn worlds_have_everything_in_them() {
    use store::utxo::Status;
    let mut statuses = std::collections::BTreeMap::new();
    let mut answers = std::collections::BTreeMap::new();
    let (mut claimed, mut freed) = (0, 0);
    for seed in 0..24 {
        let wallets = wallets_of(seed);
        let mut model = super::stage::model(wallets);
        for event in events(seed, wallets, EVENTS_PER_SEED) {
            let kind = format!("{event:?}").split('(').next().unwrap().to_owned();
            let before = model.claimed();
            let answer = match model.apply(&event) {
                Ok(changed) if changed.is_empty() => "nothing new",
                Ok(_) => "changes",
                Err(code) => code,
            };
            *answers.entry((kind, answer)).or_insert(0) += 1;
            let after = model.claimed();
            claimed += after.keys().filter(|one| !before.contains_key(one)).count();
            let unspent: BTreeSet<_> = model.unspent().into_iter().map(|(one, ..)| one).collect();
            freed += before.keys().filter(|one| !after.contains_key(one) && unspent.contains(one)).count();
        }
        for tx in model.txs.values() {
            *statuses.entry((tx.status, tx.own, tx.height.is_some())).or_insert(0) += 1;
        }
        assert!(model.revived > 0, "seed {seed}: law 5 never revived a transaction");
    }
    assert!(claimed > 50 && freed > 20, "{claimed} outputs were claimed, {freed} free again");
    for (kind, answer) in [
        ("Connect", "changes"),
        ("Connect", "nothing new"),
        ("Connect", "UTXO_NOT_ON_TIP"),
        ("Disconnect", "changes"),
        ("Disconnect", "nothing new"),
        ("See", "changes"),
        ("See", "nothing new"),
        ("See", "UTXO_BAD_TRANSACTION"),
        ("Mempool", "changes"),
        ("Mempool", "nothing new"),
        ("Pending", "changes"),
        ("Pending", "nothing new"),
        ("Pending", "UTXO_BAD_TRANSACTION"),
        ("Pending", "UTXO_CLAIMED"),
        ("Pending", "UTXO_CONFLICT"),
        ("Pending", "UTXO_IMMATURE"),
        ("Pending", "UTXO_INVALID_PARENT"),
        ("Replace", "changes"),
        ("Replace", "nothing new"),
        ("Replace", "UTXO_BAD_TRANSACTION"),
        ("Replace", "UTXO_CLAIMED"),
        ("Replace", "UTXO_NOT_REPLACEABLE"),
        ("Publish", "changes"),
        ("Publish", "nothing new"),
        ("Publish", "UTXO_NOT_PENDING"),
        ("Publish", "UTXO_UNKNOWN_TRANSACTION"),
        ("Abandon", "changes"),
        ("Abandon", "nothing new"),
        ("Abandon", "UTXO_NOT_PENDING"),
        ("Abandon", "UTXO_UNKNOWN_TRANSACTION"),
        ("GiveUp", "changes"),
        ("GiveUp", "nothing new"),
        ("GiveUp", "UTXO_NOT_WAITING"),
        ("GiveUp", "UTXO_UNKNOWN_TRANSACTION"),
    ] {
        assert!(answers.contains_key(&(kind.to_owned(), answer)), "never {kind}: {answer} in {answers:?}");
    }
    for status in Status::ALL {
        assert!(statuses.keys().any(|(found, ..)| found == status), "nothing ends {status} in {statuses:?}");
    }
    assert!(statuses.len() > 7, "{statuses:?}");
}
