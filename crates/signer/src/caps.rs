//! What each group has sent, by the minute. An hour is the last sixty whole minutes and the one that runs, so a window is
//! never shorter than its name says, and there is no stroke of the clock at which twice the cap can go out.

use std::collections::BTreeMap;

use domain::{RawAmount, Timestamp};
use serde::{Deserialize, Serialize};

use crate::names::GroupId;
use crate::policy::judge::{Counter, Spent};
use crate::text::RawText;

const MINUTE_US: i64 = 60_000_000;
const HOUR: i64 = 60;
const DAY: i64 = 24 * HOUR;

/// One group and counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) minutes: BTreeMap<i64, RawText>,
    /// The same by whole hours, so that a day is not a sum of 1,440 minutes.
    pub(crate) hours: BTreeMap<i64, RawText>,
}

/// By chain, group and [`Counter::text`]: the keys of an EVM group are the same on every EVM chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentByMinute(pub(crate) BTreeMap<String, Window>);

fn key(chain: &str, group: &GroupId, counter: &str) -> String {
    // No name of a chain or a group contains a slash.
    format!("{chain}/{group}/{counter}")
}

fn add(sums: &mut BTreeMap<i64, RawText>, at: i64, amount: RawAmount) {
    let sum = sums.entry(at).or_default();
    sum.0 = sum.0.checked_add(amount).unwrap_or(RawAmount::MAX);
}

fn sum(sums: &BTreeMap<i64, RawText>, range: impl std::ops::RangeBounds<i64>) -> RawAmount {
    let amounts = sums.range(range).map(|(_, amount)| amount.0);
    amounts.fold(RawAmount::ZERO, |sum, amount| sum.checked_add(amount).unwrap_or(RawAmount::MAX))
}

impl SpentByMinute {
    pub fn add(&mut self, chain: &str, group: &GroupId, counter: &str, amount: RawAmount, at: Timestamp) {
        if amount == RawAmount::ZERO {
            return;
        }
        let minute = at.micros().div_euclid(MINUTE_US);
        let window = self.0.entry(key(chain, group, counter)).or_default();
        add(&mut window.minutes, minute, amount);
        add(&mut window.hours, minute.div_euclid(HOUR), amount);
        window.minutes = window.minutes.split_off(&(minute - DAY));
        window.hours = window.hours.split_off(&(minute - DAY).div_euclid(HOUR));
    }

    /// Nothing is counted later than `now`: the signer's own clock does not go back.
    pub fn spent(&self, chain: &str, group: &GroupId, counter: &Counter, now: Timestamp) -> Spent {
        let Some(window) = self.0.get(&key(chain, group, &counter.text())) else { return Spent::default() };
        let minute = now.micros().div_euclid(MINUTE_US);
        let first = minute - DAY;
        let whole = first.div_euclid(HOUR) + 1;
        let rest = sum(&window.minutes, first..whole * HOUR);
        Spent {
            hour: sum(&window.minutes, minute - HOUR..),
            day: sum(&window.hours, whole..).checked_add(rest).unwrap_or(RawAmount::MAX),
        }
    }
}
