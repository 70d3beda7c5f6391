//! New transfers: the rules that need the database, held against each wish while its account is locked.
//!
//! What is refused here leaves nothing behind. What is accepted is on its way when the transaction commits: the money of
//! a transfer out of FUNDING is put aside in the same commit that records it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use domain::id::{self, Id};
use domain::transfer::{ClientOrderId, Direction, Rejection, State, Transfer, check_amount, check_asset};
use domain::{AccountId, AccountStatus, Amount, AssetId, Timestamp, UserId};
use store::transfer::{Day, Wallet, lock_days, lock_wallets, read_by_orders, set_days};
use store::{StoreError, Tx, Writes};

use crate::update::Draft;
use crate::leg::Holding;
use crate::round::{Terms, advance, write};
use crate::settings::micros;

/// What a user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub user: UserId,
    pub asset: AssetId,
    pub amount: Amount,
    pub direction: Direction,
    pub client_order_id: Option<ClientOrderId>,
}

/// What became of a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    New(Transfer),
    /// The same wish was there before, under the same name: this is what became of it.
    Duplicate(Transfer),
    Rejected(Rejection),
}

/// A wish with what was found out before the transaction.
pub(crate) struct Asked<'a> {
    pub wish: &'a Wish,
    pub id: Id<id::Transfer>,
    /// What the user has at the remote source, where that is known.
    pub holding: Option<Option<Holding>>,
}

/// Whether the transfers begin at once, or are only written down for the scanner to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    Now,
    Later,
}

/// Decides each wish in turn, records the accepted ones and takes their first steps.
pub(crate) async fn create(
    tx: &mut Tx,
    asked: &[Asked<'_>],
    begin: Begin,
    terms: &Terms<'_>,
) -> Result<Vec<Created>, StoreError> {
    let mut gate = Gate::open(tx, asked, terms).await?;
    let mut drafts: Vec<Draft> = Vec::new();
    // Where the draft of each wish is, or why it has none.
    let mut verdicts: Vec<Result<usize, Created>> = Vec::with_capacity(asked.len());
    for one in asked {
        let verdict = match gate.decide(one, &drafts) {
            Verdict::Accepted(account) => {
                drafts.push(Draft::new(transfer(one, account, begin, terms)));
                Ok(drafts.len() - 1)
            }
            Verdict::Known(transfer) => Err(Created::Duplicate(*transfer)),
            Verdict::SameAs(draft) => Ok(draft),
            Verdict::Rejected(rejection) => Err(Created::Rejected(rejection)),
        };
        verdicts.push(verdict);
    }
    let mut writes = Writes::default();
    set_days(&mut writes, &gate.used, terms.at);
    if begin == Begin::Now {
        let locked = gate.wallets.into_values().map(|wallet| (wallet.account, wallet.state)).collect();
        // All that a new transfer can do here is hold, on an account that is locked.
        advance(tx, &mut drafts, Some(locked), terms, &mut writes).await?;
    }
    write(tx, &mut drafts, terms.at, &mut writes).await?;
    let mut told: BTreeSet<usize> = BTreeSet::new();
    let verdicts = verdicts.into_iter().map(|verdict| match verdict {
        Ok(at) if told.insert(at) => Created::New(drafts[at].transfer.clone()),
        Ok(at) => Created::Duplicate(drafts[at].transfer.clone()),
        Err(created) => created,
    });
    Ok(verdicts.collect())
}

fn transfer(one: &Asked<'_>, funding: AccountId, begin: Begin, terms: &Terms<'_>) -> Transfer {
    let Asked { wish, id, .. } = one;
    let due_at = match begin {
        Begin::Now => terms.at.plus_micros(micros(terms.settings.grace)),
        Begin::Later => terms.at,
    };
    Transfer {
        id: *id,
        user: wish.user,
        asset: wish.asset,
        amount: wish.amount,
        direction: wish.direction,
        funding,
        state: State::Init,
        error: None,
        client_order_id: wish.client_order_id.clone(),
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
    Known(Box<Transfer>),
    /// Another wish of the same batch, by the number of its draft.
    SameAs(usize),
    Rejected(Rejection),
}

/// What the rules look at. Every accepted wish of the batch counts for those after it.
struct Gate {
    wallets: HashMap<(UserId, AssetId), Wallet>,
    /// What is left of each locked account after the accepted wishes.
    left: HashMap<AccountId, Amount>,
    /// What is left at the remote source.
    left_at_spot: HashMap<(UserId, AssetId), Amount>,
    earlier: HashMap<(UserId, ClientOrderId), Transfer>,
    days: BTreeMap<Day, i64>,
    used: BTreeMap<Day, i64>,
    daily_transfers: i64,
}

impl Gate {
    async fn open(tx: &mut Tx, asked: &[Asked<'_>], terms: &Terms<'_>) -> Result<Self, StoreError> {
        let pairs: BTreeSet<(UserId, AssetId)> = asked.iter().map(|one| (one.wish.user, one.wish.asset)).collect();
        let wallets = lock_wallets(tx, &pairs).await?;
        let names: Vec<(UserId, &ClientOrderId)> =
            asked.iter().filter_map(|one| Some((one.wish.user, one.wish.client_order_id.as_ref()?))).collect();
        let earlier = if names.is_empty() { Vec::new() } else { read_by_orders(tx, &names).await? };
        let earlier = earlier
            .into_iter()
            .filter_map(|transfer| Some(((transfer.user, transfer.client_order_id.clone()?), transfer)))
            .collect();
        let daily_transfers = terms.settings.daily_transfers;
        let mut wanted = BTreeSet::new();
        for (user, asset) in pairs.iter().filter(|pair| wallets.contains_key(pair)) {
            wanted.insert(Day { user: *user, asset: Some(*asset) });
            if daily_transfers > 0 {
                wanted.insert(Day { user: *user, asset: None });
            }
        }
        let days = if wanted.is_empty() { BTreeMap::new() } else { lock_days(tx, &wanted, terms.at).await? };
        let left = wallets.values().map(|wallet| (wallet.account, wallet.state.available)).collect();
        let used = BTreeMap::new();
        Ok(Self { wallets, left, left_at_spot: HashMap::new(), earlier, days, used, daily_transfers })
    }

    fn decide(&mut self, one: &Asked<'_>, drafts: &[Draft]) -> Verdict {
        let wish = one.wish;
        let mut taken = false;
        if let Some(name) = &wish.client_order_id {
            let same = |transfer: &Transfer| transfer.is_same(wish.asset, wish.amount, wish.direction);
            if let Some(earlier) = self.earlier.get(&(wish.user, name.clone())) {
                if same(earlier) {
                    return Verdict::Known(Box::new(earlier.clone()));
                }
                taken = true;
            }
            let mine = |draft: &&Draft| {
                draft.transfer.user == wish.user && draft.transfer.client_order_id.as_ref() == Some(name)
            };
            let found = drafts.iter().enumerate().find(|(_, draft)| mine(draft));
            if let Some((at, draft)) = found {
                if same(&draft.transfer) {
                    return Verdict::SameAs(at);
                }
                taken = true;
            }
        }
        match self.check(one, taken) {
            Ok(account) => Verdict::Accepted(account),
            Err(rejection) => Verdict::Rejected(rejection),
        }
    }

    /// The rules in order. Nothing is counted unless all of them hold. `taken`: the wish's name stands for another.
    fn check(&mut self, one: &Asked<'_>, taken: bool) -> Result<AccountId, Rejection> {
        let wish = one.wish;
        let nowhere = match wish.direction {
            _ if taken => Rejection::DuplicateRequest,
            Direction::ToSpot => Rejection::SourceAccountNotFound,
            Direction::ToFunding => Rejection::TargetAccountNotFound,
        };
        let wallet = self.wallets.get(&(wish.user, wish.asset)).ok_or(nowhere);
        if let Ok(wallet) = wallet {
            check_asset(wallet.asset_status, wallet.internal_transfer_enabled)?;
            check_amount(wish.amount, &wallet.limits)?;
        }
        let wallet = match (wallet, one.holding) {
            // The source is looked at before the target.
            (Err(_), Some(None)) if !taken => return Err(Rejection::SourceAccountNotFound),
            (wallet, _) => wallet?,
        };
        let count = Day { user: wish.user, asset: None };
        let moved = Day { user: wish.user, asset: Some(wish.asset) };
        let used = |day: &Day| self.used.get(day).or_else(|| self.days.get(day)).copied().unwrap_or(0);
        let counted = used(&count).saturating_add(1);
        if self.daily_transfers > 0 && counted > self.daily_transfers {
            return Err(Rejection::DailyLimitExceeded);
        }
        let total = used(&moved).saturating_add(wish.amount.units());
        if total > wallet.limits.daily.units() {
            return Err(Rejection::DailyAmountExceeded);
        }
        if taken {
            return Err(Rejection::DuplicateRequest);
        }
        let account = wallet.account;
        match wish.direction {
            Direction::ToSpot => {
                may_give(wallet.state.status)?;
                let left = self.left.get(&account).copied().unwrap_or(Amount::ZERO);
                self.left.insert(account, take(left, wish.amount)?);
            }
            Direction::ToFunding => {
                let source = one.holding.map(|holding| holding.ok_or(Rejection::SourceAccountNotFound)).transpose()?;
                if let Some(source) = source {
                    may_give(source.status)?;
                }
                if wallet.state.status == AccountStatus::Disabled {
                    return Err(Rejection::AccountDisabled);
                }
                if let Some(source) = source {
                    let key = (wish.user, wish.asset);
                    let left = self.left_at_spot.get(&key).copied().unwrap_or(source.available);
                    self.left_at_spot.insert(key, take(left, wish.amount)?);
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

/// The clock's day, for whoever shows when a daily limit ends.
pub fn next_day(at: Timestamp) -> Timestamp {
    const DAY: i64 = 86_400_000_000;
    Timestamp::from_micros(at.micros().div_euclid(DAY).saturating_add(1).saturating_mul(DAY))
}
