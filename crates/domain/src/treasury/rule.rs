//! Rules as data: a condition on a balance, how urgent it is, and how often it may act.

use std::collections::HashMap;
use std::fmt;

use super::CoinId;
use crate::raw::RawAmount;
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleId {
    Gas(i64),
    Sweep(i64),
}

impl RuleId {
    pub const fn number(self) -> i64 {
        match self {
            Self::Gas(number) | Self::Sweep(number) => number,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Above,
    AtLeast,
    Below,
    AtMost,
    Equal,
    Unequal,
}

impl Operator {
    pub const ALL: [Self; 6] = [Self::Above, Self::AtLeast, Self::Below, Self::AtMost, Self::Equal, Self::Unequal];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Above => ">",
            Self::AtLeast => ">=",
            Self::Below => "<",
            Self::AtMost => "<=",
            Self::Equal => "==",
            Self::Unequal => "!=",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operator| operator.as_str() == text)
    }

    fn holds(self, has: RawAmount, threshold: RawAmount) -> bool {
        match self {
            Self::Above => has > threshold,
            Self::AtLeast => has >= threshold,
            Self::Below => has < threshold,
            Self::AtMost => has <= threshold,
            Self::Equal => has == threshold,
            Self::Unequal => has != threshold,
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// When a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub operator: Operator,
    pub threshold: RawAmount,
}

impl Condition {
    /// Whether gas of this amount ends the need: an address that has just been given it must not ask again. Conditions that more of the coin
    /// does not end would be followed for ever.
    pub fn ends_with(&self, amount: RawAmount) -> bool {
        match self.operator {
            Operator::Below | Operator::AtMost | Operator::Equal => !self.holds(amount),
            Operator::Above | Operator::AtLeast | Operator::Unequal => false,
        }
    }

    pub fn holds(&self, has: RawAmount) -> bool {
        self.operator.holds(has, self.threshold)
    }
}

/// How urgent a rule's jobs are, and how often it makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The lowest goes first, of rules and of jobs.
    pub priority: i64,
    /// For one address: from the end of one job to the next.
    pub cool_down_us: i64,
    /// Over all addresses.
    pub most_per_hour: u32,
}

/// An address whose balance of the chain's own coin meets the condition gets so much of it, if there is something to sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GasRule {
    pub id: RuleId,
    pub condition: Condition,
    pub amount: RawAmount,
    pub pace: Pace,
}

/// An address whose balance of a coin meets the condition is emptied of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepRule {
    pub id: RuleId,
    pub coin: CoinId,
    pub condition: Condition,
    /// Hundredths of a percent of the value that bringing it home may cost. `None`: whatever it costs.
    pub most_cost_bps: Option<u32>,
    pub pace: Pace,
}

/// How many jobs each rule has made in the last hour. Decisions of one pass count on.
#[derive(Clone, Debug, Default)]
pub struct Budget(HashMap<RuleId, u32>);

impl Budget {
    pub fn new(used: impl IntoIterator<Item = (RuleId, u32)>) -> Self {
        Self(used.into_iter().collect())
    }

    /// False: the rule has made as many as it may.
    pub(super) fn take(&mut self, rule: RuleId, pace: &Pace) -> bool {
        let used = self.0.entry(rule).or_default();
        if *used >= pace.most_per_hour {
            return false;
        }
        *used += 1;
        true
    }
}

/// After a job that failed a rule rests at least so long, however short its cool-down is.
const AFTER_FAILURE_US: i64 = 60_000_000;
/// Nothing rests longer for its failures.
const LONGEST_REST_US: i64 = 24 * 3_600 * 1_000_000;

/// When an address may have its next job of a rule, if one has ended then. `None`: now. It rests twice as long for each job in a row that
/// failed: what is refused today may burn a fee each time that it is tried.
pub(super) fn resting(ended: Timestamp, failures: u32, pace: &Pace, now: Timestamp) -> Option<Timestamp> {
    let cool_down = pace.cool_down_us;
    let rest = match failures {
        0 => cool_down,
        _ => {
            let longer = cool_down.max(AFTER_FAILURE_US).saturating_mul(1 << failures.min(20));
            longer.min(LONGEST_REST_US).max(cool_down)
        }
    };
    let until = ended.plus_micros(rest);
    (until > now).then_some(until)
}

#[cfg(test)]
mod tests {
    use ruint::aliases::U256;

    use super::*;

    fn raw(units: u64) -> RawAmount {
        RawAmount::from_u256(U256::from(units))
    }

    #[test]
    fn operators_are_those_of_the_source_and_read_back() {
        let meant = [(">", [false, false, true]), (">=", [false, true, true]), ("<", [true, false, false])];
        let meant = meant.into_iter().chain([
            ("<=", [true, true, false]),
            ("==", [false, true, false]),
            ("!=", [true, false, true]),
        ]);
        for (text, holds) in meant {
            let operator = Operator::parse(text).unwrap();
            assert_eq!(operator.to_string(), text);
            let condition = Condition { operator, threshold: raw(5) };
            assert_eq!([4, 5, 6].map(|has| condition.holds(raw(has))), holds, "{text}");
        }
        for text in ["", "=", "=>", "<>", " <"] {
            assert_eq!(Operator::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn gas_ends_the_need_for_gas() {
        let ends = |operator: &str, threshold, amount| {
            Condition { operator: Operator::parse(operator).unwrap(), threshold: raw(threshold) }.ends_with(raw(amount))
        };
        for (operator, threshold, amount) in [("<", 2, 10), ("<", 2, 2), ("<=", 2, 3), ("==", 0, 1)] {
            assert!(ends(operator, threshold, amount), "{operator} {threshold}: {amount}");
        }
        for (operator, threshold, amount) in
            [("<", 2, 1), ("<=", 2, 2), ("==", 5, 5), (">", 1, 40), (">=", 0, 40), ("!=", 40, 40)]
        {
            assert!(!ends(operator, threshold, amount), "{operator} {threshold}: {amount}");
        }
    }

    #[test]
    fn a_rule_makes_so_many_jobs_in_an_hour_and_no_more() {
        let pace = Pace { priority: 1, cool_down_us: 10, most_per_hour: 2 };
        let mut budget = Budget::new([(RuleId::Gas(1), 1)]);
        assert!(budget.take(RuleId::Gas(1), &pace));
        assert!(!budget.take(RuleId::Gas(1), &pace));
        assert!(
            budget.take(RuleId::Sweep(1), &pace)
                && budget.take(RuleId::Sweep(1), &pace)
                && !budget.take(RuleId::Sweep(1), &pace)
        );
        let at = Timestamp::from_micros;
        assert_eq!(resting(at(100), 0, &pace, at(109)), Some(at(110)));
        assert_eq!(resting(at(100), 0, &pace, at(110)), None);
        let (minute, day) = (60_000_000, 24 * 3_600_000_000);
        let until = |failures| resting(at(0), failures, &pace, at(1)).map(Timestamp::micros);
        assert_eq!([1, 2, 3].map(until), [2, 4, 8].map(|minutes| Some(minutes * minute)));
        assert_eq!([11, 64, u32::MAX].map(until), [Some(day); 3], "a day at most");
        let slow = Pace { cool_down_us: 2 * day, ..pace };
        assert_eq!(resting(at(0), 3, &slow, at(1)), Some(at(2 * day)), "but not less than its own");
    }
}
