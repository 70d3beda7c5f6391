//! Each role does its whole work with the rights of its own log-in, on a real PostgreSQL. What it may not do is in the store's tests.

use domain::ChainKind;
use domain::outbound::JobKind;
use store::Engine;
use store::grants::DatabaseRole;
use store::testing::on;

use crate::bundles::comes_home;
use crate::deposits::{Rig, spent_and_taken_back};
use crate::outbound::{Desk, pays_each_once};
use crate::payouts::share_one_transaction;
use crate::treasury::{EVM, TRON, USER, Yard, low_gas_wallet, within_its_band};
use crate::treasury_people::refill_withdrawn;
use crate::withdrawals::{Counter, inside, paid_once};

#[test]
fn postgres_who_sends_and_who_confirms_need_no_more_than_they_have() {
    for kind in [ChainKind::Evm, ChainKind::Tron] {
        on(Engine::Postgres, async |db| {
            db.with_roles().await;
            pays_each_once(Desk::start(db, kind, 2).await).await;
        });
    }
}

/// Deposits, balance sync, rules, sending and confirming: the four cycles of the source, each worker with its own log-in.
#[test]
fn postgres_the_workers_of_001_need_no_more_than_they_have() {
    for place in [TRON, EVM] {
        on(Engine::Postgres, async |db| {
            db.with_roles().await;
            low_gas_wallet(Yard::of_the_source(db, place).await).await;
        });
    }
}

/// A chain takes back what its customer has spent: the worker freezes the account by its own log-in, or nothing of the chain would be booked any more.
#[test]
fn postgres_who_books_deposits_may_freeze_who_has_spent_what_is_gone() {
    for kind in [ChainKind::Evm, ChainKind::Tron] {
        on(Engine::Postgres, async |db| {
            db.with_roles().await;
            spent_and_taken_back(Rig::start(db, kind, 30).await).await;
        });
    }
}

/// From a customer's deposit to a payout, and to another customer.
#[test]
fn postgres_withdrawals_need_no_more_than_they_have() {
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        paid_once(Counter::open(db, ChainKind::Evm).await).await;
    });
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        inside(Counter::open(db, ChainKind::Tron).await).await;
    });
}

/// Hot wallets and their bands: surpluses that leave, and a refill that is taken back.
#[test]
fn postgres_bands_need_no_more_than_the_workers_have() {
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        within_its_band(Yard::start(db, EVM).await).await;
    });
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        refill_withdrawn(Yard::start(db, TRON).await).await;
    });
}

/// Bitcoin: many coins that come home together, and payouts that share a transaction.
#[test]
fn postgres_bitcoin_needs_no_more_than_the_workers_have() {
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        comes_home(db).await;
    });
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        share_one_transaction(db).await;
    });
}

/// `bursar rule eval`, by people with their own log-ins.
#[test]
fn postgres_people_evaluate_rules_by_hand() {
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        let yard = Yard::start(db, TRON).await;
        for (place, role) in [DatabaseRole::Operator, DatabaseRole::Administrator].into_iter().enumerate() {
            let wallet = yard.low_gas_wallet(USER + i64::try_from(place).unwrap(), 480).await.to_string();
            yard.rules_on(db.of(role), "people").await.expect("it has the rights");
            let topups = yard.jobs(JobKind::GasTopup).await;
            let here = topups.iter().filter(|topup| topup.job.to == wallet).count();
            let all: Vec<_> = topups.iter().map(|topup| (&topup.job.to, topup.job.state, &topup.job.reason)).collect();
            assert_eq!((here, topups.len()), (1, place + 1), "{}: {all:?}", role.name());
        }
    });
}
