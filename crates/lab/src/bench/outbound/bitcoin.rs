//! Payouts on a real bitcoind: how many transactions they take and how many virtual bytes each, gathered and one by one.

use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::endpoint::Pool;
use custody::bitcoin::{Follow, Step};
use custody::deposit::work::begin;
use custody::wallet::watch_house;
use devnet::Key;
use domain::outbound::{JobKind, JobState, OutboundLimits};
use domain::{ChainKind, Clock};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use store::outbound::{JobFilter, Share};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::Failure;
use tx::Family;

use super::desk::Desk;
use super::{Arguments, failed};
use crate::bench::scan::{BITCOIN_LOGIN, ask, bitcoind, find, pool};
use crate::bench::site::Site;

/// Payouts that are paid one by one, to compare with.
const SINGLES: u32 = 100;
/// Coins that the wallet begins with, and blocks before they may be spent.
const COINS: u32 = 40;
const MATURITY: u32 = 101;
/// In so many blocks everything is paid and final.
const MOST_BLOCKS: u32 = 2_000;

/// What payouts took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    payouts: u32,
    transactions: u64,
    bytes: u64,
    seconds: f64,
}

impl Taken {
    fn bytes_each(self) -> f64 {
        self.bytes as f64 / f64::from(self.payouts)
    }

    fn json(self) -> Value {
        json!({
            "payouts": self.payouts, "transactions": self.transactions, "vbytes_per_payout": super::rounded(self.bytes_each()),
            "confirmed_per_s": (f64::from(self.payouts) / self.seconds).round(),
        })
    }
}

pub(super) struct Shared {
    gathered: Taken,
    singly: Taken,
}

impl Shared {
    pub fn json(&self) -> Value {
        json!({
            "gathered": self.gathered.json(), "one_by_one": self.singly.json(),
            "ratio_of_vbytes": super::rounded(self.gathered.bytes_each() / self.singly.bytes_each()),
        })
    }

    pub fn text(&self) -> String {
        format!(
            "bitcoin: {} payouts in {} transactions, {:.1} virtual bytes each; one by one {:.1}",
            self.gathered.payouts,
            self.gathered.transactions,
            self.gathered.bytes_each(),
            self.singly.bytes_each()
        )
    }
}

/// `None`: bitcoind is not installed.
pub(super) async fn measure(arguments: &Arguments, bar: &ProgressBar) -> Result<Option<Shared>, Failure> {
    bar.set_message("bitcoin, payouts one by one");
    let Some(singly) = payouts(arguments, SINGLES, 1).await? else { return Ok(None) };
    bar.set_message("bitcoin, payouts that share transactions");
    let usual = OutboundLimits::usual(ChainKind::Bitcoin).gather_most;
    let gathered = payouts(arguments, arguments.jobs, usual).await?;
    Ok(gathered.map(|gathered| Shared { gathered, singly }))
}

async fn payouts(arguments: &Arguments, count: u32, together: u32) -> Result<Option<Taken>, Failure> {
    let Some(program) = find(arguments.bitcoind.as_deref(), "bitcoind", "bitcoind") else { return Ok(None) };
    let site = Site::prepare(arguments.engine, None)?;
    let node = bitcoind(&program, site.folder()).await?;
    let usual = OutboundLimits::usual(ChainKind::Bitcoin);
    // A round takes as many as may be out: one by one, that is one.
    let in_flight = usual.in_flight.min(together);
    let limits = OutboundLimits { gather_s: 0, gather_most: together, in_flight, ..usual };
    let desk = Desk::open(site.url(), (ChainKind::Bitcoin, None), 1, limits).await?;
    let client = pool(&node.url, Some(BITCOIN_LOGIN))?;
    let mut settings = BitcoinSettings::new(devnet::bitcoin::NETWORK);
    settings.confirmations = u64::from(super::CONFIRMATIONS);
    let chain = BitcoinChain::new(settings, pool(&node.url, Some(BITCOIN_LOGIN))?);
    let stranger = Key::numbered(0).bitcoin(devnet::bitcoin::NETWORK).to_string();
    let (now, family) = (SystemClock.now(), Family::Bitcoin(devnet::bitcoin::NETWORK));
    watch_house(&desk.db, &desk.pinned, (&desk.row.name, family), now).await.map_err(failed)?;
    let own = desk.wallets.first().ok_or_else(|| failed("there is no wallet"))?.to_string();
    ask(&client, "generatetoaddress", json!([COINS, own])).await?;
    ask(&client, "generatetoaddress", json!([MATURITY, stranger])).await?;
    let mut follow = Follow::new(&desk.db, &chain, 0);
    read(&mut follow).await?;
    begin(&desk.db, &chain, &desk.row, Some(0), now).await.map_err(failed)?;
    desk.add(count, 0, JobKind::Withdrawal.priority()).await?;
    let first = ask(&client, "getblockcount", json!([])).await?.as_u64().unwrap_or(0);
    let watch = Stopwatch::start();
    let make = || desk.number();
    let (mut sender, mut watcher) = (desk.sender(&chain, &make, Share::ALL)?, desk.watcher(&chain)?);
    for _ in 0..MOST_BLOCKS {
        while sender.round(&SystemClock).await.map_err(failed)?.is_busy() {}
        ask(&client, "generatetoaddress", json!([1, stranger])).await?;
        read(&mut follow).await?;
        watcher.round(&SystemClock).await.map_err(failed)?;
        let lanes = desk.db.lanes(None, None, 0, 9).await?;
        if lanes.iter().all(|lane| lane.open + lane.waiting == 0) {
            break;
        }
    }
    let seconds = watch.elapsed().as_secs_f64();
    let filter = JobFilter { state: Some(JobState::Confirmed), ..JobFilter::default() };
    let confirmed = desk.db.jobs(&filter, i64::MAX, i64::from(count) + 1).await?.len();
    if confirmed != count as usize {
        return Err(failed(format!("of {count} payouts {confirmed} are confirmed")));
    }
    let (transactions, bytes) = taken(&client, first).await?;
    desk.db.close().await;
    Ok(Some(Taken { payouts: count, transactions, bytes, seconds }))
}

async fn read(follow: &mut Follow<'_>) -> Result<(), Failure> {
    while follow.step(200, SystemClock.now()).await.map_err(failed)? != Step::Idle {}
    Ok(())
}

/// The transactions of the blocks above one, but for those that make coins, and their virtual bytes.
async fn taken(client: &Pool, first: u64) -> Result<(u64, u64), Failure> {
    let last = ask(client, "getblockcount", json!([])).await?.as_u64().unwrap_or(0);
    let (mut transactions, mut bytes) = (0, 0);
    for height in first + 1..=last {
        let hash = ask(client, "getblockhash", json!([height])).await?;
        let block = ask(client, "getblock", json!([hash, 2])).await?;
        for transaction in block["tx"].as_array().into_iter().flatten().skip(1) {
            transactions += 1;
            bytes += transaction["vsize"].as_u64().unwrap_or(0);
        }
    }
    Ok((transactions, bytes))
}
