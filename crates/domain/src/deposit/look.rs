//! A look at what a wallet has on its chain, held against its entries.
//!
//! No scan sees everything: a contract can give coin away without a trace, and a token can log what it never moved. What a look
//! finds is an entry of its own, so that entries are what the chain has, always. It explains nothing: people do.

use crate::raw::RawAmount;
use crate::raw_sum::RawSum;

use super::entry::{Cause, Side};

/// What the entries of a wallet say at the block of the look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByEntries {
    /// All of them, those of earlier looks as well.
    pub sum: RawSum,
    /// Those of earlier looks.
    pub looks: RawSum,
}

/// What becomes of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The chain says what the entries say.
    Same,
    /// What earlier looks have written is taken back, and this is written for it.
    Differs {
        /// What the chain has more than the entries, or less.
        by: RawSum,
        /// What no transaction explains, all in all. `None`: nothing any more.
        unexplained: Option<RawSum>,
    },
}

impl Look {
    /// What no transaction explains after it.
    pub fn unexplained(&self, entries: ByEntries) -> RawSum {
        match self {
            Self::Same => entries.looks,
            Self::Differs { unexplained, .. } => unexplained.unwrap_or_default(),
        }
    }

    pub fn at(chain: RawAmount, entries: ByEntries) -> Self {
        let by = RawSum::from(chain).plus(-entries.sum);
        if by.is_zero() {
            return Self::Same;
        }
        let unexplained = by.plus(entries.looks);
        Self::Differs { by, unexplained: (!unexplained.is_zero()).then_some(unexplained) }
    }
}

/// The entry that stands for what no transaction explains.
pub const fn entry_of(unexplained: RawSum) -> (Side, Cause) {
    if unexplained.is_negative() { (Side::Out, Cause::ForeignSpend) } else { (Side::In, Cause::UnattributedIn) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(value: i64) -> RawSum {
        value.to_string().parse().unwrap()
    }

    fn look(chain: u64, entries: i64, looks: i64) -> Look {
        let chain = chain.to_string().parse().unwrap();
        Look::at(chain, ByEntries { sum: sum(entries), looks: sum(looks) })
    }

    fn differs(by: i64, unexplained: i64) -> Look {
        Look::Differs { by: sum(by), unexplained: (unexplained != 0).then(|| sum(unexplained)) }
    }

    #[test]
    fn after_a_look_the_entries_are_what_the_chain_has() {
        for chain in 0..12_u64 {
            for real in -4..12_i64 {
                for looks in -4..4_i64 {
                    let after = match look(chain, real + looks, looks) {
                        Look::Same => real + looks,
                        Look::Differs { unexplained: None, .. } => real,
                        Look::Differs { unexplained: Some(more), .. } => {
                            real + more.to_string().parse::<i64>().unwrap()
                        }
                    };
                    assert_eq!(after, i64::try_from(chain).unwrap());
                }
            }
        }
    }

    #[test]
    fn what_is_explained_later_is_no_longer_unexplained() {
        assert_eq!(look(7, 5, 0), differs(2, 2), "it came, and nobody knows how");
        assert_eq!(look(7, 9, 2), differs(-2, 0), "the transaction was found in the end");
        assert_eq!(look(7, 7, 2), Look::Same);
        let explained = ByEntries { sum: sum(9), looks: sum(2) };
        assert!(look(7, 9, 2).unexplained(explained).is_zero(), "nobody's payment is to be doubted");
        let still = ByEntries { sum: sum(0), looks: sum(-5) };
        assert!(look(0, 0, -5).unexplained(still).is_negative(), "it logged, and paid nothing, still");
        assert_eq!(look(0, 5, 0), differs(-5, -5), "a token that logged and paid nothing");
        assert_eq!(entry_of(sum(-5)), (Side::Out, Cause::ForeignSpend));
        assert_eq!(entry_of(sum(5)), (Side::In, Cause::UnattributedIn));
    }
}
