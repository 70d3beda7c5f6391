//! Two coordinators on one PostgreSQL, interrupted at every point, and many at once: nothing is accepted that the books
//! or the limits do not allow, and nothing is done twice.
//!
//! SQLite has one writer, so there is nothing to race there. What goes wrong without which clause is in `tests/mutants`.

use std::sync::Arc;
use std::time::Duration;

use domain::ledger::{Movement, OpKey, Operation, Reference};
use domain::transfer::{Direction::*, Rejection, State, Transfer};
use domain::{AccountKind, Amount, AssetId, Clock};
use store::faults::{Faults, Point, Strike};
use store::ledger::{NewAccount, Opened};
use store::testing::races::{Shell, meet};
use store::testing::{NOW, TestDb, on};
use store::transfer::{Changed, change};
use store::{Db, Engine, StoreError, Writes, db_test};
use tokio::sync::Barrier;
use transfer::operator::Author;
use transfer::{Begin, Coordinator, Created, Settings, TransferOrder};

use crate::support::*;

/// No piece of writing has more points than this.
const MOST_POINTS: i64 = 60;

fn on_postgres(test: impl AsyncFnOnce(&TestDb)) {
    on(Engine::Postgres, test);
}

/// Another server on the same database and the same engine. Time passes, or a node number that is used again would make the
/// same ids again.
fn server(world: &World, db: Db, node: u16, settings: Settings) -> Coordinator {
    world.wait(Duration::from_millis(2));
    coordinator(db, world.leg.clone(), world.clock.clone(), node, settings)
}

/// Gives every user an account with funds in BTC too.
async fn open_btc(world: &World) {
    let users = i64::try_from(world.users.len()).unwrap();
    let external = NewAccount::system(&AccountKind::External("bsc".parse().unwrap()), world.btc).unwrap();
    let mut wanted = vec![external];
    wanted.extend((1..=users).map(|number| NewAccount::funding(user(number), world.btc)));
    let opened = world.db.open(&wanted, NOW).await.unwrap();
    let id = |opened: &Opened| match opened {
        Opened::Account(id) => *id,
        Opened::UnknownAsset => panic!("the asset is there"),
    };
    let fund = opened[1..].iter().map(|account| {
        let movement =
            Movement { from: id(&opened[0]), to: id(account), asset: world.btc, amount: Amount::from_units(FUNDS) };
        let key = OpKey::new(format!("fund-{}", id(account))).unwrap();
        Operation::move_available(key, vec![movement], Reference::new("funds").unwrap()).unwrap()
    });
    let fund: Vec<Operation> = fund.collect();
    assert!(world.db.post(&fund, NOW).await.unwrap().iter().all(|reply| reply.applied()));
}

fn in_asset(order: TransferOrder, asset: AssetId) -> TransferOrder {
    TransferOrder { asset, ..order }
}

fn accepted<'a>(created: impl IntoIterator<Item = &'a Created>) -> Vec<Transfer> {
    created
        .into_iter()
        .filter_map(|one| match one {
            Created::New(transfer) => Some(transfer.clone()),
            Created::Duplicate(_) | Created::Rejected(_) => None,
        })
        .collect()
}

/// A transfer whose deposit at the engine was not answered: in TARGET_PENDING, with its money held.
async fn stuck(world: &World, number: i64, amount: i64) -> Transfer {
    world.leg.plan(&[Mood::LoseCall]);
    let transfer = world.transfer(world.order(number, ToSpot, amount)).await;
    assert_eq!(transfer.state, State::TargetPending);
    transfer
}

#[test]
fn postgres_no_more_is_accepted_than_the_account_has() {
    on_postgres(async |db| {
        let world = World::open(db, MOST_POINTS).await;
        for at in 0.. {
            let number = at + 1;
            let create = async |db: Db, node, count: usize| {
                let orders = vec![world.order(number, ToSpot, 4_000); count];
                server(&world, db, node, settings()).create(&orders, Begin::Now).await.unwrap()
            };
            let met = meet(db, at, async |db| create(db, 11, 2).await, async |db| create(db, 12, 1).await).await;
            let count = accepted(met.first.iter().chain(&met.second)).len();
            assert_eq!(count, 2, "point {at}: {FUNDS} allow two of 4,000: {met:?}");
            assert_eq!(world.books(number).await, (2_000, 8_000, 0), "point {at}");
            if !met.reached {
                break;
            }
        }
        world.recover().await;
        world.assert_whole().await;
    });
}

/// The rows of two assets have nothing in common but the count of the user's transfers.
#[test]
fn postgres_a_daily_limit_counts_all_assets_at_once() {
    on_postgres(async |db| {
        let limited = Settings { daily_transfers: 3, ..settings() };
        let world = World::with(db, MOST_POINTS, limited.clone(), false).await;
        open_btc(&world).await;
        for at in 0.. {
            let number = at + 1;
            for asset in [world.usdt, world.btc] {
                let order = in_asset(world.order(number, ToSpot, 100), asset);
                assert_eq!(world.transfer(order).await.state, State::Committed);
            }
            let create = async |db: Db, node, asset| {
                let order = in_asset(world.order(number, ToSpot, 100), asset);
                server(&world, db, node, limited.clone()).create(&[order], Begin::Now).await.unwrap().remove(0)
            };
            let first = async |db| create(db, 11, world.usdt).await;
            let met = meet(db, at, first, async |db| create(db, 12, world.btc).await).await;
            let both = [&met.first, &met.second];
            assert_eq!(accepted(both).len(), 1, "point {at}: the third of three: {met:?}");
            assert!(both.contains(&&Created::Rejected(Rejection::DailyLimitExceeded)), "point {at}: {met:?}");
            if !met.reached {
                break;
            }
        }
        world.recover().await;
        world.assert_whole().await;
    });
}

/// Only the index knows that the other one has the name: the two orders touch no row in common.
#[test]
fn postgres_a_name_stands_for_one_transfer_though_two_assets_are_asked() {
    on_postgres(async |db| {
        let world = World::open(db, MOST_POINTS).await;
        open_btc(&world).await;
        for at in 0.. {
            let number = at + 1;
            let create = async |db: Db, node, asset| {
                let order = in_asset(world.named(number, ToSpot, 100, "mine"), asset);
                server(&world, db, node, settings()).create(&[order], Begin::Now).await.unwrap().remove(0)
            };
            let first = async |db| create(db, 11, world.usdt).await;
            let met = meet(db, at, first, async |db| create(db, 12, world.btc).await).await;
            let both = [&met.first, &met.second];
            assert_eq!(accepted(both).len(), 1, "point {at}: {met:?}");
            assert!(both.contains(&&Created::Rejected(Rejection::DuplicateRequest)), "point {at}: {met:?}");
            if !met.reached {
                break;
            }
        }
        world.recover().await;
        world.assert_whole().await;
    });
}

#[test]
fn postgres_two_workers_end_a_transfer_once_and_lose_nothing_beside_it() {
    on_postgres(async |db| {
        let world = World::open(db, MOST_POINTS).await;
        for at in 0.. {
            let number = at + 1;
            let transfer = stuck(&world, number, 3_000).await;
            let step = async |db: Db, node| {
                server(&world, db, node, settings()).step(vec![transfer.clone()]).await.unwrap().remove(0)
            };
            let met = meet(db, at, async |db| step(db, 11).await, async |db| step(db, 12).await).await;
            assert_eq!(world.read(transfer.id).await.state, State::Committed, "point {at}: {met:?}");
            assert_eq!(world.books(number).await, (7_000, 0, 3_000), "point {at}");
            assert_eq!(world.paths(transfer.id).await.last().unwrap(), "TARGET_PENDING>COMMITTED", "point {at}");
            if !met.reached {
                break;
            }
        }
        world.assert_whole().await;
    });
}

/// A step settles a hold while a new transfer takes another one on the same account.
#[test]
fn postgres_a_step_and_a_new_transfer_on_one_account_are_both_in_the_books() {
    on_postgres(async |db| {
        let world = World::open(db, 2 * MOST_POINTS).await;
        let (mut ends, mut number) = ([false; 2], 0);
        for at in 0.. {
            for (which, ended) in ends.iter_mut().enumerate() {
                number += 1;
                let transfer = stuck(&world, number, 3_000).await;
                let step = async |db: Db| {
                    server(&world, db, 11, settings()).step(vec![transfer.clone()]).await.unwrap();
                };
                let create = async |db: Db| {
                    let order = world.order(number, ToSpot, 2_000);
                    let created = server(&world, db, 12, settings()).create(&[order], Begin::Now).await.unwrap();
                    assert_eq!(accepted(&created).len(), 1);
                };
                let reached = if which == 0 {
                    meet(db, at, step, create).await.reached
                } else {
                    meet(db, at, create, step).await.reached
                };
                assert_eq!(world.books(number).await, (5_000, 2_000, 3_000), "point {at}, order {which}");
                *ended |= !reached;
            }
            if ends == [true; 2] {
                break;
            }
        }
        world.recover().await;
        world.assert_whole().await;
    });
}

/// A person's note and a worker's step both write the next row of the history.
#[test]
fn postgres_a_note_and_a_step_leave_one_history() {
    on_postgres(async |db| {
        let world = World::open(db, MOST_POINTS).await;
        let author = Author { actor: "ana".into(), reason: "ticket 4711".into() };
        for at in 0.. {
            let transfer = stuck(&world, at + 1, 3_000).await;
            let retry = async |db: Db| server(&world, db, 11, settings()).retry(transfer.id, &author).await;
            let step = async |db: Db| server(&world, db, 12, settings()).step(vec![transfer.clone()]).await.unwrap();
            let met = meet(db, at, retry, step).await;
            // It had ended before the note was written, or the retry found it ended.
            assert!(met.first.as_ref().is_ok_and(|ended| ended.state == State::Committed) || met.first.is_err());
            assert!(!matches!(met.first, Err(transfer::operator::OperatorError::Store(_))), "point {at}: {met:?}");
            assert_eq!(world.read(transfer.id).await.state, State::Committed, "point {at}: {met:?}");
            if !met.reached {
                break;
            }
        }
        world.assert_whole().await;
    });
}

/// The other way round: the worker has read the row when the note is written.
#[test]
fn postgres_a_step_and_a_note_leave_one_history() {
    on_postgres(async |db| {
        let world = World::open(db, MOST_POINTS).await;
        let author = Author { actor: "ana".into(), reason: "ticket 4711".into() };
        for at in 0.. {
            let transfer = stuck(&world, at + 1, 3_000).await;
            let step = async |db: Db| server(&world, db, 12, settings()).step(vec![transfer.clone()]).await;
            let retry = async |db: Db| server(&world, db, 11, settings()).retry(transfer.id, &author).await;
            let met = meet(db, at, step, retry).await;
            assert!(met.first.is_ok(), "point {at}: {met:?}");
            assert!(!matches!(met.second, Err(transfer::operator::OperatorError::Store(_))), "point {at}: {met:?}");
            assert_eq!(world.read(transfer.id).await.state, State::Committed, "point {at}: {met:?}");
            if !met.reached {
                break;
            }
        }
        world.assert_whole().await;
    });
}

#[test]
fn postgres_a_due_transfer_is_claimed_by_one_and_nobody_waits() {
    on_postgres(async |db| {
        let world = World::open(db, MOST_POINTS).await;
        for at in 0.. {
            let transfer = stuck(&world, at + 1, 3_000).await;
            world.wait(Duration::from_secs(60));
            let claim = async |db: Db, node| server(&world, db, node, settings()).claim(100).await.unwrap();
            let met = meet(db, at, async |db| claim(db, 11).await, async |db| claim(db, 12).await).await;
            assert!(!met.waited, "point {at}: what another has locked is left to it");
            let claimed: Vec<_> = met.first.iter().chain(&met.second).map(|one| one.id).collect();
            assert_eq!(claimed, [transfer.id], "point {at}");
            world.recover().await;
            if !met.reached {
                break;
            }
        }
        world.assert_whole().await;
    });
}

/// Transfers lock their accounts in the order of the ids, whatever the order of the transfers.
#[test]
fn postgres_transfers_lock_accounts_and_days_in_one_order() {
    on_postgres(async |db| {
        let world = World::open(db, 2).await;
        let [mut one, mut other] = [Shell::open(db).await, Shell::open(db).await];
        let [low, high] = [world.users[0], world.users[1]].map(|account| format!("id = {}", account.0));
        // The later transfer has the lower account.
        let batch = vec![stuck(&world, 2, 100).await, stuck(&world, 1, 100).await];
        let step = world.coordinator.step(batch);
        one.assert_order(&mut other, "accounts", &low, &high, step).await.unwrap();
        let orders = [world.order(2, ToSpot, 100), world.order(1, ToSpot, 100)];
        let create = world.coordinator.create(&orders, Begin::Now);
        let created = one.assert_order(&mut other, "accounts", &low, &high, create).await.unwrap();
        assert_eq!(accepted(&created).len(), 2);
        let create = world.coordinator.create(&orders, Begin::Now);
        let created =
            one.assert_order(&mut other, "transfer_days", "user_id = 1", "user_id = 2", create).await.unwrap();
        assert_eq!(accepted(&created).len(), 2);
        world.recover().await;
        world.assert_whole().await;
    });
}

/// What comes back is held against what was given. A deposit that is settled meanwhile was given all the time.
#[test]
fn postgres_a_deposit_that_is_settled_meanwhile_stops_nothing() {
    on_postgres(async |db| {
        let world = World::open(db, 2).await;
        for at in 0.. {
            // The engine has the 100 of user 2, and the books do not know yet. User 1 buys them there, and wants them back:
            // the two transfers have no row in common.
            world.leg.plan(&[Mood::LoseAnswer]);
            let there = world.transfer(world.order(2, ToSpot, 100)).await;
            assert_eq!(there.state, State::TargetPending);
            forge(&world, 2, -100).await;
            forge(&world, 1, 100).await;
            let back = world.coordinator.create(&[world.order(1, ToFunding, 100)], Begin::Now).await.unwrap();
            let back = accepted(&back).remove(0);
            // A server that has credited nothing yet reads the balance.
            let step = async |db, node, transfer| server(&world, db, node, settings()).step(vec![transfer]).await;
            let first = async |db| step(db, 11, back.clone()).await.unwrap().remove(0);
            let met = meet(db, at, first, async |db| step(db, 12, there.clone()).await.unwrap().remove(0)).await;
            assert_eq!(
                (met.first.state, met.second.state),
                (State::Committed, State::Committed),
                "point {at}: {met:?}"
            );
            let stops = store::transfer::read_stops(&mut db.read().await.unwrap(), 1).await.unwrap();
            assert_eq!(stops, [], "point {at}");
            let books = (world.books(1).await, world.books(2).await);
            let moved = 100 * (at + 1);
            assert_eq!(books, ((FUNDS + moved, 0, 0), (FUNDS - moved, 0, 0)), "point {at}");
            if !met.reached {
                break;
            }
        }
    });
}

/// Stops the writer before its first commit.
#[derive(Debug, Default)]
struct BeforeCommit {
    passed: std::sync::atomic::AtomicBool,
    reached: tokio::sync::Notify,
    go: Arc<tokio::sync::Notify>,
}

impl Faults for BeforeCommit {
    fn strike(&self, point: Point) -> Strike {
        if point != Point::BeforeCommit || self.passed.swap(true, std::sync::atomic::Ordering::SeqCst) {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.reached.notify_one();
        let go = Arc::clone(&self.go);
        Box::pin(async move {
            go.notified().await;
            Ok(())
        })
    }
}

/// Money that no transfer brought to the engine, or took from it.
async fn forge(world: &World, number: i64, amount: i64) {
    static NEXT: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(1);
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let id = spot::OpId::new(domain::id::first_at(world.clock.now()) + (9 << 12) + next).unwrap();
    let of = spot::Move { id, user: user(number), asset: world.usdt, amount: Amount::from_units(amount.abs()) };
    let operation = if amount > 0 { spot::Operation::Deposit(of) } else { spot::Operation::Withdraw(of) };
    let answer = world.engine.ask(operation).await.unwrap();
    assert_eq!(answer, spot::Answer::First(spot::Decision::Applied));
}

#[test]
fn postgres_two_rounds_at_once_do_not_bring_back_the_same_money() {
    on_postgres(async |db| {
        let world = World::open(db, 3).await;
        world.transfer(world.order(1, ToSpot, 110)).await;
        // The engine has more than it was given, and no check has run yet.
        forge(&world, 2, 80).await;
        forge(&world, 3, 80).await;
        let stop = Arc::new(BeforeCommit::default());
        let there = Arc::new(server(&world, db.db.with_faults(stop.clone()), 11, settings()));
        stop.passed.store(true, std::sync::atomic::Ordering::SeqCst);
        // It has read the balance: 100 are left.
        let back = there.create(&[world.order(1, ToFunding, 10)], Begin::Now).await.unwrap();
        assert_eq!(there.step(accepted(&back)).await.unwrap()[0].state, State::Committed);
        let create = async |number| {
            accepted(&world.coordinator.create(&[world.order(number, ToFunding, 80)], Begin::Now).await.unwrap())
        };
        let (one, two) = (create(2).await, create(3).await);
        stop.passed.store(false, std::sync::atomic::Ordering::SeqCst);
        let step = |batch| {
            let there = Arc::clone(&there);
            tokio::spawn(async move { there.step(batch).await.unwrap().remove(0) })
        };
        let first = step(one);
        stop.reached.notified().await;
        // The first stands before its commit. The second comes as far as it can: to its end, or to where it waits.
        let mut second = step(two);
        let early = tokio::time::timeout(Duration::from_millis(500), &mut second).await;
        stop.go.notify_one();
        let first = first.await.unwrap();
        let second = match early {
            Ok(ended) => ended.unwrap(),
            Err(_) => second.await.unwrap(),
        };
        assert_eq!((first.state, second.state), (State::Committed, State::TargetPending), "{second:?}");
        assert_eq!(second.error.as_deref(), Some("TRANSFER_STOPPED"));
        let totals = store::ledger::balances::totals(&mut db.read().await.unwrap()).await.unwrap();
        assert_eq!(totals[&world.usdt].system["clearing:spot"], 20, "never below what was given");
        assert_eq!((world.books(2).await.0, world.books(3).await.0), (FUNDS + 80, FUNDS));
    });
}

/// What the mutation run of November 2026 found: sixteen at once, each on its own connection.
#[test]
fn postgres_sixteen_at_once_do_not_overdraw() {
    on_postgres(async |db| {
        let limited = Settings { daily_transfers: 10, ..settings() };
        let world = Arc::new(World::with(db, 4, limited.clone(), false).await);
        open_btc(&world).await;
        for number in 1..=4 {
            let start = Arc::new(Barrier::new(16));
            let mut tasks = tokio::task::JoinSet::new();
            for task in 0..16_u16 {
                let (start, world, db) = (Arc::clone(&start), Arc::clone(&world), db.db.clone());
                let server = server(&world, db, 20 + task, limited.clone());
                // Users 1 and 2 are held by their balance, the others by the count of their transfers.
                let asset = if task % 2 == 0 || number <= 2 { world.usdt } else { world.btc };
                let amount = if number <= 2 { 2_000 } else { 100 };
                tasks.spawn(async move {
                    let order = in_asset(world.order(number, ToSpot, amount), asset);
                    start.wait().await;
                    server.create(&[order], Begin::Now).await.unwrap().remove(0)
                });
            }
            let created = tasks.join_all().await;
            let expected = if number <= 2 { 5 } else { 10 };
            assert_eq!(accepted(&created).len(), expected, "user {number}: {created:?}");
        }
        assert_eq!(world.books(1).await, (0, 10_000, 0));
        world.recover().await;
        world.assert_whole().await;
    });
}

db_test! {
    /// The row is locked when its state is read, so no worker meets this in the product. It is the last line all the same:
    /// a change that saw another state than the row has must not be written.
    async fn a_change_that_saw_another_state_is_not_written(db: TestDb) {
        let world = World::open(db, 1).await;
        let transfer = stuck(&world, 1, 3_000).await;
        let ended = Transfer { state: State::Committed, version: transfer.version + 1, ..transfer.clone() };
        let mut tries = db.tries();
        let mut tx = tries.begin().await.unwrap();
        let mut writes = Writes::default();
        change(&mut writes, &[Changed { seen: State::SourcePending, transfer: &ended }]);
        let refused = writes.run(&mut tx).await;
        assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{refused:?}");
        tries.end(tx, refused).await.unwrap().unwrap_err();
        assert_eq!(world.read(transfer.id).await, transfer);
        world.recover().await;
        world.assert_whole().await;
    }
}
