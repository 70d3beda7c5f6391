//! The rules, as small tables: an operation, its id, its fields, and what becomes of it.

use super::*;

/// Each part of the script is `kind id user asset amount answer`. Settles are `settle id buyer seller base quote
/// answer` with 10 of base for 20 of quote, fees 1 and 2 to user 9; statuses `status id user asset STATUS answer`;
/// `balance user asset available reserved`, or `nothing user asset` if there is no balance; `standing id ANSWER`.
fn check(script: &str) -> State {
    let mut state = State::default();
    state.set_window(Window { time: now(), horizon: Timestamp::from_micros(i64::MIN) });
    check_on(&mut state, script);
    state
}

fn now() -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000)
}

/// Small numbers as ids of one millisecond, so that none is old or from the future.
fn op_id(text: &str) -> OpId {
    let number: i64 = text.parse().expect("an id");
    OpId::new(id::first_at(now()) + number).expect("positive")
}

fn check_on(state: &mut State, script: &str) {
    for line in script.split('/').map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number =
            |at: usize| words[at].parse::<i64>().unwrap_or_else(|_| panic!("{line}: {} is no number", words[at]));
        let user = |at: usize| UserId::new(number(at)).expect("positive");
        let asset = |at: usize| AssetId(number(at));
        let amount = |at: usize| match words[at] {
            "max" => Amount::MAX,
            _ => Amount::from_units(number(at)),
        };
        let operation = match words[0] {
            "balance" => {
                let found = state.balance(user(1), asset(2)).map(|balance| (balance.available, balance.reserved));
                assert_eq!(found, Some((amount(3), amount(4))), "{line}");
                continue;
            }
            "nothing" => {
                assert_eq!(state.balance(user(1), asset(2)), None, "{line}");
                continue;
            }
            "standing" => {
                assert_eq!(format!("{:?}", state.query(op_id(words[1]))), words[2..].join(" "), "{line}");
                continue;
            }
            "settle" => Operation::Settle(Settle {
                id: op_id(words[1]),
                buyer: user(2),
                seller: user(3),
                fees: UserId::new(9).expect("positive"),
                base: asset(4),
                quote: asset(5),
                base_amount: Amount::from_units(10),
                quote_amount: Amount::from_units(20),
                buyer_fee: Amount::from_units(1),
                seller_fee: Amount::from_units(2),
            }),
            "status" => Operation::SetStatus {
                id: op_id(words[1]),
                user: user(2),
                asset: asset(3),
                status: AccountStatus::parse(words[4]).expect("a status"),
            },
            kind => {
                let of = Move { id: op_id(words[1]), user: user(2), asset: asset(3), amount: amount(4) };
                match kind {
                    "deposit" => Operation::Deposit(of),
                    "withdraw" => Operation::Withdraw(of),
                    "rollback" => Operation::Rollback(of),
                    "reserve" => Operation::Reserve(of),
                    "release" => Operation::Release(of),
                    _ => panic!("{line}: unknown kind"),
                }
            }
        };
        let before = state.digest();
        let (answer, decided) = state.answer(&operation.into());
        let said = match answer {
            Answer::First(Decision::Applied) => "ok".to_owned(),
            Answer::First(Decision::Refused(refusal)) => refusal.code().to_lowercase(),
            Answer::Replay(Decision::Applied) => "replay ok".to_owned(),
            Answer::Replay(Decision::Refused(refusal)) => format!("replay {}", refusal.code().to_lowercase()),
            other => format!("{other:?}").to_lowercase(),
        };
        let expected: Vec<&str> = words.iter().rev().take(said.split(' ').count()).rev().copied().collect();
        assert_eq!(said, expected.join(" "), "{line}");
        assert_eq!(decided, state.digest() != before, "{line}: what changes the state is logged, and nothing else");
        conserved(state, line);
    }
}

/// The totals are the sums of the balances, and no balance is negative.
fn conserved(state: &State, line: &str) {
    let mut sums: BTreeMap<AssetId, i64> = state.totals().map(|(asset, _)| (asset, 0)).collect();
    for (_, asset, balance) in state.balances() {
        assert!(balance.available >= Amount::ZERO && balance.reserved >= Amount::ZERO, "{line}");
        *sums.entry(asset).or_default() += balance.available.units() + balance.reserved.units();
    }
    let totals: BTreeMap<AssetId, i64> = state.totals().map(|(asset, total)| (asset, total.units())).collect();
    assert_eq!(sums, totals, "{line}");
}

#[test]
fn deposits_make_accounts_and_withdrawals_need_them() {
    check(
        "withdraw 1 7 1 5 account_not_found / nothing 7 1
         / deposit 2 7 1 100 ok / balance 7 1 100 0
         / withdraw 3 7 1 40 ok / withdraw 4 7 1 61 insufficient_balance / balance 7 1 60 0
         / withdraw 5 7 2 1 account_not_found / withdraw 6 7 1 60 ok / balance 7 1 0 0",
    );
}

#[test]
fn a_replay_gets_the_first_decision_and_changes_nothing() {
    check(
        "deposit 1 7 1 100 ok / deposit 1 7 1 100 replay ok / balance 7 1 100 0
         / withdraw 2 7 1 500 insufficient_balance / deposit 3 7 1 1000 ok
         / withdraw 2 7 1 500 replay insufficient_balance / balance 7 1 1100 0",
    );
}

#[test]
fn the_same_id_with_other_content_is_a_conflict_and_the_first_stands() {
    check(
        "deposit 1 7 1 100 ok / deposit 1 7 1 101 conflict / deposit 1 8 1 100 conflict / deposit 1 7 2 100 conflict
         / withdraw 1 7 1 100 conflict / rollback 1 7 1 100 conflict / reserve 1 7 1 100 conflict
         / status 1 7 1 frozen conflict / settle 1 7 8 1 2 conflict / balance 7 1 100 0 / deposit 1 7 1 100 replay ok",
    );
}

#[test]
fn a_rollback_gives_a_withdrawal_back_once() {
    check(
        "deposit 1 7 1 100 ok / withdraw 2 7 1 30 ok / rollback 2 7 1 31 conflict / rollback 2 7 1 30 ok
         / balance 7 1 100 0 / rollback 2 7 1 30 replay ok / balance 7 1 100 0
         / withdraw 2 7 1 30 replay withdrawal_rolled_back / balance 7 1 100 0
         / standing 2 Standing(Some(RolledBack))",
    );
}

#[test]
fn a_rollback_that_comes_first_forbids_the_late_withdrawal() {
    check(
        "deposit 1 7 1 100 ok / rollback 2 7 1 30 ok / standing 2 Standing(Some(Void))
         / withdraw 2 7 1 30 replay withdrawal_voided / withdraw 2 7 1 31 conflict / balance 7 1 100 0
         / rollback 2 7 1 30 replay ok",
    );
}

#[test]
fn a_rollback_of_a_refused_withdrawal_gives_nothing() {
    check(
        "deposit 1 7 1 10 ok / withdraw 2 7 1 30 insufficient_balance / rollback 2 7 1 30 replay ok
         / balance 7 1 10 0 / withdraw 2 7 1 30 replay insufficient_balance",
    );
}

#[test]
fn frozen_accounts_take_and_disabled_ones_do_not_and_nothing_in_flight_is_stranded() {
    check(
        "deposit 1 7 1 100 ok / withdraw 2 7 1 10 ok / reserve 3 7 1 20 ok
         / status 4 7 1 frozen ok / deposit 5 7 1 1 ok / withdraw 6 7 1 1 account_frozen / reserve 7 7 1 1 account_frozen
         / release 8 7 1 5 ok / balance 7 1 76 15
         / status 9 7 1 disabled ok / deposit 10 7 1 1 account_disabled / withdraw 11 7 1 1 account_disabled
         / reserve 12 7 1 1 account_disabled / rollback 2 7 1 10 ok / release 13 7 1 15 ok / balance 7 1 101 0
         / status 14 7 1 active ok / withdraw 15 7 1 101 ok / status 16 8 1 frozen account_not_found",
    );
}

#[test]
fn reserved_money_cannot_be_withdrawn_and_release_is_bounded() {
    check(
        "deposit 1 7 1 100 ok / reserve 2 7 1 80 ok / withdraw 3 7 1 21 insufficient_balance
         / release 4 7 1 81 insufficient_reserved / release 5 7 1 80 ok / withdraw 6 7 1 100 ok
         / release 7 8 1 1 account_not_found",
    );
}

#[test]
fn a_trade_moves_both_sides_and_the_fees_or_nothing() {
    check(
        "deposit 1 1 5 100 ok / deposit 2 2 4 100 ok / settle 3 1 2 4 5 insufficient_reserved
         / reserve 4 1 5 20 ok / settle 5 1 2 4 5 insufficient_reserved / balance 1 5 80 20 / nothing 1 4
         / reserve 6 2 4 10 ok / settle 7 1 2 4 5 ok
         / balance 1 5 80 0 / balance 1 4 9 0 / balance 2 4 90 0 / balance 2 5 18 0 / balance 9 4 1 0 / balance 9 5 2 0
         / settle 7 1 2 4 5 replay ok / settle 8 1 2 4 4 same_asset / settle 9 3 2 4 5 account_not_found",
    );
}

#[test]
fn a_trade_with_oneself_and_with_the_fee_account_still_adds_up() {
    check(
        "deposit 1 9 5 100 ok / deposit 2 9 4 100 ok / reserve 3 9 5 20 ok / reserve 4 9 4 10 ok
         / settle 5 9 9 4 5 ok / balance 9 5 100 0 / balance 9 4 100 0",
    );
}

#[test]
fn amounts_and_assets_are_checked_before_anything_else() {
    check(
        "deposit 1 7 1 0 invalid_amount / deposit 2 7 1 -5 invalid_amount / deposit 3 7 0 5 invalid_asset
         / withdraw 4 7 0 0 invalid_amount / withdraw 5 7 -1 5 invalid_asset / reserve 6 7 4294967296 5 invalid_asset
         / release 7 7 1 0 invalid_amount / deposit 8 7 4294967295 5 ok",
    );
}

#[test]
fn the_total_of_an_asset_never_overflows() {
    check(
        "deposit 1 7 1 max ok / deposit 2 8 1 1 overflow / withdraw 3 7 1 10 ok / deposit 4 8 1 10 ok
         / rollback 3 7 1 10 noroom / standing 3 Standing(Some(Applied))
         / withdraw 5 8 1 10 ok / rollback 3 7 1 10 ok / balance 7 1 9223372036854775807 0 / deposit 6 7 2 max ok",
    );
}

#[test]
fn ids_before_the_horizon_are_expired_and_never_run() {
    let mut state = check("deposit 5 7 1 100 ok / withdraw 6 7 1 10 ok");
    let later = now().plus_micros(10_000_000);
    state.set_window(Window { time: later, horizon: now().plus_micros(1_000) });
    check_on(
        &mut state,
        "deposit 5 7 1 100 expired / rollback 6 7 1 10 expired / standing 6 Expired / withdraw 7 7 1 10 expired",
    );
    assert_eq!(state.standings().count(), 0);
    assert_eq!(state.balance(UserId::new(7).expect("positive"), AssetId(1)).expect("there").available.units(), 90);
}

#[test]
fn ids_from_the_future_are_not_run_and_not_remembered() {
    let mut state = check("deposit 1 7 1 100 ok");
    state.set_window(Window { time: now().plus_micros(-FUTURE_MICROS - 1_000), horizon: state.window().horizon });
    check_on(&mut state, "deposit 2 7 1 100 tooearly / standing 2 Standing(None)");
    state.set_window(Window { time: now().plus_micros(-FUTURE_MICROS), horizon: state.window().horizon });
    check_on(&mut state, "deposit 2 7 1 100 ok");
}

#[test]
fn the_horizon_follows_the_ids_and_neither_end_of_the_window_moves_back() {
    let mut state = check("deposit 1 7 1 100 ok");
    let (hour, made) = (3_600_000_000, op_id("1").made_at());
    // A clock years ahead expires nothing: the newest id is what counts.
    let ahead = state.window_at(now().plus_micros(9_000 * 24 * hour), hour);
    assert_eq!(ahead.horizon, made.plus_micros(-hour));
    state.set_window(ahead);
    let back = state.window_at(now().plus_micros(-24 * hour), 2 * hour);
    assert_eq!(back, ahead, "a clock that steps back, and a longer retention, change nothing");
    assert_eq!(state.window_at(now(), 0).horizon, made);
}
