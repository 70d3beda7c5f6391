//! `bursar signer import`: a mnemonic that exists already becomes a group.

use std::path::PathBuf;

use signer::keys::Mnemonic;
use terminal::failure::{CommandResult, Failure};
use terminal::files::read_secret;
use zeroize::Zeroizing;

use super::passphrase::{self, Given};
use super::{Folder, NewGroup, failed, keep};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    group: NewGroup,
    /// The file with the words, which only its owner may read [default: the terminal]
    #[arg(long, value_name = "FILE")]
    mnemonic_file: Option<PathBuf>,
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    passphrase: Given,
}

pub async fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let group = arguments.group.read()?;
    let mnemonic = read(arguments)?;
    keep(&arguments.folder, &arguments.passphrase, group.with(mnemonic), json).await
}

fn read(arguments: &Arguments) -> Result<Mnemonic, Failure> {
    let words = match &arguments.mnemonic_file {
        Some(file) => {
            let bytes = Zeroizing::new(read_secret(file)?);
            let text = std::str::from_utf8(&bytes);
            Zeroizing::new(
                text.map_err(|_| failed(signer::keys::KeyError::BadMnemonic("it is not a text")))?.to_owned(),
            )
        }
        None => {
            let mut prompt = passphrase::prompt("name the file with the words: --mnemonic-file")?;
            prompt.hidden("mnemonic: ").map_err(|error| passphrase::not_typed(&error))?
        }
    };
    Mnemonic::parse(&words).map_err(failed)
}
