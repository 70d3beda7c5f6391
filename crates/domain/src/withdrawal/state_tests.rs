use std::collections::BTreeSet;

use proptest::prelude::*;

use super::WithdrawalEvent::*;
use super::*;

/// What is not here is illegal.
const TABLE: &str = "
    pending        Approved       approved
    pending        Doubted        manual_review
    pending        Refused        rejected
    pending        Cancelled      cancelled
    manual_review  Approved       approved
    manual_review  Refused        rejected
    manual_review  Cancelled      cancelled
    approved       Doubted        manual_review
    approved       Refused        rejected
    approved       Cancelled      cancelled
    approved       Queued         queued
    approved       SettledInside  completed
    queued         Paid           completed
    queued         NeverPaid      failed
    queued         Unfunded       approved
    completed      TakenBack      failed
    completed      JudgedUnpaid   failed
    completed      JudgedPaid     completed
    pending        SignerKnowsMore manual_review
    pending        Expired        failed
    manual_review  Expired        failed
    manual_review  JudgedPaid     completed
    manual_review  JudgedUnpaid   failed
    approved       SignerKnowsMore manual_review
    approved       Expired        failed
    queued         SignerKnowsMore manual_review
    pending        ChangedThere   manual_review
    manual_review  ChangedThere   manual_review
    approved       ChangedThere   manual_review
    queued         ChangedThere   queued";

fn pairs() -> impl Iterator<Item = (WithdrawalState, WithdrawalEvent)> {
    WithdrawalState::ALL.into_iter().flat_map(|state| WithdrawalEvent::ALL.map(|event| (state, event)))
}

#[test]
fn every_state_with_every_event_is_as_the_table_says() {
    let rows: Vec<Vec<&str>> =
        TABLE.lines().map(|line| line.split_whitespace().collect()).filter(|row: &Vec<&str>| row.len() == 3).collect();
    assert_eq!(rows.len(), 30);
    for (state, event) in pairs() {
        let expected = rows.iter().find(|row| row[0] == state.as_str() && row[1] == format!("{event:?}"));
        let expected = expected.map(|row| row[2]).ok_or(IllegalStep { state, event });
        assert_eq!(state.next(event).map(WithdrawalState::as_str), expected, "{state} with {event:?}");
    }
}

/// The race by which others paid twice: what has a job is not cancelled, refused, approved or queued again.
#[test]
fn from_queued_on_only_the_job_decides() {
    // A doubt changes nothing at once.
    assert_eq!(WithdrawalState::Queued.next(ChangedThere), Ok(WithdrawalState::Queued));
    assert!(WithdrawalState::Completed.next(ChangedThere).is_err());
    for event in [Approved, Doubted, Refused, Cancelled, Queued, SettledInside, Expired, JudgedPaid, JudgedUnpaid] {
        assert!(WithdrawalState::Queued.next(event).is_err(), "{event:?}");
        let judged = matches!(event, JudgedPaid | JudgedUnpaid);
        assert_eq!(WithdrawalState::Completed.next(event).is_ok(), judged, "{event:?}");
    }
}

/// Or when two people say so of one whose payment its chain took back, which the store looks at.
#[test]
fn what_was_completed_fails_by_proof_alone() {
    let leads = |event: WithdrawalEvent, to| WithdrawalState::Completed.next(event) == Ok(to);
    let to = |state| WithdrawalEvent::ALL.into_iter().filter(|event| leads(*event, state)).collect::<Vec<_>>();
    assert_eq!(to(WithdrawalState::Failed), [TakenBack, JudgedUnpaid]);
    // What two people judge paid stays so, and no money moves.
    assert_eq!(to(WithdrawalState::Completed), [JudgedPaid]);
    assert_eq!(WithdrawalState::Completed.money_to(WithdrawalState::Completed), MoneyStep::Stays);
    let gives_back: Vec<(WithdrawalState, WithdrawalEvent)> = pairs()
        .filter(|(state, event)| state.next(*event).is_ok_and(|next| state.money_to(next) == MoneyStep::GiveBack))
        .collect();
    assert_eq!(gives_back, [(WithdrawalState::Completed, TakenBack), (WithdrawalState::Completed, JudgedUnpaid)]);
}

#[test]
fn every_state_but_the_released_ones_can_come_to_an_end() {
    for from in WithdrawalState::ALL {
        let (mut reached, mut open) = (BTreeSet::from([from]), vec![from]);
        while let Some(state) = open.pop() {
            for next in WithdrawalEvent::ALL.into_iter().filter_map(|event| state.next(event).ok()) {
                if reached.insert(next) {
                    open.push(next);
                }
            }
        }
        assert!(reached.iter().any(|state| !state.holds()), "{from} is stranded");
        assert_eq!(reached.len() == 1, from.is_released(), "{from}");
    }
}

#[test]
fn words_are_read_back() {
    for state in WithdrawalState::ALL {
        assert_eq!(WithdrawalState::parse(state.as_str()), Some(state));
    }
    for text in ["", "Pending", "done", "processing"] {
        assert_eq!(WithdrawalState::parse(text), None, "{text:?}");
    }
}

proptest! {
    /// Whatever happens in whatever order: the hold ends at most once, it has ended exactly when the state holds nothing, and the customer has the
    /// money back exactly when the state says so.
    #[test]
    fn the_hold_ends_once_on_every_way(events in prop::collection::vec(0..WithdrawalEvent::ALL.len(), 0..40)) {
        let (mut state, mut ended, mut customer_has) = (WithdrawalState::Pending, 0, false);
        for event in events.into_iter().map(|at| WithdrawalEvent::ALL[at]) {
            let Ok(next) = state.next(event) else { continue };
            match state.money_to(next) {
                MoneyStep::Stays => {}
                MoneyStep::Release => {
                    prop_assert!(!customer_has);
                    ended += 1;
                    customer_has = true;
                }
                MoneyStep::Settle => ended += 1,
                MoneyStep::GiveBack => {
                    prop_assert!(ended == 1 && !customer_has, "only what was paid out once is given back, once");
                    customer_has = true;
                }
            }
            state = next;
            prop_assert!(ended <= 1);
            prop_assert_eq!(ended == 0, state.holds());
            prop_assert_eq!(customer_has, state.is_released());
        }
    }
}
