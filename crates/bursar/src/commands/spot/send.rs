//! `bursar spot send`: JSON lines in, answers out.

use std::io::BufRead;
use std::time::Duration;

use domain::id::{Generator, NodeId, Transfer};
use serde_json::{Value, json};
use spot::net::Client;
use spot::{OpId, Request, SUBMISSION_MAX};

use super::{Connection, lines};
use crate::clock::SystemClock;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::say;
use domain::Clock;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// Give up after so many seconds without an answer; what was sent may still have happened
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

pub async fn run(arguments: &Arguments) -> Outcome {
    let client = connect(&arguments.connection)?;
    // The upper half of the nodes: whoever makes ids for real gets a lower one from the database. Two senders at a time
    // have two processes.
    let node = u16::try_from(std::process::id() % u32::from(NodeId::COUNT / 2)).unwrap_or(0);
    let node = NodeId::new(NodeId::COUNT / 2 + node).ok_or_else(|| bug("there is no such node"))?;
    let ids = Generator::new(SystemClock, node);
    let new_id = || ids.next::<Transfer>().map(OpId::from).map_err(|error| error.to_string());
    let mut requests: Vec<Request> = Vec::new();
    // All of it is read before anything is sent: a bad line changes nothing.
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let bad = |reason: String| {
            let message = format!("line {}: {reason}", number + 1);
            Failure::bad_input("SPOT_BAD_LINE", message, "nothing was sent; bursar spot send --help shows the form")
        };
        let line = line.map_err(|error| bad(error.to_string()))?;
        if !line.trim().is_empty() {
            requests.push(lines::parse(&line, new_id).map_err(bad)?);
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

/// The request, and what became of it.
fn line(request: &Request, answer: Value) -> Value {
    let mut line = lines::request(request);
    if let (Some(line), Value::Object(answer)) = (line.as_object_mut(), answer) {
        line.extend(answer);
    }
    line
}

fn bug(what: &str) -> Failure {
    Failure::outside("INTERNAL", &std::io::Error::other(what.to_owned()), "this is a bug in Bursar: please report it")
}

pub fn connect(connection: &Connection) -> Result<Client, Failure> {
    let seed = SystemClock.now().micros().cast_unsigned();
    Ok(Client::start(connection.connect, connection.token.read()?, seed))
}

pub fn unanswered() -> Failure {
    let message = "the engine did not answer in time";
    let hint = "is it running? send the unanswered lines again with their ids: what was done is not done twice";
    Failure { code: "SPOT_UNANSWERED", messages: vec![message.into()], hint: hint.into(), exit: Exit::Outside }
}

pub fn failure(error: spot::net::ClientError) -> Failure {
    use spot::net::ClientError;
    let hint = match error {
        ClientError::Refused(_) => "send the same ids again later: what was done is not done twice",
        ClientError::Unauthorized => "show the token that the engine was started with",
        ClientError::Protocol => "use the same version of bursar on both sides",
        ClientError::Snapshot(_) => "see what the engine wrote to its standard error",
    };
    Failure::outside(error.code(), &error, hint)
}
