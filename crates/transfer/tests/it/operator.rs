//! What a person may do, and what not.

use std::time::Duration;

use domain::adjustment::{Adjustment, EngineHas};
use domain::ledger::{Outcome, Reply};
use domain::transfer::{Direction::*, State, Transfer};
use domain::{Amount, Approval, Clock};
use store::db_test;
use store::ledger::Adjusted;
use transfer::audit::Options;
use transfer::invariant::check_and_stop;
use transfer::operator::{Author, OperatorError, Wanted};

use crate::support::*;

fn author() -> Author {
    Author { actor: "ana".into(), reason: "ticket 4711".into() }
}

fn two() -> Approval {
    Approval::new("ana", "bo", "ticket 4711").unwrap()
}

/// The clock moves on by more than the engine remembers, in steps that it believes, and something is done at the end.
async fn forget(world: &World, user: i64) {
    for _ in 0..3 {
        world.wait(Duration::from_secs(3 * 86_400));
        world.transfer(world.order(user, ToSpot, 10)).await;
    }
}

/// A transfer that the engine has done or has not done, and has forgotten.
async fn forgotten(world: &World, user: i64, direction: domain::transfer::Direction, done: bool) -> Transfer {
    world.leg.plan(&[if done { Mood::LoseAnswer } else { Mood::LoseCall }]);
    world.transfer(world.order(user, direction, 100)).await
}

/// What `suspense` and `clearing:spot` hold.
async fn system(world: &World) -> (i128, i128) {
    let totals = store::ledger::balances::totals(&mut world.db.read().await.unwrap()).await.unwrap();
    let of = |kind: &str| totals[&world.usdt].system.get(kind).copied().unwrap_or(0);
    (of("suspense"), of("clearing:spot"))
}

/// Two people accept how the engine differs.
async fn accept(world: &World, number: i64, engine_has: EngineHas, amount: i64) {
    let (key, amount) = (format!("case-{number}"), Amount::from_units(amount));
    let wanted = Adjustment::of_spot(&key, user(number), engine_has, world.usdt, amount, two()).unwrap();
    let adjusted = world.db.adjust(&wanted, false, world.clock.now()).await.unwrap();
    assert_eq!(adjusted, Adjusted::Decided(Reply::First(Outcome::Applied)));
}

async fn assert_clean(world: &World) {
    let report = world.db.audit(|_| {}).await.unwrap();
    assert!(report.clean(), "{:?}", report.findings);
    let remembered_since = world.clock.now().plus_micros(-86_400_000_000);
    let options = Options { trading: false, remembered_since };
    for finding in transfer::audit::audit(&world.db, &*world.leg, &options, |_| {}).await.unwrap() {
        assert!(finding.violation.is_none(), "{finding:?}");
    }
}

db_test! {
    async fn what_no_record_can_prove_has_an_exit_by_two_people(db: TestDb) {
        // For each way, each truth at the engine and each word of the people: what the user has in funding then, how the
        // transfer ends, and how much more the engine has than the books say, if the word was wrong.
        let cases = [
            (ToSpot, true, Wanted::Committed, 8_900, State::Committed, 0),
            (ToSpot, false, Wanted::Committed, 8_900, State::Committed, -100),
            (ToSpot, true, Wanted::RolledBack, 9_000, State::RolledBack, 100),
            (ToSpot, false, Wanted::RolledBack, 9_000, State::RolledBack, 0),
            (ToFunding, true, Wanted::Committed, 9_100, State::Committed, 0),
            (ToFunding, false, Wanted::Committed, 9_100, State::Committed, 100),
            (ToFunding, true, Wanted::RolledBack, 9_000, State::Failed, -100),
            (ToFunding, false, Wanted::RolledBack, 9_000, State::Failed, 0),
        ];
        let world = World::open(db, 9).await;
        for (user, (direction, done, wanted, available, end, more)) in (1..).zip(&cases) {
            world.transfer(world.order(user, ToSpot, 1_000)).await;
            let stuck = forgotten(&world, user, *direction, *done).await;
            forget(&world, 9).await;
            let case = format!("{direction:?} done {done} {wanted:?}");
            let again = world.coordinator.retry(stuck.id, &author()).await.unwrap();
            assert_eq!(again.error.as_deref(), Some("OPERATION_EXPIRED"), "{case}");
            for wanted in [Wanted::Committed, Wanted::RolledBack] {
                let error = world.coordinator.resolve(stuck.id, wanted, &author()).await.unwrap_err();
                assert!(matches!(error, OperatorError::NotProven(_)), "{case}: {error:?}");
            }
            let (suspense, clearing) = system(&world).await;
            let ended = world.coordinator.resolve_without_proof(stuck.id, *wanted, &two(), "log of 1 May").await;
            let ended = ended.unwrap_or_else(|error| panic!("{case}: {error:?}"));
            assert_eq!(ended.state, *end, "{case}");
            let (funding, frozen, _) = world.books(user).await;
            assert_eq!((funding, frozen), (*available, 0), "{case}");
            // The books are as they would be if the engine had said it.
            let moved = match (*end, direction) {
                (State::Committed, ToSpot) => 100,
                (State::Committed, ToFunding) => -100,
                _ => 0,
            };
            assert_eq!(system(&world).await, (suspense, clearing + moved), "{case}");
            let rows = store::transfer::history(&mut world.db.read().await.unwrap(), stuck.id).await.unwrap();
            let last = &rows.last().unwrap().reason;
            assert!(last.starts_with("resolved without proof as"), "{case}: {last}");
            // Nothing is left open. A wrong word is found at once, and held until two people settle the difference.
            let breaches = check_and_stop(&world.coordinator).await.unwrap();
            if *more == 0 {
                assert_eq!(breaches, [], "{case}");
            } else {
                let books = clearing + moved;
                let has = books + i128::from(*more);
                let problem = format!("the engine has {has} ledger units, the transfers allow {books} to {books}");
                assert_eq!(breaches.iter().map(|one| &one.problem).collect::<Vec<_>>(), [&problem], "{case}");
                let options = Options { trading: false, remembered_since: world.clock.now() };
                let found = transfer::audit::audit(&world.db, &*world.leg, &options, |_| {}).await.unwrap();
                assert!(found.iter().any(|one| one.violation.is_some()), "{case}");
                let engine_has = if *more > 0 { EngineHas::More } else { EngineHas::Less };
                accept(&world, user, engine_has, 100).await;
                assert_eq!(system(&world).await, (suspense - i128::from(*more), clearing + moved + i128::from(*more)));
                assert_eq!(check_and_stop(&world.coordinator).await.unwrap(), [], "{case}");
                assert!(world.db.resume_asset(world.usdt, &two(), world.clock.now()).await.unwrap(), "{case}");
            }
            world.wait(Duration::from_secs(1));
            assert_clean(&world).await;
            let error =
                world.coordinator.resolve_without_proof(stuck.id, *wanted, &two(), "again").await.unwrap_err();
            assert!(matches!(error, OperatorError::Ended(..)), "{case}: {error:?}");
        }
    }

    async fn without_proof_is_only_for_what_nothing_can_prove(db: TestDb) {
        let world = World::open(db, 2).await;
        let lost = forgotten(&world, 1, ToSpot, false).await;
        let done = forgotten(&world, 1, ToSpot, true).await;
        for id in [lost.id, done.id] {
            for wanted in [Wanted::Committed, Wanted::RolledBack] {
                let error = world.coordinator.resolve_without_proof(id, wanted, &two(), "x").await.unwrap_err();
                assert!(matches!(error, OperatorError::Provable(_)), "{error:?}");
            }
        }
        // An engine that is away proves nothing either, and is no excuse.
        world.engine.stop().await;
        let error =
            world.coordinator.resolve_without_proof(lost.id, Wanted::RolledBack, &two(), "x").await.unwrap_err();
        assert!(matches!(error, OperatorError::Provable(_)), "{error:?}");
        assert_eq!((world.read(lost.id).await.version, world.read(done.id).await.version), (lost.version, done.version));
    }

    async fn an_end_that_the_ledger_does_not_take_changes_nothing(db: TestDb) {
        let world = World::open(db, 2).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        let stuck = forgotten(&world, 1, ToFunding, true).await;
        forget(&world, 2).await;
        set_funding_status(&world, 1, domain::AccountStatus::Disabled, "off").await;
        let before = world.read(stuck.id).await;
        let ended = world.coordinator.resolve_without_proof(stuck.id, Wanted::Committed, &two(), "x").await;
        assert!(matches!(ended, Err(OperatorError::NotTaken(ref code)) if code == "ACCOUNT_DISABLED"), "{ended:?}");
        assert_eq!(world.read(stuck.id).await, before);
        assert_eq!(system(&world).await.0, 0);
        assert_clean(&world).await;
    }

    async fn by_nobodys_word_comes_back_what_is_stopped_or_was_never_given(db: TestDb) {
        let world = World::open(db, 3).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        let stuck = forgotten(&world, 1, ToFunding, true).await;
        let other = forgotten(&world, 1, ToFunding, false).await;
        forget(&world, 2).await;
        assert!(world.db.stop_asset(world.usdt, "ana", "a look", world.clock.now()).await.unwrap());
        let before = world.read(stuck.id).await;
        let ended = world.coordinator.resolve_without_proof(stuck.id, Wanted::Committed, &two(), "x").await;
        assert!(matches!(ended, Err(OperatorError::Stopped(id)) if id == stuck.id), "{ended:?}");
        assert_eq!(world.read(stuck.id).await, before);
        assert_eq!(world.books(1).await.0, 9_000, "nothing came back");
        // That the money stayed where it was brings nothing back, and may be said.
        let ended = world.coordinator.resolve_without_proof(other.id, Wanted::RolledBack, &two(), "x").await.unwrap();
        assert_eq!(ended.state, State::Failed);
        assert!(world.db.resume_asset(world.usdt, &two(), world.clock.now()).await.unwrap());
        // No more than was given, whoever says it: here all of it but 50 was taken out of the books.
        accept(&world, 1, EngineHas::Less, 980).await;
        let ended = world.coordinator.resolve_without_proof(stuck.id, Wanted::Committed, &two(), "x").await;
        assert!(matches!(ended, Err(OperatorError::Stopped(_))), "{ended:?}");
        assert_eq!((system(&world).await, world.books(1).await.0), ((980, 50), 9_000));
    }

    async fn a_retry_does_not_wait_for_its_time(db: TestDb) {
        let world = World::open(db, 1).await;
        world.leg.plan(&[Mood::LoseAnswer; 2]);
        let stuck = world.transfer(world.order(1, ToSpot, 100)).await;
        let still = world.coordinator.retry(stuck.id, &author()).await.unwrap();
        assert_eq!((still.state, still.tries), (State::TargetPending, 2));
        let ended = world.coordinator.retry(stuck.id, &author()).await.unwrap();
        assert_eq!(ended.state, State::Committed);
        let rows = store::transfer::history(&mut world.db.read().await.unwrap(), stuck.id).await.unwrap();
        assert_eq!(rows.iter().filter(|row| row.reason == "retry by ana: ticket 4711").count(), 2, "{rows:?}");
        let error = world.coordinator.retry(stuck.id, &author()).await.unwrap_err();
        assert!(matches!(error, OperatorError::Ended(_, State::Committed)), "{error:?}");
        world.assert_whole().await;
    }

    async fn a_resolution_needs_the_legs_record(db: TestDb) {
        let world = World::open(db, 1).await;
        // The call never arrived: the record proves neither end.
        world.leg.plan(&[Mood::LoseCall]);
        let lost = world.transfer(world.order(1, ToSpot, 100)).await;
        for wanted in [Wanted::Committed, Wanted::RolledBack] {
            let error = world.coordinator.resolve(lost.id, wanted, &author()).await.unwrap_err();
            assert!(matches!(error, OperatorError::NotProven(_)), "{error:?}");
        }
        assert_eq!(world.read(lost.id).await.version, lost.version, "a refused resolution leaves nothing behind");
        // Carried out, but the answer was lost: the record proves one end, and disproves the other.
        world.leg.plan(&[Mood::LoseAnswer]);
        let heard = world.transfer(world.order(1, ToSpot, 200)).await;
        let error = world.coordinator.resolve(heard.id, Wanted::RolledBack, &author()).await.unwrap_err();
        assert!(matches!(error, OperatorError::NotProven(_)), "{error:?}");
        let ended = world.coordinator.resolve(heard.id, Wanted::Committed, &author()).await.unwrap();
        assert_eq!(ended.state, State::Committed);
        let rows = store::transfer::history(&mut world.db.read().await.unwrap(), heard.id).await.unwrap();
        assert!(rows.iter().any(|row| row.reason == "resolved as committed by ana: ticket 4711"), "{rows:?}");
        // The other direction, and a refusal.
        world.leg.plan(&[Mood::LoseAnswer]);
        let back = world.transfer(world.order(1, ToFunding, 50)).await;
        let ended = world.coordinator.resolve(back.id, Wanted::Committed, &author()).await.unwrap();
        assert_eq!(ended.state, State::Committed);
        set_spot_status(&world, 1, domain::AccountStatus::Disabled).await;
        world.leg.plan(&[Mood::LoseAnswer]);
        let refused = world.transfer(world.order(1, ToSpot, 70)).await;
        let ended = world.coordinator.resolve(refused.id, Wanted::RolledBack, &author()).await.unwrap();
        assert_eq!((ended.state, ended.error.as_deref()), (State::RolledBack, Some("ACCOUNT_DISABLED")));
        set_spot_status(&world, 1, domain::AccountStatus::Active).await;
        world.recover().await;
        assert_eq!(world.books(1).await, (10_000 - 100 - 200 + 50, 0, 250));
        world.assert_whole().await;
    }
}
