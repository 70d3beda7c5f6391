//! Withdrawals on the devnets of EVM and TRON, from a customer's deposit to the block that pays: the books, the jobs and the chain agree.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use custody::withdrawal::{
    ApprovalDesk, ApproverKey, Approving, BoxFuture, Remembers, WithdrawalRound, WithdrawalWorker, cancel,
};
use devnet::BroadcastFault;
use domain::deposit::DepositState;
use domain::outbound::{JobState, SlotWord};
use domain::transfer::ClientOrderId;
use domain::withdrawal::{FeeRule, USUAL_LIFE_US, WhenShort, WithdrawalPolicy, WithdrawalRefusal, WithdrawalState};
use domain::{AccountKind, Amount, ChainKind, Clock, UserId};
use signer::approval::{GivenApproval, Proof};
use signer::client::SignerError;
use signer::policy::PublicKey;
use store::catalog::Author;
use store::grants::DatabaseRole;
use store::outbound::{Duty, PutOff, SlotNews};
use store::testing::{TestDb, drop_database, fresh, on};
use store::withdrawal::{CreatedWithdrawal, DecisionReply, NewWithdrawal, WithdrawalApproved, WithdrawalId};
use store::{Db, Engine};
use tx::Address;

use crate::deposits::raw;
use crate::faulty::failing_at;
use crate::outbound::Desk;
use crate::treasury::approving_key;

const AUTHOR: Author<'static> = Author { actor: "test", reason: "set-up" };

fn units(units: i64) -> Amount {
    Amount::from_units(units)
}

fn user(number: i64) -> UserId {
    UserId::new(number).unwrap()
}

fn policy() -> WithdrawalPolicy {
    WithdrawalPolicy {
        version: 0,
        enabled: true,
        incident: false,
        min: units(100),
        max: units(1_000_000),
        fee: FeeRule { fixed: units(50), share_bps: 0, least: units(0) },
        auto_approve: units(1_000_000),
        auto_approve_daily: None,
        two_above: units(1_000_000),
        many_above: units(1_000_000),
        many: 3,
        daily_user: None,
        daily_total: None,
        velocity: None,
        cooling_off_us: 0,
        book_only: false,
        quote_life_us: 0,
        when_short: WhenShort::Fail,
        life_us: USUAL_LIFE_US,
    }
}

/// Customers of the token, on a chain with its books and its signer.
pub struct Counter<'a> {
    pub desk: Desk<'a>,
    pub listing: store::entry::ListingRow,
}

impl<'a> Counter<'a> {
    pub async fn open(db: &'a store::testing::TestDb, kind: ChainKind) -> Self {
        Self::at(Desk::start(db, kind, 1).await).await
    }

    async fn at(desk: Desk<'a>) -> Self {
        let db = desk.rig.db;
        let listing = desk.rig.row.listings.iter().find(|one| one.symbol.as_str() == "USDT").unwrap().clone();
        db.set_withdrawal_policy(listing.id, &policy(), &AUTHOR, desk.rig.clock.now()).await.unwrap();
        Self { desk, listing }
    }

    fn asked(&self, to: &Address, amount: i64) -> NewWithdrawal {
        let id: WithdrawalId = self.desk.ids.next().unwrap();
        NewWithdrawal {
            id,
            user: user(1),
            client_order_id: ClientOrderId::new(id.to_string()).unwrap(),
            listing: self.listing.id,
            to: to.to_string(),
            amount: units(amount),
            most_fee: units(50),
            quote: None,
            travel_rule: None,
        }
    }

    async fn ask(&self, to: &Address, amount: i64) -> CreatedWithdrawal {
        let new = self.asked(to, amount);
        self.desk
            .rig
            .db
            .of(DatabaseRole::Api)
            .create_withdrawals(&[new], self.desk.rig.clock.now())
            .await
            .unwrap()
            .remove(0)
    }

    pub async fn taken(&self, to: &Address, amount: i64) -> WithdrawalId {
        match self.ask(to, amount).await {
            CreatedWithdrawal::New(row) => row.id,
            other => panic!("{other:?}"),
        }
    }

    pub async fn state(&self, id: WithdrawalId) -> WithdrawalState {
        self.desk.rig.db.withdrawals(&[id]).await.unwrap()[0].state
    }

    /// One round of a worker that begins anew.
    async fn round_on(&self, db: &Db) -> Option<WithdrawalRound> {
        self.tried_on(db).await.ok()
    }

    async fn tried_on(&self, db: &Db) -> Result<WithdrawalRound, custody::withdrawal::WithdrawalError> {
        let make = || self.desk.ids.next::<domain::id::Job>().ok().map(|id| id.number());
        let rig = &self.desk.rig;
        let pen = &*self.desk.pen;
        let worker = WithdrawalWorker::new(db, pen, &make, rig.row.clone(), Arc::clone(&rig.pinned));
        worker.unwrap().round(&*rig.clock).await
    }

    pub async fn round(&self) -> WithdrawalRound {
        self.tried_on(self.desk.rig.db.of(DatabaseRole::Withdrawals)).await.expect("a good round")
    }

    /// What the house has in an account of the token, in ledger units.
    pub async fn house(&self, kind: AccountKind) -> i128 {
        let db = self.desk.rig.db;
        let wanted = [store::ledger::NewAccount::system(&kind, self.listing.asset).unwrap()];
        let opened = db.open(&wanted, self.desk.rig.clock.now()).await.unwrap();
        let store::ledger::Opened::Account(account) = opened[0] else { panic!("{kind}") };
        let sums = store::ledger::balances::system_balances(&mut db.read().await.unwrap()).await.unwrap();
        sums.get(&account).copied().unwrap_or(0)
    }

    /// The chain's books are read and booked as far as the chain is.
    pub async fn books(&self) {
        let mut worker = self.desk.rig.worker("books").await;
        self.desk.rig.work(&mut worker).await;
    }

    /// The first customer pays in, and it is final. While it is credited and not final, nothing of it can be withdrawn.
    pub async fn pay_in(&self, amount: u64) {
        let rig = &self.desk.rig;
        rig.pay(&rig.address(1).await, &rig.token(), amount);
        let mut early = 0;
        for _ in 0..20 {
            rig.mine(1);
            self.books().await;
            let deposits = rig.deposits().await;
            match deposits.iter().find(|one| one.user == Some(1)).map(|one| one.state) {
                Some(DepositState::Credited) => {
                    early += 1;
                    let refused = self.ask(&self.desk.fresh(), 100).await;
                    let wanted = WithdrawalRefusal::DepositNotFinal;
                    assert!(
                        matches!(refused, CreatedWithdrawal::Refused { refusal, .. } if refusal == wanted),
                        "{refused:?}"
                    );
                }
                Some(DepositState::Final) => {
                    assert!(early > 0, "it was credited before it was final");
                    return;
                }
                _ => {}
            }
        }
        panic!("the deposit never became final");
    }
}

fn on_both(test: impl AsyncFn(Counter<'_>)) {
    for kind in [ChainKind::Evm, ChainKind::Tron] {
        on(Engine::Sqlite, async |db| test(Counter::open(db, kind).await).await);
    }
}

#[test]
fn a_withdrawal_is_paid_once_and_suspense_is_as_it_was() {
    on_both(paid_once);
}

pub async fn paid_once(counter: Counter<'_>) {
    let desk = &counter.desk;
    counter.pay_in(50_000_000).await;
    assert_eq!(desk.rig.has(1, "USDT").await, 500_000);
    let suspense = counter.house(AccountKind::Suspense).await;
    let to = desk.fresh();
    let id = counter.taken(&to, 10_000).await;
    assert_eq!(counter.round().await.queued, 1);
    assert_eq!(counter.round().await, WithdrawalRound::default(), "there is one job");
    desk.pass(8).await;
    assert_eq!(desk.paid(&to, &desk.rig.token()).await, raw(1_000_000));
    assert_eq!(counter.round().await.completed, 1);
    assert_eq!(
        (counter.state(id).await, counter.round().await),
        (WithdrawalState::Completed, WithdrawalRound::default())
    );
    desk.assert_true().await;
    // The hold went to suspense, and the chain's entry of the payout fetched it from there.
    assert_eq!(counter.house(AccountKind::Suspense).await, suspense);
    assert_eq!(counter.house(AccountKind::Fees).await, 50);
    assert_eq!(desk.rig.has(1, "USDT").await, 489_950);
}

/// As the database is now, in another one.
async fn backup(counter: &Counter<'_>, engine: Engine) -> TestDb {
    let copied = fresh(engine).await;
    let now = counter.desk.rig.clock.now();
    copied.migrate(now).await.unwrap();
    store::copy::copy(counter.desk.rig.db, &copied, now, |_, _| ()).await.unwrap();
    copied
}

/// Two backups are put back after a withdrawal was paid: from before its job was made, and from before that was signed. Nobody is paid twice, nobody gets the
/// money back, and people see it.
async fn pays_once_for_all_backups(counter: Counter<'_>, engine: Engine) {
    let desk = &counter.desk;
    counter.pay_in(50_000_000).await;
    let to = desk.fresh();
    let id = counter.taken(&to, 10_000).await;
    let no_job = backup(&counter, engine).await;
    assert_eq!(counter.round().await.queued, 1);
    let not_signed = backup(&counter, engine).await;
    desk.pass(8).await;
    assert_eq!(counter.round().await.completed, 1);
    assert_eq!(desk.paid(&to, &desk.rig.token()).await, raw(1_000_000));
    // The first is asked to give the money back, and to pay again.
    let call_off = async || {
        let wanted = [(user(1), id)];
        cancel(&no_job, Some(&*desk.pen), &wanted, desk.rig.clock.now()).await.unwrap().remove(0)
    };
    desk.pen.away.store(true, Ordering::Relaxed);
    assert_eq!(call_off().await, DecisionReply::SignerNotAsked);
    let round = counter.round_on(&no_job).await.unwrap();
    assert_eq!((round.queued, round.doubted.len()), (0, 0));
    assert!(round.waits.as_ref().is_some_and(|why| why.contains("cannot be asked")), "{round:?}");
    desk.pen.away.store(false, Ordering::Relaxed);
    let round = counter.round_on(&no_job).await.unwrap();
    assert_eq!((round.queued, round.doubted), (0, vec![id]));
    assert_eq!(no_job.withdrawals(&[id]).await.unwrap()[0].state, WithdrawalState::ManualReview);
    assert_eq!(call_off().await, DecisionReply::SignerKnowsMore);
    let last = no_job.withdrawal_history(id).await.unwrap().pop().unwrap();
    assert!(last.reason.contains("in a time that this database does not know"), "{}", last.reason);
    // The second has a job, which the signer knows by the withdrawal's number: the lane stops, and the job neither pays nor ends.
    for _ in 0..6 {
        desk.round_on(&not_signed, "restored").await;
        desk.rig.mine(1);
    }
    let (job, state) = not_signed.jobs_of_withdrawal(id).await.unwrap()[0];
    assert_eq!(state, JobState::Signing);
    let stopped = not_signed.job(job).await.unwrap().unwrap().0.lane_stopped;
    assert!(stopped.as_ref().is_some_and(|why| why.contains("SIGNER_")), "{stopped:?}");
    assert_eq!(counter.round_on(&not_signed).await.unwrap(), WithdrawalRound::default());
    assert_eq!(not_signed.withdrawals(&[id]).await.unwrap()[0].state, WithdrawalState::Queued);
    assert_eq!(desk.paid(&to, &desk.rig.token()).await, raw(1_000_000), "once");
    for restored in [&no_job, &not_signed] {
        let report = restored.audit(|_| ()).await.unwrap();
        assert!(report.clean(), "{:#?}", report.findings);
    }
    for restored in [no_job, not_signed] {
        restored.close().await;
        drop_database(&restored).await;
    }
}

#[test]
fn a_database_that_was_put_back_pays_nobody_twice_and_gives_nothing_back() {
    for kind in [ChainKind::Evm, ChainKind::Tron] {
        on(Engine::Sqlite, async |db| pays_once_for_all_backups(Counter::open(db, kind).await, Engine::Sqlite).await);
    }
}

#[test]
fn postgres_a_database_that_was_put_back_pays_nobody_twice_and_gives_nothing_back() {
    on(Engine::Postgres, async |db| {
        pays_once_for_all_backups(Counter::open(db, ChainKind::Evm).await, Engine::Postgres).await;
    });
}

/// The signer pays nothing of the token by itself: two of three people have to sign.
pub fn careful(kind: ChainKind, token: &str) -> String {
    let much = "1000000000000000000000000000";
    let chain = if kind == ChainKind::Evm { "kind = \"evm\", chain_id = 56" } else { "kind = \"tron\"" };
    let approver = |person: &str| {
        let public = signer::digest::hex(&approving_key(person).public());
        format!("[[approver]]\nkey = \"{person}\"\nperson = \"{person}\"\ned25519 = \"{public}\"\n")
    };
    let people = ["ann", "bob", "cat", "user-1"].map(approver).concat();
    format!(
        "signer = \"desk\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 48\ntron_margin_minutes = 1\n\
         chain = [{{ name = \"net\", {chain} }}]\n{people}\
         [[group]]\nid = \"hot\"\nchain = \"net\"\nrole = \"hot\"\nmost_fee = \"{much}\"\nmost_fee_day = \"{much}\"\n\
         [[group.coin]]\ncoin = \"native\"\npayment = \"{much}\"\nhour = \"{much}\"\nday = \"{much}\"\n\
         [[group.coin]]\ncoin = \"{token}\"\npayment = \"1\"\nhour = \"1\"\nday = \"1\"\n\
         step = [{{ up_to = \"{much}\", approvals = 2, of = [\"ann\", \"bob\", \"user-1\"] }}]\n"
    )
}

/// What people sign before there is a job is what the signer judges when there is one. Nothing that was signed for something else, by the one who asked, by the
/// same person or by a key that is not theirs counts.
#[test]
fn what_people_sign_before_there_is_a_job_is_what_the_signer_checks() {
    for kind in [ChainKind::Evm, ChainKind::Tron] {
        on(Engine::Sqlite, async |db| {
            let counter = Counter::at(Desk::with_policy(db, kind, 1, careful).await).await;
            let people = WithdrawalPolicy {
                auto_approve: units(0),
                two_above: units(0),
                many_above: units(1_000_000),
                ..policy()
            };
            db.set_withdrawal_policy(counter.listing.id, &people, &AUTHOR, counter.desk.rig.clock.now()).await.unwrap();
            signs_before_there_is_a_job(counter).await;
        });
    }
}

async fn signs_before_there_is_a_job(counter: Counter<'_>) {
    let (desk, db) = (&counter.desk, counter.desk.rig.db);
    counter.pay_in(50_000_000).await;
    let (to, other) = (desk.fresh(), desk.fresh());
    let (id, second) = (counter.taken(&to, 10_000).await, counter.taken(&other, 10_000).await);
    let (row, pinned, name) = (desk.rig.row.clone(), Arc::clone(&desk.rig.pinned), "desk".parse().unwrap());
    let key = |person: &str| ApproverKey {
        person: person.parse().unwrap(),
        name: person.parse().unwrap(),
        public: PublicKey::Ed25519(approving_key(person).public().try_into().unwrap()),
    };
    let approvers = ["ann", "bob", "user-1"].map(key);
    let table = ApprovalDesk { row: &row, pinned: &pinned, signer: &name, approvers: &approvers };
    let digest_of = async |id| table.read(db, id).await.unwrap().unwrap().1.unwrap().digest();
    let digest = digest_of(id).await;
    let approve = async |id, person: &str, by: &str, digest| {
        let proof = Proof::Ed25519(approving_key(by).sign_approval(&digest));
        let given = GivenApproval { digest, key: person.parse().unwrap(), proof };
        table.approve(db, id, &given, desk.rig.clock.now()).await.unwrap()
    };
    assert_eq!(approve(id, "user-1", "user-1", digest).await, Approving::Taken(WithdrawalApproved::Requester));
    assert_eq!(approve(id, "cat", "cat", digest).await, Approving::UnknownKey);
    assert_eq!(approve(id, "ann", "bob", digest).await, Approving::BadSignature("the signature does not fit"));
    assert_eq!(
        approve(second, "ann", "ann", digest).await,
        Approving::OtherDigest,
        "it was signed for another withdrawal"
    );
    let one = WithdrawalApproved::Kept { wanted: 2, agree: 1 };
    assert_eq!(approve(id, "ann", "ann", digest).await, Approving::Taken(one));
    assert_eq!(
        approve(id, "ann", "ann", digest).await,
        Approving::Taken(WithdrawalApproved::Before { wanted: 2, agree: 1 })
    );
    assert_eq!(counter.round().await, WithdrawalRound::default(), "one is not enough");
    assert!(matches!(approve(id, "bob", "bob", digest).await, Approving::Taken(WithdrawalApproved::Approved(_))));
    assert_eq!(counter.round().await.queued, 1);
    desk.pass(8).await;
    assert_eq!(desk.paid(&to, &desk.rig.token()).await, raw(1_000_000));
    assert_eq!(counter.round().await.completed, 1);
    // The other waits until its time is over, and then the customer has the money back.
    desk.rig.clock.set(desk.rig.clock.now().plus_micros(USUAL_LIFE_US));
    let late = digest_of(second).await;
    assert_eq!(approve(second, "ann", "ann", late).await, Approving::Taken(WithdrawalApproved::TooLate));
    assert_eq!(counter.round().await.failed, 1);
    assert_eq!(desk.rig.has(1, "USDT").await, 489_950);
    assert_eq!(desk.paid(&other, &desk.rig.token()).await, raw(0));
    desk.assert_true().await;
}

#[test]
fn what_goes_to_another_customer_moves_no_coin() {
    on_both(inside);
}

pub async fn inside(counter: Counter<'_>) {
    let desk = &counter.desk;
    counter.pay_in(50_000_000).await;
    // The devnet has given it coins.
    let to = desk.rig.address(2).await;
    let had = desk.paid(&to, &desk.rig.token()).await;
    let id = counter.taken(&to, 10_000).await;
    // One to the customer's own address is not taken at all.
    let own = counter.ask(&desk.rig.address(1).await, 10_000).await;
    assert!(matches!(own, CreatedWithdrawal::Refused { refusal: WithdrawalRefusal::DestinationOwn, .. }), "{own:?}");
    let round = counter.round().await;
    assert_eq!((round.inside, round.queued), (1, 0));
    assert_eq!((counter.state(id).await, desk.rig.has(2, "USDT").await), (WithdrawalState::Completed, 10_000));
    assert_eq!(desk.rig.has(1, "USDT").await, 489_950);
    desk.pass(4).await;
    assert_eq!(desk.paid(&to, &desk.rig.token()).await, had, "no coin moved");
    desk.assert_true().await;
}

/// A row that gives a stranger's address to a customer neither settles inside nor pays: it is in the log, and people look.
#[test]
fn a_row_that_lies_settles_nothing() {
    on(Engine::Sqlite, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        counter.pay_in(50_000_000).await;
        let to = counter.desk.fresh();
        let lie = format!(
            "INSERT INTO user_wallets (wallet_group_id, user_id, derivation_index, address, created_at)
             SELECT id, 9, 9, '{to}', 0 FROM wallet_groups WHERE name = 'users'"
        );
        db.by_hand(&lie).await.unwrap();
        let id = counter.taken(&to, 10_000).await;
        let round = counter.round().await;
        assert_eq!((round.inside, round.queued, round.doubted), (0, 0, vec![id]));
        assert_eq!(
            (counter.state(id).await, counter.desk.rig.has(9, "USDT").await),
            (WithdrawalState::ManualReview, 0)
        );
    });
}

#[test]
fn a_round_that_dies_anywhere_makes_one_job_and_gives_back_once() {
    on(Engine::Sqlite, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        counter.pay_in(50_000_000).await;
        // What fails in a round is tried again by the next, and the round says so.
        let failed = |round: Option<WithdrawalRound>| round.is_none_or(|round| round.waits.is_some());
        for at in 0.. {
            let id = counter.taken(&counter.desk.fresh(), 1_000).await;
            let died = failed(counter.round_on(&failing_at(db, at)).await);
            counter.round().await;
            let jobs = db.jobs_of_withdrawal(id).await.unwrap();
            assert_eq!((jobs.len(), counter.state(id).await), (1, WithdrawalState::Queued), "point {at}");
            // People give the job up: the hold is released, once, whoever dies.
            db.cancel_job(jobs[0].0, "ann", counter.desk.rig.clock.now()).await.unwrap();
            let died_again = failed(counter.round_on(&failing_at(db, at)).await);
            counter.round().await;
            assert_eq!(counter.state(id).await, WithdrawalState::Failed, "point {at}");
            assert_eq!(counter.desk.rig.has(1, "USDT").await, 500_000, "point {at}");
            let report = db.audit(|_| ()).await.unwrap();
            assert!(report.clean(), "point {at}: {:#?}", report.findings);
            if !died && !died_again {
                assert!(at > 10, "{at}");
                break;
            }
        }
    });
}

/// A row that the database refuses to change waits, and so does nobody else.
#[test]
fn what_cannot_be_given_back_keeps_nobody_from_being_paid() {
    on(Engine::Sqlite, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        counter.pay_in(50_000_000).await;
        let short = WithdrawalPolicy { life_us: 60_000_000, ..policy() };
        let set = async |policy: &WithdrawalPolicy| {
            db.set_withdrawal_policy(counter.listing.id, policy, &AUTHOR, counter.desk.rig.clock.now()).await.unwrap()
        };
        set(&short).await;
        let stuck = counter.taken(&counter.desk.fresh(), 10_000).await;
        set(&policy()).await;
        let next = counter.taken(&counter.desk.fresh(), 10_000).await;
        db.by_hand(
            "CREATE TRIGGER broken BEFORE UPDATE ON withdrawal_requests WHEN NEW.status = 'failed'
             BEGIN SELECT RAISE(ABORT, 'broken'); END",
        )
        .await
        .unwrap();
        counter.desk.rig.clock.set(counter.desk.rig.clock.now().plus_micros(60_000_000));
        let round = counter.round().await;
        assert_eq!((round.queued, round.failed), (1, 0));
        assert!(round.waits.as_ref().is_some_and(|why| why.contains("too old")), "{round:?}");
        assert_eq!(counter.state(next).await, WithdrawalState::Queued);
        db.by_hand("DROP TRIGGER broken").await.unwrap();
        assert_eq!(counter.round().await.failed, 1);
        assert_eq!(counter.state(stuck).await, WithdrawalState::Failed);
    });
}

/// What a signer remembers, as a test wants it: these were signed in a time that the database does not know, and no others ever.
struct KnowsMoreOf(Vec<signer::names::JobId>);

impl Remembers for KnowsMoreOf {
    fn rounds<'a>(&'a self, jobs: &'a [signer::names::JobId]) -> BoxFuture<'a, Result<Vec<Option<u32>>, SignerError>> {
        Box::pin(std::future::ready(Ok(jobs
            .iter()
            .map(|job| Some(if self.0.contains(job) { 2 } else { 0 }))
            .collect())))
    }
}

/// After a backup was put back a thousand requests wait for people. Those behind them are given back all the same when their time is over.
#[test]
fn what_waits_for_people_does_not_keep_the_next_from_its_end() {
    on(Engine::Sqlite, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        counter.pay_in(50_000_000).await;
        let rig = &counter.desk.rig;
        let to = counter.desk.fresh();
        let new: Vec<NewWithdrawal> = (0..1_001).map(|_| counter.asked(&to, 100)).collect();
        let mut ids: Vec<WithdrawalId> = new.iter().map(|one| one.id).collect();
        ids.sort();
        db.create_withdrawals(&new, rig.clock.now()).await.unwrap();
        let names = ids[..1_000].iter().map(|id| signer::names::JobId::Withdrawal(id.number()));
        let pen = KnowsMoreOf(names.collect());
        let make = || counter.desk.ids.next::<domain::id::Job>().ok().map(|id| id.number());
        let mut worker = WithdrawalWorker::new(db, &pen, &make, rig.row.clone(), Arc::clone(&rig.pinned)).unwrap();
        rig.clock.set(rig.clock.now().plus_micros(USUAL_LIFE_US));
        let first = worker.round(&*rig.clock).await.unwrap();
        assert_eq!((first.doubted.len(), first.failed), (1_000, 0));
        rig.clock.set(rig.clock.now().plus_micros(60_000_000));
        assert_eq!(worker.round(&*rig.clock).await.unwrap().failed, 1);
        assert_eq!(counter.state(ids[1_000]).await, WithdrawalState::Failed);
        assert_eq!(counter.state(ids[0]).await, WithdrawalState::ManualReview);
    });
}

/// A process that has no number for a job settles inside all the same, tells what people have to look at, and says why the others wait.
#[test]
fn who_has_no_number_for_a_job_does_everything_else() {
    on(Engine::Sqlite, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        let desk = &counter.desk;
        counter.pay_in(50_000_000).await;
        let kept = counter.taken(&desk.fresh(), 10_000).await;
        counter.round().await;
        desk.pass(8).await;
        assert_eq!(counter.round().await.completed, 1);
        // Its chain takes it back for good, and its account takes nothing.
        let out = counter.taken(&desk.fresh(), 1_000).await;
        let inside = counter.taken(&desk.rig.address(2).await, 1_000).await;
        db.by_hand("UPDATE outbound_jobs SET state = 'failed_final', slot_id = NULL").await.unwrap();
        let more = KnowsMoreOf([signer::names::JobId::Withdrawal(kept.number())].into());
        let none = || None;
        let mut worker =
            WithdrawalWorker::new(db, &more, &none, desk.rig.row.clone(), Arc::clone(&desk.rig.pinned)).unwrap();
        let round = worker.round(&*desk.rig.clock).await.expect("a round without numbers is a round");
        assert_eq!((round.inside, round.queued, round.kept), (1, 0, vec![kept]), "{:?}", round.waits);
        assert!(round.waits.is_some_and(|why| why.contains("cannot be given a job")));
        assert_eq!(counter.state(inside).await, WithdrawalState::Completed);
        assert_eq!(counter.state(out).await, WithdrawalState::Approved);
        let findings = db.open_findings(0, 10).await.unwrap();
        assert!(findings.iter().any(|one| one.kind == "not_given_back"), "{findings:?}");
        // With numbers it is paid.
        assert_eq!(counter.round().await.queued, 1);
    });
}

/// Nobody sends in a stopped lane, so nobody else ends what waits there.
async fn ends_in_a_stopped_lane(counter: Counter<'_>) {
    let (desk, db) = (&counter.desk, counter.desk.rig.db);
    counter.pay_in(50_000_000).await;
    let id = counter.taken(&desk.fresh(), 10_000).await;
    assert_eq!(counter.round().await.queued, 1);
    let lane = db.lanes(None, None, 0, 9).await.unwrap()[0].lane.id;
    db.stop_lane(lane, "people look", desk.rig.clock.now()).await.unwrap();
    desk.rig.clock.set(desk.rig.clock.now().plus_micros(USUAL_LIFE_US));
    assert_eq!(counter.round().await.failed, 0);
    desk.round().await;
    assert_eq!(counter.round().await.failed, 1);
    assert_eq!((counter.state(id).await, desk.rig.has(1, "USDT").await), (WithdrawalState::Failed, 500_000));
    let report = db.audit(|_| ()).await.unwrap();
    assert!(report.clean(), "{:#?}", report.findings);
}

#[test]
fn what_waits_in_a_stopped_lane_for_too_long_is_given_back() {
    on_both(ends_in_a_stopped_lane);
}

#[test]
fn postgres_what_waits_in_a_stopped_lane_for_too_long_is_given_back() {
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        ends_in_a_stopped_lane(Counter::open(db, ChainKind::Evm).await).await;
    });
}

/// It is said once, until somebody has seen to it.
async fn tells_what_is_kept(counter: Counter<'_>) {
    let (desk, db) = (&counter.desk, counter.desk.rig.db);
    counter.pay_in(50_000_000).await;
    let id = counter.taken(&desk.fresh(), 10_000).await;
    counter.round().await;
    desk.pass(8).await;
    assert_eq!(counter.round().await.completed, 1);
    // Its chain takes it back for good, and its account takes nothing.
    db.by_hand("UPDATE outbound_jobs SET state = 'failed_final', slot_id = NULL").await.unwrap();
    db.by_hand("UPDATE accounts SET status = 'disabled' WHERE owner = 1").await.unwrap();
    let told = async || db.open_findings(0, 99).await.unwrap().into_iter().filter(|one| one.kind == "not_given_back");
    for _ in 0..2 {
        assert_eq!(counter.round().await.kept, [id]);
        let findings: Vec<_> = told().await.collect();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].subject, id.to_string());
    }
    db.by_hand("UPDATE accounts SET status = 'active' WHERE owner = 1").await.unwrap();
    assert_eq!(counter.round().await.given_back, 1);
}

#[test]
fn what_is_taken_back_and_not_given_back_is_told() {
    on(Engine::Sqlite, async |db| tells_what_is_kept(Counter::open(db, ChainKind::Evm).await).await);
}

#[test]
fn postgres_what_is_taken_back_and_not_given_back_is_told() {
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        tells_what_is_kept(Counter::open(db, ChainKind::Evm).await).await;
    });
}

/// The signer lets a withdrawal go to another slot only when it has cancelled the first, which is the other wallet's.
#[test]
fn a_second_job_by_another_wallet_of_its_group_is_signed() {
    on(Engine::Sqlite, async |db| {
        let counter = Counter::at(Desk::start(db, ChainKind::Evm, 2).await).await;
        counter.pay_in(50_000_000).await;
        let (desk, clock) = (&counter.desk, &counter.desk.rig.clock);
        let waits = WithdrawalPolicy { when_short: WhenShort::Wait, ..policy() };
        db.set_withdrawal_policy(counter.listing.id, &waits, &AUTHOR, clock.now()).await.unwrap();
        let to = desk.fresh();
        let id = counter.taken(&to, 10_000).await;
        assert_eq!(counter.round().await.queued, 1);
        // No node keeps it, and somebody proves that it can never be mined.
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::Drop));
        desk.round().await;
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::None));
        let (job, _) = db.jobs_of_withdrawal(id).await.unwrap()[0];
        let (shown, slots, _) = db.job(job).await.unwrap().unwrap();
        assert_eq!((shown.job.state, slots.len()), (JobState::Broadcasted, 1));
        let later = |minutes: i64| clock.set(clock.now().plus_micros(minutes * 60_000_000));
        later(10);
        let until = || clock.now().plus_micros(1);
        let chain = desk.rig.row.id;
        let held = db.take_lanes((chain, Duty::Watch), "proof", 9, clock.now(), until()).await.unwrap();
        let (lane, slot) = (shown.job.lane, slots[0].id);
        let words = "its nonce was used".to_owned();
        let news = SlotNews { lane, slot, said: SlotWord::Lost, mined: None, asked: 1, words, foreign: false };
        assert_eq!(db.keep_news(&held, &[news], clock.now()).await.unwrap(), 1);
        later(20);
        let held = db.take_lanes((chain, Duty::Send), "short", 9, clock.now(), until()).await.unwrap();
        let version = db.job(job).await.unwrap().unwrap().0.job.version;
        let put_off = PutOff {
            lane,
            job,
            version,
            over: true,
            words: "short".into(),
            history: None,
            due: clock.now(),
            tried: true,
            short: true,
        };
        db.open_slots(&held, &[], &[], &[put_off], &HashMap::new(), clock.now()).await.unwrap();
        assert_eq!(counter.round().await.short, 1);
        later(2);
        assert_eq!(counter.round().await.queued, 1);
        let (second, _) = db.jobs_of_withdrawal(id).await.unwrap()[1];
        assert_ne!(db.job(second).await.unwrap().unwrap().0.job.lane, lane);
        desk.pass(8).await;
        let shown = db.job(second).await.unwrap().unwrap().0;
        assert_eq!((shown.job.state, shown.lane_stopped), (JobState::Confirmed, None), "{:#?}", shown.job);
        assert_eq!(desk.paid(&to, &desk.rig.token()).await, raw(1_000_000));
        assert_eq!(counter.round().await.completed, 1);
    });
}
