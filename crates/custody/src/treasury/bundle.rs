//! Bitcoin: what users' addresses hold goes home by groups, many coins in one transaction.
//!
//! The lane of a group, and with it the key of its jobs, is the address with the number zero: it follows from the group's key, it is always the
//! same, and no user has it. So two workers, or one that died, name the same job and its next generation. The coins are those of the Bitcoin wallet
//! with the group's name, in final blocks, that nobody is about to spend. Whether what they bring is credited, waits for that or is disputed makes
//! no difference: on the chain they are ours.

use std::collections::HashSet;

use domain::treasury::{
    Bundle, BundleCosts, BundleSight, CoinId, LooseCoin, LooseCoins, TreasuryAction, Verdict, Waits,
};
use domain::{ChainKind, RawAmount, Timestamp};
use ruint::aliases::U256;
use store::outbound::Payer;
use store::treasury::pass::EvaluatedCoin;
use store::treasury::{EvaluatedWallet, NewTreasuryJob, TreasuryKind};
use store::utxo::{Coin as Utxo, MOST_FINAL, OutPoint, UtxoError, WalletId};
use tx::{Address, Coin, Family, Fee, Group, Payment};

use super::TreasuryError;
use super::home::Destinations;
use super::rules::{Decided, Round, RulesWorker, Terms};
use crate::bitcoin::{ScriptKind, network_of};
use crate::outbound::draft;
use crate::outbound::plan::LEAST_RATE;
use crate::wallet::owners;

/// The number of the address that a group's lane has. Users' numbers begin with one.
const LANE: i64 = 0;

/// What is decided of a group.
pub(super) struct DecidedGroup {
    pub decided: Decided,
    /// What goes home, if something does.
    bundle: Option<Bundled>,
}

struct Bundled {
    bundle: Bundle,
    coins: Vec<OutPoint>,
}

/// A group of users' addresses, with the Bitcoin wallet that has their coins.
struct Till<'a> {
    group: &'a Group,
    wallet: WalletId,
    lane: Address,
}

impl RulesWorker<'_> {
    pub(super) fn bundles_coins(&self) -> bool {
        self.row.kind == ChainKind::Bitcoin
    }

    /// What is decided of each group.
    pub(super) async fn decide_groups(
        &self,
        round: &mut Round,
        destinations: &Destinations,
        settled: i64,
    ) -> Result<Vec<DecidedGroup>, TreasuryError> {
        let tills = self.users_tills().await?;
        let lanes: Vec<String> = tills.iter().map(|till| till.lane.to_string()).collect();
        round.formers.extend(self.db.formers(self.row.id, &lanes, settled, round.now).await?);
        let mut all = Vec::new();
        for till in &tills {
            let coins = match self.db.final_coins(till.wallet, till.group.account(), settled, round.now).await {
                Ok(coins) => coins,
                Err(UtxoError::Store(error)) => return Err(error.into()),
                // It is being read anew.
                Err(UtxoError::Refused(refusal)) => {
                    tracing::debug!(group = %till.group.id, code = refusal.code(), "no coins can be had now");
                    continue;
                }
            };
            all.push(self.decide_group(till, coins, round, destinations).await?);
        }
        Ok(all)
    }

    /// The job of a decision.
    pub(super) fn bundle_job(
        &self,
        one: DecidedGroup,
        round: &Round,
        destinations: &mut Destinations,
    ) -> Result<Option<NewTreasuryJob>, TreasuryError> {
        let Some(Bundled { bundle, coins }) = one.bundle else { return Ok(None) };
        let Some(home) = destinations.place(CoinId(self.native.0), bundle.amount) else { return Ok(None) };
        let to = (home.address.to_string(), home.group.clone(), home.index);
        let EvaluatedWallet { address, group, .. } = one.decided.wallet;
        let payer = Payer::Coins { group, index: LANE, address: address.clone(), coins };
        let terms = Terms {
            kind: TreasuryKind::Consolidation,
            rule: Some(bundle.rule),
            priority: bundle.priority,
            expected_cost: bundle.fee,
            // What it offers is fixed with what it brings.
            most_fee: self.row.outbound.fee_cap,
            payer,
        };
        self.job(&address, self.native, bundle.amount, to, terms, round).map(Some)
    }

    async fn users_tills(&self) -> Result<Vec<Till<'_>>, TreasuryError> {
        let Family::Bitcoin(network) = self.family else { return Ok(Vec::new()) };
        let wallets = self.db.wallets().await?;
        let till = |group: &'_ Group| {
            let named =
                |one: &&store::utxo::Wallet| one.name == group.id.as_str() && network_of(one.network) == network;
            let wallet = wallets.iter().find(named)?.id;
            Some((wallet, group.address(LANE.unsigned_abs()).ok()?))
        };
        let groups = self.pinned.deposit_groups(self.family).map(|pinned| &pinned.group);
        Ok(groups.filter_map(|group| till(group).map(|(wallet, lane)| Till { group, wallet, lane })).collect())
    }

    async fn decide_group(
        &self,
        till: &Till<'_>,
        mut coins: Vec<Utxo>,
        round: &mut Round,
        destinations: &Destinations,
    ) -> Result<DecidedGroup, TreasuryError> {
        let address = till.lane.to_string();
        let sum = |coins: &[Utxo]| coins.iter().map(|coin| coin.amount.unsigned_abs()).fold(0_u64, u64::saturating_add);
        let mut total = sum(&coins);
        if coins.len() >= MOST_FINAL {
            // Many small coins that are not among these must not wait for ever below a rule's threshold.
            total = total.max(self.confirmed(till, round.now).await?);
        }
        let coin = CoinId(self.native.0);
        let sweep = round.former(&address, self.native, TreasuryKind::Consolidation);
        let stopped = round.stopped.groups.contains(&till.group.id);
        let mut differs = false;
        let decision = loop {
            let loose = LooseCoins { coin, coins: coins.iter().filter_map(loose).collect(), total, sweep, stopped };
            let mut budget = round.budget.clone();
            let sight = self.bundle_sight(till, &loose, round, destinations).await;
            let decision = sight.decide(&loose, &mut budget);
            let Some(Ok(bundle)) = &decision else { break decision.map(|one| one.map(|_| None)) };
            let chosen: Vec<Utxo> = bundle.coins.iter().filter_map(|place| coins.get(*place).cloned()).collect();
            let strange = self.strange(till, &chosen).await?;
            if strange.is_empty() {
                round.budget = budget;
                let coins = chosen.iter().map(|coin| coin.outpoint).collect();
                break Some(Ok(Some(Bundled { bundle: bundle.clone(), coins })));
            }
            // It is decided again without them. They are in the log.
            differs = true;
            total = total.saturating_sub(sum(&chosen
                .iter()
                .filter(|one| strange.contains(&one.outpoint))
                .cloned()
                .collect::<Vec<_>>()));
            coins.retain(|one| !strange.contains(&one.outpoint));
        };
        let mut verdict = Verdict::default();
        let mut bundle = None;
        match decision {
            None if differs => verdict.waits.push((coin, Waits::RowDiffers)),
            None => {}
            Some(Err(why)) => verdict.waits.push((coin, why)),
            Some(Ok(made)) => bundle = made,
        }
        let action: Option<TreasuryAction> = bundle.as_ref().map(|made: &Bundled| made.bundle.action(coin));
        verdict.actions.extend(action);
        if !verdict.waits.is_empty() || !verdict.actions.is_empty() {
            verdict.needs_consolidation.push(coin);
        }
        let evaluated = EvaluatedCoin {
            listing: self.native,
            spendable: satoshi(total),
            needs_gas: false,
            needs_consolidation: !verdict.needs_consolidation.is_empty(),
            waits: None,
        };
        let (group, coins) = (till.group.id.clone(), vec![evaluated]);
        let wallet = EvaluatedWallet { address, group, index: LANE, stopped, coins };
        Ok(DecidedGroup { decided: Decided { wallet, verdict }, bundle })
    }

    /// All that the group's wallet has in blocks, less what is held.
    async fn confirmed(&self, till: &Till<'_>, now: Timestamp) -> Result<u64, TreasuryError> {
        let accounts = match self.db.balance(till.wallet, now).await {
            Ok(accounts) => accounts,
            Err(UtxoError::Store(error)) => return Err(error.into()),
            Err(UtxoError::Refused(_)) => return Ok(0),
        };
        let free = accounts.get(&till.group.account()).map_or(0, |one| one.confirmed - one.immature - one.leased);
        Ok(u64::try_from(free).unwrap_or(0))
    }

    /// What a bundle costs is asked only where a rule could want one.
    async fn bundle_sight<'r>(
        &self,
        till: &Till<'_>,
        loose: &LooseCoins,
        round: &'r Round,
        destinations: &Destinations,
    ) -> BundleSight<'r> {
        let (sweeps, home, now) = (round.rules.sweeps.as_slice(), round.home, round.now);
        let may = loose.sweep.is_settled() && !loose.stopped && home.is_ok();
        let wanted = may && sweeps.iter().any(|rule| rule.condition.holds(satoshi(loose.total)));
        let costs = if wanted { self.bundle_costs(till, destinations).await } else { None };
        BundleSight { sweeps, costs, home, acting: round.acting.as_ref(), now }
    }

    /// `None`: nobody can say now, or the network asks for more than is allowed.
    async fn bundle_costs(&self, till: &Till<'_>, destinations: &Destinations) -> Option<BundleCosts> {
        let limits = &self.row.outbound;
        let payment = Payment { to: till.lane.clone(), coin: Coin::Native, amount: RawAmount::ZERO };
        let cap = draft::cap(self.row.kind, limits, limits.fee_cap);
        let quote = match self.chain.quote(&till.lane, &payment, cap).await {
            Ok(quote) => quote,
            Err(error) => {
                let (chain, code) = (self.row.name.as_str(), error.code());
                tracing::debug!(chain, code, "what transactions cost cannot be asked");
                return None;
            }
        };
        let Fee::PerKvb(rate) = quote.fee else { return None };
        // The largest of the scripts that it may go to: which one that is depends on the amount.
        let treasury = destinations.treasury().ok().map(|home| home.address.clone());
        let homes = destinations.hot_of(CoinId(self.native.0)).into_iter().chain(treasury);
        let scripts: Vec<Vec<u8>> = homes.filter_map(|home| home.script_bytes()).collect();
        let paid = |script: &Vec<u8>| {
            let script = ::bitcoin::Script::from_bytes(script);
            Some((tx::bitcoin::estimated_weight([], [script])?, script.minimal_non_dust().to_sat()))
        };
        let paid: Vec<(u64, u64)> = scripts.iter().filter_map(paid).collect();
        Some(BundleCosts {
            rate: rate.max(LEAST_RATE).min(limits.price_cap),
            frame: paid.iter().map(|(frame, _)| *frame).max()?,
            most_fee: u64::try_from(limits.fee_cap.to_u256()).unwrap_or(u64::MAX),
            dust: paid.iter().map(|(_, dust)| *dust).max()?,
        })
        .filter(|_| !quote.capped)
    }

    /// Those whose addresses no row of the group gives, or one that its key does not.
    async fn strange(&self, till: &Till<'_>, coins: &[Utxo]) -> Result<HashSet<OutPoint>, TreasuryError> {
        let Family::Bitcoin(network) = self.family else { return Ok(HashSet::new()) };
        let address = |coin: &Utxo| {
            let script = ::bitcoin::Script::from_bytes(&coin.script);
            ::bitcoin::Address::from_script(script, network).ok().map(Address::Bitcoin)
        };
        let addresses: Vec<Address> = coins.iter().filter_map(address).collect();
        let (found, _) = owners(self.db, &self.pinned, &addresses).await?;
        let ours = |coin: &Utxo| {
            address(coin).and_then(|address| found.get(&address)).is_some_and(|one| one.group == till.group.id)
        };
        Ok(coins.iter().filter(|coin| !ours(coin)).map(|coin| coin.outpoint).collect())
    }
}

fn satoshi(amount: u64) -> RawAmount {
    RawAmount::from_u256(U256::from(amount))
}

/// As decisions see it. Coins of a kind that nobody here can sign for are not read.
fn loose(coin: &Utxo) -> Option<LooseCoin> {
    let weight = ScriptKind::of(coin.kind)?.input_weight();
    Some(LooseCoin { satoshi: u64::try_from(coin.amount).ok()?, weight })
}
