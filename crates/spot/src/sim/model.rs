//! The rules of the engine once more, as plainly as possible: whole operations in plain maps, nothing packed, nothing
//! fast. It was written apart from `state.rs`, so that the two disagree where one of them is wrong.

use std::collections::BTreeMap;

use domain::{AccountStatus, Amount, AssetId, Timestamp, UserId};

use crate::answer::{Answer, Balance, Decision, PairStanding, SpotRefusal, Standing};
use crate::operation::{Move, OpId, Operation, Request};
use crate::state::{FUTURE_MICROS, Pairing, State, Window};

#[derive(Clone, Debug)]
pub struct Model {
    accounts: BTreeMap<(UserId, AssetId), Balance>,
    ids: BTreeMap<OpId, (Operation, Standing)>,
    window: Window,
    retention_micros: i64,
    pairing: Option<Pairing>,
}

const NEW_ACCOUNT: Balance = Balance { available: Amount::ZERO, reserved: Amount::ZERO, status: AccountStatus::Active };

fn plus(amount: Amount, other: Amount) -> Amount {
    Amount::from_units(amount.units() + other.units())
}

fn minus(amount: Amount, other: Amount) -> Amount {
    Amount::from_units(amount.units() - other.units())
}

impl Model {
    pub fn new(retention_micros: i64) -> Self {
        let (accounts, ids) = (BTreeMap::new(), BTreeMap::new());
        Self { accounts, ids, window: Window::default(), retention_micros, pairing: None }
    }

    pub const fn window(&self) -> Window {
        self.window
    }

    /// After a crash the engine knows only the window that it had logged, so the model goes back to it.
    pub const fn set_window(&mut self, window: Window) {
        self.window = window;
    }

    pub fn begin(&mut self, now: Timestamp) {
        if now > self.window.time {
            self.window.time = now;
        }
        if let Some((newest, _)) = self.ids.last_key_value() {
            let newest = newest.made_at().min(self.window.time);
            let horizon = Timestamp::from_micros((newest.micros() - self.retention_micros) / 1_000 * 1_000);
            if horizon > self.window.horizon {
                self.window.horizon = horizon;
            }
        }
    }

    pub fn answer(&mut self, request: &Request) -> Answer {
        match request {
            Request::Run(operation) => self.run(operation),
            Request::Query(id) if id.made_at() < self.window.horizon => Answer::Expired,
            Request::Query(id) => Answer::Standing(self.ids.get(id).map(|(_, standing)| *standing)),
            Request::Balance { user, asset } => Answer::Balance(self.accounts.get(&(*user, *asset)).copied()),
            Request::Total(asset) => Answer::Total(Amount::from_units(i64::try_from(self.total(*asset)).unwrap_or(-1))),
            // A model has no log.
            Request::Pair => Answer::Pair(PairStanding {
                log_id: 0,
                database: self.pairing.map(|pairing| pairing.database),
                counter: self.pairing.map_or(0, |pairing| pairing.counter),
                sequence: 0,
                time: self.window.time,
            }),
        }
    }

    fn total(&self, asset: AssetId) -> i128 {
        let of = |balance: &Balance| i128::from(balance.available.units()) + i128::from(balance.reserved.units());
        self.accounts.iter().filter(|((_, other), _)| *other == asset).map(|(_, balance)| of(balance)).sum()
    }

    fn run(&mut self, operation: &Operation) -> Answer {
        let id = operation.id();
        if id.made_at() < self.window.horizon {
            return Answer::Expired;
        }
        if id.made_at().micros() > self.window.time.micros() + FUTURE_MICROS {
            return Answer::TooEarly;
        }
        let as_first = match operation {
            Operation::Rollback(of) => Operation::Withdraw(*of),
            other => *other,
        };
        let rollback = as_first != *operation;
        match self.ids.get(&id).copied() {
            Some((first, _)) if first != as_first => Answer::Conflict,
            Some((_, Standing::Applied)) if rollback => {
                let Operation::Rollback(of) = operation else { return Answer::Conflict };
                match self.deposit(of) {
                    Err(_) => Answer::NoRoom,
                    Ok(()) => {
                        self.ids.insert(id, (as_first, Standing::RolledBack));
                        Answer::First(Decision::Applied)
                    }
                }
            }
            Some(_) if rollback => Answer::Replay(Decision::Applied),
            Some((_, Standing::Applied)) => Answer::Replay(Decision::Applied),
            Some((_, Standing::Refused(refusal))) => Answer::Replay(Decision::Refused(refusal)),
            Some((_, Standing::RolledBack)) => Answer::Replay(Decision::Refused(SpotRefusal::RolledBack)),
            Some((_, Standing::Void)) => Answer::Replay(Decision::Refused(SpotRefusal::Voided)),
            None if rollback => {
                self.ids.insert(id, (as_first, Standing::Void));
                Answer::First(Decision::Applied)
            }
            None => {
                let (decision, standing) = match self.first(operation) {
                    Ok(()) => (Decision::Applied, Standing::Applied),
                    Err(refusal) => (Decision::Refused(refusal), Standing::Refused(refusal)),
                };
                self.ids.insert(id, (as_first, standing));
                Answer::First(decision)
            }
        }
    }

    fn deposit(&mut self, of: &Move) -> Result<(), SpotRefusal> {
        if self.total(of.asset) + i128::from(of.amount.units()) > i128::from(i64::MAX) {
            return Err(SpotRefusal::Overflow);
        }
        let balance = self.accounts.entry((of.user, of.asset)).or_insert(NEW_ACCOUNT);
        balance.available = plus(balance.available, of.amount);
        Ok(())
    }

    fn first(&mut self, operation: &Operation) -> Result<(), SpotRefusal> {
        let positive = |amount: Amount| if amount.units() > 0 { Ok(()) } else { Err(SpotRefusal::InvalidAmount) };
        let known = |asset: AssetId| if asset.0 > 0 { Ok(()) } else { Err(SpotRefusal::InvalidAsset) };
        match operation {
            Operation::Deposit(of) => {
                positive(of.amount)?;
                known(of.asset)?;
                if self.accounts.get(&(of.user, of.asset)).is_some_and(|a| a.status == AccountStatus::Disabled) {
                    return Err(SpotRefusal::AccountDisabled);
                }
                self.deposit(of)
            }
            Operation::Withdraw(of) | Operation::Reserve(of) => {
                positive(of.amount)?;
                known(of.asset)?;
                let balance = self.accounts.get_mut(&(of.user, of.asset)).ok_or(SpotRefusal::AccountNotFound)?;
                if balance.status == AccountStatus::Frozen {
                    return Err(SpotRefusal::AccountFrozen);
                }
                if balance.status == AccountStatus::Disabled {
                    return Err(SpotRefusal::AccountDisabled);
                }
                if balance.available < of.amount {
                    return Err(SpotRefusal::InsufficientBalance);
                }
                balance.available = minus(balance.available, of.amount);
                if matches!(operation, Operation::Reserve(_)) {
                    balance.reserved = plus(balance.reserved, of.amount);
                }
                Ok(())
            }
            Operation::Release(of) => {
                positive(of.amount)?;
                known(of.asset)?;
                let balance = self.accounts.get_mut(&(of.user, of.asset)).ok_or(SpotRefusal::AccountNotFound)?;
                if balance.reserved < of.amount {
                    return Err(SpotRefusal::InsufficientReserved);
                }
                balance.reserved = minus(balance.reserved, of.amount);
                balance.available = plus(balance.available, of.amount);
                Ok(())
            }
            Operation::SetStatus { user, asset, status, .. } => {
                known(*asset)?;
                self.accounts.get_mut(&(*user, *asset)).ok_or(SpotRefusal::AccountNotFound)?.status = *status;
                Ok(())
            }
            Operation::Settle(of) => {
                positive(of.base_amount)?;
                positive(of.quote_amount)?;
                for (fee, amount) in [(of.buyer_fee, of.base_amount), (of.seller_fee, of.quote_amount)] {
                    if fee.units() < 0 || fee > amount {
                        return Err(SpotRefusal::InvalidFee);
                    }
                }
                known(of.base)?;
                known(of.quote)?;
                if of.base == of.quote {
                    return Err(SpotRefusal::SameAsset);
                }
                let mut after = self.accounts.clone();
                let pays = [(of.buyer, of.quote, of.quote_amount), (of.seller, of.base, of.base_amount)];
                for (user, asset, amount) in pays {
                    let balance = after.get_mut(&(user, asset)).ok_or(SpotRefusal::AccountNotFound)?;
                    if balance.reserved < amount {
                        return Err(SpotRefusal::InsufficientReserved);
                    }
                    balance.reserved = minus(balance.reserved, amount);
                }
                let gets = [
                    (of.buyer, of.base, minus(of.base_amount, of.buyer_fee), true),
                    (of.seller, of.quote, minus(of.quote_amount, of.seller_fee), true),
                    (of.fees, of.base, of.buyer_fee, false),
                    (of.fees, of.quote, of.seller_fee, false),
                ];
                for (user, asset, amount, even_nothing) in gets {
                    if even_nothing || amount.units() > 0 {
                        let balance = after.entry((user, asset)).or_insert(NEW_ACCOUNT);
                        balance.available = plus(balance.available, amount);
                    }
                }
                self.accounts = after;
                Ok(())
            }
            Operation::Mark(of) => {
                if self.pairing.is_some_and(|pairing| pairing.database != of.database) {
                    return Err(SpotRefusal::OtherDatabase);
                }
                let counter = self.pairing.map_or(0, |pairing| pairing.counter).max(of.counter);
                self.pairing = Some(Pairing { database: of.database, counter });
                Ok(())
            }
            Operation::Rollback(_) => Ok(()),
        }
    }

    /// Forgets ids that the engine may forget too, so that a long run stays small. The horizon must be one that the
    /// engine has logged: a crash cannot take it back. The newest id stays, because the next horizon depends on it.
    pub fn forget(&mut self, horizon: Timestamp) {
        let newest = self.ids.last_key_value().map(|(id, _)| *id);
        self.ids.retain(|id, _| id.made_at() >= horizon || Some(*id) == newest);
    }

    /// The first thing in which the engine's state differs, if any.
    pub fn difference(&self, state: &State) -> Option<String> {
        if self.pairing != state.pairing() {
            return Some(format!("paired as {:?}, the engine says {:?}", self.pairing, state.pairing()));
        }
        let crossing = |(id, (operation, standing)): (&OpId, &(Operation, Standing))| {
            (operation.crosses() && id.made_at() >= state.window().horizon).then_some((*id, *standing))
        };
        let last = OpId::new(i64::MAX)?;
        if !self.ids.iter().rev().filter_map(crossing).eq(state.crossings(last, usize::MAX)) {
            return Some("the operations that moved money in or out differ".to_owned());
        }
        let balances: BTreeMap<_, _> =
            state.balances().map(|(user, asset, balance)| ((user, asset), balance)).collect();
        if let Some((key, balance)) = self.accounts.iter().find(|(key, balance)| balances.get(key) != Some(balance)) {
            return Some(format!("{key:?} has {balance:?}, the engine says {:?}", balances.get(key)));
        }
        if balances.len() != self.accounts.len() {
            return Some(format!("{} accounts, the engine has {}", self.accounts.len(), balances.len()));
        }
        let remembered: BTreeMap<OpId, Standing> = state.standings().collect();
        let known = |(id, (_, standing)): (&OpId, &(Operation, Standing))| (*id, *standing);
        let horizon = state.window().horizon;
        let ids: BTreeMap<OpId, Standing> =
            self.ids.iter().map(known).filter(|(id, _)| id.made_at() >= horizon).collect();
        if let Some((id, standing)) = ids.iter().find(|(id, standing)| remembered.get(id) != Some(standing)) {
            return Some(format!("under {id} stands {standing:?}, the engine says {:?}", remembered.get(id)));
        }
        if remembered.len() != ids.len() {
            return Some(format!("{} ids, the engine remembers {}", ids.len(), remembered.len()));
        }
        let total = |asset: AssetId| (asset, self.total(asset));
        state
            .totals()
            .map(|(asset, amount)| (total(asset), i128::from(amount.units())))
            .find(|((_, expected), amount)| expected != amount)
            .map(|((asset, expected), amount)| format!("{asset:?} totals {expected}, the engine says {amount}"))
    }
}
