//! Everything that can go wrong with keys, with a code and a hint. **No variant holds a secret**: not a word of a mnemonic, not
//! a passphrase, not a token, not the text that somebody typed.

use tx::{DecodeError, DerivationError};

use super::vault::VaultError;
use crate::names::{BadName, GroupId};

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the group's {0} is not one")]
    BadGroup(&'static str),
    #[error("this is no name of a wallet group")]
    BadName(#[from] BadName),
    #[error("there is no wallet group {0}")]
    GroupUnknown(GroupId),
    #[error("there is a wallet group {0} already")]
    GroupExists(GroupId),
    #[error("the wallet groups {group} and {other} have the same keys")]
    SameKeys { group: GroupId, other: GroupId },
    #[error("this is no mnemonic: {0}")]
    BadMnemonic(&'static str),
    #[error(transparent)]
    Derivation(#[from] DerivationError),
    #[error("the wallet group {group} is of another chain than the payload")]
    OtherChain { group: GroupId },
    #[error("{given} keys for {wanted} places to sign")]
    PathCount { wanted: usize, given: usize },
    #[error("the payload is paid from another address than that of the key")]
    OtherKey,
    #[error("the payload cannot be signed")]
    Payload(#[from] DecodeError),
    #[error("{file} cannot {what}")]
    Storage {
        what: &'static str,
        file: String,
        #[source]
        source: std::io::Error,
    },
    #[error("there is a signer already: {file}")]
    Exists { file: String },
    #[error("there is no signer here: {file} is missing")]
    Missing { file: String },
    #[error("another command is changing {folder}")]
    InUse { folder: String },
    #[error("{file} is a secret, and others than its owner may read or write it (mode {mode:04o})")]
    Exposed { file: String, mode: u32 },
    #[error("{file} cannot be understood: {why}")]
    Damaged { file: String, why: &'static str },
    #[error("{file} is of version {version}, which this program does not know")]
    Newer { file: String, version: u32 },
    #[error("the keystore asks for more or less memory, passes or lanes than any that we make")]
    Costly,
    #[error("the passphrase is wrong, or the keystore was changed")]
    WrongPassphrase,
    #[error("the passphrase is too short or too long")]
    WeakPassphrase,
    #[error("the wallet group {0} has another key than the one that is pinned")]
    Changed(GroupId),
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl KeyError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BadGroup(_) | Self::BadName(_) => "SIGNER_GROUP_INVALID",
            Self::GroupUnknown(_) => "SIGNER_GROUP_UNKNOWN",
            Self::GroupExists(_) => "SIGNER_GROUP_EXISTS",
            Self::SameKeys { .. } => "SIGNER_SAME_KEYS",
            Self::BadMnemonic(_) => "SIGNER_MNEMONIC_INVALID",
            Self::Derivation(error) => error.code(),
            Self::OtherChain { .. } | Self::PathCount { .. } | Self::OtherKey => "SIGNER_KEY_MISMATCH",
            Self::Payload(_) => "SIGNER_PAYLOAD_REFUSED",
            Self::Storage { .. } => "SIGNER_STORAGE_FAILED",
            Self::Exists { .. } => "SIGNER_EXISTS",
            Self::Missing { .. } => "SIGNER_MISSING",
            Self::InUse { .. } => "SIGNER_IN_USE",
            Self::Exposed { .. } => "SECRET_EXPOSED",
            Self::Damaged { .. } => "SIGNER_KEYSTORE_DAMAGED",
            Self::Newer { .. } => "SIGNER_KEYSTORE_NEWER",
            Self::Costly => "SIGNER_KEYSTORE_COSTLY",
            Self::WrongPassphrase => "SIGNER_PASSPHRASE_WRONG",
            Self::WeakPassphrase => "SIGNER_PASSPHRASE_WEAK",
            Self::Changed(_) => "SIGNER_GROUP_CHANGED",
            Self::Vault(error) => error.code(),
        }
    }

    pub const fn hint(&self) -> &'static str {
        match self {
            Self::BadGroup(_) | Self::BadName(_) => {
                "id: 1 to 64 of a-z, 0-9, -, _ and .; purpose: deposit, hot, gas, treasury; chain: evm, tron, \
                 bitcoin, bitcoin-testnet, bitcoin-testnet4, bitcoin-signet, bitcoin-regtest; account: 0 to 2147483647"
            }
            Self::GroupUnknown(_) => "bursar signer group list shows the groups",
            Self::GroupExists(_) => "choose another name; a group is never changed",
            Self::SameKeys { .. } => "take another mnemonic, or another --account",
            Self::BadMnemonic(_) => "12 or 24 words of the English BIP-39 list, in their order",
            Self::Derivation(error) => error.hint(),
            Self::OtherChain { .. } | Self::PathCount { .. } | Self::OtherKey => {
                "name the group and the path of the wallet that pays"
            }
            Self::Storage { .. } => "check the folder, its permissions and the room on its disk",
            Self::Exists { .. } => {
                "bursar signer group add adds a group to it; take another --folder for another signer"
            }
            Self::Missing { .. } => "bursar signer init makes one; --folder names it",
            Self::InUse { .. } => "wait until that command has ended",
            Self::Exposed { .. } => "chmod 600 the file; move the money to new groups if it has been read",
            Self::Damaged { .. } => "put the file back from your copy",
            Self::Newer { .. } => "use the version of Bursar that wrote it, or a newer one",
            Self::Costly => "put the file back from your copy: this one was not made by bursar signer",
            Self::WrongPassphrase => "try the passphrase again; if it is right, put the file back from your copy",
            Self::WeakPassphrase => {
                "12 to 1,024 bytes, such as: (umask 077; head -c 24 /dev/urandom | base64 > passphrase)"
            }
            Self::Changed(_) => {
                "stop: find out who changed the secret, and put back the one that the group was made with"
            }
            Self::Vault(error) => error.hint(),
            Self::Payload(_) => "only payments that tx builds are signed: what else it would do is said above",
        }
    }
}
