//! Reads transactions and blocks from bytes into the store's types, and converts between those and the types of the
//! crate `chain`.

use std::collections::BTreeSet;

use ::bitcoin::consensus::{deserialize, serialize};
use ::bitcoin::hashes::Hash as _;
use ::bitcoin::{Amount, Network, OutPoint, Script, Transaction, Txid, XOnlyPublicKey, merkle_tree};
use store::utxo::{self, AddressKind, Block, Hash, NewOutput, NewTx};
use tx::bitcoin::transaction::read_signed;
use tx::{BlockHash, TxHash};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes make no sense: {0}")]
pub struct BadBytes(&'static str);

impl BadBytes {
    pub(super) const fn height() -> Self {
        Self("no chain is so high")
    }
}

/// A block weighs at most 4,000,000 units, and each of its bytes weighs at least one: no block is longer.
const MOST_BYTES: usize = 4_000_000;

/// Bitcoin prints a hash in the reverse order of the bytes that stand in transactions.
fn turned(mut bytes: [u8; 32]) -> Hash {
    bytes.reverse();
    Hash(bytes)
}

fn hash_of_txid(txid: Txid) -> Hash {
    turned(txid.to_byte_array())
}

pub const fn hash_of_tx(hash: TxHash) -> Hash {
    Hash(hash.0)
}

pub const fn tx_hash_of(hash: Hash) -> TxHash {
    TxHash(hash.0)
}

pub const fn hash_of_block(hash: BlockHash) -> Hash {
    Hash(hash.0)
}

pub(super) const fn block_hash_of(hash: Hash) -> BlockHash {
    BlockHash(hash.0)
}

/// The network of addresses and nodes.
pub const fn network_of(network: utxo::Network) -> Network {
    match network {
        utxo::Network::Bitcoin => Network::Bitcoin,
        utxo::Network::Testnet => Network::Testnet,
        utxo::Network::Testnet4 => Network::Testnet4,
        utxo::Network::Signet => Network::Signet,
        utxo::Network::Regtest => Network::Regtest,
    }
}

/// What it takes to spend from a script.
pub fn kind_of_script(script: &[u8]) -> AddressKind {
    let script = Script::from_bytes(script);
    // Half of all 32-byte strings are not public keys. An output to one of those can never be spent.
    let is_key = || script.as_bytes().get(2..).is_some_and(|key| XOnlyPublicKey::from_slice(key).is_ok());
    if script.is_p2wpkh() {
        AddressKind::P2wpkh
    } else if script.is_p2tr() && is_key() {
        AddressKind::P2tr
    } else {
        AddressKind::Other
    }
}

/// Reads a signed transaction. Its signatures are not verified.
pub fn tx_of_bytes(raw: &[u8]) -> Result<NewTx, BadBytes> {
    let transaction = read_signed(raw).map_err(|_| BadBytes("not a transaction"))?;
    tx_of(&transaction)
}

pub fn tx_of(transaction: &Transaction) -> Result<NewTx, BadBytes> {
    new_tx(transaction, transaction.compute_txid())
}

fn new_tx(transaction: &Transaction, txid: Txid) -> Result<NewTx, BadBytes> {
    if transaction.input.is_empty() || transaction.output.is_empty() {
        return Err(BadBytes("a transaction has inputs and outputs"));
    }
    let coinbase = transaction.is_coinbase();
    let spent = |out: &OutPoint| utxo::OutPoint { hash: hash_of_txid(out.txid), index: out.vout };
    let inputs: Vec<_> =
        transaction.input.iter().filter(|_| !coinbase).map(|one| spent(&one.previous_output)).collect();
    if !coinbase && transaction.input.iter().any(|input| input.previous_output.is_null()) {
        return Err(BadBytes("an input spends no output"));
    }
    if inputs.iter().collect::<BTreeSet<_>>().len() != inputs.len() {
        return Err(BadBytes("an output is spent twice"));
    }
    let mut sum = 0_u64;
    let mut outputs = Vec::with_capacity(transaction.output.len());
    for output in &transaction.output {
        sum = sum
            .checked_add(output.value.to_sat())
            .filter(|&sum| sum <= Amount::MAX_MONEY.to_sat())
            .ok_or(BadBytes("more money than there is"))?;
        let amount = i64::try_from(output.value.to_sat()).map_err(|_| BadBytes("more money than there is"))?;
        outputs.push(NewOutput { script: output.script_pubkey.to_bytes(), amount });
    }
    Ok(NewTx { hash: hash_of_txid(txid), raw: serialize(transaction), coinbase, inputs, outputs })
}

/// A block and all its transactions. The height is given, because the bytes do not hold it. The transactions are
/// checked against the merkle root in the header; the proof of work is not checked. The genesis block has none that count.
pub fn block_of(height: u32, block: &::bitcoin::Block) -> Result<(Block, Vec<NewTx>), BadBytes> {
    let txids: Vec<Txid> = block.txdata.iter().map(Transaction::compute_txid).collect();
    // A block that repeats its last transactions can have the merkle root of the block without the repetition, and with
    // it the same hash (CVE-2012-2459). No valid block holds a transaction twice.
    if txids.iter().collect::<BTreeSet<_>>().len() != txids.len() {
        return Err(BadBytes("a transaction stands twice in the block"));
    }
    let root = merkle_tree::calculate_root(txids.iter().map(|txid| txid.to_raw_hash()));
    if root.is_none() || root != Some(block.header.merkle_root.to_raw_hash()) {
        return Err(BadBytes("the transactions are not those of the block"));
    }
    let transactions =
        block.txdata.iter().zip(&txids).map(|(one, &txid)| new_tx(one, txid)).collect::<Result<Vec<_>, _>>()?;
    if transactions.iter().enumerate().any(|(at, one)| one.coinbase != (at == 0)) {
        return Err(BadBytes("a block has one coinbase, and it is the first"));
    }
    let stored = Block {
        height,
        hash: turned(block.block_hash().to_byte_array()),
        parent: turned(block.header.prev_blockhash.to_byte_array()),
        time: block.header.time,
    };
    // Nobody can spend the first coinbase of a chain: nodes do not have it among their outputs.
    Ok((stored, if height == 0 { Vec::new() } else { transactions }))
}

pub fn block_of_bytes(height: u32, raw: &[u8]) -> Result<(Block, Vec<NewTx>), BadBytes> {
    if raw.len() > MOST_BYTES {
        return Err(BadBytes("longer than a block"));
    }
    block_of(height, &deserialize(raw).map_err(|_| BadBytes("not a block"))?)
}
