//! Which addresses are ours, and what a transaction does to them, as a bookkeeper says who has only the chain and the list of
//! addresses. Nothing of this is asked of the program.

use std::collections::HashMap;

use chain::Place;
use domain::RawAmount;
use tx::Address;

use super::model::{Money, Transaction};

/// Whose an address of ours is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    User(i64),
    /// A row has it that a thief has written: it is watched, and nobody's.
    Spoilt,
    Gas,
    Hot,
}

impl Owner {
    const fn is_house(self) -> bool {
        match self {
            Self::Gas | Self::Hot => true,
            Self::User(_) | Self::Spoilt => false,
        }
    }
}

/// All addresses of ours on one chain. None is ever paid before it is here.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    of: HashMap<Address, Owner>,
    /// As rows write them.
    texts: HashMap<String, Address>,
    /// In the order in which they came.
    pub all: Vec<Address>,
    pub users: Vec<Address>,
}

impl Owners {
    pub fn add(&mut self, address: Address, owner: Owner) {
        self.texts.insert(address.to_string(), address.clone());
        self.of.insert(address.clone(), owner);
        if matches!(owner, Owner::User(_)) {
            self.users.push(address.clone());
        }
        self.all.push(address);
    }

    pub fn of(&self, address: &Address) -> Option<Owner> {
        self.of.get(address).copied()
    }

    pub fn by_text(&self, text: &str) -> Option<&Address> {
        self.texts.get(text)
    }

    /// Only changes places: gas for a user's address, or anything that comes home.
    fn is_inside(from: Owner, to: Owner) -> bool {
        to.is_house() || from == Owner::Gas
    }

    pub fn effects(&self, transaction: &Transaction) -> Vec<Effect> {
        let mut effects = Vec::new();
        for one in &transaction.moves {
            let (from, to) = (self.of(&one.from), self.of(&one.to));
            let inside = from.zip(to).is_some_and(|(from, to)| Self::is_inside(from, to));
            let effect = |address: &Address, kind| Effect {
                place: one.place,
                address: address.clone(),
                money: one.money,
                raw: one.raw,
                kind,
            };
            match (to, transaction.ok) {
                (Some(_), true) if one.money == Money::Hollow => effects.push(effect(&one.to, Kind::Logged)),
                (Some(_), true) if inside => effects.push(effect(&one.to, Kind::InsideIn)),
                (Some(_), true) => effects.push(effect(&one.to, Kind::Deposit)),
                (Some(_), false) => effects.push(effect(&one.to, Kind::Reverted)),
                (None, _) => {}
            }
            if from.is_some() && transaction.ok {
                effects.push(effect(&one.from, if inside { Kind::InsideOut } else { Kind::Left }));
            }
        }
        if self.of(&transaction.sender).is_some() && transaction.fee > RawAmount::ZERO {
            let (place, address, raw) = (Place::Fee, transaction.sender.clone(), transaction.fee);
            effects.push(Effect { place, address, money: Money::Native, raw, kind: Kind::Fee });
        }
        effects.retain(|effect| effect.money != Money::Air);
        effects
    }
}

/// What a transaction does to one address of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub place: Place,
    pub address: Address,
    pub money: Money,
    pub raw: RawAmount,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Deposit,
    /// It was to pay us, and did not run to its end.
    Reverted,
    /// A log says that it paid us, and it has moved nothing.
    Logged,
    InsideIn,
    InsideOut,
    Left,
    Fee,
}

impl Kind {
    /// Whether the balance grows, shrinks or stays.
    pub const fn sign(self) -> i8 {
        match self {
            Self::Deposit | Self::InsideIn => 1,
            Self::Reverted | Self::Logged => 0,
            Self::InsideOut | Self::Left | Self::Fee => -1,
        }
    }

    pub const fn is_inside(self) -> bool {
        matches!(self, Self::InsideIn | Self::InsideOut)
    }
}
