//! The treasury of the bench: a database, wallets that pay, and the signer's own core within this process.

use std::sync::Arc;
use std::time::Duration;

use chain::Chain;
use custody::outbound::{SendWorker, Signs, WatchWorker};
use custody::treasury::RulesWorker;
use custody::wallet::Pinned;
use domain::asset::TransferLimits;
use domain::id::{Generator, Job, NodeId};
use domain::outbound::{JobKind, OutboundLimits};
use domain::treasury::Operator;
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
use store::outbound::{Duty, JobId, NewJob, Payer, Share};
use store::signer_head::SignerHead;
use store::treasury::{GasRuleSetting, SweepRuleSetting};
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

pub(in crate::bench) struct Desk {
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

fn sender_name(share: Share) -> String {
    format!("bench-send.{}", share.part)
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
    let plain = |name: &str| format!("{{ coin = \"{name}\" }}");
    let group = |name: &str, role: &str, coins: String| {
        format!(
            "[[group]]\nid = \"{name}\"\nchain = \"bench\"\nrole = \"{role}\"\nmost_fee = \"{much}\"\nmost_fee_day = \"{much}\"\n\
             coin = [{coins}]\n"
        )
    };
    let mut text = format!(
        "signer = \"bench\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 100\ntron_margin_minutes = 1\n\
         chain = [{{ name = \"bench\", {chain} }}]\n"
    );
    match token.map(ToString::to_string) {
        None => text += &group("hot", "hot", coin("native")),
        Some(token) => {
            text += &group("hot", "hot", format!("{}, {}", coin("native"), coin(&token)));
            text += &group("gas", "gas", coin("native"));
            for (name, role) in [("users", "deposit"), ("treasury", "treasury")] {
                text += &group(name, role, format!("{}, {}", plain("native"), plain(&token)));
            }
        }
    }
    text
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
        // Not the account whose keys everybody uses on devnets. On Bitcoin nothing is swept.
        let all = [
            ("hot", Purpose::Hot, 7),
            ("users", Purpose::Deposit, 8),
            ("gas", Purpose::Gas, 9),
            ("treasury", Purpose::Treasury, 10),
        ];
        let groups = &all[..if token.is_some() { all.len() } else { 1 }];
        let mut secrets = Vec::new();
        for (id, purpose, account) in groups {
            let mnemonic = Mnemonic::parse(WORDS).map_err(failed)?;
            secrets.push(GroupSecret { id: name(id)?, purpose: *purpose, family, account: *account, mnemonic });
        }
        let keyring = Keyring::of(secrets).map_err(failed)?;
        let signer = LocalSigner::new(&policy(kind, token), keyring, Arc::new(SystemClock));
        let signer = signer.map_err(failed)?;
        let mut pinned = Pinned::default();
        for (id, ..) in groups {
            pinned.add_group(signer.group(&name(id)?).ok_or_else(|| failed("a group"))?, true).map_err(failed)?;
        }
        for (id, role) in [("gas", WalletRole::Gas), ("treasury", WalletRole::Treasury)] {
            if token.is_some() {
                pinned.add_derived((name("bench")?, family), role, (&name(id)?, 0), true).map_err(failed)?;
            }
        }
        for index in 0..u64::from(wallets) {
            pinned.add_derived((name("bench")?, family), WalletRole::Hot, (&group, index), true).map_err(failed)?;
        }
        let catalog = catalog(kind, token, limits)?;
        db.apply_treasury(&catalog, &pinned.settings(), &AUTHOR, now).await.map_err(failed)?;
        let row = db.chain(&name("bench")?).await?.ok_or_else(|| failed("the chain is not there"))?;
        let listing = |symbol: &str| row.listings.iter().find(|one| one.symbol.as_str() == symbol).map(|one| one.id);
        let coin = listing("COIN").ok_or_else(|| failed("the coin is not listed"))?;
        let listings = [coin, listing("USDT").unwrap_or(coin)];
        let own = pinned.wallets().filter(|(_, _, wallet)| wallet.role == WalletRole::Hot);
        let own = own.map(|(_, _, wallet)| wallet.address.clone()).collect();
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

    /// The deposit address of a user.
    pub fn user(&self, number: u32) -> Result<Address, Failure> {
        let group = self.pinned.group(&name("users")?).ok_or_else(|| failed("no users"))?;
        group.group.address(u64::from(number)).map_err(failed)
    }

    /// What these users' addresses have of the token goes to the treasury: a job for each.
    pub async fn add_sweeps(&self, users: std::ops::Range<u32>) -> Result<(), Failure> {
        let now = SystemClock.now();
        let home = self.pinned.wallets().find(|(_, _, wallet)| wallet.role == WalletRole::Treasury);
        let home = home.map(|(_, _, wallet)| wallet.address.to_string()).ok_or_else(|| failed("no treasury"))?;
        let mut jobs = Vec::new();
        for user in users {
            let address = self.user(user)?.to_string();
            jobs.push(NewJob {
                id: self.ids.next::<Job>().map_err(failed)?,
                listing: self.listings[1],
                kind: JobKind::Consolidation,
                reference: address.clone(),
                to: home.clone(),
                owner: Some((name("treasury")?, 0)),
                amount: amount(self.row.kind),
                most_fee: self.row.outbound.fee_cap,
                priority: JobKind::Consolidation.priority(),
                requester: "bench".to_owned(),
                expires: now.plus_micros(LIFE_MICROS),
                payer: Payer::Wallet { group: name("users")?, index: i64::from(user), address },
            });
        }
        for some in jobs.chunks(CHUNK as usize) {
            self.db.add_jobs(self.row.id, some, now).await?;
        }
        Ok(())
    }

    /// The same treasury, with rules: gas below a threshold, and sweeps of the token above one.
    pub async fn apply_rules(&self, token: &Address) -> Result<(), Failure> {
        let mut catalog = catalog(self.row.kind, Some(token), self.row.outbound)?;
        let one = Amount::from_units(1_000_000);
        let gas = GasRuleSetting {
            chain: name("bench")?,
            asset: name("COIN")?,
            operator: Operator::Below,
            threshold: one,
            amount: one,
            priority: JobKind::GasTopup.priority(),
            cool_down_s: 600,
            most_per_hour: 10_000_000,
            active: true,
        };
        let sweep = SweepRuleSetting {
            chain: name("bench")?,
            asset: name("USDT")?,
            operator: Operator::Above,
            threshold: one,
            most_cost_bps: None,
            priority: JobKind::Consolidation.priority(),
            cool_down_s: 600,
            most_per_hour: 10_000_000,
            active: true,
        };
        catalog.rules.gas.insert("gas".to_owned(), gas);
        catalog.rules.sweeps.insert("sweep".to_owned(), sweep);
        let applied = self.db.apply_treasury(&catalog, &self.pinned.settings(), &AUTHOR, SystemClock.now()).await;
        applied.map(drop).map_err(failed)
    }

    pub fn token(&self) -> ListingId {
        self.listings[1]
    }

    pub fn rules<'a>(
        &'a self,
        chain: &'a dyn Chain,
        make: custody::outbound::MakeId<'a>,
    ) -> Result<RulesWorker<'a>, Failure> {
        let (row, pinned) = (self.row.clone(), Arc::clone(&self.pinned));
        RulesWorker::new(&self.db, chain, make, row, pinned, "bench-rules".to_owned()).map_err(failed)
    }

    pub fn number(&self) -> Option<i64> {
        self.ids.next::<Job>().ok().map(|id| id.number())
    }

    pub fn sender<'a>(
        &'a self,
        chain: &'a dyn Chain,
        make: custody::outbound::MakeId<'a>,
        share: Share,
    ) -> Result<SendWorker<'a>, Failure> {
        let (signer, pinned) = (name("bench")?, Arc::clone(&self.pinned));
        let (row, worker) = (self.row.clone(), sender_name(share));
        let sender = SendWorker::new(&self.db, chain, &self.pen, signer, make, row, pinned, worker).map_err(failed)?;
        Ok(sender.with_share(share))
    }

    /// Its lanes are anybody's.
    pub async fn leave(&self, share: Share) -> Result<(), Failure> {
        Ok(self.db.leave_lanes(&sender_name(share), Duty::Send).await?)
    }

    pub fn watcher<'a>(&'a self, chain: &'a dyn Chain) -> Result<WatchWorker<'a>, Failure> {
        let (row, pinned) = (self.row.clone(), Arc::clone(&self.pinned));
        WatchWorker::new(&self.db, chain, row, pinned, "bench-watch".to_owned()).map_err(failed)
    }
}
