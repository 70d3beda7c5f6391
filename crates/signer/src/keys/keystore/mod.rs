//! An encrypted file with the mnemonics of all groups. Its passphrase is known while the file is read or written, and at no other
//! time.
//!
//! | module | holds |
//! |---|---|
//! | [`format`] | the bytes of the file: header, and what is encrypted |

pub mod format;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use format::Cost;
use tx::Group;

use super::error::KeyError;
use super::file::{FolderLock, failed, make_folder, read_private, replace};
use super::group::GroupSecret;
use super::passphrase::Passphrase;
use super::record::check_new;
use super::source::{Entropy, Source};
use super::vault;
use format::{Seal, Sealed};

/// The file's name in the signer's folder.
pub const NAME: &str = "keystore";

pub struct Keystore {
    folder: PathBuf,
    passphrase: Passphrase,
    /// What the next file will cost to open.
    cost: Cost,
    entropy: Arc<dyn Entropy>,
}

impl fmt::Debug for Keystore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keystore").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Keystore {
    pub fn new(folder: &Path, passphrase: Passphrase, cost: Cost, entropy: Arc<dyn Entropy>) -> Self {
        Self { folder: folder.to_owned(), passphrase, cost, entropy }
    }

    /// Makes the folder and the file. One that is there already stays as it is.
    pub fn create(&self, secrets: Vec<GroupSecret>) -> Result<(), KeyError> {
        make_folder(&self.folder)?;
        let _lock = FolderLock::take(&self.folder)?;
        for file in [NAME, vault::SETTINGS].map(|name| self.folder.join(name)) {
            if file.try_exists().map_err(failed("be looked for", &file))? {
                return Err(KeyError::Exists { file: file.display().to_string() });
            }
        }
        let mut groups = Vec::with_capacity(secrets.len());
        for secret in &secrets {
            let group = secret.group()?;
            check_new(&groups, &group)?;
            groups.push(group);
        }
        self.write(&self.passphrase, &secrets)
    }

    /// What the file says of its groups, without its passphrase and so without proof.
    pub fn listed(folder: &Path) -> Result<Vec<Group>, KeyError> {
        let file = folder.join(NAME);
        Sealed::read(&read_private(&file)?, &file).and_then(|sealed| sealed.groups())
    }

    /// Encrypts the same mnemonics anew. An old copy of the file still opens with the old passphrase.
    pub fn change_passphrase(&self, new: &Passphrase) -> Result<(), KeyError> {
        let _lock = FolderLock::take(&self.folder)?;
        self.write(new, &self.read()?)
    }

    fn read(&self) -> Result<Vec<GroupSecret>, KeyError> {
        let file = self.folder.join(NAME);
        Sealed::read(&read_private(&file)?, &file)?.open(&self.passphrase)
    }

    fn write(&self, passphrase: &Passphrase, secrets: &[GroupSecret]) -> Result<(), KeyError> {
        let seal = Seal::new(self.cost, self.entropy.as_ref()).map_err(failed("be read", Path::new("getrandom")))?;
        let bytes = seal.close(passphrase, secrets)?;
        let file = self.folder.join(NAME);
        // What cannot be opened must not take the place of what can.
        Sealed::read(&bytes, &file)?.open(passphrase)?;
        replace(&self.folder, NAME, &bytes, |_| Ok(())).map_err(failed("be written", &file))
    }
}

impl Source for Keystore {
    async fn load(&self) -> Result<Vec<GroupSecret>, KeyError> {
        self.read()
    }

    async fn add(&self, secret: GroupSecret) -> Result<(), KeyError> {
        let _lock = FolderLock::take(&self.folder)?;
        let mut secrets = self.read()?;
        let groups = secrets.iter().map(GroupSecret::group).collect::<Result<Vec<_>, _>>()?;
        check_new(&groups, &secret.group()?)?;
        secrets.push(secret);
        self.write(&self.passphrase, &secrets)
    }
}
