//! Times what a user of bdk_wallet does with a wallet file. Everything is the median of `--rounds`, but for `open_ms`.
//!
//! | figure            | what is in it                                                                        |
//! |-------------------|--------------------------------------------------------------------------------------|
//! | `open_ms`         | opening the file and `load_wallet`, once: bdk_wallet reads all of it into memory     |
//! | `balance_ms`      | `balance()`, which decides anew for every transaction whether it counts              |
//! | `list_unspent_ms` | `list_unspent()` to its end, which does the same                                     |
//! | `build_ms`        | `build_tx`, the recipients, `finish`; see `build`                                    |
//! | `apply_block_ms`  | `apply_block` of 2,500 transactions, 50 of them ours, and `persist`: what is done    |
//! |                   | with each block of bdk_bitcoind_rpc's `Emitter`, without fetching it                 |
//! | `reorg6_ms`       | `apply_block` of six other blocks in place of the last six, and one `persist`; there |
//! |                   | is no call that only takes blocks away                                               |
//!
//! `balance`, `list_unspent` and `build` also depend on `checkpoints`, the blocks that the wallet knows: bdk_core 0.6
//! finds the block of each transaction by walking back from the tip. A wallet that was fed by `Emitter` knows every
//! block since it began, some 52,000 a year; `make --per-block` decides how many there are here.
//!
//! Blocks are persisted to a copy of the file, so that the file can be measured again.

use std::path::{Path, PathBuf};
use std::time::Instant;

use bdk_wallet::bitcoin::block::Block;
use bdk_wallet::bitcoin::{Amount, BlockHash, FeeRate, Psbt};
use bdk_wallet::rusqlite::Connection;
use bdk_wallet::{PersistedWallet, Wallet};
use serde_json::{Value, json};

use crate::Error;
use crate::coins::{self, Coin, Ours};
use crate::flags::{Flags, Wrong};
use crate::random::Random;

const TRANSACTIONS_OF_BLOCK: usize = 2_500;
const DEPOSITS_OF_BLOCK: usize = 40;
const PAYOUTS_OF_BLOCK: usize = 10;
const REORG: usize = 6;

pub fn run(flags: &mut Flags) -> Result<Value, Error> {
    let file = flags.old_file()?;
    let recipients = flags.list("recipients", "1,100")?;
    let amount = Amount::from_sat(flags.value("amount-sat", Some("1000000"))?);
    let fee_rate = flags.value("fee-rate-sat-vb", Some("5"))?;
    let fee_rate = FeeRate::from_sat_per_vb(fee_rate).ok_or(Wrong("--fee-rate-sat-vb is too high".into()))?;
    let rounds: usize = flags.value("rounds", Some("5"))?;
    flags.end()?;
    if rounds == 0 {
        return Err(Wrong("--rounds cannot be 0".into()).into());
    }

    let (wallet, open_us) = timed(|| -> Result<_, Error> { crate::load(&mut Connection::open(&file)?) });
    let mut wallet = wallet?;
    let (balance, balance_us) = median(rounds, || wallet.balance());
    let (coins, list_us) = median(rounds, || coins_of(&wallet));
    let unspent = coins.len();
    let mut builds = Vec::new();
    for count in recipients {
        builds.push(build(&mut wallet, count, amount, fee_rate, rounds)?);
    }
    // The builds have revealed change addresses. Nobody persists them here.
    drop(wallet.take_staged());

    let mut answer = json!({
        "bdk_wallet": bdk_wallet::version(),
        "rounds": rounds,
        "unspent": unspent,
        "balance_sat": balance.total().to_sat(),
        "transactions": wallet.tx_graph().full_txs().count(),
        "checkpoints": wallet.checkpoints().count(),
        "open_ms": ms(open_us),
        "balance_ms": ms(balance_us),
        "list_unspent_ms": ms(list_us),
        "build": builds,
        "apply_block": {
            "transactions": TRANSACTIONS_OF_BLOCK, "deposits": DEPOSITS_OF_BLOCK, "payouts": PAYOUTS_OF_BLOCK,
        },
    });
    let (apply_us, reorg_us) = blocks(&mut wallet, coins, &file, rounds)?;
    answer["apply_block_ms"] = ms(apply_us);
    answer["reorg6_ms"] = ms(reorg_us);
    answer["peak_memory_mb"] = peak_memory_mb().into();
    Ok(answer)
}

fn coins_of(wallet: &Wallet) -> Vec<Coin> {
    wallet.list_unspent().map(|output| Coin { outpoint: output.outpoint, sat: output.txout.value.to_sat() }).collect()
}

/// In it: listing the candidates, the default coin selection (branch and bound, else a random draw), the change
/// address, and the PSBT with the transactions that it spends. Not in it: signing, and persisting the change address.
/// No input is reserved either: the next build may take the same ones.
fn build(wallet: &mut Wallet, count: u64, amount: Amount, rate: FeeRate, rounds: usize) -> Result<Value, Error> {
    let mut random = Random::from_seed(count);
    let scripts: Vec<_> = (0..count).map(|_| coins::foreign_script(&mut random)).collect();
    let (psbt, us) = median(rounds, || {
        let mut builder = wallet.build_tx();
        builder.set_recipients(scripts.iter().map(|script| (script.clone(), amount)).collect()).fee_rate(rate);
        builder.finish_with_aux_rand(&mut random)
    });
    let psbt: Psbt = psbt?;
    Ok(json!({
        "recipients": count,
        "amount_sat": amount.to_sat(),
        "build_ms": ms(us),
        "inputs": psbt.inputs.len(),
        "fee_sat": psbt.fee()?.to_sat(),
    }))
}

/// Applies as many blocks as there are rounds, or as a reorganisation needs, then replaces the last six that often.
fn blocks(
    wallet: &mut PersistedWallet<Connection>,
    mut coins: Vec<Coin>,
    file: &Path,
    rounds: usize,
) -> Result<(u64, u64), Error> {
    let copy = Copy::of(file)?;
    let mut connection = Connection::open(&copy.0)?;
    let before = coins.len();
    // A payout must leave something after its fee.
    coins.retain(|coin| coin.sat >= 10_000);
    let tip = wallet.latest_checkpoint().block_id();
    let (ours, mut random) = (Ours::of(wallet), Random::from_seed(u64::from(tip.height)));
    let count = rounds.max(REORG);
    let mut parent = tip.hash;
    let mut made = Vec::new();
    for height in (tip.height + 1..).take(count) {
        let spent = coins.split_off(coins.len().saturating_sub(PAYOUTS_OF_BLOCK));
        let block = a_block(&mut random, &ours, &spent, height, parent);
        parent = block.block_hash();
        made.push((height, block));
    }

    let mut times = Vec::new();
    for block in &made {
        times.push(apply(wallet, &mut connection, std::slice::from_ref(block))?);
    }
    let mut reorgs = Vec::new();
    for nonce in (1..).take(rounds) {
        let other = instead_of(&made[count - REORG..], nonce);
        reorgs.push(apply(wallet, &mut connection, &other)?);
    }

    // Each payout takes one coin and makes one, its change. A figure for blocks that the wallet did not take is none.
    let after = wallet.list_unspent().count();
    if after != before + DEPOSITS_OF_BLOCK * count {
        return Err(format!("{before} coins became {after} by {count} blocks").into());
    }
    Ok((middle(times), middle(reorgs)))
}

fn a_block(random: &mut Random, ours: &Ours, spent: &[Coin], height: u32, parent: BlockHash) -> Block {
    let mut txs = vec![coins::coinbase(height, coins::foreign_script(random), 5_000_000_000)];
    for coin in spent {
        let change = ours.internal[random.index(ours.internal.len())].clone();
        txs.push(coins::payout(random, std::slice::from_ref(coin), Some(change)).0);
    }
    for _ in 0..DEPOSITS_OF_BLOCK {
        let script = ours.external[random.index(ours.external.len())].clone();
        let sat = random.sat();
        txs.push(coins::deposit(random, script, sat).0);
    }
    while txs.len() < TRANSACTIONS_OF_BLOCK {
        txs.push(coins::foreign_transaction(random));
    }
    coins::block(txs, height, parent, 0)
}

/// Blocks with the same transactions on the same parent, but other blocks.
fn instead_of(blocks: &[(u32, Block)], nonce: u32) -> Vec<(u32, Block)> {
    let mut parent = blocks[0].1.header.prev_blockhash;
    let other = |(height, block): &(u32, Block)| {
        let block = coins::block(block.txdata.clone(), *height, parent, nonce);
        parent = block.block_hash();
        (*height, block)
    };
    blocks.iter().map(other).collect()
}

/// How long it takes to apply the blocks and to persist them together.
fn apply(
    wallet: &mut PersistedWallet<Connection>,
    connection: &mut Connection,
    blocks: &[(u32, Block)],
) -> Result<u64, Error> {
    let (done, us) = timed(|| -> Result<bool, Error> {
        for (height, block) in blocks {
            wallet.apply_block(block, *height)?;
        }
        Ok(wallet.persist(connection)?)
    });
    if done? { Ok(us) } else { Err("there was nothing to persist of a block".into()) }
}

/// A copy of the file that goes away with this value.
struct Copy(PathBuf);

impl Copy {
    fn of(file: &Path) -> Result<Self, Error> {
        let mut name = file.as_os_str().to_owned();
        name.push(".measured");
        let copy = Self(name.into());
        std::fs::copy(file, &copy.0)?;
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            eprintln!("warning: {} stays: {error}", self.0.display());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this program is a stopwatch")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let start = Instant::now();
    let result = work();
    (result, u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX))
}

/// The last result, and the middle of the times.
fn median<T>(rounds: usize, mut work: impl FnMut() -> T) -> (T, u64) {
    let (mut result, first) = timed(&mut work);
    let mut times = vec![first];
    for _ in 1..rounds {
        let (next, us) = timed(&mut work);
        result = next;
        times.push(us);
    }
    (result, middle(times))
}

fn middle(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

#[expect(clippy::float_arithmetic, reason = "a time for people to read")]
fn ms(us: u64) -> Value {
    (us as f64 / 1_000.0).into()
}

/// The most memory that this process has had, where the system says so.
fn peak_memory_mb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kb: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kb / 1_024)
}
