//! Scenarios as small text tables: one operation and its expected answer per line.
//!
//! `A` and `B` are accounts of asset 1, `X` of asset 2, `S` is a system account of asset 1. `A>B 5` moves 5 from
//! A to B.

use super::*;
use crate::ledger::Reference;

const NAMES: [(&str, i64, i64); 4] = [("A", 1, 1), ("B", 2, 1), ("X", 3, 2), ("S", -1, 1)];

fn account(name: &str) -> (AccountId, AssetId) {
    let known = NAMES.iter().find(|(known, _, _)| *known == name);
    known.map_or((AccountId(99), AssetId(1)), |(_, id, asset)| (AccountId(*id), AssetId(*asset)))
}

fn key(text: &str) -> OpKey {
    OpKey::new(text).expect("a key")
}

/// `KEY post A>B 5 S>A 1`, `KEY hold A 5`, `KEY settle HOLD A>B 5`, `KEY release HOLD A 5`
fn operation(line: &str) -> Operation {
    let words: Vec<&str> = line.split_whitespace().collect();
    let reference = Reference::new("").expect("empty");
    let amount = |word: &str| Amount::from_units(word.parse().expect("units"));
    let movements = |words: &[&str]| -> Vec<Movement> {
        words
            .chunks(2)
            .map(|pair| {
                let (from, to) = pair[0].split_once('>').expect("A>B");
                let (from, asset) = account(from);
                Movement { from, to: account(to).0, asset, amount: amount(pair[1]) }
            })
            .collect()
    };
    match words[1] {
        "post" => Operation::move_available(key(words[0]), movements(&words[2..]), reference).expect("movements"),
        "hold" => {
            let (id, asset) = account(words[2]);
            Operation::hold(key(words[0]), id, asset, amount(words[3]), reference)
        }
        "settle" => {
            Operation::settle(key(words[0]), key(words[2]), movements(&words[3..]), reference).expect("movements")
        }
        "release" => {
            let (id, asset) = account(words[3]);
            Operation::release(key(words[0]), key(words[2]), id, asset, amount(words[4]), reference)
        }
        other => panic!("no such action: {other}"),
    }
}

fn answer(reply: Result<Reply, BookError>) -> String {
    match reply {
        Ok(Reply::First(Outcome::Applied)) => "ok".into(),
        Ok(Reply::First(Outcome::Refused(refusal))) => refusal.code().into(),
        Ok(Reply::Replay(Outcome::Applied)) => "replay ok".into(),
        Ok(Reply::Replay(Outcome::Refused(refusal))) => format!("replay {}", refusal.code()),
        Ok(Reply::Conflict(difference)) => difference.code().into(),
        Err(error) => format!("{error:?}"),
    }
}

fn book(statuses: &[(&str, AccountStatus)]) -> Book<'static> {
    let accounts = NAMES
        .iter()
        .map(|(name, id, asset)| {
            let status = statuses.iter().find(|(other, _)| other == name).map_or(AccountStatus::Active, |one| one.1);
            let state = AccountState { asset: AssetId(*asset), status, available: Amount::ZERO, frozen: Amount::ZERO };
            (AccountId(*id), state)
        })
        .collect();
    Book::new(accounts, HashMap::new())
}

/// Runs the table from empty accounts and compares answers, then `A` and `B` as `available/frozen`.
#[track_caller]
fn check_with(statuses: &[(&str, AccountStatus)], table: &str, balances: &str) {
    let rows: Vec<(&str, &str)> = table
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| line.split_once('=').expect("operation = answer"))
        .collect();
    let operations: Vec<Operation> = rows.iter().map(|(line, _)| operation(line)).collect();
    let mut book: Book<'_> = book(statuses);
    book.has_history = true;
    for ((line, expected), operation) in rows.iter().zip(&operations) {
        assert_eq!(answer(book.apply(operation)), expected.trim(), "{line}");
    }
    let shown: Vec<String> = ["A", "B"]
        .iter()
        .map(|name| {
            let state = &book.accounts[&account(name).0];
            format!("{name} {}/{}", state.available.units(), state.frozen.units())
        })
        .collect();
    assert_eq!(shown.join(" "), balances);
}

#[track_caller]
fn check(table: &str, balances: &str) {
    check_with(&[], table, balances);
}

#[test]
fn money_moves_once_per_key() {
    check(
        "1 post S>A 100 = ok
         2 post A>B 40 = ok
         2 post A>B 40 = replay ok
         2 post A>B 41 = EXISTS_WITH_DIFFERENT_AMOUNT
         2 post A>S 40 = EXISTS_WITH_DIFFERENT_TO
         2 post S>B 40 = EXISTS_WITH_DIFFERENT_FROM
         2 post A>B 40 A>B 1 = EXISTS_WITH_DIFFERENT_MOVEMENT_COUNT
         2 hold A 40 = EXISTS_WITH_DIFFERENT_ACTION",
        "A 60/0 B 40/0",
    );
}

#[test]
fn a_refusal_is_remembered_even_when_it_would_now_succeed() {
    check(
        "1 post A>B 5 = INSUFFICIENT_BALANCE
         2 post S>A 100 = ok
         1 post A>B 5 = replay INSUFFICIENT_BALANCE
         1 post A>B 6 = EXISTS_WITH_DIFFERENT_AMOUNT",
        "A 100/0 B 0/0",
    );
}

#[test]
fn bad_movements_are_refused_by_name() {
    check(
        "1 post S>A 100 = ok
         2 post A>B 0 = INVALID_AMOUNT
         3 post A>B -5 = INVALID_AMOUNT
         4 post A>A 5 = SAME_ACCOUNT
         5 post A>nobody 5 = ACCOUNT_NOT_FOUND
         6 post A>X 5 = ASSET_MISMATCH
         7 hold A 0 = INVALID_AMOUNT
         8 hold S 5 = SYSTEM_ACCOUNT_HOLD
         9 post A>B 101 = INSUFFICIENT_BALANCE",
        "A 100/0 B 0/0",
    );
}

#[test]
fn the_movements_of_one_operation_stand_or_fall_together() {
    check(
        "1 post S>A 100 = ok
         2 post A>B 60 A>B 60 = INSUFFICIENT_BALANCE
         3 post A>B 60 B>S 60 A>B 40 = ok
         4 post A>B 1 S>B 9223372036854775807 = INSUFFICIENT_BALANCE
         5 post B>A 1 S>B 9223372036854775807 = OVERFLOW",
        "A 0/0 B 40/0",
    );
}

#[test]
fn a_hold_ends_once_by_settle_or_release() {
    check(
        "1 post S>A 100 = ok
         h1 hold A 40 = ok
         h2 hold A 61 = INSUFFICIENT_BALANCE
         2 settle h1 A>B 30 = HOLD_AMOUNT_MISMATCH
         3 settle h1 B>A 40 = HOLD_ACCOUNT_MISMATCH
         4 settle h2 A>B 61 = HOLD_NOT_FOUND
         5 settle h1 A>B 30 A>S 10 = ok
         5 settle h1 A>B 30 A>S 10 = replay ok
         6 settle h1 A>B 30 A>S 10 = HOLD_ALREADY_ENDED
         7 release h1 A 40 = HOLD_ALREADY_ENDED
         h3 hold A 60 = ok
         8 release h3 A 59 = HOLD_AMOUNT_MISMATCH
         9 release h3 A 60 = ok
         10 release h3 A 60 = HOLD_ALREADY_ENDED
         9 release h1 A 60 = EXISTS_WITH_DIFFERENT_HOLD",
        "A 60/0 B 30/0",
    );
}

#[test]
fn a_frozen_account_takes_but_does_not_give() {
    check_with(
        &[("A", AccountStatus::Frozen)],
        "1 post S>A 100 = ok
         2 post A>B 1 = ACCOUNT_FROZEN
         3 hold A 1 = ACCOUNT_FROZEN",
        "A 100/0 B 0/0",
    );
}

#[test]
fn a_disabled_account_neither_takes_nor_gives() {
    check_with(
        &[("B", AccountStatus::Disabled)],
        "1 post S>A 100 = ok
         2 post A>B 1 = ACCOUNT_DISABLED
         3 post B>A 1 = ACCOUNT_DISABLED
         4 hold B 1 = ACCOUNT_DISABLED
         h hold A 10 = ok
         5 settle h A>B 10 = ACCOUNT_DISABLED
         6 release h A 10 = ok",
        "A 100/0 B 0/0",
    );
}

#[test]
fn what_was_held_before_a_freeze_still_ends() {
    for status in [AccountStatus::Frozen, AccountStatus::Disabled] {
        let mut book = book(&[("A", status)]);
        book.has_history = true;
        let state = book.accounts.get_mut(&AccountId(1)).expect("A");
        state.frozen = Amount::from_units(30);
        for (name, amount) in [("h1", 10), ("h2", 20)] {
            let hold = HoldState { account: AccountId(1), amount: Amount::from_units(amount), ended: false };
            book.holds.insert(key(name), hold);
        }
        let settle = operation("1 settle h1 A>S 10");
        let release = operation("2 release h2 A 20");
        assert_eq!(answer(book.apply(&settle)), "ok");
        assert_eq!(answer(book.apply(&release)), "ok");
        assert_eq!(book.accounts[&AccountId(1)].available.units(), 20);
    }
}

#[test]
fn without_history_an_ended_hold_asks_for_it() {
    let mut book = book(&[]);
    let hold = HoldState { account: AccountId(1), amount: Amount::from_units(10), ended: false };
    book.holds.insert(key("h"), hold);
    let settle = operation("1 settle h A>B 10");
    assert_eq!(answer(book.apply(&settle)), "NeedsHistory");
}

#[test]
fn broken_books_decide_nothing() {
    let mut book = book(&[]);
    book.has_history = true;
    let hold = HoldState { account: AccountId(1), amount: Amount::from_units(10), ended: false };
    book.holds.insert(key("h"), hold);
    let settle = operation("1 settle h A>B 10");
    assert_eq!(answer(book.apply(&settle)), "HoldExceedsFrozen(AccountId(1))");
    assert_eq!(book.accounts[&AccountId(1)].frozen, Amount::ZERO);
}
