//! One worker of a chain's rules.
//!
//! A round takes some addresses: those that changed in blocks that have become final, and in turn those that rules still have to do with; or
//! the next page of all. It decides each, and writes flags, reasons, jobs and how far it has come in one transaction. Whoever dies anywhere is
//! followed by another that begins at the rows. Two at once are harmless: each job has a number of its own for its address, coin and kind.
//!
//! On Bitcoin a round takes the groups of users' addresses instead (`bundle`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chain::{Chain, ChainError};
use domain::outbound::JobKind;
use domain::treasury::{
    BandAction, Budget, CoinId, CoinNow, Fees, Former, HotCoin, RuleId, Sight, TreasuryAction, Verdict, Waits,
    WalletNow, Worth,
};
use domain::{Availability, ChainKind, Clock, GroupId, RawAmount, Timestamp, WalletRole};
use store::Db;
use store::entry::{ChainRow, ListingId};
use store::outbound::{JobId, NewJob, Payer};
use store::treasury::act::{Flags, NewJobs, RuleProgress};
use store::treasury::house::{HotRow, StoppedWallets};
use store::treasury::pass::{ChainRules, EvaluatedCoin, FormerJob, Formers, RuleStanding};
use store::treasury::{EvaluatedWallet, NewTreasuryJob, TreasuryKind};
use tx::{Address, Family, Payment};

use super::TreasuryError;
use super::fees::{MOST_SAMPLES, Parties, Sample, expected_cost, fees};
use super::home::{Destinations, wallets_of};
use crate::deposit::Coins;
use crate::outbound::MakeId;
use crate::outbound::draft;
use crate::wallet::Pinned;

/// A worker's hold on a chain's rules, renewed with every round.
const LEASE_MICROS: i64 = 120_000_000;
/// Rows of a page of all addresses, and entries of a round of what changed.
const PAGE_ROWS: i64 = 20_000;
/// Addresses that are looked at once more in a round, although nothing of them changed.
const NEEDY: i64 = 1_000;
/// All addresses are looked at this often.
const PASS_EVERY_MICROS: i64 = 24 * 3_600 * 1_000_000;
/// Nothing is decided while the chain's own books have to be proven for more blocks than this, below those that a quorum calls settled.
const MOST_BEHIND: u64 = 16;
const HOUR_MICROS: i64 = 3_600 * 1_000_000;
/// A job that could not be paid for so long is over; the rule may make another.
const JOB_LIFE_MICROS: i64 = 12 * 3_600 * 1_000_000;
/// Who asks for what rules ask for.
pub const REQUESTER: &str = "rules";

/// What one round has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesRound {
    /// Addresses that were looked at.
    pub looked: usize,
    pub jobs: usize,
    /// Coins whose flags or reasons changed.
    pub flags: usize,
    /// There is more of the same to do at once.
    pub more: bool,
    /// What kept it from going on.
    pub waits: Option<String>,
}

/// What would be decided, for people who only want to see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryRun {
    pub decided: Vec<Decided>,
    /// Why nothing would be.
    pub waits: Option<String>,
}

/// What is decided of an address, for people who only want to see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    pub wallet: EvaluatedWallet,
    pub verdict: Verdict,
}

pub struct RulesWorker<'a> {
    pub(super) db: &'a Db,
    pub(super) chain: &'a dyn Chain,
    ids: MakeId<'a>,
    pub(super) row: ChainRow,
    pub(super) family: Family,
    coins: Coins,
    pub(super) native: ListingId,
    pub(super) pinned: Arc<Pinned>,
    worker: String,
    /// Of those that rules have to do with, the last that was looked at.
    needy_after: String,
}

/// What a round decides with.
pub(super) struct Round {
    pub rules: ChainRules,
    worths: HashMap<CoinId, Worth>,
    fees: Option<Fees>,
    pub formers: Formers,
    /// Hot wallets that have bands.
    hot: Vec<HotRow>,
    /// There is a treasury; or why nothing goes there.
    pub home: Result<(), Waits>,
    /// What nothing is sent from, or to, until people have looked.
    pub stopped: StoppedWallets,
    /// Coins that are not suspended. `None`: the chain is.
    pub acting: Option<HashSet<CoinId>>,
    pub budget: Budget,
    pub now: Timestamp,
}

impl<'a> RulesWorker<'a> {
    pub fn new(
        db: &'a Db,
        chain: &'a dyn Chain,
        ids: MakeId<'a>,
        row: ChainRow,
        pinned: Arc<Pinned>,
        worker: String,
    ) -> Result<Self, TreasuryError> {
        let unknown = || TreasuryError::Network { chain: row.name.to_string(), network: row.network.clone() };
        let family = Family::of_chain(row.kind, &row.network).ok_or_else(unknown)?;
        let broken = |source| TreasuryError::Coins { chain: row.name.to_string(), source };
        let coins = Coins::of(&row, family).map_err(broken)?;
        let native = row.native().ok_or_else(unknown)?.id;
        Ok(Self { db, chain, ids, row, family, coins, native, pinned, worker, needy_after: String::new() })
    }

    /// As much as one commit takes. When it fails nothing is half done.
    pub async fn round(&mut self, clock: &dyn Clock) -> Result<RulesRound, TreasuryError> {
        let now = clock.now();
        let taken = self.db.take_rules(&self.row, &self.worker, now, now.plus_micros(LEASE_MICROS)).await?;
        let Some((worker, standing)) = taken else { return Ok(RulesRound::default()) };
        let Some(settled) = standing.settled else {
            let waits = "the chain's own books have no final block: does bursar run deposits work?".to_owned();
            return Ok(RulesRound { waits: Some(waits), ..RulesRound::default() });
        };
        let books = self.books().await?;
        if let Some(waits) = books.behind() {
            return Ok(RulesRound { waits: Some(waits), ..RulesRound::default() });
        }
        let (wallets, progress, more) = self.addresses(&standing, settled, now).await?;
        let mut done = RulesRound { looked: wallets.len(), more, ..RulesRound::default() };
        let (mut round, mut destinations) = self.prepare(&wallets, settled, now).await?;
        let (mut jobs, mut flags) = (NewJobs::default(), Vec::new());
        if self.bundles_coins() {
            let groups = self.decide_groups(&mut round, &destinations, settled).await?;
            done.looked = groups.len();
            for group in groups {
                jobs.made.extend(self.bundle_job(group, &round, &mut destinations)?);
            }
        }
        for wallet in &wallets {
            let verdict = self.verdict(wallet, &mut round);
            self.jobs(wallet, &verdict, &round, &mut destinations, &mut jobs.made)?;
            flags.extend(changed_flags(wallet, &verdict, &round));
        }
        // What hot wallets have is what the books say: they must have seen every payout that is final.
        if books.scanned >= books.settled {
            self.bands(&round, &destinations, &mut jobs).await?;
        }
        match self.db.act_on_rules(&worker, &jobs, &flags, &progress, clock.now()).await? {
            Some(acted) => (done.jobs, done.flags) = (acted.jobs, acted.flags),
            None => done.waits = Some("the round took so long that another worker has the rules by now".to_owned()),
        }
        Ok(done)
    }

    /// How far the chain's own books are, beside what a quorum calls settled.
    async fn books(&self) -> Result<Books, TreasuryError> {
        let head = self.chain.head().await?;
        let young = head.tip.height < u64::from(self.row.confirmations);
        let settled = head.settled.or(young.then_some(0)).ok_or(ChainError::NoQuorum { wanted: 1, agreed: 0 })?;
        let standing = self.db.chain_standing(&self.row).await?;
        let proven = standing.as_ref().and_then(|books| books.proven_height).unwrap_or(0);
        let scanned = standing.and_then(|books| books.scanned).map_or(0, |(height, _)| height);
        Ok(Books { proven, scanned, settled })
    }

    /// What would be decided of all addresses, or of one, without doing it.
    pub async fn dry_run(&self, only: Option<&str>, now: Timestamp) -> Result<DryRun, TreasuryError> {
        self.dry_run_in_pages(only, now, PAGE_ROWS).await
    }

    /// The same, by so many rows at a time.
    pub async fn dry_run_in_pages(
        &self,
        only: Option<&str>,
        now: Timestamp,
        rows: i64,
    ) -> Result<DryRun, TreasuryError> {
        let settled = self.db.settled_height(&self.row).await?;
        let Some(settled) = settled else { return Ok(DryRun::default()) };
        let waits = match self.books().await {
            Ok(books) => books.behind(),
            // No rule acts while nobody can say how far the chain is.
            Err(TreasuryError::Chain(error)) => Some(format!("the chain cannot be asked now: {error}")),
            Err(error) => return Err(error),
        };
        if waits.is_some() {
            return Ok(DryRun { decided: Vec::new(), waits });
        }
        // Rows have an address as this chain writes it, people may write it otherwise. What is no address here is none of them.
        let Ok(only) = only.map(|text| self.family.parse_address(text)).transpose() else {
            return Ok(DryRun::default());
        };
        let only = only.map(|address| address.to_string());
        let decided = self.decided(only.as_deref(), (settled, now), rows).await?;
        Ok(DryRun { decided, waits: None })
    }

    async fn decided(
        &self,
        only: Option<&str>,
        (settled, now): (i64, Timestamp),
        rows: i64,
    ) -> Result<Vec<Decided>, TreasuryError> {
        if self.bundles_coins() {
            let (mut round, destinations) = self.prepare(&[], settled, now).await?;
            let groups = self.decide_groups(&mut round, &destinations, settled).await?.into_iter();
            let shown =
                |one: &Decided| only.map_or(one.verdict != Verdict::default(), |only| one.wallet.address == only);
            return Ok(groups.map(|one| one.decided).filter(shown).collect());
        }
        let mut decided = Vec::new();
        let mut after = String::new();
        // What an hour allows is allowed to all pages together.
        let mut budget: Option<Budget> = None;
        loop {
            let wallets = match only {
                Some(address) => self.db.wallets_at(self.row.id, &[address.to_owned()], settled).await?,
                None => match self.db.wallet_page(self.row.id, &after, rows, settled).await? {
                    Some((wallets, last)) => {
                        after = last;
                        wallets
                    }
                    None => return Ok(decided),
                },
            };
            let (mut round, _) = self.prepare(&wallets, settled, now).await?;
            round.budget = budget.take().unwrap_or(round.budget);
            for wallet in wallets {
                let verdict = self.verdict(&wallet, &mut round);
                if only.is_some() || verdict != Verdict::default() {
                    decided.push(Decided { wallet, verdict });
                }
            }
            if only.is_some() {
                return Ok(decided);
            }
            budget = Some(round.budget);
        }
    }

    /// Which addresses are looked at in this round, what is written of that, and whether the next round has more of the same.
    async fn addresses(
        &mut self,
        standing: &RuleStanding,
        settled: i64,
        now: Timestamp,
    ) -> Result<(Vec<EvaluatedWallet>, RuleProgress, bool), TreasuryError> {
        // On Bitcoin coins go home by groups: no address is looked at by itself, and none has flags.
        if self.bundles_coins() {
            return Ok((Vec::new(), RuleProgress::None, false));
        }
        // A time that is still to come was written by a clock that was wrong.
        let due = standing.passed_at.is_none_or(|at| at > now || at.plus_micros(PASS_EVERY_MICROS) <= now);
        let evaluated = standing.evaluated.filter(|_| standing.passing.is_none() && !due);
        let Some(evaluated) = evaluated else {
            let after = standing.passing.clone().unwrap_or_default();
            let page = self.db.wallet_page(self.row.id, &after, PAGE_ROWS, settled).await?;
            return Ok(match page {
                Some((wallets, last)) => (wallets, RuleProgress::Page(last, settled), true),
                None => (Vec::new(), RuleProgress::Passed(settled), true),
            });
        };
        let mut addresses = BTreeSet::new();
        // Books that went back with their chain call fewer blocks final for a while. What this round then takes for not there is to be looked at
        // again when it is final again.
        let mut upto = evaluated.min(settled);
        if settled > evaluated {
            let changed = self.db.changed_between(self.row.id, evaluated, settled, PAGE_ROWS).await?;
            addresses.extend(changed.0);
            upto = changed.1;
        }
        let needy = self.db.needy_after(self.row.id, &self.needy_after, NEEDY).await?;
        self.needy_after = needy.last().cloned().unwrap_or_default();
        addresses.extend(needy);
        let addresses: Vec<String> = addresses.into_iter().collect();
        let wallets = self.db.wallets_at(self.row.id, &addresses, settled).await?;
        let progress = if upto == evaluated { RuleProgress::None } else { RuleProgress::Changed(upto) };
        Ok((wallets, progress, upto < settled))
    }

    /// All that decisions over these addresses rest on, in a constant number of questions.
    async fn prepare(
        &self,
        wallets: &[EvaluatedWallet],
        settled: i64,
        now: Timestamp,
    ) -> Result<(Round, Destinations), TreasuryError> {
        let rules = self.db.chain_rules(&self.row).await?;
        let matches = |coin: &EvaluatedCoin| {
            rules.sweeps.iter().any(|rule| rule.coin == CoinId(coin.listing.0) && rule.condition.holds(coin.spendable))
        };
        let matched: Vec<&EvaluatedWallet> = wallets.iter().filter(|wallet| wallet.coins.iter().any(matches)).collect();
        let bands = self.db.hot_wallets(&self.row, settled).await?;
        let mut asked: BTreeSet<String> = matched.iter().map(|wallet| wallet.address.clone()).collect();
        asked.extend(bands.iter().map(|row| row.address.clone()));
        let formers = self.db.formers(self.row.id, &asked.into_iter().collect::<Vec<_>>(), settled, now).await?;
        let stopped = self.db.stopped_wallets(self.row.id).await?;
        let house = (&*self.pinned, &self.row.name);
        let mut destinations = Destinations::of(house, (&bands, &formers), &stopped, now);
        let prices = self.db.price_of_assets(now).await?;
        let worth = |listing: &store::entry::ListingRow| {
            let (coin, decimals) = (CoinId(listing.id.0), listing.form.decimals());
            (coin, Worth { coin, decimals, price: prices.get(&listing.asset).copied() })
        };
        let worths = self.row.listings.iter().map(worth).collect();
        let budget = Budget::new(self.db.made_by_rules(self.row.id, now.plus_micros(-HOUR_MICROS), now).await?);
        let idle = |wallet: &EvaluatedWallet, coin: &EvaluatedCoin| {
            let key = (wallet.address.clone(), coin.listing, TreasuryKind::Consolidation);
            formers.get(&key).is_none_or(|job| !job.former.is_busy(now))
        };
        let serves =
            |wallet: &EvaluatedWallet, coin: &EvaluatedCoin| !wallet.stopped && matches(coin) && idle(wallet, coin);
        let fees = match destinations.treasury() {
            Ok(_) if !matched.is_empty() => self.fees(&matched, serves, &mut destinations).await?,
            Ok(_) | Err(_) => None,
        };
        let home = destinations.treasury().map(|_| ());
        let acting = self.acting().await?;
        Ok((Round { rules, worths, fees, formers, hot: bands, home, stopped, acting, budget, now }, destinations))
    }

    /// Coins that may be moved now. `None`: people have suspended the chain. Whoever makes a job looks again.
    async fn acting(&self) -> Result<Option<HashSet<CoinId>>, TreasuryError> {
        let row = self.db.chain(&self.row.name).await?.filter(|row| row.status == Availability::Active);
        let active =
            |row: ChainRow| row.listings.into_iter().filter(|one| one.active).map(|one| CoinId(one.id.0)).collect();
        Ok(row.map(active))
    }

    /// Asked for with addresses that rules match, and from which nothing is under way: what has just left cannot be asked about. Hot wallets that a coin
    /// would not be paid to are left out of its destinations.
    async fn fees(
        &self,
        matched: &[&EvaluatedWallet],
        serves: impl Fn(&EvaluatedWallet, &EvaluatedCoin) -> bool,
        destinations: &mut Destinations,
    ) -> Result<Option<Fees>, TreasuryError> {
        let Ok(treasury) = destinations.treasury().map(|home| home.address.clone()) else { return Ok(None) };
        let mut samples: BTreeMap<ListingId, Sample> = BTreeMap::new();
        let mut needy = None;
        for wallet in matched {
            for coin in &wallet.coins {
                let sample = samples.get(&coin.listing);
                if sample.is_some_and(|sample| sample.from.len() >= MOST_SAMPLES) || !serves(wallet, coin) {
                    continue;
                }
                let (Some(from), Some(form)) = (self.address(wallet), self.coins.coin(coin.listing)) else { continue };
                // One that never had the chain's own coin may be new to it.
                if needy.is_none() && !wallet.coins.iter().any(|one| one.listing == self.native) {
                    needy = Some(from.clone());
                }
                let id = CoinId(coin.listing.0);
                let sample = samples.entry(coin.listing).or_insert_with(|| {
                    let (from, hot) = (Vec::new(), destinations.hot_of(id));
                    Sample { coin: id, form, from, hot }
                });
                sample.from.push((from, coin.spendable));
            }
        }
        let samples: Vec<Sample> = samples.into_values().collect();
        let needy =
            needy.or_else(|| samples.iter().find_map(|sample| sample.from.first()).map(|(from, _)| from.clone()));
        let limits = &self.row.outbound;
        let cap = draft::cap(self.row.kind, limits, limits.fee_cap);
        let gas = wallets_of(&self.pinned, &self.row.name, WalletRole::Gas).into_iter().next();
        let native = CoinId(self.native.0);
        let (hot, topup) = (destinations.hot_of(native), gas.map(|gas| gas.address).zip(needy));
        let parties = Parties { samples: &samples, treasury: &treasury, hot: &hot, topup };
        match fees(self.chain, &parties, native, cap).await {
            Ok(asked) => Ok(asked.map(|asked| {
                destinations.leave_out(&asked.refused);
                asked.fees
            })),
            // Nobody can say now: every address that rules match says so.
            Err(error) => {
                tracing::debug!(
                    chain = self.row.name.as_str(),
                    code = error.code(),
                    "what transactions cost cannot be asked"
                );
                Ok(None)
            }
        }
    }

    /// The address that the wallet's key gives. `None`: the row says another one, and nothing is sent to it or from it.
    fn address(&self, wallet: &EvaluatedWallet) -> Option<Address> {
        let group = &self.pinned.group(&wallet.group)?.group;
        let derived = group.address(u64::try_from(wallet.index).ok()?).ok()?;
        (group.family() == self.family && derived.to_string() == wallet.address).then_some(derived)
    }

    /// What is decided of an address. One whose row says another address than its key gives gets nothing.
    fn verdict(&self, wallet: &EvaluatedWallet, round: &mut Round) -> Verdict {
        let mut verdict = round.decide(wallet, self.native);
        let unasked = verdict.waits.iter().any(|(_, why)| *why == Waits::NoFees);
        if (unasked || !verdict.actions.is_empty()) && self.address(wallet).is_none() {
            tracing::error!(
                chain = self.row.name.as_str(),
                address = wallet.address,
                code = "WALLET_ROW_DIFFERS",
                "a row says another address than its key gives: no rule acts on it"
            );
            verdict.actions.clear();
            verdict.waits = verdict.needs_consolidation.iter().map(|coin| (*coin, Waits::RowDiffers)).collect();
        }
        verdict
    }

    /// The jobs of a verdict.
    fn jobs(
        &self,
        wallet: &EvaluatedWallet,
        verdict: &Verdict,
        round: &Round,
        destinations: &mut Destinations,
        jobs: &mut Vec<NewTreasuryJob>,
    ) -> Result<(), TreasuryError> {
        if verdict.actions.is_empty() {
            return Ok(());
        }
        let Some(own) = self.address(wallet) else { return Ok(()) };
        for action in &verdict.actions {
            let made = match *action {
                TreasuryAction::TopUp { rule, amount, priority, expected_cost } => {
                    let payer = Payer::Role(WalletRole::Gas);
                    let (kind, most_fee) = (TreasuryKind::GasTopup, self.row.outbound.fee_cap);
                    let terms = Terms { kind, rule: Some(rule), priority, expected_cost, most_fee, payer };
                    let to = (own.to_string(), wallet.group.clone(), wallet.index);
                    self.job(&wallet.address, self.native, amount, to, terms, round)?
                }
                TreasuryAction::Sweep { rule, coin, amount, priority, expected_cost, share } => {
                    let Some(home) = destinations.place(coin, amount) else { continue };
                    let to = (home.address.to_string(), home.group.clone(), home.index);
                    let (group, index, address) = (wallet.group.clone(), wallet.index, own.to_string());
                    let payer = Payer::Wallet { group, index, address };
                    let (kind, most_fee) = (TreasuryKind::Consolidation, self.most_fee(coin, share, round));
                    let terms = Terms { kind, rule: Some(rule), priority, expected_cost, most_fee, payer };
                    self.job(&wallet.address, ListingId(coin.0), amount, to, terms, round)?
                }
            };
            jobs.push(made);
        }
        Ok(())
    }

    /// What a sweep may cost when it is sent: the rule's share of its value, but no less than what a node must be shown to take it at the prices by
    /// which it was decided. On TRON that has a margin, for a call that runs out of energy burns all of it for nothing.
    fn most_fee(&self, coin: CoinId, share: Option<RawAmount>, round: &Round) -> RawAmount {
        let cap = self.row.outbound.fee_cap;
        // Its own coin costs there what the network asks for the bytes: nothing is offered that could be less.
        let unbounded = self.row.kind == ChainKind::Tron && coin.0 == self.native.0;
        let (Some(share), Some(fees), false) = (share, &round.fees, unbounded) else { return cap };
        let fee = if coin.0 == self.native.0 { Some(&fees.native) } else { fees.tokens.get(&coin) };
        let least = fee.map_or(RawAmount::ZERO, |fee| match self.row.kind {
            ChainKind::Tron => fee.most,
            ChainKind::Evm | ChainKind::Bitcoin => fee.expected,
        });
        share.max(least).min(cap)
    }

    /// What hot wallets have too much of goes to the treasury, and what they lack comes from there. The signer pays the latter when people have
    /// approved it: `bursar job approve`.
    async fn bands(&self, round: &Round, destinations: &Destinations, jobs: &mut NewJobs) -> Result<(), TreasuryError> {
        let Ok(home) = destinations.treasury() else { return Ok(()) };
        for (number, row) in round.hot.iter().enumerate() {
            // What was swept meanwhile may have filled it: then nobody need approve anything.
            let waiting = row.former(&round.formers, TreasuryKind::Refill).and_then(|job| job.waiting);
            let alone = HotCoin { busy: false, refill_rests: false, ..row.hot_coin(&round.formers, round.now) };
            if let (Some(refill), None | Some(BandAction::Surplus(_))) = (waiting, alone.decide()) {
                jobs.withdrawn.push(refill);
            }
            // A row that says another address than its key gives gets nothing, and gives nothing.
            let (Some(own), Some(action)) =
                (destinations.hot(number), row.hot_coin(&round.formers, round.now).decide())
            else {
                continue;
            };
            let (kind, amount, from, to, priority) = match action {
                BandAction::Surplus(amount) => {
                    (TreasuryKind::Surplus, amount, own, home, JobKind::Consolidation.priority())
                }
                BandAction::Refill(amount) => (TreasuryKind::Refill, amount, home, own, JobKind::Refill.priority()),
            };
            let payer =
                Payer::Wallet { group: from.group.clone(), index: from.index, address: from.address.to_string() };
            let expected_cost = match kind {
                TreasuryKind::Surplus => self.surplus_cost(row, &home.address, amount).await,
                TreasuryKind::GasTopup | TreasuryKind::Consolidation | TreasuryKind::Refill => RawAmount::ZERO,
            };
            let most_fee = self.row.outbound.fee_cap;
            let terms = Terms { kind, rule: None, priority, expected_cost, most_fee, payer };
            let to = (to.address.to_string(), to.group.clone(), to.index);
            jobs.made.push(self.job(&row.address, row.listing, amount, to, terms, round)?);
        }
        Ok(())
    }

    /// Hot wallets that have too much are few: each is asked for by itself. A surplus leaves also when nobody can say what that costs.
    async fn surplus_cost(&self, row: &HotRow, home: &Address, amount: RawAmount) -> RawAmount {
        let (Ok(from), Some(coin)) = (self.family.parse_address(&row.address), self.coins.coin(row.listing)) else {
            return RawAmount::ZERO;
        };
        let payment = Payment { to: home.clone(), coin, amount };
        let limits = &self.row.outbound;
        let cap = draft::cap(self.row.kind, limits, limits.fee_cap);
        expected_cost(self.chain, &from, &payment, cap).await.unwrap_or_else(|error| {
            let (chain, code) = (self.row.name.as_str(), error.code());
            tracing::debug!(chain, code, "what a surplus costs cannot be asked");
            RawAmount::ZERO
        })
    }

    pub(super) fn job(
        &self,
        about: &str,
        listing: ListingId,
        amount: RawAmount,
        (to, group, index): (String, GroupId, i64),
        terms: Terms,
        round: &Round,
    ) -> Result<NewTreasuryJob, TreasuryError> {
        let number = (self.ids)().ok_or(TreasuryError::NoIds)?;
        let id = JobId::new(number).map_err(|_| TreasuryError::NoIds)?;
        let key = (about.to_owned(), listing, terms.kind);
        let generation = round.formers.get(&key).map_or(0, |job| job.generation.saturating_add(1));
        let kind = match terms.kind {
            TreasuryKind::GasTopup => JobKind::GasTopup,
            TreasuryKind::Consolidation | TreasuryKind::Surplus => JobKind::Consolidation,
            TreasuryKind::Refill => JobKind::Refill,
        };
        let reference = format!("{}:{}:{}:{about}:{generation}", terms.kind.as_str(), self.row.name, listing.0);
        let job = NewJob {
            id,
            listing,
            kind,
            reference,
            to,
            owner: Some((group, index)),
            amount,
            most_fee: terms.most_fee,
            priority: terms.priority,
            requester: REQUESTER.to_owned(),
            expires: round.now.plus_micros(JOB_LIFE_MICROS),
            payer: terms.payer,
        };
        let (kind, expected_cost, rule) = (terms.kind, terms.expected_cost, terms.rule.map(RuleId::number));
        Ok(NewTreasuryJob { job, kind, address: about.to_owned(), listing, generation, rule, expected_cost })
    }
}

pub(super) struct Terms {
    pub kind: TreasuryKind,
    pub rule: Option<RuleId>,
    pub priority: i64,
    pub expected_cost: RawAmount,
    pub most_fee: RawAmount,
    pub payer: Payer,
}

impl Round {
    pub(super) fn former(&self, address: &str, listing: ListingId, kind: TreasuryKind) -> Former {
        self.formers.get(&(address.to_owned(), listing, kind)).map_or(Former::Never, |job| job.former)
    }

    /// Why a coin waits. A rule that rests after a failure says what that was.
    fn words(&self, address: &str, listing: ListingId, why: Waits) -> String {
        let failed = |job: &&FormerJob| matches!(job.former, Former::Ended { failures: 1.., .. });
        let key = |kind| (address.to_owned(), listing, kind);
        let last = [TreasuryKind::Consolidation, TreasuryKind::GasTopup];
        let last = last.into_iter().find_map(|kind| self.formers.get(&key(kind)).filter(failed));
        match (why, last) {
            (Waits::CoolDown { .. }, Some(job)) => format!("{why}; the last job failed: {}", job.reason),
            _ => why.to_string(),
        }
    }

    fn decide(&mut self, wallet: &EvaluatedWallet, native: ListingId) -> Verdict {
        let coin = |coin: &EvaluatedCoin| CoinNow {
            coin: CoinId(coin.listing.0),
            spendable: coin.spendable,
            sweep: self.former(&wallet.address, coin.listing, TreasuryKind::Consolidation),
        };
        let own = wallet.coins.iter().find(|one| one.listing == native).map(coin);
        let none = CoinNow { coin: CoinId(native.0), spendable: RawAmount::ZERO, sweep: Former::Never };
        let now = WalletNow {
            native: own.unwrap_or(none),
            tokens: wallet.coins.iter().filter(|one| one.listing != native).map(coin).collect(),
            topup: self.former(&wallet.address, native, TreasuryKind::GasTopup),
            stopped: wallet.stopped,
        };
        let sight = Sight {
            gas: &self.rules.gas,
            sweeps: &self.rules.sweeps,
            worths: &self.worths,
            fees: self.fees.as_ref(),
            home: self.home,
            acting: self.acting.as_ref(),
            now: self.now,
        };
        sight.decide(&now, &mut self.budget)
    }
}

/// How far the chain's own books are.
struct Books {
    proven: u64,
    scanned: u64,
    settled: u64,
}

impl Books {
    /// Why nothing is decided yet: the books have not seen the newest settled blocks. A database that was put back from a backup knows neither
    /// of gas that was sent since nor of what was swept, and would ask for both again.
    fn behind(&self) -> Option<String> {
        let Self { proven, settled, .. } = self;
        (proven.saturating_add(MOST_BEHIND) < *settled).then(|| {
            format!("the chain's own books are proven to block {proven} of {settled}: does bursar run deposits work?")
        })
    }
}

/// The coins of a wallet whose flags or reasons are others by now; all of them where a job is made, which may yet be refused.
fn changed_flags(wallet: &EvaluatedWallet, verdict: &Verdict, round: &Round) -> Vec<Flags> {
    let flags = |coin: &EvaluatedCoin| {
        let id = CoinId(coin.listing.0);
        let waits = verdict.waits.iter().find(|(waiting, _)| *waiting == id);
        let waits = waits.map(|(_, why)| round.words(&wallet.address, coin.listing, *why));
        let flags = Flags {
            address: wallet.address.clone(),
            listing: coin.listing,
            needs_gas: verdict.needs_gas.contains(&id),
            needs_consolidation: verdict.needs_consolidation.contains(&id),
            waits,
        };
        let same = flags.needs_gas == coin.needs_gas
            && flags.needs_consolidation == coin.needs_consolidation
            && flags.waits == coin.waits;
        (!same || !verdict.actions.is_empty()).then_some(flags)
    };
    wallet.coins.iter().filter_map(flags).collect()
}
