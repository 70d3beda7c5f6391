//! The intake under a seed: many clients with a few users among them, a buffer that is too small, a leg that loses calls and
//! answers, clients that go away, and a process that ends in the middle. What a client was told stays true, and each order
//! makes one transfer at most.
//!
//! `BURSAR_TEST_ROUNDS=1000 cargo test -p transfer --test it storm` runs it for longer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::random::Random;
use domain::transfer::{Direction::*, State, Transfer};
use store::db_test;
use transfer::{Created, Intake, IntakeSettings, TransferOrder};

use crate::support::*;

const CLIENTS: u64 = 12;
const USERS: i64 = 5;
const REQUESTS: u64 = 14;

pub fn rounds(short: u64) -> u64 {
    std::env::var("BURSAR_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

/// An order, and what its client was told of it.
type Told = (TransferOrder, Option<Created>);

async fn client(world: Arc<World>, intakes: Vec<Arc<Intake>>, round: u64, number: u64) -> Vec<Told> {
    let mut random = Random::from_seed(round ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut told = Vec::new();
    for request in 0..REQUESTS {
        let orders: Vec<TransferOrder> = (0..1 + random.below(3))
            .map(|order| {
                let direction = if random.below(3) == 0 { ToFunding } else { ToSpot };
                let amount = 10 + i64::try_from(random.below(700)).unwrap();
                let user = 1 + i64::try_from(number).unwrap() % USERS;
                world.named(user, direction, amount, &format!("{round}-{number}-{request}-{order}"))
            })
            .collect();
        // Up to three times, with the same names, at any of the servers.
        for attempt in 0..3 {
            let intake = &intakes[random.index(intakes.len())];
            let place = intake.place(orders.clone());
            let patience = Duration::from_millis(if random.below(4) == 0 { random.below(6) } else { 5_000 });
            let placed = tokio::time::timeout(patience, place).await;
            match placed.map(|placed| placed.into_iter().collect::<Result<Vec<Created>, _>>()) {
                Ok(Ok(created)) => {
                    // An earlier try, which the client did not wait for, may be accepted after a later one is rejected.
                    let certain = |one: &Created| attempt == 0 || !matches!(one, Created::Rejected(_));
                    told.extend(orders.iter().cloned().zip(created.into_iter().map(|one| Some(one).filter(certain))));
                    break;
                }
                // The client has gone away, or was told that nobody knows.
                Err(_) | Ok(Err(_)) if attempt == 2 => told.extend(orders.iter().cloned().map(|order| (order, None))),
                Err(_) | Ok(Err(_)) => {}
            }
        }
    }
    told
}

async fn storm(world: &Arc<World>, round: u64) {
    let mut random = Random::from_seed(round);
    let settings = IntakeSettings {
        lanes: 1 + random.index(3),
        ahead: 1 + random.index(3),
        // A user has a quarter of it, and a request up to three orders.
        queue: 12 + random.index(30),
        wait: Duration::from_millis(random.below(30)),
        patience: Duration::from_millis(2_000),
        ..IntakeSettings::default()
    };
    let moods: Vec<Mood> = (0..20)
        .map(|_| match random.below(4) {
            0 => Mood::LoseAnswer,
            1 => Mood::LoseCall,
            2 => Mood::Twice,
            _ => Mood::TooManyAnswers,
        })
        .collect();
    world.leg.plan(&moods);
    let node = 100 + u16::try_from(round % 400).unwrap() * 2;
    let intakes: Vec<Arc<Intake>> = (0..2)
        .map(|number| {
            let other = coordinator(
                world.db.clone(),
                world.leg.clone(),
                world.clock.clone(),
                node + number,
                crate::support::settings(),
            );
            Arc::new(Intake::open(Arc::new(other), settings))
        })
        .collect();
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(client(Arc::clone(world), intakes.clone(), round, number))).collect();
    // One server ends in the middle, and its clients turn to the other.
    if random.below(2) == 0 {
        tokio::time::sleep(Duration::from_millis(random.below(60))).await;
        intakes[0].close().await;
    }
    let mut told: Vec<Told> = Vec::new();
    for client in clients {
        told.extend(client.await.unwrap());
    }
    for intake in &intakes {
        intake.close().await;
    }
    world.recover().await;
    world.assert_whole().await;
    let mut by_name: HashMap<_, Vec<Transfer>> = HashMap::new();
    for transfer in world.all().await {
        let name = transfer.client_order_id.clone().map(|name| name.as_str().to_owned());
        by_name.entry((transfer.user, name)).or_default().push(transfer);
    }
    for (order, told) in told {
        let name = order.client_order_id.as_ref().map(|name| name.as_str().to_owned());
        let there = by_name.get(&(order.user, name)).map_or(&[][..], Vec::as_slice);
        assert!(there.len() <= 1, "round {round}: {order:?} made {there:?}");
        match told {
            None => {}
            Some(Created::New(transfer) | Created::Duplicate(transfer)) => {
                assert_eq!(there.len(), 1, "round {round}: {transfer:?} was acknowledged, and is not there");
                assert_eq!((there[0].id, there[0].amount), (transfer.id, order.amount), "round {round}");
                let ended = transfer.state.is_terminal();
                assert!(!ended || there[0].state == transfer.state, "round {round}: told {transfer:?}, is {there:?}");
            }
            Some(Created::Rejected(rejection)) => {
                assert!(there.is_empty(), "round {round}: told {rejection:?}, and is {there:?}");
            }
        }
    }
    // A new day, and money to go on with.
    world.wait(Duration::from_secs(86_400));
    for number in 1..=USERS {
        let (available, _, spot) = world.books(number).await;
        if available < 5_000 && spot >= 4_000 {
            assert_eq!(world.transfer(world.order(number, ToFunding, 4_000)).await.state, State::Committed);
        }
    }
    world.wait(Duration::from_secs(86_400));
}

db_test! {
    async fn what_the_intake_told_stays_true(db: TestDb) {
        let world = Arc::new(World::open(db, USERS).await);
        for round in 0..rounds(4) {
            storm(&world, round).await;
        }
    }
}
