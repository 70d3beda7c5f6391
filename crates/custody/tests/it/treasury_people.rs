//! Rules and people: a refill that people approve, gas that somebody else has brought, books that are behind.

use std::sync::Arc;

use custody::outbound::approve::intent_of;
use custody::treasury::{DryRun, RulesWorker};
use devnet::Fate;
use domain::outbound::{JobKind, JobState};
use domain::treasury::{TreasuryAction, Verdict, Waits};
use domain::{Amount, Availability, ChainName, Clock, Symbol, WalletRole};
use store::Engine;
use store::grants::DatabaseRole;
use store::outbound::read::JobReply;
use store::outbound::{ApprovalSignature, JobApproval, JobId, NewJob, Payer, ShownJob};
use store::testing::on;
use store::treasury::BandSetting;
use tx::{Coin, Fee, FeeCap, Payment};

use crate::deposits::{id, raw};
use crate::treasury::{EVM, TRON, USER, Yard, approving_key, on_both};

impl Yard<'_> {
    /// A hot wallet should have 100 to 900 USDT.
    pub async fn band(&self) {
        let mut rules = self.rules(100, None);
        let key = ("net".parse().unwrap(), id("hot"), 0, "USDT".parse().unwrap());
        let units = |whole: i64| Amount::from_units(whole * 10_000);
        let band = BandSetting { floor: units(100), target: units(400), ceiling: units(900), active: true };
        rules.rules.bands.insert(key, band);
        self.apply(&rules).await;
    }

    /// What would be decided, by so many rows at a time: actions, and why coins wait.
    async fn dry_run(&self, rows: i64) -> (Vec<TreasuryAction>, Vec<Waits>, Option<String>) {
        let dry = self.dry_run_of(None, rows).await;
        let verdicts: Vec<Verdict> = dry.decided.into_iter().map(|one| one.verdict).collect();
        let actions = verdicts.iter().flat_map(|verdict| verdict.actions.clone()).collect();
        (actions, verdicts.iter().flat_map(|verdict| verdict.waits.iter().map(|(_, why)| *why)).collect(), dry.waits)
    }

    async fn dry_run_of(&self, wallet: Option<&str>, rows: i64) -> DryRun {
        let (row, pinned, none) = (self.rig.row.clone(), Arc::clone(&self.rig.pinned), || None);
        let (db, now) = (self.rig.db.of(DatabaseRole::Rules), self.rig.clock.now());
        let worker = RulesWorker::new(db, &*self.rig.chain, &none, row, pinned, "people".to_owned()).unwrap();
        worker.dry_run_in_pages(wallet, now, rows).await.unwrap()
    }

    pub async fn only(&self, kind: JobKind) -> ShownJob {
        let [job] = self.jobs(kind).await.try_into().unwrap();
        job
    }

    async fn approve(&self, job: &ShownJob, person: &str) {
        let lane = self.rig.db.lanes(None, Some(&job.from), 0, 1).await.unwrap().pop().unwrap().lane;
        let (row, pinned) = (self.rig.row.clone(), Arc::clone(&self.rig.pinned));
        let intent = intent_of(row, pinned, &"desk".parse().unwrap(), &lane, &job.job).unwrap().unwrap();
        let approval = JobApproval {
            job: job.job.id,
            digest: intent.digest(),
            key: person.to_owned(),
            signature: ApprovalSignature::Ed25519(approving_key(person).sign_approval(&intent.digest())),
        };
        assert_eq!(self.rig.db.approve_job(&approval, self.rig.clock.now()).await.unwrap(), JobReply::Done);
    }
}

/// A hot wallet below its floor: the refill is asked for, and the signer pays it when two people have approved exactly that. Until then it costs
/// no try, however often the signer refuses it.
#[test]
fn a_refill_is_paid_when_people_have_approved_it() {
    on_both(async |yard| {
        let (usdt, hot) = (yard.rig.token(), yard.rig.house(WalletRole::Hot));
        let treasury = yard.rig.house(WalletRole::Treasury);
        yard.band().await;
        yard.rig.pay(&treasury, &usdt, 5_000_000_000);
        yard.rig.pay(&treasury, &Coin::Native, 1_000 * yard.one);
        yard.rig.mine(1);
        yard.pass(6).await;
        yard.evaluate().await;
        let refill = yard.only(JobKind::Refill).await;
        assert_eq!((refill.job.amount, refill.from.as_str()), (raw(400_000_000), treasury.to_string().as_str()));
        for _ in 0..8 {
            yard.pass(1).await;
            yard.evaluate().await;
            yard.rig.clock.set(yard.rig.clock.now().plus_micros(61_000_000));
        }
        let waiting = yard.only(JobKind::Refill).await;
        assert_eq!((waiting.job.tries, waiting.job.state), (0, JobState::FailedRetryable), "{}", waiting.job.reason);
        assert!(waiting.job.reason.contains("SIGNER_APPROVALS_MISSING"), "{}", waiting.job.reason);
        // One is not enough, and neither is one whose key the policy does not know. That one spoils what came with it.
        yard.approve(&waiting, "ann").await;
        yard.pass(1).await;
        assert!(yard.only(JobKind::Refill).await.job.reason.contains("1 of 2"));
        yard.approve(&waiting, "eve").await;
        yard.pass(1).await;
        assert!(yard.only(JobKind::Refill).await.job.reason.contains("SIGNER_APPROVAL_BAD"));
        assert_eq!(yard.rig.db.approvals_of(&[waiting.job.id]).await.unwrap(), []);
        for person in ["ann", "bob"] {
            yard.approve(&waiting, person).await;
        }
        yard.pass(8).await;
        let paid = yard.only(JobKind::Refill).await;
        assert_eq!(paid.job.state, JobState::Confirmed, "{}", paid.job.reason);
        assert_eq!(yard.has(&hot, &usdt).await, 400_000_000);
        yard.evaluate().await;
        assert_eq!(yard.jobs(JobKind::Refill).await.len(), 1, "it has its target");
        yard.rig.assert_true().await;
    });
}

#[test]
fn a_refill_that_is_not_needed_any_more_is_withdrawn() {
    on(Engine::Sqlite, async |db| refill_withdrawn(Yard::start(db, TRON).await).await);
}

/// A refill that nobody has approved ends when sweeps have filled the wallet.
pub async fn refill_withdrawn(yard: Yard<'_>) {
    yard.band().await;
    yard.pass(6).await;
    yard.evaluate().await;
    assert_eq!(yard.only(JobKind::Refill).await.job.state, JobState::Queued);
    yard.rig.pay(&yard.rig.house(WalletRole::Hot), &yard.rig.token(), 300_000_000);
    yard.rig.mine(1);
    yard.pass(6).await;
    yard.evaluate().await;
    let ended = yard.only(JobKind::Refill).await.job;
    assert_eq!((ended.state, ended.reason.as_str()), (JobState::FailedFinal, "it is not needed any more"));
}

/// Whoever asks about one address may write it as this chain's people do: an EVM address without its capitals is the same.
#[test]
fn an_address_is_found_however_it_is_written() {
    on_both(async |yard| {
        let wallet = yard.low_gas_wallet(USER, 480).await.to_string();
        let found = async |text: &str| yard.dry_run_of(Some(text), 20_000).await.decided.len();
        assert_eq!(found(&wallet).await, 1);
        // TRON's have a checksum that other letters do not have.
        let same = usize::from(wallet.starts_with("0x"));
        assert_eq!(found(&wallet.to_lowercase()).await, same);
        assert_eq!(found("nobody").await, 0);
    });
}

/// Gas was queued, and somebody else has brought as much: it is not sent. (Also what a database that was put back has forgotten.)
#[test]
fn gas_that_is_there_already_is_not_sent() {
    on_both(async |yard| {
        let wallet = yard.low_gas_wallet(USER, 480).await;
        assert_eq!(yard.evaluate().await.jobs, 1);
        yard.rig.pay(&wallet, &Coin::Native, 40 * yard.one);
        yard.rig.mine(1);
        yard.pass(1).await;
        let ended = yard.only(JobKind::GasTopup).await.job;
        assert_eq!(ended.state, JobState::FailedFinal);
        assert_eq!(ended.reason, "its address has enough gas already");
        let (_, _, steps) = yard.rig.db.job(ended.id).await.unwrap().unwrap();
        assert!(steps.last().unwrap().reason.contains("it would bring"), "figures are in its history: {steps:?}");
        assert_eq!(yard.has(&wallet, &Coin::Native).await, u128::from(40 * yard.one));
        // And it is swept with that.
        for _ in 0..4 {
            yard.pass(6).await;
            yard.evaluate().await;
            yard.rig.clock.set(yard.rig.clock.now().plus_micros(61_000_000));
        }
        assert_eq!(yard.has(&wallet, &yard.rig.token()).await, 0);
        assert_eq!(yard.jobs(JobKind::GasTopup).await.len(), 1);
    });
}

/// Less than the top-up would bring, and enough for its rule: it is not sent either. Without the rule, as much as it would bring is wanted.
#[test]
fn gas_that_its_rule_calls_enough_is_not_sent() {
    on_both(async |yard| {
        let wallet = yard.low_gas_wallet(USER, 480).await;
        assert_eq!(yard.evaluate().await.jobs, 1);
        let brought = yard.only(JobKind::GasTopup).await.job.amount;
        let less = brought.checked_sub(raw(yard.one)).unwrap();
        yard.rig.pay(&wallet, &Coin::Native, u64::try_from(less.to_u256()).unwrap());
        yard.rig.mine(1);
        yard.pass(1).await;
        let ended = yard.only(JobKind::GasTopup).await.job;
        assert_eq!(ended.state, JobState::FailedFinal, "{}", ended.reason);
        assert!(ended.reason.contains("already"), "{}", ended.reason);
        assert_eq!(raw(u64::try_from(yard.has(&wallet, &Coin::Native).await).unwrap()), less);
        // Another address, whose rule people have switched off: what is queued goes on, for it has less than it would get.
        let other = yard.low_gas_wallet(USER + 1, 480).await;
        yard.evaluate().await;
        assert_eq!(yard.jobs(JobKind::GasTopup).await.len(), 2);
        let mut off = yard.rules(100, None);
        off.rules.gas.get_mut("low-gas").unwrap().active = false;
        yard.apply(&off).await;
        yard.rig.pay(&other, &Coin::Native, u64::try_from(less.to_u256()).unwrap());
        yard.rig.mine(1);
        yard.pass(8).await;
        let states: Vec<JobState> = yard.jobs(JobKind::GasTopup).await.iter().map(|shown| shown.job.state).collect();
        assert!(states.contains(&JobState::Confirmed), "{states:?}");
    });
}

/// What people are shown is what would be done: nothing of a chain or a coin that is suspended, nothing on books that are behind, and no more than an hour
/// allows, by however many pages it is read.
#[test]
fn what_would_be_decided_is_what_would_be_done() {
    on_both(async |yard| {
        yard.low_gas_wallet(USER, 480).await;
        yard.low_gas_wallet(USER + 1, 480).await;
        let mut rules = yard.rules(100, None);
        rules.rules.gas.get_mut("low-gas").unwrap().most_per_hour = 1;
        yard.apply(&rules).await;
        for rows in [1, 20_000] {
            let (actions, waits, why) = yard.dry_run(rows).await;
            assert!(matches!(actions[..], [TreasuryAction::TopUp { .. }]), "{rows}: {actions:?}");
            assert_eq!((waits, why), (vec![Waits::NeedsGas, Waits::MostPerHour], None), "{rows}");
        }
        let (chain, coin): (ChainName, Symbol) = ("net".parse().unwrap(), "COIN".parse().unwrap());
        let mut suspended = rules.clone();
        suspended.chains.get_mut(&chain).unwrap().status = Availability::Suspended;
        yard.apply(&suspended).await;
        assert_eq!(yard.dry_run(20_000).await, (vec![], vec![Waits::ChainSuspended; 2], None));
        let mut suspended = rules.clone();
        suspended.listings.get_mut(&(coin, chain)).unwrap().status = Availability::Suspended;
        yard.apply(&suspended).await;
        assert_eq!(yard.dry_run(20_000).await, (vec![], vec![Waits::CoinSuspended; 2], None));
        assert_eq!(yard.evaluate().await.jobs, 0);
        yard.apply(&rules).await;
        yard.rig.mine(30);
        let (actions, waits, why) = yard.dry_run(20_000).await;
        assert_eq!((actions, waits), (vec![], vec![]));
        assert!(why.as_ref().is_some_and(|why| why.contains("books are proven to block")), "{why:?}");
    });
}

/// A database that was put back does not know of gas that was sent since: rules wait until its books have seen the chain.
#[test]
fn rules_wait_for_the_chains_own_books() {
    on_both(async |yard| {
        let wallet = yard.low_gas_wallet(USER, 480).await;
        yard.rig.mine(30);
        assert_eq!(yard.evaluate().await.jobs, 0);
        assert_eq!(yard.flags(&wallet).await, (false, false, None));
        yard.sync().await;
        assert_eq!(yard.evaluate().await.jobs, 1);
    });
}

/// What an address cannot pay no node takes: what it offered first is told again instead, and is mined when somebody has room.
#[test]
fn more_is_offered_only_by_who_has_it() {
    on(Engine::Sqlite, async |db| {
        let yard = Yard::start(db, EVM).await;
        let (wallet, home) = (yard.rig.address(USER).await, yard.rig.house(WalletRole::Treasury));
        yard.rig.pay(&wallet, &Coin::Native, 100 * yard.one);
        yard.rig.mine(1);
        yard.pass(6).await;
        let cap = FeeCap(Fee::Eip1559 { max_fee: 100_000_000_000, max_priority: 100_000_000_000 });
        let payment = Payment { to: home.clone(), coin: Coin::Native, amount: raw(1) };
        let fee = yard.rig.chain.quote(&wallet, &payment, cap).await.unwrap().needs;
        let amount = raw(100 * yard.one).checked_sub(fee).unwrap();
        let now = yard.rig.clock.now();
        let job = NewJob {
            id: JobId::new(domain::id::first_at(now)).unwrap(),
            listing: yard.rig.row.native().unwrap().id,
            kind: JobKind::Consolidation,
            reference: "all of it".to_owned(),
            to: home.to_string(),
            owner: Some((id("treasury"), 0)),
            amount,
            most_fee: yard.rig.row.outbound.fee_cap,
            priority: 1,
            requester: "ann".to_owned(),
            expires: now.plus_micros(3_600_000_000),
            payer: Payer::Wallet { group: id("users"), index: USER, address: wallet.to_string() },
        };
        let number = job.id;
        yard.rig.db.add_jobs(yard.rig.row.id, &[job], now).await.unwrap();
        for _ in 0..3 {
            yard.send_on(yard.rig.db).await.unwrap();
            yard.rig.clock.set(yard.rig.clock.now().plus_micros(31_000_000));
        }
        let (_, slots, _) = yard.rig.db.job(number).await.unwrap().unwrap();
        assert_eq!(slots.iter().map(|slot| slot.attempts.len()).collect::<Vec<_>>(), [1]);
        yard.pass(8).await;
        assert_eq!(yard.only(JobKind::Consolidation).await.job.state, JobState::Confirmed);
    });
}

/// The books go back with their chain and call fewer blocks final for a moment. An address of which a rule then knows nothing is looked at again when
/// its block is final again, and not a day later. (Found by `bursar sim custody`.)
#[test]
fn what_is_not_final_for_a_moment_is_looked_at_again() {
    on_both(async |yard| {
        yard.apply(&yard.rules(100, Some(200))).await;
        let wallet = yard.rig.address(USER).await;
        yard.rig.pay(&wallet, &yard.rig.token(), 480_000_000);
        // A price is missing, so it waits; just final.
        for _ in 0..12 {
            yard.pass(1).await;
            yard.evaluate().await;
            if yard.flags(&wallet).await.1 {
                break;
            }
        }
        assert!(yard.flags(&wallet).await.1, "a rule wants it");
        yard.rig.reorg(2, Fate::Moved);
        // One step back, and none forward yet.
        let mut books = yard.rig.worker("books").await;
        assert!(books.round(&*yard.rig.clock).await.unwrap().back_to.is_some());
        yard.evaluate().await;
        assert!(!yard.flags(&wallet).await.1, "it is not final");
        drop(books);
        for _ in 0..4 {
            yard.pass(1).await;
            yard.evaluate().await;
        }
        assert!(yard.flags(&wallet).await.1, "it is final again");
    });
}
