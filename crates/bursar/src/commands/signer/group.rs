//! `bursar signer group`: wallet groups.

use serde_json::json;
use terminal::failure::CommandResult;
use terminal::output::{say, table};

use super::mnemonic::Made;
use super::passphrase::Given;
use super::vault::VaultFile;
use super::{Folder, NewGroup, failed, keep, listed, shown};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Add a group with a mnemonic of its own
    Add(AddArguments),
    /// Take over a group whose secret another hand has put into the Vault
    Adopt(AdoptArguments),
    /// List the groups, without a secret
    List(ListArguments),
}

#[derive(Debug, clap::Args)]
pub struct AddArguments {
    #[command(flatten)]
    group: NewGroup,
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    passphrase: Given,
    #[command(flatten)]
    made: Made,
}

#[derive(Debug, clap::Args)]
pub struct AdoptArguments {
    /// The group's name, which is the secret's
    id: String,
    #[command(flatten)]
    folder: Folder,
}

#[derive(Debug, clap::Args)]
pub struct ListArguments {
    #[command(flatten)]
    folder: Folder,
}

pub async fn run(command: &Command, json: bool) -> CommandResult {
    match command {
        Command::Add(arguments) => add(arguments, json).await,
        Command::Adopt(arguments) => adopt(arguments, json).await,
        Command::List(arguments) => list(arguments, json),
    }
}

async fn add(arguments: &AddArguments, json: bool) -> CommandResult {
    let group = arguments.group.read()?;
    // A name that is taken, or a folder that is not there, is told before a mnemonic is written down.
    if listed(arguments.folder.path())?.iter().any(|old| old.id == group.id) {
        return Err(failed(signer::keys::KeyError::GroupExists(group.id)));
    }
    let mnemonic = arguments.made.make(&group.id)?;
    keep(&arguments.folder, &arguments.passphrase, group.with(mnemonic), json).await
}

async fn adopt(arguments: &AdoptArguments, json: bool) -> CommandResult {
    let (folder, id) = (arguments.folder.path(), super::name(&arguments.id)?);
    let vault = VaultFile::in_folder(folder)?.vault(folder)?;
    let group = vault.adopt(&id).await.map_err(failed)?;
    super::print(&group, json).map_err(failed)
}

fn list(arguments: &ListArguments, json: bool) -> CommandResult {
    let groups = listed(arguments.folder.path())?;
    let bodies = groups.iter().map(shown).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    if json {
        say(json!({ "groups": bodies }));
    } else if bodies.is_empty() {
        say("no wallet groups");
    } else {
        let fields = ["id", "purpose", "chain", "path", "address_0"];
        let row = |body: &serde_json::Value| {
            fields.iter().map(|field| body[field].as_str().unwrap_or_default().to_owned()).collect()
        };
        say(table(
            &["group", "purpose", "chain", "path", "address 0"],
            &[],
            &bodies.iter().map(row).collect::<Vec<_>>(),
        ));
    }
    Ok(())
}
