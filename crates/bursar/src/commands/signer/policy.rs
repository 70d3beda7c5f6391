//! `bursar signer policy …`: what the signer may sign. A policy is a file; its signatures are lines in a second file beside
//! it, `<file>.sig`.

use std::fs;
use std::path::{Path, PathBuf};

use domain::{Clock, Timestamp};
use serde_json::json;
use signer::log::folder::DiskFolder;
use signer::log::{LogError, walk};
use signer::names::Person;
use signer::policy::Policy;
use signer::policy::file::parse;
use signer::policy::signed::{Policies, PolicyError, PolicySignature, SigningKey, read_signatures};
use signer::policy::simulate::Simulation;
use signer::policy::tighter::loosened;
use signer::state::State;
use signer::{Authorizer, Moment, authorizer::ApplyError};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::{say, table};

use super::asking::{Asking, ask_failed};
use super::log::{LogFolder, log_failed, pinned};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Add an administrator's signature of the file's exact bytes to the file beside it
    Sign(SignArguments),
    /// Check a policy and its signatures, and say from when it would hold
    Check(FileArguments),
    /// What a policy allows that the one in force does not
    Diff(FileArguments),
    /// Put a policy in force: at once if it is tighter, else after the cooling-off time
    Apply(ApplyArguments),
    /// What would have been decided otherwise, had the policy been in force from the beginning of the log
    Simulate(FileArguments),
}

#[derive(Debug, clap::Args)]
pub struct SignArguments {
    /// The policy
    file: PathBuf,
    /// The administrator's name in the policy
    #[arg(long = "as", value_name = "NAME")]
    person: String,
    /// The administrator's Ed25519 key, as `openssl genpkey -algorithm ed25519` makes it
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct FileArguments {
    /// The policy
    file: PathBuf,
    #[command(flatten)]
    folder: LogFolder,
}

#[derive(Debug, clap::Args)]
pub struct ApplyArguments {
    #[command(flatten)]
    file: FileArguments,
    /// The newest head of the log that you know: the number of its entry, a colon, its hash. A log without it is not touched
    #[arg(long, value_name = "ENTRY:HASH")]
    pinned: Option<String>,
    /// With --credential the policy is sent to a running signer; without it the signer must be stopped
    #[command(flatten)]
    asking: Asking,
}

pub async fn run(command: &Command, json: bool) -> CommandResult {
    match command {
        Command::Sign(arguments) => sign(arguments, json),
        Command::Check(arguments) => check(arguments, json),
        Command::Diff(arguments) => diff(arguments, json),
        Command::Apply(arguments) if arguments.asking.credential.is_some() => send(arguments, json).await,
        Command::Apply(arguments) => apply(arguments, json),
        Command::Simulate(arguments) => simulate(arguments, json),
    }
}

fn policy_failed(error: &PolicyError) -> Failure {
    let hint = match error {
        PolicyError::OtherSigner(_) => "each signer has policies of its own, with its own name in each",
        PolicyError::Bad(_) => "correct the file, and have it signed again",
        PolicyError::Stranger(_) | PolicyError::BadSignature(_) | PolicyError::SignaturesMissing { .. } => {
            "administrators of the policy in force sign the very bytes: bursar signer policy sign"
        }
        PolicyError::OldVersion { .. } | PolicyError::OtherContent => {
            "give the file the next version, and have it signed again"
        }
    };
    Failure::bad_input(error.code(), error.to_string(), hint)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| {
        let name = path.display();
        Failure { exit: Exit::BadInput, ..Failure::outside("FILE_NOT_READABLE", &error, format!("is {name} there?")) }
    })
}

fn read_policy(path: &Path) -> Result<(Vec<u8>, Policy), Failure> {
    let bytes = read(path)?;
    let policy = parse(&bytes).map_err(|error| policy_failed(&error.into()))?;
    Ok((bytes, policy))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

/// None if the file is not there.
fn signatures(path: &Path) -> Result<Vec<PolicySignature>, Failure> {
    let path = beside(path);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = String::from_utf8_lossy(&read(&path)?).into_owned();
    read_signatures(&text).map_err(|error| policy_failed(&error.into()))
}

fn sign(arguments: &SignArguments, json: bool) -> CommandResult {
    let (bytes, policy) = read_policy(&arguments.file)?;
    let bad_key = || {
        let hint = "make one with: openssl genpkey -algorithm ed25519 -out KEY";
        Failure::bad_input("SIGNER_POLICY_UNSIGNED", "the key is not an Ed25519 key in PKCS#8", hint)
    };
    let key = SigningKey::read(&read(&arguments.key)?).ok_or_else(bad_key)?;
    let hint = "a name is small letters, digits, -, _ and .";
    let bad_name =
        |error: signer::names::BadName| Failure::bad_input("SIGNER_POLICY_UNSIGNED", error.to_string(), hint);
    let person: Person = arguments.person.parse().map_err(bad_name)?;
    let mut signatures = signatures(&arguments.file)?;
    signatures.retain(|one| one.by != person);
    signatures.push(PolicySignature { by: person.clone(), signature: key.sign_policy(&bytes) });
    let hex = signer::digest::hex;
    let lines: String = signatures.iter().map(|one| format!("{} {}\n", one.by, hex(&one.signature))).collect();
    let path = beside(&arguments.file);
    fs::write(&path, lines).map_err(|error| {
        Failure::outside("FILE_NOT_WRITABLE", &error, format!("may {} be written?", path.display()))
    })?;
    let public = hex(&key.public());
    if json {
        let by: Vec<String> = signatures.iter().map(|one| one.by.to_string()).collect();
        say(json!({ "version": policy.version, "sha256": hex(&policy.hash), "signed_by": by, "public_key": public }));
    } else {
        say(format!("{person} signed version {} with the key {public}: {}", policy.version, path.display()));
    }
    Ok(())
}

/// The state that the log comes to, read without changing anything.
fn state(folder: &LogFolder) -> Result<State, Failure> {
    let mut state = State::default();
    let mut bad = None;
    if folder.path().exists() {
        walk(&DiskFolder::for_reading(&folder.path()), |_, entry| {
            if let Err(error) = state.apply(entry) {
                bad.get_or_insert(error);
            }
        })
        .map_err(|error| log_failed(&error))?;
    }
    bad.map_or(Ok(state), |error| Err(log_failed(&LogError::from(error))))
}

fn now() -> Timestamp {
    SystemClock.now()
}

fn check(arguments: &FileArguments, json: bool) -> CommandResult {
    let (bytes, policy) = read_policy(&arguments.file)?;
    let policies: Policies = state(&arguments.folder)?.policies;
    let accepted =
        policies.check(&bytes, &signatures(&arguments.file)?, now()).map_err(|error| policy_failed(&error))?;
    let effective = accepted.map(|accepted| accepted.effective);
    tell(&policy, effective, json, "would hold");
    Ok(())
}

fn tell(policy: &Policy, effective: Option<Timestamp>, json: bool, holds: &str) {
    let version = policy.version;
    let hash = signer::digest::hex(&policy.hash);
    if json {
        say(
            json!({ "version": version, "sha256": hash, "in_force": effective.is_none(), "effective": effective.map(|at| at.to_string()) }),
        );
    } else if let Some(at) = effective {
        say(format!("version {version} {holds} from {at}"));
    } else {
        say(format!("version {version} is in force already"));
    }
}

fn diff(arguments: &FileArguments, json: bool) -> CommandResult {
    let (_, policy) = read_policy(&arguments.file)?;
    let policies = state(&arguments.folder)?.policies;
    let (version, looser) = match policies.at(now()) {
        Some(current) => (current.version, loosened(current, &policy)),
        None => (0, vec!["there is no policy in force".to_owned()]),
    };
    if json {
        say(json!({ "in_force": version, "version": policy.version, "looser": looser }));
    } else if looser.is_empty() {
        say(format!("version {} allows nothing that version {version} does not: it holds at once", policy.version));
    } else {
        let lines: String = looser.iter().map(|line| format!("\n  {line}")).collect();
        say(format!("version {} is looser than version {version}:{lines}", policy.version));
    }
    Ok(())
}

/// To a running signer, with the key of an administrator's program.
async fn send(arguments: &ApplyArguments, json: bool) -> CommandResult {
    let (bytes, policy) = read_policy(&arguments.file.file)?;
    let client = arguments.asking.client(arguments.pinned.as_deref())?;
    let text = String::from_utf8_lossy(&bytes);
    let taken = client.apply_policy(&text, &signatures(&arguments.file.file)?).await;
    let taken = taken.map_err(|error| ask_failed(&error))?;
    let waiting = taken.waiting.filter(|waiting| waiting.version == policy.version);
    tell(&policy, waiting.map(|waiting| Timestamp::from_micros(waiting.effective)), json, "holds");
    Ok(())
}

fn apply(ApplyArguments { file: arguments, pinned: known, .. }: &ApplyArguments, json: bool) -> CommandResult {
    let (bytes, policy) = read_policy(&arguments.file)?;
    let known = known.as_deref().map(pinned).transpose()?;
    let disk = arguments.folder.exclusive()?;
    let moment = Moment { date: now(), uptime_us: 0 };
    let mut authorizer = Authorizer::open(disk, known, moment).map_err(|error| log_failed(&error))?;
    let accepted =
        authorizer.apply_policy(&bytes, &signatures(&arguments.file)?, moment).map_err(|error| match error {
            ApplyError::Policy(error) => policy_failed(&error),
            ApplyError::Log(error) => log_failed(&error),
            ApplyError::Clock => log_failed(&LogError::ClockBack),
        })?;
    tell(&policy, accepted.map(|accepted| accepted.effective), json, "holds");
    Ok(())
}

fn simulate(arguments: &FileArguments, json: bool) -> CommandResult {
    let (_, policy) = read_policy(&arguments.file)?;
    let mut simulation = Simulation::new(&policy);
    let disk = DiskFolder::for_reading(&arguments.folder.path());
    walk(&disk, |number, entry| simulation.take(number, entry)).map_err(|error| log_failed(&error))?;
    let (asked, differences) = (simulation.asked, &simulation.differences);
    if json {
        let rows: Vec<_> = differences
            .iter()
            .map(|one| {
                json!({
                    "entry": one.entry, "at": one.at.to_string(), "request": one.request.as_str(), "was": one.was,
                    "was_rule": one.was_rule, "would": one.would, "would_rule": one.would_rule,
                })
            })
            .collect();
        say(json!({ "asked": asked, "differences": rows }));
        return Ok(());
    }
    if !differences.is_empty() {
        let row = |one: &signer::policy::simulate::Difference| {
            vec![
                one.entry.to_string(),
                one.at.to_string(),
                one.request.to_string(),
                format!("{} ({})", one.was, one.was_rule),
                format!("{} ({})", one.would, one.would_rule),
            ]
        };
        let rows: Vec<Vec<String>> = differences.iter().map(row).collect();
        say(table(&["entry", "at", "request", "was", "would be"], &[0], &rows));
    }
    say(format!("{} of {asked} decisions would have been others", differences.len()));
    Ok(())
}
