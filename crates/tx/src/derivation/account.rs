//! A group's extended public key, at the level of its account, and every address that follows from it. There is no secret here:
//! the server derives with it too, from the key that its configuration pins.

use std::fmt;

use bitcoin::bip32::{ChildNumber, Xpub};
use bitcoin::{CompressedPublicKey, KnownHrp};
use secp256k1::{PublicKey, SECP256K1};

use super::DerivationError;
use super::family::Family;
use super::path::AddressPath;
use crate::address::{Address, account_of};
use crate::tron::TronAddress;

/// `m`, purpose, coin and account: three steps.
const DEPTH: u8 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountKey {
    family: Family,
    account: u32,
    xpub: Xpub,
    /// The level of `hi = 0`, which nearly every address is below.
    first: Xpub,
}

impl AccountKey {
    /// From `xpub…` or `tpub…`, as `bursar signer export-xpub` prints it.
    pub fn parse(text: &str, family: Family) -> Result<Self, DerivationError> {
        let xpub: Xpub = text.parse().map_err(|_| DerivationError::BadXpub("it is not an extended public key"))?;
        Self::new(xpub, family)
    }

    /// The key must be an account's, of the family's network.
    pub fn new(xpub: Xpub, family: Family) -> Result<Self, DerivationError> {
        if xpub.network != family.kind() {
            return Err(DerivationError::BadXpub("it is of another network"));
        }
        let account = match xpub.child_number {
            ChildNumber::Hardened { index } if xpub.depth == DEPTH => index,
            _ => return Err(DerivationError::BadXpub("it is not the key of an account")),
        };
        let first =
            xpub.ckd_pub(SECP256K1, ChildNumber::Normal { index: 0 }).map_err(|_| DerivationError::NoSuchKey)?;
        Ok(Self { family, account, xpub, first })
    }

    pub const fn family(&self) -> Family {
        self.family
    }

    pub const fn account(&self) -> u32 {
        self.account
    }

    pub fn public(&self, path: AddressPath) -> Result<PublicKey, DerivationError> {
        let [hi, lo] = path.children();
        let upper = match path.hi() {
            0 => Ok(self.first),
            _ => self.xpub.ckd_pub(SECP256K1, hi),
        };
        let child = upper.and_then(|upper| upper.ckd_pub(SECP256K1, lo));
        Ok(child.map_err(|_| DerivationError::NoSuchKey)?.public_key)
    }

    pub fn address(&self, path: AddressPath) -> Result<Address, DerivationError> {
        Ok(address_of(&self.public(path)?, self.family))
    }
}

/// The address of a key: P2WPKH on Bitcoin.
pub fn address_of(public: &PublicKey, family: Family) -> Address {
    match family {
        Family::Evm => Address::Evm(account_of(public).into()),
        Family::Tron => Address::Tron(TronAddress::of_public(public)),
        Family::Bitcoin(network) => {
            Address::Bitcoin(bitcoin::Address::p2wpkh(&CompressedPublicKey(*public), KnownHrp::from(network)))
        }
    }
}

/// The text that is pinned and compared.
impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.xpub.to_string())
    }
}
