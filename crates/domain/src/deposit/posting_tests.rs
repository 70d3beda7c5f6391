use proptest::prelude::*;

use super::*;
use crate::amount::Precision;

/// 18 decimals on the chain, 6 in the ledger: a unit is 10^12.
fn form() -> AssetOnChain {
    AssetOnChain::new(Precision::new(6).unwrap(), 18, None).unwrap()
}

const UNIT: i128 = 1_000_000_000_000;

fn raw(value: i128) -> RawAmount {
    value.to_string().parse().unwrap()
}

fn sum(value: i128) -> RawSum {
    value.to_string().parse().unwrap()
}

fn amount(units: i64) -> Amount {
    Amount::from_units(units)
}

fn user() -> Attribution {
    Attribution::User(UserId::new(7).unwrap())
}

fn account(status: AccountStatus, available: i64) -> Option<AccountNow> {
    Some(AccountNow { status, available: amount(available), frozen: Amount::ZERO })
}

fn deposit(value: i128, attribution: Attribution, owed: i64) -> Due {
    Due::Deposit {
        raw: raw(value),
        attribution,
        account: account(AccountStatus::Active, 0),
        owed: amount(owed),
        held: None,
    }
}

fn take_back(value: i128, given: Given, available: i64, owed: i64) -> Due {
    Due::TakeBack { raw: raw(value), given, account: account(AccountStatus::Active, available), owed: amount(owed) }
}

fn decide(due: &Due, residue: i128) -> Posting {
    Posting::decide(due, raw(residue), &form(), amount(1_000)).unwrap()
}

#[test]
fn a_user_gets_whole_units_and_the_residue_the_rest() {
    let posting = decide(&deposit(5_000 * UNIT + 3, user(), 0), 10);
    assert_eq!(posting.movements, [(Party::Custody, Party::User, amount(5_000))]);
    assert_eq!(posting.residue, raw(13));
}

#[test]
fn a_residue_that_fills_a_unit_becomes_dust() {
    let posting = decide(&deposit(5_000 * UNIT + 3, user(), 0), UNIT - 1);
    assert_eq!(
        posting.movements,
        [(Party::Custody, Party::User, amount(5_000)), (Party::Custody, Party::Dust, amount(1))]
    );
    assert_eq!(posting.residue, raw(2));
}

fn doubted(due: Due) -> Due {
    match due {
        Due::Deposit { raw, attribution, account, owed, .. } => {
            Due::Deposit { raw, attribution, account, owed, held: Some(Reason::BalanceDiffers) }
        }
        other => other,
    }
}

#[test]
fn what_is_nobodys_is_in_suspense_with_its_reason() {
    let reasons = [
        (deposit(5_000 * UNIT, Attribution::Nobody(Reason::HouseWallet), 0), Reason::HouseWallet),
        (deposit(999 * UNIT, user(), 0), Reason::BelowMinimum),
        (
            Due::Deposit {
                raw: raw(5_000 * UNIT),
                attribution: user(),
                account: account(AccountStatus::Disabled, 0),
                owed: Amount::ZERO,
                held: None,
            },
            Reason::AccountDisabled,
        ),
        (doubted(deposit(5_000 * UNIT, user(), 0)), Reason::BalanceDiffers),
        (doubted(deposit(999 * UNIT, user(), 0)), Reason::BalanceDiffers),
    ];
    for (due, reason) in reasons {
        let posting = decide(&due, 0);
        assert!(matches!(posting.posted, Posted::LeftOver(why, _) if why == reason), "{posting:?}");
        assert!(posting.movements.iter().all(|(from, to, _)| (*from, *to) == (Party::Custody, Party::Suspense)));
    }
}

#[test]
fn what_no_account_can_hold_stays_outside_and_leaves_nothing_to_take_back() {
    let due = Due::Deposit { raw: RawAmount::MAX, attribution: user(), account: None, owed: Amount::ZERO, held: None };
    let posting = decide(&due, 5);
    assert_eq!(posting.posted, Posted::LeftOver(Reason::BeyondLedger, Given::default()));
    assert_eq!((posting.movements.len(), posting.residue), (0, raw(5)));
    let back =
        decide(&Due::TakeBack { raw: RawAmount::MAX, given: Given::default(), account: None, owed: Amount::ZERO }, 5);
    assert_eq!((back.movements.len(), back.residue), (0, raw(5)));
}

#[test]
fn a_frozen_account_takes_deposits_and_gives_nothing_back() {
    let due = Due::Deposit {
        raw: raw(5_000 * UNIT),
        attribution: user(),
        account: account(AccountStatus::Frozen, 0),
        owed: Amount::ZERO,
        held: None,
    };
    assert!(matches!(decide(&due, 0).posted, Posted::Credited(_)));
    let given = Given { user: amount(5_000), ..Given::default() };
    let back = Due::TakeBack {
        raw: raw(5_000 * UNIT),
        given,
        account: account(AccountStatus::Frozen, 5_000),
        owed: Amount::ZERO,
    };
    let posting = decide(&back, 0);
    assert_eq!(posting.posted, Posted::TakenBack { receivable: amount(5_000) });
    assert_eq!(posting.movements, [(Party::Suspense, Party::Custody, amount(5_000))]);
}

/// 5,000 came, 3,000 of it were spent, the block went, the payment was mined again: the user has what was left, and the
/// house is owed nothing any more.
#[test]
fn what_was_owed_is_repaid_when_the_payment_is_mined_again() {
    let given = Given { user: amount(5_000), ..Given::default() };
    let back = take_back(5_000 * UNIT + 3, given, 2_000, 0);
    let posting = decide(&back, 3);
    assert_eq!(posting.posted, Posted::TakenBack { receivable: amount(3_000) });
    assert_eq!(
        posting.movements,
        [(Party::User, Party::Custody, amount(2_000)), (Party::Suspense, Party::Custody, amount(3_000))]
    );
    assert_eq!(posting.residue, raw(0));
    let again = decide(&deposit(5_000 * UNIT + 3, user(), 3_000), 0);
    assert_eq!(
        again.movements,
        [(Party::Custody, Party::User, amount(2_000)), (Party::Custody, Party::Suspense, amount(3_000))]
    );
    // And gone once more: what was repaid is owed again.
    let Posted::Credited(given) = again.posted else { panic!("{again:?}") };
    let back = take_back(5_000 * UNIT + 3, given, 2_000, 3_000);
    assert_eq!(decide(&back, 3).posted, Posted::TakenBack { receivable: amount(3_000) });
}

#[test]
fn what_suspense_had_for_nobody_is_owed_by_nobody() {
    let given = Given { left_over: amount(999), ..Given::default() };
    let posting = decide(&Due::TakeBack { raw: raw(999 * UNIT), given, account: None, owed: Amount::ZERO }, 0);
    assert_eq!(posting.posted, Posted::TakenBack { receivable: Amount::ZERO });
    assert_eq!(posting.movements, [(Party::Suspense, Party::Custody, amount(999))]);
}

/// The user owed 3,000, and the payment that came again was only 1,000: 2,000 are still owed when it goes too.
#[test]
fn what_was_not_repaid_is_still_owed() {
    let Posted::Credited(given) = decide(&deposit(1_000 * UNIT, user(), 3_000), 0).posted else { panic!("credited") };
    assert_eq!((given.user, given.repaid), (Amount::ZERO, amount(1_000)));
    let posting = decide(&take_back(1_000 * UNIT, given, 0, 3_000), 0);
    assert_eq!(posting.posted, Posted::TakenBack { receivable: amount(3_000) });
    assert_eq!(posting.movements, [(Party::Suspense, Party::Custody, amount(1_000))]);
}

#[test]
fn a_full_account_takes_nothing_more() {
    let full = Due::Deposit {
        raw: raw(5_000 * UNIT),
        attribution: user(),
        account: account(AccountStatus::Active, i64::MAX - 4_999),
        owed: Amount::ZERO,
        held: None,
    };
    assert!(
        matches!(decide(&full, 0).posted, Posted::LeftOver(Reason::BeyondLedger, given) if given.left_over == amount(5_000))
    );
}

#[test]
fn what_is_found_is_first_what_the_books_began_with() {
    let found = |value: i128, opening: i64| decide(&Due::Found { raw: raw(value), opening: amount(opening) }, 0);
    let all = found(5 * UNIT + 3, 9);
    assert_eq!((all.posted, all.movements.len(), all.residue), (Posted::Found { opening: amount(5) }, 0, raw(3)));
    let some = found(5 * UNIT, 2);
    assert_eq!(some.posted, Posted::Found { opening: amount(2) });
    assert_eq!(some.movements, [(Party::Custody, Party::Suspense, amount(3))]);
    assert_eq!(found(5 * UNIT, -2).movements, [(Party::Custody, Party::Suspense, amount(5))]);
}

#[test]
fn fees_are_carried_until_they_fill_a_unit() {
    let fee = |value: i128, residue| decide(&Due::Other { change: sum(-value), cause: Cause::Fee }, residue);
    let first = fee(UNIT / 2, 0);
    assert_eq!((first.movements, first.residue), (vec![(Party::Gas, Party::Custody, amount(1))], raw(UNIT / 2)));
    let second = fee(UNIT / 2, UNIT / 2);
    assert_eq!((second.movements.len(), second.residue), (0, raw(0)));
}

fn any_due() -> impl Strategy<Value = Due> {
    let value = 0..(1_i128 << 80);
    let causes = prop::sample::select(vec![Cause::Fee, Cause::ForeignSpend, Cause::UnattributedIn, Cause::Change]);
    prop_oneof![
        (value.clone(), any::<bool>(), 0_i64..10_000).prop_map(|(value, known, owed)| {
            let attribution = if known { user() } else { Attribution::Nobody(Reason::NoUser) };
            deposit(value, attribution, owed)
        }),
        (value.clone(), 0_i64..10_000)
            .prop_map(|(value, opening)| Due::Found { raw: raw(value), opening: amount(opening) }),
        (-(1_i128 << 80)..(1_i128 << 80), causes).prop_map(|(value, cause)| Due::Other { change: sum(value), cause }),
    ]
}

/// What custody has after the movements, in ledger units.
fn custody(movements: &[(Party, Party, Amount)]) -> i128 {
    let one = |party: &Party| i128::from(*party == Party::Custody);
    // A payment out of custody's account means that coins came in.
    movements.iter().map(|(from, to, amount)| i128::from(amount.units()) * (one(from) - one(to))).sum()
}

proptest! {
    /// Whatever comes, goes and comes back: entries are custody's units and the residue, exactly.
    #[test]
    fn posted_entries_are_what_custody_has_and_the_residue(
        all in prop::collection::vec((any_due(), any::<bool>(), 0_i64..1_000_000), 1..40)
    ) {
        let (mut residue, mut booked, mut entries) = (RawAmount::ZERO, 0_i128, RawSum::ZERO);
        for (due, goes_again, available) in all {
            let change = match due {
                Due::Deposit { raw, .. } | Due::Found { raw, .. } => RawSum::from(raw),
                Due::Other { change, .. } => change,
                Due::TakeBack { .. } => unreachable!("not drawn"),
            };
            let posting = Posting::decide(&due, residue, &form(), amount(1_000)).unwrap();
            booked += custody(&posting.movements);
            residue = posting.residue;
            entries = entries.plus(change);
            let given = match posting.posted {
                Posted::Credited(given) | Posted::LeftOver(_, given) => Some(given),
                // What the books began with was in custody before.
                Posted::Found { opening } => {
                    booked += i128::from(opening.units());
                    None
                }
                Posted::TakenBack { .. } | Posted::Booked => None,
            };
            if let (true, Due::Deposit { raw, .. }, Some(given)) = (goes_again, due, given) {
                let back = Due::TakeBack { raw, given, account: account(AccountStatus::Active, available), owed: Amount::ZERO };
                let posting = Posting::decide(&back, residue, &form(), amount(1_000)).unwrap();
                booked += custody(&posting.movements);
                residue = posting.residue;
                entries = entries.plus(-RawSum::from(raw));
            }
            prop_assert!(residue.to_u256() < form().raw_per_unit());
            prop_assert_eq!(entries, sum(booked * UNIT).plus(residue.into()));
        }
    }
}

proptest! {
    /// What a withdrawal is settled with in `suspense` is what the chain's entry of its payout fetches from there, to the unit, whatever remainder the
    /// coin has: a ledger amount is exact on a chain.
    #[test]
    fn a_payout_fetches_from_suspense_what_its_withdrawal_left_there(units in 1..=i64::MAX, rest in 0_u64..1_000_000_000_000) {
        let form = AssetOnChain::new(Precision::new(6).unwrap(), 18, None).unwrap();
        let paid = RawSum::from(RawAmount::from_ledger(Amount::from_units(units), &form).unwrap());
        let residue = RawAmount::from_u256(ruint::aliases::U256::from(rest));
        for (change, (from, to)) in [(-paid, (Party::Suspense, Party::Custody)), (paid, (Party::Custody, Party::Suspense))] {
            let posting = Posting::decide(&Due::Other { change, cause: Cause::Payout }, residue, &form, Amount::ZERO).unwrap();
            prop_assert_eq!(posting.movements, vec![(from, to, Amount::from_units(units))]);
            prop_assert_eq!(posting.residue, residue);
        }
    }
}
