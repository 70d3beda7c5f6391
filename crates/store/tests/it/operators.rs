//! Operators as rows, what they do to withdrawals with the line of their log, and the check outside that comes before anybody agrees.

use std::collections::{BTreeMap, HashMap};

use domain::operator::{OperatorName, OperatorRole};
use domain::outbound::{Effect, JobState, SlotWord};
use domain::utxo::Hash;
use domain::withdrawal::{WithdrawalPolicy, WithdrawalState};
use domain::{AssetOnChain, Precision, Timestamp};
use serde_json::json;
use store::catalog::{Catalog, CatalogError, Change};
use store::grants::DatabaseRole;
use store::operator::{
    CheckSetting, Door, LogFilter, NewLogLine, OperatorKey, OperatorSetting, PasskeyPlace, PeopleSettings,
};
use store::outbound::read::{JobReply, JobVerdict};
use store::outbound::send::SignedAnswer;
use store::outbound::{
    ApprovalSignature, AttemptKind, Duty, JobApproval, JobId, LaneId, MinedAttempt, NewSlot, PutOff, SignedAttempt,
    SlotId, SlotNews, ToldAttempt,
};
use store::testing::NOW;
use store::withdrawal::waiting::WaitingFilter;
use store::withdrawal::{
    ApprovalDeed, ApprovalReply, BadTravelRule, CheckHeard, CheckState, CheckVerdict, ChecksKept, CreatedWithdrawal,
    DecisionReply, Enqueued, NewWithdrawal, OperatorDeed, OperatorReply, OperatorWish, SignedRounds, TravelRule,
    WithdrawalApproved, WithdrawalVerdict,
};
use store::{Db, Engine, db_test};

use crate::support::*;
use crate::withdrawals::{
    Desk, cancel, enqueue, failing_at, id, nothing, one, policy, settle, signature, state, taken, units, user,
};

const MINUTE: i64 = 60_000_000;

pub fn name(text: &str) -> OperatorName {
    text.parse().unwrap()
}

fn key(digit: char) -> OperatorKey {
    OperatorKey { public: digit.to_string().repeat(64), place: None }
}

fn person(role: OperatorRole, of: Option<i64>, keys: &[(&str, char)]) -> OperatorSetting {
    let keys = keys.iter().map(|(name, digit)| ((*name).to_owned(), key(*digit))).collect();
    OperatorSetting { role, user: of.map(user), active: true, keys }
}

/// Each with a key named NAME-1.
///
/// | name | role | is the customer |
/// |---|---|---|
/// | ann | approver | 1 |
/// | bob, cat | approver | |
/// | dan | administrator | |
/// | eve | operator | |
/// | fay | viewer | |
fn people() -> PeopleSettings {
    let mut settings = PeopleSettings::default();
    for (text, role, of, keys) in [
        ("ann", OperatorRole::Approver, Some(1), &[("ann-1", 'a')][..]),
        ("bob", OperatorRole::Approver, None, &[("bob-1", 'b')]),
        ("cat", OperatorRole::Approver, None, &[("cat-1", 'c')]),
        ("dan", OperatorRole::Administrator, None, &[("dan-1", 'd')]),
        ("eve", OperatorRole::Operator, None, &[]),
        ("fay", OperatorRole::Viewer, None, &[]),
    ] {
        settings.operators.insert(name(text), person(role, of, keys));
    }
    settings
}

async fn apply(db: &Db, people: PeopleSettings) -> Result<Vec<Change>, CatalogError> {
    db.apply_catalog(&Catalog { people, ..Catalog::default() }, &AUTHOR, NOW).await
}

/// The same with one of them changed.
async fn change(db: &Db, who: &str, with: impl FnOnce(&mut OperatorSetting)) -> Result<Vec<Change>, CatalogError> {
    let mut people = people();
    with(people.operators.get_mut(&name(who)).unwrap());
    apply(db, people).await
}

fn deed(who: &str, number: i64, wish: OperatorWish) -> OperatorDeed {
    let request_id = format!("req-{who}-{number}");
    let reason = "case 7".to_owned();
    OperatorDeed { operator: name(who), door: Door::Http, request_id, withdrawal: id(number), wish, reason }
}

async fn operate(db: &Db, who: &str, number: i64, wish: OperatorWish) -> OperatorReply {
    db.operate(&deed(who, number, wish), &nothing(&[number]), NOW).await.unwrap()
}

async fn cancel_with(db: &Db, number: i64, signed: &SignedRounds) -> DecisionReply {
    db.cancel_withdrawals(&[(user(1), id(number))], signed, NOW).await.unwrap().remove(0)
}

async fn approve_with(db: &Db, who: &str, key: &str, number: i64) -> ApprovalReply {
    let deed =
        ApprovalDeed { operator: name(who), door: Door::Http, request_id: "req".to_owned(), withdrawal: id(number) };
    let mut approval = signature(number, who, 7);
    approval.key = key.to_owned();
    db.approve_as_operator(&deed, &approval, NOW).await.unwrap()
}

async fn approve(db: &Db, who: &str, number: i64) -> ApprovalReply {
    approve_with(db, who, &format!("{who}-1"), number).await
}

/// What was signed, and whether it counts.
async fn signed(db: &Db, number: i64) -> Vec<String> {
    let signed = db.withdrawal_approvals(&[id(number)]).await.unwrap();
    let mut signed: Vec<String> =
        signed.iter().map(|one| format!("{} {}", one.key, if one.counts { "counts" } else { "no" })).collect();
    signed.sort_unstable();
    signed
}

/// The keys of what goes to the signer with its job.
async fn sent(db: &Db, desk: &Desk, number: i64) -> Vec<String> {
    let Enqueued::Queued { job, .. } = enqueue(db, desk, number).await else { panic!("queued") };
    let mut keys: Vec<String> = db.approvals_of(&[job]).await.unwrap().into_iter().map(|one| one.key).collect();
    keys.sort_unstable();
    keys
}

/// Who, what, and what came of it; the oldest first.
async fn log(db: &Db) -> Vec<String> {
    let mut lines = db.operator_log(&LogFilter::default(), i64::MAX, 1_000).await.unwrap();
    lines.reverse();
    lines
        .iter()
        .map(|line| format!("{} {} {} {}", line.line.operator, line.line.action, line.line.subject, line.line.outcome))
        .collect()
}

/// What was done at the command line, with the reasons.
pub async fn typed(db: &Db) -> Vec<String> {
    let mut lines = db.operator_log(&LogFilter::default(), i64::MAX, 1_000).await.unwrap();
    lines.reverse();
    let lines = lines.into_iter().map(|line| line.line).filter(|line| line.door == Door::CommandLine);
    lines
        .map(|line| format!("{} {} {} {}: {}", line.operator, line.action, line.subject, line.outcome, line.reason))
        .collect()
}

/// As many people as the policy wants for what is above 0.
async fn wants(db: &Db, desk: &Desk, people: u32) {
    let most = units(100_000);
    let (two_above, many_above) = match people {
        1 => (most, most),
        2 => (units(0), most),
        _ => (units(0), units(0)),
    };
    let wanted = WithdrawalPolicy { auto_approve: units(0), two_above, many_above, ..policy() };
    desk.set(db, &wanted).await;
}

/// Every withdrawal of the desk's coin is checked outside, from this amount on.
async fn check_from(db: &Db, desk: &Desk, from: Option<i64>) {
    let listing = desk.chain.listing(desk.listing).unwrap();
    let checks = [((listing.symbol.clone(), desk.chain.name.clone()), CheckSetting { from: from.map(units) })].into();
    apply(db, PeopleSettings { checks, ..PeopleSettings::default() }).await.unwrap();
}

async fn answer(db: &Db, number: i64, verdict: CheckVerdict) -> ChecksKept {
    let heard = CheckHeard::Answer { verdict, reason: "on a list".to_owned(), digest: "d".repeat(64) };
    db.keep_check_answers(&[(id(number), heard)], NOW).await.unwrap()
}

async fn check_state(db: &Db, number: i64) -> Option<CheckState> {
    db.withdrawal_check(id(number)).await.unwrap().map(|check| check.state)
}

fn late(minutes: i64) -> Timestamp {
    NOW.plus_micros(minutes * MINUTE)
}

db_test! {
    async fn operators_are_as_the_file_says_and_every_change_has_its_history(db: TestDb) {
        let made = apply(db, people()).await.unwrap();
        assert!(made.iter().any(|change| change.entity == "operator ann" && change.field == "keys" && change.after.contains(&"a".repeat(64))));
        assert_eq!(apply(db, people()).await.unwrap(), [], "the same again changes nothing");
        let changed = change(db, "eve", |eve| eve.role = OperatorRole::Viewer).await.unwrap();
        assert_eq!(changed.len(), 1, "{changed:?}");
        assert_eq!(db.operator(&name("eve")).await.unwrap().unwrap().role, OperatorRole::Viewer);
        // A key that is left out is switched off; a new one has a new name.
        change(db, "bob", |bob| bob.keys = [("bob-2".to_owned(), key('e'))].into()).await.unwrap();
        let bob = db.operators().await.unwrap().into_iter().find(|one| one.row.name.as_str() == "bob").unwrap();
        let keys: Vec<(&str, bool)> = bob.keys.iter().map(|(name, (_, active))| (name.as_str(), *active)).collect();
        assert_eq!(keys, [("bob-1", false), ("bob-2", true)]);
        // Switched on again, it is the same key.
        apply(db, people()).await.unwrap();
        change(db, "ann", |ann| ann.active = false).await.unwrap();
        assert!(!db.operator(&name("ann")).await.unwrap().unwrap().active);
        // Whoever the file leaves out stays.
        let few = PeopleSettings { operators: [(name("bob"), people().operators[&name("bob")].clone())].into(), ..Default::default() };
        apply(db, few).await.unwrap();
        assert_eq!(db.operators().await.unwrap().len(), 6);
    }

    async fn a_key_is_one_persons_for_ever_and_a_customer_is_one_person(db: TestDb) {
        apply(db, people()).await.unwrap();
        let refused = |result: Result<Vec<Change>, CatalogError>| result.map_err(|error| error.code()).unwrap_err();
        // Bob's public key under another name, with another person, also when it is switched off.
        let with = |name: &'static str, digit| move |one: &mut OperatorSetting| { one.keys.insert(name.to_owned(), key(digit)); };
        assert_eq!(refused(change(db, "cat", with("cat-2", 'b')).await), "OPERATOR_KEY_TAKEN");
        assert_eq!(refused(change(db, "cat", with("bob-1", 'f')).await), "OPERATOR_KEY_TAKEN");
        assert_eq!(refused(change(db, "cat", with("cat-1", 'f')).await), "OPERATOR_KEY_TAKEN", "it was another key");
        change(db, "bob", |bob| bob.keys = [("bob-2".to_owned(), key('e'))].into()).await.unwrap();
        let mut without = people();
        without.operators.get_mut(&name("bob")).unwrap().keys = [("bob-2".to_owned(), key('e'))].into();
        without.operators.get_mut(&name("cat")).unwrap().keys.insert("bob-1".to_owned(), key('b'));
        assert_eq!(refused(apply(db, without).await), "OPERATOR_KEY_TAKEN");
        // Ann is customer 1: nobody else is.
        assert_eq!(refused(change(db, "cat", |cat| cat.user = Some(user(1))).await), "OPERATOR_USER_TAKEN");
        let alone = PeopleSettings { operators: [(name("zoe"), person(OperatorRole::Viewer, Some(1), &[]))].into(), ..Default::default() };
        assert_eq!(refused(apply(db, alone).await), "OPERATOR_USER_TAKEN");
        // A passkey is read back as it was written.
        let place = PasskeyPlace { relying_party: "example.com".to_owned(), origins: ["https://example.com".to_owned()].into() };
        let passkey = OperatorKey { public: format!("04{}", "7".repeat(128)), place: Some(place) };
        change(db, "ann", |ann| { ann.keys.insert("ann-phone".to_owned(), passkey.clone()); }).await.unwrap();
        let ann = db.operators().await.unwrap().remove(0);
        assert_eq!(ann.keys["ann-phone"], (passkey, true));
    }

    async fn nobody_changes_or_removes_what_was_done(db: TestDb) {
        apply(db, people()).await.unwrap();
        let line = NewLogLine {
            operator: "ann".into(), door: Door::CommandLine, action: "approve".into(), subject: "wr-1".into(), reason: String::new(),
            request_id: String::new(), outcome: "done".into(),
        };
        db.log_operator(&line, NOW).await.unwrap();
        for (statement, trigger) in [
            ("UPDATE operator_log SET outcome = 'x'", "trg_operator_log_fixed"),
            ("DELETE FROM operator_log", "trg_operator_log_kept"),
            ("DELETE FROM operators", "trg_operator_kept"),
            ("UPDATE operators SET name = 'zoe' WHERE name = 'ann'", "trg_operator_fixed"),
            ("DELETE FROM operator_keys", "trg_operator_key_kept"),
            ("UPDATE operator_keys SET operator_id = 2 WHERE name = 'ann-1'", "trg_operator_key_fixed"),
        ] {
            let error = db.by_hand(statement).await.unwrap_err();
            // PostgreSQL may look at what refers to a row before its triggers.
            let said = format!("{error:?}");
            assert!(said.contains(trigger) || said.contains("violates foreign key constraint"), "{statement}: {said}");
        }
        assert_eq!(log(db).await, ["ann approve wr-1 done"]);
    }

    async fn each_does_what_the_role_allows_and_all_of_it_is_written_down(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        wants(db, &desk, 1).await;
        for number in 1..=4 {
            taken(db, &desk.ask(number, 100)).await;
        }
        assert_eq!(operate(db, "fay", 1, OperatorWish::Reject).await, OperatorReply::Forbidden);
        assert_eq!(operate(db, "bob", 1, OperatorWish::Review).await, OperatorReply::Forbidden);
        assert_eq!(operate(db, "zoe", 1, OperatorWish::Reject).await, OperatorReply::NoSuchOperator);
        assert_eq!(operate(db, "eve", 9, OperatorWish::Reject).await, OperatorReply::NoSuchWithdrawal);
        assert_eq!(state(db, 1).await, WithdrawalState::Pending);
        assert!(matches!(operate(db, "eve", 1, OperatorWish::Review).await, OperatorReply::Done(_)));
        assert!(matches!(operate(db, "bob", 2, OperatorWish::Reject).await, OperatorReply::Done(_)));
        assert!(matches!(operate(db, "eve", 2, OperatorWish::Reject).await, OperatorReply::Before(_)));
        assert_eq!(operate(db, "eve", 2, OperatorWish::Review).await, OperatorReply::NotNow(WithdrawalState::Rejected));
        let last = db.withdrawal_history(id(2)).await.unwrap().pop().unwrap();
        assert_eq!((last.actor.as_str(), last.reason.as_str()), ("bob", "case 7"));
        // Without the signer's word no money goes back.
        let unasked = db.operate(&deed("eve", 3, OperatorWish::Reject), &SignedRounds::default(), NOW).await.unwrap();
        assert_eq!(unasked, OperatorReply::SignerNotAsked);
        // Assigned, and assigned to nobody in particular.
        assert!(matches!(operate(db, "eve", 3, OperatorWish::Assign(Some(name("bob")))).await, OperatorReply::Done(_)));
        assert_eq!(operate(db, "eve", 3, OperatorWish::Assign(Some(name("zoe")))).await, OperatorReply::NoSuchAssignee);
        let seen = async |filter: &WaitingFilter| {
            let shown = db.withdrawals_waiting(filter, None, 10).await.unwrap();
            shown.iter().map(|one| one.row.id.number()).collect::<Vec<_>>()
        };
        let of_bob = WaitingFilter { assigned: Some(name("bob")), ..Default::default() };
        assert_eq!((seen(&WaitingFilter::default()).await, seen(&of_bob).await), (vec![1, 3, 4], vec![3]));
        assert!(matches!(operate(db, "eve", 3, OperatorWish::Assign(None)).await, OperatorReply::Done(_)));
        assert_eq!(seen(&of_bob).await, Vec::<i64>::new());
        // Switched off, the next request is refused.
        change(db, "eve", |eve| eve.active = false).await.unwrap();
        assert_eq!(operate(db, "eve", 4, OperatorWish::Reject).await, OperatorReply::NoSuchOperator);
        assert_eq!(log(db).await, [
            "fay reject wr-1 OPERATOR_FORBIDDEN", "bob review wr-1 OPERATOR_FORBIDDEN", "zoe reject wr-1 UNAUTHORIZED",
            "eve reject wr-9 WITHDRAWAL_NOT_FOUND", "eve review wr-1 done", "bob reject wr-2 done", "eve reject wr-2 done",
            "eve review wr-2 WITHDRAWAL_NOT_NOW", "eve reject wr-3 SIGNER_UNAVAILABLE", "eve assign wr-3 done",
            "eve assign wr-3 OPERATOR_NOT_FOUND", "eve assign wr-3 done", "eve reject wr-4 UNAUTHORIZED",
        ]);
    }

    /// Nobody here is a registered operator: at the command line a person is whoever the caller says. With the rights of the role that types it.
    async fn what_is_said_at_the_command_line_is_written_down_too(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 100)).await;
        taken(db, &desk.ask(2, 100)).await;
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 2).await else { panic!("queued") };
        let more = SignedRounds::of([(id(1), Some(1))]);
        assert_eq!(cancel_with(db, 1, &more).await, DecisionReply::SignerKnowsMore);
        if db.engine() == Engine::Postgres {
            db.with_roles().await;
        }
        let typing = db.of(DatabaseRole::Operator);
        let people = domain::Approval::new("Zoe@desk", "yan", "read on the chain").unwrap();
        let judge = async |signed: &SignedRounds| {
            let verdict = [(id(1), WithdrawalVerdict::Unpaid)];
            typing.judge_withdrawals(&verdict, &people, signed, NOW).await.unwrap().remove(0)
        };
        assert_eq!(judge(&SignedRounds::default()).await, DecisionReply::SignerNotAsked);
        assert!(matches!(judge(&more).await, DecisionReply::Done(row) if row.state == WithdrawalState::Failed));
        assert!(matches!(judge(&more).await, DecisionReply::NotNow(WithdrawalState::Failed)));
        let unsent = typing.judge_job(job, JobVerdict::Paid, &people, NOW).await.unwrap();
        assert!(matches!(unsent, JobReply::NotNow(_)), "{unsent:?}");
        assert_eq!(typing.cancel_job(job, " zoe ", NOW).await.unwrap(), JobReply::Done);
        // Whatever is typed as a name finds room.
        let again = typing.cancel_job(job, &"z".repeat(500), NOW).await.unwrap();
        assert_eq!(again, JobReply::NotNow(JobState::FailedFinal));
        assert_eq!(typing.cancel_job(JobId::new(4_711).unwrap(), "", NOW).await.unwrap(), JobReply::NoSuchJob);
        let long = "z".repeat(64);
        assert_eq!(typed(db).await, [
            "Zoe@desk judge wr-1 SIGNER_UNAVAILABLE: unpaid: read on the chain".to_owned(),
            "yan judge wr-1 SIGNER_UNAVAILABLE: unpaid: read on the chain".to_owned(),
            "Zoe@desk judge wr-1 done: unpaid: read on the chain".to_owned(),
            "yan judge wr-1 done: unpaid: read on the chain".to_owned(),
            "Zoe@desk judge wr-1 WITHDRAWAL_NOT_NOW: unpaid: read on the chain".to_owned(),
            "yan judge wr-1 WITHDRAWAL_NOT_NOW: unpaid: read on the chain".to_owned(),
            format!("Zoe@desk judge {job} JOB_NOT_NOW: paid: read on the chain"),
            format!("yan judge {job} JOB_NOT_NOW: paid: read on the chain"),
            format!("zoe cancel {job} done: "),
            format!("{long} cancel {job} JOB_NOT_NOW: "),
            "? cancel job-4711 JOB_NOT_FOUND: ".to_owned(),
        ]);
    }

    /// What somebody has asked for, or signs with what is switched off, does not count through the command line either. The line stays all the same.
    async fn nobody_agrees_to_their_own_job_and_nobody_switched_off_agrees_to_any(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        taken(db, &desk.ask(1, 100)).await;
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 1).await else { panic!("queued") };
        if db.engine() == Engine::Postgres {
            db.with_roles().await;
        }
        let typing = db.of(DatabaseRole::Operator);
        let agree = async |key: &str| {
            let signature = ApprovalSignature::Ed25519(vec![7; 64]);
            let approval = JobApproval { job, digest: [7; 32], key: key.to_owned(), signature };
            typing.approve_job(&approval, NOW).await.unwrap()
        };
        let kept = async || {
            let kept = db.approvals_of(&[job]).await.unwrap();
            kept.into_iter().map(|one| one.key).collect::<Vec<String>>()
        };
        assert_eq!(agree("ann-1").await, JobReply::Requester, "ann is the customer");
        assert_eq!(kept().await, Vec::<String>::new());
        change(db, "bob", |bob| bob.active = false).await.unwrap();
        assert_eq!(agree("bob-1").await, JobReply::KeyOff, "bob has left");
        change(db, "cat", |cat| {
            cat.keys.clear();
            cat.keys.insert("cat-2".to_owned(), key('9'));
        })
        .await
        .unwrap();
        assert_eq!(agree("cat-1").await, JobReply::KeyOff, "cat has lost it");
        assert_eq!(kept().await, Vec::<String>::new());
        // Of a key that only the signer knows, only the signer knows whose it is.
        for key in ["cat-2", "dan-1", "zoe-laptop"] {
            assert_eq!(agree(key).await, JobReply::Done, "{key}");
        }
        assert_eq!(kept().await, ["cat-2", "dan-1", "zoe-laptop"]);
        assert_eq!(typing.retry_job(job, "eve", NOW).await.unwrap(), JobReply::Done);
        assert_eq!(typing.bump_job(job, "eve", NOW).await.unwrap(), JobReply::NotNow(JobState::Queued));
        assert_eq!(typing.bump_job(JobId::new(4_711).unwrap(), "eve", NOW).await.unwrap(), JobReply::NoSuchJob);
        assert_eq!(typed(db).await, [
            format!("ann approve {job} APPROVAL_BY_REQUESTER: with the key ann-1"),
            format!("bob approve {job} APPROVAL_BAD: with the key bob-1"),
            format!("cat approve {job} APPROVAL_BAD: with the key cat-1"),
            format!("cat approve {job} done: with the key cat-2"),
            format!("dan approve {job} done: with the key dan-1"),
            format!("zoe-laptop approve {job} done: with the key zoe-laptop"),
            format!("eve retry {job} done: "),
            format!("eve bump {job} JOB_NOT_NOW: "),
            "eve bump job-4711 JOB_NOT_FOUND: ".to_owned(),
        ]);
    }

    /// The line is in the commit of the change: without it nothing happens.
    async fn what_cannot_be_written_down_is_not_done(db: TestDb) {
        let desk = Desk::open(db).await;
        taken(db, &desk.ask(1, 100)).await;
        taken(db, &desk.ask(2, 100)).await;
        let Enqueued::Queued { job, .. } = enqueue(db, &desk, 2).await else { panic!("queued") };
        let more = SignedRounds::of([(id(1), Some(1))]);
        assert_eq!(cancel_with(db, 1, &more).await, DecisionReply::SignerKnowsMore);
        let people = domain::Approval::new("ann", "bob", "read on the chain").unwrap();
        db.by_hand("DROP TABLE operator_log").await.unwrap();
        let verdict = [(id(1), WithdrawalVerdict::Unpaid)];
        db.judge_withdrawals(&verdict, &people, &more, NOW).await.unwrap_err();
        db.cancel_job(job, "ann", NOW).await.unwrap_err();
        db.retry_job(job, "ann", NOW).await.unwrap_err();
        let signature = ApprovalSignature::Ed25519(vec![7; 64]);
        let approval = JobApproval { job, digest: [7; 32], key: "zoe".to_owned(), signature };
        db.approve_job(&approval, NOW).await.unwrap_err();
        assert_eq!(db.approvals_of(&[job]).await.unwrap(), []);
        assert_eq!(state(db, 1).await, WithdrawalState::ManualReview);
        assert_eq!(db.jobs_of_withdrawal(id(2)).await.unwrap(), [(job, JobState::Queued)]);
    }

    async fn only_what_rests_is_tried_again(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        let row = taken(db, &desk.ask(1, 100)).await;
        assert_eq!(row.state, WithdrawalState::Approved);
        let why = async |number| match operate(db, "eve", number, OperatorWish::Retry).await {
            OperatorReply::NotSafe(why) => why,
            other => format!("{other:?}"),
        };
        assert!(why(1).await.contains("has no job yet"), "{}", why(1).await);
        enqueue(db, &desk, 1).await;
        // With the rights of who serves, which lock the lane and change nothing of it.
        if db.engine() == Engine::Postgres {
            db.with_roles().await;
        }
        let served = operate(db.of(DatabaseRole::Api), "eve", 1, OperatorWish::Retry).await;
        assert!(matches!(served, OperatorReply::Done(_)), "{served:?}");
        wants(db, &desk, 1).await;
        taken(db, &desk.ask(2, 100)).await;
        assert!(why(2).await.contains("waits for people"));
        cancel(db, 2).await;
        assert!(why(2).await.contains("asks anew"));
        assert_eq!(operate(db, "bob", 1, OperatorWish::Retry).await, OperatorReply::Forbidden);
    }

    async fn so_many_different_people_agree_and_never_whose_money_it_is(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        wants(db, &desk, 2).await;
        taken(db, &desk.ask(1, 100)).await;
        // Ann is customer 1.
        assert_eq!(approve(db, "ann", 1).await, ApprovalReply::Requester);
        assert_eq!(approve(db, "eve", 1).await, ApprovalReply::Forbidden);
        assert_eq!(approve(db, "zoe", 1).await, ApprovalReply::NoSuchOperator);
        assert_eq!(approve_with(db, "bob", "cat-1", 1).await, ApprovalReply::UnknownKey, "another person's");
        assert_eq!(approve(db, "bob", 9).await, ApprovalReply::NoSuchWithdrawal);
        assert_eq!(approve(db, "bob", 1).await, ApprovalReply::Kept { wanted: 2, agree: 1 });
        assert_eq!(approve(db, "bob", 1).await, ApprovalReply::Before { wanted: 2, agree: 1 }, "nobody counts twice");
        // Bob is switched off meanwhile: what he signed does not count any more.
        change(db, "bob", |bob| bob.active = false).await.unwrap();
        assert_eq!(approve(db, "cat", 1).await, ApprovalReply::Kept { wanted: 2, agree: 1 });
        assert_eq!(state(db, 1).await, WithdrawalState::Pending);
        apply(db, people()).await.unwrap();
        assert!(matches!(approve(db, "cat", 1).await, ApprovalReply::Approved { .. }));
        assert_eq!(approve(db, "bob", 1).await, ApprovalReply::NotNow(WithdrawalState::Approved));
        assert_eq!(log(db).await, [
            "ann approve wr-1 APPROVAL_BY_REQUESTER", "eve approve wr-1 OPERATOR_FORBIDDEN", "zoe approve wr-1 UNAUTHORIZED",
            "bob approve wr-1 APPROVAL_BAD", "bob approve wr-9 WITHDRAWAL_NOT_FOUND", "bob approve wr-1 done", "bob approve wr-1 done",
            "cat approve wr-1 done", "cat approve wr-1 done", "bob approve wr-1 WITHDRAWAL_NOT_NOW",
        ]);
        assert!(db.audit(|_| ()).await.unwrap().clean());
    }

    /// Bob has lost a laptop: what was signed with its key is not his word any more, and with another key he says it again.
    async fn a_signature_counts_as_long_as_its_key(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        wants(db, &desk, 2).await;
        taken(db, &desk.ask(1, 100)).await;
        assert_eq!(approve(db, "bob", 1).await, ApprovalReply::Kept { wanted: 2, agree: 1 });
        let another = |bob: &mut OperatorSetting| bob.keys = [("bob-2".to_owned(), key('e'))].into();
        change(db, "bob", another).await.unwrap();
        assert_eq!(signed(db, 1).await, ["bob-1 no"]);
        assert_eq!(approve(db, "cat", 1).await, ApprovalReply::Kept { wanted: 2, agree: 1 });
        assert_eq!(approve(db, "bob", 1).await, ApprovalReply::UnknownKey);
        assert!(matches!(approve_with(db, "bob", "bob-2", 1).await, ApprovalReply::Approved { .. }));
        assert_eq!(signed(db, 1).await, ["bob-1 no", "bob-2 counts", "cat-1 counts"]);
        assert_eq!(sent(db, &desk, 1).await, ["bob-2", "cat-1"], "a signer that does not know bob-1 would take none of them");
        // A person with two keys is one person, and stays one as long as one of them is left.
        let both = |bob: &mut OperatorSetting| bob.keys = [("bob-1".to_owned(), key('b')), ("bob-2".to_owned(), key('e'))].into();
        change(db, "bob", both).await.unwrap();
        taken(db, &desk.ask(2, 100)).await;
        assert_eq!(approve(db, "bob", 2).await, ApprovalReply::Kept { wanted: 2, agree: 1 });
        assert_eq!(approve_with(db, "bob", "bob-2", 2).await, ApprovalReply::Before { wanted: 2, agree: 1 });
        change(db, "bob", another).await.unwrap();
        assert!(matches!(approve(db, "cat", 2).await, ApprovalReply::Approved { .. }));
        assert_clean(db).await;
    }

    /// Who doubts sees something that those who signed before did not: each of them looks again, and none overrules the doubt alone.
    async fn after_a_doubt_everybody_signs_again(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        wants(db, &desk, 2).await;
        taken(db, &desk.ask(1, 100)).await;
        assert_eq!(approve(db, "bob", 1).await, ApprovalReply::Kept { wanted: 2, agree: 1 });
        assert!(matches!(approve(db, "cat", 1).await, ApprovalReply::Approved { .. }));
        assert_eq!(signed(db, 1).await, ["bob-1 counts", "cat-1 counts"]);
        for _ in 0..2 {
            assert!(matches!(operate(db, "eve", 1, OperatorWish::Review).await, OperatorReply::Done(_)));
            assert!(signed(db, 1).await.iter().all(|one| one.ends_with(" no")));
            assert_eq!(approve(db, "bob", 1).await, ApprovalReply::Kept { wanted: 2, agree: 1 });
            assert_eq!(approve(db, "bob", 1).await, ApprovalReply::Before { wanted: 2, agree: 1 });
            assert_eq!(state(db, 1).await, WithdrawalState::ManualReview);
            assert!(matches!(approve(db, "cat", 1).await, ApprovalReply::Approved { .. }));
        }
        assert_eq!(signed(db, 1).await.len(), 6, "nothing that was signed is lost");
        assert_eq!(sent(db, &desk, 1).await, ["bob-1", "cat-1"]);
        // One that waits already: who signed before the doubt has not answered it.
        taken(db, &desk.ask(2, 100)).await;
        assert_eq!(approve(db, "bob", 2).await, ApprovalReply::Kept { wanted: 2, agree: 1 });
        assert!(matches!(operate(db, "eve", 2, OperatorWish::Review).await, OperatorReply::Done(_)));
        assert_eq!(approve(db, "cat", 2).await, ApprovalReply::Kept { wanted: 2, agree: 1 });
        assert!(matches!(approve(db, "bob", 2).await, ApprovalReply::Approved { .. }));
        assert_clean(db).await;
    }

    async fn an_administrator_never_agrees_alone(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        wants(db, &desk, 1).await;
        taken(db, &desk.ask(1, 100)).await;
        assert_eq!(approve(db, "dan", 1).await, ApprovalReply::Kept { wanted: 2, agree: 1 });
        assert_eq!(state(db, 1).await, WithdrawalState::Pending);
        assert!(matches!(approve(db, "bob", 1).await, ApprovalReply::Approved { .. }));
    }

    /// Whichever comes first is heard; the hold ends once, and the books hold.
    async fn two_cancels_and_one_approval_at_once_end_in_one_of_the_two(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        wants(db, &desk, 1).await;
        let (mut approved, mut cancelled) = (0, 0);
        for number in 1..=12 {
            taken(db, &desk.ask(number, 100)).await;
            let three = async || tokio::join!(cancel(db, number), approve(db, "bob", number), cancel(db, number));
            three().await;
            match state(db, number).await {
                // A cancel may come after the approval, while there is no job.
                WithdrawalState::Cancelled => cancelled += 1,
                WithdrawalState::Approved => approved += 1,
                other => panic!("{other}"),
            }
        }
        assert_eq!(approved + cancelled, 12);
        let report = db.audit(|_| ()).await.unwrap();
        assert!(report.clean(), "{:#?}", report.findings);
        let held = 110 * approved;
        assert_eq!(desk.balance(db, 0).await, format!("{}/{held}", 100_000 - held));
    }

    async fn what_is_checked_waits_whatever_the_policy_says(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        check_from(db, &desk, Some(100)).await;
        assert_eq!(taken(db, &desk.ask(1, 99)).await.state, WithdrawalState::Approved, "below what is checked");
        let row = taken(db, &desk.ask(2, 100)).await;
        assert_eq!((row.state, row.rule.as_str(), row.people), (WithdrawalState::Pending, "auto_approve", 0));
        assert_eq!((check_state(db, 1).await, check_state(db, 2).await), (None, Some(CheckState::Waiting)));
        // Nobody agrees before it has answered, by whichever way.
        assert_eq!(approve(db, "bob", 2).await, ApprovalReply::CheckWaits);
        assert_eq!(db.approve_withdrawal(&signature(2, "ann", 7), NOW).await.unwrap(), WithdrawalApproved::CheckWaits);
        let by_hand = "UPDATE withdrawal_requests SET status = 'approved', version = version + 1 WHERE id = 2";
        // A table that is only called like the checks' says nothing.
        for hidden in ["", "CREATE TEMPORARY TABLE withdrawal_checks (withdrawal_id BIGINT, state TEXT); "] {
            let refused = db.by_hand(&format!("{hidden}{by_hand}")).await.unwrap_err();
            assert!(format!("{refused:?}").contains("trg_withdrawal_checked"), "{hidden}: {refused:?}");
        }
        // A check that comes after the approval would keep nobody from anything, and one that brings its answer was asked of nobody.
        assert_eq!(taken(db, &desk.ask(4, 99)).await.state, WithdrawalState::Approved);
        wants(db, &desk, 1).await;
        assert_eq!(taken(db, &desk.ask(5, 99)).await.state, WithdrawalState::Pending);
        let check = |number: i64, state: &str, answer: &str| {
            format!(
                "INSERT INTO withdrawal_checks (withdrawal_id, state, tries, due_at, reason, digest, answered_at, created_at, updated_at)
                 VALUES ({number}, '{state}', 0, 0, {answer}, 0, 0)"
            )
        };
        for late in [check(4, "waiting", "NULL, NULL, NULL"), check(5, "allowed", "'fine', 'd', 0"), check(5, "review", "'fine', 'd', 0")] {
            let refused = db.by_hand(&late).await.unwrap_err();
            assert!(format!("{refused:?}").contains("trg_withdrawal_check_first"), "{late}: {refused:?}");
        }
        desk.set(db, &policy()).await;
        let kept = answer(db, 2, CheckVerdict::Allow).await;
        assert_eq!((kept.allowed, kept.late), (1, 0));
        assert_eq!(state(db, 2).await, WithdrawalState::Approved);
        let last = db.withdrawal_history(id(2)).await.unwrap().pop().unwrap();
        assert_eq!((last.actor.as_str(), last.reason.as_str()), ("policy 1", "auto_approve; the check allows it"));
        // Another answer comes too late.
        assert_eq!(answer(db, 2, CheckVerdict::Refuse).await.late, 1);
        assert_eq!((state(db, 2).await, check_state(db, 2).await), (WithdrawalState::Approved, Some(CheckState::Allowed)));
        // A rule that is taken away asks about none of those that come.
        check_from(db, &desk, None).await;
        assert_eq!(taken(db, &desk.ask(3, 100)).await.state, WithdrawalState::Approved);
        assert!(db.audit(|_| ()).await.unwrap().clean());
    }

    async fn a_no_is_final_and_gives_the_money_back_once(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        check_from(db, &desk, Some(0)).await;
        taken(db, &desk.ask(1, 100)).await;
        assert_eq!(desk.balance(db, 0).await, "99890/110");
        assert_eq!(answer(db, 1, CheckVerdict::Refuse).await.refused, 1);
        assert_eq!(state(db, 1).await, WithdrawalState::Pending, "the signer has not been asked yet");
        assert_eq!(approve(db, "bob", 1).await, ApprovalReply::CheckWaits, "and yet nobody agrees to it any more");
        assert_eq!(answer(db, 1, CheckVerdict::Allow).await.late, 1, "a no is final");
        assert_eq!(db.checks_refused(None, 9).await.unwrap(), [id(1)]);
        assert_eq!(db.reject_refused(&[id(1)], &SignedRounds::default(), NOW).await.unwrap(), 0);
        for given_back in [1, 0] {
            assert_eq!(db.reject_refused(&[id(1)], &nothing(&[1]), NOW).await.unwrap(), given_back);
            assert_eq!((state(db, 1).await, desk.balance(db, 0).await.as_str()), (WithdrawalState::Rejected, "100000/0"));
        }
        assert_eq!(db.checks_refused(None, 9).await.unwrap(), []);
        let last = db.withdrawal_history(id(1)).await.unwrap().pop().unwrap();
        assert_eq!((last.actor.as_str(), last.reason.as_str()), ("check", "on a list"));
        assert!(db.audit(|_| ()).await.unwrap().clean());
    }

    async fn a_doubt_wants_people_where_none_were_wanted(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        check_from(db, &desk, Some(0)).await;
        taken(db, &desk.ask(1, 100)).await;
        assert_eq!(answer(db, 1, CheckVerdict::Review).await.review, 1);
        assert_eq!(state(db, 1).await, WithdrawalState::ManualReview);
        assert!(matches!(approve(db, "bob", 1).await, ApprovalReply::Approved { .. }));
    }

    async fn a_check_is_one_workers_until_it_is_due_again_and_is_asked_for_ever(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        check_from(db, &desk, Some(0)).await;
        for number in 1..=3 {
            taken(db, &desk.ask(number, 100)).await;
        }
        let claim = async |most, at: Timestamp| {
            let due = db.claim_checks(most, at.plus_micros(5 * MINUTE), at).await.unwrap();
            let mut due: Vec<(i64, i64)> = due.iter().map(|one| (one.row.id.number(), one.tries)).collect();
            due.sort_unstable();
            due
        };
        assert_eq!(claim(2, NOW).await, [(1, 1), (2, 1)]);
        assert_eq!(claim(2, NOW).await, [(3, 1)]);
        assert_eq!(claim(2, NOW).await, []);
        // While somebody waits for an answer nobody else asks, whatever an operator wants.
        assert!(matches!(operate(db, "eve", 1, OperatorWish::Retry).await, OperatorReply::Done(_)));
        assert_eq!(claim(2, late(1)).await, []);
        // Whoever had the first two died. Of the third nothing is known: it rests longer.
        let nothing_heard = CheckHeard::Nothing { trouble: "no answer".to_owned(), again: late(30) };
        assert_eq!(db.keep_check_answers(&[(id(3), nothing_heard)], NOW).await.unwrap().waiting, 1);
        assert_eq!(claim(9, late(4)).await, []);
        assert_eq!(claim(9, late(5)).await, [(1, 2), (2, 2)]);
        // An operator lets it be asked at once.
        assert!(matches!(operate(db, "eve", 3, OperatorWish::Retry).await, OperatorReply::Done(_)));
        assert_eq!(claim(9, late(6)).await, [(3, 2)]);
        // What was called off is asked about no more.
        cancel(db, 1).await;
        assert_eq!(claim(9, late(600)).await, [(2, 3), (3, 3)]);
        assert_eq!(check_state(db, 1).await, Some(CheckState::Dropped));
        assert_eq!(answer(db, 1, CheckVerdict::Refuse).await.late, 1);
        assert_eq!(desk.balance(db, 0).await, "99780/220");
    }

    async fn what_a_customer_says_of_the_destination_is_kept_and_passed_on(db: TestDb) {
        let desk = Desk::open(db).await;
        check_from(db, &desk, Some(0)).await;
        let said = TravelRule::new(&json!({ "name": "Ann", "place": { "b": 1, "a": "ä" } })).unwrap();
        let new = NewWithdrawal { travel_rule: Some(said.clone()), ..desk.ask(1, 100) };
        taken(db, &new).await;
        assert_eq!(db.travel_rule(id(1)).await.unwrap().as_deref(), Some(said.as_str()));
        let due = db.claim_checks(9, late(5), NOW).await.unwrap();
        assert_eq!(due[0].travel_rule.as_deref(), Some(said.as_str()));
        // The same again is the same; without it, or with another, it is another request.
        assert!(matches!(one(db, &new).await, CreatedWithdrawal::Before(_)));
        let other = TravelRule::new(&json!({ "name": "Bob" })).unwrap();
        for changed in [None, Some(other)] {
            let again = NewWithdrawal { travel_rule: changed, ..new.clone() };
            assert!(matches!(one(db, &again).await, CreatedWithdrawal::Refused { .. }));
        }
        for bad in [json!([]), json!("x"), json!(null), json!({ "x": "y".repeat(TravelRule::MOST_BYTES) })] {
            assert_eq!(TravelRule::new(&bad), Err(BadTravelRule));
        }
        for statement in ["UPDATE withdrawal_travel_rules SET document = '{}'", "DELETE FROM withdrawal_travel_rules"] {
            assert!(db.by_hand(statement).await.is_err());
        }
    }

    /// Whoever dies at whichever statement or commit: an action and its line are there together or not at all.
    async fn an_action_and_its_line_are_one_commit(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        wants(db, &desk, 1).await;
        for number in 1.. {
            taken(db, &desk.ask(number, 10)).await;
            let failing = failing_at(db, number - 1);
            let done = failing.operate(&deed("eve", number, OperatorWish::Reject), &nothing(&[number]), NOW).await;
            let rejected = state(db, number).await == WithdrawalState::Rejected;
            let lines = db.operator_log(&LogFilter { subject: id(number).to_string(), ..Default::default() }, i64::MAX, 9).await.unwrap();
            assert_eq!(lines.len(), usize::from(rejected), "point {number}");
            if done.is_ok() {
                assert!(number > 5, "{number}");
                break;
            }
        }
        assert!(db.audit(|_| ()).await.unwrap().clean());
    }

    async fn the_figures_are_those_of_what_happened(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        let empty = db.withdrawal_figures(NOW).await.unwrap();
        assert_eq!((empty.pending_approvals, empty.approval.average_us(), empty.gas.len()), (0, None, 0));
        wants(db, &desk, 1).await;
        let base = domain::id::first_at(NOW);
        for number in [1, 2, 3] {
            taken(db, &desk.ask(base + number, 100)).await;
        }
        approve(db, "bob", base + 1).await;
        cancel(db, base + 2).await;
        enqueue(db, &desk, base + 1).await;
        let figures = db.withdrawal_figures(NOW).await.unwrap();
        assert_eq!((figures.pending_approvals, figures.oldest_pending), (1, Some(NOW)));
        assert_eq!(figures.requests, BTreeMap::from([("cancelled", 1), ("pending", 1), ("queued", 1)]));
        assert_eq!((figures.jobs, figures.approval.count, figures.retried), (BTreeMap::from([("queued", 1)]), 1, 0));
    }

    /// Two are paid, one fails, one is tried again, one is called off, and to one a person has agreed.
    async fn the_figures_say_how_jobs_went_and_what_they_cost(db: TestDb) {
        let desk = Desk::open(db).await;
        apply(db, people()).await.unwrap();
        // The chain's own coin, in which it is paid for transactions.
        let mut with_native = catalog();
        let mut native = with_native.listings.values().find(|one| one.asset.as_str() == "BTC").unwrap().clone();
        native.chain = desk.chain.name.clone();
        native.form = AssetOnChain::new(Precision::new(8).unwrap(), 18, None).unwrap();
        with_native.listings.insert((native.asset.clone(), native.chain.clone()), native);
        db.apply_catalog(&with_native, &AUTHOR, NOW).await.unwrap();
        let (base, later) = (domain::id::first_at(NOW), |seconds: i64| NOW.plus_micros(seconds * 1_000_000));
        for number in 1..=5 {
            taken(db, &desk.ask(base + number, 100)).await;
        }
        taken(db, &desk.ask(base + 6, 1_500)).await;
        let agreed = db.approve_withdrawal(&signature(base + 6, "bob", 7), later(20)).await.unwrap();
        assert!(matches!(agreed, WithdrawalApproved::Approved(_)), "{agreed:?}");
        cancel(db, base + 5).await;
        let mut jobs = Vec::new();
        for number in 1..=4 {
            let Enqueued::Queued { job, .. } = enqueue(db, &desk, base + number).await else { panic!("queued") };
            jobs.push(db.job(job).await.unwrap().unwrap().0.job);
        }
        let held = db.take_lanes((desk.chain.id, Duty::Send), "one", 9, NOW, later(3_600)).await.unwrap();
        let put_off = |at: usize, over: bool| PutOff {
            lane: jobs[at].lane, job: jobs[at].id, version: jobs[at].version, over, words: "not now".into(), history: None, due: later(60), tried: !over, short: over,
        };
        db.open_slots(&held, &[], &[], &[put_off(2, true), put_off(3, false)], &HashMap::new(), NOW).await.unwrap();
        let mut nonces: HashMap<LaneId, u64> = HashMap::new();
        let mut slots = Vec::new();
        for job in &jobs[..2] {
            let next = nonces.entry(job.lane).or_default();
            slots.push(NewSlot {
                id: SlotId(job.id.number()), lane: job.lane, nonce: Some(*next), since: 1, jobs: vec![(job.id, job.version)], kind: AttemptKind::Pay,
                payload: vec![0], coins: None, instead: None,
            });
            *next += 1;
        }
        assert_eq!(db.open_slots(&held, &slots, &[], &[], &HashMap::new(), NOW).await.unwrap().slots.len(), 2);
        let signed = |at: u8, slot: &NewSlot| SignedAttempt {
            lane: slot.lane, slot: slot.id, number: 1, answer: SignedAnswer::Signed { bytes: vec![1, at], hash: Hash([at; 32]) }, spend: None,
        };
        db.keep_signed(&held, &[signed(1, &slots[0]), signed(2, &slots[1])], None, NOW).await.unwrap();
        let told = |slot: &NewSlot| ToldAttempt { lane: slot.lane, slot: slot.id, number: 1, said: "nodes have it".to_owned() };
        db.keep_told(&held, &[told(&slots[0]), told(&slots[1])], later(10)).await.unwrap();
        let watches = db.take_lanes((desk.chain.id, Duty::Watch), "watcher", 9, NOW, later(3_600)).await.unwrap();
        for (slot, fee, at) in [(&slots[0], "12000000000000000005", 100), (&slots[1], "9000000000000000002", 40)] {
            let mined = MinedAttempt { height: 5, block: Hash([5; 32]), fate: Effect::InFull, fee: Some(fee.parse().unwrap()) };
            let news = SlotNews {
                lane: slot.lane, slot: slot.id, said: SlotWord::Deep(Effect::InFull), mined: Some((1, mined)), asked: 1, words: "deep".to_owned(), foreign: false,
            };
            assert_eq!(db.keep_news(&watches, &[news], later(at)).await.unwrap(), 1);
        }
        for number in 1..=3 {
            settle(db, base + number).await;
        }
        let figures = db.withdrawal_figures(NOW).await.unwrap();
        assert_eq!(figures.requests, BTreeMap::from([("approved", 1), ("cancelled", 1), ("completed", 2), ("failed", 1), ("queued", 1)]));
        assert_eq!(figures.jobs, BTreeMap::from([("confirmed", 2), ("failed_final", 1), ("failed_retryable", 1)]));
        assert_eq!(figures.retried, 1, "what failed was tried once");
        assert_eq!((figures.confirmation.count, figures.confirmation.average_us()), (2, Some(60 * 1_000_000)), "90 seconds and 30");
        assert_eq!((figures.approval.count, figures.approval.average_us()), (1, Some(20 * 1_000_000)));
        let [gas] = &figures.gas[..] else { panic!("{:?}", figures.gas) };
        assert_eq!((gas.chain.as_str(), gas.coin.as_str(), gas.decimals, gas.jobs), ("bsc", "BTC", 18, 2));
        assert_eq!((gas.fee.to_string().as_str(), gas.per_job().unwrap().to_string().as_str()), ("21000000000000000007", "10500000000000000003"));
        // Of a later time there is only what is still open.
        let figures = db.withdrawal_figures(later(86_400)).await.unwrap();
        assert_eq!(figures.requests, BTreeMap::from([("approved", 1), ("queued", 1)]));
        assert_eq!((figures.jobs, figures.retried), (BTreeMap::from([("failed_retryable", 1)]), 1));
        assert_eq!((figures.confirmation.count, figures.approval.count, figures.gas.len()), (0, 0, 0));
        assert_clean(db).await;
    }
}
