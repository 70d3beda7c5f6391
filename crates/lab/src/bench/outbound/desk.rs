//! The treasury of the bench: a database, wallets that pay, and the signer's own core within this process.

use std::sync::Arc;
use std::time::Duration;

use chain::Chain;
use custody::outbound::{SendWorker, Signs, WatchWorker};
use custody::wallet::Pinned;
use domain::asset::TransferLimits;
use domain::id::{Generator, Job, NodeId};
use domain::outbound::{JobKind, OutboundLimits};
use domain::{
    Amount, Asset, AssetOnChain, Availability, ChainKind, Clock, GroupId, Listing, Precision, Purpose, WalletRole,
};
use futures_util::future::BoxFuture;
use signer::SignRequest;
use signer::client::{SignAnswer, SignerError};
use signer::keys::{GroupSecret, Keyring, Mnemonic};
use signer::local::LocalSigner;
use store::catalog::{Author, Catalog};
use store::entry::{ChainRow, ListingId};
use store::outbound::{JobId, NewJob, Payer};
use store::signer_head::SignerHead;
use store::{Db, Options};
use terminal::clock::SystemClock;
use terminal::failure::Failure;
use tx::{Address, Family};

use super::node::amount;
use super::{CONFIRMATIONS, failed};
use crate::bench::scan;

const AUTHOR: Author<'static> = Author { actor: "bench", reason: "bursar bench outbound" };
const WORDS: &str = "test test test test test test test test test test test junk";
const LIFE_MICROS: i64 = 24 * 3_600 * 1_000_000;
/// Jobs that are made at once.
const CHUNK: u32 = 1_000;

/// The signer without its socket and its disk: what it reads, decides and signs is the same.
struct Pen(LocalSigner);

impl Signs for Pen {
    fn is_ready(&self) -> bool {
        true
    }

    fn sign<'a>(&'a self, requests: &'a [SignRequest]) -> BoxFuture<'a, Result<Vec<SignAnswer>, SignerError>> {
        Box::pin(async move { self.0.sign(requests) })
    }

    fn head(&self) -> Option<(String, SignerHead)> {
        None
    }
}

pub(super) struct Desk {
    pub db: Db,
    pub row: ChainRow,
    pub wallets: Vec<Address>,
    pub pinned: Arc<Pinned>,
    pen: Pen,
    ids: Generator<Arc<dyn Clock>>,
    listings: [ListingId; 2],
}

fn name<T: std::str::FromStr>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| failed(format!("{text} is no name")))
}

fn policy(kind: ChainKind, token: Option<&Address>) -> String {
    let much = "1000000000000000000000000000000";
    let chain = match kind {
        ChainKind::Evm => "kind = \"evm\", chain_id = 56",
        ChainKind::Tron => "kind = \"tron\"",
        ChainKind::Bitcoin => "kind = \"bitcoin\", network = \"regtest\"",
    };
    let coin =
        |name: &str| format!("{{ coin = \"{name}\", payment = \"{much}\", hour = \"{much}\", day = \"{much}\" }}");
    format!(
        "signer = \"bench\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 100\ntron_margin_minutes = 1\n\
         chain = [{{ name = \"bench\", {chain} }}]\n[[group]]\nid = \"hot\"\nchain = \"bench\"\nrole = \"hot\"\nmost_fee = \"{much}\"\n\
         most_fee_day = \"{much}\"\ncoin = [{}, {}]\n",
        coin("native"),
        token.map_or_else(String::new, |token| coin(&token.to_string()))
    )
}

fn catalog(kind: ChainKind, token: Option<&Address>, limits: OutboundLimits) -> Result<Catalog, Failure> {
    let mut catalog = Catalog::default();
    let network = match kind {
        ChainKind::Evm => "56",
        ChainKind::Tron => "mainnet",
        ChainKind::Bitcoin => "regtest",
    };
    let chain = domain::Chain {
        name: name("bench")?,
        kind,
        network: network.to_owned(),
        confirmations: CONFIRMATIONS,
        final_confirmations: CONFIRMATIONS + 1,
        outbound: limits,
        status: Availability::Active,
    };
    let token = token.map(|token| ("USDT", Some(token.to_string())));
    for (symbol, contract) in [("COIN", None)].into_iter().chain(token) {
        let (one, precision) = (Amount::from_units(1), Precision::new(6).ok_or_else(|| failed("a precision"))?);
        let asset = Asset {
            symbol: name(symbol)?,
            precision,
            status: Availability::Active,
            internal_transfer_enabled: true,
            transfer: TransferLimits { min: one, max: one, daily: one },
        };
        let listing = Listing {
            asset: asset.symbol.clone(),
            chain: chain.name.clone(),
            form: AssetOnChain::new(precision, if kind == ChainKind::Bitcoin { 8 } else { 6 }, contract)
                .map_err(failed)?,
            min_deposit: one,
            status: Availability::Active,
        };
        catalog.listings.insert((asset.symbol.clone(), chain.name.clone()), listing);
        catalog.assets.insert(asset.symbol.clone(), asset);
    }
    catalog.chains.insert(chain.name.clone(), chain);
    Ok(catalog)
}

impl Desk {
    /// In an empty database.
    pub async fn open(
        url: &str,
        (kind, token): (ChainKind, Option<&Address>),
        wallets: u32,
        limits: OutboundLimits,
    ) -> Result<Self, Failure> {
        let family = match kind {
            ChainKind::Evm => Family::Evm,
            ChainKind::Tron => Family::Tron,
            ChainKind::Bitcoin => Family::Bitcoin(devnet::bitcoin::NETWORK),
        };
        let acquire_timeout = Duration::from_secs(60);
        let options = Options { create: true, max_connections: 8, acquire_timeout, ..Options::default() };
        let (db, now) = (Db::connect(url, &options).await?, SystemClock.now());
        db.migrate(now).await?;
        let group: GroupId = name("hot")?;
        let mnemonic = Mnemonic::parse(WORDS).map_err(failed)?;
        // Not the account whose keys everybody uses on devnets.
        let secret = GroupSecret { id: group.clone(), purpose: Purpose::Hot, family, account: 7, mnemonic };
        let keyring = Keyring::of(vec![secret]).map_err(failed)?;
        let signer = LocalSigner::new(&policy(kind, token), keyring, Arc::new(SystemClock));
        let signer = signer.map_err(failed)?;
        let mut pinned = Pinned::default();
        pinned.add_group(signer.group(&group).ok_or_else(|| failed("a group"))?, true).map_err(failed)?;
        for index in 0..u64::from(wallets) {
            pinned.add_derived((name("bench")?, family), WalletRole::Hot, (&group, index), true).map_err(failed)?;
        }
        let catalog = catalog(kind, token, limits)?;
        db.apply_treasury(&catalog, &pinned.settings(), &AUTHOR, now).await.map_err(failed)?;
        let row = db.chain(&name("bench")?).await?.ok_or_else(|| failed("the chain is not there"))?;
        let listing = |symbol: &str| row.listings.iter().find(|one| one.symbol.as_str() == symbol).map(|one| one.id);
        let coin = listing("COIN").ok_or_else(|| failed("the coin is not listed"))?;
        let listings = [coin, listing("USDT").unwrap_or(coin)];
        let own = pinned.wallets().map(|(_, _, wallet)| wallet.address.clone()).collect();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let ids = Generator::new(clock, NodeId::new(1).ok_or_else(|| failed("a node number"))?);
        Ok(Self { db, row, wallets: own, pinned: Arc::new(pinned), pen: Pen(signer), ids, listings })
    }

    /// Makes so many jobs, each to an address of its own. The number of the last.
    pub async fn add(&self, count: u32, first: u32, priority: i64) -> Result<Option<JobId>, Failure> {
        let (now, mut last) = (SystemClock.now(), None);
        for from in (0..count).step_by(CHUNK as usize) {
            let mut jobs = Vec::new();
            for number in from..count.min(from + CHUNK) {
                let to = scan::address(self.row.kind, first + number).to_string();
                let id = self.ids.next::<Job>().map_err(failed)?;
                last = Some(id);
                jobs.push(NewJob {
                    id,
                    listing: self.listings[usize::from(number % 2 == 1)],
                    kind: JobKind::Withdrawal,
                    reference: to.clone(),
                    to,
                    owner: None,
                    amount: amount(self.row.kind),
                    most_fee: self.row.outbound.fee_cap,
                    priority,
                    requester: "bench".to_owned(),
                    expires: now.plus_micros(LIFE_MICROS),
                    payer: Payer::Role(WalletRole::Hot),
                });
            }
            self.db.add_jobs(self.row.id, &jobs, now).await?;
        }
        Ok(last)
    }

    pub fn number(&self) -> Option<i64> {
        self.ids.next::<Job>().ok().map(|id| id.number())
    }

    pub fn sender<'a>(
        &'a self,
        chain: &'a dyn Chain,
        make: custody::outbound::MakeId<'a>,
    ) -> Result<SendWorker<'a>, Failure> {
        let (signer, pinned) = (name("bench")?, Arc::clone(&self.pinned));
        let (row, worker) = (self.row.clone(), "bench-send".to_owned());
        SendWorker::new(&self.db, chain, &self.pen, signer, make, row, pinned, worker).map_err(failed)
    }

    pub fn watcher<'a>(&'a self, chain: &'a dyn Chain) -> Result<WatchWorker<'a>, Failure> {
        let (row, pinned) = (self.row.clone(), Arc::clone(&self.pinned));
        WatchWorker::new(&self.db, chain, row, pinned, "bench-watch".to_owned()).map_err(failed)
    }
}
