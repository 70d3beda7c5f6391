//! A panic is a defect somewhere. It ends no task for good, holds up no other transfer, and moves no money twice.

use std::time::Duration;

use ::transfer::{Created, Intake, IntakeSettings, scanner};
use domain::transfer::{Direction, State};
use store::db_test;

use crate::support::*;

db_test! {
    async fn a_transfer_that_panics_does_not_hold_up_the_others(db: TestDb) {
        let world = World::open(db, 3).await;
        for number in 1..=3 {
            world.leg.plan(&[Mood::LoseCall]);
            let waiting = world.transfer(world.order(number, Direction::ToSpot, 100)).await;
            assert_eq!(waiting.state, State::TargetPending);
        }
        world.wait(Duration::from_secs(120));
        // The batch of three panics, then the first of them by itself.
        world.leg.plan(&[Mood::Panic, Mood::Panic]);
        assert_eq!(scanner::scan_once(&world.coordinator).await.unwrap(), 3);
        let mut states: Vec<State> = world.all().await.into_iter().map(|transfer| transfer.state).collect();
        states.sort_by_key(|state| state.number());
        assert_eq!(states, [State::TargetPending, State::Committed, State::Committed]);
        world.recover().await;
        for number in 1..=3 {
            assert_eq!(world.books(number).await, (FUNDS - 100, 0, 100), "once, though asked three times");
        }
        assert!(world.coordinator.readiness().first_trouble().is_none(), "the scanner itself goes on");
    }

    async fn a_request_whose_transfer_panics_is_told_that_it_is_on_its_way(db: TestDb) {
        let world = World::open(db, 1).await;
        let intake = Intake::open(world.coordinator.clone(), IntakeSettings::default());
        world.leg.plan(&[Mood::Panic]);
        let placed = intake.place_one(world.order(1, Direction::ToSpot, 100)).await.unwrap();
        let Created::New(transfer) = &placed else { panic!("{placed:?}") };
        assert_eq!(transfer.state, State::TargetPending, "nothing more is known of it");
        assert_eq!(world.books(1).await, (FUNDS - 100, 100, 100), "the engine has it, and the hold stands");
        world.recover().await;
        assert_eq!(world.read(transfer.id).await.state, State::Committed);
        assert_eq!(world.books(1).await, (FUNDS - 100, 0, 100));
        intake.close().await;
    }
}
