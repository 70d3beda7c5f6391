//! `bursar signer key …`: who may ask a running signer, and for what.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use signer::access::{AccessError, ApiKey, ApiKeys, Credential, KeySecret, Rights};
use signer::names::KeyName;
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, table};

use super::{Folder, System, failed, listed, name};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a key, and a file with its secret for its holder; the signer takes it up at its next start, or by SIGHUP
    Add(AddArguments),
    /// List the keys and what each may do, without a secret
    List(ListArguments),
    /// Take a key away; a running signer is told by SIGHUP
    Remove(RemoveArguments),
}

#[derive(Debug, clap::Args)]
pub struct AddArguments {
    /// The key's name
    id: String,
    /// May have transactions signed for these groups, as far as the policy allows: names with commas between them
    #[arg(long, value_name = "GROUPS", value_delimiter = ',')]
    sign: Vec<String>,
    /// May ask for addresses and groups
    #[arg(long)]
    derive: bool,
    /// May ask for groups and the policy's version
    #[arg(long)]
    read: bool,
    /// May send signed policies and people's revocations
    #[arg(long)]
    administer: bool,
    /// The new file with the key's name and secret, for its holder
    #[arg(long, value_name = "FILE")]
    credential: PathBuf,
    #[command(flatten)]
    folder: Folder,
}

#[derive(Debug, clap::Args)]
pub struct ListArguments {
    #[command(flatten)]
    folder: Folder,
}

#[derive(Debug, clap::Args)]
pub struct RemoveArguments {
    /// The key's name
    id: String,
    #[command(flatten)]
    folder: Folder,
}

pub fn run(command: &Command, json: bool) -> CommandResult {
    match command {
        Command::Add(arguments) => add(arguments, json),
        Command::List(arguments) => list(arguments, json),
        Command::Remove(arguments) => remove(arguments, json),
    }
}

pub fn access_failed(error: &AccessError) -> Failure {
    match error {
        AccessError::File(error) => Failure::outside(error.code(), error, error.hint()),
        AccessError::NoRights => {
            Failure::bad_input(error.code(), error.to_string(), "give it --sign, --derive, --read or --administer")
        }
        AccessError::Bad(_) | AccessError::Exists(_) | AccessError::Unknown(_) => {
            Failure::bad_input(error.code(), error.to_string(), "bursar signer key list shows the keys")
        }
    }
}

fn key_name(text: &str) -> Result<KeyName, Failure> {
    let bad = |error: signer::BadName| {
        Failure::bad_input("SIGNER_API_KEYS_INVALID", error.to_string(), "a name is small letters, digits, -, _ and .")
    };
    text.parse().map_err(bad)
}

fn add(arguments: &AddArguments, json: bool) -> CommandResult {
    let folder = arguments.folder.path();
    let key = key_name(&arguments.id)?;
    let sign = arguments.sign.iter().map(|text| name(text)).collect::<Result<BTreeSet<_>, _>>()?;
    let groups = listed(folder)?;
    if let Some(unknown) = sign.iter().find(|id| !groups.iter().any(|group| group.id == **id)) {
        return Err(failed(signer::keys::KeyError::GroupUnknown(unknown.clone())));
    }
    let rights = Rights { sign, derive: arguments.derive, read: arguments.read, administer: arguments.administer };
    if rights.are_none() {
        return Err(access_failed(&AccessError::NoRights));
    }
    let secret = KeySecret::make(&System)
        .map_err(|error| Failure::outside("INTERNAL", &error, "the system gives no random bytes"))?;
    let credential = Credential { key: key.clone(), secret: secret.clone() };
    write_new(&arguments.credential, credential.text().as_bytes())?;
    let made = ApiKeys::change(folder, |keys| keys.add(key.clone(), ApiKey { secret, rights: rights.clone() }));
    if let Err(error) = made {
        // Its secret opens nothing.
        std::fs::remove_file(&arguments.credential).ok();
        return Err(access_failed(&error));
    }
    let file = arguments.credential.display().to_string();
    if json {
        say(json!({ "id": key.as_str(), "rights": words(&rights), "credential": file }));
    } else {
        say(format!(
            "key {key}: {}\n{file} is for its holder; a running signer takes it up by SIGHUP",
            words(&rights).join(", ")
        ));
    }
    Ok(())
}

/// A file that was not there, for its owner alone.
fn write_new(path: &Path, bytes: &[u8]) -> CommandResult {
    let written = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    written().map_err(|error| {
        let hint = format!("{} must be a file that is not there yet", path.display());
        Failure::outside("FILE_NOT_WRITABLE", &error, hint)
    })
}

fn words(rights: &Rights) -> Vec<String> {
    let signs = rights.sign.iter().map(|group| format!("sign {group}"));
    let others = [(rights.derive, "derive"), (rights.read, "read"), (rights.administer, "administer")];
    signs.chain(others.into_iter().filter(|(has, _)| *has).map(|(_, word)| word.to_owned())).collect()
}

fn list(arguments: &ListArguments, json: bool) -> CommandResult {
    let keys = ApiKeys::in_folder(arguments.folder.path()).map_err(|error| access_failed(&error))?;
    if json {
        let shown = |(id, key): (&KeyName, &ApiKey)| json!({ "id": id.as_str(), "rights": words(&key.rights) });
        say(json!({ "keys": keys.iter().map(shown).collect::<Vec<_>>() }));
    } else if keys.is_empty() {
        say("no API keys");
    } else {
        let row = |(id, key): (&KeyName, &ApiKey)| vec![id.to_string(), words(&key.rights).join(", ")];
        say(table(&["key", "may"], &[], &keys.iter().map(row).collect::<Vec<_>>()));
    }
    Ok(())
}

fn remove(arguments: &RemoveArguments, json: bool) -> CommandResult {
    let key = key_name(&arguments.id)?;
    ApiKeys::change(arguments.folder.path(), |keys| keys.remove(&key)).map_err(|error| access_failed(&error))?;
    if json {
        say(json!({ "id": key.as_str(), "removed": true }));
    } else {
        say(format!("key {key} is taken away; a running signer is told by SIGHUP"));
    }
    Ok(())
}
