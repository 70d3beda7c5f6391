//! Which coins a transaction spends.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use ::bitcoin::Amount;
use store::utxo::{Candidate, UtxoId};

use super::search::{Goal, Piece, UNITS, search};
use super::target::{Aim, Frame, ScriptKind, SpendError, Split, Tally, Target};

/// How the coins were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The inputs that had to be there are enough.
    Kept,
    /// Branch and bound: no change, least waste.
    Changeless,
    /// Branch and bound: least fee, that of spending the change included.
    LowestFee,
    /// The largest coins, until there is enough.
    LargestFirst,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Besides [`Target::kept`].
    pub chosen: Vec<UtxoId>,
    pub change: Option<u64>,
    pub fee: u64,
    /// Once signed, at most.
    pub weight: u64,
    pub strategy: Strategy,
}

/// The first of these that answers: the inputs that are there anyway; branch and bound without change; branch and bound
/// for a lower fee than that of the largest coins; the largest coins first, which finds something whenever there is
/// enough.
///
/// For a replacement or a child nothing is searched: it takes what it lacks from the largest coins.
pub fn select(candidates: &[Candidate], target: &Target) -> Result<Selection, SpendError> {
    let frame = Frame::of(target)?;
    if frame.kept.inputs > 0
        && let Some(split) = frame.split(frame.kept)
    {
        return Ok(Choice { frame: &frame, pool: &[] }.selection(&[], frame.permitted(split)?, Strategy::Kept));
    }
    let pool = pool(&frame, candidates);
    let choice = Choice { frame: &frame, pool: &pool };
    let largest = choice.largest_first();
    let found = match (&target.aim, &largest) {
        (Aim::Pay, Ok((_, split))) => choice.better(Some(frame.long_term_fee(*split))),
        // A choice without change may stay below the cap.
        (Aim::Pay, Err(SpendError::FeeOverCap { .. })) => choice.better(None),
        _ => None,
    };
    match found {
        Some(selection) => Ok(selection),
        None => largest.map(|(chosen, split)| choice.selection(&chosen, split, Strategy::LargestFirst)),
    }
}

/// For `Db::select_and_lease`. When it finds nothing, `refused` says why.
pub fn chooser<'a>(
    target: &'a Target,
    refused: &'a mut Option<SpendError>,
) -> impl FnMut(&[Candidate]) -> Option<Vec<UtxoId>> + 'a {
    move |candidates| match select(candidates, target) {
        Ok(selection) => {
            *refused = None;
            Some(selection.chosen)
        }
        Err(error) => {
            *refused = Some(error);
            None
        }
    }
}

#[derive(Clone, Copy)]
struct Usable {
    id: UtxoId,
    confirmed: bool,
    piece: Piece,
}

/// The coins that bring more than they cost, each once, in descending order of what they bring for their weight.
fn pool(frame: &Frame<'_>, candidates: &[Candidate]) -> Vec<Usable> {
    let rate = i128::from(frame.marginal_rate());
    let mut seen: BTreeSet<UtxoId> = frame.target.kept().iter().map(|coin| coin.id).collect();
    let usable = |candidate: &Candidate| {
        let weight = ScriptKind::of(candidate.kind)?.input_weight();
        let amount = u64::try_from(candidate.amount).ok().filter(|&amount| amount <= Amount::MAX_MONEY.to_sat())?;
        let effective = i128::from(amount) * UNITS - i128::from(weight) * rate;
        let wanted = effective > 0 && (candidate.confirmed || !frame.target.wants_confirmed());
        (wanted && seen.insert(candidate.id)).then_some(Usable {
            id: candidate.id,
            confirmed: candidate.confirmed,
            piece: Piece { amount, weight, effective },
        })
    };
    let mut pool: Vec<Usable> = candidates.iter().filter_map(usable).collect();
    pool.sort_by(|a, b| {
        let (one, other) = (&a.piece, &b.piece);
        let for_weight = (other.effective * i128::from(one.weight)).cmp(&(one.effective * i128::from(other.weight)));
        for_weight.then_with(|| (one.weight, !a.confirmed, a.id).cmp(&(other.weight, !b.confirmed, b.id)))
    });
    pool
}

struct Choice<'a> {
    frame: &'a Frame<'a>,
    pool: &'a [Usable],
}

impl Choice<'_> {
    /// What the searches find; `fee` is the long-term fee that a choice with change has to beat.
    fn better(&self, fee: Option<i128>) -> Option<Selection> {
        let changeless = || Some((self.searched(Goal::Changeless, None)?, Strategy::Changeless));
        let lowest_fee = || Some((self.searched(Goal::LowestFee, fee)?, Strategy::LowestFee));
        let ((chosen, split), strategy) = changeless().or_else(lowest_fee)?;
        Some(self.selection(&chosen, split, strategy))
    }

    /// The result of a search, whose money is counted again: a search is not trusted with it.
    fn searched(&self, goal: Goal, below: Option<i128>) -> Option<(Vec<usize>, Split)> {
        let pieces: Vec<Piece> = self.pool.iter().map(|usable| usable.piece).collect();
        let found = search(self.frame, &pieces, goal, below)?;
        let inputs = found.iter().try_fold(self.frame.kept, |tally, &at| {
            let piece = pieces.get(at)?;
            Some(tally.with(piece.amount, piece.weight))
        })?;
        let split = self.frame.permitted(self.frame.split(inputs)?).ok()?;
        Some((found, split))
    }

    fn largest_first(&self) -> Result<(Vec<usize>, Split), SpendError> {
        let mut order: Vec<usize> = (0..self.pool.len()).collect();
        order.sort_by_key(|&at| {
            let usable = &self.pool[at];
            (Reverse(usable.piece.effective), !usable.confirmed, usable.id)
        });
        let mut inputs: Tally = self.frame.kept;
        for (count, &at) in order.iter().enumerate() {
            let piece = &self.pool[at].piece;
            inputs = inputs.with(piece.amount, piece.weight);
            if let Some(split) = self.frame.split(inputs) {
                order.truncate(count + 1);
                return Ok((order, self.frame.permitted(split)?));
            }
        }
        Err(SpendError::InsufficientFunds { available: inputs.held, missing: self.frame.missing(inputs) })
    }

    fn selection(&self, chosen: &[usize], split: Split, strategy: Strategy) -> Selection {
        let Split { change, fee, weight } = split;
        let chosen = chosen.iter().filter_map(|&at| self.pool.get(at)).map(|usable| usable.id);
        Selection { chosen: chosen.collect(), change, fee, weight, strategy }
    }
}
