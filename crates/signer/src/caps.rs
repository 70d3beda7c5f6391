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

/// By group and [`Counter::text`], then by minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentByMinute(BTreeMap<String, BTreeMap<i64, RawText>>);

fn key(group: &GroupId, counter: &str) -> String {
    // No group's name contains a slash.
    format!("{group}/{counter}")
}

impl SpentByMinute {
    pub fn add(&mut self, group: &GroupId, counter: &str, amount: RawAmount, at: Timestamp) {
        if amount == RawAmount::ZERO {
            return;
        }
        let minute = at.micros().div_euclid(MINUTE_US);
        let minutes = self.0.entry(key(group, counter)).or_default();
        let sum = minutes.entry(minute).or_default();
        sum.0 = sum.0.checked_add(amount).unwrap_or(RawAmount::MAX);
        *minutes = minutes.split_off(&(minute - DAY));
    }

    pub fn spent(&self, group: &GroupId, counter: &Counter, now: Timestamp) -> Spent {
        let Some(minutes) = self.0.get(&key(group, &counter.text())) else { return Spent::default() };
        let minute = now.micros().div_euclid(MINUTE_US);
        let add = |sum: RawAmount, one: RawAmount| sum.checked_add(one).unwrap_or(RawAmount::MAX);
        let mut spent = Spent::default();
        for (at, amount) in minutes.range(minute - DAY..) {
            spent.day = add(spent.day, amount.0);
            if *at >= minute - HOUR {
                spent.hour = add(spent.hour, amount.0);
            }
        }
        spent
    }
}
