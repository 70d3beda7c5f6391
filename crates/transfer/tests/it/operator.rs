//! What a person may do, and what not.

use domain::transfer::{Direction::*, State};
use store::db_test;
use transfer::operator::{Author, OperatorError, Wanted};

use crate::support::*;

fn author() -> Author {
    Author { actor: "ana".into(), reason: "ticket 4711".into() }
}

db_test! {
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
