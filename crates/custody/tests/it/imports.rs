//! Withdrawals that another program has begun: its tables are the source's, on a real PostgreSQL, and its payments are on a devnet. None of them is ever
//! paid here again.

use std::collections::HashMap;

use custody::withdrawal::{ImportGround, ImportKind, ImportNames, PlannedImport, plan_import};
use domain::outbound::JobState;
use domain::withdrawal::WithdrawalState;
use domain::{Approval, ChainKind, Clock, UserId};
use store::old_withdrawals::{OldBooks, OldDatabase};
use store::outbound::JobId;
use store::outbound::read::{JobReply, JobVerdict};
use store::testing::{TestDb, drop_database, fresh, on};
use store::withdrawal::signed::SignedRounds;
use store::withdrawal::{
    Decision, DecisionReply, ImportReply, NewImport, WithdrawalDecision, WithdrawalId, WithdrawalVerdict,
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
        let mut old = self.open().await;
        assert_eq!(old.differences().await.unwrap(), []);
        let books = old.read().await.unwrap();
        old.close().await.unwrap();
        books
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
            db.bump_job(job, now).await.unwrap();
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
        assert_eq!((count("completed", true), count("failed", false), count("failed", true)), (1, 1, 1));
        let plan = planned(desk, &books);
        assert_eq!(plan.len(), rows.len() - 3, "what has ended is only counted");
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
        let judged = db.judge_withdrawals(&verdicts, &people(), &nothing, now).await.unwrap();
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
