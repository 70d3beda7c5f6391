//! Blocks as busy as real ones, of which fifty transactions are ours.

use custody::bitcoin::import::Export;
use domain::Clock;
use domain::random::Random;
use store::Db;
use store::utxo::{Block, Hash, NewOutput, NewTx, OutPoint, UtxoError};
use terminal::clock::{Stopwatch, SystemClock};

use crate::bench::Samples;

const TRANSACTIONS: usize = 2_500;
const DEPOSITS: usize = 40;
/// Satoshi.
const DEPOSIT: i64 = 123_456;
const PAYOUTS: usize = 10;
/// What a payout spends, as the yardstick's do.
const INPUTS: usize = 10;
/// What a payout of a chain from its first block spends: fewer than are deposited, so that the wallet grows.
const INPUTS_FROM_GENESIS: usize = 3;
const REORG: usize = 6;

/// The chain above what was loaded.
pub struct Chain {
    random: Random,
    tip: (u32, Hash),
    scripts: Vec<Vec<u8>>,
    /// Unspent outputs that the payouts spend one after the other.
    coins: Vec<(OutPoint, i64)>,
    /// What a payout spends.
    inputs: usize,
}

impl Chain {
    pub fn on_top_of(export: &Export) -> Self {
        let tip = export.transactions.iter().filter_map(|one| one.block).max_by_key(|block| block.0);
        let coins = export.unspent.iter().map(|(outpoint, claim)| (*outpoint, claim.amount)).collect();
        Self {
            random: Random::from_seed(7),
            tip: tip.map_or((0, Hash([0; 32])), |(height, hash, _)| (height, hash)),
            scripts: export.addresses.iter().map(|one| one.script.clone()).collect(),
            coins,
            inputs: INPUTS,
        }
    }

    /// One that begins with its first block, and whose coins come from its own deposits.
    pub const fn from_genesis(scripts: Vec<Vec<u8>>) -> Self {
        let (random, tip) = (Random::from_seed(11), (0, Hash([0; 32])));
        Self { random, tip, scripts, coins: Vec::new(), inputs: INPUTS_FROM_GENESIS }
    }

    /// The next block. What its deposits bring, later payouts spend.
    pub fn mine(&mut self) -> (Block, Vec<NewTx>) {
        let transactions = self.transactions();
        let coins = transactions[..DEPOSITS].iter().map(|tx| (OutPoint { hash: tx.hash, index: 0 }, DEPOSIT));
        self.coins.splice(0..0, coins);
        (self.next(), transactions)
    }

    fn hash(&mut self) -> Hash {
        let mut bytes = [0; 32];
        for part in bytes.chunks_exact_mut(8) {
            part.copy_from_slice(&self.random.below(u64::MAX).to_be_bytes());
        }
        Hash(bytes)
    }

    fn foreign_output(&mut self) -> NewOutput {
        let tail = self.hash();
        NewOutput { script: [&[0, 20][..], &tail.0[..20]].concat(), amount: 50_000 }
    }

    fn transaction(&mut self, inputs: Vec<OutPoint>, outputs: Vec<NewOutput>) -> NewTx {
        let hash = self.hash();
        NewTx { hash, raw: vec![0xab; 220], coinbase: false, inputs, outputs }
    }

    fn foreign_input(&mut self) -> OutPoint {
        OutPoint { hash: self.hash(), index: 0 }
    }

    /// 40 deposits, 10 payouts with change, and 2,450 of other people.
    fn transactions(&mut self) -> Vec<NewTx> {
        let mut all = Vec::with_capacity(TRANSACTIONS);
        for _ in 0..DEPOSITS {
            let script = self.scripts[self.random.index(self.scripts.len())].clone();
            let (input, other) = (self.foreign_input(), self.foreign_output());
            all.push(self.transaction(vec![input], vec![NewOutput { script, amount: DEPOSIT }, other]));
        }
        for _ in 0..PAYOUTS {
            let spent = self.coins.split_off(self.coins.len().saturating_sub(self.inputs));
            if spent.is_empty() {
                break;
            }
            let change = self.scripts[self.random.index(self.scripts.len())].clone();
            let held: i64 = spent.iter().map(|(_, amount)| amount).sum();
            let outputs = vec![self.foreign_output(), NewOutput { script: change, amount: held / 2 }];
            let inputs = spent.into_iter().map(|(outpoint, _)| outpoint).collect();
            all.push(self.transaction(inputs, outputs));
        }
        while all.len() < TRANSACTIONS {
            let inputs = vec![self.foreign_input(), self.foreign_input()];
            let outputs = vec![self.foreign_output(), self.foreign_output()];
            all.push(self.transaction(inputs, outputs));
        }
        all
    }

    fn next(&mut self) -> Block {
        let (height, parent) = self.tip;
        let block = Block { height: height + 1, hash: self.hash(), parent, time: 1_800_000_000 };
        self.tip = (block.height, block.hash);
        block
    }

    /// Milliseconds of one block connected, and of six replaced by six others with the same transactions.
    pub async fn measure(&mut self, db: &Db, rounds: u32) -> Result<(Samples, Samples), UtxoError> {
        let (mut connect, mut reorg) = (Samples::default(), Samples::default());
        // As a follower that runs. The first block builds the filter, and does not count.
        db.watch_in_memory();
        let (first, transactions) = (self.next(), self.transactions());
        db.connect_block(&first, &transactions, SystemClock.now()).await?;
        let mut last: Vec<(Hash, Vec<NewTx>)> = Vec::new();
        for _ in 0..(rounds as usize).max(REORG) + 1 {
            let (before, transactions) = (self.tip.1, self.transactions());
            let block = self.next();
            let watch = Stopwatch::start();
            db.connect_block(&block, &transactions, SystemClock.now()).await?;
            connect.push(watch.elapsed().as_secs_f64() * 1_000.0);
            last.push((before, transactions));
        }
        let replaced: Vec<(Hash, Vec<NewTx>)> = last.split_off(last.len() - REORG);
        for _ in 0..rounds.min(5) {
            let tip = self.tip;
            let fork = tip.0 - u32::try_from(REORG).unwrap_or(0);
            self.tip = (fork, replaced[0].0);
            let blocks: Vec<Block> = replaced.iter().map(|_| self.next()).collect();
            let watch = Stopwatch::start();
            db.disconnect_blocks(tip, fork, &[], SystemClock.now()).await?;
            for (block, (_, transactions)) in blocks.iter().zip(&replaced) {
                db.connect_block(block, transactions, SystemClock.now()).await?;
            }
            reorg.push(watch.elapsed().as_secs_f64() * 1_000.0);
        }
        Ok((connect, reorg))
    }
}
