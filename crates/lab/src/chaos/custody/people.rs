//! The people who ask for payments. Each payment goes to an address of its own, which nothing else ever pays: what is there in the end is
//! what the job has paid. They keep their own record of what they asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use domain::outbound::{JobKind, JobState};
use domain::random::Random;
use domain::{ChainKind, Clock, RawAmount, WalletRole};
use store::Db;
use store::outbound::{Added, JobFilter, JobId, NewJob, Payer};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use transfer::IdMaker;
use tx::tron::TronAddress;
use tx::{Address, Coin};

use super::net::Net;
use super::wrong;
use crate::bench::scan;

/// A day.
const LIFE_MICROS: i64 = 24 * 3_600 * 1_000_000;
/// More than any wallet has: a job that asks for it must fail.
const TOO_MUCH: &str = "1000000000000000000000000000000";

/// Keys of addresses on Bitcoin that nobody else is paid at.
const FIRST_KEY: u32 = 50_000;

/// A payment that somebody asked for.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub id: JobId,
    /// Which of the chains.
    pub net: usize,
    pub symbol: &'static str,
    pub coin: Coin,
    pub to: Address,
    pub amount: RawAmount,
}

pub(super) struct People {
    pub db: Db,
    pub nets: Vec<Arc<Net>>,
    pub jobs: usize,
    /// Between two payments, on average.
    pub pause: Duration,
    pub random: Random,
    /// So many addresses were drawn.
    pub drawn: u32,
    /// How many were asked for so far.
    pub made: Arc<AtomicUsize>,
    /// No cancelling, bumping or retrying any more.
    pub stop: Arc<AtomicBool>,
}

impl People {
    /// Asks for all payments, and now and then for something else.
    pub async fn ask(mut self) -> Result<Vec<Order>, Failure> {
        let ids = IdMaker::new(format!("chaos-{}", std::process::id()));
        let mut asked = Vec::new();
        while asked.len() < self.jobs && !self.stop.load(Ordering::Relaxed) {
            let twice_us = u64::try_from(self.pause.as_micros()).unwrap_or(u64::MAX).saturating_mul(2);
            tokio::time::sleep(Duration::from_micros(self.random.below(twice_us.max(1)))).await;
            let one = self.draw(&ids).await?;
            self.add(&one).await?;
            asked.push(one);
            self.made.store(asked.len(), Ordering::Relaxed);
            if self.random.below(4) == 0 {
                let id = asked[self.random.index(asked.len())].id;
                self.meddle(id).await;
            }
        }
        Ok(asked)
    }

    async fn draw(&mut self, ids: &IdMaker) -> Result<Order, Failure> {
        let net = self.random.index(self.nets.len());
        let payables = &self.nets[net].coins;
        let payable = &payables[self.random.index(payables.len())];
        let (symbol, coin, unit) = (payable.symbol, payable.coin.clone(), payable.unit);
        self.drawn += 1;
        let to = destination(self.nets[net].kind, &mut self.random, self.drawn);
        let amount = match self.random.below(20) {
            0 => TOO_MUCH.to_owned(),
            _ => (unit + self.random.below(unit)).to_string(),
        };
        let id = JobId::new(number(&self.db, ids).await?).map_err(wrong)?;
        Ok(Order { id, net, symbol, coin, to, amount: amount.parse().map_err(wrong)? })
    }

    /// Asks until there is an answer. The reference makes it one job, however often it is asked for.
    async fn add(&self, asked: &Order) -> CommandResult {
        let net = &self.nets[asked.net];
        let payable = net.coins.iter().find(|one| one.symbol == asked.symbol).ok_or_else(|| wrong("a coin"))?;
        let now = SystemClock.now();
        let job = NewJob {
            id: asked.id,
            listing: payable.listing,
            kind: JobKind::Withdrawal,
            reference: asked.to.to_string(),
            to: asked.to.to_string(),
            owner: None,
            amount: asked.amount,
            most_fee: net.row.outbound.fee_cap,
            priority: JobKind::Withdrawal.priority(),
            requester: "people".to_owned(),
            expires: now.plus_micros(LIFE_MICROS),
            payer: Payer::Role(WalletRole::Hot),
        };
        for _ in 0..300 {
            match self.db.add_jobs(net.row.id, std::slice::from_ref(&job), now).await.as_deref() {
                Ok([Added::New { .. } | Added::Before(_)]) => return Ok(()),
                Ok(other) => return Err(wrong(format!("a job was not taken: {other:?}"))),
                // The database is away, or was when it answered.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        Err(wrong("no answer from the database in half a minute"))
    }

    /// What people may ask of a job at any time. Whatever the answer is, nothing may be paid twice by it.
    async fn meddle(&mut self, id: JobId) {
        let now = SystemClock.now();
        let answer = match self.random.below(6) {
            0 => self.db.cancel_job(id, "people", now).await,
            1 | 2 => self.db.bump_job(id, "people", now).await,
            _ => self.db.retry_job(id, "people", now).await,
        };
        if let Err(error) = answer {
            tracing::debug!(%error, "people got no answer");
        }
    }
}

/// An address that nobody else is paid at. On Bitcoin the number makes it another.
pub(super) fn destination(kind: &str, random: &mut Random, number: u32) -> Address {
    let mut account = [0; 20];
    account[..8].copy_from_slice(&random.next_u64().to_be_bytes());
    account[8..16].copy_from_slice(&random.next_u64().to_be_bytes());
    account[16..].copy_from_slice(b"once");
    match kind {
        "tron" => Address::Tron(TronAddress(account)),
        "bitcoin" => scan::address(ChainKind::Bitcoin, FIRST_KEY + number),
        _ => Address::Evm(account.into()),
    }
}

/// While the database is away nobody can have a number.
pub(super) async fn number(db: &Db, ids: &IdMaker) -> Result<i64, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    for _ in 0..300 {
        if let Ok(true) = ids.renew(db, &clock).await
            && let Ok(id) = ids.next(&SystemClock)
        {
            return Ok(id.number());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(wrong("no number in half a minute"))
}

/// Customers who pay in meanwhile, so many times, until all is over.
pub(super) async fn pay_in(
    nets: Vec<Arc<Net>>,
    times: u32,
    pause: Duration,
    mut random: Random,
    stop: Arc<AtomicBool>,
) -> u32 {
    let (mut paid, mut left) = (0, times);
    let nets: Vec<Arc<Net>> = nets.into_iter().filter(|net| !net.users.is_empty()).collect();
    while left > 0 && !nets.is_empty() && !stop.load(Ordering::Relaxed) {
        left -= 1;
        tokio::time::sleep(pause).await;
        let net = &nets[random.index(nets.len())];
        let user = &net.users[random.index(net.users.len())];
        match net.pay_in(user).await {
            Ok(()) => paid += 1,
            Err(failure) => tracing::debug!(why = failure.messages.join("; "), "a customer could not pay in"),
        }
    }
    paid
}

/// Whatever rests is tried at once: nobody waits for minutes here.
pub(super) async fn retry_all(db: &Db) -> CommandResult {
    let filter = JobFilter { state: Some(JobState::FailedRetryable), ..JobFilter::default() };
    for shown in db.jobs(&filter, i64::MAX, 10_000).await? {
        db.retry_job(shown.job.id, "people", SystemClock.now()).await?;
    }
    Ok(())
}
