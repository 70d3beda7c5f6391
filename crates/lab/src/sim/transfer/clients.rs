//! What the clients were told, which must therefore stay true.
//!
//! All open transfers are remembered, and a sample of those that have ended: the sample is looked up again now and
//! then.

use std::collections::{BTreeMap, VecDeque};

use domain::transfer::{ClientOrderId, Direction, Event, Rejection, State, Transfer, next};
use domain::{Amount, AssetId, UserId, random::Random};
use transfer::create::{Created, TransferOrder};

pub(crate) const USERS: i64 = 40;
/// What a user may move in a day: so many transfers, and so many units of an asset. The busy user reaches
/// both in a short run, the others now and then in a long one.
pub(crate) const DAILY_TRANSFERS: i64 = 310;
pub(crate) const DAILY_AMOUNT: i64 = 400_000;
const DAY_MICROS: i64 = 86_400_000_000;
// What is remembered is bounded, so that the memory of a run does not grow with its length.
const ENDED_MAX: usize = 256;
const NAMES_MAX: usize = 4_096;
const ROWS_MAX: usize = 128;

/// A transfer that was acknowledged or found in the database, and the furthest state that a client was told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub order: TransferOrder,
    pub told: State,
}

impl Known {
    pub fn of(transfer: &Transfer) -> Self {
        let Transfer { user, asset, amount, direction, .. } = *transfer;
        let order = TransferOrder { user, asset, amount, direction, client_order_id: transfer.client_order_id.clone() };
        Self { order, told: transfer.state }
    }
}

struct Named {
    order: TransferOrder,
    /// The transfer that has the name, if one was recorded.
    id: Option<i64>,
}

type Name = (UserId, ClientOrderId);

#[derive(Default)]
pub(crate) struct Clients {
    assets: Vec<AssetId>,
    pub open: BTreeMap<i64, Known>,
    pub ended: Vec<(i64, Known)>,
    names: BTreeMap<Name, Named>,
    name_order: VecDeque<Name>,
    named: u64,
    /// How often each user has transferred, by day and asset, and how much: the last few days.
    days: BTreeMap<(i64, UserId, AssetId), (i64, i64)>,
    /// Rows of transfers as they once were, for workers that are behind.
    pub rows: Vec<Transfer>,
}

/// Whether the state machine leads from one state to another, in any number of steps.
pub(crate) fn leads_to(from: State, to: State) -> bool {
    let mut reached = vec![from];
    let mut at = 0;
    while let Some(state) = reached.get(at).copied() {
        let nexts = Event::ALL.iter().filter_map(|event| next(state, *event).ok());
        let new: Vec<State> = nexts.filter(|state| !reached.contains(state)).collect();
        reached.extend(new);
        at += 1;
    }
    reached.contains(&to)
}

fn units(random: &mut Random, below: u64) -> i64 {
    i64::try_from(random.below(below)).unwrap_or(0)
}

impl Clients {
    pub fn of(assets: Vec<AssetId>) -> Self {
        Self { assets, ..Self::default() }
    }

    /// What a client orders next: mostly a sensible order, sometimes a senseless one, sometimes an earlier one again.
    pub fn next_order(&mut self, random: &mut Random) -> TransferOrder {
        // Not one of the older half: the oldest are forgotten soon, and an order that is sent again must be remembered.
        let back = random.index((NAMES_MAX / 2).min(self.name_order.len()));
        let earlier = self.name_order.iter().nth_back(back).and_then(|name| self.names.get(name));
        match (random.below(100), earlier) {
            (0..7, Some(named)) => return named.order.clone(),
            (7..10, Some(named)) => {
                let mut order = named.order.clone();
                match random.below(3) {
                    0 => order.direction = other(order.direction),
                    1 => order.asset = self.assets[random.index(self.assets.len())],
                    _ => order.amount = Amount::from_units(order.amount.units() + 1),
                }
                return order;
            }
            _ => {}
        }
        // The first user is a busy one, so that even a short run meets the daily limits.
        let number = match random.below(200) {
            0 => USERS + 7,
            1..40 => 1,
            _ => 1 + units(random, USERS.unsigned_abs()),
        };
        let user = UserId::new(number).expect("positive");
        let asset = self.assets[random.index(self.assets.len())];
        let amount = match random.below(40) {
            0 => units(random, 12),
            1 => units(random, 60_000),
            2..6 => 10 + units(random, 20_000),
            _ => 10 + units(random, 3_000),
        };
        let direction = if random.below(20) < 11 { Direction::ToSpot } else { Direction::ToFunding };
        let amount = Amount::from_units(amount);
        let mut order = TransferOrder { user, asset, amount, direction, client_order_id: None };
        if random.below(2) == 0 {
            self.named += 1;
            let name = ClientOrderId::new(format!("order-{}", self.named)).expect("short and visible");
            order.client_order_id = Some(name.clone());
            self.names.insert((user, name.clone()), Named { order: order.clone(), id: None });
            self.name_order.push_back((user, name));
            if self.name_order.len() > NAMES_MAX
                && let Some(oldest) = self.name_order.pop_front()
            {
                self.names.remove(&oldest);
            }
        }
        order
    }

    /// Compares an answer with what was answered before.
    pub fn check(&self, order: &TransferOrder, created: &Created) -> Result<(), String> {
        let name = order.client_order_id.clone();
        let named = name.and_then(|name| self.names.get(&(order.user, name)));
        let earlier = named.and_then(|named| Some((named.id?, &named.order)));
        let fits = match (created, earlier) {
            (Created::New(transfer), None) => Known::of(transfer).order == *order,
            (Created::New(_), Some(_)) => false,
            (Created::Duplicate(transfer), Some((id, first))) => {
                transfer.id.number() == id && Known::of(transfer).order == *order && first == order
            }
            (Created::Duplicate(_), None) => false,
            (Created::Rejected(Rejection::DuplicateRequest), Some((_, first))) => first != order,
            // Daily limits are looked at before the name.
            (Created::Rejected(Rejection::DailyLimitExceeded | Rejection::DailyAmountExceeded), Some((_, first))) => {
                first != order
            }
            (Created::Rejected(_), Some(_)) => false,
            (Created::Rejected(rejection), None) => *rejection != Rejection::DuplicateRequest,
        };
        if fits { Ok(()) } else { Err(format!("{order:?} was answered {created:?}, with {earlier:?} under its name")) }
    }

    /// Remembers a transfer that is now known to be recorded.
    pub fn record(&mut self, transfer: &Transfer) -> Result<(), String> {
        let id = transfer.id.number();
        let known = Known::of(transfer);
        if let Some(name) = transfer.client_order_id.clone()
            && let Some(named) = self.names.get_mut(&(transfer.user, name))
        {
            if let Some(first) = named.id.replace(id) {
                return Err(format!("transfers {first} and {id} have one client_order_id: {:?}", known.order));
            }
            // The first order under this name was rejected, so that the name was free for another.
            named.order = known.order.clone();
        }
        if self.open.insert(id, known).is_some() {
            return Err(format!("transfer {id} was made twice"));
        }
        self.count(transfer)?;
        self.see(transfer);
        Ok(())
    }

    /// Holds the daily limits against every transfer that was recorded, whichever process accepted it.
    fn count(&mut self, transfer: &Transfer) -> Result<(), String> {
        let (day, user) = (transfer.created_at.micros().div_euclid(DAY_MICROS), transfer.user);
        // No create is open for longer than a day.
        self.days.retain(|(counted, _, _), _| day - counted <= 2);
        let used = self.days.entry((day, user, transfer.asset)).or_default();
        *used = (used.0 + 1, used.1 + transfer.amount.units());
        let amount = used.1;
        let all = |asset: &AssetId| self.days.get(&(day, user, *asset)).map_or(0, |used| used.0);
        let count: i64 = self.assets.iter().map(all).sum();
        if count > DAILY_TRANSFERS || amount > DAILY_AMOUNT {
            return Err(format!(
                "{transfer:?} is transfer {count} of its user on its day, and takes the sum to {amount}"
            ));
        }
        Ok(())
    }

    /// A client was told where a transfer stands. An earlier answer may say a later state, but must not contradict.
    pub fn tell(&mut self, transfer: &Transfer) -> Result<(), String> {
        let id = transfer.id.number();
        let Some(known) = self.open.get_mut(&id) else {
            let ended = self.ended.iter().find(|(one, _)| *one == id);
            return match ended {
                Some((_, known)) if !leads_to(transfer.state, known.told) => Err(contradiction(id, known, transfer)),
                _ => Ok(()),
            };
        };
        if Known::of(transfer).order != known.order {
            return Err(format!("transfer {id} was {:?}, and is {transfer:?}", known.order));
        }
        if leads_to(known.told, transfer.state) {
            known.told = transfer.state;
        } else if !leads_to(transfer.state, known.told) {
            return Err(contradiction(id, known, transfer));
        }
        Ok(())
    }

    /// The database says where a transfer stands now: every state that a client was told leads there.
    pub fn find(&mut self, transfer: &Transfer, random: &mut Random) -> Result<(), String> {
        let id = transfer.id.number();
        let Some(mut known) = self.open.remove(&id) else {
            return Err(format!("transfer {id} is there, and nobody asked for it: {transfer:?}"));
        };
        if Known::of(transfer).order != known.order || !leads_to(known.told, transfer.state) {
            return Err(contradiction(id, &known, transfer));
        }
        known.told = transfer.state;
        if !transfer.state.is_terminal() {
            self.open.insert(id, known);
        } else if self.ended.len() < ENDED_MAX {
            self.ended.push((id, known));
        } else {
            self.ended[random.index(ENDED_MAX)] = (id, known);
        }
        Ok(())
    }

    /// Keeps a row for a worker that will be behind.
    pub fn see(&mut self, transfer: &Transfer) {
        if self.rows.len() < ROWS_MAX {
            self.rows.push(transfer.clone());
        } else {
            let at = usize::try_from(transfer.id.number()).unwrap_or(0) % ROWS_MAX;
            self.rows[at] = transfer.clone();
        }
    }
}

const fn other(direction: Direction) -> Direction {
    match direction {
        Direction::ToSpot => Direction::ToFunding,
        Direction::ToFunding => Direction::ToSpot,
    }
}

fn contradiction(id: i64, known: &Known, transfer: &Transfer) -> String {
    format!("transfer {id} was told to be {} ({:?}), and is {transfer:?}", known.told, known.order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_leads_nowhere_else() {
        for state in State::ALL {
            assert!(leads_to(state, state));
            assert!(leads_to(State::Init, state));
            assert!(!state.is_terminal() || !leads_to(state, State::Init));
        }
        assert!(leads_to(State::Compensating, State::RolledBack));
        assert!(!leads_to(State::Compensating, State::Committed));
        assert!(!leads_to(State::Committed, State::RolledBack));
    }
}
