//! Customers who move money, and believe nothing but what they were told. Afterwards their own records are held against
//! what the server says.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use domain::random::Random;
use domain::{Amount, UserId};
use serde_json::{Value, json};
use terminal::clock::Stopwatch;
use terminal::output::thousands;

use super::client::Client;
use super::{COINS, Coin};

/// Counts of all customers, for the progress bar.
#[derive(Debug, Default)]
pub struct Counters {
    pub committed: AtomicU64,
    pub pending: AtomicU64,
    pub refused: AtomicU64,
    /// Requests that were sent again because no answer said what became of them.
    pub resent: AtomicU64,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = |counter: &AtomicU64| thousands(counter.load(Ordering::Relaxed));
        write!(
            f,
            "{} committed, {} on their way, {} refused, {} sent again",
            read(&self.committed),
            read(&self.pending),
            read(&self.refused),
            read(&self.resent)
        )
    }
}

/// What a customer was told about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Committed,
    /// Recorded, and on its way.
    Pending,
    /// Not done, with this code.
    Refused(String),
}

#[derive(Clone, Debug)]
pub struct Record {
    to_spot: bool,
    coin: usize,
    amount: Amount,
    told: Told,
}

/// One after the other for each of its users, so that it always knows what they should have.
pub struct Customer {
    client: Client,
    users: Vec<UserId>,
    coins: Vec<Coin>,
    random: Random,
    /// Makes the names of this run's requests its own.
    run: i64,
    next: u64,
    /// What users have before they trade, in ledger units, by user and number of the coin. Who is not named has what every user of a rig is given.
    opening: HashMap<(UserId, usize), i64>,
    /// By user and the request's own name.
    pub records: HashMap<UserId, HashMap<String, Record>>,
}

/// What was found when the records were held against the server.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub requests: u64,
    pub committed: u64,
    pub pending: u64,
    pub refused: u64,
    /// The server told that it was done or recorded, and it is not there; or money is missing.
    pub lost: u64,
    /// Done more often than asked for; or there is too much money.
    pub doubled: u64,
    /// Still on its way after everything had time to end.
    pub stranded: u64,
    /// The first few, in words.
    pub first: Vec<String>,
}

impl Verdict {
    pub const fn clean(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.stranded == 0
    }

    pub fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.committed += other.committed;
        self.pending += other.pending;
        self.refused += other.refused;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.stranded += other.stranded;
        let room = 10_usize.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(room));
    }

    fn note(&mut self, text: String) {
        if self.first.len() < 10 {
            self.first.push(text);
        }
    }
}

const PATH: &str = "/api/v1/internal_transfer";

impl Customer {
    /// `number` of `of` customers; users are dealt out among them.
    pub fn new(
        addresses: Vec<SocketAddr>,
        secret: Vec<u8>,
        coins: Vec<Coin>,
        [number, of, users]: [i64; 3],
        seed: u64,
        run: i64,
    ) -> Self {
        let users = (1..=users).filter(|user| user % of == number).filter_map(UserId::new).collect();
        let random = Random::from_seed(seed.wrapping_add(number.cast_unsigned().wrapping_mul(0x9e37_79b9)));
        let client = Client::new(addresses, usize::try_from(number).unwrap_or(0), secret);
        Self { client, users, coins, random, run, next: 0, opening: HashMap::new(), records: HashMap::new() }
    }

    /// Its users have this before they trade: in ledger units, by user and number of the coin.
    pub fn opening(mut self, opening: HashMap<(UserId, usize), i64>) -> Self {
        self.opening = opening;
        self
    }

    /// Asks for the first so many users as often as for its own. Where every customer does, those users have many clients
    /// at once, on all servers, and only the database's locks keep their books.
    pub fn shares(mut self, users: i64) -> Self {
        let shared: Vec<UserId> = (1..=users).filter_map(UserId::new).collect();
        while !shared.is_empty() && self.users.iter().filter(|user| user.get() <= users).count() * 2 < self.users.len()
        {
            self.users.extend(&shared);
        }
        self
    }

    /// Sends one request after the other, each until it is answered, until it is told to stop.
    pub async fn trade(mut self, stop: Arc<AtomicBool>, counters: Arc<Counters>, pause: Duration) -> Self {
        while !stop.load(Ordering::Relaxed) && !self.users.is_empty() {
            self.request(&counters).await;
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        self
    }

    async fn request(&mut self, counters: &Counters) {
        let user = self.users[self.random.index(self.users.len())];
        let coin = self.random.index(self.coins.len());
        let to_spot = self.random.below(100) < 55;
        // Mostly small; now and then more than any user has.
        let times = if self.random.below(50) == 0 { 100_000_000 } else { 1 + self.random.below(50) };
        let smallest = self.coins[coin].smallest.units();
        let amount = Amount::from_units(smallest.saturating_mul(i64::try_from(times).unwrap_or(1)));
        self.next += 1;
        let name = format!("{}-{}", self.run, self.next);
        let (from, to) = if to_spot { ("FUNDING", "SPOT") } else { ("SPOT", "FUNDING") };
        let body = json!({
            "from": from, "to": to, "asset": self.coins[coin].symbol.as_str(),
            "amount": amount.display(self.coins[coin].precision).to_string(), "client_order_id": name,
        });
        let told = loop {
            match self.client.ask(user, "POST", PATH, Some(&body)).await {
                Ok((200, _)) => break Told::Committed,
                Ok((202, _)) => break Told::Pending,
                Ok((400..=499, answer)) => {
                    break Told::Refused(answer["error"]["code"].as_str().unwrap_or_default().to_owned());
                }
                // Unknown, or nothing done: the same name makes sending it again harmless.
                Ok(_) | Err(_) => {
                    counters.resent.fetch_add(1, Ordering::Relaxed);
                    self.client.turn();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        let counter = match told {
            Told::Committed => &counters.committed,
            Told::Pending => &counters.pending,
            Told::Refused(_) => &counters.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.records.entry(user).or_default().insert(name, Record { to_spot, coin, amount, told });
    }

    /// Whether nothing of this customer's users is on its way any more.
    pub async fn settled(&mut self) -> bool {
        let with_pending: Vec<UserId> = self
            .records
            .iter()
            .filter(|(_, records)| records.values().any(|record| record.told == Told::Pending))
            .map(|(user, _)| *user)
            .collect();
        for user in with_pending {
            let path = format!("{PATH}?state=PENDING&limit=1");
            match self.client.ask(user, "GET", &path, None).await {
                Ok((200, answer)) if answer["transfers"].as_array().is_some_and(Vec::is_empty) => {}
                Ok(_) | Err(_) => return false,
            }
        }
        true
    }

    /// Holds every record against what the server says, and the balances against what they must be.
    pub async fn check(mut self) -> Verdict {
        let mut verdict = Verdict::default();
        let records = std::mem::take(&mut self.records);
        for (user, mut mine) in records {
            verdict.requests += mine.len() as u64;
            let mut moved = vec![0_i64; self.coins.len()];
            let mut cursor = String::new();
            loop {
                let Some(page) = self.page(user, &cursor).await else {
                    verdict.lost += 1;
                    verdict.note(format!("user {}: the list could not be read", user.get()));
                    break;
                };
                for transfer in page["transfers"].as_array().into_iter().flatten() {
                    self.check_transfer(user, transfer, &mut mine, &mut moved, &mut verdict);
                }
                match page["next_cursor"].as_str() {
                    Some(next) => next.clone_into(&mut cursor),
                    None => break,
                }
            }
            for (name, record) in mine {
                match record.told {
                    Told::Refused(_) => verdict.refused += 1,
                    Told::Committed | Told::Pending => {
                        verdict.lost += 1;
                        verdict.note(format!("user {} {name}: was told {:?}, is not there", user.get(), record.told));
                    }
                }
            }
            self.check_balances(user, &moved, &mut verdict).await;
        }
        verdict
    }

    async fn page(&mut self, user: UserId, cursor: &str) -> Option<Value> {
        let after = if cursor.is_empty() { String::new() } else { format!("&cursor={cursor}") };
        let path = format!("{PATH}?limit=200{after}");
        for _ in 0..50 {
            match self.client.ask(user, "GET", &path, None).await {
                Ok((200, page)) => return Some(page),
                Ok(_) | Err(_) => {
                    self.client.turn();
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        None
    }

    /// One transfer that the server knows. What is left in `mine` afterwards it does not know.
    fn check_transfer(
        &self,
        user: UserId,
        transfer: &Value,
        mine: &mut HashMap<String, Record>,
        moved: &mut [i64],
        verdict: &mut Verdict,
    ) {
        let text = |name: &str| transfer[name].as_str().unwrap_or_default();
        let (name, state) = (text("client_order_id"), text("state"));
        let to_spot = text("to") == "SPOT";
        let coin = self.coins.iter().position(|coin| coin.symbol.as_str() == text("asset"));
        let amount =
            coin.and_then(|coin| Amount::parse(text("amount"), self.coins[coin].precision).ok()).unwrap_or_default();
        if let (Some(coin), "COMMITTED") = (coin, state) {
            moved[coin] += if to_spot { amount.units() } else { -amount.units() };
        }
        // A transfer of an earlier run on the same data counts for the balances; this run has no record of it.
        if !name.starts_with(&format!("{}-", self.run)) {
            return;
        }
        let Some(record) = mine.remove(name) else {
            verdict.doubled += 1;
            verdict.note(format!("user {} {name}: there is one more than was asked for", user.get()));
            return;
        };
        let same = record.to_spot == to_spot && Some(record.coin) == coin && record.amount == amount;
        let ended_well = state == "COMMITTED";
        let good = same
            && match (&record.told, state) {
                (_, "PENDING") => {
                    verdict.stranded += 1;
                    verdict.note(format!("user {} {name}: {transfer}", user.get()));
                    return;
                }
                (Told::Committed, _) => ended_well,
                (Told::Pending, _) => true,
                (Told::Refused(_), _) => !ended_well,
            };
        match (&record.told, good) {
            (Told::Committed, true) => verdict.committed += 1,
            (Told::Pending, true) => verdict.pending += 1,
            (Told::Refused(_), true) => verdict.refused += 1,
            (_, false) => {
                verdict.lost += 1;
                verdict.note(format!("user {} {name}: was told {:?}, now {transfer}", user.get(), record.told));
            }
        }
    }

    /// The funding balance must be what was given, less what went to spot, with nothing on its way.
    async fn check_balances(&mut self, user: UserId, moved: &[i64], verdict: &mut Verdict) {
        let mut answer = None;
        // A server that was killed last may still be comparing its database with its engine, on a busy machine.
        for _ in 0..600 {
            match self.client.ask(user, "GET", "/api/v1/balances", None).await {
                Ok((200, balances)) if balances["spot_known"] == true => {
                    answer = Some(balances);
                    break;
                }
                Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        let Some(answer) = answer else {
            verdict.lost += 1;
            verdict.note(format!("user {}: the balances could not be read", user.get()));
            return;
        };
        for (number, (coin, moved)) in self.coins.iter().zip(moved).enumerate() {
            let row =
                answer["balances"].as_array().into_iter().flatten().find(|row| row["asset"] == coin.symbol.as_str());
            let units = |side: &str, name: &str| {
                let text = row.and_then(|row| row[side][name].as_str()).unwrap_or("0");
                Amount::parse(text, coin.precision).map_or(i64::MIN, Amount::units)
            };
            let given = || COINS * 10_i64.pow(u32::from(coin.precision.decimals()));
            let start = self.opening.get(&(user, number)).copied().unwrap_or_else(given);
            let funding = units("funding", "available") + units("funding", "frozen");
            let spot = units("spot", "available") + units("spot", "reserved");
            for (side, found, expected) in [("funding", funding, start - moved), ("spot", spot, *moved)] {
                if found != expected {
                    if found > expected {
                        verdict.doubled += 1;
                    } else {
                        verdict.lost += 1;
                    }
                    verdict.note(format!(
                        "user {}: {side} has {found} units of {}, and must have {expected}",
                        user.get(),
                        coin.symbol
                    ));
                }
            }
        }
    }
}

/// Waits until nothing of these customers is on its way any more, at most a minute.
pub async fn drain(customers: &mut [Customer]) {
    let watch = Stopwatch::start();
    while watch.elapsed() < Duration::from_secs(60) {
        let mut settled = true;
        for customer in customers.iter_mut() {
            settled &= customer.settled().await;
        }
        if settled {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
