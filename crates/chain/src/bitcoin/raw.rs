//! A raw block, read in place.
//!
//! A block is checked whole before any of it is used: the header hashes to the hash that was asked for, and the
//! transactions to the header's merkle root. So a node can neither invent nor leave out a transaction of a block whose
//! hash a quorum has agreed on. Nothing is copied, and no transaction is built: a scan needs the output scripts and the
//! hashes, and must cost little beside the fetching. A block owns its bytes, so that it can be checked where it arrives,
//! beside the thread that looks its outputs up.

use std::ops::Range;

use ::bitcoin::Script;
use ::bitcoin::hashes::{Hash, HashEngine, sha256d};
use domain::Timestamp;
use tx::{BlockHash, TxHash};

use crate::block::Header;
use tx::bitcoin::turned;

const HEADER_BYTES: usize = 80;

#[derive(Debug)]
pub struct RawBlock {
    pub header: RawHeader,
    bytes: Vec<u8>,
    places: Vec<InBlock>,
}

/// Where in the block's bytes a transaction has its inputs and outputs.
#[derive(Debug)]
struct InBlock {
    id: [u8; 32],
    coinbase: bool,
    inputs: Range<usize>,
    outputs: Range<usize>,
}

/// The 80 bytes that a block's hash is the hash of.
#[derive(Clone, Copy, Debug)]
pub struct RawHeader {
    pub hash: BlockHash,
    pub parent: BlockHash,
    pub seconds: u32,
    root: [u8; 32],
}

#[derive(Clone, Copy, Debug)]
pub struct RawTransaction<'a> {
    /// In the order of the wire.
    id: [u8; 32],
    pub coinbase: bool,
    inputs: &'a [u8],
    outputs: &'a [u8],
}

impl RawHeader {
    pub fn read(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut rest = Rest(bytes.get(..HEADER_BYTES).ok_or("a block header is cut off")?);
        rest.skip(4)?;
        let (parent, root, seconds) = (rest.array::<32>()?, rest.array::<32>()?, rest.array::<4>()?);
        let hash = sha256d::Hash::hash(&bytes[..HEADER_BYTES]).to_byte_array();
        let seconds = u32::from_le_bytes(seconds);
        Ok(Self { hash: BlockHash(turned(hash)), parent: BlockHash(turned(parent)), seconds, root })
    }

    pub fn at(&self, height: u64) -> Header {
        let time = Timestamp::from_micros(i64::from(self.seconds) * 1_000_000);
        Header { height, hash: self.hash, parent: self.parent, time }
    }
}

impl RawBlock {
    pub fn read(bytes: Vec<u8>, asked: BlockHash) -> Result<Self, &'static str> {
        let header = RawHeader::read(&bytes)?;
        if header.hash != asked {
            return Err("the block is another one than was asked for");
        }
        let mut rest = Rest(&bytes[HEADER_BYTES..]);
        let count = rest.count()?;
        let mut places = Vec::new();
        for _ in 0..count {
            places.push(InBlock::read(&mut rest, bytes.len())?);
        }
        if !rest.0.is_empty() {
            return Err("bytes follow the block");
        }
        // Without this rule the inner nodes of the merkle tree could be shown as transactions of 64 bytes each, or two
        // invented transactions in the place of one of 64 bytes. All leaves stand on one level, so the first one would
        // have to be split or joined too; and a coinbase names an output of 32 zeros, which no two hashes do.
        if places.is_empty() || !places.iter().enumerate().all(|(place, one)| one.coinbase == (place == 0)) {
            return Err("a block begins with its one coinbase");
        }
        if merkle_root(places.iter().map(|one| one.id).collect()) != Some(header.root) {
            return Err("the transactions are not those of the block");
        }
        Ok(Self { header, bytes, places })
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn transactions(&self) -> impl Iterator<Item = RawTransaction<'_>> + Clone {
        self.places.iter().map(|place| RawTransaction {
            id: place.id,
            coinbase: place.coinbase,
            inputs: &self.bytes[place.inputs.clone()],
            outputs: &self.bytes[place.outputs.clone()],
        })
    }
}

impl InBlock {
    fn read(rest: &mut Rest<'_>, length: usize) -> Result<Self, &'static str> {
        let version = rest.take(4)?;
        let witness = rest.0.starts_with(&[0]);
        if witness && rest.array::<2>()? != [0, 1] {
            return Err("a transaction without inputs");
        }
        let body = rest.0;
        let input_count = rest.count()?;
        let inputs = rest.0;
        for _ in 0..input_count {
            rest.skip(36)?;
            rest.skip_counted()?;
            rest.skip(4)?;
        }
        let after_inputs = rest.0.len();
        let output_count = rest.count()?;
        let outputs = rest.0.len();
        for _ in 0..output_count {
            rest.skip(8)?;
            rest.skip_counted()?;
        }
        let after_outputs = rest.0.len();
        if witness {
            for _ in 0..input_count {
                for _ in 0..rest.count()? {
                    rest.skip_counted()?;
                }
            }
        }
        let lock_time = rest.take(4)?;
        let mut engine = sha256d::Hash::engine();
        engine.input(version);
        engine.input(&body[..body.len() - after_outputs]);
        engine.input(lock_time);
        let id = sha256d::Hash::from_engine(engine).to_byte_array();
        // A coinbase spends one output that does not exist: hash zero, index -1.
        let nothing = inputs.starts_with(&[0; 32]) && inputs[32..].starts_with(&[0xff; 4]);
        Ok(Self {
            id,
            coinbase: input_count == 1 && nothing,
            inputs: length - inputs.len()..length - after_inputs,
            outputs: length - outputs..length - after_outputs,
        })
    }
}

impl<'a> RawTransaction<'a> {
    pub fn hash(&self) -> TxHash {
        TxHash(turned(self.id))
    }

    pub fn outputs(&self) -> impl Iterator<Item = (u64, &'a Script)> + Clone + use<'a> {
        let mut rest = Rest(self.outputs);
        std::iter::from_fn(move || {
            let amount = u64::from_le_bytes(rest.array().ok()?);
            Some((amount, Script::from_bytes(rest.counted().ok()?)))
        })
    }

    /// The outputs that it spends.
    pub fn spends(&self) -> impl Iterator<Item = (TxHash, u32)> {
        let mut rest = Rest(self.inputs);
        std::iter::from_fn(move || {
            let spent = (TxHash(turned(rest.array().ok()?)), u32::from_le_bytes(rest.array().ok()?));
            rest.skip_counted().ok()?;
            rest.skip(4).ok()?;
            Some(spent)
        })
    }
}

/// `None` when two neighbours are the same: then a list with repeated transactions has the same root (CVE-2012-2459).
fn merkle_root(mut level: Vec<[u8; 32]>) -> Option<[u8; 32]> {
    while level.len() > 1 {
        let mut above = Vec::with_capacity(level.len().div_ceil(2));
        for pair in level.chunks(2) {
            let (left, right) = (pair[0], *pair.last()?);
            if pair.len() == 2 && left == right {
                return None;
            }
            let mut engine = sha256d::Hash::engine();
            engine.input(&left);
            engine.input(&right);
            above.push(sha256d::Hash::from_engine(engine).to_byte_array());
        }
        level = above;
    }
    level.pop()
}

/// What is still to be read. Every read is within bounds or an error; no length from outside is allocated.
#[derive(Clone)]
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("the block is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn skip(&mut self, length: usize) -> Result<(), &'static str> {
        self.take(length).map(|_| ())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Bitcoin's variable-length integer.
    fn count(&mut self) -> Result<u64, &'static str> {
        let [first] = self.array()?;
        Ok(match first {
            0xff => u64::from_le_bytes(self.array()?),
            0xfe => u32::from_le_bytes(self.array()?).into(),
            0xfd => u16::from_le_bytes(self.array()?).into(),
            small => small.into(),
        })
    }

    fn counted(&mut self) -> Result<&'a [u8], &'static str> {
        let length = self.count()?;
        self.take(usize::try_from(length).map_err(|_| "a length that cannot be")?)
    }

    fn skip_counted(&mut self) -> Result<(), &'static str> {
        self.counted().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::bitcoin::absolute::LockTime;
    use ::bitcoin::block::{Header as BlockHeader, Version};
    use ::bitcoin::consensus::serialize;
    use ::bitcoin::transaction::Version as TransactionVersion;
    use ::bitcoin::{
        Amount, Block, BlockHash as CoreHash, CompactTarget, OutPoint, ScriptBuf, Sequence, Transaction, TxIn,
        TxMerkleNode, TxOut, Txid, Witness,
    };
    use proptest::prelude::*;

    fn transaction(number: u8, coinbase: bool, witness: bool) -> Transaction {
        let previous_output = if coinbase { OutPoint::null() } else { OutPoint::new(Txid::all_zeros(), number.into()) };
        let witness = if witness { Witness::from_slice(&[vec![number; 70], vec![2; 33]]) } else { Witness::new() };
        Transaction {
            version: TransactionVersion::TWO,
            lock_time: LockTime::ZERO,
            input: vec![TxIn {
                previous_output,
                script_sig: ScriptBuf::from_bytes(vec![number; 5]),
                sequence: Sequence::MAX,
                witness,
            }],
            output: vec![
                TxOut {
                    value: Amount::from_sat(u64::from(number) + 1),
                    script_pubkey: ScriptBuf::from_bytes(vec![number; 22]),
                },
                TxOut { value: Amount::from_sat(7), script_pubkey: ScriptBuf::new() },
            ],
        }
    }

    fn block(transactions: Vec<Transaction>) -> Block {
        let header = BlockHeader {
            version: Version::TWO,
            prev_blockhash: CoreHash::from_byte_array([7; 32]),
            merkle_root: TxMerkleNode::all_zeros(),
            time: 1_700_000_000,
            bits: CompactTarget::from_consensus(0x207f_ffff),
            nonce: 0,
        };
        let mut block = Block { header, txdata: transactions };
        block.header.merkle_root = block.compute_merkle_root().expect("not empty");
        block
    }

    fn some(count: u8) -> Block {
        block((0..count).map(|number| transaction(number, number == 0, number % 3 != 1)).collect())
    }

    fn hash_of(block: &Block) -> BlockHash {
        BlockHash(turned(block.block_hash().to_byte_array()))
    }

    #[test]
    fn a_block_reads_as_rust_bitcoin_reads_it() {
        for count in 1..=9 {
            let block = some(count);
            let raw = RawBlock::read(serialize(&block), hash_of(&block)).expect("a good block");
            assert_eq!(raw.header.at(5).time.micros(), 1_700_000_000_000_000);
            assert_eq!(raw.header.parent, BlockHash([7; 32]));
            assert_eq!(raw.transactions().count(), block.txdata.len());
            for (raw, full) in raw.transactions().zip(&block.txdata) {
                assert_eq!(raw.hash().to_string(), full.compute_txid().to_string());
                assert_eq!(raw.coinbase, full.is_coinbase());
                let outputs: Vec<_> = raw.outputs().collect();
                let expected: Vec<_> =
                    full.output.iter().map(|out| (out.value.to_sat(), out.script_pubkey.as_script())).collect();
                assert_eq!(outputs, expected);
                let spent: Vec<_> = raw.spends().map(|(hash, index)| (hash.to_string(), index)).collect();
                let expected: Vec<_> = full
                    .input
                    .iter()
                    .map(|input| (input.previous_output.txid.to_string(), input.previous_output.vout))
                    .collect();
                assert_eq!(spent, expected);
            }
        }
    }

    #[test]
    fn a_node_cannot_leave_out_add_change_or_repeat_a_transaction() {
        let good = some(5);
        let asked = hash_of(&good);
        let bad = "the transactions are not those of the block";
        type Change = fn(&mut Vec<Transaction>);
        let cases: [(&str, Change); 5] = [
            ("left out", |list| drop(list.pop())),
            ("added", |list| list.push(transaction(99, false, true))),
            ("changed", |list| list[3].output[0].value = Amount::from_sat(1_000_000)),
            ("swapped", |list| list.swap(2, 3)),
            ("repeated, with the same root", |list| {
                let last = list[4].clone();
                list.push(last);
            }),
        ];
        for (what, change) in cases {
            let mut block = good.clone();
            change(&mut block.txdata);
            assert_eq!(RawBlock::read(serialize(&block), asked).map(|_| ()), Err(bad), "{what}");
        }
        let mut other = good.clone();
        other.header.nonce += 1;
        assert!(RawBlock::read(serialize(&other), asked).is_err(), "another header");
    }

    #[test]
    fn a_block_has_one_coinbase_and_it_comes_first() {
        for list in [
            vec![transaction(1, false, true)],
            vec![transaction(0, true, true), transaction(1, true, true)],
            vec![transaction(1, false, true), transaction(0, true, true)],
        ] {
            let block = block(list);
            assert!(RawBlock::read(serialize(&block), hash_of(&block)).is_err());
        }
    }

    proptest! {
        #[test]
        fn damage_is_an_error_never_a_panic(cut in 0_usize..900, place in 0_usize..900, byte: u8) {
            let block = some(4);
            let asked = hash_of(&block);
            let mut bytes = serialize(&block);
            let short = bytes[..cut.min(bytes.len() - 1)].to_vec();
            prop_assert!(RawBlock::read(short, asked).is_err());
            let place = place % bytes.len();
            let same = bytes[place] == byte;
            bytes[place] = byte;
            // Only a witness can change without the block's hash noticing; nothing that is read from it does.
            match RawBlock::read(bytes, asked) {
                Ok(raw) => prop_assert!(same || raw.transactions().count() == 4),
                Err(_) => prop_assert!(!same),
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let hash = BlockHash(turned(sha256d::Hash::hash(bytes.get(..80).unwrap_or(&[])).to_byte_array()));
            prop_assert!(RawBlock::read(bytes, hash).is_err());
        }
    }
}
