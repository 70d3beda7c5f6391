//! Withdrawals that come in at once share their commits, and each has its own answer: whatever happens to the commit, to the lane or to the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use domain::Amount;
use domain::transfer::ClientOrderId;
use server::withdrawal_intake::{WithdrawalIntake, WithdrawalIntakeError, WithdrawalIntakeSettings, WithdrawalOrder};
use store::db_test;
use store::faults::{Faults, Point, Strike, simulated};
use store::grants::DatabaseRole;
use store::testing::{NOW, TestDb};
use store::withdrawal::{CreatedWithdrawal, WithdrawalFilter};
use store::{Db, StoreError};
use tokio::sync::{Semaphore, watch};
use transfer::leg::Leg;
use transfer::supervisor::Pauses;
use transfer::{Coordinator, IdMaker, Metrics, Settings};

use crate::support::*;
use crate::withdrawals::{FAR, start};

/// What is to happen at the next commits, in their order; after that nothing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Nothing,
    /// It is committed, and nobody learns of it.
    Unanswered,
    /// Nobody learns of it, and it did not happen.
    Lost,
    /// Nothing is committed, for a reason of one of those in it.
    OfOne,
    Away,
    Panic,
}

#[derive(Debug)]
struct Ground {
    troubles: Vec<Trouble>,
    commits: AtomicUsize,
    /// Commits wait while it is closed.
    gate: watch::Sender<bool>,
    /// One for each commit that waits at the gate.
    arrived: Semaphore,
}

#[derive(Debug)]
struct Struck(Arc<Ground>);

impl Faults for Struck {
    fn strike(&self, point: Point) -> Strike {
        let ground = Arc::clone(&self.0);
        Box::pin(async move {
            match point {
                Point::Statement => Ok(()),
                Point::BeforeCommit => {
                    let number = ground.commits.load(Ordering::SeqCst);
                    ground.arrived.add_permits(1);
                    ground.gate.subscribe().wait_for(|open| *open).await.unwrap();
                    match ground.troubles.get(number) {
                        Some(Trouble::Nothing | Trouble::Unanswered) | None => Ok(()),
                        Some(trouble) => {
                            ground.commits.fetch_add(1, Ordering::SeqCst);
                            match trouble {
                                Trouble::Lost => Err(StoreError::CommitUnknown(simulated())),
                                Trouble::OfOne => Err(StoreError::Corrupt { what: "one of them".to_owned() }),
                                Trouble::Away => Err(StoreError::Unavailable(simulated())),
                                Trouble::Panic | Trouble::Nothing | Trouble::Unanswered => panic!("on purpose"),
                            }
                        }
                    }
                }
                Point::AfterCommit => {
                    let number = ground.commits.fetch_add(1, Ordering::SeqCst);
                    match ground.troubles.get(number) {
                        Some(Trouble::Unanswered) => Err(StoreError::CommitUnknown(simulated())),
                        Some(_) | None => Ok(()),
                    }
                }
            }
        })
    }
}

struct Bench {
    server: Server,
    intake: Arc<WithdrawalIntake>,
    ground: Arc<Ground>,
    order: WithdrawalOrder,
}

impl Bench {
    /// An intake of one lane whose commits meet these troubles; the server beside it meets none.
    async fn open(db: &TestDb, troubles: &[Trouble]) -> Self {
        let server = start(db).await;
        let gate = watch::Sender::new(true);
        let (troubles, commits, arrived) = (troubles.to_vec(), AtomicUsize::new(0), Semaphore::new(0));
        let ground = Arc::new(Ground { troubles, commits, gate, arrived });
        let struck: Db = db.of(DatabaseRole::Api).with_faults(Arc::new(Struck(Arc::clone(&ground))));
        let clock = Arc::clone(&server.app.clock);
        let good_until = NOW.plus_micros(1_000 * 86_400_000_000);
        let node = domain::id::NodeId::new(2).unwrap();
        let ids = IdMaker::fixed(node, Arc::clone(&clock), "bench".into(), good_until);
        let leg = Arc::clone(&server.leg) as Arc<dyn Leg>;
        let settings = Settings::default();
        let coordinator = Coordinator::new(struck, leg, clock, Arc::new(ids), settings, Arc::new(Metrics::default()));
        let pauses =
            Pauses { first: Duration::from_millis(20), settled: Duration::from_millis(500), ..Pauses::default() };
        let settings = WithdrawalIntakeSettings { lanes: 1, queue: 400, patience: Duration::from_secs(20), pauses };
        let intake = Arc::new(WithdrawalIntake::open(&Arc::new(coordinator), settings));
        let chain = db.chain(&"bsc".parse().unwrap()).await.unwrap().unwrap();
        let usdt = chain.listings.iter().find(|one| one.symbol.as_str() == "USDT").unwrap().id;
        let order = WithdrawalOrder {
            user: user(1),
            client_order_id: ClientOrderId::new("n").unwrap(),
            listing: usdt,
            to: FAR.to_owned(),
            amount: Amount::from_units(100),
            most_fee: Amount::from_units(10),
            quote: None,
            travel_rule: None,
        };
        Self { server, intake, ground, order }
    }

    fn order(&self, number: i64, name: &str) -> WithdrawalOrder {
        WithdrawalOrder { user: user(number), client_order_id: ClientOrderId::new(name).unwrap(), ..self.order.clone() }
    }

    async fn place(&self, number: i64, name: &str) -> Result<CreatedWithdrawal, WithdrawalIntakeError> {
        self.intake.place(vec![self.order(number, name)]).await.map(|mut created| created.remove(0))
    }

    async fn count(&self) -> usize {
        self.server.db.list_withdrawals(&WithdrawalFilter::default(), None, 10_000).await.unwrap().len()
    }

    async fn is_clean(&self) -> bool {
        self.server.db.audit(|_| ()).await.unwrap().clean()
    }

    /// Asks for these while a commit waits at the closed gate, and lets it go when all of them wait behind it.
    async fn behind_a_commit(&self, names: &[(i64, &str)]) -> Vec<Result<CreatedWithdrawal, WithdrawalIntakeError>> {
        self.ground.gate.send_replace(false);
        let place = |number: i64, name: String| {
            let (intake, order) = (Arc::clone(&self.intake), self.order(number, &name));
            tokio::spawn(async move { intake.place(vec![order]).await.map(|mut created| created.remove(0)) })
        };
        let first = place(4, "holds-the-door".to_owned());
        self.ground.arrived.acquire().await.unwrap().forget();
        let behind: Vec<_> = names.iter().map(|(number, name)| place(*number, (*name).to_owned())).collect();
        // Each has handed its order in at its first poll.
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.ground.gate.send_replace(true);
        assert!(matches!(first.await.unwrap(), Ok(CreatedWithdrawal::New(_))));
        let mut answers = Vec::new();
        for one in behind {
            answers.push(one.await.unwrap());
        }
        answers
    }
}

fn held(answer: &Result<CreatedWithdrawal, WithdrawalIntakeError>) -> String {
    match answer {
        Ok(CreatedWithdrawal::New(row) | CreatedWithdrawal::Before(row)) => row.client_order_id.as_str().to_owned(),
        Ok(CreatedWithdrawal::Refused { refusal, .. }) => refusal.code().to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

db_test! {
    async fn what_comes_in_while_a_batch_commits_shares_the_next_commit(db: TestDb) {
        let bench = Bench::open(db, &[]).await;
        let names: Vec<String> = (0..60).map(|number| format!("order-{number}")).collect();
        let mut wanted: Vec<(i64, &str)> = names.iter().enumerate().map(|(at, name)| (i64::try_from(at % 3).unwrap() + 1, name.as_str())).collect();
        // The same twice at once is one.
        wanted.push((1, "order-0"));
        let answers = bench.behind_a_commit(&wanted).await;
        let told: Vec<String> = answers.iter().map(held).collect();
        assert_eq!(told, wanted.iter().map(|(_, name)| (*name).to_owned()).collect::<Vec<_>>(), "each has its own answer");
        assert_eq!((bench.count().await, bench.ground.commits.load(Ordering::SeqCst)), (61, 2), "two commits, one of them for sixty");
        assert!(bench.is_clean().await);
        bench.intake.close().await;
        assert!(matches!(bench.place(1, "late").await, Err(WithdrawalIntakeError::Stopping)));
    }

    async fn a_commit_without_an_answer_is_sent_again_and_holds_once(db: TestDb) {
        let bench = Bench::open(db, &[Trouble::Unanswered, Trouble::Lost]).await;
        // The first commit happened; the second try of it is lost; the third finds the first.
        assert_eq!(held(&bench.place(1, "n").await), "n");
        assert_eq!((bench.count().await, usdt(&bench).await), (1, (FUNDS - 110, 110)));
        assert!(bench.is_clean().await);
    }

    async fn a_client_is_told_that_it_is_not_known_only_when_it_is_not(db: TestDb) {
        let unknown = [vec![Trouble::Unanswered], vec![Trouble::Away; 6]].concat();
        let bench = Bench::open(db, &unknown).await;
        assert!(matches!(bench.place(1, "n").await, Err(WithdrawalIntakeError::Unknown(_))), "a later error says nothing of the first");
        assert_eq!(usdt(&bench).await, (FUNDS - 110, 110), "it was taken");
        assert_eq!(held(&bench.place(1, "n").await), "n");
        assert_eq!((bench.count().await, usdt(&bench).await), (1, (FUNDS - 110, 110)), "the same again is the same");
        let bench = Bench::open(db, &[Trouble::Away]).await;
        assert!(matches!(bench.place(2, "m").await, Err(WithdrawalIntakeError::Store(_))), "nothing was done");
        assert_eq!(bench.count().await, 1);
    }

    async fn one_that_cannot_be_taken_does_not_spoil_its_neighbours(db: TestDb) {
        // The commit that holds-the-door, then the batch, then the first of it by itself.
        let bench = Bench::open(db, &[Trouble::Nothing, Trouble::OfOne, Trouble::OfOne]).await;
        let answers = bench.behind_a_commit(&[(1, "a"), (2, "b"), (3, "c")]).await;
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        assert_eq!((failed, bench.count().await), (1, 3), "{:?}", answers.iter().map(held).collect::<Vec<_>>());
        assert!(bench.is_clean().await);
    }

    async fn a_client_that_goes_away_before_its_turn_has_asked_for_nothing(db: TestDb) {
        let bench = Bench::open(db, &[]).await;
        bench.ground.gate.send_replace(false);
        let first = {
            let (intake, order) = (Arc::clone(&bench.intake), bench.order(1, "first"));
            tokio::spawn(async move { intake.place(vec![order]).await })
        };
        bench.ground.arrived.acquire().await.unwrap().forget();
        // The first has gone away too, while its commit is on its way: it is taken all the same.
        first.abort();
        assert!(tokio::time::timeout(Duration::from_millis(50), bench.place(1, "second")).await.is_err());
        bench.ground.gate.send_replace(true);
        assert_eq!(held(&bench.place(1, "third").await), "third");
        let names = bench.server.db.list_withdrawals(&WithdrawalFilter::default(), None, 10).await.unwrap();
        let names: Vec<&str> = names.iter().map(|row| row.client_order_id.as_str()).collect();
        assert_eq!(names, ["third", "first"]);
        assert!(bench.is_clean().await);
    }

    async fn a_lane_that_panics_is_started_again_and_its_clients_are_told_the_truth(db: TestDb) {
        let bench = Bench::open(db, &[Trouble::Panic]).await;
        assert!(matches!(bench.place(1, "n").await, Err(WithdrawalIntakeError::Late)), "it may have been taken");
        assert_eq!(held(&bench.place(1, "n").await), "n");
        assert_eq!((bench.count().await, usdt(&bench).await), (1, (FUNDS - 110, 110)));
    }

    async fn one_user_cannot_fill_the_buffer(db: TestDb) {
        let bench = Bench::open(db, &[]).await;
        bench.ground.gate.send_replace(false);
        let many = |number: i64, count: usize| {
            let orders = (0..count).map(|at| bench.order(number, &format!("{number}-{at}"))).collect();
            let intake = Arc::clone(&bench.intake);
            tokio::spawn(async move { intake.place(orders).await })
        };
        let first = many(1, 99);
        bench.ground.arrived.acquire().await.unwrap().forget();
        assert!(matches!(bench.intake.place(vec![bench.order(1, "x"), bench.order(1, "y")]).await, Err(WithdrawalIntakeError::UserBusy)));
        let second = many(2, 3);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let huge = (0..400).map(|at| bench.order(3, &format!("3-{at}"))).collect();
        assert!(matches!(bench.intake.place(huge).await, Err(WithdrawalIntakeError::Full)));
        bench.ground.gate.send_replace(true);
        // 100.00 are enough for 90 of 1.10.
        let first = first.await.unwrap().unwrap();
        assert_eq!(first.iter().filter(|one| one.row().is_some()).count(), 90);
        assert_eq!(second.await.unwrap().unwrap().len(), 3);
        assert!(bench.is_clean().await);
    }
}

async fn usdt(bench: &Bench) -> (i64, i64) {
    let (available, frozen, _) = bench.server.usdt(1).await;
    (available, frozen)
}
