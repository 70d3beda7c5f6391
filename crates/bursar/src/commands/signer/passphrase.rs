//! Where a passphrase comes from: a file, a systemd credential, or the terminal. Never an argument, which every process on the
//! machine can read, nor a variable, which children inherit.

use std::path::{Path, PathBuf};

use signer::keys::Passphrase;
use terminal::failure::Failure;
use terminal::files::read_secret;
use terminal::prompt::Prompt;
use zeroize::Zeroizing;

use super::failed;

/// The name of the credential: `LoadCredentialEncrypted=signer-passphrase` in the unit.
const CREDENTIAL: &str = "signer-passphrase";

#[derive(Debug, clap::Args)]
pub struct Given {
    /// The file with the keystore's passphrase [default: the systemd credential signer-passphrase, or else the terminal]
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl Given {
    /// Of a keystore that exists.
    pub fn read(&self) -> Result<Passphrase, Failure> {
        self.read_or_ask(|prompt| prompt.hidden("passphrase: "))
    }

    /// Of a keystore that is made now: typed twice.
    pub fn choose(&self) -> Result<Passphrase, Failure> {
        self.read_or_ask(|prompt| twice(prompt, "new passphrase: "))
    }

    fn read_or_ask(
        &self,
        ask: impl FnOnce(&mut Prompt) -> std::io::Result<Zeroizing<String>>,
    ) -> Result<Passphrase, Failure> {
        let credential = std::env::var_os("CREDENTIALS_DIRECTORY").map(|folder| Path::new(&folder).join(CREDENTIAL));
        match (&self.passphrase_file, credential.filter(|file| file.exists())) {
            (Some(file), _) => from_file(file),
            (None, Some(file)) => from_file(&file),
            (None, None) => typed(ask),
        }
    }
}

pub fn from_file(file: &Path) -> Result<Passphrase, Failure> {
    let bytes = Zeroizing::new(read_secret(file)?);
    Passphrase::new(bytes).map_err(failed)
}

pub fn typed(ask: impl FnOnce(&mut Prompt) -> std::io::Result<Zeroizing<String>>) -> Result<Passphrase, Failure> {
    let mut prompt =
        prompt("name the passphrase's file with --passphrase-file, or give the systemd credential signer-passphrase")?;
    let text = ask(&mut prompt).map_err(|error| not_typed(&error))?;
    Passphrase::new(Zeroizing::new(text.as_bytes().to_vec())).map_err(failed)
}

/// Both lines the same, or an error.
pub fn twice(prompt: &mut Prompt, question: &str) -> std::io::Result<Zeroizing<String>> {
    let first = prompt.hidden(question)?;
    let second = prompt.hidden("once more: ")?;
    if *first == *second { Ok(first) } else { Err(std::io::Error::other("the two are not the same")) }
}

pub fn prompt(hint: &str) -> Result<Prompt, Failure> {
    Prompt::open().map_err(|_| Failure::bad_input("SIGNER_NO_TERMINAL", "there is no terminal to ask at", hint))
}

pub fn not_typed(error: &std::io::Error) -> Failure {
    Failure::bad_input("SIGNER_NO_TERMINAL", format!("nothing was typed that can be used: {error}"), "try again")
}
