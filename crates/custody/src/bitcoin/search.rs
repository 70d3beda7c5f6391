//! Branch and bound over the coins, through `bdk_coin_select`.
//!
//! That crate walks the tree; this module says what each node of the tree is worth. The metrics of the crate reckon in
//! `f32`, which at 10 BTC is wrong by 64 satoshi, more than some transactions cost, and one of them asserts what
//! rounding can break. So the metrics here are integers, and reach the walk as the *bits* of an `f32`: positive floats
//! are in the order of their bits, the crate only compares them, and nothing is rounded.

use bdk_coin_select::float::Ordf32;
use bdk_coin_select::{BnbMetric, Candidate, CoinSelector};
use tx::bitcoin::MOST_WEIGHT;

use super::target::{Frame, Split, Tally};

/// A coin that may be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub amount: u64,
    pub weight: u64,
    /// Its amount less what spending it costs, in satoshi times [`UNITS`]. Positive.
    pub effective: i128,
}

/// Rates are per 1,000 virtual bytes, which are 4,000 weight units: weight times rate is satoshi times this.
pub(super) const UNITS: i128 = 4_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// No change, and the least waste: what the inputs cost now beyond what they would cost in quiet times, and what
    /// is given away because it is too little to be change.
    Changeless,
    /// The least fee, that of spending the change included.
    LowestFee,
}

/// Each round of the walk copies the list of all coins. A search may copy so many coins in all its rounds together,
/// which takes some tens of milliseconds.
const WORK: usize = 250_000;
/// The fewest and the most rounds of a search, whatever [`WORK`] would allow for that many coins.
const ROUNDS: (usize, usize) = (50, 4_000);

/// Positions of the best choice that was found in bounded time, if it is worth less than `below`. `pieces` are in
/// descending order of what they bring for their weight.
pub(super) fn search(frame: &Frame<'_>, pieces: &[Piece], goal: Goal, below: Option<i128>) -> Option<Vec<usize>> {
    // The walk looks at the value of a candidate only to find equal ones, and its time grows with the square of their
    // number: a wallet of a thousand equal deposits took a minute. So each candidate has its position as its value, and
    // `bound` looks for equal coins instead.
    let candidates: Vec<Candidate> = (0_u64..)
        .zip(pieces)
        .map(|(position, piece)| Candidate { value: position, weight: piece.weight, input_count: 1, is_segwit: true })
        .collect();
    let rounds = (WORK / pieces.len().max(1)).clamp(ROUNDS.0, ROUNDS.1);
    let mut selector = CoinSelector::new(&candidates);
    selector.run_bnb(Metric::of(frame, pieces, goal, below), rounds).ok()?;
    Some(selector.selected_indices().iter().copied().collect())
}

struct Metric<'a> {
    frame: &'a Frame<'a>,
    pieces: &'a [Piece],
    goal: Goal,
    below: Option<i128>,
    /// What the pieces from a position on bring and weigh together.
    rest: Vec<(i128, u64)>,
    /// How much more a weight unit costs now than in quiet times, per 4,000 units.
    premium: i128,
}

impl<'a> Metric<'a> {
    fn of(frame: &'a Frame<'a>, pieces: &'a [Piece], goal: Goal, below: Option<i128>) -> Self {
        let mut rest = vec![(0, 0)];
        let mut sum = (0_i128, 0_u64);
        for piece in pieces.iter().rev() {
            sum = (sum.0 + piece.effective, sum.1.saturating_add(piece.weight));
            rest.push(sum);
        }
        rest.reverse();
        let costs = frame.target.costs;
        let premium = i128::from(costs.rate) - i128::from(costs.long_term_rate);
        Self { frame, pieces, goal, below, rest, premium }
    }

    fn tally(&self, selector: &CoinSelector<'_>) -> Tally {
        let chosen = selector.selected_indices().iter().filter_map(|&at| self.pieces.get(at));
        chosen.fold(self.frame.kept, |tally, piece| tally.with(piece.amount, piece.weight))
    }

    /// Whether the choice takes a coin and leaves an equal one before it. Such a choice need not be walked: the one
    /// that takes the first of the two instead is worth the same.
    fn has_a_twin(&self, selector: &CoinSelector<'_>, next: usize) -> bool {
        let (Some(last), Some(before)) = (next.checked_sub(1), next.checked_sub(2)) else { return false };
        let same = match (self.pieces.get(last), self.pieces.get(before)) {
            (Some(one), Some(other)) => (one.amount, one.weight) == (other.amount, other.weight),
            _ => false,
        };
        same && selector.is_selected(last) && selector.banned().contains(&before)
    }

    fn is_wanted(&self, worth: i128) -> bool {
        self.below.is_none_or(|below| worth < below)
    }

    fn waste(&self, weight: u64) -> i128 {
        (i128::from(weight) * self.premium).div_euclid(UNITS)
    }

    fn worth(&self, inputs: Tally, split: Split) -> Option<i128> {
        if split.weight > MOST_WEIGHT {
            return None;
        }
        match (self.goal, split.change) {
            (Goal::Changeless, Some(_)) => None,
            (Goal::Changeless, None) => {
                let given_away = split.fee.saturating_sub(self.frame.least_fee(split.weight));
                Some(self.waste(inputs.weight) + i128::from(given_away))
            }
            (Goal::LowestFee, _) => Some(self.frame.long_term_fee(split)),
        }
    }

    /// The least that any choice can be worth that has these inputs and some of those from `next` on.
    fn least(&self, inputs: Tally, next: usize) -> Option<i128> {
        match (self.frame.split(inputs), self.goal) {
            // Further inputs would only make the change larger.
            (Some(Split { change: Some(_), .. }), Goal::Changeless) => None,
            (Some(_), Goal::Changeless) => Some(self.least_waste(inputs.weight, next)),
            (Some(split), Goal::LowestFee) => {
                // A choice without change may give away more than a further input and change would cost.
                let changed = self.frame.least_fee(self.frame.weight(inputs, true));
                let changed = i128::from(changed) + i128::from(self.frame.spend_cost);
                Some(self.worth(inputs, split)?.min(changed))
            }
            (None, goal) => {
                let more = self.least_more(inputs, next)?;
                Some(match goal {
                    Goal::Changeless => self.least_waste(inputs.weight.saturating_add(more), next),
                    Goal::LowestFee => {
                        let weight = i128::from(self.frame.weight(inputs, false)) + i128::from(more);
                        weight * i128::from(self.frame.target.costs.rate) / UNITS
                    }
                })
            }
        }
    }

    /// Waste grows with every input when fees are high, and shrinks when they are low.
    fn least_waste(&self, weight: u64, next: usize) -> i128 {
        let rest = self.rest.get(next).map_or(0, |rest| rest.1);
        self.waste(weight).min(self.waste(weight.saturating_add(rest)))
    }

    /// The least weight of inputs that can still make up what is missing: of the piece that brings most for its weight,
    /// as much as is needed. `None`: all together cannot.
    fn least_more(&self, inputs: Tally, next: usize) -> Option<u64> {
        // A fee is rounded up to whole virtual bytes and to whole satoshi, which makes a difference of less than this.
        let rounding = UNITS + 4 * i128::from(self.frame.target.costs.rate);
        let missing = i128::from(self.frame.missing(inputs)) * UNITS - rounding;
        let rest = self.rest.get(next).map_or(0, |rest| rest.0);
        if rest < missing {
            return None;
        }
        let best = self.pieces.get(next)?;
        u64::try_from(missing.max(0) * i128::from(best.weight) / best.effective.max(1)).ok()
    }
}

impl BnbMetric for Metric<'_> {
    fn score(&mut self, selector: &CoinSelector<'_>) -> Option<Ordf32> {
        let inputs = self.tally(selector);
        let split = self.frame.split(inputs)?;
        self.worth(inputs, split).filter(|&worth| self.is_wanted(worth)).map(ranked)
    }

    fn bound(&mut self, selector: &CoinSelector<'_>) -> Option<Ordf32> {
        // The walk decides about one piece after the other, in their order.
        let next = selector.selected_indices().len() + selector.banned().len();
        if self.has_a_twin(selector, next) {
            return None;
        }
        self.least(self.tally(selector), next).filter(|&least| self.is_wanted(least)).map(ranked)
    }
}

/// The order of satoshi as an order of floats: the number becomes the bits of a positive, finite float.
fn ranked(satoshi: i128) -> Ordf32 {
    // Waste may be negative, so zero lies in the middle of the bits that a positive, finite float can have.
    const ZERO: i128 = 1 << 30;
    let shifted = satoshi.saturating_add(ZERO).clamp(0, i128::from(f32::MAX.to_bits()));
    Ordf32(f32::from_bits(u32::try_from(shifted).unwrap_or(f32::MAX.to_bits())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_exact() {
        let amounts = [i128::MIN, -2_000_000_000, -1_000_001, -1, 0, 1, 2, 16_777_216, 16_777_217, 1_000_000_000];
        for pair in amounts.windows(2) {
            assert!(pair[0] < -(1 << 30) && pair[1] < -(1 << 30) || ranked(pair[0]) < ranked(pair[1]), "{pair:?}");
        }
        assert!(ranked(i128::MAX).0.is_finite());
    }
}
