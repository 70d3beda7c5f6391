//! A follower's first sync: block after block into an empty database whose tables nobody has analysed.

use domain::Clock;
use serde_json::{Value, json};
use store::Db;
use store::utxo::{AddressKind, Network, NewAddress, Path, Paths};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::Failure;

use super::blocks::Chain;
use super::options;
use crate::bench::site::{EngineName, Site};

const ADDRESSES: u32 = 10_000;

/// Blocks a second: of the first half; of the second half by the same process; and of the second half by a process that
/// starts there, with the time that it takes to start.
pub struct FirstSync {
    pub first_half_per_s: f64,
    pub second_half_per_s: f64,
    pub after_restart_per_s: f64,
}

impl FirstSync {
    pub fn shown(&self) -> Value {
        json!({
            "first_half_blocks_per_s": self.first_half_per_s,
            "second_half_blocks_per_s": self.second_half_per_s,
            "after_restart_blocks_per_s": self.after_restart_per_s,
        })
    }
}

/// Two syncs of the same blocks, one of them with a restart in the middle.
pub async fn measure(engine: EngineName, blocks: u32) -> Result<FirstSync, Failure> {
    let (first_half_per_s, second_half_per_s) = sync(engine, blocks, false).await?;
    let (_, after_restart_per_s) = sync(engine, blocks, true).await?;
    Ok(FirstSync { first_half_per_s, second_half_per_s, after_restart_per_s })
}

async fn sync(engine: EngineName, blocks: u32, restarts: bool) -> Result<(f64, f64), Failure> {
    let site = Site::prepare(engine, None)?;
    let mut db = Db::connect(site.url(), &options()).await?;
    let now = SystemClock.now();
    db.migrate(now).await?;
    let wallet = db.create_wallet("bench", Network::Regtest, now).await?;
    let addresses: Vec<NewAddress> = (0..ADDRESSES).map(address).collect();
    for some in addresses.chunks(5_000) {
        db.add_addresses(wallet, some, Paths::Exact, now).await?;
    }
    let mut chain = Chain::from_genesis(addresses.into_iter().map(|one| one.script).collect());
    db.watch_in_memory();
    let first = follow(&db, &mut chain, blocks / 2).await?;
    let mut starting = 0.0;
    if restarts {
        let watch = Stopwatch::start();
        db.close().await;
        db = Db::connect(site.url(), &options()).await?;
        db.watch_in_memory();
        starting = watch.elapsed().as_secs_f64();
    }
    let second = starting + follow(&db, &mut chain, blocks / 2).await?;
    if let Some(finding) = db.check_utxo().await?.first() {
        let message = format!("after the first sync a row disagrees with the facts: {finding:?}");
        return Err(Failure::bad_input("BOOKS_BROKEN", message, "please report it"));
    }
    db.close().await;
    let half = f64::from(blocks / 2);
    Ok((half / first, half / second))
}

fn address(index: u32) -> NewAddress {
    let script = [&[0, 20][..], &[0xdd; 16], &index.to_be_bytes()].concat();
    NewAddress { account: 0, path: Some(Path { branch: 0, index }), kind: AddressKind::P2wpkh, script }
}

/// Seconds that the database takes; making the blocks does not count.
async fn follow(db: &Db, chain: &mut Chain, blocks: u32) -> Result<f64, Failure> {
    let mut seconds = 0.0;
    for _ in 0..blocks {
        let (block, transactions) = chain.mine();
        let watch = Stopwatch::start();
        db.connect_block(&block, &transactions, SystemClock.now()).await?;
        seconds += watch.elapsed().as_secs_f64();
    }
    Ok(seconds)
}
