//! Private keys. Each is wiped when it is dropped, as far as safe code reaches: a copy that the compiler or a library left on
//! the stack is not known here, which is why a process that opens keys gives no core dump and cannot be traced.

use std::fmt;

use bitcoin::NetworkKind;
use bitcoin::bip32::{ChildNumber, Xpriv, Xpub};
use ring::hmac;
use secp256k1::{Message, PublicKey, SECP256K1, SecretKey};
use tx::{AccountKey, AddressPath, DerivationError, Family};
use zeroize::Zeroizing;

use super::error::KeyError;
use super::mnemonic::Mnemonic;
use crate::digest::Fields;

/// A private key with its chain code, somewhere in the tree. The chain code is part of the extended public key, and no secret.
struct Branch(Xpriv);

impl Drop for Branch {
    fn drop(&mut self) {
        self.0.private_key.non_secure_erase();
    }
}

impl Branch {
    fn master(kind: NetworkKind, seed: &[u8]) -> Result<Self, KeyError> {
        Xpriv::new_master(kind, seed).map(Self).map_err(|_| DerivationError::NoSuchKey.into())
    }

    fn child(&self, number: ChildNumber) -> Result<Self, KeyError> {
        self.0.derive_priv(SECP256K1, &[number]).map(Self).map_err(|_| DerivationError::NoSuchKey.into())
    }

    fn below(self, path: &[ChildNumber]) -> Result<Self, KeyError> {
        path.iter().try_fold(self, |branch, number| branch.child(*number))
    }
}

/// The key of a group's account: all that a running signer keeps of its mnemonic.
pub(super) struct AccountSecret {
    branch: Branch,
    family: Family,
}

impl fmt::Debug for AccountSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountSecret")
    }
}

impl AccountSecret {
    pub(super) fn of(mnemonic: &Mnemonic, family: Family, account: u32) -> Result<Self, KeyError> {
        let account = ChildNumber::from_hardened_idx(account).map_err(|_| KeyError::BadGroup("account"))?;
        let [purpose, coin] = family.above_account();
        let master = Branch::master(family.kind(), mnemonic.seed().as_slice())?;
        Ok(Self { branch: master.below(&[purpose, coin, account])?, family })
    }

    pub(super) fn public(&self) -> Result<AccountKey, KeyError> {
        Ok(AccountKey::new(Xpub::from_priv(SECP256K1, &self.branch.0), self.family)?)
    }

    /// A key of another kind that follows from this one, and from which nothing follows: it proves heads of the log.
    pub(super) fn head_key(&self) -> hmac::Key {
        let secret = Zeroizing::new(self.branch.0.private_key.secret_bytes());
        let key = Zeroizing::new(Fields::new("bursar-signer-head-key-v1").bytes(&*secret).finish());
        hmac::Key::new(hmac::HMAC_SHA256, &*key)
    }

    pub(super) fn key(&self, path: AddressPath) -> Result<AddressSecret, KeyError> {
        let [hi, lo] = path.children();
        let branch = self.branch.child(hi)?.child(lo)?;
        let public = branch.0.private_key.public_key(SECP256K1);
        Ok(AddressSecret { branch, public })
    }
}

/// The key of one address.
pub(super) struct AddressSecret {
    branch: Branch,
    public: PublicKey,
}

impl fmt::Debug for AddressSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressSecret")
    }
}

impl AddressSecret {
    pub(super) const fn public(&self) -> PublicKey {
        self.public
    }

    const fn key(&self) -> &SecretKey {
        &self.branch.0.private_key
    }

    /// r and s, low s, and whether the point's y was odd. The nonce follows from key and digest (RFC 6979).
    pub(super) fn sign(&self, digest: [u8; 32]) -> ([u8; 64], bool) {
        let signature = SECP256K1.sign_ecdsa_recoverable(&Message::from_digest(digest), self.key());
        let (recovery, bytes) = signature.serialize_compact();
        (bytes, recovery.to_i32() % 2 == 1)
    }
}

/// Both extended keys of a path below a seed, for BIP-32's own vectors.
#[cfg(feature = "testing")]
pub fn extended_keys(seed: &[u8], path: &[ChildNumber]) -> Result<(String, String), KeyError> {
    let branch = Branch::master(NetworkKind::Main, seed)?.below(path)?;
    Ok((branch.0.to_string(), Xpub::from_priv(SECP256K1, &branch.0).to_string()))
}
