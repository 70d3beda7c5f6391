//! Mnemonics in OpenBao or HashiCorp Vault: a secret for each group in a KV store of version 2, read with an AppRole.
//!
//! | module | holds |
//! |---|---|
//! | `client` | one call over HTTP: time limit, length limit, TLS, namespace |
//! | `token` | logging in, and when to do it again |
//! | [`error`] | why a Vault gave nothing |
//!
//! **The groups are pinned in the signer's folder**: which there are, with their extended public keys. Whoever can write to the
//! Vault can take a secret away, but cannot put another in its place: its key would not be the pinned one.

mod client;
pub mod error;
mod token;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::Clock;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use tokio::sync::Mutex;
use tx::Group;
use zeroize::Zeroizing;

pub use error::VaultError;

use super::error::KeyError;
use super::file::{FolderLock, failed, make_folder, read_private, replace};
use super::group::{GroupSecret, family_of, purpose_of};
use super::keystore;
use super::mnemonic::Mnemonic;
use super::record::{GroupRecord, check_new};
use super::source::Source;
use crate::names::GroupId;
use client::{Answer, Client, form};
use token::Token;

/// The file that says where the Vault is; a signer's folder has it or a keystore.
pub const SETTINGS: &str = "vault.toml";
/// The file of the pinned groups in the signer's folder.
pub const PINS: &str = "groups.json";

/// Where a Vault is, and who we are to it.
#[derive(Clone, Debug)]
pub struct VaultSettings {
    /// `https://vault.example:8200`; plain `http` only on this machine.
    pub address: String,
    /// Where the KV store is mounted.
    pub mount: String,
    /// The folder in it: a group's secret is `prefix/id`.
    pub prefix: String,
    /// Where AppRole is mounted.
    pub approle: String,
    pub namespace: Option<String>,
    /// Authorities in PEM form, instead of the public ones.
    pub authorities: Option<Vec<u8>>,
    /// A name, not a secret.
    pub role_id: String,
    /// Read again at every login, so that whoever renews the secret id only writes the file.
    pub secret_id_file: PathBuf,
    /// For each call, from the connection to the last byte.
    pub deadline: Duration,
}

pub struct Vault {
    folder: PathBuf,
    settings: VaultSettings,
    client: Client,
    clock: Arc<dyn Clock>,
    token: Mutex<Option<Token>>,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault")
            .field("folder", &self.folder)
            .field("address", &self.settings.address)
            .finish_non_exhaustive()
    }
}

/// The answer of a KV store, as far as it is read. The words are never copied out of the answer's own buffer.
#[derive(Deserialize)]
struct Kept<'a> {
    #[serde(borrow)]
    data: KeptData<'a>,
}

#[derive(Deserialize)]
struct KeptData<'a> {
    #[serde(borrow)]
    data: Fields<'a>,
}

#[derive(Deserialize)]
struct Fields<'a> {
    mnemonic: &'a str,
    purpose: &'a str,
    chain: &'a str,
    account: u32,
}

impl Vault {
    pub fn new(folder: &Path, settings: VaultSettings, clock: Arc<dyn Clock>) -> Result<Self, KeyError> {
        let part = |text: &str| {
            let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
            !text.is_empty()
                && text.bytes().all(letters)
                && text.split('/').all(|name| !matches!(name, "" | "." | ".."))
        };
        if ![&settings.mount, &settings.prefix, &settings.approle].into_iter().all(|text| part(text)) {
            return Err(VaultError::Setting("mount, prefix or AppRole is not a path").into());
        }
        let client = Client::new(&settings)?;
        Ok(Self { folder: folder.to_owned(), settings, client, clock, token: Mutex::new(None) })
    }

    /// Logs in, and makes the folder: `settings` is kept beside an empty list of groups. A folder that has groups, or a keystore,
    /// stays as it is.
    pub async fn create(&self, settings: &str) -> Result<(), KeyError> {
        self.renew().await?;
        make_folder(&self.folder)?;
        let _lock = FolderLock::take(&self.folder)?;
        let (keystore, pins) = (self.folder.join(keystore::NAME), self.folder.join(PINS));
        for file in [&keystore, &pins] {
            let there = file.try_exists().map_err(failed("be looked for", file))?;
            // A crash may have left a list without groups.
            if there && (file == &keystore || !Self::listed(&self.folder)?.is_empty()) {
                return Err(KeyError::Exists { file: file.display().to_string() });
            }
        }
        let file = self.folder.join(SETTINGS);
        replace(&self.folder, SETTINGS, settings.as_bytes(), |_| Ok(())).map_err(failed("be written", &file))?;
        self.pin(&[])
    }

    /// The pinned groups. The Vault is not asked.
    pub fn listed(folder: &Path) -> Result<Vec<Group>, KeyError> {
        let file = folder.join(PINS);
        let bytes = read_private(&file)?;
        let damaged = || KeyError::Damaged { file: file.display().to_string(), why: "it is no list of wallet groups" };
        let records: Vec<GroupRecord> = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
        let mut groups = Vec::with_capacity(records.len());
        for record in &records {
            let group = record.read()?;
            check_new(&groups, &group)?;
            groups.push(group);
        }
        Ok(groups)
    }

    /// Pins a group whose secret is in the Vault already, put there by another hand.
    pub async fn adopt(&self, id: &GroupId) -> Result<Group, KeyError> {
        let _lock = FolderLock::take(&self.folder)?;
        let mut groups = Self::listed(&self.folder)?;
        let group = self.secret(id).await?.ok_or_else(|| self.missing(id))?.group()?;
        check_new(&groups, &group)?;
        groups.push(group.clone());
        self.pin(&groups)?;
        Ok(group)
    }

    /// Makes sure that there is a token with some time left. A service calls it now and then.
    pub async fn renew(&self) -> Result<(), KeyError> {
        let mut token = self.token.lock().await;
        *token = Some(token::fresh(&self.client, &self.settings, token.take(), self.clock.now()).await?);
        Ok(())
    }

    /// Asks for a new secret id, keeps it in the file, proves that it works, and only then destroys the old one.
    pub async fn renew_secret_id(&self) -> Result<(), KeyError> {
        token::renew_secret_id(self).await
    }

    fn path(&self, id: &GroupId) -> String {
        format!("{}/data/{}/{id}", self.settings.mount, self.settings.prefix)
    }

    fn missing(&self, id: &GroupId) -> KeyError {
        VaultError::Missing { path: self.path(id) }.into()
    }

    /// A call with a token. One that the Vault no longer knows is replaced, once.
    async fn call(&self, method: Method, path: &str, body: Option<&[u8]>) -> Result<Answer, KeyError> {
        let mut held = self.token.lock().await;
        let before = held.take();
        let had_one = before.is_some();
        let token = held.insert(token::fresh(&self.client, &self.settings, before, self.clock.now()).await?);
        let answer = self.client.call(method.clone(), path, Some(&*token), body).await?;
        if answer.status != StatusCode::FORBIDDEN || !had_one {
            return Ok(answer);
        }
        let token = held.insert(token::fresh(&self.client, &self.settings, None, self.clock.now()).await?);
        Ok(self.client.call(method, path, Some(&*token), body).await?)
    }

    /// `None`: the Vault has no such secret.
    async fn secret(&self, id: &GroupId) -> Result<Option<GroupSecret>, KeyError> {
        let path = self.path(id);
        let answer = self.call(Method::GET, &path, None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        answer.good(&path)?;
        let malformed =
            |_| VaultError::Answer { path: path.clone(), why: "the secret has not the fields of a wallet group" };
        let kept: Kept<'_> = serde_json::from_slice(&answer.body).map_err(malformed)?;
        let Fields { mnemonic, purpose, chain, account } = kept.data.data;
        Ok(Some(GroupSecret {
            id: id.clone(),
            purpose: purpose_of(purpose)?,
            family: family_of(chain)?,
            account,
            mnemonic: Mnemonic::parse(mnemonic)?,
        }))
    }

    fn pin(&self, groups: &[Group]) -> Result<(), KeyError> {
        let records: Vec<GroupRecord> = groups.iter().map(GroupRecord::of).collect();
        let file = self.folder.join(PINS);
        let mut bytes = serde_json::to_vec_pretty(&records).map_err(|_| KeyError::BadGroup("description"))?;
        bytes.push(b'\n');
        replace(&self.folder, PINS, &bytes, |_| Ok(())).map_err(failed("be written", &file))
    }
}

impl Source for Vault {
    async fn load(&self) -> Result<Vec<GroupSecret>, KeyError> {
        let groups = Self::listed(&self.folder)?;
        let mut secrets = Vec::with_capacity(groups.len());
        for group in groups {
            let secret = self.secret(&group.id).await?.ok_or_else(|| self.missing(&group.id))?;
            if secret.group()? != group {
                return Err(KeyError::Changed(group.id));
            }
            secrets.push(secret);
        }
        Ok(secrets)
    }

    /// Writes the secret only if there is none, reads it back, and pins what was read.
    async fn add(&self, secret: GroupSecret) -> Result<(), KeyError> {
        let _lock = FolderLock::take(&self.folder)?;
        let mut groups = Self::listed(&self.folder)?;
        let group = secret.group()?;
        check_new(&groups, &group)?;
        if self.secret(&group.id).await?.is_some() {
            return Err(VaultError::Taken { path: self.path(&group.id) }.into());
        }
        let path = self.path(&group.id);
        let body = form(&[
            r#"{"options":{"cas":0},"data":{"mnemonic":""#,
            &secret.mnemonic.phrase(),
            r#"","purpose":""#,
            secret.purpose.as_str(),
            r#"","chain":""#,
            secret.family.as_str(),
            r#"","account":"#,
            &secret.account.to_string(),
            "}}",
        ]);
        self.call(Method::POST, &path, Some(body.as_bytes())).await?.good(&path)?;
        let kept = self.secret(&group.id).await?.ok_or_else(|| self.missing(&group.id))?;
        if kept.group()? != group {
            return Err(KeyError::Changed(group.id));
        }
        groups.push(group);
        self.pin(&groups)
    }
}

/// A secret of one line from a file that only its owner may read.
fn read_line(file: &Path) -> Result<Zeroizing<String>, KeyError> {
    let bytes = read_private(file)?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\') {
        return Err(VaultError::Setting("the secret id's file holds no secret id").into());
    }
    let mut line = Zeroizing::new(String::with_capacity(text.len()));
    line.push_str(text);
    Ok(line)
}
