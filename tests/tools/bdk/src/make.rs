//! Makes a wallet file with a given number of unspent and spent outputs.
//!
//! The rows are written by bdk_wallet's own `ChangeSet::persist_to_sqlite`, a part at a time, as if the wallet had been
//! told of each block. Nothing holds the whole wallet in memory, so millions of outputs are no matter.

use std::sync::Arc;

use bdk_wallet::bitcoin::consensus::encode::serialize_hex;
use bdk_wallet::bitcoin::constants::genesis_block;
use bdk_wallet::bitcoin::{BlockHash, Network, NetworkKind, Transaction};
use bdk_wallet::chain::{BlockId, ConfirmationBlockTime};
use bdk_wallet::rusqlite::Connection;
use bdk_wallet::{ChangeSet, KeychainKind, PersistedWallet, Wallet};
use serde_json::{Value, json};

use crate::Error;
use crate::coins::{self, Coin, Ours};
use crate::flags::{Flags, Wrong};
use crate::random::Random;

/// What one payout spends, as a batch of withdrawals does.
const INPUTS_OF_PAYOUT: u64 = 10;

/// Blocks that are written together.
const BLOCKS_AT_ONCE: usize = 1_000;

pub fn run(flags: &mut Flags) -> Result<Value, Error> {
    let file = flags.new_file()?;
    let network: Network = flags.value("network", Some("regtest"))?;
    let (unspent, spent) = (flags.value("unspent", None)?, flags.value("spent", None)?);
    let random = Random::from_seed(flags.value("seed", None)?);
    let per_block: usize = flags.value("per-block", Some("50"))?;
    let export = flags.given("export");
    flags.end()?;
    if NetworkKind::from(network).is_mainnet() || per_block == 0 {
        return Err(
            Wrong("the test keys are for test networks, and a block has at least one transaction".into()).into()
        );
    }

    let order = Order { network, unspent, spent, per_block, export };
    let (summary, exported) = crate::fresh(&file, |connection| fill(connection, random, &order))?;
    std::fs::write(file.with_extension("json"), serde_json::to_vec(&exported)?)?;
    Ok(summary)
}

/// What the command line asks for.
struct Order {
    network: Network,
    unspent: u64,
    spent: u64,
    per_block: usize,
    export: bool,
}

/// Fills the file; returns the summary, and what goes into the JSON file beside it.
fn fill(connection: &mut Connection, random: Random, order: &Order) -> Result<(Value, Value), Error> {
    // The file is made again if the machine fails: neither a journal nor a flush is worth its time here.
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000")?;
    let wallet = empty_wallet(connection, order.network)?;
    let (unspent, spent, ours) = (order.unspent, order.spent, Ours::of(&wallet));
    let history = History { random, ours, unspent, spent, made: 0, gone: 0, coins: Vec::new() };
    let mut written = Written::new(order.network, order.export);
    let history = written.all(connection, history, order.per_block)?;
    // An ordinary file is left behind, as bdk_wallet would have left it.
    connection.execute_batch("PRAGMA journal_mode = DELETE")?;

    let summary = json!({
        "unspent": history.coins.len(),
        "spent": history.gone,
        "balance_sat": history.coins.iter().map(|coin| coin.sat).sum::<u64>(),
        "transactions": written.transactions,
    });
    let exported = if order.export { written.export(&wallet, &summary) } else { summary.clone() };
    Ok((summary, exported))
}

/// A wallet in the file that has given out the addresses that will receive.
fn empty_wallet(connection: &mut Connection, network: Network) -> Result<PersistedWallet<Connection>, Error> {
    let mut wallet = Wallet::create(coins::EXTERNAL, coins::INTERNAL).network(network).create_wallet(connection)?;
    drop(wallet.reveal_addresses_to(KeychainKind::External, coins::EXTERNAL_ADDRESSES - 1));
    drop(wallet.reveal_addresses_to(KeychainKind::Internal, coins::INTERNAL_ADDRESSES - 1));
    wallet.persist(connection)?;
    Ok(wallet)
}

/// The transactions of the wallet, one after another.
struct History {
    random: Random,
    ours: Ours,
    /// What there shall be in the end.
    unspent: u64,
    spent: u64,
    /// Outputs of ours made so far, and those of them that are spent.
    made: u64,
    gone: u64,
    /// Those that are not.
    coins: Vec<Coin>,
}

impl History {
    /// Payouts come as soon as there is as much to spend as there shall be in the end, in proportion, so that old and
    /// new blocks alike have outputs that are spent and that are not.
    fn spend_now(&self) -> u64 {
        let all = self.unspent + self.spent;
        if self.made == all {
            return INPUTS_OF_PAYOUT.min(self.spent - self.gone);
        }
        let due = u128::from(self.made) * u128::from(self.spent) / u128::from(all);
        if u128::from(self.gone + INPUTS_OF_PAYOUT) <= due { INPUTS_OF_PAYOUT } else { 0 }
    }
}

impl Iterator for History {
    type Item = Transaction;

    fn next(&mut self) -> Option<Transaction> {
        let all = self.unspent + self.spent;
        let spend = self.spend_now();
        let (tx, coin) = if spend > 0 {
            let mut inputs = Vec::new();
            for _ in 0..spend {
                let at = self.random.index(self.coins.len());
                inputs.push(self.coins.swap_remove(at));
            }
            self.gone += spend;
            let at = self.random.index(self.ours.internal.len());
            let change = (self.made < all).then(|| self.ours.internal[at].clone());
            coins::payout(&mut self.random, &inputs, change)
        } else if self.made < all {
            let at = self.random.index(self.ours.external.len());
            let sat = self.random.sat();
            let (tx, coin) = coins::deposit(&mut self.random, self.ours.external[at].clone(), sat);
            (tx, Some(coin))
        } else {
            return None;
        };
        self.made += u64::from(coin.is_some());
        self.coins.extend(coin);
        Some(tx)
    }
}

/// The chain so far, and what `--export` shall say of it.
struct Written {
    tip: BlockId,
    transactions: u64,
    export: bool,
    blocks: Vec<Value>,
    raw: Vec<Value>,
}

impl Written {
    fn new(network: Network, export: bool) -> Self {
        let hash = genesis_block(network).block_hash();
        let blocks = vec![json!([0, hash])];
        Self { tip: BlockId { height: 0, hash }, transactions: 0, export, blocks, raw: Vec::new() }
    }

    fn all(&mut self, connection: &mut Connection, mut history: History, per_block: usize) -> Result<History, Error> {
        let database = connection.transaction()?;
        loop {
            let mut changes = ChangeSet::default();
            for _ in 0..BLOCKS_AT_ONCE {
                let txs: Vec<Transaction> = history.by_ref().take(per_block).collect();
                if txs.is_empty() {
                    break;
                }
                self.block(txs, &mut changes);
            }
            if changes.local_chain.blocks.is_empty() {
                break;
            }
            changes.persist_to_sqlite(&database)?;
        }
        database.commit()?;
        Ok(history)
    }

    fn block(&mut self, txs: Vec<Transaction>, changes: &mut ChangeSet) {
        let height = self.tip.height + 1;
        let txids: Vec<_> = txs.iter().map(Transaction::compute_txid).collect();
        let hash: BlockHash = coins::header(txids.iter().copied(), height, self.tip.hash, 0).block_hash();
        self.tip = BlockId { height, hash };
        self.transactions += txs.len() as u64;
        changes.local_chain.blocks.insert(height, Some(hash));
        let anchor = ConfirmationBlockTime { block_id: self.tip, confirmation_time: u64::from(coins::time_of(height)) };
        changes.tx_graph.anchors.extend(txids.iter().map(|&txid| (anchor, txid)));
        if self.export {
            self.blocks.push(json!([height, hash]));
            self.raw.extend(txs.iter().zip(&txids).map(|(tx, txid)| json!([txid, height, serialize_hex(tx)])));
        }
        changes.tx_graph.txs.extend(txs.into_iter().map(Arc::new));
    }

    fn export(&self, wallet: &Wallet, summary: &Value) -> Value {
        let ours = Ours::of(wallet);
        let of_branch = |scripts: &[_], branch: u32| -> Vec<Value> {
            (0_u32..).zip(scripts).map(|(index, script)| json!([script, branch, index])).collect()
        };
        let addresses = [of_branch(&ours.external, 0), of_branch(&ours.internal, 1)].concat();
        json!({
            "network": wallet.network().to_string(),
            "external_descriptor": wallet.public_descriptor(KeychainKind::External).to_string(),
            "internal_descriptor": wallet.public_descriptor(KeychainKind::Internal).to_string(),
            "tip": {"height": self.tip.height, "hash": self.tip.hash},
            "blocks": self.blocks,
            "addresses": addresses,
            "transactions": self.raw,
            "summary": summary,
        })
    }
}
