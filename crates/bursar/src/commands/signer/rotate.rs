//! `bursar signer rotate-passphrase`: the same keys under another passphrase. `rotate-secret-id`: another way into the Vault.

use std::path::PathBuf;

use serde_json::json;
use signer::keys::keystore::NAME;
use terminal::failure::CommandResult;
use terminal::output::say;

use super::passphrase::{self, Given};
use super::vault::VaultFile;
use super::{Folder, failed, keystore};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    passphrase: Given,
    /// The file with the new passphrase [default: the terminal]
    #[arg(long, value_name = "FILE")]
    new_passphrase_file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let keystore = keystore(arguments.folder.path(), arguments.passphrase.read()?);
    let new = match &arguments.new_passphrase_file {
        Some(file) => passphrase::from_file(file)?,
        None => passphrase::typed(|prompt| passphrase::twice(prompt, "new passphrase: "))?,
    };
    keystore.change_passphrase(&new).map_err(failed)?;
    let file = arguments.folder.path().join(NAME).display().to_string();
    if json {
        say(json!({ "keystore": file }));
    } else {
        say(format!("{file}: encrypted anew; copies made before still open with the old passphrase"));
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
pub struct SecretIdArguments {
    #[command(flatten)]
    folder: Folder,
}

pub async fn secret_id(arguments: &SecretIdArguments, json: bool) -> CommandResult {
    let folder = arguments.folder.path();
    let vault = VaultFile::in_folder(folder)?.vault(folder)?;
    vault.renew_secret_id().await.map_err(failed)?;
    if json {
        say(json!({ "renewed": true }));
    } else {
        say("a new secret id is in its file, and the old one is destroyed");
    }
    Ok(())
}
