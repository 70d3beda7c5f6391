//! `bursar load` (hidden): moves money in and out of spot accounts over HTTP, as many clients would. The benches run it
//! as a process of its own, so that the server's figures are the server's.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::{Clock, UserId};
use serde_json::json;
use server::auth::{Claims, sign_hs256};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::files::read_secret;
use terminal::output::{say, thousands};

use crate::load::{self, Came, Load, Tally, Traffic};

/// Whom the benches' tokens are from and for.
pub const BENCH: &str = "bench";

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the server listens
    #[arg(long, value_name = "ADDRESS")]
    http: SocketAddr,
    /// The secret that tokens are signed with
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    connections: u32,
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Users 1 to so many move money; each belongs to one connection
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    users: u32,
    /// Transfers per request; 1 is a request without a list
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    batch: u32,
    /// What is asked for [default: the internal transfer, or its batch]
    #[arg(long)]
    path: Option<String>,
    #[arg(long, default_value = "USDT")]
    asset: String,
    #[arg(long, default_value = "1.00")]
    amount: String,
    /// Ask for withdrawals on this chain (of EVM) instead, each under a name and to an address of its own
    #[arg(long, value_name = "CHAIN", conflicts_with = "path")]
    withdrawals: Option<String>,
}

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    if arguments.users < arguments.connections {
        let message = "there are fewer users than connections";
        return Err(Failure::bad_input("BAD_USAGE", message, "each connection needs a user of its own"));
    }
    let load = Load {
        address: arguments.http,
        connections: arguments.connections as usize,
        time: Duration::from_secs(arguments.seconds),
        patience: Duration::from_secs(60),
    };
    let done = match &arguments.withdrawals {
        Some(chain) => clients(load, payees(arguments, chain)?).await,
        None => clients(load, movers(arguments)?).await,
    };
    let hint = format!("does a server listen on {}?", arguments.http);
    print(&done.map_err(|error| Failure::outside("COMMAND_FAILED", &error, hint))?, as_json);
    Ok(())
}

/// Each connection's traffic, on one thread: what the clients take is taken from the server.
async fn clients<T: Traffic + Default>(load: Load, traffic: Vec<T>) -> std::io::Result<Tally> {
    let work = move || -> std::io::Result<Tally> {
        let mut traffic = traffic.into_iter();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(load::run(load, |_| traffic.next().unwrap_or_default()))
    };
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}

fn print(tally: &Tally, as_json: bool) {
    let [p50, p99] = [500, 990].map(|thousandths| tally.quantile_us(thousandths));
    let per_s = tally.per_s().round();
    if as_json {
        say(json!({
            "transfers": tally.committed, "per_s": per_s, "p50_us": p50, "p99_us": p99,
            "errors": tally.errors(), "first_error": tally.first.first(),
        }));
        return;
    }
    let (transfers, errors) = (thousands(tally.committed), thousands(tally.errors()));
    say(format!("{transfers} transfers, {per_s} per second; p50 {p50} µs, p99 {p99} µs; {errors} errors"));
    for text in &tally.first {
        say(format!("  {text}"));
    }
}

/// The users of each connection, with a request's head up to the length of its body: number n belongs to connection n modulo their count.
fn heads(arguments: &Arguments, path: &str) -> Result<Vec<Vec<String>>, Failure> {
    let secret = read_secret(&arguments.secret_file)?;
    let now = SystemClock.now();
    let lasts = i64::try_from(arguments.seconds).unwrap_or(i64::MAX).saturating_add(3_600);
    let mut all = vec![Vec::new(); arguments.connections as usize];
    for user in (1..=i64::from(arguments.users)).filter_map(UserId::new) {
        let claims = Claims {
            user,
            issuer: BENCH.to_owned(),
            audience: BENCH.to_owned(),
            issued_at: now,
            expires_at: now.plus_micros(lasts.saturating_mul(1_000_000)),
        };
        let token = sign_hs256(&secret, None, &claims)
            .map_err(|error| Failure::bad_input("AUTH_KEYS_INVALID", error.to_string(), "use a longer secret"))?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n",
            arguments.http
        );
        let connection = usize::try_from(user.get()).unwrap_or(0) % all.len();
        all[connection].push(head);
    }
    Ok(all)
}

fn movers(arguments: &Arguments) -> Result<Vec<Movers>, Failure> {
    let path = match (&arguments.path, arguments.batch) {
        (Some(path), _) => path,
        (None, 1) => "/api/v1/internal_transfer",
        (None, _) => "/api/v1/internal_transfer/batch",
    };
    let batch = arguments.batch as usize;
    let bodies = Arc::new([["FUNDING", "SPOT"], ["SPOT", "FUNDING"]].map(|[from, to]| {
        let one = json!({ "from": from, "to": to, "asset": arguments.asset, "amount": arguments.amount });
        let body = if batch == 1 { one.to_string() } else { json!({ "transfers": vec![one; batch] }).to_string() };
        format!("content-length: {}\r\n\r\n{body}", body.len())
    }));
    let mover = |head| Mover { head, inside: false };
    let movers = |heads: Vec<String>| Movers {
        batch,
        bodies: Arc::clone(&bodies),
        users: heads.into_iter().map(mover).collect(),
        at: 0,
    };
    Ok(heads(arguments, path)?.into_iter().map(movers).collect())
}

fn payees(arguments: &Arguments, chain: &str) -> Result<Vec<Payees>, Failure> {
    let path = if arguments.batch == 1 { "/api/v1/withdrawals" } else { "/api/v1/withdrawals/batch" };
    let batch = arguments.batch as usize;
    // The fee is agreed to be as much as the amount, which is the most that there can be.
    let rest = format!(
        r#""asset":"{}","chain":"{chain}","amount":"{}","max_fee":"{}""#,
        arguments.asset, arguments.amount, arguments.amount
    );
    // Nobody has asked under these names before: they begin with the time.
    let run = SystemClock.now().micros();
    let payees = |(connection, users): (usize, Vec<String>)| {
        let name = format!("{run}-{connection}");
        Payees { batch, name, connection, rest: rest.clone(), users, asked: 0 }
    };
    Ok(heads(arguments, path)?.into_iter().enumerate().map(payees).collect())
}

/// One connection's users, who take turns. Each moves in, and next time out again, so that what they have suffices.
#[derive(Clone, Default)]
struct Movers {
    batch: usize,
    /// In, and out: the last header and the body.
    bodies: Arc<[String; 2]>,
    users: Vec<Mover>,
    at: usize,
}

#[derive(Clone)]
struct Mover {
    /// The request up to the length of its body.
    head: String,
    /// Money was moved in, and not yet out again.
    inside: bool,
}

impl Traffic for Movers {
    fn next(&mut self, request: &mut Vec<u8>) -> Option<usize> {
        self.at = if self.at + 1 < self.users.len() { self.at + 1 } else { 0 };
        let user = self.users.get(self.at)?;
        request.extend_from_slice(user.head.as_bytes());
        request.extend_from_slice(self.bodies[usize::from(user.inside)].as_bytes());
        Some(self.batch)
    }

    fn learn(&mut self, _: &Came<'_>, committed: usize) {
        let done = committed == self.batch;
        if let Some(user) = self.users.get_mut(self.at) {
            // After anything else it begins anew, with what always suffices.
            user.inside = done && !user.inside;
        }
    }
}

/// One connection's users, who take turns. Each asks for withdrawals under names and to addresses that nobody has used.
#[derive(Clone, Default)]
struct Payees {
    batch: usize,
    /// How its names begin.
    name: String,
    connection: usize,
    /// What is the same in all requests.
    rest: String,
    /// The heads of their requests.
    users: Vec<String>,
    asked: usize,
}

/// How an answer says that it was taken: it is approved, or waits for people or its job. Nothing else says so.
const TAKEN: [&str; 3] = [r#""state":"approved""#, r#""state":"pending""#, r#""state":"queued""#];

impl Payees {
    fn write_one(&self, body: &mut String, number: usize) {
        let (name, rest, connection) = (&self.name, &self.rest, self.connection);
        // Without capitals an address has no checksum. No contract and no wallet of the house begins like this.
        let written = write!(
            body,
            r#"{{"client_order_id":"{name}-{number}",{rest},"address":"0xbe7c4000{connection:016x}{number:016x}"}}"#
        );
        debug_assert!(written.is_ok(), "a text grows");
    }
}

impl Traffic for Payees {
    fn next(&mut self, request: &mut Vec<u8>) -> Option<usize> {
        let head = self.users.get(self.asked / self.batch.max(1) % self.users.len().max(1))?;
        let mut body = String::with_capacity(256 * self.batch);
        if self.batch == 1 {
            self.write_one(&mut body, self.asked);
        } else {
            body.push_str(r#"{"withdrawals":["#);
            for number in 0..self.batch {
                body.push_str(if number == 0 { "" } else { "," });
                self.write_one(&mut body, self.asked + number);
            }
            body.push_str("]}");
        }
        request.extend_from_slice(head.as_bytes());
        request.extend_from_slice(format!("content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
        self.asked += self.batch;
        Some(self.batch)
    }

    fn committed(&self, came: &Came<'_>) -> usize {
        match came {
            // The same again, which has ended, is 200 by itself: nothing here is asked for twice.
            Came::Answer { status, body } if *status == if self.batch == 1 { 202 } else { 200 } => {
                std::str::from_utf8(body).map_or(0, |text| TAKEN.iter().map(|state| text.matches(state).count()).sum())
            }
            Came::Answer { .. } | Came::Unknown(_) => 0,
        }
    }

    fn learn(&mut self, _: &Came<'_>, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payees(batch: usize) -> Payees {
        let (name, rest) = ("7-1".to_owned(), r#""asset":"USDT""#.to_owned());
        Payees { batch, name, connection: 1, rest, users: vec!["A\r\n".to_owned(), "B\r\n".to_owned()], asked: 0 }
    }

    fn asked(payees: &mut Payees) -> (String, serde_json::Value) {
        let mut request = Vec::new();
        assert_eq!(payees.next(&mut request), Some(payees.batch));
        let text = String::from_utf8(request).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        (head[..1].to_owned(), serde_json::from_str(body).expect("JSON"))
    }

    #[test]
    fn no_two_withdrawals_have_one_name_or_one_address_and_users_take_turns() {
        let mut many = payees(3);
        let asked: Vec<_> = (0..4).map(|_| asked(&mut many)).collect();
        let users: Vec<&str> = asked.iter().map(|(user, _)| user.as_str()).collect();
        assert_eq!(users, ["A", "B", "A", "B"]);
        let all: Vec<_> = asked.iter().flat_map(|(_, body)| body["withdrawals"].as_array().expect("a list")).collect();
        for field in ["client_order_id", "address"] {
            let different: std::collections::BTreeSet<_> = all.iter().map(|one| one[field].to_string()).collect();
            assert_eq!(different.len(), 12, "{field}");
        }
        assert!(all.iter().all(|one| one["address"].as_str().is_some_and(|address| address.len() == 42)));
        assert_eq!(super::tests::asked(&mut payees(1)).1["client_order_id"], "7-1-0");
    }

    #[test]
    fn only_what_is_taken_counts() {
        let taken = br#"{"withdrawal_id":"wr-1","state":"approved","next":{}}"#;
        let answer = |status| Came::Answer { status, body: taken };
        assert_eq!(payees(1).committed(&answer(202)), 1);
        for status in [200, 409, 422, 503] {
            assert_eq!(payees(1).committed(&answer(status)), 0, "{status}");
        }
        let body = br#"{"results":[{"status":202,"withdrawal":{"state":"pending"}},{"status":422,"error":{"code":"INSUFFICIENT_BALANCE"}},{"status":200,"withdrawal":{"state":"failed"}}]}"#;
        assert_eq!(payees(3).committed(&Came::Answer { status: 200, body }), 1);
        assert_eq!(payees(3).committed(&Came::Unknown("gone")), 0);
    }
}
