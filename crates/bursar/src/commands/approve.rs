//! `bursar approve`: what a withdrawal pays, in words that are made here; then a signature over exactly that, and over nothing that a server merely sent.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use server::operator_client::{OperatorClient, OperatorClientError};
use signer::names::{JobId, KeyName};
use signer::policy::signed::SigningKey;
use signer::wire::{ApprovalBody, IntentBody};
use signer::{Intent, IntentKind};
use store::catalog::Catalog;
use store::withdrawal::WithdrawalId;
use terminal::failure::{CommandResult, Failure};
use terminal::files::{read_key, read_pinned, read_secret};
use terminal::output::{plain, say, table};
use terminal::prompt::Prompt;

use super::Context;
use crate::treasury;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[arg(value_name = "WITHDRAWAL_ID")]
    id: String,
    /// The name of the key in the treasury file and in the signer's policy
    #[arg(long = "as", value_name = "KEY_NAME")]
    name: String,
    /// Your Ed25519 key, as `openssl genpkey -algorithm ed25519` makes it
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Where operators ask, such as http://127.0.0.1:7412
    #[arg(long, value_name = "URL")]
    server: String,
    /// A file with your operator's token
    #[arg(long, value_name = "FILE")]
    token: PathBuf,
    /// Sign without asking; for those who have read it already
    #[arg(long)]
    yes: bool,
}

/// What the server sends, but for what it calls the coin and how many decimals it says that it has. The digest is only compared.
#[derive(Deserialize)]
struct SentIntent {
    chain: String,
    group: String,
    digest: String,
    intent: IntentBody,
}

pub async fn run(context: &Context, arguments: &Arguments) -> CommandResult {
    let id: WithdrawalId = arguments.id.parse().map_err(|error: domain::id::BadId| {
        Failure::bad_input(
            "WITHDRAWAL_NOT_FOUND",
            format!("{}: {error}", arguments.id),
            "such as wr-1734912345678901234",
        )
    })?;
    let name: KeyName = arguments.name.parse().map_err(|error: domain::BadName| {
        Failure::bad_input("BAD_USAGE", format!("--as: {error}"), "as the treasury file names your key")
    })?;
    let key = signing_key(&arguments.key)?;
    let token = String::from_utf8(read_secret(&arguments.token)?).map_err(|error| {
        Failure::outside("FILE_NOT_READABLE", &error, "a token is a text: bursar token --operator NAME")
    })?;
    let client = OperatorClient::new(&arguments.server, &token).map_err(failed)?;
    let path = format!("/api/v1/operator/withdrawals/{id}");
    let sent = client.get(&format!("{path}/intent")).await.map_err(failed)?;
    let sent: SentIntent = serde_json::from_value(sent)
        .map_err(|error| Failure::outside("SERVER_ANSWER_WRONG", &error, "is --server a Bursar of this version?"))?;
    let intent = read_intent(id, &sent)?;
    let words = words(pinned_coins(context)?.as_ref(), &intent)?;
    let rows: Vec<Vec<String>> = words.iter().map(|(name, text)| vec![(*name).to_owned(), text.clone()]).collect();
    let shown_words = table(&["", ""], &[], &rows);
    if !arguments.yes {
        confirm(&shown_words)?;
    } else if !context.json {
        say(shown_words);
    }
    let approval = ApprovalBody::from(&signer::approval::GivenApproval {
        digest: intent.digest(),
        key: name,
        proof: signer::approval::Proof::Ed25519(key.sign_approval(&intent.digest())),
    });
    let body = serde_json::to_value(approval)
        .map_err(|error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar"))?;
    let answer = client.post(&format!("{path}/approve"), &body).await.map_err(failed)?;
    let signed: serde_json::Map<String, Value> =
        words.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect();
    context.print(&json!({ "signed": signed, "answer": answer }), || shown(id, &answer));
    Ok(())
}

/// A person's key, from a file that others may not read.
pub(super) fn signing_key(file: &Path) -> Result<SigningKey, Failure> {
    SigningKey::read(&read_key(file)?).ok_or_else(|| {
        let hint = "make one with: openssl genpkey -algorithm ed25519 -out KEY";
        Failure::bad_input("BAD_USAGE", "--key is not an Ed25519 key in PKCS#8", hint)
    })
}

/// What the server sent, as an intent whose digest is made here. It must be for this withdrawal, and have the digest that the server says.
fn read_intent(id: WithdrawalId, sent: &SentIntent) -> Result<Intent, Failure> {
    let wrong = |message: String| {
        let hint = "do not sign: the server shows something else than it asks for; tell whoever runs it";
        Failure::bad_input("APPROVAL_OTHER_DIGEST", message, hint)
    };
    let chain = sent.chain.parse().map_err(|_| wrong("the server names no chain".to_owned()))?;
    let group = sent.group.parse().map_err(|_| wrong("the server names no wallet group".to_owned()))?;
    let intent = sent.intent.clone().intent(&chain, &group).map_err(|error| wrong(error.to_string()))?;
    if intent.job != JobId::Withdrawal(id.number()) {
        return Err(wrong(format!("the server asks for a signature for {}, not for {id}", intent.job)));
    }
    check_builds(&intent)?;
    let hex = signer::digest::hex;
    // Anything else could hold what a terminal obeys.
    let asked = signer::digest::unhex32(&sent.digest)
        .ok_or_else(|| wrong("the server asks for a signature over what is no digest".to_owned()))?;
    let made = intent.digest();
    if made != asked {
        let message = format!("what the server shows has the digest {}, and it asks for {}", hex(&made), hex(&asked));
        return Err(wrong(message));
    }
    Ok(intent)
}

/// Our servers ask for one transaction, and another only with another signature: under one that says more, whoever owns a server could pay on TRON as
/// often as it says.
pub(super) fn check_builds(intent: &Intent) -> CommandResult {
    if intent.builds == 1 {
        return Ok(());
    }
    let message = format!("the signature would be good for {} transactions, one after the other", intent.builds);
    Err(Failure::bad_input("APPROVAL_OTHER_DIGEST", message, "do not sign: one payment is one transaction"))
}

/// From the intent alone. What a coin is called and how many decimals it has stands in the treasury file: without one only the contract and the raw
/// amount are shown, because whoever sends the intent could call any coin anything.
pub(super) fn words(known: Option<&Catalog>, intent: &Intent) -> Result<Vec<(&'static str, String)>, Failure> {
    let IntentKind::Pay { payment, .. } = &intent.kind else {
        let message = "what would be signed pays nothing";
        return Err(Failure::bad_input("APPROVAL_OTHER_DIGEST", message, "do not sign"));
    };
    let coin = signer::intent::coin_text(&payment.coin);
    let amount = payment.amount;
    let (pays, by) = match known {
        None => (
            format!("{amount} of the coin's smallest unit"),
            "no treasury file is named, which would say what it is called: set treasury.file".to_owned(),
        ),
        Some(catalog) => {
            let (asset, decimals) = coin_of(catalog, intent, &coin).ok_or_else(|| {
                let message = format!("the treasury file lists no coin {coin} on {}", intent.chain);
                Failure::bad_input("APPROVAL_OTHER_DIGEST", message, "do not sign, or correct treasury.file")
            })?;
            let by = format!("{amount} of its smallest unit, {decimals} decimals by the treasury file");
            (format!("{} {asset}", amount.in_coins(decimals)), by)
        }
    };
    let fee = match known.and_then(|catalog| coin_of(catalog, intent, "native")) {
        Some((coin, decimals)) => format!("{} {coin}", intent.most_fee.in_coins(decimals)),
        None => format!("{} of the chain's smallest unit", intent.most_fee),
    };
    let named = match intent.job {
        JobId::Withdrawal(_) => "withdrawal",
        JobId::Job(_) => "job",
    };
    Ok(vec![
        (named, intent.job.to_string()),
        ("pays", pays),
        ("coin", format!("{coin}; {by}")),
        ("to", payment.to.to_string()),
        ("chain", format!("{} ({})", intent.chain, intent.network)),
        ("from the group", intent.group.to_string()),
        ("costs at most", fee),
        ("until", intent.expires.to_string()),
        ("transactions", intent.builds.to_string()),
        ("asked for by", intent.requester.to_string()),
        ("round", intent.round.to_string()),
        ("signer", intent.signer.to_string()),
        ("digest", signer::digest::hex(&intent.digest())),
    ])
}

/// The coins of the treasury file, which nobody but its owner may write.
pub(super) fn pinned_coins(context: &Context) -> Result<Option<Catalog>, Failure> {
    let file = &context.config.treasury.file;
    if file.is_empty() {
        return Ok(None);
    }
    let text = read_pinned(Path::new(file))?;
    Ok(Some(treasury::parse(&text, file, &Catalog::default())?.catalog))
}

pub(super) fn coin_of(catalog: &Catalog, intent: &Intent, coin: &str) -> Option<(String, u8)> {
    let mut listings = catalog.listings.values().filter(|listing| listing.chain == intent.chain);
    let listing = listings.find(|listing| match listing.form.contract() {
        None => coin == "native",
        // Digits of an EVM address may be written in capitals.
        Some(contract) if contract.starts_with("0x") => contract.eq_ignore_ascii_case(coin),
        Some(contract) => contract == coin,
    })?;
    Some((listing.asset.to_string(), listing.form.decimals()))
}

/// The words stand where the question is asked, wherever output is sent: else people say yes to what they have not seen.
fn confirm(words: &str) -> CommandResult {
    let no_terminal = |error: std::io::Error| {
        Failure::outside("APPROVAL_DECLINED", &error, "there is nobody to ask here: read it first, then say --yes")
    };
    let mut prompt = Prompt::open().map_err(no_terminal)?;
    let answer = prompt.show(&format!("{words}\n")).and_then(|()| prompt.asked("Sign this? Type yes: "));
    let answer = answer.map_err(no_terminal)?;
    if answer.trim() == "yes" {
        return Ok(());
    }
    Err(Failure::bad_input("APPROVAL_DECLINED", "nothing was signed", "type yes, if this is what you want"))
}

fn shown(id: WithdrawalId, answer: &Value) -> String {
    let number = |name: &str| answer[name].as_u64().unwrap_or_default();
    let again = if answer["again"] == json!(true) { "you had signed it before; " } else { "" };
    format!(
        "{again}{id} is {}: {} of {} people agree",
        plain(answer["state"].as_str().unwrap_or("unknown")),
        number("agree"),
        number("wanted")
    )
}

fn failed(error: OperatorClientError) -> Failure {
    match error {
        OperatorClientError::Url | OperatorClientError::Token => {
            Failure::bad_input("BAD_USAGE", error.to_string(), "bursar approve --help")
        }
        OperatorClientError::NoAnswer => {
            let hint = "send the same again: a signature that is there counts once";
            Failure::outside("SERVER_UNREACHABLE", &error, hint)
        }
        OperatorClientError::Answer(_) => {
            Failure::outside("SERVER_ANSWER_WRONG", &error, "is --server a Bursar of this version?")
        }
        OperatorClientError::Refused { code, message, .. } => Failure {
            code: plain(&code).into(),
            messages: vec![plain(&message)],
            hint: "the page of the code says what to do".to_owned(),
            exit: terminal::failure::Exit::BadInput,
        },
    }
}
