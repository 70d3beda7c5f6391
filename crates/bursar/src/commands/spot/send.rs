//! `bursar spot send`: JSON lines in, answers out.

use std::io::BufRead;
use std::time::Duration;

use domain::id::{Generator, NodeId, Transfer};
use serde_json::Value;
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
    // The last node: whoever makes ids for real gets a lower one from the database.
    let node = NodeId::new(NodeId::COUNT - 1).unwrap_or_else(|| unreachable!("the last node is one"));
    let ids = Generator::new(SystemClock, node);
    let new_id = || ids.next::<Transfer>().map(OpId::from).map_err(|error| error.to_string());
    let mut requests: Vec<Request> = Vec::new();
    // All of it is read before anything is sent: a bad line changes nothing.
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.map_err(|error| Failure::outside("INTERNAL", &error, "standard input cannot be read"))?;
        if line.trim().is_empty() {
            continue;
        }
        let request = lines::parse(&line, new_id).map_err(|reason| {
            let message = format!("line {}: {reason}", number + 1);
            Failure::bad_input("SPOT_BAD_LINE", message, "nothing was sent; bursar spot send --help shows the form")
        })?;
        requests.push(request);
    }
    let time = Duration::from_secs(arguments.timeout);
    for requests in requests.chunks(SUBMISSION_MAX) {
        let answers = tokio::time::timeout(time, client.submit(requests)).await.map_err(|_| unanswered())?;
        for (request, answer) in requests.iter().zip(answers.map_err(failure)?) {
            say(line(request, &lines::answer(&answer)));
        }
    }
    Ok(())
}

fn line(request: &Request, answer: &Value) -> Value {
    let mut line = match request {
        Request::Run(operation) => serde_json::json!({ "id": operation.id().number(), "kind": operation.name() }),
        Request::Query(id) => serde_json::json!({ "id": id.number(), "kind": "query" }),
        Request::Balance { user, asset } => {
            serde_json::json!({ "kind": "balance", "user": user.get(), "asset": asset.0 })
        }
        Request::Total(asset) => serde_json::json!({ "kind": "total", "asset": asset.0 }),
    };
    if let (Some(line), Some(answer)) = (line.as_object_mut(), answer.as_object()) {
        line.extend(answer.clone());
    }
    line
}

pub fn connect(connection: &Connection) -> Result<Client, Failure> {
    let seed = SystemClock.now().micros().cast_unsigned();
    Ok(Client::start(connection.connect, connection.token.read()?, seed))
}

pub fn unanswered() -> Failure {
    let message = "the engine did not answer in time";
    let hint = "is it running? send the same ids again: what was done is not done twice";
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
