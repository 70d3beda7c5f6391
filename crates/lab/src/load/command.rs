//! `bursar load` (hidden): moves money in and out of spot accounts over HTTP, as many clients would. The benches run it
//! as a process of its own, so that the server's figures are the server's.

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
}

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    if arguments.users < arguments.connections {
        let message = "there are fewer users than connections";
        return Err(Failure::bad_input("BAD_USAGE", message, "each connection needs a user of its own"));
    }
    let users = users(arguments)?;
    let load = Load {
        address: arguments.http,
        connections: arguments.connections as usize,
        time: Duration::from_secs(arguments.seconds),
        patience: Duration::from_secs(60),
    };
    // On one thread: what the clients take is taken from the server.
    let work = move || -> std::io::Result<Tally> {
        let mut users = users.into_iter();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(load::run(load, |_| users.next().unwrap_or_default()))
    };
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar"))?;
    let hint = format!("does a server listen on {}?", arguments.http);
    print(&done.map_err(|error| Failure::outside("COMMAND_FAILED", &error, hint))?, as_json);
    Ok(())
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

/// The users of each connection: number n belongs to connection n modulo their count.
fn users(arguments: &Arguments) -> Result<Vec<Movers>, Failure> {
    let secret = read_secret(&arguments.secret_file)?;
    let now = SystemClock.now();
    let lasts = i64::try_from(arguments.seconds).unwrap_or(i64::MAX).saturating_add(3_600);
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
    let mut all = vec![Movers { batch, bodies, users: Vec::new(), at: 0 }; arguments.connections as usize];
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
        all[connection].users.push(Mover { head, inside: false });
    }
    Ok(all)
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
