//! New transfers: the rules that need the database are checked for each order while its account is locked.
//!
//! A rejected order leaves nothing behind. An accepted one is on its way when the transaction commits: if the money
//! comes out of FUNDING, the commit that records the transfer also puts the money aside.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use domain::id::{self, Id};
use domain::transfer::{ClientOrderId, Direction, Rejection, State, Transfer, check_amount, check_asset};
use domain::{AccountId, AccountStatus, Amount, AssetId, Timestamp, UserId};
use store::transfer::{Day, FundingAccount, lock_days, lock_funding_accounts, read_by_orders, set_days};
use store::{StoreError, Tx, Writes};

use crate::leg::Holding;
use crate::settings::micros;
use crate::update::{Terms, TransferUpdate, advance, write};

/// What a user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferOrder {
    pub user: UserId,
    pub asset: AssetId,
    pub amount: Amount,
    pub direction: Direction,
    pub client_order_id: Option<ClientOrderId>,
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    New(Transfer),
    /// The user placed the same order before, under the same `client_order_id`: this is its transfer.
    Duplicate(Transfer),
    Rejected(Rejection),
}

/// An order with its id, and with what the remote source said of the user before the transaction began.
pub(crate) struct PreparedOrder<'a> {
    pub order: &'a TransferOrder,
    pub id: Id<id::Transfer>,
    pub source: RemoteSource,
    /// The engine has carried it out already. It counts for the limits, and none refuses it: they were asked when it was
    /// first made.
    pub adopted: bool,
}

/// What the user has at the remote source. It only serves to reject early: the withdrawal itself decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteSource {
    /// The source is not remote, was not asked, or did not say in time.
    NotKnown,
    /// The user has no account there.
    NoAccount,
    Account(Holding),
}

impl RemoteSource {
    /// The leg's own answer: it has no holding of a user without an account.
    pub const fn answered(holding: Option<Holding>) -> Self {
        match holding {
            None => Self::NoAccount,
            Some(holding) => Self::Account(holding),
        }
    }
}

/// Whether the transfers begin at once, or are only written down for the scanner to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    Now,
    Later,
}

/// Decides each order in turn, records the accepted ones and takes their first steps.
pub(crate) async fn record(
    tx: &mut Tx,
    orders: &[PreparedOrder<'_>],
    begin: Begin,
    terms: &Terms<'_>,
) -> Result<Vec<Created>, StoreError> {
    let mut gate = Gate::open(tx, orders, terms).await?;
    let mut updates: Vec<TransferUpdate> = Vec::new();
    // Where the update of each order's transfer is, or why the order has none.
    let mut verdicts: Vec<Result<usize, Created>> = Vec::with_capacity(orders.len());
    for prepared in orders {
        let verdict = match gate.decide(prepared, &updates) {
            Verdict::Accepted(account) => {
                updates.push(TransferUpdate::new(transfer(prepared, account, begin, terms)));
                Ok(updates.len() - 1)
            }
            Verdict::Known(transfer) => Err(Created::Duplicate(*transfer)),
            Verdict::SameAs(at) => Ok(at),
            Verdict::Rejected(rejection) => Err(Created::Rejected(rejection)),
        };
        verdicts.push(verdict);
    }
    let mut writes = Writes::default();
    set_days(&mut writes, &gate.used, terms.at);
    if begin == Begin::Now {
        let locked = gate.accounts.into_values().map(|funding| (funding.account, funding.state)).collect();
        // A new transfer can do nothing in the ledger but hold, and the account that it holds on is locked.
        advance(tx, &mut updates, Some(locked), terms, &mut writes).await?;
    }
    write(tx, &mut updates, terms.at, &mut writes).await?;
    let mut told: BTreeSet<usize> = BTreeSet::new();
    let verdicts = verdicts.into_iter().map(|verdict| match verdict {
        Ok(at) if told.insert(at) => Created::New(updates[at].transfer.clone()),
        Ok(at) => Created::Duplicate(updates[at].transfer.clone()),
        Err(created) => created,
    });
    Ok(verdicts.collect())
}

fn transfer(prepared: &PreparedOrder<'_>, funding: AccountId, begin: Begin, terms: &Terms<'_>) -> Transfer {
    let PreparedOrder { order, id, .. } = prepared;
    let due_at = match begin {
        Begin::Now => terms.at.plus_micros(micros(terms.settings.grace)),
        Begin::Later => terms.at,
    };
    Transfer {
        id: *id,
        user: order.user,
        asset: order.asset,
        amount: order.amount,
        direction: order.direction,
        funding,
        state: State::Init,
        error: None,
        client_order_id: order.client_order_id.clone(),
        tries: 0,
        due_at,
        alerted_at: None,
        version: 0,
        created_at: terms.at,
        updated_at: terms.at,
    }
}

enum Verdict {
    Accepted(AccountId),
    /// A transfer that was recorded before.
    Known(Box<Transfer>),
    /// An earlier order of the same batch is the same: the place of its update.
    SameAs(usize),
    Rejected(Rejection),
}

/// What the rules look at. Every accepted order of the batch counts for the orders after it.
struct Gate {
    accounts: HashMap<(UserId, AssetId), FundingAccount>,
    /// What is left of each locked account after the accepted orders.
    left: HashMap<AccountId, Amount>,
    /// The same at the remote source.
    left_at_spot: HashMap<(UserId, AssetId), Amount>,
    earlier: HashMap<(UserId, ClientOrderId), Transfer>,
    days: BTreeMap<Day, i64>,
    used: BTreeMap<Day, i64>,
    daily_transfers: i64,
}

impl Gate {
    async fn open(tx: &mut Tx, orders: &[PreparedOrder<'_>], terms: &Terms<'_>) -> Result<Self, StoreError> {
        let orders = || orders.iter().map(|prepared| prepared.order);
        let pairs: BTreeSet<(UserId, AssetId)> = orders().map(|order| (order.user, order.asset)).collect();
        let accounts = lock_funding_accounts(tx, &pairs).await?;
        let names: Vec<(UserId, &ClientOrderId)> =
            orders().filter_map(|order| Some((order.user, order.client_order_id.as_ref()?))).collect();
        let earlier = if names.is_empty() { Vec::new() } else { read_by_orders(tx, &names).await? };
        let earlier = earlier
            .into_iter()
            .filter_map(|transfer| Some(((transfer.user, transfer.client_order_id.clone()?), transfer)))
            .collect();
        let daily_transfers = terms.settings.daily_transfers;
        let mut wanted = BTreeSet::new();
        for (user, asset) in pairs.iter().filter(|pair| accounts.contains_key(pair)) {
            wanted.insert(Day { user: *user, asset: Some(*asset) });
            if daily_transfers > 0 {
                wanted.insert(Day { user: *user, asset: None });
            }
        }
        let days = if wanted.is_empty() { BTreeMap::new() } else { lock_days(tx, &wanted, terms.at).await? };
        let left = accounts.values().map(|funding| (funding.account, funding.state.available)).collect();
        let used = BTreeMap::new();
        Ok(Self { accounts, left, left_at_spot: HashMap::new(), earlier, days, used, daily_transfers })
    }

    fn decide(&mut self, prepared: &PreparedOrder<'_>, updates: &[TransferUpdate]) -> Verdict {
        let order = prepared.order;
        let mut taken = false;
        if let Some(name) = &order.client_order_id {
            let same = |transfer: &Transfer| transfer.is_same(order.asset, order.amount, order.direction);
            if let Some(earlier) = self.earlier.get(&(order.user, name.clone())) {
                if same(earlier) {
                    return Verdict::Known(Box::new(earlier.clone()));
                }
                taken = true;
            }
            let has_name = |update: &&TransferUpdate| {
                update.transfer.user == order.user && update.transfer.client_order_id.as_ref() == Some(name)
            };
            let found = updates.iter().enumerate().find(|(_, update)| has_name(update));
            if let Some((at, update)) = found {
                if same(&update.transfer) {
                    return Verdict::SameAs(at);
                }
                taken = true;
            }
        }
        match self.check(prepared, taken) {
            Ok(account) => Verdict::Accepted(account),
            Err(rejection) => Verdict::Rejected(rejection),
        }
    }

    /// The rules in order. Nothing is counted unless all of them hold. `taken`: the order's `client_order_id` belongs
    /// to a transfer with other content.
    fn check(&mut self, prepared: &PreparedOrder<'_>, taken: bool) -> Result<AccountId, Rejection> {
        let order = prepared.order;
        let nowhere = match order.direction {
            _ if taken => Rejection::DuplicateRequest,
            Direction::ToSpot => Rejection::SourceAccountNotFound,
            Direction::ToFunding => Rejection::TargetAccountNotFound,
        };
        let funding = self.accounts.get(&(order.user, order.asset)).ok_or(nowhere);
        if let Ok(funding) = funding
            && !prepared.adopted
        {
            check_asset(funding.asset_status, funding.internal_transfer_enabled)?;
            if funding.stopped && order.direction == Direction::ToFunding {
                return Err(Rejection::TransferStopped);
            }
            check_amount(order.amount, &funding.limits)?;
        }
        let funding = match (funding, prepared.source) {
            // The source is checked before the target.
            (Err(_), RemoteSource::NoAccount) if !taken => return Err(Rejection::SourceAccountNotFound),
            (funding, _) => funding?,
        };
        let count = Day { user: order.user, asset: None };
        let moved = Day { user: order.user, asset: Some(order.asset) };
        let used = |day: &Day| self.used.get(day).or_else(|| self.days.get(day)).copied().unwrap_or(0);
        let counted = used(&count).saturating_add(1);
        if self.daily_transfers > 0 && counted > self.daily_transfers && !prepared.adopted {
            return Err(Rejection::DailyLimitExceeded);
        }
        let total = used(&moved).saturating_add(order.amount.units());
        if total > funding.limits.daily.units() && !prepared.adopted {
            return Err(Rejection::DailyAmountExceeded);
        }
        if taken {
            return Err(Rejection::DuplicateRequest);
        }
        let account = funding.account;
        match order.direction {
            Direction::ToSpot => {
                may_give(funding.state.status)?;
                let left = self.left.get(&account).copied().unwrap_or(Amount::ZERO);
                self.left.insert(account, take(left, order.amount)?);
            }
            Direction::ToFunding => {
                let source = match prepared.source {
                    RemoteSource::NotKnown => None,
                    RemoteSource::NoAccount => return Err(Rejection::SourceAccountNotFound),
                    RemoteSource::Account(holding) => Some(holding),
                };
                if let Some(source) = source {
                    may_give(source.status)?;
                }
                if funding.state.status == AccountStatus::Disabled {
                    return Err(Rejection::AccountDisabled);
                }
                if let Some(source) = source {
                    let key = (order.user, order.asset);
                    let left = self.left_at_spot.get(&key).copied().unwrap_or(source.available);
                    self.left_at_spot.insert(key, take(left, order.amount)?);
                }
            }
        }
        if self.daily_transfers > 0 {
            self.used.insert(count, counted);
        }
        self.used.insert(moved, total);
        Ok(account)
    }
}

const fn may_give(status: AccountStatus) -> Result<(), Rejection> {
    match status {
        AccountStatus::Active => Ok(()),
        AccountStatus::Frozen => Err(Rejection::AccountFrozen),
        AccountStatus::Disabled => Err(Rejection::AccountDisabled),
    }
}

fn take(left: Amount, amount: Amount) -> Result<Amount, Rejection> {
    left.checked_sub(amount).filter(|left| *left >= Amount::ZERO).ok_or(Rejection::InsufficientBalance)
}

/// When the clock's next day begins: the daily limits start anew then.
pub fn next_day(at: Timestamp) -> Timestamp {
    const DAY: i64 = 86_400_000_000;
    Timestamp::from_micros(at.micros().div_euclid(DAY).saturating_add(1).saturating_mul(DAY))
}
