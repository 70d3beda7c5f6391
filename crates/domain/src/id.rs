//! Snowflake ids: 41 bits of milliseconds since 2024, 10 bits of node, 12 bits of sequence, positive in an `i64`.
//!
//! A generator never repeats an id: when the clock stands still or steps back it counts on from the last id,
//! borrowing from the next millisecond when the 4,096 of this one are used up. Two generators never make the same id,
//! as long as each has a node number of its own. The database leases those to processes (`transfer::IdMaker`).

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::time::{Clock, Timestamp};

/// 2024-01-01T00:00:00Z.
const EPOCH_MS: i64 = 1_704_067_200_000;
const NODE_BITS: u32 = 10;
const SEQUENCE_BITS: u32 = 12;

/// A kind of id, told apart by its prefix in text and by its type in code.
pub trait IdKind {
    const PREFIX: &'static str;
}

macro_rules! id_kinds {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {}
        impl IdKind for $name {
            const PREFIX: &'static str = $prefix;
        }
    )*};
}

id_kinds! {
    /// An internal transfer, `sr-…`.
    Transfer = "sr";
    /// A withdrawal request, `wr-…`.
    Withdrawal = "wr";
    /// A deposit, `dp-…`.
    Deposit = "dp";
    /// An outbound job, `job-…`.
    Job = "job";
}

/// An id of one kind. Its text is the prefix, a dash and the number: `sr-1734912345678901234`.
pub struct Id<K: IdKind>(i64, PhantomData<K>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an id such as {0}-1734912345678901234")]
pub struct BadId(pub &'static str);

impl<K: IdKind> Id<K> {
    pub fn new(number: i64) -> Result<Self, BadId> {
        if number > 0 { Ok(Self(number, PhantomData)) } else { Err(BadId(K::PREFIX)) }
    }

    pub const fn number(self) -> i64 {
        self.0
    }

    /// When the id was made, to the millisecond (or a little later, if the generator was ahead of its clock).
    pub const fn made_at(self) -> Timestamp {
        made_at(self.0)
    }
}

/// When an id of any kind was made, from its number alone.
pub const fn made_at(number: i64) -> Timestamp {
    let millis = (number >> (NODE_BITS + SEQUENCE_BITS)) + EPOCH_MS;
    Timestamp::from_micros(millis * 1_000)
}

/// The smallest number that an id made at this time can have; 1 for times before 2024.
pub const fn first_at(time: Timestamp) -> i64 {
    let millis = time.millis().saturating_sub(EPOCH_MS);
    if millis <= 0 {
        return 1;
    }
    if millis >= 1 << 41 { i64::MAX } else { millis << (NODE_BITS + SEQUENCE_BITS) }
}

impl<K: IdKind> std::str::FromStr for Id<K> {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text
            .strip_prefix(K::PREFIX)
            .and_then(|rest| rest.strip_prefix('-'))
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .filter(|digits| !digits.starts_with('0'))
            .ok_or(BadId(K::PREFIX))?;
        let number = digits.parse().map_err(|_| BadId(K::PREFIX))?;
        Self::new(number)
    }
}

impl<K: IdKind> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}", K::PREFIX, self.0))
    }
}

impl<K: IdKind> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<K: IdKind> Clone for Id<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: IdKind> Copy for Id<K> {}

impl<K: IdKind> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K: IdKind> Eq for Id<K> {}

/// By time, to the millisecond.
impl<K: IdKind> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl<K: IdKind> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: IdKind> std::hash::Hash for Id<K> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Which of the 1,024 generators this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeId(u16);

impl NodeId {
    pub const COUNT: u16 = 1 << NODE_BITS;
    /// Numbers from here on are never lent: they are for tools that make an id now and then, without a database.
    pub const UNLENT: u16 = Self::COUNT - 32;

    pub const fn new(node: u16) -> Option<Self> {
        if node < Self::COUNT { Some(Self(node)) } else { None }
    }

    pub const fn number(self) -> u16 {
        self.0
    }
}

/// Makes ids; share one per process.
pub struct Generator<C> {
    clock: C,
    node: NodeId,
    /// Milliseconds and sequence of the last id, without the node: `millis << SEQUENCE_BITS | sequence`.
    last: AtomicI64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the clock is past the year 2093, where 41 bits of milliseconds end")]
pub struct OutOfIds;

impl<C: Clock> Generator<C> {
    pub const fn new(clock: C, node: NodeId) -> Self {
        Self { clock, node, last: AtomicI64::new(0) }
    }

    pub fn next<K: IdKind>(&self) -> Result<Id<K>, OutOfIds> {
        // A clock before 2024 counts as 2024: ids stay positive and monotonic all the same.
        let millis = self.clock.now().millis().saturating_sub(EPOCH_MS).max(0);
        let floor = millis.checked_shl(SEQUENCE_BITS).filter(|_| millis < 1 << 41).ok_or(OutOfIds)?;
        let step = |last: i64| last.saturating_add(1).max(floor);
        let last = self
            .last
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |last| Some(step(last)))
            .map_err(|_| OutOfIds)?;
        let slot = step(last);
        if slot >= 1 << (41 + SEQUENCE_BITS) {
            return Err(OutOfIds);
        }
        let sequence = slot & ((1 << SEQUENCE_BITS) - 1);
        let millis = slot >> SEQUENCE_BITS;
        let number = (millis << (NODE_BITS + SEQUENCE_BITS)) | (i64::from(self.node.0) << SEQUENCE_BITS) | sequence;
        Id::new(number).map_err(|_| OutOfIds)
    }

    /// The time in the last id that was made, which may be later than the clock now says. `None`: none was made.
    pub fn last_at(&self) -> Option<Timestamp> {
        let last = self.last.load(Ordering::SeqCst);
        (last > 0).then(|| Timestamp::from_micros(((last >> SEQUENCE_BITS) + EPOCH_MS).saturating_mul(1_000)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ManualClock;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const NOW: Timestamp = Timestamp::from_micros(1_763_000_000_000_000);

    fn node(number: u16) -> NodeId {
        NodeId::new(number).expect("below 1024")
    }

    #[test]
    fn text_form_reads_back_and_nothing_else_does() {
        let clock = ManualClock::at(NOW);
        let id = Generator::new(&clock, node(5)).next::<Transfer>().expect("in range");
        assert_eq!(id.to_string().parse::<Id<Transfer>>(), Ok(id));
        assert_eq!(id.made_at().millis(), NOW.millis());
        for bad in ["", "sr-", "sr-0", "sr--1", "sr-01", "sr-9223372036854775808", "wr-1", "1", "sr-1 ", "sr-+1"] {
            assert_eq!(bad.parse::<Id<Transfer>>(), Err(BadId("sr")), "{bad:?}");
        }
    }

    #[test]
    fn a_clock_that_steps_back_repeats_nothing() {
        let clock = ManualClock::at(NOW);
        let generator = Generator::new(&clock, node(0));
        assert_eq!(generator.last_at(), None);
        let mut last = 0;
        for step in 0..20_000 {
            // Back by an hour half-way through, and standing still otherwise.
            if step == 10_000 {
                clock.set(NOW.plus_micros(-3_600_000_000));
            }
            let id = generator.next::<Deposit>().expect("in range").number();
            assert!(id > last, "{id} after {last}");
            last = id;
        }
        let last = Id::<Deposit>::new(last).expect("positive").made_at();
        assert_eq!(generator.last_at(), Some(last));
        assert!(last > clock.now(), "it stays ahead of a clock that was set back");
    }

    #[test]
    fn nodes_and_threads_never_meet() {
        let clock = ManualClock::at(NOW);
        let generators = [Generator::new(&clock, node(1)), Generator::new(&clock, node(1023))];
        let ids: Vec<i64> = std::thread::scope(|scope| {
            let threads: Vec<_> = generators
                .iter()
                .chain(&generators)
                .map(|generator| {
                    scope.spawn(|| {
                        (0..5_000).map(|_| generator.next::<Job>().expect("in range").number()).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 20_000);
    }

    proptest! {
        #[test]
        fn any_clock_gives_growing_ids_or_none(readings in prop::collection::vec(any::<i64>(), 1..50)) {
            let clock = ManualClock::default();
            let generator = Generator::new(&clock, node(7));
            let mut last = 0;
            for reading in readings {
                clock.set(Timestamp::from_micros(reading));
                if let Ok(id) = generator.next::<Withdrawal>() {
                    prop_assert!(id.number() > last);
                    last = id.number();
                }
            }
        }

        #[test]
        fn no_text_panics(text in ".*") {
            if let Ok(id) = text.parse::<Id<Transfer>>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
