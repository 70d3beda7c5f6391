//! An internal transfer: what may be asked for ([`request`]), and how it goes ([`state`]).

pub mod request;
pub mod state;

pub use request::{ClientOrderId, Direction, MOST, Rejection, Side, Transfer, check_amount, check_asset, parse_amount};
pub use state::{Action, Event, Illegal, State, next, plan};
