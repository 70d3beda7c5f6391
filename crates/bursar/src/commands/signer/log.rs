//! `bursar signer log …`: what was decided. Nothing here changes the log; the signer may run meanwhile.

use std::path::{Path, PathBuf};

use serde_json::json;
use signer::log::entry::Entry;
use signer::log::folder::DiskFolder;
use signer::log::{Head, LogError, walk};
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::{say, table, thousands};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Read the whole chain from its first entry, and give its head
    Verify(VerifyArguments),
    /// The newest decisions, each with policy and rule
    Show(ShowArguments),
    /// Every entry as a line of JSON
    Export(LogFolder),
}

/// Where the signer is.
#[derive(Debug, clap::Args)]
pub struct LogFolder {
    /// The signer's own folder
    #[arg(long, value_name = "FOLDER", default_value = "bursar-signer")]
    folder: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct VerifyArguments {
    #[command(flatten)]
    folder: LogFolder,
    /// A head that was answered: the number of its entry, a colon, its hash
    #[arg(long, value_name = "ENTRY:HASH")]
    pinned: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct ShowArguments {
    #[command(flatten)]
    folder: LogFolder,
    /// How many
    #[arg(long, default_value_t = 20)]
    last: usize,
}

impl LogFolder {
    /// Of a signer's folder.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The log has a folder of its own in the signer's.
    pub fn path(&self) -> PathBuf {
        self.folder.join("log")
    }

    pub fn exclusive(&self) -> Result<DiskFolder, Failure> {
        let path = self.path();
        let refused = |source| LogError::Storage { what: "open", file: path.display().to_string(), source };
        let hint = "stop the signer first: it alone writes to its log";
        DiskFolder::exclusive(&path).map_err(|source| log_failed(&refused(source)))?.ok_or_else(|| Failure {
            exit: Exit::Outside,
            ..Failure::bad_input("SIGNER_LOG_UNWRITABLE", "another process has the log", hint)
        })
    }

    fn for_reading(&self) -> DiskFolder {
        DiskFolder::for_reading(&self.path())
    }
}

pub fn log_failed(error: &LogError) -> Failure {
    let (exit, hint) = match error {
        LogError::Damaged { .. } | LogError::Policy(_) => {
            (Exit::Found, "keep a copy of the folder, and change nothing in it")
        }
        LogError::RolledBack { .. } | LogError::Diverged { .. } => {
            (Exit::Found, "this is not the newest copy of the folder")
        }
        LogError::ClockBack => (Exit::Outside, "correct the machine's clock"),
        LogError::Storage { .. } | LogError::Stopped | LogError::TooLong => {
            (Exit::Outside, "is the disk full, or the folder another one?")
        }
    };
    Failure { exit, ..Failure::outside(error.code(), error, hint) }
}

pub fn run(command: &Command, json: bool) -> CommandResult {
    match command {
        Command::Verify(arguments) => verify(arguments, json),
        Command::Show(arguments) => show(arguments, json),
        Command::Export(folder) => export(folder),
    }
}

pub fn pinned(text: &str) -> Result<Head, Failure> {
    let read = || {
        let (entries, hash) = text.split_once(':')?;
        Some(Head { entries: entries.parse().ok()?, hash: hash.parse().ok()? })
    };
    let hint = "the number of an entry, a colon, and 64 hexadecimal digits";
    read().ok_or_else(|| Failure::bad_input("BAD_USAGE", format!("{text:?} is no head of a log"), hint))
}

fn verify(arguments: &VerifyArguments, json: bool) -> CommandResult {
    let pinned = arguments.pinned.as_deref().map(pinned).transpose()?;
    let (mut approved, mut refused, mut others) = (0_u64, 0_u64, 0_u64);
    let (mut at_pin, mut heads) = (None, Vec::new());
    let head = signer::log::walk_frames(
        &arguments.folder.for_reading(),
        |head| {
            if pinned.is_some_and(|pinned| pinned.entries == head.entries) {
                at_pin = Some(*head);
            }
            heads.push(head.entries);
        },
        |_, entry| match entry {
            Entry::Approved { .. } => approved += 1,
            Entry::Refused { .. } => refused += 1,
            Entry::Policy { .. } | Entry::Revoked { .. } => others += 1,
        },
    )
    .map_err(|error| log_failed(&error))?;
    if let Some(pinned) = pinned
        && at_pin != Some(pinned)
    {
        let missing = pinned.entries > head.entries;
        let error = if missing {
            LogError::RolledBack { pinned: pinned.entries }
        } else {
            LogError::Diverged { pinned: pinned.entries }
        };
        return Err(log_failed(&error));
    }
    if json {
        say(json!({
            "sound": true, "entries": head.entries, "hash": head.hash.to_string(), "batches": heads.len(),
            "approved": approved, "refused": refused, "others": others,
        }));
    } else {
        let (all, approved, refused) = (thousands(head.entries), thousands(approved), thousands(refused));
        say(format!(
            "sound: {all} entries, {approved} approved, {refused} refused\nhead {}:{}",
            head.entries, head.hash
        ));
    }
    Ok(())
}

fn show(arguments: &ShowArguments, json: bool) -> CommandResult {
    let mut rows = std::collections::VecDeque::new();
    walk(&arguments.folder.for_reading(), |number, entry| {
        if rows.len() == arguments.last {
            rows.pop_front();
        }
        if arguments.last > 0 {
            rows.push_back((number, entry.clone()));
        }
    })
    .map_err(|error| log_failed(&error))?;
    if json {
        say(json!(rows.iter().map(|(number, entry)| json!({ "number": number, "entry": entry })).collect::<Vec<_>>()));
        return Ok(());
    }
    let rows: Vec<Vec<String>> = rows.iter().map(|(number, entry)| row(*number, entry)).collect();
    say(table(&["entry", "at", "what", "request", "jobs", "policy", "rule"], &[0, 5], &rows));
    Ok(())
}

fn row(number: u64, entry: &Entry) -> Vec<String> {
    let mut cells = vec![number.to_string(), entry.at().to_string()];
    match entry {
        Entry::Approved { decision, .. } | Entry::Refused { decision, .. } => {
            let what = if let Entry::Refused { code, .. } = entry { code.clone() } else { "approved".to_owned() };
            let jobs: Vec<String> = decision.intents.iter().map(|intent| intent.job.to_string()).collect();
            let jobs = jobs.join(" ");
            cells.extend([
                what,
                decision.request.to_string(),
                jobs,
                decision.policy.to_string(),
                decision.rule.clone(),
            ]);
        }
        Entry::Policy { signed_by, .. } => {
            let names: Vec<&str> = signed_by.iter().map(|name| name.as_str()).collect();
            cells.extend(["policy".to_owned(), String::new(), String::new(), String::new(), names.join(" ")]);
        }
        Entry::Revoked { person, .. } => {
            cells.extend(["revoked".to_owned(), String::new(), String::new(), String::new(), person.to_string()]);
        }
    }
    cells
}

fn export(folder: &LogFolder) -> CommandResult {
    walk(&folder.for_reading(), |number, entry| say(json!({ "number": number, "entry": entry })))
        .map(|_| ())
        .map_err(|error| log_failed(&error))
}
