//! Rows of the treasury: one need of an address is one job, whoever has the rules. What is decided is tested in `domain` and `custody`.

use std::collections::{BTreeMap, HashMap};

use domain::outbound::{JobKind, JobState};
use domain::treasury::{Former, Operator};
use domain::{Amount, RawAmount, WalletRole};
use store::catalog::{Author, Catalog, CatalogError};
use store::entry::ChainRow;
use store::outbound::{Duty, JobFilter, JobId, NewJob, Payer, PutOff, TOO_LATE};
use store::testing::races::meet;
use store::testing::{NOW, TestDb, on};
use store::treasury::act::{ENOUGH_GAS, Flags, NewJobs, NewTreasuryJob, RuleProgress, TOO_DEAR};
use store::treasury::{GasRuleSetting, RuleWorker, TreasuryKind};
use store::{Db, Engine, db_test};

use crate::outbound::treasury;
use crate::support::{AUTHOR, catalog};

/// Gas for an address. (Its payer is a hot wallet here: the store does not care.)
fn topup(chain: &ChainRow, number: i64, generation: i64) -> NewTreasuryJob {
    let job = NewJob {
        id: JobId::new(number).unwrap(),
        listing: chain.listings[0].id,
        kind: JobKind::GasTopup,
        reference: format!("gas_topup:0xuser:{generation}"),
        to: "0xuser".to_owned(),
        owner: None,
        amount: "5".parse().unwrap(),
        most_fee: "9".parse().unwrap(),
        priority: 300,
        requester: "rules".to_owned(),
        expires: NOW.plus_micros(1_000_000_000),
        payer: Payer::Role(WalletRole::Hot),
    };
    let (kind, address, listing) = (TreasuryKind::GasTopup, "0xuser".to_owned(), chain.listings[0].id);
    NewTreasuryJob { job, kind, address, listing, generation, rule: Some(1), expected_cost: RawAmount::ZERO }
}

/// Two wallets, and the rule that jobs are of.
async fn ruled(db: &TestDb) -> ChainRow {
    let chain = treasury(db).await;
    db.apply_catalog(&low_gas(2, true), &AUTHOR, NOW).await.unwrap();
    chain
}

/// If an address has less than so much, it gets more. (The chain's own coin is not listed here, and the store does not care either.)
fn low_gas(threshold: i64, active: bool) -> Catalog {
    let mut catalog = catalog();
    let rule = GasRuleSetting {
        chain: "bsc".parse().unwrap(),
        asset: "USDT".parse().unwrap(),
        operator: Operator::Below,
        threshold: Amount::from_units(threshold),
        amount: Amount::from_units(40),
        priority: 300,
        cool_down_s: 60,
        most_per_hour: 100,
        active,
    };
    catalog.rules.gas.insert("low-gas".to_owned(), rule);
    catalog
}

fn made(job: NewTreasuryJob) -> NewJobs {
    NewJobs { made: vec![job], withdrawn: Vec::new() }
}

async fn take(db: &Db, chain: &ChainRow, name: &str, after_s: i64) -> Option<RuleWorker> {
    let now = NOW.plus_micros(after_s * 1_000_000);
    Some(db.take_rules(chain, name, now, now.plus_micros(60_000_000)).await.unwrap()?.0)
}

async fn count(db: &Db) -> usize {
    db.jobs(&JobFilter::default(), i64::MAX, 1_000).await.unwrap().len()
}

db_test! {
    async fn one_need_of_an_address_is_one_job(db: TestDb) {
        let chain = ruled(db).await;
        let worker = take(db, &chain, "one", 0).await.unwrap();
        let act = async |worker: &RuleWorker, number, generation| {
            db.act_on_rules(worker, &made(topup(&chain, number, generation)), &[], &RuleProgress::None, NOW).await
        };
        assert_eq!(act(&worker, 1, 0).await.unwrap().unwrap().jobs, 1);
        // Decided once more by somebody who did not know: the same job.
        assert_eq!(act(&worker, 2, 0).await.unwrap().unwrap().jobs, 0);
        assert_eq!(act(&worker, 3, 1).await.unwrap().unwrap().jobs, 1, "the next need is another");
        assert_eq!(count(db).await, 2);
        let twice = "INSERT INTO treasury_jobs (job_id, kind, chain_id, address, listing_id, generation, rule_id, expected_cost_raw, created_at)
            SELECT 4, kind, chain_id, address, listing_id, generation, rule_id, expected_cost_raw, created_at FROM treasury_jobs WHERE job_id = 1";
        db.by_hand("INSERT INTO outbound_jobs (id, chain_id, lane_id, listing_id, kind, reference, to_address, amount_raw, most_fee_raw, priority, requester,
                expires_at, state, version, tries, rounds, give_up, bump, reason, due_at, created_at, updated_at)
            SELECT 4, chain_id, lane_id, listing_id, kind, 'another', to_address, amount_raw, most_fee_raw, priority, requester, expires_at,
                state, version, tries, rounds, give_up, bump, reason, due_at, created_at, updated_at FROM outbound_jobs WHERE id = 1").await.unwrap();
        assert!(db.by_hand(twice).await.is_err());
        for changed in ["UPDATE treasury_jobs SET generation = 9", "DELETE FROM treasury_jobs"] {
            assert!(db.by_hand(changed).await.is_err(), "{changed}");
        }
    }

    async fn who_lost_the_rules_writes_nothing(db: TestDb) {
        let chain = ruled(db).await;
        let first = take(db, &chain, "one", 0).await.unwrap();
        assert_eq!(take(db, &chain, "two", 1).await, None, "another has them");
        assert_eq!(take(db, &chain, "one", 1).await, Some(first), "longer");
        let second = take(db, &chain, "two", 100).await.unwrap();
        let acted = db.act_on_rules(&first, &made(topup(&chain, 1, 0)), &[], &RuleProgress::Changed(7), NOW).await.unwrap();
        assert_eq!((acted, count(db).await), (None, 0));
        let acted = db.act_on_rules(&second, &made(topup(&chain, 2, 0)), &[], &RuleProgress::Changed(7), NOW).await.unwrap();
        assert_eq!((acted.unwrap().jobs, count(db).await), (1, 1));
        db.by_hand("UPDATE chains SET status = 'suspended'").await.unwrap();
        let acted = db.act_on_rules(&second, &made(topup(&chain, 3, 1)), &[], &RuleProgress::None, NOW).await.unwrap();
        assert_eq!((acted.unwrap().jobs, count(db).await), (0, 1), "nothing is made on a chain that people have suspended");
        db.by_hand("UPDATE chains SET status = 'active'").await.unwrap();
        db.by_hand("UPDATE asset_on_chain SET status = 'suspended'").await.unwrap();
        let acted = db.act_on_rules(&second, &made(topup(&chain, 3, 1)), &[], &RuleProgress::None, NOW).await.unwrap();
        assert_eq!((acted.unwrap().jobs, count(db).await), (0, 1), "nor of a coin");
    }

    /// People change rules while a worker is in the middle of a page that it has decided by the old ones: the pass begins anew, and of a rule that is over
    /// by then no job is made.
    async fn rules_that_change_during_a_pass_are_not_lost(db: TestDb) {
        let chain = ruled(db).await;
        let standing = async || {
            let (worker, standing) = db.take_rules(&chain, "one", NOW, NOW.plus_micros(60_000_000)).await.unwrap().unwrap();
            (worker, standing.passing, standing.passed_at)
        };
        let act = async |worker: &RuleWorker, progress: RuleProgress| {
            db.act_on_rules(worker, &NewJobs::default(), &[], &progress, NOW).await.unwrap().unwrap();
        };
        let apply = async |active: bool| drop(db.apply_catalog(&low_gas(2, active), &AUTHOR, NOW).await.unwrap());
        let page = |last: &str| RuleProgress::Page(last.to_owned(), 7);
        // The first page of a pass that was due already; its second; its end.
        let (worker, ..) = standing().await;
        apply(true).await;
        act(&worker, page("0xa")).await;
        let (worker, passing, _) = standing().await;
        assert_eq!(passing, None, "the page was decided by other rules");
        act(&worker, page("0xa")).await;
        let (worker, passing, _) = standing().await;
        assert_eq!(passing.as_deref(), Some("0xa"));
        apply(true).await;
        act(&worker, page("0xb")).await;
        let (worker, passing, _) = standing().await;
        assert_eq!(passing, None);
        apply(true).await;
        act(&worker, RuleProgress::Passed(7)).await;
        let (worker, passing, passed_at) = standing().await;
        assert_eq!((passing, passed_at), (None, None), "one is due");
        act(&worker, RuleProgress::Passed(7)).await;
        let (worker, passing, passed_at) = standing().await;
        assert_eq!((passing, passed_at), (None, Some(NOW)));
        // And one that begins a day later.
        apply(true).await;
        act(&worker, page("0xa")).await;
        assert_eq!(standing().await.1, None);
        // What the rule decided before it was over is not done.
        apply(false).await;
        let (address, listing) = ("0xuser".to_owned(), chain.listings[0].id);
        db.by_hand(&format!("INSERT INTO wallet_balances (chain_id, address, listing_id, on_chain_balance_raw, needs_gas, needs_consolidation,
            changed_height, checked_height, updated_at) VALUES ({}, '{address}', {}, '5', FALSE, FALSE, 1, -1, 0)", chain.id.0, listing.0)).await.unwrap();
        let flags = Flags { address: address.clone(), listing, needs_gas: true, needs_consolidation: true, waits: None };
        let job = made(topup(&chain, 1, 0));
        let acted = db.act_on_rules(&worker, &job, std::slice::from_ref(&flags), &RuleProgress::None, NOW).await.unwrap();
        assert_eq!((acted.unwrap().jobs, count(db).await), (0, 0));
        let waits = db.ask("", "SELECT waits FROM wallet_balances WHERE address = '0xuser'").await.unwrap();
        assert_eq!(waits[0][0].as_deref(), Some("its rule is not active any more"));
        apply(true).await;
        let acted = db.act_on_rules(&worker, &job, &[flags], &RuleProgress::None, NOW).await.unwrap();
        assert_eq!((acted.unwrap().jobs, count(db).await), (1, 1));
    }

    /// Who has changed a rule, from what to what, stays; what a rule is about does not change, because jobs refer to it.
    async fn a_rule_has_a_history_and_keeps_its_chain(db: TestDb) {
        let chain = ruled(db).await;
        let author = Author { actor: "ann", reason: "less dust" };
        db.apply_catalog(&low_gas(5, true), &author, NOW).await.unwrap();
        let history = "SELECT before_value, after_value, actor, reason FROM setting_changes
            WHERE entity = 'gas rule low-gas' AND field = 'threshold' ORDER BY id";
        let row = |cells: [Option<&str>; 4]| cells.map(|cell| cell.map(str::to_owned)).to_vec();
        let wanted = [
            row([None, Some("0.000002"), Some("test"), Some("set-up")]),
            row([Some("0.000002"), Some("0.000005"), Some("ann"), Some("less dust")]),
        ];
        assert_eq!(db.ask("", history).await.unwrap(), wanted);
        let mut moved = low_gas(5, true);
        moved.rules.gas.get_mut("low-gas").unwrap().chain = "bitcoin".parse().unwrap();
        let refused = db.apply_catalog(&moved, &author, NOW).await.unwrap_err();
        assert!(matches!(refused, CatalogError::RuleFixed { field: "chain", .. }), "{refused:?}");
        assert_eq!(refused.code(), "RULE_FIXED");
        assert_eq!(db.chain_rules(&chain).await.unwrap().gas.len(), 1);
        assert_eq!(db.ask("", history).await.unwrap().len(), 2);
    }

    /// Wherever a page ends, each user's address is on one page, with all of its coins.
    async fn an_address_is_evaluated_with_all_of_its_coins(db: TestDb) {
        let chain = treasury(db).await;
        let group = db.ask("", "SELECT id FROM wallet_groups").await.unwrap()[0][0].clone().unwrap();
        // An address of the house, and two of users with two coins each. (Of which chain a coin is the rows do not say.)
        for (user, address) in [(1, "b"), (2, "c")] {
            db.by_hand(&format!("INSERT INTO user_wallets (wallet_group_id, user_id, derivation_index, address, created_at)
                VALUES ({group}, {user}, {user}, '{address}', 0)")).await.unwrap();
        }
        db.by_hand(&format!("INSERT INTO wallet_balances (chain_id, address, listing_id, on_chain_balance_raw, needs_gas, needs_consolidation,
                changed_height, checked_height, updated_at)
            SELECT {}, w.address, k.id, '5', FALSE, FALSE, 1, -1, 0 FROM asset_on_chain k JOIN
                (SELECT 'b' AS address UNION ALL SELECT 'c' UNION ALL SELECT 'a') w ON w.address <> 'a' OR k.id = {}",
            chain.id.0, chain.listings[0].id.0)).await.unwrap();
        for rows in 1..=6 {
            let (mut found, mut after) = (Vec::new(), String::new());
            while let Some((wallets, last)) = db.wallet_page(chain.id, &after, rows, 100).await.unwrap() {
                found.extend(wallets.into_iter().map(|wallet| (wallet.address, wallet.coins.len())));
                assert!(last > after, "{rows} at a time");
                after = last;
            }
            assert_eq!(found, [("b".to_owned(), 2), ("c".to_owned(), 2)], "{rows} at a time");
        }
    }

    /// Whoever types the reference of a rule's job keeps that address waiting, and no other.
    async fn a_reference_that_somebody_has_typed_stops_nobody_else(db: TestDb) {
        let chain = ruled(db).await;
        let typed = NewJob { amount: "6".parse().unwrap(), requester: "eve".to_owned(), ..topup(&chain, 1, 0).job };
        db.add_jobs(chain.id, &[typed], NOW).await.unwrap();
        let worker = take(db, &chain, "one", 0).await.unwrap();
        let mut other = topup(&chain, 3, 0);
        (other.address, other.job.to, other.job.reference) = ("0xother".into(), "0xother".into(), "gas_topup:0xother:0".into());
        let both = NewJobs { made: vec![topup(&chain, 2, 0), other], withdrawn: Vec::new() };
        let acted = db.act_on_rules(&worker, &both, &[], &RuleProgress::None, NOW).await.unwrap();
        assert_eq!((acted.unwrap().jobs, count(db).await), (1, 2));
    }

    /// What people have asked for is under way for rules too; what failed counts; a clock that was ahead keeps nobody waiting.
    async fn rules_know_what_became_of_earlier_jobs(db: TestDb) {
        let chain = ruled(db).await;
        let (address, listing) = ("0xuser".to_owned(), chain.listings[0].id);
        let former = async || {
            let now = NOW.plus_micros(10_000_000);
            let all = db.formers(chain.id, std::slice::from_ref(&address), 100, now).await.unwrap();
            all.get(&(address.clone(), listing, TreasuryKind::GasTopup)).cloned()
        };
        assert_eq!(former().await, None);
        let by_hand = NewJob { reference: "by hand".to_owned(), requester: "ann".to_owned(), ..topup(&chain, 1, 0).job };
        db.add_jobs(chain.id, &[by_hand], NOW).await.unwrap();
        assert_eq!(former().await.unwrap().former, Former::Open, "people top it up");
        db.cancel_job(JobId::new(1).unwrap(), "ann", NOW).await.unwrap();
        assert_eq!(former().await, None, "and gave it up");
        let worker = take(db, &chain, "one", 0).await.unwrap();
        for (number, generation) in [(2, 0), (3, 1)] {
            let job = made(topup(&chain, number, generation));
            db.act_on_rules(&worker, &job, &[], &RuleProgress::None, NOW).await.unwrap();
            let open = former().await.unwrap();
            assert_eq!((open.former, open.waiting), (Former::Open, JobId::new(number).ok()));
            // By a clock that is a day ahead.
            db.cancel_job(JobId::new(number).unwrap(), "ann", NOW.plus_micros(86_400_000_000)).await.unwrap();
        }
        let ended = former().await.unwrap();
        let at = NOW.plus_micros(10_000_000);
        assert_eq!(ended.former, Former::Ended { at, settled: true, failures: 2 });
        assert!(ended.reason.contains("given up by ann"), "{}", ended.reason);
        let made = db.made_by_rules(chain.id, NOW.plus_micros(-1), NOW.plus_micros(-1)).await.unwrap();
        assert_eq!(made, [], "what was made later than now counts for nothing");
    }

    /// A refill that is not needed any more ends, unless somebody has begun to pay it.
    async fn what_is_not_needed_any_more_is_withdrawn(db: TestDb) {
        let chain = ruled(db).await;
        let worker = take(db, &chain, "one", 0).await.unwrap();
        let job = made(topup(&chain, 1, 0));
        db.act_on_rules(&worker, &job, &[], &RuleProgress::None, NOW).await.unwrap();
        let withdrawn = NewJobs { made: Vec::new(), withdrawn: vec![JobId::new(1).unwrap()] };
        for _ in 0..2 {
            db.act_on_rules(&worker, &withdrawn, &[], &RuleProgress::None, NOW).await.unwrap();
            let (shown, ..) = db.job(JobId::new(1).unwrap()).await.unwrap().unwrap();
            assert_eq!(shown.job.state, JobState::FailedFinal);
            assert_eq!(shown.job.reason, "it is not needed any more");
        }
        let address = job.made[0].address.clone();
        let formers = db.formers(chain.id, std::slice::from_ref(&address), 100, NOW).await.unwrap();
        let former = formers[&(address, job.made[0].listing, TreasuryKind::GasTopup)].former;
        assert_eq!(former, Former::Ended { at: NOW, settled: true, failures: 0 }, "and has not failed");
    }

    /// Nor has gas that somebody else had brought, or what nobody approved, or could send, in its time: the next need does not rest for it.
    async fn what_was_not_needed_or_not_sent_in_its_time_has_not_failed(db: TestDb) {
        let chain = ruled(db).await;
        let worker = take(db, &chain, "one", 0).await.unwrap();
        let made_now = async |number: i64| {
            let job = made(topup(&chain, number, number));
            db.act_on_rules(&worker, &job, &[], &RuleProgress::None, NOW).await.unwrap();
        };
        let failures = async || {
            let formers = db.formers(chain.id, &["0xuser".to_owned()], 100, NOW).await.unwrap();
            let former = formers[&("0xuser".to_owned(), chain.listings[0].id, TreasuryKind::GasTopup)].former;
            let Former::Ended { failures, .. } = former else { panic!("{former:?}") };
            failures
        };
        for (number, words, failed) in [(1, ENOUGH_GAS, 0), (2, TOO_LATE, 0), (3, TOO_DEAR, 0), (4, "a node would not pay it", 1)] {
            made_now(number).await;
            let held = db.take_lanes((chain.id, Duty::Send), "one", 9, NOW, NOW.plus_micros(60_000_000)).await.unwrap();
            let row = db.job(JobId::new(number).unwrap()).await.unwrap().unwrap().0.job;
            let put_off = PutOff {
                lane: row.lane, job: row.id, version: row.version, over: true, words: words.to_owned(), history: Some("with figures".to_owned()),
                due: NOW, tried: true, short: false,
            };
            db.open_slots(&held, &[], &[], &[put_off], &HashMap::new(), NOW).await.unwrap();
            let (shown, _, steps) = db.job(row.id).await.unwrap().unwrap();
            assert_eq!((shown.job.state, shown.job.reason.as_str()), (JobState::FailedFinal, words));
            assert_eq!(steps.last().unwrap().reason, "with figures");
            assert_eq!(failures().await, failed, "{words}");
        }
        made_now(5).await;
        assert_eq!(db.end_overdue_jobs(chain.id, NOW.plus_micros(1_000_000_000), 9).await.unwrap(), 1);
        assert_eq!(failures().await, 1, "the one before it");
    }
}

db_test! {
    /// By chain, kind and coin: what was mined since a time, however many rows are in memory at a time. The fee of a transaction that pays two jobs counts
    /// once, and one that fills a nonce has a row of its own.
    async fn costs_are_those_of_the_time_that_is_asked_for(db: TestDb) {
        let (jobs, now) = crate::views::planted(db).await;
        let day = now - 24 * 3_600_000_000;
        let mined: Vec<_> = jobs.iter().filter(|job| job.state == "confirmed" && job.created > day).collect();
        assert!(mined.len() > 12 && mined.len() < jobs.iter().filter(|job| job.state == "confirmed").count());
        /// Jobs, what they moved, fees, expected.
        type Sums = (u64, i128, u64, Option<u64>);
        let mut wanted: BTreeMap<(String, String), Sums> = BTreeMap::new();
        for job in &mined {
            let row = wanted.entry((job.chain.to_owned(), job.kind.to_owned())).or_default();
            let expected = (job.kind != "withdrawal").then(|| row.3.unwrap_or(0) + 3);
            *row = (row.0 + 1, row.1 + i128::from(job.id), row.2 + 21_000, expected);
        }
        // Two payouts of one wallet of bsc share the transaction of the first; the other has filled a nonce.
        let payouts: Vec<_> = mined.iter().filter(|job| job.chain == "bsc" && job.kind == "withdrawal").collect();
        let pair = payouts.windows(2).find(|pair| pair[0].from == pair[1].from).unwrap();
        let (one, other) = (pair[0].id, pair[1].id);
        db.by_hand(&format!("INSERT INTO outbound_slot_jobs VALUES ({one}, {other}, 1)")).await.unwrap();
        let gone = match db.engine() {
            Engine::Postgres => "ALTER TABLE outbound_slot_jobs DISABLE TRIGGER USER",
            Engine::Sqlite => "DROP TRIGGER trg_outbound_slot_job_fixed_delete",
        };
        db.by_hand(gone).await.unwrap();
        db.by_hand(&format!("DELETE FROM outbound_slot_jobs WHERE slot_id = {other}")).await.unwrap();
        wanted.get_mut(&("bsc".to_owned(), "withdrawal".to_owned())).unwrap().2 -= 21_000;
        wanted.insert(("bsc".to_owned(), "filler".to_owned()), (0, 0, 21_000, None));
        for page in [1, 7, 10_000] {
            let costs = db.costs_in_pages(domain::Timestamp::from_micros(day), page).await.unwrap();
            let found: BTreeMap<_, _> = costs.rows.iter().map(|row| {
                let number = |amount: RawAmount| amount.to_string().parse::<u64>().unwrap();
                let key = (row.chain.clone(), row.kind.as_str().to_owned());
                (key, (row.jobs, row.moved.to_string().parse().unwrap(), number(row.fee), row.expected.map(number)))
            }).collect();
            assert_eq!(found, wanted, "{page} at a time");
            // What gas wallets spent is what they gave and paid in fees.
            let gas = db.gas_wallets(&costs).await.unwrap();
            assert_eq!(gas.len(), 6);
            for wallet in gas {
                let given = mined.iter().filter(|job| job.kind == "gas_topup" && job.from == wallet.address);
                let used: i128 = given.map(|job| i128::from(job.id) + 21_000).sum();
                assert_eq!(wallet.supply.used.to_string(), used.to_string());
                // No job rests between these: it is picked, built and slotted in one commit.
                let open = ["queued", "failed_retryable", "signing", "broadcasting", "broadcasted"];
                let waits = jobs.iter().filter(|job| job.kind == "gas_topup" && job.from == wallet.address && open.contains(&job.state));
                assert_eq!(wallet.supply.leaving.to_string(), waits.map(|job| i128::from(job.id)).sum::<i128>().to_string());
            }
        }
    }
}

/// One worker is stopped at every point of its write while another takes the rules over: what the second finds is all that there is.
#[test]
fn postgres_two_workers_meet_at_the_cursor() {
    on(Engine::Postgres, async |db| {
        let chain = ruled(db).await;
        for at in 0.. {
            let turn = at * 1_000;
            let worker = take(db, &chain, &format!("first-{at}"), turn).await.unwrap();
            let job = made(topup(&chain, turn + 1, turn));
            let write = async |db: Db| db.act_on_rules(&worker, &job, &[], &RuleProgress::None, NOW).await.unwrap();
            let over = async |db: Db| {
                let second = take(&db, &chain, &format!("second-{at}"), turn + 100).await;
                (second, count(&db).await)
            };
            let met = meet(db, at, write, over).await;
            let (second, seen) = met.second;
            assert!(second.is_some());
            assert_eq!(count(db).await, seen, "point {at}");
            // And two that take them at once are not both told that they have them.
            let turn = turn + 500;
            let one = async |db: Db| take(&db, &chain, &format!("left-{at}"), turn).await;
            let other = async |db: Db| take(&db, &chain, &format!("right-{at}"), turn).await;
            let both = meet(db, at, one, other).await;
            assert!(both.first.is_none() || both.second.is_none(), "point {at}");
            if !met.reached {
                break;
            }
        }
    });
}
