//! The test descriptors, and transactions and blocks around them. bdk_wallet checks neither signatures nor proof of
//! work, so what comes from others has a witness of the right size and a hash that nobody mined.

use bdk_wallet::bitcoin::absolute::LockTime;
use bdk_wallet::bitcoin::block::{Block, Header, Version as BlockVersion};
use bdk_wallet::bitcoin::hashes::Hash;
use bdk_wallet::bitcoin::script::Builder;
use bdk_wallet::bitcoin::transaction::Version;
use bdk_wallet::bitcoin::{
    Amount, BlockHash, CompactTarget, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxMerkleNode, TxOut, Txid,
    WPubkeyHash, Witness, merkle_tree,
};
use bdk_wallet::{KeychainKind, Wallet};

use crate::random::Random;

/// The key is one that bdk_wallet publishes in its own documentation, and is for test networks only.
macro_rules! descriptor {
    ($branch:literal) => {
        concat!(
            "wpkh(tprv8ZgxMBicQKsPdy6LMhUtFHAgpocR8GC6QmwMSFpZs7h6Eziw3SpThFfczTDh5rW2krkqffa11UpX3XkeTTB2FvzZKWXqPY54Y6Rq4AQ5R8L/84'/1'/0'/",
            $branch,
            "/*)"
        )
    };
}
pub const EXTERNAL: &str = descriptor!(0);
pub const INTERNAL: &str = descriptor!(1);

/// Addresses of each branch that receive in `make`: a hot wallet uses its addresses again.
pub const EXTERNAL_ADDRESSES: u32 = 900;
pub const INTERNAL_ADDRESSES: u32 = 100;

/// The fee of every transaction that is made here by hand.
const FEE_SAT: u64 = 5_000;

/// An output of ours that is not spent.
#[derive(Clone, Copy)]
pub struct Coin {
    pub outpoint: OutPoint,
    pub sat: u64,
}

/// The scripts that the wallet has given out, and so may receive on.
pub struct Ours {
    pub external: Vec<ScriptBuf>,
    pub internal: Vec<ScriptBuf>,
}

impl Ours {
    pub fn of(wallet: &Wallet) -> Self {
        let scripts = |branch| {
            let last = wallet.derivation_index(branch).unwrap_or(0);
            (0..=last).map(|index| wallet.peek_address(branch, index).script_pubkey()).collect()
        };
        Self { external: scripts(KeychainKind::External), internal: scripts(KeychainKind::Internal) }
    }
}

pub fn foreign_script(random: &mut Random) -> ScriptBuf {
    ScriptBuf::new_p2wpkh(&WPubkeyHash::from_byte_array(random.bytes()))
}

/// An output of somebody else that nobody has seen before.
pub fn foreign_outpoint(random: &mut Random) -> OutPoint {
    OutPoint::new(Txid::from_byte_array(random.bytes()), random.next_vout())
}

impl Random {
    fn next_vout(&mut self) -> u32 {
        u32::from(self.bytes::<1>()[0] % 4)
    }
}

pub fn output(sat: u64, script_pubkey: ScriptBuf) -> TxOut {
    TxOut { value: Amount::from_sat(sat), script_pubkey }
}

/// A transaction whose inputs have witnesses of the size that P2WPKH has.
pub fn transaction(inputs: &[OutPoint], output: Vec<TxOut>) -> Transaction {
    let input = inputs.iter().map(|&previous_output| TxIn {
        previous_output,
        script_sig: ScriptBuf::new(),
        sequence: Sequence::ENABLE_RBF_NO_LOCKTIME,
        witness: Witness::from_slice(&[&[0x30; 71][..], &[0x02; 33][..]]),
    });
    Transaction { version: Version::TWO, lock_time: LockTime::ZERO, input: input.collect(), output }
}

/// Somebody pays `sat` to `script`, and has change.
pub fn deposit(random: &mut Random, script: ScriptBuf, sat: u64) -> (Transaction, Coin) {
    let theirs = output(random.sat(), foreign_script(random));
    let ours = output(sat, script);
    let vout = u32::from(random.below(2) == 1);
    let outputs = if vout == 0 { vec![ours, theirs] } else { vec![theirs, ours] };
    let tx = transaction(&[foreign_outpoint(random)], outputs);
    let coin = Coin { outpoint: OutPoint::new(tx.compute_txid(), vout), sat };
    (tx, coin)
}

/// We pay with `coins` to somebody else; with a `change` script, some of it comes back there.
pub fn payout(random: &mut Random, coins: &[Coin], change: Option<ScriptBuf>) -> (Transaction, Option<Coin>) {
    let spendable = coins.iter().map(|coin| coin.sat).sum::<u64>() - FEE_SAT;
    let drawn = random.sat();
    let back = change.map(|script| (if drawn < spendable { drawn } else { spendable / 2 }, script));
    let mut outputs = vec![output(spendable - back.as_ref().map_or(0, |(sat, _)| *sat), foreign_script(random))];
    outputs.extend(back.iter().map(|(sat, script)| output(*sat, script.clone())));
    let inputs: Vec<OutPoint> = coins.iter().map(|coin| coin.outpoint).collect();
    let tx = transaction(&inputs, outputs);
    let coin = back.map(|(sat, _)| Coin { outpoint: OutPoint::new(tx.compute_txid(), 1), sat });
    (tx, coin)
}

/// A transaction that does not concern us.
pub fn foreign_transaction(random: &mut Random) -> Transaction {
    let outputs = vec![output(random.sat(), foreign_script(random)), output(random.sat(), foreign_script(random))];
    transaction(&[foreign_outpoint(random)], outputs)
}

pub fn coinbase(height: u32, script: ScriptBuf, sat: u64) -> Transaction {
    let mut tx = transaction(&[OutPoint::null()], vec![output(sat, script)]);
    tx.input[0].script_sig = Builder::new().push_int(i64::from(height)).push_int(0).into_script();
    tx.input[0].witness = Witness::from_slice(&[[0_u8; 32]]);
    tx
}

/// Ten minutes for each block.
pub const fn time_of(height: u32) -> u32 {
    1_700_000_000 + height * 600
}

/// The same transactions with another `nonce` are another block.
pub fn header(txids: impl Iterator<Item = Txid>, height: u32, prev_blockhash: BlockHash, nonce: u32) -> Header {
    let root = merkle_tree::calculate_root(txids.map(|txid| TxMerkleNode::from_byte_array(txid.to_byte_array())));
    Header {
        version: BlockVersion::TWO,
        prev_blockhash,
        merkle_root: root.unwrap_or(TxMerkleNode::all_zeros()),
        time: time_of(height),
        bits: CompactTarget::from_consensus(0x207f_ffff),
        nonce,
    }
}

pub fn block(txdata: Vec<Transaction>, height: u32, parent: BlockHash, nonce: u32) -> Block {
    let header = header(txdata.iter().map(Transaction::compute_txid), height, parent, nonce);
    Block { header, txdata }
}
