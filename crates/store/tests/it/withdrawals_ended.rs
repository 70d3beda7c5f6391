//! What became of withdrawals whose jobs have ended: what gives money back, and what never does.

use domain::outbound::JobState;
use domain::withdrawal::{WhenShort, WithdrawalPolicy, WithdrawalState};
use store::testing::NOW;
use store::withdrawal::{
    DecisionReply, Enqueued, InsideReply, SettleInside, SettledBatch, SignedRounds, WithdrawalVerdict,
};
use store::{Db, db_test};

use crate::support::*;
use crate::withdrawals::{Desk, cancel, enqueue, id, nothing, policy, settle, short, state, taken, user};

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
        assert!(db.withdrawals_taken_back(desk.chain.id, 9).await.unwrap().is_empty());
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
        assert!(db.withdrawals_taken_back(desk.chain.id, 9).await.unwrap().is_empty());
        assert_eq!(settle(db, 1).await, SettledBatch::default());
        assert_eq!((desk.balance(db, 0).await.as_str(), desk.balance(db, 1).await.as_str()), ("99490/0", "100500/0"));
        assert!(matches!(cancel(db, 1).await, DecisionReply::NotNow(WithdrawalState::Completed)));
        assert_clean(db).await;
    }
}
