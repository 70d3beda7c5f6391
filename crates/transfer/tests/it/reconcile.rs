//! What the database and the engine say differently is mended where the ids prove it, and the history says who did it.

use std::collections::BTreeMap;

use domain::transfer::{Direction::*, State, Transfer};
use domain::{AccountStatus, Approval};
use store::db_test;
use transfer::leg::Leg;
use transfer::reconcile::{Difference, Mend, differences, only_at_engine};

use crate::support::*;

fn two() -> Approval {
    Approval::new("ana", "bo", "ticket 4711").unwrap()
}

async fn compare(world: &World) -> Vec<Difference> {
    let spot = world.leg.spot().unwrap();
    let at_engine = only_at_engine(&world.db, spot).await.unwrap();
    differences(&world.db, spot, &at_engine, &BTreeMap::new()).await.unwrap()
}

/// Mends the one difference that there is, and finds none afterwards. The transfer's history says who did it.
async fn mend(world: &World, transfer: &Transfer, expected: Mend) {
    let found = compare(world).await;
    assert_eq!(found.iter().map(|one| (one.id, one.mend())).collect::<Vec<_>>(), [(transfer.id, Some(expected))]);
    world.coordinator.mend(&found[0], &two()).await.unwrap().unwrap();
    assert_eq!(compare(world).await, []);
    let rows = store::transfer::history(&mut world.db.read().await.unwrap(), transfer.id).await.unwrap();
    let last = &rows.last().unwrap().reason;
    assert!(last.ends_with("by ana and bo: ticket 4711"), "{last}");
    assert_eq!(world.read(transfer.id).await.state, transfer.state);
    // Again: ids make it happen once.
    world.coordinator.mend(&found[0], &two()).await.unwrap().unwrap();
    world.assert_whole().await;
}

db_test! {
    async fn what_the_engine_took_out_for_a_transfer_that_was_rolled_back_is_given_back(db: TestDb) {
        let world = World::open(db, 1).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        let back = world.coordinator.create(&[world.order(1, ToFunding, 300)], transfer::Begin::Now).await.unwrap();
        let transfer::Created::New(back) = back[0].clone() else { panic!("{back:?}") };
        set_funding_status(&world, 1, AccountStatus::Disabled, "off").await;
        // FUNDING refuses it, and the engine loses the rollback after it has answered.
        world.leg.plan(&[Mood::Twice, Mood::Pretend]);
        let ended = world.coordinator.step(vec![back]).await.unwrap().remove(0);
        assert_eq!(ended.state, State::RolledBack);
        assert_eq!(world.books(1).await, (9_000, 0, 700), "300 are nowhere");
        mend(&world, &ended, Mend::RollBack).await;
        assert_eq!(world.books(1).await, (9_000, 0, 1_000));
    }

    async fn what_the_engine_took_out_for_a_transfer_that_failed_is_given_back(db: TestDb) {
        let world = World::open(db, 1).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        world.leg.plan(&[Mood::LoseAnswer]);
        let back = world.transfer(world.order(1, ToFunding, 300)).await;
        // Another life of the same backup: there the engine refused.
        let (id, version) = (back.id.number(), back.version + 1);
        db.by_hand(&format!(
            "UPDATE transfers SET state = -10, error = 'INSUFFICIENT_BALANCE', version = {version} WHERE id = {id}"
        ))
        .await
        .unwrap();
        db.by_hand(&format!(
            "INSERT INTO transfer_events (transfer_id, version, path, reason, at)
                VALUES ({id}, {version}, 'SOURCE_PENDING>FAILED', 'refused', 1)"
        ))
        .await
        .unwrap();
        let failed = world.read(back.id).await;
        mend(&world, &failed, Mend::RollBack).await;
        assert_eq!(world.books(1).await, (9_000, 0, 1_000));
    }

    async fn what_the_engine_lost_is_sent_again_and_the_history_says_by_whom(db: TestDb) {
        let world = World::open(db, 1).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        world.leg.plan(&[Mood::Pretend]);
        let there = world.transfer(world.order(1, ToSpot, 500)).await;
        assert_eq!((there.state, world.books(1).await), (State::Committed, (8_500, 0, 1_000)));
        mend(&world, &there, Mend::SendAgain).await;
        world.leg.plan(&[Mood::Pretend]);
        let back = world.transfer(world.order(1, ToFunding, 700)).await;
        assert_eq!((back.state, world.books(1).await), (State::Committed, (9_200, 0, 1_500)));
        mend(&world, &back, Mend::SendAgain).await;
        assert_eq!(world.books(1).await, (9_200, 0, 800));
    }

    /// The user has it in FUNDING, and at the engine too: an engine cannot prove whose it is by now.
    async fn a_deposit_that_the_database_gave_back_is_left_to_people(db: TestDb) {
        let world = World::open(db, 1).await;
        world.leg.plan(&[Mood::LoseAnswer]);
        let there = world.transfer(world.order(1, ToSpot, 300)).await;
        db.by_hand("UPDATE transfers SET state = -30, error = 'ACCOUNT_DISABLED'").await.unwrap();
        let found = compare(&world).await;
        assert_eq!((found.len(), found[0].id, found[0].mend()), (1, there.id, None), "{found:?}");
        assert!(world.coordinator.mend(&found[0], &two()).await.unwrap().is_err());
        assert_eq!(world.books(1).await.2, 300, "nothing was done");
    }
}
