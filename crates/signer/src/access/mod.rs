//! Who may ask the service for what: API keys with rights, and the stamp that proves a request.
//!
//! | module | holds |
//! |---|---|
//! | this one | keys, their rights, and the file that they are kept in |
//! | [`stamp`] | the header that proves who sent a request: HMAC-SHA256 over all that it says |
//! | [`nonces`] | which stamps were used; only those that are not too old anyway |

pub mod nonces;
pub mod stamp;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::digest::{hex, unhex32};
use crate::keys::{Entropy, KeyError};
use crate::names::{GroupId, KeyName};

/// The name of the keys' file in the signer's folder.
pub const KEYS: &str = "api-keys.toml";
/// Nobody has more.
const MOST_KEYS: usize = 1_000;

/// What a key may do. None follows from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Have transactions signed for wallets of these groups, as far as the policy allows.
    pub sign: BTreeSet<GroupId>,
    /// Ask for addresses and groups.
    pub derive: bool,
    /// Ask for groups and the policy's version.
    pub read: bool,
    /// Send a signed policy, and people's revocations.
    pub administer: bool,
}

impl Rights {
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The secret that a key's stamps are made with. Wiped when it is dropped, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySecret([u8; 32]);

impl Drop for KeySecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret")
    }
}

impl KeySecret {
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn make(entropy: &dyn Entropy) -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        entropy.fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(&self.0))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    pub secret: KeySecret,
    pub rights: Rights,
}

/// A key as its holder has it: a file with its name and its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub key: KeyName,
    pub secret: KeySecret,
}

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("these are no API keys: {0}")]
    Bad(String),
    #[error("there is a key {0} already")]
    Exists(KeyName),
    #[error("there is no key {0}")]
    Unknown(KeyName),
    #[error("a key without any right is of no use")]
    NoRights,
    #[error(transparent)]
    File(#[from] KeyError),
}

impl AccessError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Bad(_) | Self::Exists(_) | Self::Unknown(_) | Self::NoRights => "SIGNER_API_KEYS_INVALID",
            Self::File(error) => error.code(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiKeys(BTreeMap<KeyName, ApiKey>);

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<KeyTable>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyTable {
    id: String,
    secret: String,
    #[serde(default)]
    sign: Vec<String>,
    #[serde(default)]
    derive: bool,
    #[serde(default)]
    read: bool,
    #[serde(default)]
    administer: bool,
}

impl Drop for KeyTable {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CredentialFile {
    id: String,
    secret: String,
}

impl Drop for CredentialFile {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

fn bad(why: &str) -> AccessError {
    AccessError::Bad(why.to_owned())
}

/// Where an error stands, without the text around it: that may be a secret.
fn not_toml(text: &str, error: &toml::de::Error) -> AccessError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    AccessError::Bad(format!("line {} is not as it should be", before.lines().count().max(1)))
}

fn secret(text: &str) -> Result<KeySecret, AccessError> {
    unhex32(text).map(KeySecret).ok_or_else(|| bad("a secret is 64 small hexadecimal digits"))
}

impl ApiKeys {
    pub fn parse(text: &str) -> Result<Self, AccessError> {
        let file: File = toml::from_str(text).map_err(|error| not_toml(text, &error))?;
        let mut keys = Self::default();
        for table in &file.key {
            let name: KeyName = table.id.parse().map_err(|_| bad("a key's id is 1 to 64 of a-z, 0-9, -, _ and ."))?;
            let sign = table.sign.iter().map(|group| group.parse::<GroupId>()).collect::<Result<BTreeSet<_>, _>>();
            let rights = Rights {
                sign: sign.map_err(|error| AccessError::Bad(error.to_string()))?,
                derive: table.derive,
                read: table.read,
                administer: table.administer,
            };
            keys.add(name, ApiKey { secret: secret(&table.secret)?, rights })?;
        }
        Ok(keys)
    }

    pub fn text(&self) -> Result<Zeroizing<String>, AccessError> {
        let table = |(name, key): (&KeyName, &ApiKey)| KeyTable {
            id: name.to_string(),
            secret: key.secret.text().to_string(),
            sign: key.rights.sign.iter().map(ToString::to_string).collect(),
            derive: key.rights.derive,
            read: key.rights.read,
            administer: key.rights.administer,
        };
        let file = File { key: self.0.iter().map(table).collect() };
        toml::to_string(&file).map(Zeroizing::new).map_err(|_| bad("they cannot be written"))
    }

    /// The keys of a signer's folder; none if it has no such file.
    pub fn in_folder(folder: &Path) -> Result<Self, AccessError> {
        let bytes = match crate::keys::read_private(&folder.join(KEYS)) {
            Ok(bytes) => bytes,
            Err(KeyError::Missing { .. }) => return Ok(Self::default()),
            Err(error) => return Err(error.into()),
        };
        Self::parse(std::str::from_utf8(&bytes).map_err(|_| bad("it is not a text"))?)
    }

    /// Reads the keys of a folder, changes them, and replaces their file: one command at a time.
    pub fn change<T>(
        folder: &Path,
        change: impl FnOnce(&mut Self) -> Result<T, AccessError>,
    ) -> Result<T, AccessError> {
        crate::keys::while_locked(folder, || {
            let mut keys = Self::in_folder(folder)?;
            let done = change(&mut keys)?;
            crate::keys::write_private(folder, KEYS, keys.text()?.as_bytes())?;
            Ok(done)
        })
    }

    pub fn add(&mut self, name: KeyName, key: ApiKey) -> Result<(), AccessError> {
        if key.rights.are_none() {
            return Err(AccessError::NoRights);
        }
        if self.0.len() >= MOST_KEYS {
            return Err(bad("there are too many"));
        }
        if self.0.contains_key(&name) {
            return Err(AccessError::Exists(name));
        }
        if self.0.values().any(|other| other.secret == key.secret) {
            return Err(bad("two keys have the same secret"));
        }
        self.0.insert(name, key);
        Ok(())
    }

    pub fn remove(&mut self, name: &KeyName) -> Result<(), AccessError> {
        self.0.remove(name).map(|_| ()).ok_or_else(|| AccessError::Unknown(name.clone()))
    }

    pub fn get(&self, name: &KeyName) -> Option<&ApiKey> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&KeyName, &ApiKey)> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Credential {
    pub fn parse(text: &str) -> Result<Self, AccessError> {
        let file: CredentialFile = toml::from_str(text).map_err(|error| not_toml(text, &error))?;
        let key = file.id.parse().map_err(|_| bad("a key's id is 1 to 64 of a-z, 0-9, -, _ and ."))?;
        Ok(Self { key, secret: secret(&file.secret)? })
    }

    pub fn text(&self) -> Zeroizing<String> {
        let secret = self.secret.text();
        Zeroizing::new(format!("id = \"{}\"\nsecret = \"{}\"\n", self.key, secret.as_str()))
    }
}
