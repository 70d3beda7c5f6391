//! The laws (docs/laws.md) that hold at every moment, whatever is in flight. The database and the engine are compared
//! with them between two turns.

use std::collections::{BTreeMap, BTreeSet};

use domain::transfer::{Direction, State, Transfer};
use domain::{AccountId, AssetId, UserId};
use spot::Standing;
use store::ledger::balances::{Totals, totals};
use store::ledger::journal::{AccountFilter, AccountListing, MovementFilter, list_accounts, list_movements};
use store::transfer::read::count_open;
use store::transfer::{Filter, list, read};
use store::{Db, StoreError};
use transfer::create::Created;

use super::engine::Memory;
use super::process::{CreateStatus, Creating};
use super::world::{Shared, World};

/// What every user has of each asset at first.
pub(crate) const FUNDS: i64 = 50_000;

/// The things that do not change in a run.
pub(crate) struct Ground {
    pub assets: BTreeMap<String, AssetId>,
    pub accounts: BTreeMap<(UserId, AssetId), AccountId>,
    /// A withdrawal from the engine only freezes the money until it is committed.
    pub freezes: bool,
}

/// The database at one moment.
struct Picture {
    /// How many transfers the clients take for open.
    known: usize,
    /// Those of them that still are open, and those that have ended.
    open: Vec<Transfer>,
    ended: Vec<Transfer>,
    /// How many transfers are open, whether a client knows of them or not.
    open_count: i64,
    /// A sample of the transfers that clients were told have ended.
    again: Vec<Transfer>,
    accounts: Vec<AccountListing>,
    totals: BTreeMap<AssetId, Totals>,
    /// Open transfers to FUNDING whose deposit is done.
    deposited: BTreeSet<i64>,
}

pub(crate) fn unread(error: &StoreError) -> String {
    format!("the laws could not be looked at: {error} ({error:?})")
}

/// How many of the ended transfers are looked at again.
const AGAIN: usize = 24;

pub(crate) async fn check(db: &Db, world: &Shared, ground: &Ground) -> Result<(), String> {
    let (known, again) = {
        let mut locked = world.lock();
        let World { clients, random, .. } = &mut *locked;
        let count = clients.ended.len().min(AGAIN);
        let again: BTreeSet<i64> = (0..count).map(|_| clients.ended[random.index(clients.ended.len())].0).collect();
        (clients.open.keys().copied().collect::<BTreeSet<i64>>(), again)
    };
    let picture = take(db, ground, &known, &again).await.map_err(|error| unread(&error))?;
    let mut world = world.lock();
    world.report.law_checks += 1;
    world.report.ends_checked_again += again.len() as u64;
    if picture.again.len() != again.len() {
        return Err(format!("of {} transfers that had ended, {} are there", again.len(), picture.again.len()));
    }
    for transfer in &picture.again {
        let told = world.clients.ended.iter().find(|(id, _)| *id == transfer.id.number());
        if let Some((_, known)) = told.filter(|(_, known)| known.told != transfer.state) {
            return Err(format!("a transfer ended {}, and now is {transfer:?}", known.told));
        }
    }
    let World { clients, random, .. } = &mut *world;
    for transfer in picture.open.iter().chain(&picture.ended) {
        clients.find(transfer, random)?;
    }
    if picture.open.len() + picture.ended.len() != picture.known {
        let gone = clients.open.keys().find(|id| picture.open.iter().all(|one| one.id.number() != **id));
        return Err(format!("transfer {gone:?} was acknowledged, and is not there"));
    }
    if i64::try_from(picture.open.len()) != Ok(picture.open_count) {
        return Err(format!("{} transfers are open, {} were asked for", picture.open_count, picture.open.len()));
    }
    held(&picture)?;
    if world.engine.is_up() { conserved(&mut world, &picture, ground) } else { Ok(()) }
}

async fn take(db: &Db, ground: &Ground, known: &BTreeSet<i64>, again: &BTreeSet<i64>) -> Result<Picture, StoreError> {
    let mut tx = db.read().await?;
    let ids = |numbers: &BTreeSet<i64>| numbers.iter().filter_map(|id| domain::id::Id::new(*id).ok()).collect();
    let (known, again): (Vec<_>, Vec<_>) = (ids(known), ids(again));
    let (open, ended): (Vec<Transfer>, Vec<Transfer>) =
        read(&mut tx, &known).await?.into_iter().partition(|transfer| !transfer.state.is_terminal());
    let (open_count, _) = count_open(&mut tx).await?;
    let mut deposited = BTreeSet::new();
    let to_funding = |one: &&Transfer| one.direction == Direction::ToFunding && one.state == State::TargetPending;
    for transfer in open.iter().filter(to_funding).filter(|_| ground.freezes) {
        let key = MovementFilter::Key(format!("{}:deposit", transfer.id));
        if list_movements(&mut tx, &key, i64::MAX, 2).await?.movements.iter().any(|row| row.outcome == 0) {
            deposited.insert(transfer.id.number());
        }
    }
    Ok(Picture {
        again: read(&mut tx, &again).await?,
        accounts: list_accounts(&mut tx, &AccountFilter::All, 0, 10_000).await?,
        totals: totals(&mut tx).await?,
        known: known.len(),
        open,
        open_count,
        ended,
        deposited,
    })
}

/// What is frozen is what open transfers have put aside, to the unit.
fn held(picture: &Picture) -> Result<(), String> {
    let mut held: BTreeMap<i64, i64> = BTreeMap::new();
    for transfer in &picture.open {
        if transfer.direction == Direction::ToSpot && transfer.state == State::TargetPending {
            *held.entry(transfer.funding.0).or_default() += transfer.amount.units();
        }
    }
    for account in &picture.accounts {
        let expected = held.get(&account.id).copied().unwrap_or(0);
        if account.available < 0 || account.frozen != expected {
            return Err(format!("{account:?} should have {expected} frozen"));
        }
    }
    Ok(())
}

/// Nothing is created and nothing is lost: for each user and asset, and for each asset between the ledger and the
/// engine.
fn conserved(world: &mut World, picture: &Picture, ground: &Ground) -> Result<(), String> {
    // By how much the engine is ahead of the ledger's clearing account, for each user and asset.
    let mut ahead: BTreeMap<(UserId, AssetId), i64> = BTreeMap::new();
    for transfer in &picture.open {
        let id = transfer.id.number();
        let Memory::Remembered(standing) = world.engine.memory(id) else {
            return Err(format!("the engine has forgotten a transfer that is open: {transfer:?}"));
        };
        if !may_stand(transfer, standing) {
            return Err(format!("the engine has {standing:?} for {transfer:?}"));
        }
        let applied = standing == Some(Standing::Applied);
        let amount = match transfer.direction {
            Direction::ToSpot if applied => transfer.amount.units(),
            Direction::ToFunding if applied && !picture.deposited.contains(&id) => -transfer.amount.units(),
            Direction::ToSpot | Direction::ToFunding => 0,
        };
        *ahead.entry((transfer.user, transfer.asset)).or_default() += amount;
    }
    let mut spot: BTreeMap<(UserId, AssetId), i64> = BTreeMap::new();
    for (user, asset, balance) in world.engine.balances() {
        if balance.available.units() < 0 || balance.reserved.units() != 0 {
            return Err(format!("user {user:?} has {balance:?} of asset {asset:?} at the engine"));
        }
        spot.insert((user, asset), balance.available.units());
    }
    let listed: BTreeMap<i64, &AccountListing> = picture.accounts.iter().map(|account| (account.id, account)).collect();
    for (pair, account) in &ground.accounts {
        let Some(account) = listed.get(&account.0) else { return Err(format!("account {account} is not there")) };
        let spot = spot.remove(pair).unwrap_or(0);
        let ahead = ahead.get(pair).copied().unwrap_or(0);
        if account.available + account.frozen + spot - ahead != FUNDS {
            return Err(format!("{account:?}, {spot} at the engine and {ahead} in flight do not make {FUNDS}"));
        }
    }
    if let Some((pair, amount)) = spot.into_iter().find(|(_, amount)| *amount != 0) {
        return Err(format!("the engine has {amount} for {pair:?}, who has no funding account"));
    }
    for asset in ground.assets.values() {
        let total = world.engine.totals().find(|(one, _)| one == asset).map_or(0, |(_, total)| total.units());
        let ahead: i64 = ahead.iter().filter(|((_, one), _)| one == asset).map(|(_, amount)| amount).sum();
        let clearing = picture.totals.get(asset).and_then(|totals| totals.system.get("clearing:spot")).copied();
        if clearing.unwrap_or(0) + i128::from(ahead) != i128::from(total) {
            return Err(format!(
                "clearing:spot has {clearing:?} of asset {asset:?}, the engine {total}, in flight {ahead}"
            ));
        }
    }
    Ok(())
}

/// What the engine may have under the id of a transfer, by the transfer's state. The engine is asked only after the
/// state says so, and a state that rests on the engine's answer has that answer at the engine.
const fn may_stand(transfer: &Transfer, standing: Option<Standing>) -> bool {
    match (transfer.direction, transfer.state) {
        (_, State::Init | State::SourceDone) | (Direction::ToSpot, State::SourcePending) => standing.is_none(),
        (Direction::ToFunding, State::SourcePending) | (Direction::ToSpot, State::TargetPending) => {
            matches!(standing, None | Some(Standing::Applied | Standing::Refused(_)))
        }
        (Direction::ToFunding, State::TargetPending) => matches!(standing, Some(Standing::Applied)),
        (Direction::ToFunding, State::Compensating) => {
            matches!(standing, Some(Standing::Applied | Standing::RolledBack))
        }
        // The hold is released in the commit that learns of the refusal.
        (Direction::ToSpot, State::Compensating) => false,
        (Direction::ToSpot, State::RolledBack) => matches!(standing, Some(Standing::Refused(_))),
        (Direction::ToFunding, State::RolledBack) => matches!(standing, Some(Standing::RolledBack)),
        (_, State::Committed) => matches!(standing, Some(Standing::Applied)),
        (Direction::ToSpot, State::Failed) => standing.is_none(),
        (Direction::ToFunding, State::Failed) => matches!(standing, Some(Standing::Refused(_))),
    }
}

/// Checks the same of a transfer that has ended, if the engine is up and still remembers it.
pub(crate) fn ended_as_told(world: &mut World, transfer: &Transfer) -> Result<(), String> {
    match world.engine.memory(transfer.id.number()) {
        Memory::Remembered(standing) if !may_stand(transfer, standing) => {
            Err(format!("the engine has {standing:?} for {transfer:?}"))
        }
        Memory::Remembered(_) | Memory::Forgotten | Memory::Down => Ok(()),
    }
}

/// Finds out in the database what a create has recorded, and compares it with the answer that the client got, if any.
pub(crate) async fn resolve(db: &Db, world: &Shared, process: usize, creating: Creating) -> Result<(), String> {
    let (node, newest) = {
        let world = world.lock();
        (world.lives[process].node, world.lives[process].newest)
    };
    let users: BTreeSet<UserId> = creating.orders.iter().map(|order| order.user).collect();
    let recorded = async {
        let mut tx = db.read().await?;
        let mut found = Vec::new();
        for user in users {
            found.extend(list(&mut tx, user, &Filter::default(), 32).await?);
        }
        Ok(found)
    };
    let mut recorded: Vec<Transfer> = recorded.await.map_err(|error| unread(&error))?;
    let made_here = |id: i64| (id >> 12) & 1023 == i64::from(node) && id > newest;
    recorded.retain(|transfer| made_here(transfer.id.number()));
    recorded.sort_unstable_by_key(|transfer| transfer.id);
    let mut world = world.lock();
    if let Some(last) = recorded.last() {
        world.lives[process].newest = last.id.number();
    }
    if let CreateStatus::Told(created) = &creating.status {
        let told = created.iter().filter_map(|one| match one {
            Created::New(transfer) => Some(transfer.id),
            Created::Duplicate(_) | Created::Rejected(_) => None,
        });
        let told: BTreeSet<_> = told.collect();
        let found: BTreeSet<_> = recorded.iter().map(|transfer| transfer.id).collect();
        let same = told == found;
        return if same { Ok(()) } else { Err(format!("{told:?} were acknowledged, {found:?} are recorded")) };
    }
    if !recorded.is_empty() && !creating.may_be_recorded() {
        return Err(format!("nothing was recorded ({:?}), and there is {recorded:?}", creating.status));
    }
    let mut left = creating.orders;
    for transfer in &recorded {
        let order = super::clients::Known::of(transfer).order;
        let Some(at) = left.iter().position(|one| *one == order) else {
            return Err(format!("nobody asked for {transfer:?}"));
        };
        left.swap_remove(at);
        world.report.transfers += 1;
        world.note(16, &[transfer.id.number()]);
        world.clients.record(transfer)?;
    }
    world.report.unacknowledged_kept += u64::from(!recorded.is_empty());
    Ok(())
}
