//! A small wallet file with everything in it that an import may meet. The same bytes each time.
//!
//! | what                                                     | how a reader can get it wrong                   |
//! |----------------------------------------------------------|-------------------------------------------------|
//! | coinbases: mature, immature, one of a block taken back   | the last is in the file, but counts nothing     |
//! | heights 1 to 99 are missing                              | a wallet has the blocks that it was told of     |
//! | a block taken back, its deposit mined again              | two anchors, one of no block in `bdk_blocks`    |
//! | a block taken back, its deposit not mined again          | an anchor, but unconfirmed; and no `last_seen`  |
//! | a block taken back, its deposit double-spent by a sender | an anchor, but void; the double spend is in the |
//! |                                                          | file, though it neither pays nor spends ours    |
//! | payouts replaced, by a mined one and by an unmined one   | no column says so: the inputs and `last_seen`   |
//! | a deposit that left the mempool                          | `last_evicted` is not before `last_seen`: void  |
//! | an unconfirmed payout whose change is spent already      | an unconfirmed output that is spent             |
//! | an output of somebody else without its transaction       | `bdk_txouts`: not ours                          |
//! | a locked output                                          | it is unspent all the same                      |

use std::sync::Arc;

use bdk_wallet::bitcoin::constants::genesis_block;
use bdk_wallet::bitcoin::secp256k1::Secp256k1;
use bdk_wallet::bitcoin::{Amount, FeeRate, Network, NetworkKind, OutPoint, Psbt, ScriptBuf, Transaction, Txid};
use bdk_wallet::chain::BlockId;
use bdk_wallet::descriptor::IntoWalletDescriptor;
use bdk_wallet::rusqlite::Connection;
use bdk_wallet::signer::SignersContainer;
use bdk_wallet::{KeychainKind, PersistedWallet, SignOptions, Wallet};
use serde_json::Value;

use crate::Error;
use crate::coins;
use crate::flags::Flags;
use crate::random::Random;

const SUBSIDY_SAT: u64 = 5_000_000_000;
const ADDRESSES: u32 = 8;
/// When the mempool shows what it shows; later than all blocks.
const NOW: u64 = 1_700_200_000;

pub fn run(flags: &mut Flags) -> Result<Value, Error> {
    let file = flags.new_file()?;
    flags.end()?;
    crate::fresh(&file, |connection| {
        let mut sample = Sample::new(connection)?;
        sample.deposits()?;
        sample.payouts()?;
        sample.replaced_and_mined()?;
        sample.until_mature()?;
        sample.reorganisation()?;
        sample.mempool()?;
        sample.oddities();
        sample.wallet.persist(connection)?;
        Ok(crate::dump::dump(&sample.wallet))
    })
}

struct Sample {
    wallet: PersistedWallet<Connection>,
    signers: [SignersContainer; 2],
    random: Random,
    tip: BlockId,
}

impl Sample {
    fn new(connection: &mut Connection) -> Result<Self, Error> {
        let network = Network::Regtest;
        let mut wallet = Wallet::create(coins::EXTERNAL, coins::INTERNAL).network(network).create_wallet(connection)?;
        drop(wallet.reveal_addresses_to(KeychainKind::External, ADDRESSES - 1));
        let secp = Secp256k1::new();
        let signers = |descriptor: &str| -> Result<SignersContainer, Error> {
            let (public, keys) = descriptor.into_wallet_descriptor(&secp, NetworkKind::Test)?;
            Ok(SignersContainer::build(keys, &public, &secp))
        };
        let signers = [signers(coins::EXTERNAL)?, signers(coins::INTERNAL)?];
        let tip = BlockId { height: 0, hash: genesis_block(network).block_hash() };
        let mut sample = Self { wallet, signers, random: Random::from_seed(30), tip };

        // The first block stands alone: a wallet begins where its owner began it.
        let coinbase = coins::coinbase(101, sample.script(0), SUBSIDY_SAT);
        let parent = bdk_wallet::bitcoin::hashes::Hash::from_byte_array(sample.random.bytes());
        let block = coins::block(vec![coinbase], 101, parent, 0);
        sample.wallet.apply_block_connected_to(&block, 101, sample.tip)?;
        sample.tip = BlockId { height: 101, hash: block.block_hash() };
        Ok(sample)
    }

    fn script(&self, index: u32) -> ScriptBuf {
        self.wallet.peek_address(KeychainKind::External, index).script_pubkey()
    }

    fn mine(&mut self, txs: Vec<Transaction>) -> Result<(), Error> {
        let theirs = coins::foreign_script(&mut self.random);
        self.mine_for(theirs, txs)
    }

    /// The next block on `tip`, which need not be the wallet's: then the wallet's blocks above it are taken back.
    fn mine_for(&mut self, miner: ScriptBuf, txs: Vec<Transaction>) -> Result<(), Error> {
        let height = self.tip.height + 1;
        let mut all = vec![coins::coinbase(height, miner, SUBSIDY_SAT), coins::foreign_transaction(&mut self.random)];
        all.extend(txs);
        let block = coins::block(all, height, self.tip.hash, 0);
        self.wallet.apply_block(&block, height)?;
        self.tip = BlockId { height, hash: block.block_hash() };
        Ok(())
    }

    fn deposit(&mut self, index: u32) -> Transaction {
        let (sat, script) = (self.random.sat(), self.script(index));
        coins::deposit(&mut self.random, script, sat).0
    }

    /// A payout that bdk_wallet builds and signs. With `spend`, that and nothing else is its input.
    fn payout(&mut self, script: ScriptBuf, sat: u64, spend: Option<OutPoint>) -> Result<Transaction, Error> {
        let mut builder = self.wallet.build_tx();
        builder.add_recipient(script, Amount::from_sat(sat)).fee_rate(rate(2));
        if let Some(outpoint) = spend {
            builder.add_utxo(outpoint)?.manually_selected_only();
        }
        let psbt = builder.finish_with_aux_rand(&mut self.random)?;
        self.sign(psbt)
    }

    fn bump(&mut self, txid: Txid) -> Result<Transaction, Error> {
        let mut builder = self.wallet.build_fee_bump(txid)?;
        builder.fee_rate(rate(9));
        let psbt = builder.finish_with_aux_rand(&mut self.random)?;
        self.sign(psbt)
    }

    fn sign(&self, mut psbt: Psbt) -> Result<Transaction, Error> {
        let signers: Vec<&SignersContainer> = self.signers.iter().collect();
        if !self.wallet.sign_with_signers(&mut psbt, &signers, SignOptions::default())? {
            return Err("bdk_wallet did not sign all of its inputs".into());
        }
        Ok(psbt.extract_tx()?)
    }

    fn see(&mut self, tx: &Transaction, at: u64) {
        self.wallet.apply_unconfirmed_txs([(Arc::new(tx.clone()), at)]);
    }

    /// Eleven: one address again and again, two outputs in one transaction, and the change branch paid from outside.
    fn deposits(&mut self) -> Result<(), Error> {
        for index in [1, 2, 3, 3, 3, 4, 5, 6, 7] {
            let tx = self.deposit(index);
            self.mine(vec![tx])?;
        }
        let outputs = vec![
            coins::output(123_456, self.script(1)),
            coins::output(50_000, coins::foreign_script(&mut self.random)),
            coins::output(654_321, self.script(2)),
        ];
        let two = coins::transaction(&[coins::foreign_outpoint(&mut self.random)], outputs);
        let change = self.wallet.reveal_next_address(KeychainKind::Internal).script_pubkey();
        let to_change = coins::deposit(&mut self.random, change, 77_777).0;
        self.mine(vec![two, to_change])
    }

    /// Five with change, of which one pays ourselves, and one in the same block as the deposit that it spends.
    fn payouts(&mut self) -> Result<(), Error> {
        for sat in [20_000, 300_000, 45_000] {
            let script = coins::foreign_script(&mut self.random);
            let tx = self.payout(script, sat, None)?;
            self.mine(vec![tx])?;
        }
        let own = self.script(6);
        let tx = self.payout(own, 60_000, None)?;
        self.mine(vec![tx])?;

        let script = self.script(5);
        let (paid, coin) = coins::deposit(&mut self.random, script, 900_000);
        self.see(&paid, NOW - 5_000);
        let script = coins::foreign_script(&mut self.random);
        let spent = self.payout(script, 400_000, Some(coin.outpoint))?;
        self.mine(vec![paid, spent])
    }

    fn replaced_and_mined(&mut self) -> Result<(), Error> {
        let script = coins::foreign_script(&mut self.random);
        let first = self.payout(script, 33_000, None)?;
        self.see(&first, NOW - 4_000);
        let second = self.bump(first.compute_txid())?;
        self.see(&second, NOW - 3_900);
        self.mine(vec![second])
    }

    /// Empty blocks, until the coinbase of block 101 can be spent; ours is one more, which cannot.
    fn until_mature(&mut self) -> Result<(), Error> {
        while self.tip.height < 210 {
            self.mine(Vec::new())?;
        }
        let ours = self.script(0);
        self.mine_for(ours, Vec::new())
    }

    fn reorganisation(&mut self) -> Result<(), Error> {
        let fork = self.tip;
        let (again, left, twice) = (self.deposit(1), self.deposit(2), self.deposit(3));
        let ours = self.script(0);
        self.mine_for(ours, vec![again.clone()])?;
        self.mine(vec![left, twice.clone()])?;

        self.tip = fork;
        self.mine(Vec::new())?;
        let back = coins::output(10_000, coins::foreign_script(&mut self.random));
        let double = coins::transaction(&[twice.input[0].previous_output], vec![back]);
        self.mine(vec![again, double])?;
        self.mine(Vec::new())
    }

    fn mempool(&mut self) -> Result<(), Error> {
        let deposit = self.deposit(4);
        self.see(&deposit, NOW);

        let script = coins::foreign_script(&mut self.random);
        let payout = self.payout(script, 25_000, None)?;
        self.see(&payout, NOW);
        let change = self.change_of(&payout)?;
        let script = coins::foreign_script(&mut self.random);
        let child = self.payout(script, 5_000, Some(change))?;
        self.see(&child, NOW + 1);

        let script = coins::foreign_script(&mut self.random);
        let first = self.payout(script, 41_000, None)?;
        self.see(&first, NOW + 2);
        let second = self.bump(first.compute_txid())?;
        self.see(&second, NOW + 3);

        let gone = self.deposit(7);
        self.see(&gone, NOW + 4);
        self.wallet.apply_evicted_txs([(gone.compute_txid(), NOW + 5)]);
        Ok(())
    }

    fn change_of(&self, tx: &Transaction) -> Result<OutPoint, Error> {
        let txid = tx.compute_txid();
        let change = self.wallet.list_unspent().find(|output| output.outpoint.txid == txid);
        Ok(change.ok_or("the payout has no change")?.outpoint)
    }

    fn oddities(&mut self) {
        let outpoint = coins::foreign_outpoint(&mut self.random);
        let theirs = coins::output(70_000, coins::foreign_script(&mut self.random));
        self.wallet.insert_txout(outpoint, theirs);
        let locked = self.wallet.list_unspent().find(|output| output.chain_position.is_confirmed());
        if let Some(output) = locked {
            self.wallet.lock_outpoint(output.outpoint);
        }
    }
}

fn rate(sat_per_vb: u64) -> FeeRate {
    FeeRate::from_sat_per_vb(sat_per_vb).expect("a small fee rate is a fee rate")
}
