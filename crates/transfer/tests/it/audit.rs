//! The audit is clean while traffic runs, and names rows that were changed by hand.

use std::sync::Arc;

use domain::transfer::{Direction::*, State};
use domain::{Amount, Timestamp};
use store::audit::Finding;
use store::db_test;
use transfer::audit::{Options, audit};
use transfer::{Intake, IntakeSettings};

use crate::support::*;

async fn spot_audit(world: &World) -> Vec<Finding> {
    let options = Options { trading: false, remembered_since: Timestamp::from_micros(0) };
    audit(&world.db, &*world.leg, &options, |_| {}).await.unwrap()
}

async fn broken(world: &World) -> Vec<&'static str> {
    let mut findings = world.db.audit(|_| {}).await.unwrap().findings;
    findings.extend(spot_audit(world).await);
    findings.into_iter().filter(|finding| finding.violation.is_some()).map(|finding| finding.check).collect()
}

db_test! {
    async fn traffic_causes_no_false_alarm(db: TestDb) {
        let world = World::open(db, 12).await;
        let intake = Arc::new(Intake::open(world.coordinator.clone(), IntakeSettings::default()));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 1..=12 {
            let (intake, there, back) =
                (intake.clone(), world.order(number, ToSpot, 100), world.order(number, ToFunding, 60));
            tasks.spawn(async move {
                for _ in 0..25 {
                    assert!(intake.place(vec![there.clone(), there.clone()]).await.iter().all(Result::is_ok));
                    assert!(intake.place(vec![back.clone(), back.clone(), back.clone()]).await.iter().all(Result::is_ok));
                }
            });
        }
        let mut audits = 0;
        loop {
            // Now and then an answer is lost, so that something stays in flight. Never many in a row: recovery has an end.
            if !world.leg.has_plans() {
                world.leg.plan(&[Mood::LoseAnswer]);
            }
            assert_eq!(broken(&world).await, Vec::<&str>::new(), "audit {audits}");
            audits += 1;
            if tasks.is_empty() {
                break;
            }
            while tasks.try_join_next().is_some() {}
        }
        assert!(audits > 2, "only {audits} audits ran beside the traffic");
        intake.close().await;
        world.recover().await;
        assert_eq!(broken(&world).await, Vec::<&str>::new());
        world.assert_whole().await;
    }

    async fn what_was_changed_by_hand_is_found(db: TestDb) {
        let world = World::open(db, 3).await;
        let there = world.transfer(world.order(1, ToSpot, 1_000)).await;
        let back = world.transfer(world.order(1, ToFunding, 400)).await;
        world.transfer(world.order(2, ToSpot, 500)).await;
        set_spot_status(&world, 2, domain::AccountStatus::Disabled).await;
        let undone = world.transfer(world.order(2, ToSpot, 300)).await;
        assert_eq!(undone.state, State::RolledBack);
        assert_eq!(broken(&world).await, Vec::<&str>::new());
        let (there, back, undone) = (there.id.number(), back.id.number(), undone.id.number());
        for (change, undo, expected) in [
            (format!("UPDATE transfers SET state = 30 WHERE id = {there}"),
                format!("UPDATE transfers SET state = 40 WHERE id = {there}"), vec!["transfers", "entries"]),
            (format!("UPDATE transfers SET state = -30, error = 'X' WHERE id = {back}"),
                format!("UPDATE transfers SET state = 40, error = NULL WHERE id = {back}"),
                vec!["transfers", "entries", "spot_total", "spot_users", "spot_operations"]),
            (format!("UPDATE transfers SET state = 40 WHERE id = {undone}"),
                format!("UPDATE transfers SET state = -30 WHERE id = {undone}"),
                vec!["transfers", "entries", "spot_total", "spot_users", "spot_operations"]),
            (format!("UPDATE transfers SET amount = amount + 1 WHERE id = {there}"),
                format!("UPDATE transfers SET amount = amount - 1 WHERE id = {there}"),
                vec!["entries", "spot_total", "spot_users"]),
            (format!("UPDATE transfer_events SET path = 'TARGET_PENDING>ROLLED_BACK' WHERE transfer_id = {there}
                    AND version = 2"),
                format!("UPDATE transfer_events SET path = 'TARGET_PENDING>COMMITTED' WHERE transfer_id = {there}
                    AND version = 2"), vec!["transfers"]),
            (format!("UPDATE transfer_events SET transfer_id = 5 WHERE transfer_id = {there} AND version = 2"),
                "UPDATE transfer_events SET transfer_id = THERE WHERE transfer_id = 5".replace("THERE", &there.to_string()),
                vec!["transfers"]),
        ] {
            world_by_hand(db, &change).await;
            assert_eq!(broken(&world).await, expected, "{change}");
            world_by_hand(db, &undo).await;
            assert_eq!(broken(&world).await, Vec::<&str>::new(), "{undo}");
        }
        // Money that no transfer brought there.
        let id = spot::OpId::new(domain::id::first_at(store::testing::NOW) + 77).unwrap();
        let of = spot::Move { id, user: user(3), asset: world.usdt, amount: Amount::from_units(5) };
        world.engine.ask(spot::Operation::Deposit(of)).await.unwrap();
        assert_eq!(broken(&world).await, ["spot_total"], "user 3 never transferred: only the total can tell");
    }
}

async fn world_by_hand(db: &store::testing::TestDb, text: &str) {
    db.by_hand(text).await.unwrap();
}
