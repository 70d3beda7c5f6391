//! `bursar signer …`: wallet groups and their keys, the policy, the log, and the service. Nothing here asks a database or a node.

pub mod asking;
pub mod group;
pub mod import;
pub mod init;
pub mod key;
pub mod log;
pub mod mnemonic;
pub mod passphrase;
pub mod policy;
pub mod rotate;
pub mod serve;
pub mod sign;
pub mod vault;
pub mod xpub;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use signer::GroupId;
use signer::keys::vault::SETTINGS;
use signer::keys::{
    AddressPath, Cost, Entropy, Family, Group, GroupSecret, KeyError, Keystore, Purpose, Source, Vault, VaultError,
    family_of, purpose_of,
};
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::say;

use vault::VaultFile;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a signer's folder, with an encrypted keystore or the address of a Vault, and groups if some are named
    Init(init::Arguments),
    /// Wallet groups: add one with a new mnemonic, or list them
    #[command(subcommand)]
    Group(group::Command),
    /// Take over a mnemonic that exists already as a new group
    Import(import::Arguments),
    /// Encrypt the keystore with another passphrase
    RotatePassphrase(rotate::Arguments),
    /// Have the Vault make another secret id for the signer, and destroy the old one
    RotateSecretId(rotate::SecretIdArguments),
    /// Print a group's extended public key, which the server derives addresses from
    ExportXpub(xpub::Arguments),
    /// What the signer may sign: sign, check, compare, apply and simulate a policy
    #[command(subcommand)]
    Policy(policy::Command),
    /// What the signer has decided: verify, show and export its log
    #[command(subcommand)]
    Log(log::Command),
    /// API keys: who may ask a running signer, and for what
    #[command(subcommand)]
    Key(key::Command),
    Serve(serve::Arguments),
    /// Ask a running signer to sign what a file says
    Sign(sign::Arguments),
    /// Print the description of the service's HTTP interface (OpenAPI 3.1)
    Openapi,
}

pub async fn run(command: &Command, json: bool) -> CommandResult {
    // Before anything secret is read.
    signer::process::harden();
    match command {
        Command::Init(arguments) => init::run(arguments, json).await,
        Command::Group(command) => group::run(command, json).await,
        Command::Import(arguments) => import::run(arguments, json).await,
        Command::RotatePassphrase(arguments) => rotate::run(arguments, json),
        Command::RotateSecretId(arguments) => rotate::secret_id(arguments, json).await,
        Command::ExportXpub(arguments) => xpub::run(arguments, json),
        Command::Policy(command) => policy::run(command, json).await,
        Command::Log(command) => log::run(command, json),
        Command::Key(command) => key::run(command, json),
        Command::Serve(arguments) => serve::run(arguments, json).await,
        Command::Sign(arguments) => sign::run(arguments, json).await,
        Command::Openapi => {
            // It ends with a newline already.
            say(signer::service::openapi::text().trim_end());
            Ok(())
        }
    }
}

pub fn failed(error: KeyError) -> Failure {
    let exit = match &error {
        KeyError::Vault(VaultError::Setting(_) | VaultError::Taken { .. }) => Exit::BadInput,
        KeyError::Vault(_)
        | KeyError::Storage { .. }
        | KeyError::InUse { .. }
        | KeyError::Derivation(tx::DerivationError::NoSuchKey) => Exit::Outside,
        KeyError::Damaged { .. } | KeyError::Costly | KeyError::Changed(_) => Exit::Found,
        _ => Exit::BadInput,
    };
    Failure { exit, ..Failure::outside(error.code(), &error, error.hint()) }
}

/// A group's name as it is typed.
pub fn name(text: &str) -> Result<GroupId, Failure> {
    text.parse().map_err(|error: signer::BadName| failed(error.into()))
}

/// Where the signer is.
#[derive(Debug, clap::Args)]
pub struct Folder {
    /// The signer's own folder
    #[arg(long, value_name = "FOLDER", default_value = "bursar-signer")]
    folder: PathBuf,
}

impl Folder {
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

/// What a new group is, as it is typed.
#[derive(Debug, clap::Args)]
pub struct NewGroup {
    /// The group's name: small letters, digits and hyphens
    id: String,
    /// deposit, hot, gas or treasury
    #[arg(long)]
    purpose: String,
    /// evm, tron, bitcoin, or one of Bitcoin's test networks: bitcoin-testnet, bitcoin-testnet4, bitcoin-signet, bitcoin-regtest
    #[arg(long)]
    chain: String,
    /// The account below the mnemonic: another one gives every user another address
    #[arg(long, default_value_t = 0)]
    account: u32,
}

/// The same, read.
pub struct Described {
    pub id: GroupId,
    pub purpose: Purpose,
    pub family: Family,
    pub account: u32,
}

impl NewGroup {
    pub fn read(&self) -> Result<Described, Failure> {
        Described::read(&self.id, &self.purpose, &self.chain, self.account)
    }
}

impl Described {
    pub fn read(id: &str, purpose: &str, chain: &str, account: u32) -> Result<Self, Failure> {
        let read = || {
            if account >= 1 << 31 {
                return Err(KeyError::BadGroup("account"));
            }
            let (id, purpose, family) = (id.parse()?, purpose_of(purpose)?, family_of(chain)?);
            Ok(Self { id, purpose, family, account })
        };
        read().map_err(failed)
    }

    pub fn with(self, mnemonic: signer::keys::Mnemonic) -> GroupSecret {
        let Self { id, purpose, family, account } = self;
        GroupSecret { id, purpose, family, account, mnemonic }
    }
}

/// The system's own random bytes.
pub struct System;

impl Entropy for System {
    fn fill(&self, bytes: &mut [u8]) -> io::Result<()> {
        terminal::entropy::fill(bytes)
    }
}

pub fn keystore(folder: &Path, passphrase: signer::keys::Passphrase) -> Keystore {
    Keystore::new(folder, passphrase, Cost::USUAL, Arc::new(System))
}

/// Whether the folder's mnemonics are in a Vault.
pub fn in_vault(folder: &Path) -> bool {
    folder.join(SETTINGS).exists()
}

/// The groups of the folder, as they are listed without a secret.
pub fn listed(folder: &Path) -> Result<Vec<Group>, Failure> {
    if in_vault(folder) { Vault::listed(folder) } else { Keystore::listed(folder) }.map_err(failed)
}

/// Keeps a new group, durably, and then says so.
pub async fn keep(folder: &Folder, given: &passphrase::Given, secret: GroupSecret, json: bool) -> CommandResult {
    let group = secret.group().map_err(failed)?;
    let folder = folder.path();
    if in_vault(folder) {
        VaultFile::in_folder(folder)?.vault(folder)?.add(secret).await.map_err(failed)?;
    } else {
        keystore(folder, given.read()?).add(secret).await.map_err(failed)?;
    }
    print(&group, json).map_err(failed)
}

/// A group for machines.
pub fn shown(group: &Group) -> Result<Value, KeyError> {
    let first = group.key.address(AddressPath::of_number(0)?)?;
    Ok(json!({
        "id": group.id.as_str(), "purpose": group.purpose.as_str(), "chain": group.family().as_str(),
        "account": group.account(), "path": group.family().account_path(group.account()),
        "xpub": group.key.to_string(), "address_0": first.to_string(),
    }))
}

fn print(group: &Group, json: bool) -> Result<(), KeyError> {
    let body = shown(group)?;
    if json {
        say(body);
    } else {
        let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
        let (id, purpose, chain, path) = (text("id"), text("purpose"), text("chain"), text("path"));
        say(format!("wallet group {id}: {purpose} on {chain}, {path}\n{}", text("xpub")));
    }
    Ok(())
}
