//! What became of withdrawals whose jobs have ended: what gives money back, and what never does.

use domain::AccountStatus;
use domain::outbound::{Effect, JobState, SlotWord};
use domain::withdrawal::{WhenShort, WithdrawalPolicy, WithdrawalState};
use store::testing::{NOW, on};
use store::withdrawal::{
    DecisionReply, DueAfter, Enqueued, InsideReply, SettleInside, SettledBatch, SignedRounds, WithdrawalVerdict,
};
use store::{Db, Engine, db_test};

use crate::support::*;
use crate::withdrawals::{Desk, cancel, enqueue, id, nothing, policy, send, settle, short, state, taken, user};

const HOUR: i64 = 3_600_000_000;

/// Asked for, queued, and approved again because the hot wallet had too little.
async fn approved_again(db: &Db, desk: &Desk, number: i64) {
    desk.set(db, &WithdrawalPolicy { when_short: WhenShort::Wait, ..policy() }).await;
    taken(db, &desk.ask(number, 500)).await;
    let Enqueued::Queued { job, .. } = enqueue(db, desk, number).await else { panic!("queued") };
    short(db, desk, job).await;
    assert_eq!(settle(db, number).await, SettledBatch { short: vec![id(number)], ..SettledBatch::default() });
    assert_eq!(db.jobs_of_withdrawal(id(number)).await.unwrap(), [(job, JobState::FailedFinal)]);
}

db_test! {
    /// They have read on the chain that it was paid. What became of the job that it had before says nothing of that.
    async fn what_two_people_judged_paid_is_not_given_back(db: TestDb) {
        let desk = Desk::open(db).await;
        approved_again(db, &desk, 1).await;
        let more = SignedRounds::of([(id(1), Some(1))]);
        assert_eq!(db.cancel_withdrawals(&[(user(1), id(1))], &more, NOW).await.unwrap(), [DecisionReply::SignerKnowsMore]);
        let people = domain::Approval::new("ann", "bob", "read on the chain").unwrap();
        let judged = db.judge_withdrawals(&[(id(1), WithdrawalVerdict::Paid)], &people, &more, NOW).await.unwrap();
        assert!(matches!(&judged[0], DecisionReply::Done(row) if row.state == WithdrawalState::Completed), "{judged:?}");
        assert!(db.withdrawals_taken_back(desk.chain.id, None, 9).await.unwrap().is_empty());
        assert_eq!(settle(db, 1).await, SettledBatch::default());
        assert_eq!((state(db, 1).await, desk.balance(db, 0).await.as_str()), (WithdrawalState::Completed, "99490/0"));
        assert_clean(db).await;
    }

    async fn what_was_settled_inside_is_not_given_back(db: TestDb) {
        let desk = Desk::open(db).await;
        approved_again(db, &desk, 1).await;
        let inside = [SettleInside { withdrawal: id(1), payee: user(2) }];
        let replies = db.settle_inside(&inside, &nothing(&[1]), NOW).await.unwrap();
        assert!(matches!(&replies[0], InsideReply::Settled(_)), "{replies:?}");
        assert!(db.withdrawals_taken_back(desk.chain.id, None, 9).await.unwrap().is_empty());
        assert_eq!(settle(db, 1).await, SettledBatch::default());
        assert_eq!((desk.balance(db, 0).await.as_str(), desk.balance(db, 1).await.as_str()), ("99490/0", "100500/0"));
        assert!(matches!(cancel(db, 1).await, DecisionReply::NotNow(WithdrawalState::Completed)));
        assert_clean(db).await;
    }

    /// A row of each list that stays where it is does not keep those behind it waiting.
    async fn each_list_goes_on_behind_what_stays(db: TestDb) {
        let desk = Desk::open(db).await;
        for number in 1..=3 {
            taken(db, &desk.ask(number, 500)).await;
        }
        let late = NOW.plus_micros(24 * HOUR);
        assert_eq!(db.withdrawals_expired(desk.chain.id, late, Some(id(1)), 1).await.unwrap(), [id(2)]);
        let mut jobs = Vec::new();
        for number in 1..=3 {
            let Enqueued::Queued { job, .. } = enqueue(db, &desk, number).await else { panic!("queued") };
            jobs.push(job);
        }
        for job in &jobs[..2] {
            db.cancel_job(*job, "ann", NOW).await.unwrap();
        }
        let says = send(db, &desk, jobs[2]).await;
        says(db, SlotWord::Deep(Effect::InFull)).await;
        // What is paid comes at once, whatever failed before it.
        let due = db.withdrawals_due(desk.chain.id, DueAfter::default(), 1).await.unwrap();
        assert_eq!((due.paid, due.failed), (vec![id(3)], vec![id(1)]));
        let due = db.withdrawals_due(desk.chain.id, DueAfter { failed: Some(id(1)), approved: None }, 1).await.unwrap();
        assert_eq!((due.paid, due.failed), (vec![id(3)], vec![id(2)]));
        settle(db, 3).await;
        db.by_hand("UPDATE outbound_jobs SET state = 'failed_final', slot_id = NULL WHERE id = 1003").await.unwrap();
        assert_eq!(db.withdrawals_taken_back(desk.chain.id, Some(id(2)), 9).await.unwrap(), [id(3)]);
        assert!(db.withdrawals_taken_back(desk.chain.id, Some(id(3)), 9).await.unwrap().is_empty());
    }

    /// The worker gives back what the chain took back, but not while the signer knows more: then two people say so, and the customer has it again.
    async fn what_was_taken_back_and_kept_goes_back_by_two_people(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 500)).await;
        taken(db, &desk.ask(2, 500)).await;
        let people = domain::Approval::new("ann", "bob", "read on the chain").unwrap();
        let more = SignedRounds::of([(id(1), Some(2)), (id(2), Some(2))]);
        let judge = async |number: i64, signed: &SignedRounds| {
            let verdict = [(id(number), WithdrawalVerdict::Unpaid)];
            db.judge_withdrawals(&verdict, &people, signed, NOW).await.unwrap().remove(0)
        };
        for number in 1..=2 {
            let Enqueued::Queued { job, .. } = enqueue(db, &desk, number).await else { panic!("queued") };
            let says = send(db, &desk, job).await;
            says(db, SlotWord::Deep(Effect::InFull)).await;
            let none = SignedRounds::default();
            let settled = db.settle_withdrawals(&[id(number)], &none, NOW).await.unwrap();
            assert_eq!(settled.completed, [id(number)], "what was paid needs no word");
            // It may still pay, whatever two people say.
            assert_eq!(judge(number, &more).await, DecisionReply::NotNow(WithdrawalState::Completed));
            if number == 1 {
                says(db, SlotWord::Left).await;
                says(db, SlotWord::Lost).await;
                db.cancel_job(job, "ann", NOW).await.unwrap();
            }
        }
        assert_eq!(db.settle_withdrawals(&[id(1)], &more, NOW).await.unwrap(), SettledBatch { kept: vec![id(1)], ..SettledBatch::default() });
        let same = SignedRounds::of([(id(1), Some(1))]);
        assert_eq!(judge(1, &SignedRounds::default()).await, DecisionReply::SignerNotAsked);
        assert_eq!(judge(1, &same).await, DecisionReply::NothingToJudge, "the worker gives it back by itself");
        // An account that takes nothing is given nothing.
        let status = |name: &str, status| store::ledger::StatusChange {
            key: key(name), account: desk.bank.users[0], status, actor: "ana".into(), reason: "test".into(),
        };
        db.set_status(&[status("off", AccountStatus::Disabled)], NOW).await.unwrap();
        assert_eq!(judge(1, &more).await, DecisionReply::NotNow(WithdrawalState::Completed));
        db.set_status(&[status("on", AccountStatus::Active)], NOW).await.unwrap();
        assert!(matches!(judge(1, &more).await, DecisionReply::Done(row) if row.state == WithdrawalState::Failed && row.judged.is_some()));
        assert_eq!(judge(1, &more).await, DecisionReply::NotNow(WithdrawalState::Failed));
        assert_eq!((state(db, 1).await, desk.balance(db, 0).await.as_str()), (WithdrawalState::Failed, "99490/0"));
        assert_clean(db).await;
    }

    /// The same of one that was paid by what the database has forgotten: it stays completed, no money moves, and nobody is told of it again.
    async fn what_was_taken_back_and_kept_may_be_judged_paid(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 500)).await;
        let people = domain::Approval::new("ann", "bob", "read on the chain").unwrap();
        let more = SignedRounds::of([(id(1), Some(2))]);
        let judge = async |signed: &SignedRounds| {
            db.judge_withdrawals(&[(id(1), WithdrawalVerdict::Paid)], &people, signed, NOW).await.unwrap().remove(0)
        };
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 1).await else { panic!("queued") };
        let says = send(db, &desk, job).await;
        says(db, SlotWord::Deep(Effect::InFull)).await;
        settle(db, 1).await;
        assert_eq!(judge(&more).await, DecisionReply::NotNow(WithdrawalState::Completed), "its job has paid it");
        says(db, SlotWord::Left).await;
        says(db, SlotWord::Lost).await;
        db.cancel_job(job, "ann", NOW).await.unwrap();
        let kept = SettledBatch { kept: vec![id(1)], ..SettledBatch::default() };
        assert_eq!(db.settle_withdrawals(&[id(1)], &more, NOW).await.unwrap(), kept);
        assert_eq!(db.withdrawals_taken_back(desk.chain.id, None, 9).await.unwrap(), [id(1)]);
        assert_eq!(judge(&SignedRounds::default()).await, DecisionReply::SignerNotAsked);
        let same = SignedRounds::of([(id(1), Some(1))]);
        assert_eq!(judge(&same).await, DecisionReply::NothingToJudge);
        // Nobody writes that beside the machine, and nobody takes it back.
        let by_hand = async |change: &str| db.by_hand(&format!("UPDATE withdrawal_requests SET {change} WHERE id = 1")).await;
        assert!(by_hand("judged = 'x'").await.is_err() && by_hand("version = version + 1").await.is_err());
        assert!(matches!(judge(&more).await, DecisionReply::Done(row) if row.state == WithdrawalState::Completed && row.judged.is_some()));
        assert!(by_hand("judged = NULL, version = version + 1").await.is_err());
        assert!(by_hand("judged = 'x', version = version + 1").await.is_err());
        assert_eq!(judge(&more).await, DecisionReply::NotNow(WithdrawalState::Completed));
        assert!(db.withdrawals_taken_back(desk.chain.id, None, 9).await.unwrap().is_empty());
        assert_eq!(db.settle_withdrawals(&[id(1)], &more, NOW).await.unwrap(), SettledBatch::default());
        assert_eq!((state(db, 1).await, desk.balance(db, 0).await.as_str()), (WithdrawalState::Completed, "99490/0"));
        let last = db.withdrawal_history(id(1)).await.unwrap().pop().unwrap();
        assert_eq!((last.state, last.reason.as_str()), (WithdrawalState::Completed, "it was paid"));
        assert_clean(db).await;
    }

    /// Another program's transaction may still be mined there, so the wallet sends nothing.
    async fn a_wallet_that_waits_for_another_programs_payment_is_given_no_withdrawal(db: TestDb) {
        let desk = Desk::open(db).await;
        for number in 1..=3 {
            taken(db, &desk.ask(number, 500)).await;
        }
        let Enqueued::Queued { from: first, .. } = enqueue(db, &desk, 1).await else { panic!("queued") };
        let import = async |slot: i64, address: &str| {
            let sql = format!("INSERT INTO outbound_slots (id, lane_id, nonce, since_height, state, reason, created_at, updated_at, imported)
                SELECT {slot}, id, NULL, 1, 'open', '', 0, 0, TRUE FROM outbound_lanes WHERE address = '{address}'");
            db.by_hand(&sql).await.unwrap();
        };
        import(901, &first).await;
        let Enqueued::Queued { from: second, .. } = enqueue(db, &desk, 2).await else { panic!("queued") };
        assert_ne!(first, second);
        db.by_hand("UPDATE operation_wallet_addresses SET last_used_at = NULL").await.unwrap();
        import(902, &second).await;
        assert_eq!(enqueue(db, &desk, 3).await, Enqueued::NoWallet);
        db.by_hand("UPDATE outbound_slots SET state = 'settled' WHERE id = 901").await.unwrap();
        let Enqueued::Queued { from, .. } = enqueue(db, &desk, 3).await else { panic!("queued") };
        assert_eq!(from, first);
    }

    /// Also after two people have signed it: the end of its job says nothing of what the other program did.
    async fn what_another_program_may_have_paid_is_not_released_by_its_job(db: TestDb) {
        let desk = Desk::open(db).await;
        for number in 1..=2 {
            taken(db, &desk.ask(number, 500)).await;
        }
        let table = if db.engine() == Engine::Postgres { " ON withdrawal_requests" } else { "" };
        for trigger in ["trg_withdrawal_fixed", "trg_withdrawal_counted"] {
            db.by_hand(&format!("DROP TRIGGER {trigger}{table}")).await.unwrap();
        }
        db.by_hand("UPDATE withdrawal_requests SET rule = 'imported_may_be_paid'").await.unwrap();
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 1).await else { panic!("queued") };
        db.cancel_job(job, "ann", NOW).await.unwrap();
        assert_eq!(settle(db, 1).await, SettledBatch { doubted: vec![id(1)], ..SettledBatch::default() });
        assert_eq!(state(db, 1).await, WithdrawalState::ManualReview);
        // Nor because it turns out to be the customer's own address.
        let inside = [SettleInside { withdrawal: id(2), payee: user(1) }];
        let replies = db.settle_inside(&inside, &nothing(&[2]), NOW).await.unwrap();
        assert!(matches!(&replies[0], InsideReply::Doubted(row) if row.state == WithdrawalState::ManualReview), "{replies:?}");
        assert_eq!(desk.balance(db, 0).await, "98980/1020");
        assert_eq!(cancel(db, 1).await, DecisionReply::NotNow(WithdrawalState::ManualReview));
        let people = domain::Approval::new("ann", "bob", "read on the chain").unwrap();
        let judged = db.judge_withdrawals(&[(id(1), WithdrawalVerdict::Unpaid)], &people, &nothing(&[1]), NOW).await.unwrap();
        assert!(matches!(&judged[0], DecisionReply::Done(row) if row.state == WithdrawalState::Failed), "{judged:?}");
        assert_eq!(desk.balance(db, 0).await, "99490/510");
        assert_clean(db).await;
    }

    /// A stopped lane is nobody's who sends, and its jobs end all the same. The other job still has time.
    async fn a_job_that_waits_too_long_ends_though_its_lane_is_stopped(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 500)).await;
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 1).await else { panic!("queued") };
        let lane = db.job(job).await.unwrap().unwrap().0.job.lane;
        db.stop_lane(lane, "people look", NOW).await.unwrap();
        let late = NOW.plus_micros(24 * HOUR);
        assert_eq!(db.end_overdue_jobs(desk.chain.id, late.plus_micros(-1), 9).await.unwrap(), 0);
        assert_eq!(db.end_overdue_jobs(desk.chain.id, late, 9).await.unwrap(), 1);
        assert_eq!(db.end_overdue_jobs(desk.chain.id, late, 9).await.unwrap(), 0);
        let settled = db.settle_withdrawals(&[id(1)], &nothing(&[1]), late).await.unwrap();
        assert_eq!(settled, SettledBatch { failed: vec![id(1)], ..SettledBatch::default() });
        assert_eq!(desk.balance(db, 0).await, "100000/0");
        assert_clean(db).await;
    }

    /// What has a slot may be out: its time ends on the chain.
    async fn a_job_that_has_a_slot_is_not_ended_by_the_clock(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 500)).await;
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 1).await else { panic!("queued") };
        let _said = send(db, &desk, job).await;
        assert_eq!(db.end_overdue_jobs(desk.chain.id, NOW.plus_micros(24 * HOUR), 9).await.unwrap(), 0);
    }
}

/// SQLite goes through the failed jobs by their index, and not through all jobs or all that was ever completed.
#[test]
fn what_was_taken_back_is_found_among_the_jobs_that_failed() {
    on(Engine::Sqlite, async |db| {
        let plan = store::testing::sqlite_plan_of_withdrawals(db, "READ_TAKEN_BACK").await;
        assert!(plan.lines().next().is_some_and(|step| step.contains("outbound_jobs_failed (chain_id=?)")), "{plan}");
        assert!(!plan.contains("SCAN"), "{plan}");
    });
}
