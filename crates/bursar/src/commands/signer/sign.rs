//! `bursar signer sign`: asks a running signer to sign what a file says.

use std::path::PathBuf;

use serde_json::{Value, json};
use signer::SignRequest;
use signer::client::SignAnswer;
use signer::digest::hex;
use signer::wire::SignBody;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::files::read_text;
use terminal::output::{say, table};

use super::asking::{Asking, ask_failed};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The requests as JSON: {"requests": […]}, or one by itself, as docs/signer-openapi.json describes them
    file: PathBuf,
    /// The newest head of the log that you know: the number of its entry, a colon, its hash
    #[arg(long, value_name = "ENTRY:HASH")]
    pinned: Option<String>,
    #[command(flatten)]
    asking: Asking,
}

pub async fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let text = read_text(&arguments.file)?;
    let malformed = |why: String| {
        let message = format!("{}: {why}", arguments.file.display());
        Failure::bad_input("SIGNER_REQUEST_MALFORMED", message, "docs/guide/signer.md shows a request")
    };
    let body = SignBody::read(text.as_bytes(), |_| true).map_err(|error| malformed(error.to_string()))?;
    let requests = body.map_err(|group| malformed(group.to_string()))?.requests;
    let client = arguments.asking.client(arguments.pinned.as_deref())?;
    let answers = client.sign(&requests).await.map_err(|error| ask_failed(&error))?;
    let bodies: Vec<Value> = requests.iter().zip(&answers).map(|(request, answer)| shown(request, answer)).collect();
    let head = client.head();
    if json {
        let head = head.map(|head| json!({ "entries": head.entries, "hash": head.hash.to_string() }));
        say(json!({ "answers": bodies, "head": head }));
    } else {
        let text = |body: &Value, field: &str| body[field].as_str().unwrap_or_default().to_owned();
        let row = |body: &Value| ["id", "what", "tx_hash", "rule"].map(|field| text(body, field)).to_vec();
        say(table(&["request", "what", "hash", "rule"], &[], &bodies.iter().map(row).collect::<Vec<_>>()));
        if let Some(head) = head {
            say(format!("head {}:{}", head.entries, head.hash));
        }
    }
    refused(&answers)
}

fn shown(request: &SignRequest, answer: &SignAnswer) -> Value {
    match answer {
        SignAnswer::Signed { signed, from: _, policy, rule } => json!({
            "id": request.id.as_str(), "what": "signed", "signed_tx": hex(&signed.bytes), "tx_hash": signed.hash.to_string(),
            "policy": policy, "rule": rule,
        }),
        SignAnswer::Refused { code, message, signed_before, holder: _, policy, rule } => json!({
            "id": request.id.as_str(), "what": code, "message": message, "signed_before": signed_before,
            "policy": policy, "rule": rule,
        }),
    }
}

/// The first refusal is what the command fails with.
fn refused(answers: &[SignAnswer]) -> CommandResult {
    let first = answers.iter().find_map(|answer| match answer {
        SignAnswer::Refused { code, message, .. } => Some((code, message)),
        SignAnswer::Signed { .. } => None,
    });
    let Some((code, message)) = first else { return Ok(()) };
    let hint = "the rule above decided it; bursar explain has the code's page".to_owned();
    Err(Failure { code: code.clone().into(), messages: vec![message.clone()], hint, exit: Exit::BadInput })
}
