//! The state machine: balances, remembered operation ids, and the one function that decides.
//!
//! Pure: the same operations in the same order, under the same [`Window`], give the same state and the same answers.
//! It has no clock, no randomness, and nothing that can fail.

use std::collections::BTreeMap;

use domain::{AccountStatus, Amount, AssetId, Timestamp, UserId, id};

use crate::answer::{Answer, Balance, Decision, PairStanding, SpotRefusal, Standing};
use crate::ids::{Ids, Remembered};
use crate::operation::{Mark, Move, OpId, Operation, Request, Settle, asset_number, fold, status_number};
use crate::table::{Slot, Table};

/// Which operation ids are accepted: from the horizon on, and not from the future. The window is logged with every
/// batch, so that a recovery decides alike whatever the settings are then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The latest time that the log has seen.
    pub time: Timestamp,
    /// Ids made before this are no longer remembered.
    pub horizon: Timestamp,
}

/// The window of an empty log, which has seen no time: no id is expired, and every id is from the future.
impl Default for Window {
    fn default() -> Self {
        Self { time: Timestamp::from_micros(i64::MIN), horizon: Timestamp::from_micros(i64::MIN) }
    }
}

/// How far an id may be ahead of the engine's clock: more than any sane skew between two machines.
pub const FUTURE_MICROS: i64 = 3_600 * 1_000_000;

/// A user's balance in an asset, in 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub user: u64,
    pub available: i64,
    pub reserved: i64,
    pub asset: u32,
    pub status: AccountStatus,
}

impl Slot for Account {
    type Key = (u64, u32);
    const EMPTY: Self = Self { user: 0, available: 0, reserved: 0, asset: 0, status: AccountStatus::Active };

    fn key(&self) -> Self::Key {
        (self.user, self.asset)
    }

    fn is_empty(&self) -> bool {
        self.user == 0
    }

    /// The constants are those of well-known hashes. Only memory knows the hash, so they could change.
    fn hash((user, asset): Self::Key) -> u64 {
        fold(user ^ 0x8ebc_6af0_9c88_c6e3, u64::from(asset) << 1 ^ 0x9e37_79b9_7f4a_7c15)
            .wrapping_mul(0xff51_afd7_ed55_8ccd)
    }
}

pub struct State {
    accounts: Table<Account>,
    ids: Ids,
    /// What all users together have in each asset. No total is more than `i64::MAX`, so no balance can overflow.
    totals: BTreeMap<u32, i64>,
    window: Window,
    /// The number of the newest id that was decided, 0 if there is none.
    newest: i64,
    pairing: Option<Pairing>,
}

/// The database that has marked the engine, and the highest counter that it told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pairing {
    pub database: u64,
    pub counter: u64,
}

impl Default for State {
    fn default() -> Self {
        Self::with_room_for(0)
    }
}

impl State {
    /// An empty state with room for so many accounts.
    pub(crate) fn with_room_for(accounts: usize) -> Self {
        let accounts = Table::with_room_for(accounts);
        Self {
            accounts,
            ids: Ids::default(),
            totals: BTreeMap::new(),
            window: Window::default(),
            newest: 0,
            pairing: None,
        }
    }

    pub const fn window(&self) -> Window {
        self.window
    }

    /// The time of the newest id that was decided. The horizon follows the ids, not the clock: a clock that is years
    /// ahead for a moment must not expire everything.
    pub const fn newest(&self) -> Option<Timestamp> {
        if self.newest == 0 { None } else { Some(id::made_at(self.newest)) }
    }

    /// The window that a batch runs under: neither end ever moves back, however the clock steps.
    #[must_use]
    pub fn window_at(&self, now: Timestamp, retention_micros: i64) -> Window {
        let time = self.window.time.max(now);
        let newest = self.newest().unwrap_or(Timestamp::from_micros(i64::MIN)).min(time);
        // In whole milliseconds, as ids are.
        let horizon = newest.micros().saturating_sub(retention_micros);
        let horizon = Timestamp::from_micros(horizon.saturating_sub(horizon.rem_euclid(1_000)));
        Window { time, horizon: self.window.horizon.max(horizon) }
    }

    pub const fn set_window(&mut self, window: Window) {
        self.window = window;
    }

    /// Answers a request. The second value is true if the state has changed: then the operation belongs into the log.
    pub fn answer(&mut self, request: &Request) -> (Answer, bool) {
        match request {
            Request::Run(operation) => self.run(operation),
            Request::Query(id) => (self.query(*id), false),
            Request::Balance { user, asset } => (Answer::Balance(self.balance(*user, *asset)), false),
            Request::Total(asset) => {
                let total = asset_number(*asset).and_then(|asset| self.totals.get(&asset)).copied();
                (Answer::Total(Amount::from_units(total.unwrap_or(0))), false)
            }
            // `Core` adds what only the log knows.
            Request::Pair => {
                let (database, counter) = (self.pairing.map(|of| of.database), self.pairing.map_or(0, |of| of.counter));
                let time = self.window.time;
                (Answer::Pair(PairStanding { log_id: 0, database, counter, sequence: 0, time }), false)
            }
        }
    }

    fn query(&self, id: OpId) -> Answer {
        match self.ids.get(id.number().cast_unsigned()) {
            _ if id.made_at() < self.window.horizon => Answer::Expired,
            Some(remembered) => Answer::Standing(Some(remembered.standing())),
            None => Answer::Standing(None),
        }
    }

    pub fn balance(&self, user: UserId, asset: AssetId) -> Option<Balance> {
        let account = self.accounts.get(key(user, asset_number(asset)?))?;
        Some(Balance {
            available: Amount::from_units(account.available),
            reserved: Amount::from_units(account.reserved),
            status: account.status,
        })
    }

    fn run(&mut self, operation: &Operation) -> (Answer, bool) {
        let id = operation.id();
        if id.made_at() < self.window.horizon {
            return (Answer::Expired, false);
        }
        if id.made_at() > self.window.time.plus_micros(FUTURE_MICROS) {
            return (Answer::TooEarly, false);
        }
        let fingerprint = operation.fingerprint();
        let before = self.ids.get(id.number().cast_unsigned()).copied();
        match (before, operation) {
            (Some(before), _) if !before.is_of(fingerprint) => (Answer::Conflict, false),
            (Some(before), Operation::Rollback(of)) => self.roll_back(&before, of),
            (Some(before), _) => (Answer::Replay(before.standing().decision()), false),
            (None, Operation::Rollback(_)) => {
                self.remember(id, fingerprint, Standing::Void, true);
                (Answer::First(Decision::Applied), true)
            }
            (None, _) => {
                let (decision, standing) = match self.perform(operation) {
                    Ok(()) => (Decision::Applied, Standing::Applied),
                    Err(refusal) => (Decision::Refused(refusal), Standing::Refused(refusal)),
                };
                self.remember(id, fingerprint, standing, operation.crosses());
                (Answer::First(decision), true)
            }
        }
    }

    fn remember(&mut self, id: OpId, fingerprint: u64, standing: Standing, crosses: bool) {
        let oldest = id::first_at(self.window.horizon).cast_unsigned();
        self.ids.insert(Remembered::new(id, fingerprint, standing, crosses), oldest);
        self.newest = self.newest.max(id.number());
    }

    /// Undoes a withdrawal that is known here. It reaches frozen and disabled accounts too: money that is on its way
    /// back is never stranded.
    fn roll_back(&mut self, withdrawal: &Remembered, of: &Move) -> (Answer, bool) {
        match withdrawal.standing() {
            Standing::RolledBack | Standing::Void => (Answer::Replay(Decision::Applied), false),
            // Nothing was taken, nothing is owed, and it stays refused.
            Standing::Refused(_) => (Answer::Replay(Decision::Applied), false),
            Standing::Applied => match self.credit_from_outside(of) {
                // Once there is room, the same rollback succeeds.
                Err(_) => (Answer::NoRoom, false),
                Ok(()) => {
                    if let Some(remembered) = self.ids.get_mut(withdrawal.number()) {
                        remembered.set_standing(Standing::RolledBack);
                    }
                    (Answer::First(Decision::Applied), true)
                }
            },
        }
    }

    /// All guards come before the first change, so a refusal changes no balance.
    fn perform(&mut self, operation: &Operation) -> Result<(), SpotRefusal> {
        match operation {
            Operation::Deposit(of) => {
                let asset = check_amount(of)?;
                if let Some(account) = self.accounts.get(key(of.user, asset))
                    && account.status == AccountStatus::Disabled
                {
                    return Err(SpotRefusal::AccountDisabled);
                }
                self.credit_from_outside(of)
            }
            Operation::Withdraw(of) => {
                let account = self.payer(of)?;
                account.available -= of.amount.units();
                let asset = account.asset;
                if let Some(total) = self.totals.get_mut(&asset) {
                    *total -= of.amount.units();
                }
                Ok(())
            }
            Operation::Reserve(of) => {
                let account = self.payer(of)?;
                account.available -= of.amount.units();
                account.reserved += of.amount.units();
                Ok(())
            }
            // The status does not matter: money that was reserved before a freeze can still be released.
            Operation::Release(of) => {
                let asset = check_amount(of)?;
                let account = self.accounts.get_mut(key(of.user, asset)).ok_or(SpotRefusal::AccountNotFound)?;
                if account.reserved < of.amount.units() {
                    return Err(SpotRefusal::InsufficientReserved);
                }
                account.reserved -= of.amount.units();
                account.available += of.amount.units();
                Ok(())
            }
            Operation::Settle(of) => self.settle(of),
            Operation::SetStatus { user, asset, status, .. } => {
                let asset = asset_number(*asset).ok_or(SpotRefusal::InvalidAsset)?;
                let account = self.accounts.get_mut(key(*user, asset)).ok_or(SpotRefusal::AccountNotFound)?;
                account.status = *status;
                Ok(())
            }
            Operation::Mark(of) => self.mark(of),
            // `run` decides rollbacks, because they depend on what stands under the id.
            Operation::Rollback(_) => Ok(()),
        }
    }

    /// Marks of several servers of one database may overtake each other, so the highest counter stands.
    const fn mark(&mut self, of: &Mark) -> Result<(), SpotRefusal> {
        match &mut self.pairing {
            None => self.pairing = Some(Pairing { database: of.database, counter: of.counter }),
            Some(pairing) if pairing.database != of.database => return Err(SpotRefusal::OtherDatabase),
            Some(pairing) if pairing.counter < of.counter => pairing.counter = of.counter,
            Some(_) => {}
        }
        Ok(())
    }

    /// The account that pays, if it may and can.
    fn payer(&mut self, of: &Move) -> Result<&mut Account, SpotRefusal> {
        let asset = check_amount(of)?;
        let account = self.accounts.get_mut(key(of.user, asset)).ok_or(SpotRefusal::AccountNotFound)?;
        match account.status {
            AccountStatus::Frozen => Err(SpotRefusal::AccountFrozen),
            AccountStatus::Disabled => Err(SpotRefusal::AccountDisabled),
            AccountStatus::Active if account.available < of.amount.units() => Err(SpotRefusal::InsufficientBalance),
            AccountStatus::Active => Ok(account),
        }
    }

    /// Credits money that comes from outside. The total of the asset grows with it and bounds every balance.
    fn credit_from_outside(&mut self, of: &Move) -> Result<(), SpotRefusal> {
        let asset = asset_number(of.asset).ok_or(SpotRefusal::InvalidAsset)?;
        let total = self.totals.entry(asset).or_default();
        *total = total.checked_add(of.amount.units()).ok_or(SpotRefusal::Overflow)?;
        self.credit(of.user, asset, of.amount.units());
        Ok(())
    }

    /// Adds to the available balance, and makes the account if it is not there.
    fn credit(&mut self, user: UserId, asset: u32, amount: i64) {
        match self.accounts.get_mut(key(user, asset)) {
            Some(account) => account.available += amount,
            None => {
                let account = Account { user: key(user, asset).0, available: amount, asset, ..Account::EMPTY };
                self.accounts.insert(account);
            }
        }
    }

    /// Both sides pay out of what they reserved earlier, so the status of their accounts no longer matters.
    fn settle(&mut self, of: &Settle) -> Result<(), SpotRefusal> {
        if !of.base_amount.is_positive() || !of.quote_amount.is_positive() {
            return Err(SpotRefusal::InvalidAmount);
        }
        let fee_is_part_of = |fee: Amount, amount: Amount| fee >= Amount::ZERO && fee <= amount;
        if !fee_is_part_of(of.buyer_fee, of.base_amount) || !fee_is_part_of(of.seller_fee, of.quote_amount) {
            return Err(SpotRefusal::InvalidFee);
        }
        let base = asset_number(of.base).ok_or(SpotRefusal::InvalidAsset)?;
        let quote = asset_number(of.quote).ok_or(SpotRefusal::InvalidAsset)?;
        if base == quote {
            return Err(SpotRefusal::SameAsset);
        }
        let sides = [(of.buyer, quote, of.quote_amount.units()), (of.seller, base, of.base_amount.units())];
        for (user, asset, amount) in sides {
            let account = self.accounts.get(key(user, asset)).ok_or(SpotRefusal::AccountNotFound)?;
            if account.reserved < amount {
                return Err(SpotRefusal::InsufficientReserved);
            }
        }
        for (user, asset, amount) in sides {
            if let Some(account) = self.accounts.get_mut(key(user, asset)) {
                account.reserved -= amount;
            }
        }
        let (buyer_fee, seller_fee) = (of.buyer_fee.units(), of.seller_fee.units());
        self.credit(of.buyer, base, of.base_amount.units() - buyer_fee);
        self.credit(of.seller, quote, of.quote_amount.units() - seller_fee);
        for (asset, fee) in [(base, buyer_fee), (quote, seller_fee)] {
            if fee > 0 {
                self.credit(of.fees, asset, fee);
            }
        }
        Ok(())
    }

    // From here on: for snapshots, tools and tests.

    pub fn account_count(&self) -> usize {
        self.accounts.len()
    }

    /// How many ids are remembered, some of them possibly older than the horizon.
    pub fn id_count(&self) -> usize {
        self.ids.len()
    }

    pub fn account_bytes(&self) -> usize {
        self.accounts.bytes()
    }

    pub fn id_bytes(&self) -> usize {
        self.ids.bytes()
    }

    /// About how many bytes a snapshot takes on the disk.
    pub fn snapshot_bytes(&self) -> u64 {
        (self.accounts.len() * 32 + self.ids.len() * 16) as u64
    }

    pub fn totals(&self) -> impl Iterator<Item = (AssetId, Amount)> {
        self.totals.iter().map(|(asset, total)| (AssetId(i64::from(*asset)), Amount::from_units(*total)))
    }

    /// A number for the whole state, the same for the same balances, statuses, remembered ids and window.
    pub fn digest(&self) -> u64 {
        let of = |words: &[u64]| {
            words.iter().fold(0x2545_f491_4f6c_dd1d, |hash, word| fold(hash ^ word, 0x9e37_79b9_7f4a_7c15))
        };
        let accounts = self.accounts.iter().map(|account| {
            let (available, reserved) = (account.available.cast_unsigned(), account.reserved.cast_unsigned());
            of(&[account.user, available, reserved, u64::from(account.asset), status_number(account.status).into()])
        });
        let ids = self.remembered().map(|remembered| of(&remembered.words()));
        let pairing = self.pairing.map_or([0; 2], |pairing| [pairing.database, pairing.counter]);
        let [time, horizon] = [self.window.time, self.window.horizon].map(|time| time.micros().cast_unsigned());
        // A sum does not depend on the order of the entries in the tables.
        accounts.chain(ids).fold(of(&[time, horizon, pairing[0], pairing[1]]), u64::wrapping_add)
    }

    pub fn balances(&self) -> impl Iterator<Item = (UserId, AssetId, Balance)> {
        self.accounts.iter().filter_map(|account| {
            let user = UserId::new(account.user.cast_signed())?;
            let available = Amount::from_units(account.available);
            let balance = Balance { available, reserved: Amount::from_units(account.reserved), status: account.status };
            Some((user, AssetId(i64::from(account.asset)), balance))
        })
    }

    /// Every remembered id that is not expired, with what stands under it.
    pub fn standings(&self) -> impl Iterator<Item = (OpId, Standing)> {
        self.remembered()
            .filter_map(|remembered| Some((OpId::new(remembered.number().cast_signed())?, remembered.standing())))
    }

    /// The newest operations before `before` that moved money between the engine and its database, the newest first.
    pub fn crossings(&self, before: OpId, most: usize) -> Vec<(OpId, Standing)> {
        let oldest = id::first_at(self.window.horizon).cast_unsigned();
        self.ids
            .newest_first(before.number().cast_unsigned())
            .take_while(|remembered| remembered.number() >= oldest)
            .filter(Remembered::crosses)
            .filter_map(|remembered| Some((OpId::new(remembered.number().cast_signed())?, remembered.standing())))
            .take(most)
            .collect()
    }

    pub const fn pairing(&self) -> Option<Pairing> {
        self.pairing
    }

    pub(crate) const fn restore_pairing(&mut self, pairing: Option<Pairing>) {
        self.pairing = pairing;
    }

    pub(crate) fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.accounts.iter()
    }

    /// The remembered ids in order, without those that are expired.
    pub(crate) fn remembered(&self) -> impl Iterator<Item = Remembered> {
        self.ids.sorted(id::first_at(self.window.horizon).cast_unsigned())
    }

    /// Puts an account back from a snapshot. False if it is there already, is impossible, or overflows the total.
    pub(crate) fn restore_account(&mut self, account: Account) -> bool {
        let sound = account.available >= 0 && account.reserved >= 0 && account.asset > 0;
        let total = self.totals.entry(account.asset).or_default();
        let sum = total.checked_add(account.available).and_then(|sum| sum.checked_add(account.reserved));
        match sum {
            Some(sum) if sound && account.user.cast_signed() > 0 && self.accounts.get(account.key()).is_none() => {
                *total = sum;
                self.accounts.insert(account);
                true
            }
            _ => false,
        }
    }

    /// Puts an id back from a snapshot. Ids come in order; false if this one does not.
    pub(crate) fn restore_id(&mut self, remembered: Remembered) -> bool {
        let number = remembered.number().cast_signed();
        let in_order = number > self.newest;
        self.newest = number;
        self.ids.insert(remembered, 0);
        in_order
    }
}

const fn key(user: UserId, asset: u32) -> (u64, u32) {
    (user.get().cast_unsigned(), asset)
}

fn check_amount(of: &Move) -> Result<u32, SpotRefusal> {
    if !of.amount.is_positive() {
        return Err(SpotRefusal::InvalidAmount);
    }
    asset_number(of.asset).ok_or(SpotRefusal::InvalidAsset)
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
