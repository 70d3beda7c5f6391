//! A wallet of `bdk_wallet`, from its SQLite file.
//!
//! The file holds facts: transactions, the blocks that they were seen in, when a mempool last showed them, and the blocks
//! of the best chain. Which transactions count is worked out each time, and here by the same rules (`bdk_chain` 0.23,
//! `canonical_iter.rs`): first those in a block of the best chain, the highest first; then those that a mempool showed, the
//! last first; then those whose block is not known to be in the chain. Each makes its ancestors count, and whatever
//! conflicts with them, and all that descends from it, not count.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use bitcoin::hashes::{Hash as _, sha256};
use store::utxo::{Hash, Network, OutPoint};

use super::bdk_file::{self, BdkFile, BdkTx};
use super::descriptor::{Addresses, Script};
use super::order::{Known, Standing, settle, spenders};
use super::read::{shorten, transaction};
use super::{Claim, Export, ImportError};

/// So many addresses beyond the last one handed out are watched, as `bdk_wallet` does unless told otherwise.
const LOOKAHEAD: u32 = 25;

/// Reads the file, which is opened read-only and never changed.
pub async fn read_bdk(path: &Path) -> Result<Export, ImportError> {
    let file = bdk_file::read(path).await.map_err(|error| ImportError::bad(path, error))?;
    export(file).map_err(|reason| ImportError::bad(path, reason))
}

fn export(file: BdkFile) -> Result<Export, String> {
    let network =
        Network::of_text(&file.network).ok_or_else(|| format!("no network is called {}", shorten(&file.network)))?;
    let mut addresses = Addresses::default();
    derive(&mut addresses, &file, network)?;
    let tip = file.blocks.iter().max().copied();
    let mut notes = Vec::new();
    if addresses.never_selected > 0 {
        notes.push(format!(
            "{} descriptors have addresses that are watched and counted, and never selected",
            addresses.never_selected
        ));
    }
    let partial = file.transactions.iter().filter(|tx| tx.raw.is_none()).count();
    if partial > 0 {
        notes.push(format!("{partial} transactions have no bytes in the file; bdk does not count them either"));
    }

    let known = stand(file)?;
    let spent = spenders(&known);
    let mut unspent = BTreeMap::new();
    for known in known.values().filter(|known| known.standing.is_valid()) {
        let height = match known.standing {
            Standing::Confirmed { block, .. } => Some(block.0),
            Standing::Unconfirmed { .. } | Standing::Invalid(_) => None,
        };
        for (index, output) in (0_u32..).zip(&known.tx.outputs) {
            let outpoint = OutPoint { hash: known.tx.hash, index };
            if addresses.has(&output.script) && !spent.contains_key(&outpoint) {
                unspent.insert(outpoint, Claim { amount: output.amount, height, coinbase: known.tx.coinbase });
            }
        }
    }
    let (transactions, left_out) = settle(known);
    Ok(Export { network, addresses: addresses.into_list(), tip, transactions, unspent, left_out, notes })
}

fn derive(addresses: &mut Addresses, file: &BdkFile, network: Network) -> Result<(), String> {
    let revealed: HashMap<&str, u32> = file.last_revealed.iter().map(|(id, index)| (id.as_str(), *index)).collect();
    for text in [Some(&file.descriptor), file.change_descriptor.as_ref()].into_iter().flatten() {
        let script = Script::parse(text, network).map_err(|error| format!("the descriptor: {error}"))?;
        let first = script.script(0).map_err(|error| format!("the descriptor: {error}"))?;
        let id = sha256::Hash::hash(&first).to_string();
        let to = revealed.get(id.as_str()).map_or(LOOKAHEAD - 1, |last| last.saturating_add(LOOKAHEAD));
        addresses
            .add(&script, 0, to.min(i32::MAX.unsigned_abs()))
            .map_err(|error| format!("the descriptor: {error}"))?;
    }
    Ok(())
}

/// Height, block, time.
type Anchor = (u32, Hash, u64);

/// Of each transaction, in the order in which bdk tries them.
#[derive(Default)]
struct Anchors(HashMap<Hash, Vec<Anchor>>);

impl Anchors {
    fn new(anchors: impl Iterator<Item = (Hash, Anchor)>) -> Self {
        let mut all = Self::default();
        for (hash, anchor) in anchors {
            // Nearly all have one; a set of its own for each would take gigabytes.
            all.0.entry(hash).or_insert_with(|| Vec::with_capacity(1)).push(anchor);
        }
        all.0.values_mut().for_each(|some| some.sort_unstable());
        all
    }

    fn highest(&self, hash: &Hash) -> Option<u32> {
        self.0.get(hash)?.last().map(|(height, ..)| *height)
    }

    fn in_chain(&self, hash: &Hash, chain: &HashMap<u32, Hash>) -> Option<Anchor> {
        self.0.get(hash)?.iter().find(|(height, block, _)| chain.get(height) == Some(block)).copied()
    }
}

fn stand(file: BdkFile) -> Result<HashMap<Hash, Known>, String> {
    let chain: HashMap<u32, Hash> = file.blocks.into_iter().collect();
    let anchors = file.anchors.into_iter().map(|one| (one.hash, (one.height, one.block, one.time)));
    let anchors = Anchors::new(anchors);
    let mut seen: HashMap<Hash, Seen> = HashMap::new();
    let mut known = HashMap::new();
    for BdkTx { hash, raw, first_seen, last_seen, last_evicted } in file.transactions {
        let Some(raw) = raw else { continue };
        let tx = transaction(hash, &raw)?;
        seen.insert(hash, Seen { last_seen, last_evicted });
        let reason = if last_evicted.is_some() { "evicted from the mempool" } else { "no block and no mempool had it" };
        let seen = first_seen.or(last_seen).unwrap_or(0);
        known.insert(hash, Known { tx, standing: Standing::Invalid(reason), seen });
    }
    let counted = Canon::new(&known).run(&chain, &anchors, &seen);
    for (hash, anchor) in counted {
        let Some(known) = known.get_mut(&hash) else { continue };
        let own = anchors.in_chain(&hash, &chain);
        known.standing = match anchor {
            None => Standing::Unconfirmed { in_mempool: true },
            // One that a confirmed transaction spends is confirmed as well, at the latest in that block.
            Some(above) => {
                let (height, block, time) = own.unwrap_or(above);
                let time = u32::try_from(time).map_err(|_| format!("block {height} has no possible time: {time}"))?;
                Standing::Confirmed { block: (height, block, time), position: 0 }
            }
        };
    }
    Ok(known)
}

#[derive(Clone, Copy)]
struct Seen {
    last_seen: Option<u64>,
    last_evicted: Option<u64>,
}

impl Seen {
    fn is_evicted(self) -> bool {
        match (self.last_seen, self.last_evicted) {
            (_, None) => false,
            (Some(seen), Some(evicted)) => evicted >= seen,
            (None, Some(_)) => true,
        }
    }
}

/// Which transactions count, and the block of the best chain for the sake of which they do.
struct Canon<'a> {
    known: &'a HashMap<Hash, Known>,
    spends: HashMap<OutPoint, Vec<Hash>>,
    children: HashMap<Hash, Vec<Hash>>,
    counts: HashMap<Hash, Option<Anchor>>,
    never: HashSet<Hash>,
}

impl<'a> Canon<'a> {
    fn new(known: &'a HashMap<Hash, Known>) -> Self {
        let (mut spends, mut children): (HashMap<_, Vec<_>>, HashMap<_, Vec<_>>) = Default::default();
        for known in known.values() {
            for input in &known.tx.inputs {
                spends.entry(*input).or_default().push(known.tx.hash);
                children.entry(input.hash).or_default().push(known.tx.hash);
            }
        }
        Self { known, spends, children, counts: HashMap::new(), never: HashSet::new() }
    }

    fn run(
        mut self,
        chain: &HashMap<u32, Hash>,
        anchors: &Anchors,
        seen: &HashMap<Hash, Seen>,
    ) -> HashMap<Hash, Option<Anchor>> {
        let mut anchored: Vec<(u32, [u8; 32])> =
            self.known.keys().filter_map(|hash| Some((anchors.highest(hash)?, in_memory(*hash)))).collect();
        anchored.sort_unstable_by(|one, other| other.cmp(one));
        let mut undecided = Vec::new();
        for hash in anchored.into_iter().map(|(_, bytes)| Hash(in_memory(Hash(bytes)))) {
            if !self.is_decided(hash) {
                match anchors.in_chain(&hash, chain) {
                    Some(anchor) => self.mark(hash, Some(anchor)),
                    None => undecided.push(hash),
                }
            }
        }
        let mut shown: Vec<(u64, Hash)> = seen
            .iter()
            .filter(|(_, seen)| !seen.is_evicted())
            .filter_map(|(hash, seen)| Some((seen.last_seen?, *hash)))
            .collect();
        shown.sort_by_key(|(last, hash)| std::cmp::Reverse((*last, in_memory(*hash))));
        for (_, hash) in shown {
            if !self.is_decided(hash) && !self.known[&hash].tx.coinbase {
                self.mark(hash, None);
            }
        }
        for hash in undecided {
            if !self.is_decided(hash) && !self.known[&hash].tx.coinbase && !seen[&hash].is_evicted() {
                self.mark(hash, None);
            }
        }
        self.counts
    }

    fn is_decided(&self, hash: Hash) -> bool {
        self.counts.contains_key(&hash) || self.never.contains(&hash)
    }

    /// It and its ancestors count; what conflicts with any of them, and what descends from that, does not. If that would
    /// be one of them, nothing is marked: it spends something twice itself.
    fn mark(&mut self, hash: Hash, anchor: Option<Anchor>) {
        let (mut counted, mut ruled_out): (Vec<Hash>, Vec<Hash>) = Default::default();
        let mut open = vec![hash];
        let mut contradicts_itself = false;
        while let Some(hash) = open.pop() {
            let Some(known) = self.known.get(&hash) else { continue };
            if self.counts.contains_key(&hash) {
                continue;
            }
            let rivals = known.tx.inputs.iter().flat_map(|input| &self.spends[input]).filter(|rival| **rival != hash);
            let mut out: Vec<Hash> = rivals.copied().collect();
            while let Some(rival) = out.pop() {
                if self.never.insert(rival) {
                    ruled_out.push(rival);
                    out.extend(self.children.get(&rival).into_iter().flatten());
                }
            }
            if self.never.contains(&hash) {
                contradicts_itself = true;
                break;
            }
            self.counts.insert(hash, anchor);
            counted.push(hash);
            open.extend(known.tx.inputs.iter().map(|input| input.hash));
        }
        if contradicts_itself {
            self.counts.retain(|hash, _| !counted.contains(hash));
            self.never.retain(|hash| !ruled_out.contains(hash));
        }
    }
}

/// bdk sorts hashes by their bytes, which is from the back as they are printed.
fn in_memory(hash: Hash) -> [u8; 32] {
    let mut bytes = hash.0;
    bytes.reverse();
    bytes
}

#[cfg(test)]
mod tests {
    use store::utxo::NewTx;

    use super::*;

    fn hash(number: u8) -> Hash {
        Hash([number; 32])
    }

    /// Transactions with their inputs, and when a mempool last showed and lost them.
    type Row = (u8, &'static [(u8, u32)], Option<u64>, Option<u64>);

    /// Which of them count, and at which height. A block has the number of its height as its hash; 100 and above are stale.
    fn check(rows: &[Row], anchors: &[(u8, u32, u8)], chain: &[u32], expected: &[(u8, Option<u32>)]) {
        let known = rows.iter().map(|(number, inputs, ..)| {
            let inputs: Vec<OutPoint> =
                inputs.iter().map(|(parent, index)| OutPoint { hash: hash(*parent), index: *index }).collect();
            let coinbase = inputs.is_empty();
            let tx = NewTx { hash: hash(*number), raw: Vec::new(), coinbase, inputs, outputs: Vec::new() };
            (hash(*number), Known { tx, standing: Standing::Invalid(""), seen: 0 })
        });
        let known: HashMap<Hash, Known> = known.collect();
        let seen = rows.iter().map(|row| (hash(row.0), Seen { last_seen: row.2, last_evicted: row.3 })).collect();
        let chain = chain.iter().map(|height| (*height, hash(u8::try_from(*height).unwrap()))).collect();
        let anchors = anchors.iter().map(|(number, height, block)| (hash(*number), (*height, hash(*block), 0)));
        let counts = Canon::new(&known).run(&chain, &Anchors::new(anchors), &seen);
        let counts: BTreeMap<u8, Option<u32>> =
            counts.into_iter().map(|(hash, anchor)| (hash.0[0], anchor.map(|anchor| anchor.0))).collect();
        assert_eq!(counts, expected.iter().copied().collect());
    }

    #[test]
    fn blocks_beat_mempools_and_the_last_seen_beats_the_first() {
        let rivals: &[Row] = &[(1, &[(90, 0)], Some(9), None), (2, &[(90, 0)], Some(5), None)];
        check(rivals, &[], &[0], &[(1, None)]);
        check(rivals, &[(2, 7, 7)], &[0, 7], &[(2, Some(7))]);
        // Seen in a block that has left the chain, or that the chain does not know: as if in none.
        check(rivals, &[(2, 7, 107)], &[0, 7], &[(1, None)]);
        check(rivals, &[(2, 7, 7)], &[0], &[(1, None)]);
        // In two blocks, one of them stale.
        check(rivals, &[(2, 7, 107), (2, 8, 8)], &[0, 7, 8], &[(2, Some(8))]);
        // Of two at the same time the higher hash counts.
        check(&[(1, &[(90, 0)], Some(5), None), (2, &[(90, 0)], Some(5), None)], &[], &[0], &[(2, None)]);
    }

    #[test]
    fn descendants_of_a_loser_lose_and_ancestors_of_a_winner_win() {
        // 3 spends 2, which lost; it was seen last of all, but before 1 was mined.
        let rows: &[Row] = &[
            (1, &[(90, 0)], None, None),
            (2, &[(90, 0)], Some(5), None),
            (3, &[(2, 0)], Some(99), None),
            (4, &[(3, 0)], Some(99), None),
        ];
        check(rows, &[(1, 7, 7)], &[0, 7], &[(1, Some(7))]);
        // Nobody has seen 2 itself, and it takes the input from 1 all the same.
        let rows: &[Row] =
            &[(1, &[(90, 0)], Some(50), None), (2, &[(90, 0)], None, None), (3, &[(2, 0)], Some(60), None)];
        check(rows, &[], &[0], &[(2, None), (3, None)]);
        // What a confirmed transaction spends is confirmed.
        check(rows, &[(3, 7, 7)], &[0, 7], &[(2, Some(7)), (3, Some(7))]);
    }

    #[test]
    fn what_was_evicted_or_never_seen_does_not_count() {
        check(&[(1, &[(90, 0)], None, None)], &[], &[0], &[]);
        check(&[(1, &[(90, 0)], Some(5), Some(5))], &[], &[0], &[]);
        check(&[(1, &[(90, 0)], Some(6), Some(5))], &[], &[0], &[(1, None)]);
        // Its block is stale: it waits again, unless the mempool has lost it since. A coinbase cannot wait.
        check(&[(1, &[(90, 0)], None, None)], &[(1, 7, 107)], &[0, 7], &[(1, None)]);
        check(&[(1, &[(90, 0)], None, Some(1))], &[(1, 7, 107)], &[0, 7], &[]);
        check(&[(1, &[], None, None)], &[(1, 7, 107)], &[0, 7], &[]);
        check(&[(1, &[], None, None)], &[(1, 7, 7)], &[0, 7], &[(1, Some(7))]);
    }

    #[test]
    fn what_spends_something_twice_marks_nothing() {
        // 3 spends both 1 and 2, which are rivals.
        let rows: &[Row] =
            &[(1, &[(90, 0)], Some(1), None), (2, &[(90, 0)], Some(2), None), (3, &[(1, 0), (2, 0)], Some(9), None)];
        check(rows, &[], &[0], &[(2, None)]);
    }
}
