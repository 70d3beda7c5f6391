//! What moves between wallets of ours, as the chains have it: each move was asked for once, by a job that a rule had reason to make.
//! Nothing of this is asked of our rows, but which jobs there are.

use std::collections::HashMap;

use tx::{Address, Coin};

use super::model::{Mined, Net, Owner, Waiting, units};

/// What the rules of a chain say, in the chain's units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Gas goes to addresses that have less of the coin, and so much of it.
    pub gas_below: u128,
    pub gas: u128,
    /// What is more of the token, or of the coin, is swept.
    pub tokens_above: u128,
    pub coins_above: u128,
    /// Of the token, in each hot wallet.
    pub floor: u128,
    pub target: u128,
    pub ceiling: u128,
}

/// Coins that go from one wallet of ours to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inside {
    pub from: Address,
    pub to: Address,
    pub native: bool,
    pub amount: u128,
}

/// What moved since jobs were last judged, and what they asked for.
#[derive(Debug, Default)]
pub(crate) struct Insides {
    moved: HashMap<Inside, u32>,
    asked: HashMap<Inside, u32>,
}

fn less(counts: &mut HashMap<Inside, u32>, key: &Inside) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
    true
}

impl Insides {
    pub fn ask(&mut self, key: Inside) {
        *self.asked.entry(key).or_default() += 1;
    }

    /// A block has it, or a block that had it has left the chain.
    pub fn book(&mut self, key: Inside, forward: bool) -> Result<(), String> {
        if !forward {
            less(&mut self.moved, &key);
            return Ok(());
        }
        let asked = self.asked.get(&key).copied().unwrap_or(0);
        let moved = self.moved.entry(key.clone()).or_default();
        *moved += 1;
        if *moved <= asked {
            return Ok(());
        }
        let Inside { from, to, native, amount } = key;
        let coin = if native { "coins" } else { "tokens" };
        Err(format!("{from} paid {to} {amount} {coin} {moved} times, and jobs asked for it {asked} times"))
    }

    pub fn has_moved(&self, key: &Inside) -> bool {
        self.moved.contains_key(key)
    }

    /// A job has ended; says whether it was paid, as the chain has it.
    pub fn ended(&mut self, key: &Inside, paid: bool) -> bool {
        less(&mut self.asked, key);
        if paid { less(&mut self.moved, key) } else { true }
    }

    /// All jobs have ended: nothing more may have moved.
    pub fn stray(&mut self) -> Option<Inside> {
        self.asked.clear();
        self.moved.drain().next().map(|(key, _)| key)
    }
}

/// What a job of the treasury does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    TopUp,
    Sweep { native: bool },
    Surplus,
    Refill,
}

impl Net {
    /// The newest block that no reorganisation takes.
    pub fn final_height(&self) -> u64 {
        (self.truth.tip().height + 1).saturating_sub(self.final_confirmations)
    }

    /// What an address got in blocks up to a height, less all that has left it.
    pub fn spendable(&self, of: &Address, native: bool, up_to: u64) -> u128 {
        let purse = self.purses.get(of).copied().unwrap_or_default();
        let has = if native { purse.native } else { purse.token };
        let above = self.truth.0.iter().rev().take_while(|block| block.height > up_to);
        let effects = above.flat_map(|block| &block.transactions).flat_map(|one| self.effects(one));
        let came = effects.filter(|(address, coin, change)| *address == of && *coin == native && *change > 0);
        has.saturating_sub(came.map(|(.., change)| change.unsigned_abs()).sum())
    }

    /// In blocks that may leave the chain.
    fn young(&self) -> impl Iterator<Item = &Mined> {
        let last = self.final_height();
        let blocks = self.truth.0.iter().rev().take_while(move |block| block.height > last);
        blocks.flat_map(|block| &block.transactions)
    }

    /// That could be mined still.
    fn possible(&self) -> impl Iterator<Item = &Waiting> {
        self.pool.iter().filter(|one| self.is_possible(one))
    }

    /// Gas for an address that is not final.
    fn gas_under_way(&self, to: &Address) -> Option<String> {
        self.under_way(Owner::Gas, to)
    }

    /// A payment of some wallet of the house to an address that is not final.
    fn under_way(&self, by: Owner, to: &Address) -> Option<String> {
        let brings = |from: &Address, meaning: &tx::Meaning| {
            self.owners.get(from) == Some(&by) && meaning.payments.iter().any(|one| one.to == *to)
        };
        let young = self.young().find(|one| one.ok && brings(&one.from, &one.meaning)).map(|one| one.hash);
        let waiting = || self.possible().find(|one| brings(&one.from, &one.meaning)).map(|one| one.hash);
        young.or_else(waiting).map(|hash| hash.to_string())
    }

    /// A sweep of an address that is not final.
    fn sweep_under_way(&self, from: &Address, native: bool) -> Option<String> {
        let takes = |by: &Address, meaning: &tx::Meaning| {
            let coin = |one: &tx::Payment| (one.coin == Coin::Native) == native && units(one.amount) > 0;
            by == from && meaning.payments.iter().any(coin)
        };
        let young = self.young().find(|one| takes(&one.from, &one.meaning)).map(|one| one.hash);
        let waiting = || self.possible().find(|one| takes(&one.from, &one.meaning)).map(|one| one.hash);
        young.or_else(waiting).map(|hash| hash.to_string())
    }

    /// Whether a job that rules have made had a reason, by the chain as it is. Rules knew the blocks up to `known` as final at least; `busy`
    /// addresses have a sweep that is not over.
    pub fn has_reason(&self, terms: &Terms, job: &Inside, known: u64, busy: bool) -> Result<Errand, String> {
        let Inside { from, to, native, amount } = job;
        match (self.owners.get(from), self.owners.get(to)) {
            (Some(Owner::Gas), Some(Owner::User)) => {
                if !*native || *amount != terms.gas {
                    return Err(format!("gas for {to} of {amount}, and the rule says {}", terms.gas));
                }
                if let Some(hash) = self.gas_under_way(to) {
                    return Err(format!("gas was asked for {to} again, while {hash} is not final"));
                }
                let tokens = self.spendable(to, false, self.final_height());
                if tokens <= terms.tokens_above && !busy {
                    return Err(format!("gas was asked for {to}, which has {tokens} tokens and nothing to sweep"));
                }
                let coins = self.spendable(to, true, known);
                let moves = self.pool.iter().chain(&self.elsewhere).any(|one| one.from == *to && self.is_possible(one));
                if coins >= terms.gas_below && !moves {
                    return Err(format!("gas was asked for {to}, which has {coins} already"));
                }
                Ok(Errand::TopUp)
            }
            (Some(Owner::User), Some(Owner::Hot | Owner::Treasury)) => {
                if let Some(hash) = self.gas_under_way(from).filter(|_| !*native) {
                    return Err(format!("{from} is swept while its gas {hash} is not final"));
                }
                if let Some(hash) = self.sweep_under_way(from, *native) {
                    return Err(format!("{from} is swept again, while {hash} is not final"));
                }
                let (least, most) =
                    (self.spendable(from, *native, known), self.spendable(from, *native, self.final_height()));
                if *amount > most || (!*native && *amount < least) {
                    let coin = if *native { "coins" } else { "tokens" };
                    return Err(format!("{amount} {coin} of {from} are swept, and it has {least} to {most} for good"));
                }
                Ok(Errand::Sweep { native: *native })
            }
            (Some(Owner::Hot), Some(Owner::Treasury)) => {
                let most = self.spendable(from, *native, self.final_height());
                if most < amount.saturating_add(terms.floor) {
                    return Err(format!("a surplus of {amount} leaves {from}, which has {most}"));
                }
                Ok(Errand::Surplus)
            }
            (Some(Owner::Treasury), Some(Owner::Hot)) => {
                if *native || *amount > terms.target {
                    return Err(format!("a refill of {amount} for {to}, whose target is {}", terms.target));
                }
                if let Some(hash) = self.under_way(Owner::Treasury, to) {
                    return Err(format!("a refill was asked for {to} again, while {hash} is not final"));
                }
                Ok(Errand::Refill)
            }
            _ => Err(format!("no rule moves coins from {from} to {to}")),
        }
    }

    /// A coin of a user's address that a rule wants swept.
    pub fn unswept(&self, terms: &Terms) -> Option<String> {
        self.users.iter().find_map(|user| {
            let purse = self.purses.get(user)?;
            let left = purse.token > terms.tokens_above || purse.native > terms.coins_above;
            left.then(|| format!("{user} has {} tokens and {} coins", purse.token, purse.native))
        })
    }

    /// A hot wallet with more than it may have.
    pub fn above_ceiling(&self, terms: &Terms) -> Option<String> {
        let over = |wallet: &&Address| self.tokens(wallet) > terms.ceiling;
        self.wallets.iter().find(over).map(|wallet| format!("{wallet} has {} tokens", self.tokens(wallet)))
    }

    /// Wallets of the house without any of the coin that pays fees, in an order that is always the same.
    pub fn penniless(&self) -> Vec<Address> {
        let native = |address: &Address| self.purses.get(address).map_or(0, |purse| purse.native);
        let house = self.owners.iter().filter(|(_, owner)| **owner != Owner::User);
        let mut without: Vec<Address> =
            house.map(|(address, _)| address).filter(|address| native(address) == 0).cloned().collect();
        without.sort_by_key(Address::to_string);
        without
    }

    /// What the treasury has of the token.
    pub fn in_treasury(&self) -> u128 {
        let treasuries = self.owners.iter().filter(|(_, owner)| **owner == Owner::Treasury);
        treasuries.map(|(address, _)| self.tokens(address)).sum()
    }

    /// Hot wallets with less than they should have, and what they lack.
    pub fn below_floor(&self, terms: &Terms) -> Vec<(Address, u128)> {
        let short = self.wallets.iter().filter(|wallet| self.tokens(wallet) < terms.floor);
        short.map(|wallet| (wallet.clone(), terms.target - self.tokens(wallet))).collect()
    }
}
