//! Withdrawals that another program has begun, and has gone on with since they were taken over.

use domain::outbound::{Effect, JobState, SlotWord};
use domain::withdrawal::WithdrawalState;
use store::outbound::JobId;
use store::outbound::read::JobReply;
use store::testing::NOW;
use store::withdrawal::{
    ChangedReply, ChangedThere, Enqueued, ImportCourse, ImportReply, NewImport, SettledBatch, WithdrawalApproved,
};
use store::{Db, Engine, db_test};

use crate::support::assert_clean;
use crate::withdrawals::{Desk, approve, enqueue, id, send, settle, state, units, user};

/// One that waits for a person.
async fn imported(db: &Db, desk: &Desk, number: i64) {
    let new = NewImport {
        old_id: format!("old-{number}"),
        old_status: "pending".to_owned(),
        id: id(number),
        user: user(1),
        asset: desk.chain.listings[0].asset,
        chain: desk.chain.id,
        listing: desk.listing,
        to: "0xfar".to_owned(),
        amount: units(500),
        fee: units(10),
        inputs: "{}".to_owned(),
        course: ImportCourse::Waits { people: 1 },
    };
    let said = db.import_withdrawals(&[new], "ann", NOW).await.unwrap();
    assert!(matches!(said.as_slice(), [ImportReply::New(_)]), "{said:?}");
}

/// A person has signed it, and a job pays it.
async fn queued(db: &Db, desk: &Desk, number: i64) -> JobId {
    imported(db, desk, number).await;
    assert!(matches!(approve(db, number, "bob").await, WithdrawalApproved::Approved(_)));
    let Enqueued::Queued { job, .. } = enqueue(db, desk, number).await else { panic!("queued") };
    job
}

async fn doubt(db: &Db, number: i64) -> ChangedReply {
    let there = ChangedThere { id: id(number), followed: false, words: "it is completed there".to_owned() };
    db.doubt_imports(&[there], "ann", NOW).await.unwrap().remove(0)
}

async fn given_up(db: &Db, job: JobId) -> bool {
    db.job(job).await.unwrap().unwrap().0.job.give_up
}

db_test! {
    /// The doubt and the end of the job are one commit, and a run that finds the doubt but not the end makes up for it.
    async fn a_doubt_calls_the_job_off_whenever_it_is_said(db: TestDb) {
        let desk = Desk::open(db).await;
        let out = queued(db, &desk, 1).await;
        let says = send(db, &desk, out).await;
        for _ in 0..2 {
            assert_eq!(doubt(db, 1).await, ChangedReply::DoubtedWithJob(JobReply::Done));
            assert!(given_up(db, out).await, "nodes have it, and its cancel is wanted");
            // A program that was killed between the two has left it so.
            db.by_hand("UPDATE outbound_jobs SET give_up = FALSE").await.unwrap();
        }
        let row = db.withdrawals(&[id(1)]).await.unwrap().remove(0);
        assert_eq!((row.version, row.people), (4, 2), "the doubt itself is written once");
        assert_clean(db).await;
        // What waits for a slot is over at once, and then there is nothing to call off.
        let waits = queued(db, &desk, 2).await;
        assert_eq!(doubt(db, 2).await, ChangedReply::DoubtedWithJob(JobReply::Done));
        assert_eq!(db.jobs_of_withdrawal(id(2)).await.unwrap(), [(waits, JobState::FailedFinal)]);
        assert_eq!(doubt(db, 2).await, ChangedReply::Before);
        assert_eq!(settle(db, 2).await, SettledBatch { doubted: vec![id(2)], ..SettledBatch::default() });
        assert_eq!((doubt(db, 2).await, state(db, 2).await), (ChangedReply::Before, WithdrawalState::ManualReview));
        // What has no job waits for two people.
        imported(db, &desk, 3).await;
        assert_eq!([doubt(db, 3).await, doubt(db, 3).await], [ChangedReply::Doubted, ChangedReply::Before]);
        // What a block has nothing calls off, and that is said.
        says(db, SlotWord::Deep(Effect::InFull)).await;
        let too_late = ChangedReply::DoubtedWithJob(JobReply::NotNow(JobState::Confirmed));
        assert_eq!(doubt(db, 1).await, too_late);
        assert_eq!(settle(db, 1).await, SettledBatch { completed: vec![id(1)], ..SettledBatch::default() });
        assert_eq!(doubt(db, 1).await, ChangedReply::TooLate(WithdrawalState::Completed));
        assert_clean(db).await;
    }

    /// One person had to agree when its job was made; the doubt came later. That one must have signed all the same.
    async fn a_doubt_is_no_want_of_signatures_but_nobodys_is(db: TestDb) {
        let desk = Desk::open(db).await;
        let job = queued(db, &desk, 1).await;
        drop(send(db, &desk, job).await);
        assert_eq!(doubt(db, 1).await, ChangedReply::DoubtedWithJob(JobReply::Done));
        assert_clean(db).await;
        let table = if db.engine() == Engine::Postgres { " ON withdrawal_approvals" } else { "" };
        let triggers = if db.engine() == Engine::Postgres {
            vec!["trg_withdrawal_approval_fixed"]
        } else {
            vec!["trg_withdrawal_approval_fixed", "trg_withdrawal_approval_kept"]
        };
        for trigger in triggers {
            db.by_hand(&format!("DROP TRIGGER {trigger}{table}")).await.unwrap();
        }
        db.by_hand("DELETE FROM withdrawal_approvals").await.unwrap();
        let report = db.audit(|_| ()).await.unwrap();
        let found = format!("{:?}", report.findings);
        assert!(!report.clean() && found.contains("2 people had to agree, and fewer have signed"), "{found}");
    }
}
