//! Bytes in memory per account and per remembered id.

use domain::id::{self, Generator, NodeId};
use domain::{Amount, Clock};
use serde_json::{Value, json};
use spot::State;
use spot::sim::Window;
use spot::{Move, OpId, Operation, Request};
use terminal::clock::SystemClock;
use terminal::failure::Failure;

use super::speed::user;
use super::{ASSET, bug};

/// What the machine says that this process takes.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

/// Bytes per account and per remembered id, as the process grows and as the tables count.
pub(super) fn memory(accounts: u64, operations: u64) -> Result<Value, Failure> {
    let ids = Generator::new(SystemClock, NodeId::new(2).ok_or_else(|| bug("node"))?);
    let mut state = State::default();
    state.set_window(Window { time: SystemClock.now().plus_micros(3_600_000_000), ..Window::default() });
    let deposit = |state: &mut State, number: u64| -> Result<(), Failure> {
        let id: OpId = ids.next::<id::Transfer>().map_err(bug)?.into();
        let of = Move { id, user: user(number)?, asset: ASSET, amount: Amount::from_units(1) };
        state.answer(&Request::Run(Operation::Deposit(of)));
        Ok(())
    };
    let before = resident_bytes();
    for number in 1..=accounts {
        deposit(&mut state, number)?;
    }
    // The deposits left their ids too.
    let with_accounts = resident_bytes();
    let first_ids = state.id_bytes() as u64;
    for number in 0..operations {
        deposit(&mut state, 1 + number % accounts)?;
    }
    let with_ids = resident_bytes();
    let per = |bytes: u64, count: u64| (bytes as f64 / count as f64 * 10.0).round() / 10.0;
    Ok(json!({
        "accounts": accounts,
        "bytes_per_account": per(state.account_bytes() as u64, accounts),
        "bytes_per_account_resident": per((with_accounts - before).saturating_sub(first_ids), accounts),
        "ids": operations,
        "bytes_per_id": per(state.id_bytes() as u64, state.id_count() as u64),
        "bytes_per_id_resident": per(with_ids - with_accounts, operations),
    }))
}
