//! Which transactions lost their inputs to others, and the order in which all are stored.
//!
//! A transaction that lost is stored right before the one that took its inputs, as unconfirmed; that one then makes it
//! replaced or failed by the store's own rules, so its history is the one that it would have had here.

use std::collections::{BTreeSet, HashMap, HashSet};

use store::utxo::{Hash, Imported, NewTx, OutPoint};

/// A transaction with what its source says of it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub tx: NewTx,
    pub standing: Standing,
    /// When the source first heard of it. Its unit is the source's: it is only compared.
    pub seen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// `position`: its place in the block, if the source tells.
    Confirmed { block: (u32, Hash, u32), position: u32 },
    /// Valid. Core keeps some transactions that are in no mempool, and still holds their inputs for spent.
    Unconfirmed { in_mempool: bool },
    /// The source does not hold it for valid any more, for this reason.
    Invalid(&'static str),
}

impl Standing {
    pub const fn is_valid(self) -> bool {
        match self {
            Self::Confirmed { .. } | Self::Unconfirmed { .. } => true,
            Self::Invalid(_) => false,
        }
    }
}

/// The valid transaction that spends each output.
pub(super) fn spenders(known: &HashMap<Hash, Known>) -> HashMap<OutPoint, Hash> {
    let valid = known.values().filter(|known| known.standing.is_valid());
    valid.flat_map(|known| known.tx.inputs.iter().map(|input| (*input, known.tx.hash))).collect()
}

/// All of them in the order in which they are stored, and those that are left out with the reason.
pub(super) fn settle(mut known: HashMap<Hash, Known>) -> (Vec<Imported>, Vec<(Hash, &'static str)>) {
    let order = parents_first(&known, |known| known.seen);
    let rank = |hash: &Hash| match known[hash].standing {
        Standing::Confirmed { block, position } => Some((0, block.0, position)),
        Standing::Unconfirmed { .. } => Some((1, 0, 0)),
        Standing::Invalid(_) => None,
    };
    let mut valid: Vec<Hash> = order.iter().filter(|hash| rank(hash).is_some()).copied().collect();
    // Stable: within a rank parents stay before their children.
    valid.sort_by_cached_key(rank);
    let places: HashMap<Hash, usize> = valid.iter().enumerate().map(|(place, hash)| (*hash, place)).collect();

    // A transaction that lost goes before the place of the one that took its input, or to the place of a parent that
    // lost.
    let spenders = spenders(&known);
    let mut lost: HashMap<Hash, usize> = HashMap::new();
    let mut before: Vec<Vec<Hash>> = vec![Vec::new(); valid.len()];
    let mut left_out = Vec::new();
    for hash in order {
        let Known { tx, standing: Standing::Invalid(reason), .. } = &known[&hash] else { continue };
        let winner = |input: &OutPoint| spenders.get(input).and_then(|spender| places.get(spender)).copied();
        let place = tx.inputs.iter().flat_map(|input| [winner(input), lost.get(&input.hash).copied()]).flatten().min();
        match place.filter(|_| !tx.coinbase) {
            Some(place) => {
                lost.insert(hash, place);
                before[place].push(hash);
            }
            None => left_out.push((hash, *reason)),
        }
    }
    left_out.sort_unstable();

    let hashes = before.into_iter().zip(valid).flat_map(|(losers, hash)| losers.into_iter().chain([hash]));
    let given = hashes.filter_map(|hash| known.remove(&hash)).map(|known| Imported {
        lost: !known.standing.is_valid(),
        tx: known.tx,
        block: match known.standing {
            Standing::Confirmed { block, .. } => Some(block),
            Standing::Unconfirmed { .. } | Standing::Invalid(_) => None,
        },
    });
    (given.collect(), left_out)
}

/// Each after the transactions whose outputs it spends; of those that could be next, the lowest key.
pub(super) fn parents_first<K: Ord>(known: &HashMap<Hash, Known>, key: impl Fn(&Known) -> K) -> Vec<Hash> {
    let mut children: HashMap<Hash, Vec<&Known>> = HashMap::new();
    let mut waits_for: HashMap<Hash, usize> = HashMap::new();
    let mut next: BTreeSet<(K, Hash)> = BTreeSet::new();
    for known_tx in known.values() {
        let parents: HashSet<Hash> = known_tx.tx.inputs.iter().map(|input| input.hash).collect();
        let parents: Vec<Hash> = parents.into_iter().filter(|parent| known.contains_key(parent)).collect();
        if parents.is_empty() {
            next.insert((key(known_tx), known_tx.tx.hash));
        }
        waits_for.insert(known_tx.tx.hash, parents.len());
        parents.into_iter().for_each(|parent| children.entry(parent).or_default().push(known_tx));
    }
    let mut ordered = Vec::with_capacity(known.len());
    while let Some((_, hash)) = next.pop_first() {
        ordered.push(hash);
        for child in children.remove(&hash).into_iter().flatten() {
            let waits = waits_for.entry(child.tx.hash).or_default();
            *waits = waits.saturating_sub(1);
            if *waits == 0 {
                next.insert((key(child), child.tx.hash));
            }
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u8) -> Hash {
        Hash([number; 32])
    }

    fn known(number: u8, inputs: &[(u8, u32)], standing: Standing, seen: u64) -> (Hash, Known) {
        let inputs = inputs.iter().map(|(parent, index)| OutPoint { hash: hash(*parent), index: *index }).collect();
        let tx = NewTx { hash: hash(number), raw: Vec::new(), coinbase: false, inputs, outputs: Vec::new() };
        (hash(number), Known { tx, standing, seen })
    }

    const fn at(height: u32, position: u32) -> Standing {
        Standing::Confirmed { block: (height, Hash([200; 32]), 0), position }
    }

    const WAITS: Standing = Standing::Unconfirmed { in_mempool: true };

    fn numbers(given: &[Imported]) -> Vec<u8> {
        given.iter().map(|given| given.tx.hash.0[0]).collect()
    }

    #[test]
    fn blocks_come_first_then_what_waits_and_losers_before_their_winners() {
        let all = HashMap::from([
            known(1, &[(90, 0)], at(7, 2), 0),
            // Spends 1 in the same block; the source does not say where it stands.
            known(2, &[(1, 0)], at(7, 2), 0),
            known(3, &[(91, 0)], at(6, 9), 0),
            // 5 replaced 4, and 6 took the input of 5.
            known(4, &[(92, 0)], Standing::Invalid("gone"), 10),
            known(5, &[(92, 0), (93, 0)], Standing::Invalid("gone"), 11),
            known(6, &[(92, 0), (93, 0)], WAITS, 12),
            // A child of a loser lost too, even one that was seen before it.
            known(7, &[(5, 1)], Standing::Invalid("gone"), 1),
            // A child that was seen before its parent.
            known(8, &[(6, 0)], WAITS, 1),
            // No other transaction took its input.
            known(9, &[(94, 0)], Standing::Invalid("evicted"), 2),
            known(10, &[(9, 0)], Standing::Invalid("evicted"), 3),
            // 1 took its input.
            known(13, &[(90, 0), (99, 9)], Standing::Invalid("gone"), 50),
            known(11, &[(95, 0)], Standing::Unconfirmed { in_mempool: false }, 99),
        ]);
        let (given, left_out) = settle(all);
        assert_eq!(numbers(&given), [3, 13, 1, 2, 4, 5, 7, 6, 8, 11]);
        assert_eq!(left_out, [(hash(9), "evicted"), (hash(10), "evicted")]);
    }

    #[test]
    fn a_long_chain_does_not_overflow_the_stack() {
        let chain: HashMap<Hash, Known> = (0..100_000_u32)
            .map(|number| {
                let name = |number: u32| {
                    let mut bytes = [0; 32];
                    bytes[..4].copy_from_slice(&number.to_be_bytes());
                    Hash(bytes)
                };
                let inputs = vec![OutPoint { hash: name(number + 1), index: 0 }];
                let tx = NewTx { hash: name(number), raw: Vec::new(), coinbase: false, inputs, outputs: Vec::new() };
                (name(number), Known { tx, standing: WAITS, seen: 0 })
            })
            .collect();
        let (given, _) = settle(chain);
        assert_eq!(given.len(), 100_000);
        assert!(given.is_sorted_by(|one, other| one.tx.hash > other.tx.hash), "each after its parent");
    }
}
