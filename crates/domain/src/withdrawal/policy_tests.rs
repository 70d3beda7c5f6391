use proptest::prelude::*;

use super::*;
use WithdrawalRefusal::*;

fn amount(units: i64) -> Amount {
    Amount::from_units(units)
}

const HOUR: i64 = 3_600_000_000;
const NOW: Timestamp = Timestamp::from_micros(1_763_000_000_000_000);

fn policy() -> WithdrawalPolicy {
    WithdrawalPolicy {
        version: 7,
        enabled: true,
        incident: false,
        min: amount(100),
        max: amount(100_000),
        fee: FeeRule { fixed: amount(10), share_bps: 0, least: amount(0) },
        auto_approve: amount(1_000),
        auto_approve_daily: None,
        two_above: amount(10_000),
        many_above: amount(50_000),
        many: 4,
        daily_user: Some(amount(200_000)),
        daily_total: Some(amount(1_000_000)),
        velocity: Some(Velocity { count: 5, window_us: HOUR }),
        cooling_off_us: 24 * HOUR,
        book_only: false,
        quote_life_us: 0,
        when_short: WhenShort::Fail,
        life_us: USUAL_LIFE_US,
    }
}

fn facts() -> Facts {
    Facts {
        now: NOW,
        chain: Availability::Active,
        asset: Availability::Active,
        account: AccountStatus::Active,
        available: amount(1_000_000),
        not_final: amount(0),
        used_by_user: amount(0),
        auto_approved: amount(0),
        used_in_total: amount(0),
        recent: 0,
        house_wallet: false,
        own_address: false,
        in_book_since: Some(NOW.plus_micros(-48 * HOUR)),
        paid_since: None,
    }
}

fn asked(units: i64) -> Request {
    Request { amount: amount(units), most_fee: amount(1_000), terms: FeeTerms::Current }
}

/// What a policy, a request and facts that each differ a little from the usual ones come to.
fn verdict(change: impl FnOnce(&mut WithdrawalPolicy, &mut Request, &mut Facts)) -> Verdict {
    let (mut policy, mut request, mut facts) = (policy(), asked(500), facts());
    change(&mut policy, &mut request, &mut facts);
    policy.judge(&request, &facts).verdict
}

#[test]
fn what_is_usual_is_approved_and_costs_its_fee() {
    let judged = policy().judge(&asked(500), &facts());
    assert_eq!((judged.verdict, judged.rule, judged.version), (Verdict::Approved, "auto_approve", 7));
    assert_eq!(judged.fee, amount(10));
}

#[test]
fn each_limit_holds_at_itself_and_refuses_one_beyond() {
    type Change = fn(&mut WithdrawalPolicy, &mut Request, &mut Facts, i64);
    // The value that is just allowed, the one beyond it, how it is put in, and the refusal.
    let table: [(i64, i64, Change, WithdrawalRefusal); 12] = [
        (1, 0, |p, r, _, n| (p.min, p.fee.fixed, r.amount) = (amount(1), amount(0), amount(n)), InvalidAmount),
        (100, 99, |_, r, _, n| r.amount = amount(n), AmountTooSmall),
        (100_000, 100_001, |_, r, _, n| r.amount = amount(n), AmountTooLarge),
        (500, 501, |p, _, _, n| p.fee.fixed = amount(n), FeeAboveAmount),
        (10, 9, |_, r, _, n| r.most_fee = amount(n), FeeAboveAgreed),
        (24, 23, |_, _, f, n| f.in_book_since = Some(NOW.plus_micros(-n * HOUR)), DestinationCoolingOff),
        (4, 5, |_, _, f, n| f.recent = n, TooManyWithdrawals),
        (199_500, 199_501, |_, _, f, n| f.used_by_user = amount(n), DailyAmountExceeded),
        (999_500, 999_501, |_, _, f, n| f.used_in_total = amount(n), DailyTotalExceeded),
        (510, 509, |_, _, f, n| f.available = amount(n), InsufficientBalance),
        (490, 491, |_, _, f, n| (f.available, f.not_final) = (amount(1_000), amount(n)), DepositNotFinal),
        (i64::MAX - 500, i64::MAX - 499, |p, _, f, n| (p.daily_user, f.used_by_user) = (None, amount(n)), Overflow),
    ];
    for (allowed, beyond, put, refusal) in table {
        let at_limit = verdict(|p, r, f| put(p, r, f, allowed));
        assert!(!matches!(at_limit, Verdict::Refused(_)), "{refusal:?} at {allowed}: {at_limit:?}");
        assert_eq!(verdict(|p, r, f| put(p, r, f, beyond)), Verdict::Refused(refusal), "{refusal:?} at {beyond}");
    }
}

#[test]
fn each_switch_has_a_reason_of_its_own() {
    type Change = fn(&mut WithdrawalPolicy, &mut Facts);
    let table: [(Change, WithdrawalRefusal); 7] = [
        (|_, f| f.chain = Availability::Suspended, ChainSuspended),
        (|_, f| f.asset = Availability::Suspended, AssetSuspended),
        (|p, _| p.enabled = false, SwitchedOff),
        (|_, f| f.house_wallet = true, DestinationOurs),
        (|_, f| f.own_address = true, DestinationOwn),
        (|_, f| f.account = AccountStatus::Frozen, AccountFrozen),
        (|_, f| f.account = AccountStatus::Disabled, AccountDisabled),
    ];
    for (change, refusal) in table {
        assert_eq!(verdict(|p, _, f| change(p, f)), Verdict::Refused(refusal));
    }
}

#[test]
fn people_agree_by_the_amount_at_each_step_and_one_beyond() {
    let table = [
        (1_000, Verdict::Approved, "auto_approve", 0),
        (1_001, Verdict::People(1), "one_person", 1),
        (10_000, Verdict::People(1), "one_person", 1),
        (10_001, Verdict::People(2), "two_people", 2),
        (50_000, Verdict::People(2), "two_people", 2),
        (50_001, Verdict::People(4), "many_people", 4),
    ];
    for (units, expected, rule, people) in table {
        let judged = policy().judge(&asked(units), &facts());
        assert_eq!((judged.verdict, judged.rule, judged.verdict.people()), (expected, rule, people), "{units}");
        // In an incident a person looks at all of them, and no fewer people than on other days.
        let incident = WithdrawalPolicy { incident: true, ..policy() };
        let judged = incident.judge(&asked(units), &facts());
        assert_eq!((judged.verdict, judged.rule), (Verdict::Review(people.max(1)), "incident"), "{units}");
    }
}

/// Many small requests are as good as a large one.
#[test]
fn what_nobody_agreed_to_on_a_day_adds_up() {
    let verdict = |daily: Option<i64>, auto_approved: i64, units: i64| {
        let policy = WithdrawalPolicy { auto_approve_daily: daily.map(amount), ..policy() };
        policy.judge(&asked(units), &Facts { auto_approved: amount(auto_approved), ..facts() }).verdict
    };
    let table = [
        (None, 150_000, 1_000, Verdict::Approved),
        (Some(3_000), 2_000, 1_000, Verdict::Approved),
        (Some(3_000), 2_001, 1_000, Verdict::People(1)),
        (Some(3_000), 3_000, 100, Verdict::People(1)),
        (Some(3_000), 0, 10_001, Verdict::People(2)),
        (Some(3_000), i64::MAX, 100, Verdict::People(1)),
    ];
    for (daily, before, units, expected) in table {
        assert_eq!(verdict(daily, before, units), expected, "{daily:?} {before} {units}");
    }
    let small = WithdrawalPolicy { auto_approve_daily: Some(amount(999)), ..policy() };
    assert_eq!(small.check(), Err(PolicyError::Approvals));
    let short = WithdrawalPolicy { life_us: 59_999_999, ..policy() };
    assert_eq!(short.check(), Err(PolicyError::Life));
}

#[test]
fn a_destination_is_known_by_the_book_or_by_what_was_paid_to_it() {
    let old = Some(NOW.plus_micros(-24 * HOUR));
    let (young, never) = (Some(NOW), None);
    let unknown = Verdict::Refused(DestinationUnknown);
    let waits = Verdict::Refused(DestinationCoolingOff);
    let table = [
        // book only, cools off, in the book since, paid since
        (false, true, old, never, Verdict::Approved),
        (false, true, never, old, Verdict::Approved),
        (false, true, young, old, Verdict::Approved),
        (false, true, young, never, waits),
        (false, true, never, young, waits),
        (false, true, never, never, unknown),
        (false, false, never, never, Verdict::Approved),
        (true, false, never, old, unknown),
        (true, false, young, never, Verdict::Approved),
        (true, true, young, old, waits),
        (true, true, old, never, Verdict::Approved),
    ];
    for (book_only, cools_off, in_book_since, paid_since, expected) in table {
        let found = verdict(|p, _, f| {
            p.book_only = book_only;
            p.cooling_off_us = if cools_off { 24 * HOUR } else { 0 };
            (f.in_book_since, f.paid_since) = (in_book_since, paid_since);
        });
        assert_eq!(found, expected, "{book_only} {cools_off} {in_book_since:?} {paid_since:?}");
    }
}

#[test]
fn a_fee_is_fixed_and_a_share_rounded_up_and_never_below_the_least() {
    let fee = |fixed, share_bps, least, of| {
        FeeRule { fixed: amount(fixed), share_bps, least: amount(least) }.fee(amount(of)).map(Amount::units)
    };
    assert_eq!(fee(0, 0, 0, 500), Some(0));
    assert_eq!(fee(3, 10, 0, 1_000), Some(4));
    assert_eq!(fee(3, 10, 0, 1_001), Some(5), "a part of a unit counts as one");
    assert_eq!(fee(0, 1, 0, 1), Some(1));
    assert_eq!(fee(0, 1, 7, 1), Some(7));
    assert_eq!(fee(0, 10_000, 0, i64::MAX), Some(i64::MAX));
    assert_eq!(fee(1, 10_000, 0, i64::MAX), None);
}

#[test]
fn sums_that_do_not_fit_are_refused() {
    let huge = |p: &mut WithdrawalPolicy| {
        (p.max, p.daily_user, p.daily_total) = (Amount::MAX, None, None);
        p.auto_approve = amount(0);
    };
    let whole = verdict(|p, r, f| {
        huge(p);
        (p.fee.share_bps, r.amount, r.most_fee, f.available) = (10_000, Amount::MAX, Amount::MAX, Amount::MAX);
    });
    assert_eq!(whole, Verdict::Refused(Overflow), "the fee is beyond any balance");
    let both = verdict(|p, r, f| {
        huge(p);
        (r.amount, f.available) = (Amount::MAX, Amount::MAX);
    });
    assert_eq!(both, Verdict::Refused(Overflow), "amount and fee are");
}

#[test]
fn a_policy_that_makes_no_sense_is_found() {
    type Change = fn(&mut WithdrawalPolicy);
    let table: [(Change, PolicyError); 14] = [
        (|p| p.min = amount(0), PolicyError::Range),
        (|p| p.max = amount(99), PolicyError::Range),
        (|p| p.fee.fixed = amount(-1), PolicyError::Fee),
        (|p| p.fee.least = amount(-1), PolicyError::Fee),
        (|p| p.fee.share_bps = 10_001, PolicyError::Fee),
        (|p| p.auto_approve = amount(-1), PolicyError::Approvals),
        (|p| p.two_above = amount(999), PolicyError::Approvals),
        (|p| p.many_above = amount(9_999), PolicyError::Approvals),
        (|p| p.many = 2, PolicyError::Many),
        (|p| p.daily_user = Some(amount(99)), PolicyError::Daily),
        (|p| p.daily_total = Some(amount(99)), PolicyError::Daily),
        (|p| p.velocity = Some(Velocity { count: 0, window_us: 1 }), PolicyError::Velocity),
        (|p| p.velocity = Some(Velocity { count: 1, window_us: 0 }), PolicyError::Velocity),
        (|p| p.cooling_off_us = -1, PolicyError::CoolingOff),
    ];
    assert_eq!(policy().check(), Ok(()));
    for (change, expected) in table {
        let mut policy = policy();
        change(&mut policy);
        assert_eq!(policy.check(), Err(expected), "{policy:?}");
    }
}

proptest! {
    /// The fee is the exact share, rounded up; or it is refused.
    #[test]
    fn fees_are_exact(units in 0..=i64::MAX, share_bps in 0_u32..=10_000, fixed in 0..=i64::MAX, least in 0..=i64::MAX) {
        let rule = FeeRule { fixed: amount(fixed), share_bps, least: amount(least) };
        let exact = i128::from(fixed) + (i128::from(units) * i128::from(share_bps) + 9_999) / 10_000;
        let expected = i64::try_from(exact).ok().map(|fee| fee.max(least));
        prop_assert_eq!(rule.fee(amount(units)).map(Amount::units), expected);
    }

    /// Whatever is asked on whatever facts: what is taken is covered by money that is final.
    #[test]
    fn nothing_is_taken_that_is_not_covered(units: i64, most_fee: i64, available: i64, not_final in 0..=i64::MAX, used: i64, share_bps in 0_u32..=10_000) {
        let mut policy = policy();
        (policy.min, policy.max, policy.daily_user, policy.daily_total) = (amount(1), Amount::MAX, None, None);
        policy.fee.share_bps = share_bps;
        let facts = Facts { available: amount(available), not_final: amount(not_final), used_by_user: amount(used), ..facts() };
        let judged = policy.judge(&Request { amount: amount(units), most_fee: amount(most_fee), terms: FeeTerms::Current }, &facts);
        if !matches!(judged.verdict, Verdict::Refused(_)) {
            let held = i128::from(units) + i128::from(judged.fee.units());
            prop_assert!(units > 0 && judged.fee.units() >= 0 && judged.fee.units() <= most_fee);
            prop_assert!(held + i128::from(not_final) <= i128::from(available));
        }
    }
}

#[test]
fn a_quoted_fee_is_the_one_that_was_promised() {
    let dear = FeeRule { fixed: amount(100), share_bps: 0, least: amount(0) };
    let judged = policy().judge(&Request { terms: FeeTerms::Quoted(dear), ..asked(500) }, &facts());
    assert_eq!((judged.verdict, judged.fee), (Verdict::Approved, amount(100)));
    assert_eq!(verdict(|_, r, _| r.terms = FeeTerms::Expired), Verdict::Refused(QuoteExpired));
    // What else is wrong with the fee is looked at as ever.
    let agreed = |r: &mut Request, most: i64| (r.terms, r.most_fee) = (FeeTerms::Quoted(dear), amount(most));
    assert_eq!(verdict(|_, r, _| agreed(r, 99)), Verdict::Refused(FeeAboveAgreed));
    assert_eq!(verdict(|_, r, _| agreed(r, 100)), Verdict::Approved);
}

#[test]
fn a_promise_holds_as_long_as_it_can_have_been_given_and_no_longer() {
    let quote = FeeQuote { version: 3, expires: NOW.plus_micros(60) };
    let at = |micros| NOW.plus_micros(micros);
    // Now, the life of that version's promises, when the next version came, and whether it holds.
    for (now, life, superseded, holds) in [
        (60, 60, None, true),
        (61, 60, None, false),
        (0, 0, None, false),
        (50, 60, Some(0), true),
        (60, 60, Some(0), true),
        // A promise that says a later time than anybody can have been given.
        (60, 59, Some(0), false),
        (10, 60, Some(-50), true),
        (11, 60, Some(-50), false),
    ] {
        assert_eq!(quote.holds(at(now), life, superseded.map(at)), holds, "{now} {life} {superseded:?}");
    }
    let quoting = WithdrawalPolicy { quote_life_us: 60, ..policy() };
    assert_eq!(quoting.quote(NOW), Some(FeeQuote { version: 7, expires: at(60) }));
    assert_eq!(policy().quote(NOW), None);
    assert_eq!(WithdrawalPolicy { quote_life_us: -1, ..policy() }.check(), Err(PolicyError::QuoteLife));
    assert_eq!(WithdrawalPolicy { quote_life_us: 24 * HOUR + 1, ..policy() }.check(), Err(PolicyError::QuoteLife));
}
