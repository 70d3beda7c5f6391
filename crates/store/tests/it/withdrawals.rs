//! Withdrawals as rows: what is held, what is paid and what is given back, once, whoever comes twice, at once, or dies in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use domain::outbound::{Effect, JobState, SlotWord};
use domain::transfer::ClientOrderId;
use domain::utxo::Hash;
use domain::withdrawal::WithdrawalRefusal::*;
use domain::withdrawal::{
    FeeRule, PolicyError, USUAL_LIFE_US, Velocity, WhenShort, WithdrawalPolicy, WithdrawalRefusal, WithdrawalState,
};
use domain::{AccountKind, AccountStatus, Amount, RawAmount, UserId};
use store::entry::{ChainRow, ListingId};
use store::error::Constraint;
use store::faults::{Faults, Point, Strike, simulated};
use store::grants::DatabaseRole;
use store::ledger::NewAccount;
use store::outbound::send::SignedAnswer;
use store::outbound::{
    Added, ApprovalSignature, AttemptKind, Duty, JobId, MinedAttempt, NewJob, NewSlot, Payer, PutOff, SignedAs,
    SignedAttempt, SlotId, SlotNews, ToldAttempt,
};
use store::testing::races::meet;
use store::testing::{NOW, TestDb, on};
use store::withdrawal::policy::PolicySet;
use store::withdrawal::{
    CreatedWithdrawal, Decision, DecisionReply, DueAfter, Enqueue, Enqueued, InsideReply, NewBookEntry, NewWithdrawal,
    NewWithdrawalApproval, SettleInside, SettledBatch, SignedRounds, WithdrawalApproved, WithdrawalDecision,
    WithdrawalId, WithdrawalRow, WithdrawalVerdict,
};
use store::{Db, Engine, StoreError, db_test};

use crate::outbound::treasury;
use crate::support::*;
use crate::views::{SOURCE_000, printed, section, statements, uuid};

const HOUR: i64 = 3_600_000_000;

pub fn units(units: i64) -> Amount {
    Amount::from_units(units)
}

pub fn user(number: i64) -> UserId {
    UserId::new(number).unwrap()
}

pub fn id(number: i64) -> WithdrawalId {
    WithdrawalId::new(number).unwrap()
}

/// A fee of 10; up to 1,000 nobody has to agree.
pub fn policy() -> WithdrawalPolicy {
    WithdrawalPolicy {
        version: 0,
        enabled: true,
        incident: false,
        min: units(10),
        max: units(100_000),
        fee: FeeRule { fixed: units(10), share_bps: 0, least: units(0) },
        auto_approve: units(1_000),
        auto_approve_daily: None,
        two_above: units(10_000),
        many_above: units(50_000),
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

/// Three users with 100,000 units each, two hot wallets, and a policy.
pub struct Desk {
    pub chain: ChainRow,
    pub bank: Bank,
    pub listing: ListingId,
}

impl Desk {
    pub async fn open(db: &TestDb) -> Self {
        let chain = treasury(db).await;
        let bank = Bank::open(db, 3, 100_000).await;
        let listing = chain.listings[0].id;
        let desk = Self { chain, bank, listing };
        desk.set(db, &policy()).await;
        desk
    }

    pub async fn set(&self, db: &Db, policy: &WithdrawalPolicy) {
        let set = db.set_withdrawal_policy(self.listing, policy, &AUTHOR, NOW).await.unwrap();
        assert!(matches!(set, PolicySet::New(_)), "{set:?}");
    }

    /// Of the first user.
    pub fn ask(&self, number: i64, amount: i64) -> NewWithdrawal {
        NewWithdrawal {
            id: id(number),
            user: user(1),
            client_order_id: ClientOrderId::new(format!("order-{number}")).unwrap(),
            listing: self.listing,
            to: "0xfar".to_owned(),
            amount: units(amount),
            most_fee: units(100),
            quote: None,
            travel_rule: None,
        }
    }

    pub fn terms(&self, number: i64) -> Enqueue {
        Enqueue { withdrawal: id(number), job: JobId::new(1_000 + number).unwrap() }
    }

    pub async fn balance(&self, db: &Db, of: usize) -> String {
        balance(db, self.bank.users[of]).await
    }

    /// What the house has in an account of this kind.
    pub async fn house(&self, db: &Db, kind: AccountKind) -> i64 {
        let wanted = [NewAccount::system(&kind, self.bank.usdt).unwrap()];
        let store::ledger::Opened::Account(account) = db.open(&wanted, NOW).await.unwrap()[0] else { panic!("{kind}") };
        let sums = store::ledger::balances::system_balances(&mut db.read().await.unwrap()).await.unwrap();
        i64::try_from(sums.get(&account).copied().unwrap_or(0)).unwrap()
    }
}

/// The signer has signed nothing of these.
pub fn nothing(numbers: &[i64]) -> SignedRounds {
    SignedRounds::of(numbers.iter().map(|number| (id(*number), Some(0))))
}

pub async fn one(db: &Db, new: &NewWithdrawal) -> CreatedWithdrawal {
    db.create_withdrawals(std::slice::from_ref(new), NOW).await.unwrap().remove(0)
}

pub async fn taken(db: &Db, new: &NewWithdrawal) -> WithdrawalRow {
    match one(db, new).await {
        CreatedWithdrawal::New(row) => *row,
        other => panic!("{other:?}"),
    }
}

async fn refused(db: &Db, new: &NewWithdrawal) -> WithdrawalRefusal {
    match one(db, new).await {
        CreatedWithdrawal::Refused { refusal, .. } => refusal,
        other => panic!("{other:?}"),
    }
}

pub async fn state(db: &Db, number: i64) -> WithdrawalState {
    db.withdrawals(&[id(number)]).await.unwrap()[0].state
}

pub async fn cancel(db: &Db, number: i64) -> DecisionReply {
    db.cancel_withdrawals(&[(user(1), id(number))], &nothing(&[number]), NOW).await.unwrap().remove(0)
}

async fn decide(db: &Db, number: i64, decision: Decision) -> DecisionReply {
    let reason = "looked at".to_owned();
    let decision = WithdrawalDecision { id: id(number), decision, actor: "ann".to_owned(), reason };
    db.decide_withdrawals(&[decision], &nothing(&[number]), NOW).await.unwrap().remove(0)
}

/// A signature of this person over a digest, of which the store only keeps that it was good.
pub fn signature(number: i64, person: &str, digest: u8) -> NewWithdrawalApproval {
    NewWithdrawalApproval {
        withdrawal: id(number),
        digest: [digest; 32],
        round: 0,
        group: "hot".parse().unwrap(),
        person: person.to_owned(),
        key: format!("{person}-1"),
        signature: ApprovalSignature::Ed25519(vec![digest; 64]),
    }
}

pub async fn approve(db: &Db, number: i64, person: &str) -> WithdrawalApproved {
    db.approve_withdrawal(&signature(number, person, 7), NOW).await.unwrap()
}

pub async fn enqueue(db: &Db, desk: &Desk, number: i64) -> Enqueued {
    db.enqueue_withdrawals(&desk.chain, &[desk.terms(number)], &nothing(&[number]), NOW).await.unwrap().remove(0)
}

/// Does what workers and a chain do: a slot, a signature, a block that is deep enough. What the chain says then is up to the test.
pub async fn send(db: &Db, desk: &Desk, job: JobId) -> impl AsyncFn(&Db, SlotWord) {
    let until = NOW.plus_micros(60_000_000);
    let held = db.take_lanes((desk.chain.id, Duty::Send), "one", 9, NOW, until).await.unwrap();
    let lane = db.job(job).await.unwrap().unwrap().0.job.lane;
    let (kind, payload, coins, slot) = (AttemptKind::Pay, vec![0], None, SlotId(job.number()));
    let new =
        NewSlot { id: slot, lane, nonce: Some(0), since: 1, jobs: vec![(job, 1)], kind, payload, coins, instead: None };
    let known = std::collections::HashMap::new();
    db.open_slots(&held, &[new], &[], &[], &known, NOW).await.unwrap();
    let answer = SignedAnswer::Signed { bytes: vec![1], hash: Hash([7; 32]) };
    db.keep_signed(&held, &[SignedAttempt { lane, slot, number: 1, answer, spend: None }], None, NOW).await.unwrap();
    let told = ToldAttempt { lane, slot, number: 1, said: "nodes have it".to_owned() };
    db.keep_told(&held, &[told], NOW).await.unwrap();
    let watches = db.take_lanes((desk.chain.id, Duty::Watch), "watcher", 9, NOW, until).await.unwrap();
    async move |db: &Db, said: SlotWord| {
        let mined = match said {
            SlotWord::Deep(fate) | SlotWord::Mined(fate) | SlotWord::Final(fate) => {
                Some((1, MinedAttempt { height: 5, block: Hash([5; 32]), fate, fee: None }))
            }
            SlotWord::Left | SlotWord::Lost => None,
        };
        let words = format!("{said:?}");
        let news = SlotNews { lane, slot, said, mined, asked: 1, words, foreign: false };
        assert_eq!(db.keep_news(&watches, &[news], NOW).await.unwrap(), 1);
    }
}

/// Ends a job that rests, for want of coins. It may rest after a slot that paid nothing.
pub async fn short(db: &Db, desk: &Desk, job: JobId) {
    let (now, until) = (NOW.plus_micros(HOUR), NOW.plus_micros(2 * HOUR));
    let held = db.take_lanes((desk.chain.id, Duty::Send), "one", 9, now, until).await.unwrap();
    let row = db.job(job).await.unwrap().unwrap().0.job;
    let (lane, version) = (row.lane, row.version);
    let words = "too little".into();
    let put_off = PutOff { lane, job, version, over: true, words, history: None, due: now, tried: true, short: true };
    db.open_slots(&held, &[], &[], &[put_off], &std::collections::HashMap::new(), now).await.unwrap();
}

pub async fn settle(db: &Db, number: i64) -> SettledBatch {
    db.settle_withdrawals(&[id(number)], &nothing(&[number]), NOW).await.unwrap()
}

pub fn tried() -> Vec<Constraint> {
    vec![Constraint::WithdrawalOrder]
}

db_test! {
    async fn what_is_only_judged_leaves_no_trace(db: TestDb) {
        let desk = Desk::open(db).await;
        desk.set(db, &WithdrawalPolicy { daily_total: Some(units(1_000)), quote_life_us: 60, ..policy() }).await;
        let before = desk.balance(db, 0).await;
        // With the rights of who types it, who begins no sum of a day.
        if db.engine() == Engine::Postgres {
            db.with_roles().await;
        }
        for _ in 0..3 {
            let judged = db.of(DatabaseRole::Operator).simulate_withdrawal(&desk.ask(1, 600), NOW).await.unwrap();
            assert!(matches!(&judged, CreatedWithdrawal::New(row) if row.fee == units(10)), "{judged:?}");
        }
        assert_eq!(
            (db.list_withdrawals(&Default::default(), None, 10).await.unwrap(), desk.balance(db, 0).await),
            (vec![], before)
        );
        taken(db, &desk.ask(1, 600)).await;
        // The same name is no answer here: it is judged as it would be under another.
        let judged = db.simulate_withdrawal(&desk.ask(1, 600), NOW).await.unwrap();
        assert!(matches!(&judged, CreatedWithdrawal::Refused { refusal: DailyTotalExceeded, .. }), "{judged:?}");
        assert!(db.audit(|_| ()).await.unwrap().clean());
    }

    /// Row, hold, verdict and history are one commit.
    async fn what_is_taken_holds_amount_and_fee(db: TestDb) {
        let desk = Desk::open(db).await;
        let row = taken(db, &desk.ask(1, 500)).await;
        assert_eq!((row.state, row.version, row.fee, row.people), (WithdrawalState::Approved, 2, units(10), 0));
        assert_eq!((row.rule.as_str(), row.policy_version), ("auto_approve", 1));
        assert!(row.inputs.contains("\"available\":\"100000\"") && row.inputs.contains("\"amount\":\"500\""), "{}", row.inputs);
        assert_eq!(desk.balance(db, 0).await, "99490/510");
        assert_eq!(db.withdrawals(&[id(1)]).await.unwrap(), [row]);
        let history = db.withdrawal_history(id(1)).await.unwrap();
        let steps: Vec<(&str, &str)> = history.iter().map(|step| (step.state.as_str(), step.actor.as_str())).collect();
        assert_eq!(steps, [("pending", "user 1"), ("approved", "policy 1")]);
        // More than the policy approves by itself waits for people; in an incident somebody looks at everything.
        assert_eq!(taken(db, &desk.ask(2, 20_000)).await.people, 2);
        assert_eq!(state(db, 2).await, WithdrawalState::Pending);
        desk.set(db, &WithdrawalPolicy { incident: true, ..policy() }).await;
        assert_eq!(taken(db, &desk.ask(3, 20)).await.state, WithdrawalState::ManualReview);
        assert_eq!(enqueue(db, &desk, 1).await, Enqueued::SwitchedOff, "nobody has agreed to it");
        assert_eq!(db.withdrawals_of(user(1), None, None, 9).await.unwrap().len(), 3);
        assert_clean(db).await;
    }

    async fn the_same_again_is_the_same_and_other_content_is_a_conflict(db: TestDb) {
        let desk = Desk::open(db).await;
        let new = desk.ask(1, 500);
        let row = taken(db, &new).await;
        let again = NewWithdrawal { id: id(9), ..new.clone() };
        assert_eq!(one(db, &again).await, CreatedWithdrawal::Before(Box::new(row)));
        let listing = desk.chain.listings[0].id;
        for other in [
            NewWithdrawal { amount: units(501), ..again.clone() },
            NewWithdrawal { to: "0xother".to_owned(), ..again.clone() },
            NewWithdrawal { most_fee: units(99), ..again.clone() },
            NewWithdrawal { listing: ListingId(listing.0 + 1), ..again.clone() },
        ] {
            assert_eq!(refused(db, &other).await, DuplicateRequest);
        }
        // In one batch as well; and the names of users are their own.
        let name = ClientOrderId::new("twice").unwrap();
        let first = NewWithdrawal { client_order_id: name.clone(), ..desk.ask(2, 100) };
        let batch = [
            first.clone(),
            NewWithdrawal { id: id(3), ..first.clone() },
            NewWithdrawal { id: id(4), amount: units(101), ..first.clone() },
            NewWithdrawal { id: id(5), user: user(2), ..first.clone() },
        ];
        let answers = db.create_withdrawals(&batch, NOW).await.unwrap();
        let shown = |answer: &CreatedWithdrawal| match answer {
            CreatedWithdrawal::New(row) => format!("new {}", row.id),
            CreatedWithdrawal::Before(row) => format!("before {}", row.id),
            CreatedWithdrawal::Refused { refusal, .. } => refusal.code().to_owned(),
        };
        assert_eq!(answers.iter().map(shown).collect::<Vec<_>>(), ["new wr-2", "before wr-2", "DUPLICATE_REQUEST", "new wr-5"]);
        assert_eq!((desk.balance(db, 0).await.as_str(), desk.balance(db, 1).await.as_str()), ("99380/620", "99890/110"));
        // The database itself refuses a second of one name.
        let by_hand = "INSERT INTO withdrawal_requests (id, user_id, account_id, asset_id, chain_id, listing_id, client_order_id, to_address, amount, fee,
            most_fee, wallet_group, network_fee_raw, expires_at, status, version, policy_version, rule, people, inputs, jobs, payee_id, queued_at, judged,
            created_at, updated_at)
            SELECT 77, user_id, account_id, asset_id, chain_id, listing_id, client_order_id, to_address, amount, fee, most_fee, wallet_group,
            network_fee_raw, expires_at, status, version, policy_version, rule, people, inputs, jobs, payee_id, queued_at, judged, created_at, updated_at
            FROM withdrawal_requests WHERE id = 1";
        let error: StoreError = db.by_hand(by_hand).await.unwrap_err().into();
        assert!(matches!(error, StoreError::Violates(Constraint::WithdrawalOrder)), "{error:?}");
        assert_clean(db).await;
    }

    async fn what_is_refused_leaves_nothing(db: TestDb) {
        let desk = Desk::open(db).await;
        let movements_before = movements(db).await;
        let new = desk.ask(1, 500);
        let poor = NewWithdrawal { amount: units(99_991), ..new.clone() };
        let nowhere = NewWithdrawal { listing: ListingId(99), ..new.clone() };
        let nobody = NewWithdrawal { user: user(9), ..new.clone() };
        let house = NewWithdrawal { to: "0xhot1".to_owned(), ..new.clone() };
        let dear = NewWithdrawal { most_fee: units(9), ..new.clone() };
        let expected = [InsufficientBalance, NotOffered, AccountNotFound, DestinationOurs, FeeAboveAgreed];
        for (asked, refusal) in [poor, nowhere, nobody, house, dear].iter().zip(expected) {
            assert_eq!(refused(db, asked).await, refusal);
        }
        desk.set(db, &WithdrawalPolicy { enabled: false, ..policy() }).await;
        assert_eq!(refused(db, &new).await, SwitchedOff);
        db.by_hand("UPDATE chains SET status = 'suspended'").await.unwrap();
        assert_eq!(refused(db, &new).await, ChainSuspended);
        db.by_hand("UPDATE chains SET status = 'active'; UPDATE assets SET status = 'suspended'").await.unwrap();
        assert_eq!(refused(db, &new).await, AssetSuspended);
        assert_eq!((movements(db).await, desk.balance(db, 0).await.as_str()), (movements_before, "100000/0"));
        assert!(db.withdrawals_of(user(1), None, None, 9).await.unwrap().is_empty());
        assert_clean(db).await;
    }

    /// What a chain could still take back is not paid out, though the balance covers it.
    async fn money_that_is_not_final_is_not_withdrawable(db: TestDb) {
        let desk = Desk::open(db).await;
        let hash = |byte: &str| match db.engine() {
            Engine::Postgres => format!("'\\x{}'::bytea", byte.repeat(32)),
            Engine::Sqlite => format!("X'{}'", byte.repeat(32)),
        };
        let deposit = |number: i64, of: i64, amount: i64| {
            let (chain, listing) = (desk.chain.id.0, desk.listing.0);
            format!("INSERT INTO deposits (id, chain_id, listing_id, tx_hash, place, generation, address, amount_raw, height, block_hash, user_id, state,
                amount, repaid, left_over, receivable, version, created_at, updated_at) VALUES ({number}, {chain}, {listing}, {}, 'value', {number}, 'x', '1', 1,
                {}, {of}, 'credited', {amount}, 0, 0, 0, 1, 0, 0)", hash("aa"), hash("bb"))
        };
        db.by_hand(&deposit(1, 1, 60_000)).await.unwrap();
        db.by_hand(&deposit(2, 1, 30_000)).await.unwrap();
        db.by_hand(&deposit(3, 2, 30_000)).await.unwrap();
        assert_eq!(refused(db, &desk.ask(1, 9_991)).await, DepositNotFinal);
        taken(db, &desk.ask(2, 990)).await;
        assert_eq!(refused(db, &desk.ask(3, 8_991)).await, DepositNotFinal, "what is held counts");
        taken(db, &desk.ask(4, 8_990)).await;
        db.by_hand("UPDATE deposits SET state = 'final' WHERE id = 1").await.unwrap();
        // What was final and has left its chain all the same counts until the books have taken it back.
        let (chain, listing) = (desk.chain.id.0, desk.listing.0);
        let gone = format!("INSERT INTO chain_entries (id, chain_id, listing_id, address, height, block_hash, tx_hash, place, side, amount_raw, cause,
            generation, reverses, alive, posting, due_height, source, at) VALUES (900, {chain}, {listing}, 'x', 1, {}, {}, 'value', 1, '-1', 'deposit',
            1, 1, FALSE, 0, 0, 'n', 0)", hash("bb"), hash("aa"));
        db.by_hand(&gone).await.unwrap();
        assert_eq!(refused(db, &desk.ask(5, 59_990)).await, DepositNotFinal);
        db.by_hand("UPDATE chain_entries SET posting = 1 WHERE id = 900").await.unwrap();
        taken(db, &desk.ask(5, 59_990)).await;
        assert_eq!(refused(db, &desk.ask(6, 10)).await, DepositNotFinal);
        // More than 64 bits of them are no less.
        db.by_hand(&deposit(4, 2, i64::MAX)).await.unwrap();
        assert_eq!(refused(db, &NewWithdrawal { user: user(2), ..desk.ask(7, 10) }).await, DepositNotFinal);
    }

    async fn limits_count_what_was_asked_for_and_what_was_given_back_not_any_more(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 300)).await;
        // The sum of all begins in the middle of the day, with what was asked for before.
        let limits = WithdrawalPolicy { daily_user: Some(units(1_000)), daily_total: Some(units(1_200)), ..policy() };
        desk.set(db, &limits).await;
        assert_eq!(refused(db, &desk.ask(2, 701)).await, DailyAmountExceeded);
        let of_two = |number, amount| NewWithdrawal { user: user(2), ..desk.ask(number, amount) };
        let answers = db.create_withdrawals(&[desk.ask(3, 700), of_two(4, 201), of_two(5, 200), of_two(6, 10)], NOW).await.unwrap();
        let codes: Vec<&str> = answers.iter().map(|answer| match answer {
            CreatedWithdrawal::Refused { refusal, .. } => refusal.code(),
            CreatedWithdrawal::New(_) | CreatedWithdrawal::Before(_) => "taken",
        }).collect();
        assert_eq!(codes, ["taken", "DAILY_TOTAL_EXCEEDED", "taken", "DAILY_TOTAL_EXCEEDED"]);
        assert!(matches!(cancel(db, 1).await, DecisionReply::Done(_)));
        assert_eq!(refused(db, &desk.ask(7, 301)).await, DailyAmountExceeded);
        taken(db, &desk.ask(8, 300)).await;
        // Tomorrow all begins anew.
        let tomorrow = NOW.plus_micros(24 * HOUR);
        let answer = db.create_withdrawals(&[desk.ask(9, 1_000)], tomorrow).await.unwrap().remove(0);
        assert!(matches!(answer, CreatedWithdrawal::New(_)), "{answer:?}");
        // Whoever asks often, asks often, whatever became of it.
        desk.set(db, &WithdrawalPolicy { velocity: Some(Velocity { count: 3, window_us: HOUR }), ..policy() }).await;
        assert_eq!(refused(db, &desk.ask(10, 10)).await, TooManyWithdrawals);
        taken(db, &of_two(11, 10)).await;
        let later = db.create_withdrawals(&[desk.ask(12, 10)], NOW.plus_micros(HOUR)).await.unwrap().remove(0);
        assert!(matches!(later, CreatedWithdrawal::New(_)), "the window has passed: {later:?}");
        assert_clean(db).await;
    }

    async fn a_destination_cools_off_in_the_address_book(db: TestDb) {
        let desk = Desk::open(db).await;
        let careful = WithdrawalPolicy { book_only: true, cooling_off_us: HOUR, ..policy() };
        desk.set(db, &careful).await;
        assert_eq!(refused(db, &desk.ask(1, 100)).await, DestinationUnknown);
        let entry = |label: &str| NewBookEntry {
            user: user(1), chain: desk.chain.id, address: "0xfar".to_owned(), label: label.to_owned(),
        };
        let added = db.add_to_book(&[entry("mine"), entry("again")], NOW).await.unwrap();
        assert_eq!((added[0].label.as_str(), &added[0]), ("mine", &added[1]));
        assert_eq!(refused(db, &desk.ask(1, 100)).await, DestinationCoolingOff);
        let later = NOW.plus_micros(HOUR);
        let answer = db.create_withdrawals(&[desk.ask(1, 100)], later).await.unwrap().remove(0);
        assert!(matches!(answer, CreatedWithdrawal::New(_)), "{answer:?}");
        assert_eq!(refused(db, &NewWithdrawal { user: user(2), ..desk.ask(2, 100) }).await, DestinationUnknown, "it is another user's book");
        // Added again, it stays as old as it is; removed and added again, it is new.
        assert_eq!(db.add_to_book(&[entry("x")], later).await.unwrap()[0], added[0]);
        assert!(!db.remove_from_book(user(2), added[0].id, later).await.unwrap(), "it is not the other user's");
        assert!(db.remove_from_book(user(1), added[0].id, later).await.unwrap());
        assert!(!db.remove_from_book(user(1), added[0].id, later).await.unwrap());
        db.add_to_book(&[entry("new")], later).await.unwrap();
        let answer = db.create_withdrawals(&[desk.ask(3, 100)], later).await.unwrap().remove(0);
        assert!(matches!(answer, CreatedWithdrawal::Refused { refusal: DestinationCoolingOff, .. }), "{answer:?}");
        assert_eq!(db.book(user(1)).await.unwrap().len(), 1);
    }

    async fn a_policy_has_versions_that_nobody_changes(db: TestDb) {
        let desk = Desk::open(db).await;
        let set = async |policy: &WithdrawalPolicy| db.set_withdrawal_policy(desk.listing, policy, &AUTHOR, NOW).await.unwrap();
        assert_eq!(set(&policy()).await, PolicySet::Same(1));
        assert_eq!(set(&WithdrawalPolicy { max: units(5), ..policy() }).await, PolicySet::Refused(PolicyError::Range));
        assert_eq!(set(&WithdrawalPolicy { max: units(50_000), version: 77, ..policy() }).await, PolicySet::New(2));
        let history = db.withdrawal_policies(desk.listing).await.unwrap();
        let shown: Vec<(i64, i64, &str)> =
            history.iter().map(|row| (row.policy.version, row.policy.max.units(), row.actor.as_str())).collect();
        assert_eq!(shown, [(1, 100_000, "test"), (2, 50_000, "test")]);
        let missing = db.set_withdrawal_policy(ListingId(99), &policy(), &AUTHOR, NOW).await.unwrap();
        assert_eq!(missing, PolicySet::NoSuchListing);
    }

    /// A server whose clock is ahead has begun the next day before anybody asks on this one.
    async fn a_day_has_nothing_of_the_next(db: TestDb) {
        let desk = Desk::open(db).await;
        desk.set(db, &WithdrawalPolicy { daily_total: Some(units(1_000)), ..policy() }).await;
        let tomorrow = NOW.plus_micros(24 * HOUR);
        let ahead = db.create_withdrawals(&[desk.ask(1, 700)], tomorrow).await.unwrap();
        assert!(matches!(ahead.as_slice(), [CreatedWithdrawal::New(_)]), "{ahead:?}");
        taken(db, &desk.ask(2, 700)).await;
        assert_clean(db).await;
        assert_eq!(refused(db, &desk.ask(3, 301)).await, DailyTotalExceeded);
    }

    /// History, verdicts and what has ended stay, whoever types what.
    async fn nobody_changes_or_removes_what_was_said(db: TestDb) {
        let desk = Desk::open(db).await;
        desk.set(db, &WithdrawalPolicy { daily_total: Some(units(10_000)), ..policy() }).await;
        taken(db, &desk.ask(1, 500)).await;
        taken(db, &desk.ask(2, 500)).await;
        enqueue(db, &desk, 2).await;
        cancel(db, 1).await;
        db.add_to_book(&[NewBookEntry { user: user(1), chain: desk.chain.id, address: "a".into(), label: "l".into() }], NOW).await.unwrap();
        let hash = if db.engine() == Engine::Postgres { "decode(repeat('ab', 32), 'hex')".to_owned() } else { format!("x'{}'", "ab".repeat(32)) };
        db.by_hand(&format!("INSERT INTO withdrawal_imports SELECT 'old', id, chain_id, 'processing', {hash}, 'ann', 0 FROM withdrawal_requests WHERE id = 1"))
            .await
            .unwrap();
        for changed in [
            "UPDATE withdrawal_imports SET old_status = ''", "DELETE FROM withdrawal_imports",
            // A row of another program is taken over once, and its payment pays one.
            "INSERT INTO withdrawal_imports SELECT 'old', 2, chain_id, 'x', NULL, 'ann', 0 FROM withdrawal_imports",
            "INSERT INTO withdrawal_imports SELECT 'other', 2, chain_id, 'x', tx_hash, 'ann', 0 FROM withdrawal_imports",
            "UPDATE withdrawal_events SET reason = ''", "DELETE FROM withdrawal_events", "DELETE FROM withdrawal_requests",
            "UPDATE withdrawal_policies SET max_amount = 1000000", "DELETE FROM withdrawal_policies", "UPDATE withdrawal_jobs SET number = 2",
            "DELETE FROM withdrawal_jobs", "UPDATE withdrawal_requests SET to_address = 'x'", "UPDATE withdrawal_requests SET amount = 1",
            "UPDATE withdrawal_requests SET inputs = '{}'", "UPDATE withdrawal_requests SET people = 7",
            "UPDATE withdrawal_requests SET status = 'approved' WHERE id = 1",
            // What follows from steps changes with them, and with nothing else.
            "UPDATE withdrawal_requests SET jobs = 0, queued_at = NULL WHERE id = 2", "UPDATE withdrawal_requests SET jobs = 2 WHERE id = 2",
            "UPDATE withdrawal_requests SET queued_at = 5 WHERE id = 2", "UPDATE withdrawal_requests SET payee_id = 2 WHERE id = 2",
            "UPDATE withdrawal_requests SET judged = 'x' WHERE id = 2", "UPDATE withdrawal_requests SET version = version + 1",
            "UPDATE withdrawal_requests SET wallet_group = 'mine'", "UPDATE withdrawal_requests SET expires_at = expires_at + 1",
            "UPDATE withdrawal_requests SET network_fee_raw = '99999999'", "UPDATE withdrawal_requests SET people = 1", "UPDATE withdrawal_requests SET rule = 'one_person'",
            "UPDATE withdrawal_requests SET status = 'pending', version = version + 1 WHERE id = 2",
            "UPDATE withdrawal_requests SET status = 'completed', version = version + 2 WHERE id = 2",
            "UPDATE withdrawal_requests SET status = 'completed', payee_id = 2, version = version + 1 WHERE id = 2",
            "UPDATE withdrawal_days SET day = day + 1", "DELETE FROM withdrawal_days",
            "UPDATE outbound_jobs SET withdrawal_id = 1", "UPDATE outbound_jobs SET requester = 'bob'", "UPDATE outbound_jobs SET expires_at = 0",
            "UPDATE withdrawal_addresses SET added_at = 0",
            // One job pays one withdrawal, and a history has one step of each number.
            "INSERT INTO withdrawal_jobs (withdrawal_id, number, job_id, at) SELECT 1, 1, job_id, 0 FROM withdrawal_jobs",
            "INSERT INTO withdrawal_events (withdrawal_id, version, status, actor, reason, at)
                SELECT withdrawal_id, version, 'approved', 'x', 'x', 0 FROM withdrawal_events",
            "DELETE FROM withdrawal_addresses",
        ] {
            assert!(db.by_hand(changed).await.is_err(), "{changed}");
        }
        assert_clean(db).await;
    }
}

db_test! {
    async fn a_cancel_gives_back_once(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 500)).await;
        assert_eq!(db.cancel_withdrawals(&[(user(2), id(1))], &nothing(&[1]), NOW).await.unwrap(), [DecisionReply::NoSuchWithdrawal]);
        let twice = [(user(1), id(1)), (user(1), id(1)), (user(1), id(9))];
        let replies = db.cancel_withdrawals(&twice, &nothing(&[1, 9]), NOW).await.unwrap();
        assert!(matches!(&replies[0], DecisionReply::Done(row) if row.state == WithdrawalState::Cancelled), "{replies:?}");
        assert_eq!(replies[1..], [DecisionReply::NotNow(WithdrawalState::Cancelled), DecisionReply::NoSuchWithdrawal]);
        assert!(matches!(cancel(db, 1).await, DecisionReply::Before(_)));
        assert_eq!(desk.balance(db, 0).await, "100000/0");
        assert_eq!(enqueue(db, &desk, 1).await, Enqueued::NotNow(WithdrawalState::Cancelled));
        assert_clean(db).await;
    }

    async fn as_many_people_sign_as_the_policy_wants(db: TestDb) {
        let desk = Desk::open(db).await;
        let row = taken(db, &desk.ask(1, 20_000)).await;
        assert_eq!((row.group.as_ref().unwrap().as_str(), row.expires, row.network_fee), ("hot", NOW.plus_micros(24 * HOUR), desk.chain.outbound.fee_cap));
        assert_eq!(enqueue(db, &desk, 1).await, Enqueued::NotNow(WithdrawalState::Pending));
        assert_eq!(approve(db, 1, "user-1").await, WithdrawalApproved::Requester);
        assert_eq!(approve(db, 1, "ann").await, WithdrawalApproved::Kept { wanted: 2, agree: 1 });
        assert_eq!(approve(db, 1, "ann").await, WithdrawalApproved::Before { wanted: 2, agree: 1 });
        // Another key of the same person, and a signature for something else, do not add up.
        let again = NewWithdrawalApproval { key: "ann-2".to_owned(), ..signature(1, "ann", 7) };
        assert_eq!(db.approve_withdrawal(&again, NOW).await.unwrap(), WithdrawalApproved::Before { wanted: 2, agree: 1 });
        let other = db.approve_withdrawal(&signature(1, "bob", 8), NOW).await.unwrap();
        assert_eq!(other, WithdrawalApproved::Kept { wanted: 2, agree: 1 });
        for changed in [NewWithdrawalApproval { round: 1, ..signature(1, "bob", 7) },
            NewWithdrawalApproval { group: "cold".parse().unwrap(), ..signature(1, "bob", 7) }] {
            assert_eq!(db.approve_withdrawal(&changed, NOW).await.unwrap(), WithdrawalApproved::Changed);
        }
        let late = NOW.plus_micros(24 * HOUR);
        assert_eq!(db.approve_withdrawal(&signature(1, "bob", 7), late).await.unwrap(), WithdrawalApproved::TooLate);
        assert_eq!(approve(db, 9, "bob").await, WithdrawalApproved::NoSuchWithdrawal);
        assert!(matches!(decide(db, 1, Decision::Review).await, DecisionReply::Done(_)));
        // What was signed before the doubt does not answer it.
        assert_eq!(approve(db, 1, "bob").await, WithdrawalApproved::Kept { wanted: 2, agree: 1 });
        assert!(matches!(approve(db, 1, "ann").await, WithdrawalApproved::Approved(row) if row.state == WithdrawalState::Approved));
        assert_eq!(approve(db, 1, "cat").await, WithdrawalApproved::NotNow(WithdrawalState::Approved));
        let last = db.withdrawal_history(id(1)).await.unwrap().pop().unwrap();
        assert_eq!((last.actor.as_str(), last.reason.as_str()), ("ann, bob", "2 of 2 have signed it"));
        // They go to the signer with the job, and nobody changes or removes them.
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 1).await else { panic!("queued") };
        let sent = db.approvals_of(&[job]).await.unwrap();
        let keys: Vec<(u8, &str)> = sent.iter().map(|one| (one.digest[0], one.key.as_str())).collect();
        assert_eq!(keys.len(), 2, "what approved it");
        assert!(keys.contains(&(7, "ann-1")) && keys.contains(&(7, "bob-1")), "{keys:?}");
        for changed in ["UPDATE withdrawal_approvals SET person = 'eve'", "DELETE FROM withdrawal_approvals"] {
            assert!(db.by_hand(changed).await.is_err(), "{changed}");
        }
        for decision in [Decision::Review, Decision::Refuse] {
            assert_eq!(decide(db, 1, decision).await, DecisionReply::NotNow(WithdrawalState::Queued));
        }
        assert_eq!(cancel(db, 1).await, DecisionReply::NotNow(WithdrawalState::Queued), "a job may pay it");
        // What people refuse is given back, once.
        taken(db, &desk.ask(2, 20_000)).await;
        assert!(matches!(decide(db, 2, Decision::Refuse).await, DecisionReply::Done(_)));
        assert!(matches!(decide(db, 2, Decision::Refuse).await, DecisionReply::Before(_)));
        assert_eq!(desk.balance(db, 0).await, "79990/20010");
        let who: Vec<String> = db.withdrawal_history(id(2)).await.unwrap().into_iter().map(|step| format!("{} {}", step.actor, step.reason)).collect();
        assert_eq!(who, ["user 1 asked for", "ann looked at"]);
        assert_clean(db).await;
    }

    /// The job is what the row says, and there is one.
    async fn a_job_is_made_with_the_status_that_says_so(db: TestDb) {
        let desk = Desk::open(db).await;
        let asked: Vec<NewWithdrawal> = (1..=3).map(|number| desk.ask(number, 100 * number)).collect();
        db.create_withdrawals(&asked, NOW).await.unwrap();
        let wanted = [desk.terms(1), desk.terms(2), desk.terms(1), desk.terms(9)];
        let answers = db.enqueue_withdrawals(&desk.chain, &wanted, &nothing(&[1, 2, 9]), NOW).await.unwrap();
        let from = |answer: &Enqueued| match answer {
            Enqueued::Queued { from, row, .. } => format!("{from} {}", row.state),
            other => format!("{other:?}"),
        };
        let expected = ["0xhot0 queued", "0xhot1 queued", "NoSuchWithdrawal", "NoSuchWithdrawal"];
        assert_eq!(answers.iter().map(from).collect::<Vec<_>>(), expected);
        let again = Enqueue { job: JobId::new(77).unwrap(), ..desk.terms(1) };
        assert_eq!(db.enqueue_withdrawals(&desk.chain, &[again], &nothing(&[1]), NOW).await.unwrap(), [Enqueued::NotNow(WithdrawalState::Queued)]);
        let jobs = db.jobs_of_withdrawal(id(2)).await.unwrap();
        assert_eq!(jobs, [(JobId::new(1_002).unwrap(), JobState::Queued)]);
        let job = db.job(jobs[0].0).await.unwrap().unwrap().0.job;
        let amount: RawAmount = "200000000000000".parse().unwrap();
        assert_eq!((job.reference.as_str(), job.to.as_str(), job.amount), ("wr-2", "0xfar", amount));
        // The sources' queue names the request, and their query runs on it.
        let (schema, table) = if db.engine() == Engine::Postgres { ("sources.", "withdrawal_queue") } else { ("sources_", "withdrawal_queue") };
        let query = format!("SELECT COUNT(*) FROM {table} q JOIN {schema}withdrawal_requests w ON w.id = q.withdrawal_request_id
            WHERE w.status = 'queued' AND w.queued_at IS NOT NULL AND w.final_tx_hash IS NULL");
        assert_eq!(db.ask("", &query).await.unwrap(), [[Some("2".to_owned())]]);
        let pending = db.ask("", "SELECT COUNT(*) FROM withdrawal_requests WHERE status = 'pending';").await.unwrap();
        assert_eq!(pending, [[Some("0".to_owned())]]);
        assert_clean(db).await;
    }

    /// It would be paid beside the hold, and the signer would not know it as the withdrawal's.
    async fn no_job_by_hand_has_a_withdrawals_name(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 100)).await;
        taken(db, &desk.ask(3, 300)).await;
        enqueue(db, &desk, 1).await;
        let by_hand = NewJob {
            id: JobId::new(50).unwrap(), listing: desk.listing, kind: domain::outbound::JobKind::Withdrawal, reference: "wr-3".into(), to: "0xfar".into(),
            owner: None, amount: "300000000000000".parse().unwrap(), most_fee: "9".parse().unwrap(), priority: 1, requester: "ann".into(),
            expires: NOW.plus_micros(HOUR), payer: Payer::Role(domain::WalletRole::Hot),
        };
        let plain = NewJob { id: JobId::new(51).unwrap(), reference: "order 3".into(), ..by_hand.clone() };
        let added = db.add_jobs(desk.chain.id, &[by_hand, plain], NOW).await.unwrap();
        assert!(matches!(added[..], [Added::OfWithdrawal, Added::New { .. }]), "{added:?}");
        // The database refuses it as well, whoever types it.
        let typed = "INSERT INTO outbound_jobs (id, chain_id, lane_id, listing_id, kind, reference, to_address, amount_raw, most_fee_raw, priority, requester,
            expires_at, state, version, tries, rounds, give_up, bump, reason, due_at, created_at, updated_at)
            SELECT 52, chain_id, lane_id, listing_id, kind, 'wr-3', to_address, amount_raw, most_fee_raw, priority, requester, expires_at, state, version,
            tries, rounds, give_up, bump, reason, due_at, created_at, updated_at FROM outbound_jobs WHERE id = 1001";
        assert!(db.by_hand(typed).await.is_err());
        // Where it is there all the same, the audit names it, nothing is paid beside it, and people look.
        let table = if db.engine() == Engine::Postgres { " ON outbound_jobs" } else { "" };
        db.by_hand(&format!("DROP TRIGGER trg_outbound_job_named{table}")).await.unwrap();
        assert_clean(db).await;
        db.by_hand(typed).await.unwrap();
        let report = db.audit(|_| ()).await.unwrap();
        let found = report.findings.into_iter().find(|finding| finding.check == "withdrawals").unwrap().violation.unwrap();
        assert!(found.problem.starts_with("job-52 has its name"), "{found:?}");
        assert!(matches!(enqueue(db, &desk, 3).await, Enqueued::Doubted { row, .. } if row.state == WithdrawalState::ManualReview));
    }

    async fn what_is_switched_off_or_has_no_wallet_waits(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 500)).await;
        desk.set(db, &WithdrawalPolicy { enabled: false, ..policy() }).await;
        assert_eq!(enqueue(db, &desk, 1).await, Enqueued::SwitchedOff);
        desk.set(db, &policy()).await;
        db.by_hand("UPDATE chains SET status = 'suspended'").await.unwrap();
        assert_eq!(enqueue(db, &desk, 1).await, Enqueued::SwitchedOff);
        for table in ["assets", "asset_on_chain"] {
            db.by_hand(&format!("UPDATE chains SET status = 'active'; UPDATE {table} SET status = 'suspended'")).await.unwrap();
            assert_eq!(enqueue(db, &desk, 1).await, Enqueued::SwitchedOff, "{table}");
            db.by_hand(&format!("UPDATE {table} SET status = 'active'")).await.unwrap();
        }
        // An incident stops what nobody has agreed to, also when it was approved before.
        taken(db, &desk.ask(2, 2_000)).await;
        assert!(matches!(approve(db, 2, "ann").await, WithdrawalApproved::Approved(_)));
        desk.set(db, &WithdrawalPolicy { incident: true, ..policy() }).await;
        assert_eq!(enqueue(db, &desk, 1).await, Enqueued::SwitchedOff, "nobody has agreed to it");
        assert!(matches!(enqueue(db, &desk, 2).await, Enqueued::Queued { .. }), "a person has");
        desk.set(db, &policy()).await;
        db.by_hand("UPDATE operation_wallet_addresses SET is_active = FALSE").await.unwrap();
        assert_eq!(enqueue(db, &desk, 1).await, Enqueued::NoWallet);
        assert_eq!((state(db, 1).await, desk.balance(db, 0).await.as_str()), (WithdrawalState::Approved, "97480/2520"));
        assert!(matches!(cancel(db, 1).await, DecisionReply::Done(_)));
        assert_clean(db).await;
    }

    /// Whatever the policy wanted: what somebody has signed since it waited last was agreed to, and what was signed before a doubt was not.
    async fn in_an_incident_what_somebody_has_signed_is_paid(db: TestDb) {
        let desk = Desk::open(db).await;
        for number in 1..=3 {
            assert_eq!(taken(db, &desk.ask(number, 500)).await.people, 0);
            assert!(matches!(decide(db, number, Decision::Review).await, DecisionReply::Done(_)));
            assert!(matches!(approve(db, number, "ann").await, WithdrawalApproved::Approved(_)));
        }
        taken(db, &desk.ask(4, 500)).await;
        desk.set(db, &WithdrawalPolicy { incident: true, ..policy() }).await;
        assert!(matches!(enqueue(db, &desk, 1).await, Enqueued::Queued { .. }), "ann has signed it");
        assert_eq!(enqueue(db, &desk, 4).await, Enqueued::SwitchedOff, "nobody has");
        // It waited once more, and by hand it is called approved: nobody has signed since.
        assert!(matches!(decide(db, 2, Decision::Review).await, DecisionReply::Done(_)));
        let version = db.withdrawals(&[id(2)]).await.unwrap()[0].version;
        db.by_hand(&format!(
            "UPDATE withdrawal_requests SET status = 'approved', version = {0} WHERE id = 2;
            INSERT INTO withdrawal_events (withdrawal_id, version, status, actor, reason, at) VALUES (2, {0}, 'approved', 'x', 'x', 0)",
            version + 1
        ))
        .await
        .unwrap();
        assert_eq!(enqueue(db, &desk, 2).await, Enqueued::SwitchedOff, "ann has signed before the doubt");
        // The same holds for who is paid inside.
        let inside = async |number| {
            let wanted = SettleInside { withdrawal: id(number), payee: user(2) };
            db.settle_inside(&[wanted], &nothing(&[number]), NOW).await.unwrap().remove(0)
        };
        assert!(matches!(inside(3).await, InsideReply::Settled(_)), "{:?}", inside(3).await);
        assert_eq!(inside(4).await, InsideReply::SwitchedOff);
    }

    /// What is paid goes from the hold to suspense, where the chain's entry fetches it, and the fee to fees.
    async fn what_was_paid_is_settled_once(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 500)).await;
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 1).await else { panic!("queued") };
        let says = send(db, &desk, job).await;
        assert_eq!(settle(db, 1).await, SettledBatch::default(), "no block has it");
        says(db, SlotWord::Mined(Effect::InFull)).await;
        assert_eq!(settle(db, 1).await, SettledBatch::default(), "it is not deep");
        says(db, SlotWord::Deep(Effect::InFull)).await;
        assert_eq!(db.withdrawals_due(desk.chain.id, DueAfter::default(), 9).await.unwrap().paid, [id(1)]);
        assert_eq!(settle(db, 1).await, SettledBatch { completed: vec![id(1)], ..SettledBatch::default() });
        assert_eq!(settle(db, 1).await, SettledBatch::default());
        assert_eq!(desk.balance(db, 0).await, "99490/0");
        assert_eq!((desk.house(db, AccountKind::Suspense).await, desk.house(db, AccountKind::Fees).await), (500, 10));
        assert!(db.withdrawals_due(desk.chain.id, DueAfter::default(), 9).await.unwrap().paid.is_empty());
        let view = if db.engine() == Engine::Postgres { "sources.withdrawal_requests" } else { "sources_withdrawal_requests" };
        let shown = db.ask("", &format!("SELECT status, final_tx_hash, amount FROM {view}")).await.unwrap();
        let expected = ["completed".to_owned(), format!("0x{}", "07".repeat(32)), "0.000500".to_owned()].map(Some);
        assert_eq!(shown, [expected]);
        assert_clean(db).await;
    }

    async fn what_never_will_be_paid_is_released_once(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 500)).await;
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 1).await else { panic!("queued") };
        db.cancel_job(job, "ann", NOW).await.unwrap();
        assert_eq!(settle(db, 1).await, SettledBatch { failed: vec![id(1)], ..SettledBatch::default() });
        assert_eq!(settle(db, 1).await, SettledBatch::default());
        assert_eq!((state(db, 1).await, desk.balance(db, 0).await.as_str()), (WithdrawalState::Failed, "100000/0"));
        let last = db.withdrawal_history(id(1)).await.unwrap().pop().unwrap();
        assert_eq!((last.actor.as_str(), last.reason.as_str()), ("custody", "given up by ann"));
        assert_clean(db).await;
    }

    /// The chain took it back. While the job may still pay it, it stays completed; when it never will, the customer gets amount and fee again.
    async fn what_the_chain_took_back_for_good_is_given_back_once(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 500)).await;
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 1).await else { panic!("queued") };
        let says = send(db, &desk, job).await;
        says(db, SlotWord::Deep(Effect::InFull)).await;
        settle(db, 1).await;
        says(db, SlotWord::Left).await;
        assert_eq!(settle(db, 1).await, SettledBatch::default(), "the same bytes are out again");
        says(db, SlotWord::Lost).await;
        assert_eq!(settle(db, 1).await, SettledBatch::default(), "another slot may pay it");
        assert!(db.withdrawals_taken_back(desk.chain.id, None, 9).await.unwrap().is_empty());
        db.cancel_job(job, "ann", NOW).await.unwrap();
        assert_eq!(db.withdrawals_taken_back(desk.chain.id, None, 9).await.unwrap(), [id(1)]);
        // An account that takes nothing is named, and given it later.
        let status = |name: &str, status| store::ledger::StatusChange {
            key: key(name), account: desk.bank.users[0], status, actor: "ana".into(), reason: "test".into(),
        };
        db.set_status(&[status("off", AccountStatus::Disabled)], NOW).await.unwrap();
        assert_eq!(settle(db, 1).await, SettledBatch { kept: vec![id(1)], ..SettledBatch::default() });
        assert_eq!(state(db, 1).await, WithdrawalState::Completed);
        db.set_status(&[status("on", AccountStatus::Frozen)], NOW).await.unwrap();
        assert_eq!(settle(db, 1).await, SettledBatch { given_back: vec![id(1)], ..SettledBatch::default() });
        assert_eq!(settle(db, 1).await, SettledBatch::default());
        assert_eq!((state(db, 1).await, desk.balance(db, 0).await.as_str()), (WithdrawalState::Failed, "100000/0"));
        assert_eq!((desk.house(db, AccountKind::Suspense).await, desk.house(db, AccountKind::Fees).await), (0, 0));
        assert_clean(db).await;
    }

    /// No coin moves; the payee has it at once. A customer whose account was frozen since waits.
    async fn what_is_ours_is_settled_inside(db: TestDb) {
        let desk = Desk::open(db).await;
        for number in 1..=4 {
            taken(db, &desk.ask(number, 500)).await;
        }
        let status = |name: &str, of: usize, status| store::ledger::StatusChange {
            key: key(name), account: desk.bank.users[of], status, actor: "ana".into(), reason: "test".into(),
        };
        let changes = [status("a", 0, AccountStatus::Frozen), status("b", 2, AccountStatus::Disabled)];
        db.set_status(&changes, NOW).await.unwrap();
        let frozen = db.settle_inside(&[SettleInside { withdrawal: id(1), payee: user(2) }], &nothing(&[1]), NOW).await.unwrap();
        assert_eq!((frozen, enqueue(db, &desk, 1).await), (vec![InsideReply::AccountClosed], Enqueued::AccountClosed));
        db.set_status(&[status("c", 0, AccountStatus::Active)], NOW).await.unwrap();
        let to = |number: i64, payee: i64| SettleInside { withdrawal: id(number), payee: user(payee) };
        let replies = db.settle_inside(&[to(1, 2), to(2, 3), to(3, 1), to(4, 8), to(1, 2)], &nothing(&[1, 2, 3, 4]), NOW).await.unwrap();
        assert!(matches!(&replies[0], InsideReply::Settled(row) if row.payee == Some(user(2)) && row.jobs == 0), "{replies:?}");
        assert!(matches!(&replies[1], InsideReply::Doubted(row) if row.state == WithdrawalState::ManualReview), "{replies:?}");
        assert!(matches!(&replies[2], InsideReply::Refused(row) if row.state == WithdrawalState::Rejected), "{replies:?}");
        assert!(matches!(&replies[3], InsideReply::Settled(_)), "an account is opened: {replies:?}");
        assert_eq!(replies[4], InsideReply::NoSuchWithdrawal);
        assert_eq!(db.settle_inside(&[to(1, 2)], &nothing(&[1]), NOW).await.unwrap(), [InsideReply::NotNow(WithdrawalState::Completed)]);
        assert_eq!((desk.balance(db, 0).await.as_str(), desk.balance(db, 1).await.as_str()), ("98470/510", "100500/0"));
        assert_eq!((desk.house(db, AccountKind::Suspense).await, desk.house(db, AccountKind::Fees).await), (0, 20));
        assert_eq!(settle(db, 1).await, SettledBatch::default(), "there is no job to follow");
        assert_clean(db).await;
    }

    /// A database that was put back has forgotten a payment, and its signer has not: nothing is given back, no job is made, and people look.
    async fn while_the_signer_knows_more_nothing_is_given_back_or_paid(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 2_000)).await;
        taken(db, &desk.ask(2, 500)).await;
        taken(db, &desk.ask(3, 500)).await;
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 3).await else { panic!("queued") };
        let none = SignedRounds::default();
        let more = SignedRounds::of((1..=3).map(|number| (id(number), Some(1))));
        // Nobody was asked: later.
        let cancels = [(user(1), id(1)), (user(1), id(2))];
        assert_eq!(db.cancel_withdrawals(&cancels, &none, NOW).await.unwrap(), [DecisionReply::SignerNotAsked, DecisionReply::SignerNotAsked]);
        let refuse = |number| WithdrawalDecision { id: id(number), decision: Decision::Refuse, actor: "ann".into(), reason: "no".into() };
        assert_eq!(db.decide_withdrawals(&[refuse(1)], &none, NOW).await.unwrap(), [DecisionReply::SignerNotAsked]);
        let late = NOW.plus_micros(24 * HOUR);
        assert_eq!(db.expire_withdrawals(&[id(1)], &none, late).await.unwrap(), [DecisionReply::SignerNotAsked]);
        assert_eq!(db.enqueue_withdrawals(&desk.chain, &[desk.terms(2)], &none, NOW).await.unwrap(), [Enqueued::SignerNotAsked]);
        let inside = [SettleInside { withdrawal: id(2), payee: user(2) }];
        assert_eq!(db.settle_inside(&inside, &none, NOW).await.unwrap(), [InsideReply::SignerNotAsked]);
        db.cancel_job(job, "ann", NOW).await.unwrap();
        assert_eq!(db.settle_withdrawals(&[id(3)], &none, NOW).await.unwrap(), SettledBatch::default());
        assert_eq!(desk.balance(db, 0).await, "96970/3030");
        // It knows more: all of them wait for people.
        assert_eq!(db.cancel_withdrawals(&cancels[..1], &more, NOW).await.unwrap(), [DecisionReply::SignerKnowsMore]);
        let enqueued = db.enqueue_withdrawals(&desk.chain, &[desk.terms(2)], &more, NOW).await.unwrap();
        assert!(matches!(&enqueued[0], Enqueued::SignerKnowsMore(_)), "{enqueued:?}");
        assert_eq!(db.settle_withdrawals(&[id(3)], &more, NOW).await.unwrap(), SettledBatch { doubted: vec![id(3)], ..SettledBatch::default() });
        for number in 1..=3 {
            assert_eq!(state(db, number).await, WithdrawalState::ManualReview);
            assert_eq!(db.cancel_withdrawals(&[(user(1), id(number))], &more, NOW).await.unwrap(), [DecisionReply::SignerKnowsMore]);
            assert_eq!(db.decide_withdrawals(&[refuse(number)], &more, NOW).await.unwrap(), [DecisionReply::SignerKnowsMore]);
            assert_eq!(db.expire_withdrawals(&[id(number)], &more, late).await.unwrap(), [DecisionReply::SignerKnowsMore]);
        }
        // Forgotten is as bad as signed.
        let forgotten = SignedRounds::of([(id(1), None)]);
        assert_eq!(db.cancel_withdrawals(&cancels[..1], &forgotten, NOW).await.unwrap(), [DecisionReply::SignerKnowsMore]);
        assert_eq!(desk.balance(db, 0).await, "96970/3030");
        assert_clean(db).await;
        // Two people say what became of them, and only of those.
        let people = domain::Approval::new("ann", "bob", "read on the chain").unwrap();
        let verdicts = [(id(1), WithdrawalVerdict::Paid), (id(2), WithdrawalVerdict::Unpaid), (id(3), WithdrawalVerdict::Paid)];
        assert_eq!(db.judge_withdrawals(&verdicts[..1], &people, &none, NOW).await.unwrap(), [DecisionReply::SignerNotAsked]);
        assert_eq!(db.judge_withdrawals(&verdicts[..1], &people, &nothing(&[1]), NOW).await.unwrap(), [DecisionReply::NothingToJudge]);
        let replies = db.judge_withdrawals(&verdicts, &people, &more, NOW).await.unwrap();
        assert!(replies.iter().all(|reply| matches!(reply, DecisionReply::Done(row) if row.judged.is_some())), "{replies:?}");
        assert_eq!([state(db, 1).await, state(db, 2).await], [WithdrawalState::Completed, WithdrawalState::Failed]);
        assert_eq!((desk.balance(db, 0).await.as_str(), desk.house(db, AccountKind::Suspense).await), ("97480/0", 2_500));
        assert_clean(db).await;
    }

    /// The money stays held, another job follows, and its rounds go on: to the signer both are one payment.
    async fn what_the_hot_wallet_lacks_waits_if_policy_says_so(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 500)).await;
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 1).await else { panic!("queued") };
        let says = send(db, &desk, job).await;
        says(db, SlotWord::Lost).await;
        short(db, &desk, job).await;
        assert_eq!(db.rounds_of_withdrawals(&[id(1)]).await.unwrap()[&id(1)], 1);
        desk.set(db, &WithdrawalPolicy { when_short: WhenShort::Wait, ..policy() }).await;
        let one = SignedRounds::of([(id(1), Some(1))]);
        let settled = db.settle_withdrawals(&[id(1)], &one, NOW).await.unwrap();
        assert_eq!(settled, SettledBatch { short: vec![id(1)], ..SettledBatch::default() });
        assert_eq!((state(db, 1).await, desk.balance(db, 0).await.as_str()), (WithdrawalState::Approved, "99490/510"));
        // One that was signed in a second slot which this database does not know is not paid.
        let again = Enqueue { job: JobId::new(2_001).unwrap(), ..desk.terms(1) };
        let soon = db.enqueue_withdrawals(&desk.chain, &[again], &one, NOW.plus_micros(59_000_000)).await.unwrap();
        assert_eq!(soon, [Enqueued::Resting], "one after another would only fill the history");
        let queued = db.enqueue_withdrawals(&desk.chain, &[again], &one, NOW.plus_micros(60_000_000)).await.unwrap();
        assert!(matches!(&queued[0], Enqueued::Queued { .. }), "{queued:?}");
        let second = db.job(again.job).await.unwrap().unwrap().0.job;
        assert_eq!((second.rounds, second.signed_as()), (1, SignedAs::Withdrawal(id(1))));
        // When its time is over it fails, whatever policy says.
        short(db, &desk, again.job).await;
        let late = NOW.plus_micros(24 * HOUR);
        let settled = db.settle_withdrawals(&[id(1)], &one, late).await.unwrap();
        assert_eq!(settled, SettledBatch { failed: vec![id(1)], ..SettledBatch::default() });
        assert_eq!(desk.balance(db, 0).await, "100000/0");
        assert_clean(db).await;
    }

    /// What nobody has signed in time goes back by itself.
    async fn what_is_too_old_is_given_back(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 2_000)).await;
        taken(db, &desk.ask(2, 500)).await;
        let late = NOW.plus_micros(24 * HOUR);
        let early = late.plus_micros(-1);
        assert!(db.withdrawals_expired(desk.chain.id, early, None, 9).await.unwrap().is_empty());
        let both = nothing(&[1, 2]);
        assert_eq!(db.expire_withdrawals(&[id(1)], &both, early).await.unwrap(), [DecisionReply::NotNow(WithdrawalState::Pending)]);
        assert_eq!(db.withdrawals_expired(desk.chain.id, late, None, 9).await.unwrap(), [id(1), id(2)]);
        assert_eq!(db.enqueue_withdrawals(&desk.chain, &[desk.terms(2)], &both, late).await.unwrap(), [Enqueued::TooLate]);
        let replies = db.expire_withdrawals(&[id(1), id(2)], &both, late).await.unwrap();
        assert!(replies.iter().all(|reply| matches!(reply, DecisionReply::Done(row) if row.state == WithdrawalState::Failed)), "{replies:?}");
        assert_eq!(desk.balance(db, 0).await, "100000/0");
        assert_clean(db).await;
    }

    /// A wallet that sends nothing is given nothing; of another group neither, because people have signed who pays.
    async fn a_stopped_lane_is_given_no_withdrawal(db: TestDb) {
        let desk = Desk::open(db).await;
        for number in 1..=4 {
            taken(db, &desk.ask(number, 500)).await;
        }
        let Enqueued::Queued { job, from, .. } = enqueue(db, &desk, 1).await else { panic!("queued") };
        let lane = db.job(job).await.unwrap().unwrap().0.job.lane;
        db.stop_lane(lane, "people look", NOW).await.unwrap();
        for number in 2..=3 {
            let Enqueued::Queued { from: other, .. } = enqueue(db, &desk, number).await else { panic!("queued") };
            assert_ne!(from, other);
        }
        db.by_hand("UPDATE wallet_groups SET outbound_stopped = 'stolen' WHERE name = 'hot'").await.unwrap();
        assert_eq!(enqueue(db, &desk, 4).await, Enqueued::NoWallet);
        assert_clean(db).await;
    }

    /// Many small ones are as good as a large one.
    async fn what_nobody_agreed_to_adds_up_on_a_day(db: TestDb) {
        let desk = Desk::open(db).await;
        desk.set(db, &WithdrawalPolicy { auto_approve_daily: Some(units(2_000)), ..policy() }).await;
        let asked: Vec<NewWithdrawal> = (1..=3).map(|number| desk.ask(number, 900)).collect();
        let answers = db.create_withdrawals(&asked, NOW).await.unwrap();
        let people: Vec<u32> = answers.iter().map(|answer| answer.row().unwrap().people).collect();
        assert_eq!(people, [0, 0, 1]);
        assert_eq!(taken(db, &desk.ask(4, 200)).await.people, 0, "what people agree to does not count");
        assert_eq!(taken(db, &NewWithdrawal { user: user(2), ..desk.ask(5, 900) }).await.people, 0, "each has a day of their own");
        cancel(db, 1).await;
        assert_eq!(taken(db, &desk.ask(6, 900)).await.people, 0, "what was given back does not count");
        let tomorrow = db.create_withdrawals(&[desk.ask(7, 900)], NOW.plus_micros(24 * HOUR)).await.unwrap();
        assert_eq!(tomorrow[0].row().unwrap().people, 0);
        assert_clean(db).await;
    }

    /// Books that were changed by hand are named.
    async fn the_audit_names_a_withdrawal_that_contradicts_its_money(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 500)).await;
        enqueue(db, &desk, 1).await;
        assert_clean(db).await;
        let named = async || {
            let report = db.audit(|_| ()).await.unwrap();
            let finding = report.findings.into_iter().find(|finding| finding.check == "withdrawals").unwrap();
            finding.violation.map(|violation| violation.problem)
        };
        db.by_hand("UPDATE withdrawal_requests SET status = 'failed', version = version + 1;
            INSERT INTO withdrawal_events (withdrawal_id, version, status, actor, reason, at) VALUES (1, 4, 'failed', 'x', 'x', 0)").await.unwrap();
        assert_eq!(named().await.as_deref(), Some("it is failed, and its hold says otherwise"));
    }
}

// ---- the source's queries ------------------------------------------------------------------------------------------

/// Every monitoring query of 000, unchanged: what waits for people, what is being paid, what failed, what is stuck.
#[test]
fn postgres_each_query_of_000_runs_as_it_is_printed_on_withdrawals() {
    on(Engine::Postgres, async |db| {
        let desk = Desk::open(db).await;
        for (number, amount) in [(1, 20_000), (2, 20_000), (3, 500), (4, 500), (5, 500), (6, 500)] {
            taken(db, &desk.ask(number, amount)).await;
        }
        for number in 3..=6 {
            enqueue(db, &desk, number).await;
        }
        let job = |number: i64| JobId::new(1_000 + number).unwrap();
        // The third is out, of the fourth the slot is written down and nobody has signed it, the fifth has failed, the sixth waits.
        let says = send(db, &desk, job(3)).await;
        let held =
            db.take_lanes((desk.chain.id, Duty::Send), "one", 9, NOW, NOW.plus_micros(60_000_000)).await.unwrap();
        let lane = db.job(job(4)).await.unwrap().unwrap().0.job.lane;
        let (kind, payload, coins) = (AttemptKind::Pay, vec![4], None);
        let slot = NewSlot {
            id: SlotId(4),
            lane,
            nonce: Some(4),
            since: 1,
            jobs: vec![(job(4), 1)],
            kind,
            payload,
            coins,
            instead: None,
        };
        db.open_slots(&held, &[slot], &[], &[], &std::collections::HashMap::new(), NOW).await.unwrap();
        db.cancel_job(job(5), "ann", NOW).await.unwrap();
        settle(db, 5).await;
        let queries = statements(section(SOURCE_000, "Queries"));
        let [pending, active, failed, stuck] = queries.as_slice() else { panic!("{queries:#?}") };
        let count = async |query: &str| printed(db, "", query).await[0][0].clone().unwrap();
        assert_eq!((count(pending).await.as_str(), count(active).await.as_str()), ("2", "3"));
        let row = printed(db, "", failed).await.remove(0);
        assert_eq!((row[0].clone(), row[1].clone()), (Some(uuid(7, 1_005)), Some(uuid(10, 5))));
        assert_eq!(row[2].as_deref(), Some("given up by ann"));
        let rows = printed(db, "", stuck).await;
        assert_eq!(
            (rows.len(), rows[0][0].clone(), rows[0][1].as_deref()),
            (1, Some(uuid(7, 1_004)), Some("processing"))
        );
        says(db, SlotWord::Deep(Effect::InFull)).await;
        settle(db, 3).await;
        approve(db, 1, "ann").await;
        approve(db, 1, "bob").await;
        assert_eq!((count(pending).await.as_str(), count(active).await.as_str()), ("1", "2"));
        assert_clean(db).await;
    });
}

// ---- two at once ---------------------------------------------------------------------------------------------------

#[test]
fn postgres_two_that_ask_the_same_at_once_hold_once() {
    on(Engine::Postgres, async |db| {
        let desk = Desk::open(db).await;
        for at in 0.. {
            let numbers = [10 * at + 10, 10 * at + 11];
            let name = ClientOrderId::new(format!("at-{at}")).unwrap();
            let new = numbers.map(|number| NewWithdrawal { client_order_id: name.clone(), ..desk.ask(number, 100) });
            let met = meet(db, at, async |db| one(&db, &new[0]).await, async |db| one(&db, &new[1]).await).await;
            assert_eq!(met.first.row().unwrap().id, met.second.row().unwrap().id, "point {at}: {met:?}");
            assert_eq!(
                desk.balance(db, 0).await,
                format!("{}/{}", 100_000 - 110 * (at + 1), 110 * (at + 1)),
                "point {at}"
            );
            if !met.reached {
                break;
            }
        }
        assert_clean(db).await;
    });
}

/// The last of the money, by two requests.
#[test]
fn postgres_two_that_ask_for_all_at_once_do_not_both_get_it() {
    on(Engine::Postgres, async |db| {
        let desk = Desk::open(db).await;
        for at in 0.. {
            let [first, second] = [10 * at + 10, 10 * at + 11].map(|number| desk.ask(number, 60_000));
            let met = meet(db, at, async |db| one(&db, &first).await, async |db| one(&db, &second).await).await;
            let taken: Vec<WithdrawalId> =
                [&met.first, &met.second].into_iter().filter_map(|one| Some(one.row()?.id)).collect();
            assert_eq!(taken.len(), 1, "point {at}: {met:?}");
            db.cancel_withdrawals(&[(user(1), taken[0])], &nothing(&[taken[0].number()]), NOW).await.unwrap();
            if !met.reached {
                break;
            }
        }
        assert_eq!(desk.balance(db, 0).await, "100000/0");
        assert_clean(db).await;
    });
}

/// Users have nothing in common but the sum of the day.
#[test]
fn postgres_two_users_at_once_do_not_exceed_the_limit_of_all() {
    on(Engine::Postgres, async |db| {
        let desk = Desk::open(db).await;
        desk.set(db, &WithdrawalPolicy { daily_total: Some(units(100_000)), ..policy() }).await;
        for at in 0.. {
            let first = desk.ask(10 * at + 10, 60_000);
            let second = NewWithdrawal { user: user(2), ..desk.ask(10 * at + 11, 60_000) };
            let met = meet(db, at, async |db| one(&db, &first).await, async |db| one(&db, &second).await).await;
            let taken: Vec<(UserId, WithdrawalId)> = [&met.first, &met.second]
                .into_iter()
                .filter_map(|one| Some((one.row()?.user, one.row()?.id)))
                .collect();
            assert_eq!(taken.len(), 1, "point {at}: {met:?}");
            db.cancel_withdrawals(
                &taken,
                &nothing(&taken.iter().map(|(_, one)| one.number()).collect::<Vec<_>>()),
                NOW,
            )
            .await
            .unwrap();
            if !met.reached {
                break;
            }
        }
        assert_clean(db).await;
    });
}

/// Who read the policy before the limit was set counts nothing. Whoever counts first waits for that request, at whatever point it stands.
#[test]
fn postgres_the_first_sum_of_a_day_has_what_was_under_way() {
    on(Engine::Postgres, async |db| {
        let desk = Desk::open(db).await;
        let limit = WithdrawalPolicy { daily_total: Some(units(100_000)), ..policy() };
        for at in 0.. {
            let day = NOW.plus_micros(at * 24 * HOUR);
            let first = desk.ask(10 * at + 10, 100);
            let second = NewWithdrawal { user: user(2), ..desk.ask(10 * at + 11, 60) };
            let create = async |db: Db, new: &NewWithdrawal| {
                let made = db.create_withdrawals(std::slice::from_ref(new), day).await.unwrap().remove(0);
                assert!(made.row().is_some(), "point {at}: {made:?}");
            };
            let begin = async |db: Db| {
                desk.set(&db, &limit).await;
                create(db, &second).await;
            };
            let met = meet(db, at, async |db| create(db, &first).await, begin).await;
            assert_eq!(used(db).await.last().unwrap(), "160", "point {at}: {met:?}");
            assert!(db.audit(|_| ()).await.unwrap().clean(), "point {at}");
            desk.set(db, &policy()).await;
            if !met.reached {
                break;
            }
        }
    });
}

/// The other way round: what is given back while the first sum is made is in that sum or taken from it, and never both left out.
#[test]
fn postgres_the_first_sum_of_a_day_does_not_keep_what_is_given_back() {
    on(Engine::Postgres, async |db| {
        let desk = Desk::open(db).await;
        let limit = WithdrawalPolicy { daily_total: Some(units(100_000)), ..policy() };
        for at in 0.. {
            let day = NOW.plus_micros(at * 24 * HOUR);
            let create = async |db: &Db, new: NewWithdrawal| {
                db.create_withdrawals(&[new], day).await.unwrap().remove(0).row().expect("taken").id
            };
            let number = create(db, desk.ask(10 * at + 10, 100)).await.number();
            let give_back = async |db: Db| {
                let reply = db.cancel_withdrawals(&[(user(1), id(number))], &nothing(&[number]), day).await.unwrap();
                assert!(matches!(reply[0], DecisionReply::Done(_)), "point {at}: {reply:?}");
            };
            let begin = async |db: Db| {
                desk.set(&db, &limit).await;
                create(&db, NewWithdrawal { user: user(2), ..desk.ask(10 * at + 11, 60) }).await;
            };
            let met = meet(db, at, give_back, begin).await;
            assert_eq!(used(db).await.last().unwrap(), "60", "point {at}: {met:?}");
            assert!(db.audit(|_| ()).await.unwrap().clean(), "point {at}");
            desk.set(db, &policy()).await;
            if !met.reached {
                break;
            }
        }
    });
}

/// The sums of the days, the newest last.
async fn used(db: &TestDb) -> Vec<String> {
    let rows = db.ask("", "SELECT used FROM withdrawal_days ORDER BY day").await.unwrap();
    rows.into_iter().map(|row| row[0].clone().unwrap()).collect()
}

#[test]
fn postgres_two_policies_at_once_are_two_versions() {
    on(Engine::Postgres, async |db| {
        let desk = Desk::open(db).await;
        for at in 0.. {
            let set = async |db: Db, max: i64| {
                let policy = WithdrawalPolicy { max: units(max), ..policy() };
                db.set_withdrawal_policy(desk.listing, &policy, &AUTHOR, NOW).await.unwrap()
            };
            let met = meet(db, at, async |db| set(db, 1_000 + at).await, async |db| set(db, 2_000 + at).await).await;
            assert!(
                matches!((&met.first, &met.second), (PolicySet::New(one), PolicySet::New(other)) if one != other),
                "point {at}: {met:?}"
            );
            if !met.reached {
                break;
            }
        }
    });
}

/// The race by which others paid twice.
#[test]
fn postgres_a_cancel_and_a_job_at_once_are_one_of_the_two() {
    on(Engine::Postgres, async |db| {
        let desk = Desk::open(db).await;
        for swapped in [false, true] {
            for at in 0.. {
                let number = 10 * at + 10 + i64::from(swapped);
                taken(db, &desk.ask(number, 100)).await;
                let queue = async |db: Db| matches!(enqueue(&db, &desk, number).await, Enqueued::Queued { .. });
                let call_off = async |db: Db| matches!(cancel(&db, number).await, DecisionReply::Done(_));
                let (queued, cancelled, reached) = if swapped {
                    let met = meet(db, at, call_off, queue).await;
                    (met.second, met.first, met.reached)
                } else {
                    let met = meet(db, at, queue, call_off).await;
                    (met.first, met.second, met.reached)
                };
                assert!(queued != cancelled, "point {at}: queued {queued}, cancelled {cancelled}");
                let jobs = db.jobs_of_withdrawal(id(number)).await.unwrap().len();
                assert_eq!(jobs, usize::from(queued), "point {at}");
                if !reached {
                    break;
                }
            }
        }
        assert_clean(db).await;
    });
}

#[test]
fn postgres_an_approval_and_a_cancel_at_once_leave_one_history() {
    on(Engine::Postgres, async |db| {
        let desk = Desk::open(db).await;
        for at in 0.. {
            let number = 10 * at + 10;
            taken(db, &desk.ask(number, 2_000)).await;
            let met =
                meet(db, at, async |db| approve(&db, number, "ann").await, async |db| cancel(&db, number).await).await;
            // Either nobody could approve any more, or it was approved first and then called off.
            assert!(matches!(met.second, DecisionReply::Done(_)), "point {at}: {met:?}");
            let approved = matches!(met.first, WithdrawalApproved::Approved(_));
            let history: Vec<WithdrawalState> =
                db.withdrawal_history(id(number)).await.unwrap().into_iter().map(|step| step.state).collect();
            assert_eq!(history.contains(&WithdrawalState::Approved), approved, "point {at}: {history:?}");
            assert_eq!(history.last(), Some(&WithdrawalState::Cancelled), "point {at}");
            if !met.reached {
                break;
            }
        }
        assert_eq!(desk.balance(db, 0).await, "100000/0");
        assert_clean(db).await;
    });
}

#[test]
fn postgres_two_that_settle_or_queue_at_once_do_it_once() {
    on(Engine::Postgres, async |db| {
        let desk = Desk::open(db).await;
        for at in 0.. {
            let number = 10 * at + 10;
            taken(db, &desk.ask(number, 100)).await;
            let queue = async |db: Db, job: i64| {
                let terms = Enqueue { job: JobId::new(job).unwrap(), ..desk.terms(number) };
                db.enqueue_withdrawals(&desk.chain, &[terms], &nothing(&[terms.withdrawal.number()]), NOW)
                    .await
                    .unwrap()
                    .remove(0)
            };
            let met =
                meet(db, at, async |db| queue(db, 5_000 + number).await, async |db| queue(db, 5_001 + number).await)
                    .await;
            let queued =
                [&met.first, &met.second].into_iter().filter(|one| matches!(one, Enqueued::Queued { .. })).count();
            let jobs = db.jobs_of_withdrawal(id(number)).await.unwrap();
            assert_eq!((queued, jobs.len()), (1, 1), "point {at}: {met:?}");
            db.cancel_job(jobs[0].0, "ann", NOW).await.unwrap();
            let met_again =
                meet(db, at, async |db| settle(&db, number).await, async |db| settle(&db, number).await).await;
            let failed = met_again.first.failed.len() + met_again.second.failed.len();
            assert_eq!(failed, 1, "point {at}: {met_again:?}");
            if !met.reached && !met_again.reached {
                break;
            }
        }
        assert_eq!(desk.balance(db, 0).await, "100000/0");
        assert_clean(db).await;
    });
}

// ---- killed at every step ------------------------------------------------------------------------------------------

/// Fails at its n-th point: before a statement, before the commit, or after it without an answer.
#[derive(Debug)]
struct FailsAt(AtomicI64);

impl Faults for FailsAt {
    fn strike(&self, point: Point) -> Strike {
        let error = (self.0.fetch_sub(1, Ordering::SeqCst) == 0).then(|| match point {
            Point::Statement | Point::BeforeCommit => StoreError::Unavailable(simulated()),
            Point::AfterCommit => StoreError::CommitUnknown(simulated()),
        });
        Box::pin(std::future::ready(error.map_or(Ok(()), Err)))
    }
}

/// The same database, which loses its connection at its point number `at`.
pub fn failing_at(db: &Db, at: i64) -> Db {
    db.with_faults(Arc::new(FailsAt(AtomicI64::new(at))) as Arc<dyn Faults>)
}

/// Does a piece of work that dies at each of its points in turn, and then does it again as it was. Says how many points there were.
async fn at_every_point(
    db: &TestDb,
    mut prepare: impl AsyncFnMut(i64),
    mut work: impl AsyncFnMut(&Db, i64) -> Result<(), StoreError>,
    mut check: impl AsyncFnMut(i64),
) -> i64 {
    for at in 0.. {
        prepare(at).await;
        let dying = db.with_faults(Arc::new(FailsAt(AtomicI64::new(at))) as Arc<dyn Faults>);
        let died = work(&dying, at).await.is_err();
        work(db, at).await.unwrap();
        check(at).await;
        assert_clean(db).await;
        if !died {
            return at;
        }
    }
    0
}

db_test! {
    async fn a_request_that_dies_anywhere_is_sent_again_and_held_once(db: TestDb) {
        let desk = Desk::open(db).await;
        let mut number = 0;
        let points = at_every_point(db, async |_| {}, async |db, at| {
            // A server that begins anew gives it another number.
            number += 1;
            let client_order_id = ClientOrderId::new(format!("at-{at}")).unwrap();
            db.create_withdrawals(&[NewWithdrawal { client_order_id, ..desk.ask(number, 100) }], NOW).await.map(drop)
        }, async |at| {
            assert_eq!(desk.balance(db, 0).await, format!("{}/{}", 100_000 - 110 * (at + 1), 110 * (at + 1)), "point {at}");
        }).await;
        assert!(points > 8, "{points}");
    }

    async fn a_cancel_that_dies_anywhere_gives_back_once(db: TestDb) {
        let desk = Desk::open(db).await;
        let number = |at: i64| at + 10;
        let points = at_every_point(db, async |at| drop(taken(db, &desk.ask(number(at), 100)).await), async |db, at| {
            db.cancel_withdrawals(&[(user(1), id(number(at)))], &nothing(&[number(at)]), NOW).await.map(drop)
        }, async |at| assert_eq!(desk.balance(db, 0).await, "100000/0", "point {at}")).await;
        assert!(points > 5, "{points}");
    }

    /// The last signature and the approval are one commit.
    async fn an_approval_that_dies_anywhere_is_one(db: TestDb) {
        let desk = Desk::open(db).await;
        let number = |at: i64| at + 10;
        let points = at_every_point(db, async |at| {
            taken(db, &desk.ask(number(at), 2_000)).await;
        }, async |db, at| db.approve_withdrawal(&signature(number(at), "ann", 7), NOW).await.map(drop),
        async |at| {
            assert_eq!(state(db, number(at)).await, WithdrawalState::Approved, "point {at}");
            assert_eq!(db.withdrawal_approvals(&[id(number(at))]).await.unwrap().len(), 1, "point {at}");
            cancel(db, number(at)).await;
        }).await;
        assert!(points > 6, "{points}");
    }

    /// Too little, another job, and it dies anywhere: the hold stays one, and there are two jobs.
    async fn a_second_job_that_dies_anywhere_is_one(db: TestDb) {
        let desk = Desk::open(db).await;
        desk.set(db, &WithdrawalPolicy { when_short: WhenShort::Wait, ..policy() }).await;
        let number = |at: i64| at + 10;
        let mut tries = 0;
        let points = at_every_point(db, async |at| {
            taken(db, &desk.ask(number(at), 100)).await;
            enqueue(db, &desk, number(at)).await;
            let job = JobId::new(1_000 + number(at)).unwrap();
            let row = db.job(job).await.unwrap().unwrap().0.job;
            let held = db.take_lanes((desk.chain.id, Duty::Send), "one", 9, NOW, NOW.plus_micros(60_000_000)).await.unwrap();
            let put_off = PutOff {
                lane: row.lane, job, version: row.version, over: true, words: "too little".into(), history: None, due: NOW, tried: true, short: true,
            };
            db.open_slots(&held, &[], &[], &[put_off], &std::collections::HashMap::new(), NOW).await.unwrap();
        }, async |db, at| {
            tries += 1;
            let (one, signed) = (id(number(at)), nothing(&[number(at)]));
            db.settle_withdrawals(&[one], &signed, NOW).await?;
            let again = Enqueue { withdrawal: one, job: JobId::new(90_000 + tries).unwrap() };
            db.enqueue_withdrawals(&desk.chain, &[again], &signed, NOW.plus_micros(60_000_000)).await.map(drop)
        }, async |at| {
            assert_eq!(state(db, number(at)).await, WithdrawalState::Queued, "point {at}");
            assert_eq!(db.jobs_of_withdrawal(id(number(at))).await.unwrap().len(), 2, "point {at}");
            let held = 110 * (at + 1);
            assert_eq!(desk.balance(db, 0).await, format!("{}/{held}", 100_000 - held), "point {at}");
        }).await;
        assert!(points > 12, "{points}");
    }

    async fn a_job_that_is_made_while_everything_dies_is_one_job(db: TestDb) {
        let desk = Desk::open(db).await;
        let number = |at: i64| at + 10;
        let mut tries = 0;
        let points = at_every_point(db, async |at| drop(taken(db, &desk.ask(number(at), 100)).await), async |db, at| {
            tries += 1;
            let terms = Enqueue { job: JobId::new(5_000 + tries).unwrap(), ..desk.terms(number(at)) };
            db.enqueue_withdrawals(&desk.chain, &[terms], &nothing(&[terms.withdrawal.number()]), NOW).await.map(drop)
        }, async |at| {
            assert_eq!(db.jobs_of_withdrawal(id(number(at))).await.unwrap().len(), 1, "point {at}");
            assert_eq!(state(db, number(at)).await, WithdrawalState::Queued, "point {at}");
        }).await;
        assert!(points > 8, "{points}");
    }

    async fn an_end_that_dies_anywhere_is_settled_or_released_once(db: TestDb) {
        let desk = Desk::open(db).await;
        // Failed for good.
        let number = |at: i64| at + 10;
        let points = at_every_point(db, async |at| {
            taken(db, &desk.ask(number(at), 100)).await;
            enqueue(db, &desk, number(at)).await;
            db.cancel_job(JobId::new(1_000 + number(at)).unwrap(), "ann", NOW).await.unwrap();
        }, async |db, at| db.settle_withdrawals(&[id(number(at))], &nothing(&[number(at)]), NOW).await.map(drop),
        async |at| assert_eq!(desk.balance(db, 0).await, "100000/0", "point {at}")).await;
        assert!(points > 6, "{points}");
        // Settled inside.
        let number = |at: i64| at + 500;
        at_every_point(db, async |at| drop(taken(db, &desk.ask(number(at), 100)).await), async |db, at| {
            db.settle_inside(&[SettleInside { withdrawal: id(number(at)), payee: user(2) }], &nothing(&[number(at)]), NOW).await.map(drop)
        }, async |at| {
            assert_eq!(desk.balance(db, 0).await, format!("{}/0", 100_000 - 110 * (at + 1)), "point {at}");
            assert_eq!(desk.balance(db, 1).await, format!("{}/0", 100_000 + 100 * (at + 1)), "point {at}");
        }).await;
    }
}
