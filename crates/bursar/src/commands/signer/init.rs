//! `bursar signer init`: a folder with an encrypted keystore, or with the address of a Vault.

use serde_json::json;
use signer::keys::{GroupSecret, Source};
use terminal::failure::{CommandResult, Failure};
use terminal::output::say;

use super::mnemonic::Made;
use super::passphrase::Given;
use super::vault::Place;
use super::{Described, Folder, failed, keystore, listed, shown};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    passphrase: Given,
    /// A group to begin with, any number of times: ID:PURPOSE:CHAIN or ID:PURPOSE:CHAIN:ACCOUNT
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    made: Made,
    #[command(flatten)]
    place: Place,
}

pub async fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let described = arguments.groups.iter().map(|text| described(text)).collect::<Result<Vec<_>, _>>()?;
    let folder = arguments.folder.path();
    let made = match arguments.place.read()? {
        None => {
            let keystore = keystore(folder, arguments.passphrase.choose()?);
            keystore.create(secrets(arguments, described)?).map_err(failed)?;
            "an encrypted keystore; keep a copy of it and of its passphrase, apart from each other"
        }
        Some(file) => {
            let vault = file.vault(folder)?;
            vault.create(&file.text()?).await.map_err(failed)?;
            for secret in secrets(arguments, described)? {
                vault.add(secret).await.map_err(failed)?;
            }
            "a signer whose mnemonics are in a Vault; the groups' public keys are pinned here"
        }
    };
    let groups = listed(folder)?;
    if json {
        let groups = groups.iter().map(shown).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        say(json!({ "folder": folder.display().to_string(), "groups": groups }));
        return Ok(());
    }
    say(format!("{}: {made}", folder.display()));
    groups.iter().try_for_each(|group| super::print(group, false)).map_err(failed)
}

fn secrets(arguments: &Arguments, described: Vec<Described>) -> Result<Vec<GroupSecret>, Failure> {
    let with = |one: Described| {
        let mnemonic = arguments.made.make(&one.id)?;
        Ok(one.with(mnemonic))
    };
    described.into_iter().map(with).collect()
}

fn described(text: &str) -> Result<Described, Failure> {
    let parts: Vec<&str> = text.split(':').collect();
    let (id, purpose, chain, account) = match parts[..] {
        [id, purpose, chain] => (id, purpose, chain, Some(0)),
        [id, purpose, chain, account] => (id, purpose, chain, account.parse().ok()),
        _ => ("", "", "", None),
    };
    let account = account.ok_or_else(|| failed(signer::keys::KeyError::BadGroup("description (ID:PURPOSE:CHAIN)")))?;
    Described::read(id, purpose, chain, account)
}
