//! What must hold when all nodes are well and the workers have nothing to do: every payment that is deep enough in the chain is in
//! the books, once, and nothing else is; and the books equal the chains.

use std::collections::{BTreeMap, HashMap};

use domain::deposit::DepositState;
use domain::{AssetId, RawSum};
use store::Db;
use store::deposit::DepositFilter;
use store::ledger::balances::{Totals, totals};
use store::ledger::journal::{AccountFilter, AccountListing, list_accounts};

use tx::{Address, TxHash};

use super::super::ground::{Ground, HOLLOW};
use super::super::model::Money;
use super::super::net::{ChainBooks, Net};
use super::super::owner::Kind;
use super::super::world::{Shared, World};
use super::verdict::payments;
use super::{Account, Judge, PaymentKey, Seen, is_dead, is_posted, unread};

/// More than a run has of anything that is read here at once.
const ALL: i64 = 10_000_000;

/// The newest block that was read, and the highest that is proven.
type Reading = (Option<(u64, [u8; 32])>, Option<u64>);

/// The database, when nothing happens in it.
struct Picture {
    /// Of each chain: the newest block that was read, and how far it is proven.
    standing: Vec<Reading>,
    /// Of each chain: all balances in one text.
    balances: Vec<String>,
    totals: BTreeMap<AssetId, Totals>,
    accounts: Vec<AccountListing>,
    findings: Vec<(i64, String, String, String)>,
}

impl Judge {
    /// Looks at everything.
    pub async fn look_at_rest(&mut self, ground: &Ground, world: &Shared) -> Result<(), String> {
        self.look_closely(&ground.db, world).await?;
        let picture = self.take(ground).await.map_err(|error| unread(&error))?;
        let mut world = world.lock();
        world.report.judged_at_rest += 1;
        self.rests += 1;
        for at in 0..world.nets.len() {
            self.payments_are_booked(at, &world.nets[at])?;
            let standing = &picture.standing[at];
            let tip = world.nets[at].truth.tip();
            if *standing != (Some((tip.height, tip.hash.0)), Some(tip.height)) {
                return Err(format!("the chain ends at {:?}, and was read up to {standing:?}", tip.at()));
            }
            let known = self.balances.entry(at).or_default();
            balances_are_those_of_the_chain(&mut world.nets[at], &picture.balances[at], known)?;
            let deep = world.nets[at].height().saturating_sub(80);
            self.settled.insert(at, deep);
        }
        self.totals_add_up(&world, &picture.totals)?;
        self.accounts_are_right(&picture.accounts, &world)?;
        self.findings_are_true(picture.findings, &world)?;
        self.close(&world);
        Ok(())
    }

    async fn take(&self, ground: &Ground) -> Result<Picture, store::StoreError> {
        let db = &ground.db;
        let (mut standing, mut balances) = (Vec::new(), Vec::new());
        for row in &ground.rows {
            let found = db.chain_standing(row).await?;
            let scanned = found.as_ref().and_then(|one| one.scanned).map(|(height, hash)| (height, hash.0));
            standing.push((scanned, found.and_then(|one| one.proven_height)));
            balances.push(db.glance_at_balances(row).await?);
        }
        let findings = db.open_findings(self.findings_after, ALL).await?;
        let finding = |one: store::entry::OpenFinding| (one.id, one.kind, one.subject, one.detail);
        let mut tx = db.read().await?;
        Ok(Picture {
            standing,
            balances,
            totals: totals(&mut tx).await?,
            accounts: list_accounts(&mut tx, &AccountFilter::All, 0, ALL).await?,
            findings: findings.into_iter().map(finding).collect(),
        })
    }

    /// Each payment in the chain has one deposit that stands, in the state that its depth asks for; no other deposit stands.
    fn payments_are_booked(&self, at: usize, net: &Net) -> Result<(), String> {
        let from = self.settled.get(&at).copied().unwrap_or(0);
        let alive = |seen: &&Seen| seen.key.0 == at && !is_dead(seen.state) && seen.block.height > from;
        let mut standing: HashMap<&PaymentKey, &Seen> = HashMap::new();
        for seen in self.open.values().filter(alive) {
            if let Some(other) = standing.insert(&seen.key, seen) {
                return Err(format!("two deposits of one payment stand: {other:?} and {seen:?}"));
            }
        }
        for block in net.truth.above(from) {
            let depth = net.height() + 1 - block.height;
            for (key, effect) in payments(net, at, block) {
                let Some(seen) = standing.remove(&key).filter(|seen| seen.block == block.at()) else {
                    return Err(format!("the payment {key:?} of block {} has no deposit: {effect:?}", block.height));
                };
                let right = match (effect.kind, seen.state) {
                    (Kind::Reverted, state) => state == DepositState::Refused,
                    (Kind::Logged, DepositState::Credited | DepositState::Final) => false,
                    (_, DepositState::Proven) => depth < net.spec.confirmations,
                    (_, DepositState::Credited) => {
                        (net.spec.confirmations..net.spec.final_confirmations).contains(&depth)
                    }
                    (_, DepositState::Final) => depth >= net.spec.final_confirmations,
                    (_, DepositState::Unattributed) => depth >= net.spec.confirmations,
                    (_, _) => false,
                };
                if !right {
                    return Err(format!("with {depth} confirmations this deposit is {}: {seen:?}", seen.state));
                }
            }
        }
        match standing.into_values().next() {
            None => Ok(()),
            Some(seen) => Err(format!("this deposit stands, and no block has it: {seen:?}")),
        }
    }

    /// Custody is what the chain has brought, in whole units; `suspense` is what is nobody's.
    fn totals_add_up(&self, world: &World, totals: &BTreeMap<AssetId, Totals>) -> Result<(), String> {
        let mut stolen: BTreeMap<AssetId, i128> = BTreeMap::new();
        for (at, net) in world.nets.iter().enumerate() {
            // What is not deep enough yet is in no books.
            let mut young = ChainBooks::default();
            for block in net.truth.above(net.height() + 1 - net.spec.confirmations) {
                for transaction in &block.transactions {
                    young.add(&net.owners.effects(transaction), &net.spec.unit, 1);
                }
            }
            for money in Money::LISTED {
                let of = |sums: &BTreeMap<Money, i128>| sums.get(&money).copied().unwrap_or(0);
                let unit = i128::try_from(net.spec.unit.get(&money).copied().unwrap_or(1)).unwrap_or(1);
                let asset = net.spec.asset.get(&money).copied().unwrap_or(AssetId(0));
                *stolen.entry(asset).or_default() += (of(&net.books.left) - of(&young.left)) / unit;
                let wanted = -(of(&net.books.sums) - of(&young.sums)).div_euclid(unit);
                let kind = format!("custody:{}", net.spec.name);
                let found = totals.get(&asset).and_then(|all| all.system.get(&kind)).copied().unwrap_or(0);
                if wanted != found {
                    return Err(format!("{kind} of asset {} must be {wanted}, and is {found}", asset.0));
                }
            }
            // What logs say and addresses have not got is in suspense, until a look that is deep enough has taken it out again.
            let asset = net.spec.asset.get(&Money::Hollow).copied().unwrap_or(AssetId(0));
            let kind = format!("custody:{}", net.spec.name);
            let logged = self.logged.get(&at).copied().unwrap_or(0);
            let found = totals.get(&asset).and_then(|all| all.system.get(&kind)).copied().unwrap_or(0);
            if !(-logged..=0).contains(&found) {
                return Err(format!("{kind} of asset {} is {found}, and logs of nothing say {logged}", asset.0));
            }
            *stolen.entry(asset).or_default() += logged + found;
        }
        for (asset, all) in totals {
            let mine = self.suspense.get(asset).copied().unwrap_or(0) - stolen.get(asset).copied().unwrap_or(0);
            let found = all.system.get("suspense").copied().unwrap_or(0);
            if mine != found {
                return Err(format!("suspense of asset {} must be {mine}, and is {found}", asset.0));
            }
            if all.sum() != 0 {
                return Err(format!("the books of asset {} add up to {}", asset.0, all.sum()));
            }
        }
        Ok(())
    }

    fn accounts_are_right(&self, accounts: &[AccountListing], world: &World) -> Result<(), String> {
        let mut of: BTreeMap<&str, AssetId> = BTreeMap::new();
        for net in &world.nets {
            of.extend(net.symbols());
        }
        let mut found: BTreeMap<(i64, AssetId), Account> = BTreeMap::new();
        for one in accounts.iter().filter(|one| one.kind == "funding") {
            let asset = of.get(one.symbol.as_str()).copied().unwrap_or(AssetId(0));
            let status = domain::AccountStatus::parse(&one.status).ok_or("an unknown status")?;
            found.insert((one.owner, asset), Account { available: one.available, status });
        }
        for (key, mine) in &self.accounts {
            let theirs = found.remove(key).unwrap_or_default();
            if *mine != theirs {
                return Err(format!("user {} must have {mine:?} of asset {}, and has {theirs:?}", key.0, key.1.0));
            }
        }
        match found.into_iter().find(|(_, account)| *account != Account::default()) {
            None => Ok(()),
            Some((key, account)) => Err(format!("user {} has {account:?}, and was given nothing", key.0)),
        }
    }

    /// Nobody is accused who did not lie.
    fn findings_are_true(&mut self, findings: Vec<(i64, String, String, String)>, world: &World) -> Result<(), String> {
        for (id, kind, subject, detail) in findings {
            self.findings_after = id;
            let height = detail.split("in block ").nth(1).and_then(|rest| rest.split(':').next()?.parse::<u64>().ok());
            let lied = || {
                let nodes = world.nets.iter().flat_map(|net| &net.nodes);
                let named = nodes.filter(|node| node.name == subject);
                named.into_iter().any(|node| height.is_some_and(|height| node.lied_at.contains(&height)))
            };
            let honest = match kind.as_str() {
                "left_out" | "disproven" => !subject.is_empty() && !lied(),
                "foreign_spend" => {
                    let hash = subject.parse::<TxHash>().unwrap_or_default();
                    !world.nets.iter().any(|net| net.took.contains(&hash))
                }
                // Only one of the tokens says what it does not do.
                "balance_differs" => !detail.contains(&format!(" chain units of {HOLLOW} ")),
                "halted" => true,
                "taken_back" | "row_differs" => false,
                _ => true,
            };
            if honest {
                return Err(format!("a finding accuses wrongly: {kind} {subject:?}: {detail}"));
            }
        }
        Ok(())
    }

    /// At the end: what was over stayed as it was, and the program has no other deposits.
    pub async fn look_at_all(&mut self, db: &Db) -> Result<(), String> {
        let mut before = i64::MAX;
        let mut count = 0;
        loop {
            let page = db.deposits(&DepositFilter::default(), before, 10_000).await.map_err(|error| unread(&error))?;
            let Some(last) = page.last() else { break };
            before = last.id;
            count += page.len();
            for row in &page {
                let known = self.closed.get(&row.id).copied().or_else(|| Some(self.open.get(&row.id)?.state));
                // What is nobody's may have been given to a user meanwhile, and then it is final.
                let same = known == Some(row.state)
                    || known.is_some_and(|known| is_posted(known) && row.state == DepositState::Final);
                if !same {
                    return Err(format!("dp-{} was {known:?} when it was over, and now is {}", row.id, row.state));
                }
            }
        }
        let known = self.closed.len() + self.open.len();
        if count == known { Ok(()) } else { Err(format!("there are {count} deposits, and {known} are known")) }
    }
}

/// To the last chain unit. What neither the chain nor the program has changed since it was found right is right still: a long run has thousands
/// of addresses, of which few are paid between two rests.
fn balances_are_those_of_the_chain(
    net: &mut Net,
    told: &str,
    known: &mut HashMap<String, String>,
) -> Result<(), String> {
    let changed = std::mem::take(&mut net.books.changed);
    let name = |(address, money): (Address, Money)| (format!("{address} {}", net.symbol(money)), (address, money));
    let mut changed: BTreeMap<String, (Address, Money)> = changed.into_iter().map(name).collect();
    let of = |key: &(Address, Money)| net.books.balances.get(key).copied().unwrap_or_default();
    let mut count = 0;
    for line in told.split(';').filter(|line| !line.is_empty()) {
        count += 1;
        let (place, raw) = line.rsplit_once(' ').ok_or_else(|| format!("{line:?} is no balance"))?;
        if !changed.contains_key(place) && known.get(place).is_some_and(|before| before == raw) {
            continue;
        }
        let (text, symbol) = place.split_once(' ').ok_or_else(|| format!("{line:?} is no balance"))?;
        let address = net.owners.by_text(text).ok_or_else(|| format!("{text} has a balance, and is not ours"))?;
        let theirs: RawSum = raw.parse().map_err(|_| format!("{text} has {raw:?}, which is no number"))?;
        let key = (address.clone(), net.money_of(symbol));
        let mine = of(&key);
        // What a log said in the newest blocks may be believed until a look comes to them. It is looked at again at the next rest.
        let late = key.1 == Money::Hollow && mine != theirs && net.logged_lately(&key.0, theirs);
        if mine != theirs && !late {
            return Err(format!("{text} has {mine} {symbol} on {}, and {theirs} by its entries", net.spec.name));
        }
        changed.remove(place);
        known.insert(place.to_owned(), if late { String::new() } else { raw.to_owned() });
    }
    if count != known.len() {
        return Err(format!("{count} balances are there on {}, and there were {}", net.spec.name, known.len()));
    }
    match changed.into_iter().find(|(_, key)| !of(key).is_zero()) {
        None => Ok(()),
        Some((place, key)) => Err(format!("{place}: {} on {}, and nothing by its entries", of(&key), net.spec.name)),
    }
}
