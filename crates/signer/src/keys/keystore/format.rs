//! The bytes of a keystore: three lines of text.
//!
//! ```text
//! bursar-keystore 1
//! {"kdf":"argon2id","memory_kib":65536,"passes":3,"lanes":1,"salt":"…","cipher":"xchacha20poly1305","nonce":"…","groups":[…]}
//! 6f0a…
//! ```
//!
//! The third is the encrypted list of names and entropies. The first two are its associated data, so that nobody can change the
//! cost, the purpose of a group or its public key without the passphrase. Salt and nonce are new in every file.

use std::io;
use std::path::Path;

use argon2::{Algorithm, Argon2, Params, Version};
use bitcoin::hex::{DisplayHex, FromHex};
use chacha20poly1305::{AeadInOut, KeyInit, XChaCha20Poly1305};
use serde::{Deserialize, Serialize};
use tx::Group;
use zeroize::Zeroizing;

use crate::keys::error::KeyError;
use crate::keys::group::GroupSecret;
use crate::keys::mnemonic::Mnemonic;
use crate::keys::passphrase::Passphrase;
use crate::keys::record::{GroupRecord, check_new};
use crate::keys::source::Entropy;

const MAGIC: &str = "bursar-keystore ";
const VERSION: u32 = 1;
const KDF: &str = "argon2id";
const CIPHER: &str = "xchacha20poly1305";
const MOST_GROUPS: usize = 1_000;
/// What the cipher adds.
const TAG_BYTES: usize = 16;

/// What it takes to try one passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

impl Cost {
    /// RFC 9106's second choice, with its memory: a quarter of a second here.
    pub const USUAL: Self = Self { memory_kib: 64 << 10, passes: 3, lanes: 1 };
    /// A file that asks for less was not made by us, and would be guessed.
    pub const LEAST: Self = Self { memory_kib: 19 << 10, passes: 2, lanes: 1 };
    /// A file that asks for more would stop the machine instead of opening.
    pub const MOST: Self = Self { memory_kib: 1 << 20, passes: 16, lanes: 8 };

    fn check(self) -> Result<Self, KeyError> {
        let within = |value: u32, least: u32, most: u32| (least..=most).contains(&value);
        let good = within(self.memory_kib, Self::LEAST.memory_kib, Self::MOST.memory_kib)
            && within(self.passes, Self::LEAST.passes, Self::MOST.passes)
            && within(self.lanes, Self::LEAST.lanes, Self::MOST.lanes);
        if good { Ok(self) } else { Err(KeyError::Costly) }
    }

    fn key(self, passphrase: &Passphrase, salt: &[u8; 16]) -> Result<Zeroizing<[u8; 32]>, KeyError> {
        let Self { memory_kib, passes, lanes } = self.check()?;
        let mut key = Zeroizing::new([0; 32]);
        let parameters = Params::new(memory_kib, passes, lanes, Some(32)).map_err(|_| KeyError::Costly)?;
        Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters)
            .hash_password_into(passphrase.bytes(), salt, key.as_mut_slice())
            .map_err(|_| KeyError::Costly)?;
        Ok(key)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    kdf: String,
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    salt: String,
    cipher: String,
    nonce: String,
    groups: Vec<GroupRecord>,
}

/// What a new file is encrypted with, besides the passphrase.
pub(super) struct Seal {
    cost: Cost,
    salt: [u8; 16],
    nonce: [u8; 24],
}

impl Seal {
    pub(super) fn new(cost: Cost, entropy: &dyn Entropy) -> io::Result<Self> {
        let (mut salt, mut nonce) = ([0; 16], [0; 24]);
        entropy.fill(&mut salt)?;
        entropy.fill(&mut nonce)?;
        Ok(Self { cost, salt, nonce })
    }

    pub(super) fn close(&self, passphrase: &Passphrase, secrets: &[GroupSecret]) -> Result<Vec<u8>, KeyError> {
        if secrets.len() > MOST_GROUPS {
            return Err(KeyError::BadGroup("number"));
        }
        let groups = secrets.iter().map(|secret| Ok(GroupRecord::of(&secret.group()?)));
        let header = Header {
            kdf: KDF.to_owned(),
            memory_kib: self.cost.memory_kib,
            passes: self.cost.passes,
            lanes: self.cost.lanes,
            salt: self.salt.to_lower_hex_string(),
            cipher: CIPHER.to_owned(),
            nonce: self.nonce.to_lower_hex_string(),
            groups: groups.collect::<Result<_, KeyError>>()?,
        };
        let header = serde_json::to_string(&header).map_err(|_| KeyError::BadGroup("description"))?;
        let mut bytes = format!("{MAGIC}{VERSION}\n{header}\n").into_bytes();
        let mut content = plain(secrets);
        let key = self.cost.key(passphrase, &self.salt)?;
        XChaCha20Poly1305::new((&*key).into())
            .encrypt_in_place((&self.nonce).into(), &bytes, &mut *content)
            .map_err(|_| KeyError::BadGroup("number"))?;
        bytes.extend(content.to_lower_hex_string().into_bytes());
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// A line for each group: its name and its mnemonic. Room for all of it and the tag, so that it never grows and leaves a copy.
fn plain(secrets: &[GroupSecret]) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(secrets.len() * 300 + TAG_BYTES));
    for secret in secrets {
        text.extend(secret.id.as_str().as_bytes());
        text.push(b' ');
        text.extend(secret.mnemonic.phrase().as_bytes());
        text.push(b'\n');
    }
    text
}

/// A file that was read, and not opened yet.
pub(super) struct Sealed<'a> {
    associated: &'a [u8],
    header: Header,
    seal: Seal,
    content: Vec<u8>,
    file: String,
}

impl<'a> Sealed<'a> {
    pub(super) fn read(bytes: &'a [u8], file: &Path) -> Result<Self, KeyError> {
        let file = file.display().to_string();
        let damaged = |why: &'static str| KeyError::Damaged { file: file.clone(), why };
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not a text"))?;
        let version = text.strip_prefix(MAGIC).ok_or_else(|| damaged("it is not a keystore"))?;
        let (version, rest) = version.split_once('\n').ok_or_else(|| damaged("it is cut off"))?;
        let version: u32 = version.parse().map_err(|_| damaged("it is not a keystore"))?;
        if version != VERSION {
            return Err(KeyError::Newer { file, version });
        }
        let (header, content) = rest.split_once('\n').ok_or_else(|| damaged("it is cut off"))?;
        let content = content.strip_suffix('\n').ok_or_else(|| damaged("it is cut off"))?;
        let associated = &bytes[..bytes.len() - content.len() - 1];
        let header: Header = serde_json::from_str(header).map_err(|_| damaged("its header cannot be read"))?;
        if header.kdf != KDF || header.cipher != CIPHER || header.groups.len() > MOST_GROUPS {
            return Err(damaged("its header is of no keystore that we make"));
        }
        let cost = Cost { memory_kib: header.memory_kib, passes: header.passes, lanes: header.lanes }.check()?;
        let salt = <[u8; 16]>::from_hex(&header.salt).map_err(|_| damaged("its header cannot be read"))?;
        let nonce = <[u8; 24]>::from_hex(&header.nonce).map_err(|_| damaged("its header cannot be read"))?;
        let content = Vec::<u8>::from_hex(content).map_err(|_| damaged("its content is not hexadecimal"))?;
        Ok(Self { associated, header, seal: Seal { cost, salt, nonce }, content, file })
    }

    pub(super) fn groups(&self) -> Result<Vec<Group>, KeyError> {
        let mut groups = Vec::with_capacity(self.header.groups.len());
        for record in &self.header.groups {
            let group = record.read()?;
            check_new(&groups, &group)?;
            groups.push(group);
        }
        Ok(groups)
    }

    pub(super) fn open(self, passphrase: &Passphrase) -> Result<Vec<GroupSecret>, KeyError> {
        let groups = self.groups()?;
        let key = self.seal.cost.key(passphrase, &self.seal.salt)?;
        let mut content = Zeroizing::new(self.content);
        XChaCha20Poly1305::new((&*key).into())
            .decrypt_in_place((&self.seal.nonce).into(), self.associated, &mut *content)
            .map_err(|_| KeyError::WrongPassphrase)?;
        let damaged = |why: &'static str| KeyError::Damaged { file: self.file.clone(), why };
        let text = std::str::from_utf8(&content).map_err(|_| damaged("its content is not a text"))?;
        let mut lines = text.lines();
        let mut secrets = Vec::with_capacity(groups.len());
        for group in groups {
            let line = lines.next().ok_or_else(|| damaged("a mnemonic is missing"))?;
            let (id, words) = line.split_once(' ').ok_or_else(|| damaged("a line has no mnemonic"))?;
            let mnemonic = Mnemonic::parse(words)?;
            let (family, account) = (group.family(), group.account());
            let secret = GroupSecret { id: group.id.clone(), purpose: group.purpose, family, account, mnemonic };
            // Whoever made the file knew the passphrase; that it fits itself is still looked at before money depends on it.
            if id != group.id.as_str() || secret.group()? != group {
                return Err(KeyError::Changed(group.id));
            }
            secrets.push(secret);
        }
        if lines.next().is_some() { Err(damaged("a mnemonic has no group")) } else { Ok(secrets) }
    }
}
