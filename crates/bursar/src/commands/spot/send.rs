//! `bursar spot send`: JSON lines in, answers out.

use std::io::{BufRead, Read};
use std::time::Duration;

use domain::id::first_at;
use domain::random::Random;
use serde_json::{Value, json};
use spot::net::{Client, Role};
use spot::{OpId, Request, SUBMISSION_MAX};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::say;
use tokio::net::TcpStream;

use super::{Connection, credentials, lines};
use domain::Clock;

/// A machine that does not say no within this time does not say anything.
const REACH: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// The role whose token is shown: coordinator, order-engine, operator or observer
    #[arg(long, default_value = "coordinator", value_name = "ROLE", value_parser = credentials::role)]
    role: Role,
    /// Give up after so many seconds without an answer; what was sent may still have happened
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

pub async fn run(arguments: &Arguments) -> CommandResult {
    let client = connect(&arguments.connection, arguments.role).await?;
    let mut ids = Ids::new()?;
    let mut requests: Vec<Request> = Vec::new();
    // All of it is read before anything is sent: a bad line changes nothing.
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let bad = |reason: String| {
            let message = format!("line {}: {reason}", number + 1);
            Failure::bad_input("SPOT_BAD_LINE", message, "nothing was sent; bursar spot send --help shows the form")
        };
        let line = line.map_err(|error| bad(error.to_string()))?;
        if !line.trim().is_empty() {
            requests.push(lines::parse(&line, || ids.next()).map_err(bad)?);
        }
    }
    let time = Duration::from_secs(arguments.timeout);
    let mut rest = requests.chunks(SUBMISSION_MAX);
    while let Some(requests) = rest.next() {
        let failed = match tokio::time::timeout(time, client.submit(requests)).await {
            Ok(Ok(answers)) => {
                requests.iter().zip(&answers).for_each(|(request, answer)| say(line(request, lines::answer(answer))));
                continue;
            }
            Ok(Err(error)) => failure(error),
            Err(_) => unanswered(),
        };
        for request in requests.iter().chain(rest.flatten()) {
            say(line(request, json!({ "unanswered": true })));
        }
        return Err(failed);
    }
    Ok(())
}

/// Makes ids that no other sender makes: chance in all of their lower 22 bits and in the last ten seconds. A
/// server has a node number from the database instead.
struct Ids {
    next: i64,
}

impl Ids {
    fn new() -> Result<Self, Failure> {
        let mut chance = [0; 8];
        std::fs::File::open("/dev/urandom")
            .and_then(|mut source| source.read_exact(&mut chance))
            .map_err(|error| Failure::outside("INTERNAL", &error, "give each line an id of your own"))?;
        let mut random = Random::from_seed(u64::from_le_bytes(chance));
        let moment = SystemClock.now().plus_micros(-i64::try_from(random.below(10_000_000)).unwrap_or(0));
        // A node number that no server ever has, and somewhere in its millisecond.
        let node = i64::from(domain::id::NodeId::UNLENT) + i64::try_from(random.below(31)).unwrap_or(0);
        let tail = (node << 12) + i64::try_from(random.below(1 << 12)).unwrap_or(0);
        Ok(Self { next: first_at(moment).saturating_add(tail) })
    }

    fn next(&mut self) -> Result<OpId, String> {
        self.next += 1;
        OpId::new(self.next).ok_or_else(|| "there are no ids left".to_owned())
    }
}

/// The request, and what became of it.
fn line(request: &Request, answer: Value) -> Value {
    let mut line = lines::request(request);
    if let (Some(line), Value::Object(answer)) = (line.as_object_mut(), answer) {
        line.extend(answer);
    }
    line
}

/// The client connects again and again, as a server wants it. A person wants to know at once that there is no engine, before
/// anything is sent.
pub async fn connect(connection: &Connection, role: Role) -> Result<Client, Failure> {
    let token = connection.shown.token(role)?;
    let tls = connection.known.read(connection.connect)?;
    let reached = tokio::time::timeout(REACH, TcpStream::connect(connection.connect)).await;
    if let Err(error) = reached.map_err(std::io::Error::from).flatten() {
        let address = connection.connect;
        let hint = format!("nothing was sent; does an engine listen at {address}? name another with --connect");
        return Err(Failure::outside("SPOT_UNREACHABLE", &error, hint));
    }
    let seed = SystemClock.now().micros().cast_unsigned();
    Ok(Client::start_with(tls, connection.connect, token, seed, |_| Ok(())))
}

pub fn unanswered() -> Failure {
    let message = "the engine did not answer in time";
    let hint = "is it running? send the unanswered lines again with their ids: what was done is not done twice";
    Failure { code: "SPOT_UNANSWERED".into(), messages: vec![message.into()], hint: hint.into(), exit: Exit::Outside }
}

pub fn failure(error: spot::net::ClientError) -> Failure {
    use spot::net::ClientError;
    let hint = match error {
        ClientError::NotTaken(_) => "send the same ids again later: what was done is not done twice",
        ClientError::Unauthorized => "show a token of the file that the engine was started with",
        ClientError::Forbidden => "show the token of a role that may do it: --role, or another BURSAR_SPOT_TOKEN",
        ClientError::Tls(_) => {
            "compare --tls-pin or --tls-ca with the engine's certificate, and --connect with its address"
        }
        ClientError::Protocol => "use the same version of bursar on both sides",
        ClientError::Unacceptable { .. } => "check that --connect names the engine that you mean",
        ClientError::Snapshot(_) => "see what the engine wrote to its standard error",
    };
    Failure::outside(error.code(), &error, hint)
}
