//! Withdrawals that another program has begun: its tables are the source's, on a real PostgreSQL, and its payments are on a devnet. None of them is ever
//! paid here again.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use custody::withdrawal::{
    ImportChange, ImportGround, ImportKind, ImportNames, PlannedImport, changed_imports, plan_import,
};
use domain::outbound::JobState;
use domain::transfer::ClientOrderId;
use domain::withdrawal::WithdrawalState;
use domain::{Amount, Approval, ChainKind, Clock, GroupId, UserId};
use store::catalog::{Author, Catalog};
use store::grants::DatabaseRole;
use store::old_withdrawals::{OldBooks, OldDatabase};
use store::operator::{CheckSetting, PeopleSettings};
use store::outbound::read::{JobReply, JobVerdict};
use store::outbound::{ApprovalSignature, JobId};
use store::testing::{TestDb, drop_database, fresh, on};
use store::withdrawal::signed::SignedRounds;
use store::withdrawal::{
    ChangedReply, ChangedThere, CheckHeard, CheckVerdict, Decision, DecisionReply, ImportRefusal, ImportReply,
    NewImport, NewWithdrawal, NewWithdrawalApproval, WithdrawalApproved, WithdrawalDecision, WithdrawalId,
    WithdrawalVerdict,
};
use store::{Db, Engine};
use tx::{Address, Payment, TxHash};

use crate::deposits::raw;
use crate::faulty::failing_at;
use crate::outbound::Desk;
use crate::withdrawals::Counter;

/// The source's own words, with the two columns that it had in `withdrawal_requests` before its refactoring.
const TABLES: &str = "
CREATE TABLE chains (id UUID PRIMARY KEY, name VARCHAR(50) NOT NULL);
CREATE TABLE assets (id UUID PRIMARY KEY, symbol VARCHAR(20) NOT NULL);
CREATE TABLE asset_on_chain (id UUID PRIMARY KEY, asset_id UUID NOT NULL REFERENCES assets (id), chain_id UUID NOT NULL REFERENCES chains (id),
    decimals INTEGER NOT NULL);
CREATE TABLE operation_wallet_addresses (id UUID PRIMARY KEY, chain_id UUID NOT NULL REFERENCES chains (id), address TEXT NOT NULL,
    role TEXT NOT NULL, status VARCHAR(20) NOT NULL DEFAULT 'active', last_used_at TIMESTAMPTZ, balance_reserved NUMERIC(28,18));
CREATE TABLE withdrawal_requests (
  id UUID PRIMARY KEY,
  user_id UUID NOT NULL,
  amount NUMERIC(28,18) NOT NULL,
  to_address VARCHAR(100) NOT NULL,
  asset_id UUID NOT NULL,
  chain_id UUID NOT NULL,
  status VARCHAR(20) NOT NULL,
  queued_at TIMESTAMPTZ,
  final_tx_hash VARCHAR(100),
  tx_hash VARCHAR(100),
  amount_raw TEXT,
  memo TEXT,
  retry_count INTEGER NOT NULL DEFAULT 0,
  error_message TEXT,
  created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
  updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
INSERT INTO chains VALUES ('c0000000-0000-0000-0000-000000000001', 'NET'), ('c0000000-0000-0000-0000-000000000002', 'dogecoin');
INSERT INTO assets VALUES ('a0000000-0000-0000-0000-000000000001', 'USDT'), ('a0000000-0000-0000-0000-000000000002', 'SHIB');
INSERT INTO asset_on_chain VALUES
    ('b0000000-0000-0000-0000-000000000001', 'a0000000-0000-0000-0000-000000000001', 'c0000000-0000-0000-0000-000000000001', 6),
    ('b0000000-0000-0000-0000-000000000002', 'a0000000-0000-0000-0000-000000000002', 'c0000000-0000-0000-0000-000000000001', 18);
";

const NET: &str = "c0000000-0000-0000-0000-000000000001";
const DOGE: &str = "c0000000-0000-0000-0000-000000000002";
const USDT: &str = "a0000000-0000-0000-0000-000000000001";
const SHIB: &str = "a0000000-0000-0000-0000-000000000002";

fn uuid(kind: u8, number: u32) -> String {
    format!("{kind:08x}-0000-4000-8000-{number:012x}")
}

/// The other program, stopped.
struct Old {
    db: TestDb,
}

struct Row<'a> {
    number: u32,
    user: u32,
    amount: &'a str,
    raw: Option<&'a str>,
    to: String,
    status: &'a str,
    hash: Option<String>,
    asset: &'a str,
    chain: &'a str,
    memo: Option<&'a str>,
}

impl<'a> Row<'a> {
    /// A dollar, to this address.
    fn new(number: u32, to: &Address, status: &'a str) -> Self {
        Self {
            number,
            user: 1,
            amount: "1.000000000000000000",
            raw: Some("1000000"),
            to: to.to_string(),
            status,
            hash: None,
            asset: USDT,
            chain: NET,
            memo: None,
        }
    }
}

impl Old {
    async fn start(hot: &Address) -> Self {
        let db = fresh(Engine::Postgres).await;
        db.by_hand(TABLES).await.unwrap();
        let wallet = format!(
            "INSERT INTO operation_wallet_addresses (id, chain_id, address, role) VALUES ('{}', '{NET}', '{hot}', 'hot_wallet')",
            uuid(9, 1)
        );
        db.by_hand(&wallet).await.unwrap();
        Self { db }
    }

    async fn insert(&self, row: &Row<'_>) {
        let text = |value: Option<&str>| value.map_or_else(|| "NULL".to_owned(), |value| format!("'{value}'"));
        let Row { number, user, amount, raw, to, status, hash, asset, chain, memo } = row;
        let sql = format!(
            "INSERT INTO withdrawal_requests (id, user_id, amount, to_address, asset_id, chain_id, status, tx_hash, amount_raw, memo)
             VALUES ('{}', '{}', {amount}, '{to}', '{asset}', '{chain}', '{status}', {}, {}, {})",
            uuid(1, *number),
            uuid(2, *user),
            text(hash.as_deref()),
            text(*raw),
            text(*memo)
        );
        self.db.by_hand(&sql).await.unwrap();
    }

    async fn open(&self) -> OldDatabase {
        OldDatabase::open(&self.db.url, "withdrawal_requests").await.unwrap()
    }

    async fn books(&self) -> OldBooks {
        self.books_of("withdrawal_requests").await
    }

    async fn books_of(&self, table: &str) -> OldBooks {
        let mut old = OldDatabase::open(&self.db.url, table).await.unwrap();
        assert_eq!(old.differences().await.unwrap(), []);
        let books = old.read(&[]).await.unwrap();
        old.close().await.unwrap();
        books
    }

    /// What has changed there of all that was taken over, as the command sees it.
    async fn changed(&self, db: &Db) -> Vec<ImportChange> {
        let imported = db.all_imported_withdrawals().await.unwrap();
        let ids: Vec<String> = imported.iter().map(|one| one.old_id.clone()).collect();
        let mut old = self.open().await;
        let books = old.read(&ids).await.unwrap();
        old.close().await.unwrap();
        changed_imports(&imported, &books)
    }

    async fn set(&self, number: u32, change: &str) {
        let sql = format!("UPDATE withdrawal_requests SET {change} WHERE id = '{}'", uuid(1, number));
        self.db.by_hand(&sql).await.unwrap();
    }

    async fn end(self) {
        self.db.close().await;
        drop_database(&self.db).await;
    }
}

/// Its users are ours, by these numbers.
fn names() -> ImportNames {
    let user = |number: u32| (uuid(2, number), UserId::new(i64::from(number)).unwrap());
    ImportNames { users: (1..=3).map(user).collect(), ..ImportNames::default() }
}

fn planned(desk: &Desk<'_>, books: &OldBooks) -> HashMap<String, PlannedImport> {
    let (names, chains) = (names(), [desk.rig.row.clone()]);
    let ground = ImportGround { chains: &chains, pinned: &desk.rig.pinned, names: &names };
    plan_import(&ground, books).into_iter().map(|one| (one.old_id.clone(), one)).collect()
}

/// As the command does it: batch by batch.
async fn take_over(db: &Db, desk: &Desk<'_>, books: &OldBooks) -> Option<HashMap<String, ImportReply>> {
    let make = || desk.ids.next::<domain::id::Job>().ok().map(|id| id.number());
    let plan = planned(desk, books);
    let mut drafts: Vec<_> = plan.values().filter_map(|one| one.draft.as_ref().ok()).collect();
    drafts.sort_by_key(|draft| format!("{draft:?}"));
    let mut done = HashMap::new();
    for batch in drafts.chunks(3) {
        let new: Vec<NewImport> = batch.iter().map(|draft| draft.numbered(&make).unwrap()).collect();
        let replies = db.import_withdrawals(&new, "ann: moving over", desk.rig.clock.now()).await.ok()?;
        done.extend(new.into_iter().map(|one| one.old_id).zip(replies));
    }
    Some(done)
}

fn taken(done: &HashMap<String, ImportReply>, number: u32) -> WithdrawalId {
    match &done[&uuid(1, number)] {
        ImportReply::New(row) => row.id,
        other => panic!("{number}: {other:?}"),
    }
}

fn shown(kind: ChainKind, hash: TxHash) -> Option<String> {
    let digits: String = hash.0.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(if kind == ChainKind::Evm { format!("0x{digits}") } else { digits })
}

fn people() -> Approval {
    Approval::new("ann", "bob", "looked at the old books").unwrap()
}

async fn job_of(db: &Db, id: WithdrawalId) -> JobId {
    db.jobs_of_withdrawal(id).await.unwrap()[0].0
}

async fn clean(db: &Db) {
    let report = db.audit(|_| ()).await.unwrap();
    assert!(report.clean(), "{:#?}", report.findings);
}

fn on_both(test: impl AsyncFn(Counter<'_>)) {
    for kind in [ChainKind::Evm, ChainKind::Tron] {
        on(Engine::Postgres, async |db| test(Counter::open(db, kind).await).await);
    }
}

/// What was paid there is completed here, and no coin leaves for it again; what the chain shows otherwise, or never shows, people judge.
#[test]
fn postgres_what_another_program_has_sent_is_followed_by_its_hash_and_never_sent_again() {
    on_both(async |counter| {
        let (desk, db) = (&counter.desk, counter.desk.rig.db);
        counter.pay_in(50_000_000).await;
        let suspense = counter.house(domain::AccountKind::Suspense).await;
        let old = Old::start(&desk.hot()).await;
        let token = desk.rig.token();
        let [good, lying, lost] = [desk.fresh(), desk.fresh(), desk.fresh()];
        let pays = |to: &Address, amount| Payment { to: to.clone(), coin: token.clone(), amount: raw(amount) };
        // One is in a block, one pays half of what its row says, and one was never told to any node.
        let (bytes, paid) = desk.elsewhere(pays(&good, 1_000_000)).await;
        desk.rig.chain.broadcast(&bytes).await.unwrap();
        desk.rig.mine(1);
        let (bytes, half) = desk.elsewhere(pays(&lying, 500_000)).await;
        desk.rig.chain.broadcast(&bytes).await.unwrap();
        let (_, never) = desk.elsewhere(pays(&lost, 1_000_000)).await;
        for (number, to, hash, status) in
            [(1, &good, paid, "approved"), (2, &lying, half, "processing"), (3, &lost, never, "processing")]
        {
            old.insert(&Row { hash: shown(desk.rig.kind, hash), ..Row::new(number, to, status) }).await;
        }
        let books = old.books().await;
        let done = take_over(db, desk, &books).await.unwrap();
        let [good_id, lying_id, lost_id] = [1, 2, 3].map(|number| taken(&done, number));
        for id in [good_id, lying_id, lost_id] {
            assert_eq!(counter.state(id).await, WithdrawalState::Queued);
            let (job, slots, steps) = db.job(job_of(db, id).await).await.unwrap().unwrap();
            assert_eq!((job.job.state, slots.len()), (JobState::Broadcasted, 1));
            let way: Vec<&str> = steps.iter().map(|step| step.state.as_str()).collect();
            assert_eq!(
                way,
                ["queued", "picked", "building_tx", "signing", "broadcasting", "broadcasted"],
                "none is skipped"
            );
        }
        assert_eq!(desk.rig.has(1, "USDT").await, 500_000 - 30_000, "all three are held");
        clean(db).await;
        // A job of ours waits for the lane, where a nonce could be the other program's.
        let (own, _) = desk.add(&token, 100).await;
        for _ in 0..9 {
            desk.round().await;
            desk.rig.mine(1);
            counter.round().await;
        }
        assert_eq!(counter.state(good_id).await, WithdrawalState::Completed);
        assert_eq!(desk.paid(&good, &token).await, raw(1_000_000), "once");
        assert_eq!(desk.state(own).await == JobState::Queued, desk.rig.kind == ChainKind::Evm);
        for id in [lying_id, lost_id] {
            assert_eq!(counter.state(id).await, WithdrawalState::Queued, "nobody knows");
        }
        assert_eq!(desk.paid(&lost, &token).await, raw(0));
        // People say that the one was not paid, and that the other counts as paid. Nobody can have either paid again.
        let now = desk.rig.clock.now();
        let (lying_job, lost_job) = (job_of(db, lying_id).await, job_of(db, lost_id).await);
        for job in [lying_job, lost_job] {
            let again = db.judge_job(job, JobVerdict::Again, &people(), now).await.unwrap();
            assert!(matches!(again, JobReply::NotNow(_)), "{again:?}");
            db.bump_job(job, "ann", now).await.unwrap();
            db.cancel_job(job, "ann", now).await.unwrap();
        }
        assert_eq!(db.judge_job(lost_job, JobVerdict::Unpaid, &people(), now).await.unwrap(), JobReply::Done);
        assert_eq!(db.judge_job(lying_job, JobVerdict::Paid, &people(), now).await.unwrap(), JobReply::Done);
        for _ in 0..9 {
            desk.round().await;
            desk.rig.mine(1);
            counter.round().await;
        }
        assert_eq!(counter.state(lost_id).await, WithdrawalState::Failed);
        assert_eq!(counter.state(lying_id).await, WithdrawalState::Completed);
        assert_eq!(desk.rig.has(1, "USDT").await, 500_000 - 20_000, "one has its money back");
        assert_eq!((desk.paid(&lost, &token).await, desk.paid(&lying, &token).await), (raw(0), raw(500_000)));
        // The lane is free again, and what left it was no theft.
        assert_eq!(desk.state(own).await, JobState::Confirmed);
        desk.assert_true().await;
        // What people called paid in full was half of it: the difference is where it can be seen. (A unit left for the job that no customer asked for.)
        assert_eq!(counter.house(domain::AccountKind::Suspense).await, suspense + 5_000 - 1);
        // The same once more is the same.
        let again = take_over(db, desk, &books).await.unwrap();
        assert!(again.values().all(|reply| matches!(reply, ImportReply::Before(_))), "{again:?}");
        old.end().await;
    });
}

#[test]
fn postgres_every_kind_of_row_is_placed_or_refused_with_its_reason() {
    on(Engine::Postgres, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        let desk = &counter.desk;
        counter.pay_in(50_000_000).await;
        let old = Old::start(&desk.hot()).await;
        let to = desk.fresh();
        let hash = |byte: u8| Some(format!("0x{}", format!("{byte:02x}").repeat(32)));
        let row = |number, status| Row::new(number, &to, status);
        let rows = [
            row(1, "pending"),
            row(2, "approved"),
            row(3, "processing"),
            Row { hash: hash(4), ..row(4, "confirming") },
            // Ended: left where they are.
            Row { hash: hash(5), ..row(5, "completed") },
            row(6, "failed"),
            Row { hash: hash(7), ..row(7, "failed") },
            // What cannot be placed.
            Row { asset: SHIB, ..row(10, "pending") },
            Row { chain: DOGE, ..row(11, "pending") },
            Row { to: "0xDEADBEEF".to_owned(), ..row(12, "pending") },
            Row { to: "TJRabPrwbZy45sbavfcjinPJC18kjpRTv8".to_owned(), ..row(13, "approved") },
            Row { raw: Some("1000001"), ..row(14, "pending") },
            Row { amount: "0.000000500000000000", raw: None, ..row(15, "pending") },
            Row { amount: "0.000001000000000000", raw: Some("1"), ..row(16, "pending") },
            Row { hash: Some("ab".repeat(32)), ..row(17, "processing") },
            Row { hash: hash(18), ..row(18, "processing") },
            Row { hash: hash(18).map(|text| text.to_uppercase().replace("0X", "0x")), ..row(19, "processing") },
            Row { hash: hash(5), ..row(20, "processing") },
            Row { hash: Some(format!(" {} ", "26".repeat(32))), ..row(26, "completed") },
            Row { hash: hash(0x26), ..row(27, "processing") },
            Row { user: 77, ..row(21, "pending") },
            row(22, "paused"),
            Row { memo: Some("1234"), ..row(23, "pending") },
            Row { to: desk.hot().to_string(), ..row(24, "pending") },
            Row { amount: "0", raw: None, ..row(25, "pending") },
            // What the books refuse.
            Row { user: 2, ..row(30, "pending") },
            Row { amount: "40.0", raw: Some("40000000"), ..row(31, "pending") },
            Row { amount: "40.0", raw: Some("40000000"), ..row(32, "pending") },
        ];
        for row in &rows {
            old.insert(row).await;
        }
        let books = old.books().await;
        let count = |status: &str, hashed| {
            books.counts.iter().find(|one| one.status == status && one.hashed == hashed).unwrap().rows
        };
        assert_eq!((count("completed", true), count("failed", false), count("failed", true)), (2, 1, 1));
        let plan = planned(desk, &books);
        assert_eq!(plan.len(), rows.len() - 4, "what has ended is only counted");
        let kind = |number| plan[&uuid(1, number)].kind();
        assert_eq!(
            [1, 2, 3, 4].map(kind),
            [ImportKind::Waits, ImportKind::MayBePaid, ImportKind::MayBePaid, ImportKind::Followed]
        );
        for (number, why) in [
            (10, "SHIB is not listed"),
            (11, "there is no chain dogecoin"),
            (12, "its address"),
            (13, "its address"),
            (14, "its amount_raw says 1000001"),
            (15, "is finer than 6 decimals"),
            (16, "finer than a unit of the ledger"),
            (17, "does not begin with 0x"),
            (18, "2 rows have its hash"),
            (19, "2 rows have its hash"),
            (20, "2 rows have its hash"),
            (27, "2 rows have its hash"),
            (21, "the list of users has no"),
            (22, "nobody here knows the status paused"),
            (23, "memo"),
            (24, "a wallet of the house"),
            (25, "not above zero"),
        ] {
            let said = plan[&uuid(1, number)].draft.as_ref().unwrap_err();
            assert!(said.contains(why), "{number}: {said}");
        }
        let done = take_over(db, desk, &books).await.unwrap();
        let said = |number: u32| match &done[&uuid(1, number)] {
            ImportReply::Refused(refusal) => Some(refusal.words()),
            _ => None,
        };
        assert!(said(30).unwrap().contains("no account"), "{:?}", said(30));
        // Of two that want more than there is together, one is taken.
        let both = [said(31), said(32)];
        assert_eq!(both.iter().filter(|said| said.is_none()).count(), 1, "{both:?}");
        assert!(both.iter().flatten().all(|said| said.contains("less than amount")), "{both:?}");
        let states = [1, 2, 3, 4].map(|number| taken(&done, number));
        assert_eq!(counter.state(states[0]).await, WithdrawalState::Pending);
        assert_eq!(counter.state(states[1]).await, WithdrawalState::ManualReview);
        assert_eq!(counter.state(states[2]).await, WithdrawalState::ManualReview);
        assert_eq!(desk.rig.has(1, "USDT").await, 500_000 - 4 * 10_000 - 400_000);
        let row = db.withdrawals(&[states[2]]).await.unwrap().remove(0);
        assert_eq!((row.people, row.jobs, row.rule.as_str()), (2, 0, "imported_may_be_paid"));
        clean(db).await;
        // Nothing of it goes out by itself.
        for _ in 0..3 {
            counter.round().await;
            desk.round().await;
        }
        assert_eq!(desk.paid(&to, &desk.rig.token()).await, raw(0));
        // What may have been paid nobody gives back alone, neither the customer nor one of ours nor time; two people say what became of it.
        let now = desk.rig.clock.now();
        let nothing = SignedRounds::default();
        let doubted = [states[1], states[2]];
        let called_off =
            db.cancel_withdrawals(&doubted.map(|id| (UserId::new(1).unwrap(), id)), &nothing, now).await.unwrap();
        let refuse = |id| WithdrawalDecision {
            id,
            decision: Decision::Refuse,
            actor: "ann".to_owned(),
            reason: "no".to_owned(),
        };
        let refused = db.decide_withdrawals(&doubted.map(refuse), &nothing, now).await.unwrap();
        let far = now.plus_micros(400 * 86_400_000_000);
        let expired = db.expire_withdrawals(&doubted, &nothing, far).await.unwrap();
        for reply in called_off.iter().chain(&refused).chain(&expired) {
            assert!(matches!(reply, DecisionReply::NotNow(WithdrawalState::ManualReview)), "{reply:?}");
        }
        let verdicts = [(states[1], WithdrawalVerdict::Paid), (states[2], WithdrawalVerdict::Unpaid)];
        // Not before the signer was asked: what was agreed to here before a database was put back may have been paid here.
        let judged = db.judge_withdrawals(&verdicts, &people(), &nothing, now).await.unwrap();
        assert_eq!(judged, [DecisionReply::SignerNotAsked, DecisionReply::SignerNotAsked]);
        let more = SignedRounds::of([(states[1], Some(0)), (states[2], Some(1))]);
        let judged = db.judge_withdrawals(&verdicts[1..], &people(), &more, now).await.unwrap();
        assert_eq!(judged, [DecisionReply::SignerKnowsMore], "who looked at the old books alone does not give it back");
        let verdicts = [(states[1], WithdrawalVerdict::Paid), (states[2], WithdrawalVerdict::UnpaidAnywhere)];
        let judged = db.judge_withdrawals(&verdicts, &people(), &more, now).await.unwrap();
        assert!(judged.iter().all(|reply| matches!(reply, DecisionReply::Done(_))), "{judged:?}");
        assert_eq!(counter.state(states[1]).await, WithdrawalState::Completed);
        assert_eq!(counter.state(states[2]).await, WithdrawalState::Failed);
        assert_eq!(desk.rig.has(1, "USDT").await, 500_000 - 3 * 10_000 - 400_000, "one has its money back");
        clean(db).await;
        // Run again, it does the same to those that were refused and nothing to the others; and it says so where the other program has gone on.
        old.db
            .by_hand(&format!("UPDATE withdrawal_requests SET status = 'processing' WHERE id = '{}'", uuid(1, 1)))
            .await
            .unwrap();
        let again = take_over(db, desk, &old.books().await).await.unwrap();
        assert!(matches!(again[&uuid(1, 1)], ImportReply::Changed { .. }), "{:?}", again[&uuid(1, 1)]);
        assert!([2, 3, 4].iter().all(|number| matches!(again[&uuid(1, *number)], ImportReply::Before(_))));
        assert!(!again.values().any(|reply| matches!(reply, ImportReply::New(_))));
        clean(db).await;
        old.end().await;
    });
}

/// What is certainly lost is not paid for another program either; what it has sent there is followed.
#[test]
fn postgres_what_would_be_lost_is_not_taken_over_unless_it_was_sent() {
    on(Engine::Postgres, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        let desk = &counter.desk;
        counter.pay_in(50_000_000).await;
        let old = Old::start(&desk.hot()).await;
        let burnt = || "0x000000000000000000000000000000000000dEaD".to_owned();
        let (to, token) = (desk.fresh(), devnet::evm::TETHER.to_string());
        let hash = format!("0x{}", "04".repeat(32));
        for row in [
            Row { to: burnt(), ..Row::new(1, &to, "pending") },
            Row { to: token.to_lowercase(), ..Row::new(2, &to, "approved") },
            Row { to: burnt(), hash: Some(hash), ..Row::new(3, &to, "processing") },
        ] {
            old.insert(&row).await;
        }
        let books = old.books().await;
        let plan = planned(desk, &books);
        for (number, why) in [(1, "nobody has the key"), (2, "the contract of a token")] {
            let said = plan[&uuid(1, number)].draft.as_ref().unwrap_err();
            assert!(said.contains(why), "{number}: {said}");
        }
        assert_eq!(plan[&uuid(1, 3)].kind(), ImportKind::Followed);
        let done = take_over(db, desk, &books).await.unwrap();
        assert_eq!(counter.state(taken(&done, 3)).await, WithdrawalState::Queued);
        assert_eq!(
            (done.len(), desk.rig.has(1, "USDT").await),
            (1, 500_000 - 10_000),
            "the money of the others is free"
        );
        clean(db).await;
        old.end().await;
    });
}

async fn doubt(desk: &Desk<'_>, changed: &[ImportChange]) -> Vec<ChangedReply> {
    let db = desk.rig.db.of(DatabaseRole::Administrator);
    let there: Vec<ChangedThere> = changed
        .iter()
        .map(|one| ChangedThere { id: one.id, followed: one.followed, words: one.words.clone() })
        .collect();
    db.doubt_imports(&there, "ann: again", desk.rig.clock.now()).await.unwrap()
}

/// The old program was not stopped: what it pays after the take-over is noticed although its row has ended, and nobody here pays it alone.
#[test]
fn postgres_what_the_other_program_pays_after_the_take_over_waits_for_two_people() {
    on(Engine::Postgres, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        let desk = &counter.desk;
        counter.pay_in(50_000_000).await;
        let old = Old::start(&desk.hot()).await;
        let to = desk.fresh();
        let hash = |byte: u8| format!("0x{}", format!("{byte:02x}").repeat(32));
        for (number, status) in [(1, "pending"), (2, "pending"), (3, "processing"), (4, "pending"), (5, "pending")] {
            old.insert(&Row::new(number, &to, status)).await;
        }
        old.insert(&Row { hash: Some(hash(6)), ..Row::new(6, &to, "confirming") }).await;
        let done = take_over(db, desk, &old.books().await).await.unwrap();
        let ids: Vec<WithdrawalId> = (1..=6).map(|number| taken(&done, number)).collect();
        assert_eq!(old.changed(db).await, []);
        // One is approved by one person, one is reviewed, and one is called off.
        let now = desk.rig.clock.now();
        approve_by(db, desk, ids[1], "bob").await;
        assert_eq!(counter.state(ids[1]).await, WithdrawalState::Approved);
        let review = WithdrawalDecision {
            id: ids[3],
            decision: Decision::Review,
            actor: "ann".to_owned(),
            reason: "who is it?".to_owned(),
        };
        db.decide_withdrawals(&[review], &SignedRounds::default(), now).await.unwrap();
        let signed = SignedRounds::of([(ids[4], Some(0))]);
        db.cancel_withdrawals(&[(UserId::new(1).unwrap(), ids[4])], &signed, now).await.unwrap();
        assert_eq!(counter.state(ids[4]).await, WithdrawalState::Cancelled);
        for number in [1, 2, 4, 5] {
            let paid = hash(u8::try_from(number).unwrap());
            old.set(number, &format!("status = 'completed', tx_hash = '{paid}'")).await;
        }
        old.db.by_hand(&format!("DELETE FROM withdrawal_requests WHERE id = '{}'", uuid(1, 3))).await.unwrap();
        old.set(6, &format!("tx_hash = ' {} '", hash(6).to_uppercase())).await;
        assert!(old.books().await.open.iter().all(|row| row.id == uuid(1, 6)), "all others have ended");
        let changed = old.changed(db).await;
        let said: Vec<&str> = changed.iter().map(|one| one.words.as_str()).collect();
        assert_eq!(
            changed.iter().map(|one| one.id).collect::<Vec<_>>(),
            ids[..5],
            "the same hash is the same: {said:?}"
        );
        assert!(
            said[0].contains("it was pending when it became")
                && said[0].contains("is completed now, with the hash 0x01")
        );
        assert!(said[2].contains("is not there any more"), "{said:?}");
        let again = doubt(desk, &changed).await;
        let cancelled = ChangedReply::TooLate(WithdrawalState::Cancelled);
        let doubted = ChangedReply::Doubted;
        assert_eq!(again, [doubted, doubted, ChangedReply::Before, doubted, cancelled]);
        for id in &ids[..4] {
            let row = db.withdrawals(&[*id]).await.unwrap().remove(0);
            assert_eq!((row.state, row.people), (WithdrawalState::ManualReview, 2));
            assert_eq!(row.rule, "imported_may_be_paid");
        }
        let last = db.withdrawal_history(ids[1]).await.unwrap().pop().unwrap();
        assert!(last.reason.contains("is completed now"), "{last:?}");
        // No person, no customer and no time pays it or gives it back alone.
        approve_by(db, desk, ids[0], "bob").await;
        assert_eq!(counter.state(ids[0]).await, WithdrawalState::ManualReview);
        let signed = SignedRounds::of([(ids[0], Some(0))]);
        let called_off = db.cancel_withdrawals(&[(UserId::new(1).unwrap(), ids[0])], &signed, now).await.unwrap();
        assert_eq!(called_off, [DecisionReply::NotNow(WithdrawalState::ManualReview)]);
        for _ in 0..3 {
            counter.round().await;
            desk.round().await;
        }
        assert_eq!(desk.paid(&to, &desk.rig.token()).await, raw(0));
        // Said again it is the same. Nothing else changes how many people have to agree.
        let once_more = doubt(desk, &changed).await;
        assert_eq!(once_more[..4], [ChangedReply::Before; 4]);
        for change in ["people = 1", "rule = 'imported'", "people = 3", "version = version + 1"] {
            let sql = format!("UPDATE withdrawal_requests SET {change} WHERE id = {}", ids[0].number());
            assert!(db.by_hand(&sql).await.is_err(), "{change}");
        }
        clean(db).await;
        old.end().await;
    });
}

/// It has a job here by the time that the other program has paid it: the job is called off with the doubt, and again by every run that finds it; however it
/// ends, the money waits for two people.
#[test]
fn postgres_a_doubt_about_what_has_a_job_is_kept() {
    on(Engine::Postgres, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        let desk = &counter.desk;
        counter.pay_in(50_000_000).await;
        let old = Old::start(&desk.hot()).await;
        let to = desk.fresh();
        old.insert(&Row::new(1, &to, "pending")).await;
        let done = take_over(db, desk, &old.books().await).await.unwrap();
        let id = taken(&done, 1);
        approve_by(db, desk, id, "bob").await;
        counter.round().await;
        assert_eq!(counter.state(id).await, WithdrawalState::Queued);
        // Its slot is written down, and nobody has signed anything.
        desk.pen.away.store(true, Ordering::Relaxed);
        desk.round().await;
        desk.pen.away.store(false, Ordering::Relaxed);
        let job = job_of(db, id).await;
        assert_eq!(db.job(job).await.unwrap().unwrap().0.job.state, JobState::Signing);
        old.set(1, &format!("status = 'completed', tx_hash = '0x{}'", "01".repeat(32))).await;
        let changed = old.changed(db).await;
        let called_off = [ChangedReply::DoubtedWithJob(JobReply::Done)];
        assert_eq!(doubt(desk, &changed).await, called_off);
        let row = db.withdrawals(&[id]).await.unwrap().remove(0);
        assert_eq!((row.state, row.people, row.rule.as_str()), (WithdrawalState::Queued, 2, "imported_may_be_paid"));
        assert!(db.job(job).await.unwrap().unwrap().0.job.give_up, "in the same commit");
        // One that was doubted by an older program, and whose job nobody has called off.
        db.by_hand("UPDATE outbound_jobs SET give_up = FALSE").await.unwrap();
        assert_eq!(doubt(desk, &changed).await, called_off);
        assert!(db.job(job).await.unwrap().unwrap().0.job.give_up);
        assert_eq!(db.withdrawals(&[id]).await.unwrap(), [row], "it is written once");
        clean(db).await;
        for _ in 0..20 {
            counter.round().await;
            desk.round().await;
            desk.rig.mine(1);
        }
        assert_eq!(counter.state(id).await, WithdrawalState::ManualReview);
        assert_eq!(doubt(desk, &changed).await, [ChangedReply::Before]);
        assert_eq!(desk.rig.has(1, "USDT").await, 500_000 - 10_000, "it is held");
        assert_eq!(desk.paid(&to, &desk.rig.token()).await, raw(0));
        clean(db).await;
        old.end().await;
    });
}

/// Two people have agreed to what may have been paid there; it finds no wallet until its time is over. Nothing gives it back, and they are told.
#[test]
fn postgres_what_may_have_been_paid_and_is_late_goes_to_people() {
    on(Engine::Postgres, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        let desk = &counter.desk;
        counter.pay_in(50_000_000).await;
        let old = Old::start(&desk.hot()).await;
        old.insert(&Row::new(1, &desk.fresh(), "processing")).await;
        let done = take_over(db, desk, &old.books().await).await.unwrap();
        let id = taken(&done, 1);
        approve_by(db, desk, id, "bob").await;
        approve_by(db, desk, id, "carl").await;
        db.by_hand("UPDATE operation_wallet_addresses SET is_active = FALSE").await.unwrap();
        counter.round().await;
        assert_eq!(counter.state(id).await, WithdrawalState::Approved, "there is no wallet");
        let expires = db.withdrawals(&[id]).await.unwrap()[0].expires;
        desk.rig.clock.set(expires.plus_micros(1));
        assert_eq!(counter.round().await.doubted, [id]);
        assert_eq!(counter.state(id).await, WithdrawalState::ManualReview);
        assert_eq!(desk.rig.has(1, "USDT").await, 500_000 - 10_000, "it is held");
        clean(db).await;
        old.end().await;
    });
}

/// People have said that it was not paid, and the customer has the money back. Somebody brings it into a block all the same: that is a theft.
#[test]
fn postgres_what_was_judged_unpaid_and_is_mined_later_stops_its_group() {
    on(Engine::Postgres, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        let desk = &counter.desk;
        counter.pay_in(50_000_000).await;
        let old = Old::start(&desk.hot()).await;
        let to = desk.fresh();
        let token = desk.rig.token();
        let payment = Payment { to: to.clone(), coin: token.clone(), amount: raw(1_000_000) };
        let (bytes, hash) = desk.elsewhere(payment).await;
        old.insert(&Row { hash: shown(desk.rig.kind, hash), ..Row::new(1, &to, "processing") }).await;
        let done = take_over(db, desk, &old.books().await).await.unwrap();
        let id = taken(&done, 1);
        desk.round().await;
        let said = db.judge_job(job_of(db, id).await, JobVerdict::Unpaid, &people(), desk.rig.clock.now()).await;
        assert_eq!(said.unwrap(), JobReply::Done);
        counter.round().await;
        assert_eq!((counter.state(id).await, desk.rig.has(1, "USDT").await), (WithdrawalState::Failed, 500_000));
        assert!(db.lanes(None, None, 0, 9).await.unwrap().iter().all(|lane| lane.lane.stopped.is_none()));
        desk.rig.chain.broadcast(&bytes).await.unwrap();
        for _ in 0..9 {
            desk.round().await;
            desk.rig.mine(1);
            counter.round().await;
            counter.books().await;
        }
        assert_eq!(desk.paid(&to, &token).await, raw(1_000_000), "the customer has both");
        let findings = db.open_findings(0, 10).await.unwrap();
        assert!(findings.iter().any(|one| one.kind == "foreign_spend"), "{findings:?}");
        let lanes = db.lanes(None, None, 0, 9).await.unwrap();
        assert!(lanes.iter().any(|lane| lane.lane.stopped.is_some()), "{lanes:?}");
        old.end().await;
    });
}

/// The books have read the block that has it, and whoever watches the slot has not: two people cannot say that it was not paid, and it is completed.
#[test]
fn postgres_what_a_block_has_is_not_judged_unpaid() {
    on_both(async |counter| {
        let (desk, db) = (&counter.desk, counter.desk.rig.db);
        counter.pay_in(50_000_000).await;
        let old = Old::start(&desk.hot()).await;
        let (to, token) = (desk.fresh(), desk.rig.token());
        let (bytes, hash) =
            desk.elsewhere(Payment { to: to.clone(), coin: token.clone(), amount: raw(1_000_000) }).await;
        old.insert(&Row { hash: shown(desk.rig.kind, hash), ..Row::new(1, &to, "processing") }).await;
        let done = take_over(db, desk, &old.books().await).await.unwrap();
        let id = taken(&done, 1);
        desk.rig.chain.broadcast(&bytes).await.unwrap();
        desk.rig.mine(4);
        counter.books().await;
        let read = "SELECT cause FROM chain_entries WHERE alive AND side = -1 AND tx_hash IS NOT NULL";
        let causes = db.ask("SELECT 1", read).await.unwrap();
        assert!(causes.contains(&vec![Some("payout".to_owned())]), "the books have it: {causes:?}");
        let job = job_of(db, id).await;
        let (_, slots, _) = db.job(job).await.unwrap().unwrap();
        assert!(slots[0].mined().is_none(), "nobody has watched the slot: {slots:?}");
        let said = db.judge_job(job, JobVerdict::Unpaid, &people(), desk.rig.clock.now()).await.unwrap();
        assert_eq!(said, JobReply::NotNow(JobState::Broadcasted));
        for _ in 0..9 {
            desk.round().await;
            desk.rig.mine(1);
            counter.round().await;
        }
        assert_eq!(counter.state(id).await, WithdrawalState::Completed);
        assert_eq!(desk.rig.has(1, "USDT").await, 500_000 - 10_000, "the customer has the money once");
        assert_eq!(desk.paid(&to, &token).await, raw(1_000_000));
        desk.assert_true().await;
        clean(db).await;
        old.end().await;
    });
}

fn approval(id: WithdrawalId, group: GroupId, person: &str) -> NewWithdrawalApproval {
    NewWithdrawalApproval {
        withdrawal: id,
        digest: [7; 32],
        round: 0,
        group,
        person: person.to_owned(),
        key: person.to_owned(),
        signature: ApprovalSignature::Ed25519(vec![1; 64]),
    }
}

/// A person signs for it.
async fn approve_by(db: &Db, desk: &Desk<'_>, id: WithdrawalId, person: &str) {
    let group = db.withdrawals(&[id]).await.unwrap().remove(0).group.unwrap();
    let approval = approval(id, group, person);
    let said = db.approve_withdrawal(&approval, desk.rig.clock.now()).await.unwrap();
    assert!(matches!(said, WithdrawalApproved::Approved(_) | WithdrawalApproved::Kept { .. }), "{said:?}");
}

/// Killed at every point of every commit, and run again: every row is taken over once, with one hold and one job.
#[test]
fn postgres_an_import_that_dies_anywhere_is_finished_by_the_next() {
    on(Engine::Postgres, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        let desk = &counter.desk;
        counter.pay_in(50_000_000).await;
        let old = Old::start(&desk.hot()).await;
        let to = desk.fresh();
        let mut made = 0;
        for at in 0.. {
            for _ in 0..4 {
                made += 1;
                let mut row = Row { amount: "0.0100", raw: Some("10000"), ..Row::new(made, &to, "processing") };
                if made % 2 == 0 {
                    row.hash = Some(format!("0x{made:064x}"));
                }
                old.insert(&row).await;
            }
            let books = old.books().await;
            let died = take_over(&failing_at(db, at), desk, &books).await.is_none();
            take_over(db, desk, &books).await.unwrap();
            let ids: Vec<String> = (1..=made).map(|number| uuid(1, number)).collect();
            let known = db.imported_withdrawals(&ids).await.unwrap();
            assert_eq!(known.len(), ids.len(), "point {at}");
            let held = i64::from(made) * 100;
            assert_eq!(desk.rig.has(1, "USDT").await, 500_000 - held, "point {at}: one hold for each");
            if at % 8 == 0 || !died {
                clean(db).await;
            }
            // The next begin anew.
            old.db.by_hand("UPDATE withdrawal_requests SET status = 'completed'").await.unwrap();
            if !died {
                assert!(at > 20, "{at}");
                break;
            }
        }
        old.end().await;
    });
}

/// A copy says what was; what the table of today says otherwise is not taken over, and what it calls pending two people look at.
#[test]
fn postgres_what_a_backup_calls_pending_is_never_paid_by_one_person() {
    on(Engine::Postgres, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        let desk = &counter.desk;
        counter.pay_in(50_000_000).await;
        let old = Old::start(&desk.hot()).await;
        let to = desk.fresh();
        for number in 1..=5 {
            old.insert(&Row::new(number, &to, "pending")).await;
        }
        let hash = format!("0x{}", "06".repeat(32));
        old.insert(&Row { hash: Some(hash.clone()), ..Row::new(6, &to, "processing") }).await;
        let mut other = old.open().await;
        other.back_up().await.unwrap();
        other.close().await.unwrap();
        // Refactored, as the source has it: hashes are in a table of jobs, and its new workers have paid.
        old.db.by_hand("ALTER TABLE withdrawal_requests DROP COLUMN tx_hash, DROP COLUMN amount_raw").await.unwrap();
        old.set(2, "status = 'completed'").await;
        old.set(3, "status = 'queued'").await;
        old.set(4, "status = 'PENDING'").await;
        old.db.by_hand(&format!("DELETE FROM withdrawal_requests WHERE id = '{}'", uuid(1, 5))).await.unwrap();
        for (number, status) in [(7, "queued"), (8, "completed")] {
            let columns = "id, user_id, amount, to_address, asset_id, chain_id, status";
            let sql = format!(
                "INSERT INTO withdrawal_requests ({columns}) VALUES ('{}', '{}', 1, '{to}', '{USDT}', '{NET}', '{status}')",
                uuid(1, number),
                uuid(2, 1)
            );
            old.db.by_hand(&sql).await.unwrap();
        }
        let books = old.books_of("withdrawal_requests_backup").await;
        assert!(books.stale && books.live.as_deref() == Some("withdrawal_requests"));
        assert_eq!(books.newer, [(uuid(1, 7), "queued".to_owned())], "made since, and not ended");
        let plan = planned(desk, &books);
        let kind = |number| plan[&uuid(1, number)].kind();
        assert_eq!([1, 4].map(kind), [ImportKind::MayBePaid; 2]);
        assert_eq!(kind(6), ImportKind::Followed);
        for (number, why) in
            [(2, "it is completed in"), (3, "it is queued in"), (5, "not in withdrawal_requests any more")]
        {
            let said = plan[&uuid(1, number)].draft.as_ref().unwrap_err();
            assert!(said.contains(why), "{number}: {said}");
        }
        let done = take_over(db, desk, &books).await.unwrap();
        assert_eq!(counter.state(taken(&done, 1)).await, WithdrawalState::ManualReview);
        // What is done there after that is seen in the table of today.
        old.set(1, "status = 'completed'").await;
        let imported = db.all_imported_withdrawals().await.unwrap();
        let ids: Vec<String> = imported.iter().map(|one| one.old_id.clone()).collect();
        let mut backup = OldDatabase::open(&old.db.url, "withdrawal_requests_backup").await.unwrap();
        let changed = changed_imports(&imported, &backup.read(&ids).await.unwrap());
        backup.close().await.unwrap();
        assert!(changed[0].old_id == uuid(1, 1) && changed[0].words.contains("is completed now"), "{changed:?}");
        // Where nothing says what became of them since, two people look at all of them.
        old.db.by_hand("DROP TABLE withdrawal_requests").await.unwrap();
        let books = old.books_of("withdrawal_requests_backup").await;
        assert!(books.stale && books.live.is_none());
        let plan = planned(desk, &books);
        assert!((1..=5).all(|number| plan[&uuid(1, number)].kind() == ImportKind::MayBePaid));
        // A copy under another name is a copy too, and one of today that says nothing is none to hold it against.
        old.db
            .by_hand("ALTER TABLE withdrawal_requests_backup RENAME TO requests_of_march; CREATE TABLE withdrawal_requests (id UUID)")
            .await
            .unwrap();
        let mut copy = OldDatabase::open(&old.db.url, "requests_of_march").await.unwrap();
        let said: Vec<String> = copy.differences().await.unwrap().iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|one| one.starts_with("withdrawal_requests has no column status")), "{said:?}");
        copy.close().await.unwrap();
        clean(db).await;
        old.end().await;
    });
}

/// A try that failed there, because a node did not answer in time, may have paid all the same.
#[test]
fn postgres_what_was_tried_before_two_people_look_at() {
    on(Engine::Postgres, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        let desk = &counter.desk;
        let old = Old::start(&desk.hot()).await;
        let to = desk.fresh();
        let traces = ["retry_count = 1", "error_message = 'RPC timeout'", "queued_at = now()", "final_tx_hash = 'ab'"];
        for number in 1..=5 {
            old.insert(&Row::new(number, &to, "pending")).await;
        }
        for (number, trace) in (1..).zip(traces) {
            old.set(number, trace).await;
        }
        old.set(5, "error_message = ' '").await;
        let plan = planned(desk, &old.books().await);
        assert!((1..=4).all(|number| plan[&uuid(1, number)].kind() == ImportKind::MayBePaid), "{plan:?}");
        assert_eq!(plan[&uuid(1, 5)].kind(), ImportKind::Waits);
        // A program that keeps no such columns says nothing of it.
        old.db
            .by_hand("ALTER TABLE withdrawal_requests DROP COLUMN retry_count, DROP COLUMN error_message")
            .await
            .unwrap();
        assert_eq!(planned(desk, &old.books().await)[&uuid(1, 1)].kind(), ImportKind::Waits);
        old.end().await;
    });
}

/// One who was there first under the name of an old request stops nobody; and what is large is checked and agreed to as everything else of its size.
#[test]
fn postgres_what_is_taken_over_meets_names_checks_and_people_of_this_house() {
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        let counter = Counter::open(db, ChainKind::Evm).await;
        let desk = &counter.desk;
        counter.pay_in(50_000_000).await;
        let now = desk.rig.clock.now();
        let old = Old::start(&desk.hot()).await;
        let to = desk.fresh();
        for (number, status, amount, units) in
            [(1, "pending", "1.0", "1000000"), (2, "pending", "4.0", "4000000"), (3, "processing", "9.0", "9000000")]
        {
            old.insert(&Row { amount, raw: Some(units), ..Row::new(number, &to, status) }).await;
        }
        let hash = format!("0x{}", "04".repeat(32));
        let sent = Row { amount: "9.0", raw: Some("9000000"), hash: Some(hash), ..Row::new(4, &to, "processing") };
        old.insert(&sent).await;
        // The first customer has sent a request of that name to this house.
        let own = NewWithdrawal {
            id: desk.ids.next().unwrap(),
            user: UserId::new(1).unwrap(),
            client_order_id: ClientOrderId::new(uuid(1, 1)).unwrap(),
            listing: counter.listing.id,
            to: to.to_string(),
            amount: Amount::from_units(10_000),
            most_fee: Amount::from_units(50),
            quote: None,
            travel_rule: None,
        };
        db.create_withdrawals(&[own], now).await.unwrap();
        let key = (counter.listing.symbol.clone(), desk.rig.row.name.clone());
        let checks = [(key, CheckSetting { from: Some(Amount::from_units(40_000)) })].into();
        let people = PeopleSettings { checks, ..PeopleSettings::default() };
        let author = Author { actor: "test", reason: "set-up" };
        db.apply_catalog(&Catalog { people, ..Catalog::default() }, &author, now).await.unwrap();
        let mut policy = db.withdrawal_policies(counter.listing.id).await.unwrap().pop().unwrap().policy;
        policy.auto_approve = Amount::from_units(0);
        policy.two_above = Amount::from_units(20_000);
        policy.many_above = Amount::from_units(80_000);
        db.set_withdrawal_policy(counter.listing.id, &policy, &author, now).await.unwrap();
        let done = take_over(db.of(DatabaseRole::Administrator), desk, &old.books().await).await.unwrap();
        assert_eq!(done[&uuid(1, 1)], ImportReply::Refused(ImportRefusal::NameTaken));
        let [two, three, followed] = [2, 3, 4].map(|number| taken(&done, number));
        let mut people = Vec::new();
        for id in [two, three, followed] {
            people.push(db.withdrawals(&[id]).await.unwrap().remove(0).people);
        }
        assert_eq!(people, [2, 3, 0]);
        for id in [two, three] {
            let group = db.withdrawals(&[id]).await.unwrap().remove(0).group.unwrap();
            let said = db.approve_withdrawal(&approval(id, group, "bob"), now).await.unwrap();
            assert_eq!(said, WithdrawalApproved::CheckWaits);
        }
        assert!(db.withdrawal_check(followed).await.unwrap().is_none(), "what was sent is not asked about");
        // A no gives the money of one that may have been paid back to nobody: two people judge.
        let no =
            CheckHeard::Answer { verdict: CheckVerdict::Refuse, reason: "listed".to_owned(), digest: "d".repeat(64) };
        db.keep_check_answers(&[(two, no.clone()), (three, no)], now).await.unwrap();
        assert_eq!(db.checks_refused(None, 9).await.unwrap(), [two]);
        // Again it is the same, and nobody behind is stopped.
        let again = take_over(db, desk, &old.books().await).await.unwrap();
        assert_eq!(again[&uuid(1, 1)], ImportReply::Refused(ImportRefusal::NameTaken));
        assert!([2, 3, 4].iter().all(|number| matches!(again[&uuid(1, *number)], ImportReply::Before(_))));
        clean(db).await;
        old.end().await;
    });
}

/// Step 3 of the source's guide: what is not as it should be is named; and Step 1: a backup is made once.
#[test]
fn postgres_a_schema_that_differs_is_named_and_a_backup_is_never_overwritten() {
    on(Engine::Postgres, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        let desk = &counter.desk;
        let old = Old::start(&desk.hot()).await;
        old.insert(&Row::new(1, &desk.fresh(), "pending")).await;
        let mut other = old.open().await;
        let first = other.back_up().await.unwrap();
        assert!(first.made && first.rows == 1 && first.newer == 0, "{first:?}");
        let mut bytes = Vec::new();
        let (rows, sum) = other.dump(&mut bytes).await.unwrap();
        assert_eq!((rows, bytes.iter().filter(|byte| **byte == b'\n').count()), (1, 1));
        old.insert(&Row::new(2, &desk.fresh(), "pending")).await;
        old.db.by_hand("UPDATE withdrawal_requests SET status = 'failed'").await.unwrap();
        let second = other.back_up().await.unwrap();
        assert!(!second.made && second.rows == 1 && second.newer == 1, "{second:?}");
        let kept = old.db.ask("SELECT 1", "SELECT status FROM withdrawal_requests_backup").await.unwrap();
        assert_eq!(kept, [[Some("pending".to_owned())]]);
        let (_, other_sum) = other.dump(&mut Vec::new()).await.unwrap();
        assert_ne!(sum, other_sum);
        for (change, words) in [
            ("ALTER TABLE withdrawal_requests ALTER COLUMN amount TYPE NUMERIC(20,8)", "amount is numeric(20,8)"),
            ("ALTER TABLE withdrawal_requests DROP COLUMN tx_hash", "has no column tx_hash"),
            ("ALTER TABLE asset_on_chain ALTER COLUMN decimals TYPE TEXT", "decimals is text"),
            (
                "ALTER TABLE withdrawal_requests ALTER COLUMN created_at TYPE TIMESTAMP",
                "created_at is timestamp without time zone",
            ),
            ("DROP TABLE operation_wallet_addresses", "operation_wallet_addresses has no column role"),
        ] {
            old.db.by_hand(change).await.unwrap();
            let said: Vec<String> = other.differences().await.unwrap().iter().map(ToString::to_string).collect();
            assert!(said.iter().any(|one| one.contains(words)), "{change}: {said:?}");
        }
        // What it was is in the backup.
        let mut backup = OldDatabase::open(&old.db.url, "withdrawal_requests_backup").await.unwrap();
        let said: Vec<String> = backup.differences().await.unwrap().iter().map(ToString::to_string).collect();
        assert!(said.iter().all(|one| !one.contains("withdrawal_requests_backup")), "{said:?}");
        assert!(OldDatabase::open(&old.db.url, "a; DROP TABLE chains").await.is_err());
        backup.close().await.unwrap();
        other.close().await.unwrap();
        old.end().await;
    });
}
