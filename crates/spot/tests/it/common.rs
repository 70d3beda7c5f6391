//! A small log with a known content.

use std::sync::Arc;

use domain::{Amount, AssetId, Timestamp, UserId, id};
use spot::sim::FaultyDisk;
use spot::{Answer, Core, Decision, Move, OpId, Operation, Settings, SpotError, Started};

pub const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
pub const LOG: u64 = 0x0123_4567_89ab_cdef;

pub fn settings() -> Settings {
    Settings { segment_bytes: 1 << 20, ..Settings::default() }
}

pub fn op_id(number: i64) -> OpId {
    OpId::new(id::first_at(NOW) + number).expect("positive")
}

pub fn user(number: i64) -> UserId {
    UserId::new(number).expect("positive")
}

pub fn of(number: i64, who: i64, amount: i64) -> Move {
    Move { id: op_id(number), user: user(who), asset: AssetId(1), amount: Amount::from_units(amount) }
}

pub fn deposit(number: i64, who: i64, amount: i64) -> Operation {
    Operation::Deposit(of(number, who, amount))
}

pub fn withdraw(number: i64, who: i64, amount: i64) -> Operation {
    Operation::Withdraw(of(number, who, amount))
}

pub fn create(disk: &FaultyDisk) -> Core<FaultyDisk> {
    Core::create(disk, LOG, &settings()).expect("a new log");
    open(disk).expect("it opens").0
}

pub fn open(disk: &FaultyDisk) -> Result<(Core<FaultyDisk>, Started), SpotError> {
    Core::open(Arc::new(disk.clone()), &settings(), &mut |_| {})
}

/// Runs a batch; what was acknowledged.
pub fn batch(core: &mut Core<FaultyDisk>, operations: &[Operation]) -> Result<Vec<Answer>, SpotError> {
    core.begin(NOW);
    let answers = operations.iter().map(|operation| core.answer(&(*operation).into())).collect();
    core.commit()?;
    Ok(answers)
}

pub fn applied(count: usize) -> Vec<Answer> {
    vec![Answer::First(Decision::Applied); count]
}

/// The name of a segment.
pub fn segment(number: u64) -> String {
    format!("wal-{number:010}.log")
}
