//! What people do on the chains: users are paid, the house moves its coins, thieves take some.

use chain::Place;
use domain::RawAmount;
use domain::random::Random;
use tx::{Address, TxHash};

use super::model::{Money, Move, Transaction, bytes};
use super::net::Net;
use super::owner::Owner;
use super::report::Report;
use super::world::World;

/// Who makes a transaction on one chain.
struct Maker<'a> {
    net: &'a Net,
    random: &'a mut Random,
    report: &'a mut Report,
}

impl World {
    /// A transaction of some kind waits to be mined.
    pub fn pay(&mut self, net: usize) {
        let Self { nets, random, report, .. } = self;
        let net = &mut nets[net];
        let made = Maker { net, random, report }.any();
        report.transactions += 1;
        net.wait(made);
    }

    /// An ordinary payment to this address.
    pub fn pay_to(&mut self, net: usize, to: &Address) {
        let Self { nets, random, report, .. } = self;
        let net = &mut nets[net];
        let made = Maker { net, random, report }.deposit(to.clone());
        report.transactions += 1;
        net.wait(made);
    }

    /// The same sender pays something else instead: another transaction, another amount.
    pub fn replace(&mut self, net: usize, old: &Transaction) {
        let to = old.moves.first().map(|one| one.to.clone());
        match to.filter(|to| self.nets[net].owners.of(to).is_some()) {
            Some(to) => self.pay_to(net, &to),
            None => self.pay(net),
        }
    }
}

impl Maker<'_> {
    fn any(&mut self) -> Transaction {
        match self.random.below(100) {
            0..50 => {
                let to = self.payee();
                self.deposit(to)
            }
            50..58 => self.several(),
            58..63 => self.inside_a_contract(),
            63..68 => self.failed(),
            68..72 => self.pay_the_house(),
            72..78 => self.top_up(),
            78..84 => self.sweep(),
            84..87 => self.theft(),
            87..90 => self.between_ours(),
            90..92 => self.failed_of_ours(),
            92..94 => self.air(),
            94..96 => self.largest(),
            96..97 => self.hollow(),
            _ => self.near_the_limit(),
        }
    }

    fn pick(&mut self, from: &[Address]) -> Address {
        let of = from.len();
        // Mostly one of the newest: those are what a scan may not know yet.
        let at =
            if self.random.below(2) == 0 { of.saturating_sub(1 + self.random.index(8)) } else { self.random.index(of) };
        from.get(at).unwrap_or(&self.net.spec.hot).clone()
    }

    fn payee(&mut self) -> Address {
        let net = self.net;
        if self.random.below(40) == 0 { self.pick(&net.owners.all) } else { self.pick(&net.owners.users) }
    }

    fn money(&mut self) -> Money {
        if self.random.below(2) == 0 { Money::Native } else { Money::Token }
    }

    fn units(&self, money: Money, units: u64, rest: u128) -> RawAmount {
        let unit = self.net.spec.unit.get(&money).copied().unwrap_or(1);
        (u128::from(units) * unit + rest).to_string().parse().unwrap_or_default()
    }

    /// Some are below the minimum, half have a remainder.
    fn amount(&mut self, money: Money) -> RawAmount {
        let least = self.net.spec.least.unsigned_abs();
        let units =
            if self.random.below(12) == 0 { self.random.below(least) } else { least + self.random.below(5_000) };
        let unit = self.net.spec.unit.get(&money).copied().unwrap_or(1);
        let rest = if self.random.below(2) == 0 { u128::from(self.random.next_u64()) % unit } else { 0 };
        self.report.with_remainder += u64::from(rest > 0);
        // Nothing is no payment.
        self.units(money, units, if units == 0 && rest == 0 { 1 } else { rest })
    }

    fn fee(&mut self) -> RawAmount {
        let unit = self.net.spec.unit.get(&Money::Native).copied().unwrap_or(1);
        (1 + u128::from(self.random.next_u64()) % (unit * 30)).to_string().parse().unwrap_or_default()
    }

    fn transaction(&mut self, sender: Address, ok: bool, moves: Vec<Move>) -> Transaction {
        let ours = self.net.owners.of(&sender).is_some();
        self.report.fees_of_ours += u64::from(ours);
        Transaction { hash: TxHash(bytes(self.random)), ok, sender, fee: self.fee(), moves }
    }

    fn one(&mut self, from: Address, to: Address, money: Money, raw: RawAmount) -> Move {
        let place = match money {
            Money::Native => Place::Value,
            Money::Token | Money::Air | Money::Hollow => Place::Log(u32::try_from(self.random.below(3)).unwrap_or(0)),
        };
        Move { place, from, to, money, raw }
    }

    fn deposit(&mut self, to: Address) -> Transaction {
        let money = self.money();
        let (from, raw) = (self.net.spec.stranger.clone(), self.amount(money));
        let moves = vec![self.one(from.clone(), to, money, raw)];
        self.transaction(from, true, moves)
    }

    fn several(&mut self) -> Transaction {
        self.report.several_outputs += 1;
        let from = self.net.spec.stranger.clone();
        let same = (self.random.below(2) == 0).then(|| self.payee());
        let mut moves = Vec::new();
        for log in 0..2 + u32::try_from(self.random.below(9)).unwrap_or(0) {
            let to = same.clone().unwrap_or_else(|| self.payee());
            let raw = self.amount(Money::Token);
            moves.push(Move { place: Place::Log(log), from: from.clone(), to, money: Money::Token, raw });
        }
        self.transaction(from, true, moves)
    }

    fn inside_a_contract(&mut self) -> Transaction {
        self.report.inside_contracts += 1;
        let from = self.net.spec.stranger.clone();
        let mut moves = Vec::new();
        for number in 1..=1 + u32::try_from(self.random.below(3)).unwrap_or(0) {
            let (to, raw) = (self.payee(), self.amount(Money::Native));
            let place = Place::Internal(number);
            moves.push(Move { place, from: from.clone(), to, money: Money::Native, raw });
        }
        self.transaction(from, true, moves)
    }

    fn failed(&mut self) -> Transaction {
        self.report.failed_transactions += 1;
        let (from, to, raw) = (self.net.spec.stranger.clone(), self.payee(), self.amount(Money::Native));
        let moves = vec![Move { place: Place::Value, from: from.clone(), to, money: Money::Native, raw }];
        self.transaction(from, false, moves)
    }

    fn pay_the_house(&mut self) -> Transaction {
        let to = if self.random.below(2) == 0 { self.net.spec.gas.clone() } else { self.net.spec.hot.clone() };
        self.deposit(to)
    }

    fn top_up(&mut self) -> Transaction {
        self.report.top_ups += 1;
        let (from, to) = (self.net.spec.gas.clone(), self.payee());
        let raw = self.amount(Money::Native);
        let moves = vec![self.one(from.clone(), to, Money::Native, raw)];
        self.transaction(from, true, moves)
    }

    fn sweep(&mut self) -> Transaction {
        self.report.sweeps += 1;
        let (from, to, money) = (self.payee(), self.net.spec.hot.clone(), self.money());
        let raw = self.amount(money);
        let moves = vec![self.one(from.clone(), to, money, raw)];
        self.transaction(from, true, moves)
    }

    /// Whole units leave, so that the judge knows to the unit what `suspense` must have.
    fn whole(&mut self, money: Money) -> RawAmount {
        let units = 1 + self.random.below(2_000);
        self.units(money, units, 0)
    }

    fn theft(&mut self) -> Transaction {
        self.report.foreign_spends += 1;
        let net = self.net;
        let (from, to, money) = (self.pick(&net.owners.all), net.spec.stranger.clone(), self.money());
        let raw = self.whole(money);
        let moves = vec![self.one(from.clone(), to, money, raw)];
        self.transaction(from, true, moves)
    }

    /// From a user's address to another, or to itself; or from the hot wallet to a user's.
    fn between_ours(&mut self) -> Transaction {
        self.report.foreign_spends += 1;
        let to = self.payee();
        let from = match self.random.below(3) {
            0 => self.net.spec.hot.clone(),
            1 => to.clone(),
            _ => self.payee(),
        };
        let money = self.money();
        let raw = self.whole(money);
        let moves = vec![self.one(from.clone(), to, money, raw)];
        self.transaction(from, true, moves)
    }

    fn failed_of_ours(&mut self) -> Transaction {
        self.report.failed_transactions += 1;
        let (from, to) = (self.payee(), self.net.spec.stranger.clone());
        let raw = self.whole(Money::Native);
        let moves = vec![Move { place: Place::Value, from: from.clone(), to, money: Money::Native, raw }];
        self.transaction(from, false, moves)
    }

    fn air(&mut self) -> Transaction {
        self.report.air += 1;
        let (from, to) = (self.net.spec.stranger.clone(), self.payee());
        let raw = self.whole(Money::Token);
        let moves = vec![self.one(from.clone(), to, Money::Air, raw)];
        self.transaction(from, true, moves)
    }

    /// A listed token says that it paid a user, and has moved nothing. So much that nobody gives it to a user by hand.
    fn hollow(&mut self) -> Transaction {
        let net = self.net;
        let to = self.pick(&net.owners.users);
        if !matches!(net.owners.of(&to), Some(Owner::User(_))) {
            return self.air();
        }
        self.report.logged_without_paying += 1;
        let units = 1_000_000_000 + self.random.below(5_000);
        let (from, raw) = (net.spec.stranger.clone(), self.units(Money::Hollow, units, 0));
        let moves = vec![self.one(from.clone(), to, Money::Hollow, raw)];
        self.transaction(from, true, moves)
    }

    fn largest(&mut self) -> Transaction {
        self.report.largest_amounts += 1;
        let (from, to) = (self.net.spec.stranger.clone(), self.payee());
        let moves = vec![self.one(from.clone(), to, Money::Token, RawAmount::MAX)];
        self.transaction(from, true, moves)
    }

    /// Two of these are more than one account can hold.
    fn near_the_limit(&mut self) -> Transaction {
        let (from, to) = (self.net.spec.stranger.clone(), self.payee());
        let units = (1 << 62) + self.random.below(1_000);
        let raw = self.units(Money::Token, units, 0);
        let moves = vec![self.one(from.clone(), to, Money::Token, raw)];
        self.transaction(from, true, moves)
    }
}
