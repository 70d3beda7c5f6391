use bitcoin::consensus::{deserialize, serialize};
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash as _;
use bitcoin::{Amount, Block, Network, OutPoint, Transaction, TxIn, TxOut};
use custody::bitcoin::{
    ScriptKind, block_of, block_of_bytes, hash_of_block, hash_of_tx, kind_of_script, network_of, plan, tx_hash_of,
    tx_of, tx_of_bytes,
};
use proptest::prelude::*;
use store::utxo::{self, AddressKind};
use tx::{BlockHash, TxHash};

use crate::world::*;

fn some_transaction() -> Transaction {
    let coins = [coin(1, 70_000, AddressKind::P2wpkh), coin(2, 80_000, AddressKind::P2tr)];
    let target = target(&[100_000, 5_000], COSTS, ScriptKind::P2tr);
    signed(&plan(&coins, &target, &change_script(ScriptKind::P2tr)).unwrap(), 0)
}

#[test]
fn a_transaction_is_read_as_it_was_planned() {
    let coins = [coin(1, 70_000, AddressKind::P2wpkh), coin(2, 80_000, AddressKind::P2tr)];
    let target = target(&[100_000, 5_000], COSTS, ScriptKind::P2tr);
    let plan = plan(&coins, &target, &change_script(ScriptKind::P2tr)).unwrap();
    let transaction = signed(&plan, 0);
    let raw = serialize(&transaction);
    let read = tx_of_bytes(&raw).unwrap();
    assert_eq!(read.hash.to_string(), transaction.compute_txid().to_string(), "in the order in which it is printed");
    assert_eq!(read.raw, raw);
    assert!(!read.coinbase);
    assert_eq!(read.inputs, plan.coins.iter().map(|coin| coin.outpoint).collect::<Vec<_>>());
    let outputs = read.outputs.iter().map(|output| (u64::try_from(output.amount).unwrap(), &output.script));
    assert!(outputs.eq(plan.outputs.iter().map(|output| (output.amount, &output.script))));
}

#[test]
fn the_first_block_of_all_is_known() {
    let genesis = genesis_block(Network::Bitcoin);
    let (block, transactions) = block_of_bytes(0, &serialize(&genesis)).unwrap();
    assert_eq!(block.hash.to_string(), "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f");
    assert_eq!((block.height, block.parent, block.time), (0, utxo::Hash([0; 32]), 1_231_006_505));
    assert_eq!(transactions, [], "nobody can spend its coinbase");
    let coinbase = tx_of(&genesis.txdata[0]).unwrap();
    assert_eq!(coinbase.hash.to_string(), "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b");
    assert!(coinbase.coinbase && coinbase.inputs.is_empty());
    assert_eq!(coinbase.outputs[0].amount, 5_000_000_000);
}

fn block_with(transactions: Vec<Transaction>) -> Block {
    let mut block = genesis_block(Network::Regtest);
    block.txdata.extend(transactions);
    block.header.merkle_root = block.compute_merkle_root().unwrap();
    block
}

#[test]
fn a_block_is_what_its_hash_stands_for() {
    let block = block_with(vec![some_transaction()]);
    let (stored, transactions) = block_of(7, &block).unwrap();
    assert_eq!((stored.height, stored.hash.to_string()), (7, block.block_hash().to_string()));
    assert_eq!(transactions.iter().map(|one| one.coinbase).collect::<Vec<_>>(), [true, false]);
    assert_eq!(transactions[1], tx_of(&some_transaction()).unwrap());

    let refused = |change: &dyn Fn(&mut Block)| {
        let mut other = block.clone();
        change(&mut other);
        block_of(7, &other).unwrap_err().to_string()
    };
    assert!(refused(&|block| block.txdata.truncate(1)).contains("not those of the block"));
    assert!(refused(&|block| block.txdata.clear()).contains("not those of the block"));
    assert!(refused(&|block| block.txdata[1].output[0].value = Amount::ONE_SAT).contains("not those of the block"));
    let twice = |block: &mut Block| {
        block.txdata.push(block.txdata[1].clone());
        block.header.merkle_root = block.compute_merkle_root().unwrap();
    };
    assert!(refused(&twice).contains("twice"));
    let swapped = |block: &mut Block| {
        block.txdata.swap(0, 1);
        block.header.merkle_root = block.compute_merkle_root().unwrap();
    };
    assert!(refused(&swapped).contains("one coinbase"));
}

#[test]
fn transactions_that_cannot_be_are_refused() {
    let good = some_transaction();
    let refused = |change: &dyn Fn(&mut Transaction)| {
        let mut other = good.clone();
        change(&mut other);
        tx_of(&other).unwrap_err().to_string()
    };
    assert!(refused(&|one| one.input.clear()).contains("inputs and outputs"));
    assert!(refused(&|one| one.output.clear()).contains("inputs and outputs"));
    assert!(refused(&|one| one.input.push(one.input[0].clone())).contains("spent twice"));
    assert!(refused(&|one| one.input[0].previous_output = OutPoint::null()).contains("spends no output"));
    assert!(refused(&|one| one.output[0].value = Amount::from_sat(u64::MAX)).contains("more money"));
    let rich = TxOut { value: Amount::MAX_MONEY, ..good.output[0].clone() };
    assert!(refused(&|one| one.output.push(rich.clone())).contains("more money"));
    let minted = |one: &mut Transaction| one.input = vec![TxIn::default()];
    let mut coinbase = good.clone();
    minted(&mut coinbase);
    assert!(tx_of(&coinbase).unwrap().coinbase);
}

proptest! {
    #[test]
    fn bad_bytes_are_errors(at in 0..300_usize, byte in any::<u8>(), cut in 0..300_usize, noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let good = serialize(&some_transaction());
        prop_assert!(tx_of_bytes(&noise).is_err() || deserialize::<Transaction>(&noise).is_ok());
        prop_assert!(tx_of_bytes(&good[..cut.min(good.len() - 1)]).is_err());
        let mut longer = good.clone();
        longer.push(byte);
        prop_assert!(tx_of_bytes(&longer).is_err());
        let mut changed = good.clone();
        let at = at % changed.len();
        changed[at] ^= byte | 1;
        if let Ok(read) = tx_of_bytes(&changed) {
            prop_assert_eq!(read.raw, changed);
        }
        let block = serialize(&block_with(vec![some_transaction()]));
        prop_assert!(block_of_bytes(1, &block[..cut.min(block.len() - 1)]).is_err());
        prop_assert!(block_of_bytes(1, &noise).is_err());
        let mut changed = block.clone();
        // The witnesses are not under the root of the header.
        let end = 80 + 1 + genesis_block(Network::Regtest).txdata[0].total_size() + 100;
        let at = 36 + at % (end - 36);
        changed[at] ^= byte | 1;
        let header = (68..80).contains(&at);
        prop_assert!(block_of_bytes(1, &changed).is_err() != header, "{}", at);
    }
}

#[test]
fn names_and_hashes_go_both_ways() {
    for &network in utxo::Network::ALL {
        assert_eq!(network_of(network).to_string(), network.text());
    }
    let bytes: [u8; 32] = std::array::from_fn(|at| u8::try_from(at).unwrap());
    assert_eq!(tx_hash_of(hash_of_tx(TxHash(bytes))), TxHash(bytes));
    assert_eq!(hash_of_block(BlockHash(bytes)).to_string(), BlockHash(bytes).to_string());
    assert_eq!(hash_of_tx(TxHash(bytes)).to_string(), TxHash(bytes).to_string());
    let transaction = some_transaction();
    let turned = hash_of_tx(TxHash(tx_of(&transaction).unwrap().hash.0)).0;
    assert!(turned.iter().rev().eq(transaction.compute_txid().to_byte_array().iter()));
}

#[test]
fn scripts_are_told_apart() {
    assert_eq!(kind_of_script(&script_of(0, AddressKind::P2wpkh)), AddressKind::P2wpkh);
    assert_eq!(kind_of_script(&script_of(0, AddressKind::P2tr)), AddressKind::P2tr);
    let no_point = [&[0x51, 32][..], &[0xff; 32]].concat();
    for other in [foreign_script(1), foreign_script(2), foreign_script(3), vec![], vec![0x51], no_point] {
        assert_eq!(kind_of_script(&other), AddressKind::Other);
    }
}
