//! Operators of a treasury file, with the keys that they sign with, and which withdrawals are checked outside.

use std::collections::{BTreeMap, BTreeSet};

use domain::operator::{OperatorName, OperatorRole};
use domain::{Amount, ChainName, Symbol, UserId};
use serde::Deserialize;
use signer::digest::unhex;
use signer::names::KeyName;
use store::operator::{CheckSetting, OperatorKey, OperatorSetting, PasskeyPlace, PeopleSettings};
use terminal::failure::Failure;

use super::rules::Known;
use super::{bad, yes};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperatorEntry {
    name: String,
    role: String,
    user: Option<i64>,
    #[serde(default = "yes")]
    active: bool,
    #[serde(default)]
    keys: BTreeMap<String, KeyEntry>,
}

/// As the signer's policy writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    ed25519: Option<String>,
    passkey: Option<PasskeyEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PasskeyEntry {
    public: String,
    relying_party: String,
    origins: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckEntry {
    asset: String,
    chain: String,
    from: String,
    #[serde(default = "yes")]
    active: bool,
}

pub(super) fn people(
    operators: &[OperatorEntry],
    checks: &[CheckEntry],
    known: &Known<'_>,
) -> Result<PeopleSettings, Failure> {
    let mut settings = PeopleSettings::default();
    for entry in operators {
        let place = format!("operator {}", entry.name);
        let name: OperatorName = entry.name.parse().map_err(|error| bad(&place, error, "write it like ann"))?;
        if settings.operators.insert(name, operator(&place, entry)?).is_some() {
            return Err(bad(&place, "stands there twice", "keep one of the two"));
        }
    }
    for entry in checks {
        let place = format!("withdrawal_check {} on {}", entry.asset, entry.chain);
        let (chain, asset, _) = known.coin(&place, &entry.chain, &entry.asset)?;
        let from = match Amount::parse(&entry.from, asset.precision) {
            Ok(from) if from >= Amount::ZERO => from,
            Ok(_) | Err(_) => {
                let hint = "such as \"0\", which asks about every withdrawal";
                return Err(bad(&place, format!("{:?} is no amount of {}", entry.from, asset.symbol), hint));
            }
        };
        let key: (Symbol, ChainName) = (asset.symbol, chain);
        if settings.checks.insert(key, CheckSetting { from: entry.active.then_some(from) }).is_some() {
            return Err(bad(&place, "stands there twice", "keep one of the two"));
        }
    }
    Ok(settings)
}

fn operator(place: &str, entry: &OperatorEntry) -> Result<OperatorSetting, Failure> {
    let role = OperatorRole::parse(&entry.role).ok_or_else(|| {
        bad(place, format!("{:?} is no role", entry.role), "viewer, operator, approver or administrator")
    })?;
    let user = entry.user.map(|user| {
        UserId::new(user).ok_or_else(|| {
            bad(place, "user is a customer's number, and positive", "leave it out: the person is no customer")
        })
    });
    let keys = entry.keys.iter().map(|(name, key)| Ok((name.clone(), key_of(place, name, key)?)));
    let keys: BTreeMap<String, OperatorKey> = keys.collect::<Result<_, Failure>>()?;
    if !role.signs() && !keys.is_empty() {
        return Err(bad(
            place,
            format!("a {role} signs nothing"),
            "leave the keys out, or make the person an approver",
        ));
    }
    if role == OperatorRole::Approver && entry.active && keys.is_empty() {
        let hint = "keys.ann-laptop = { ed25519 = \"…\" }: openssl pkey -in ann.pem -pubout -outform DER | tail -c 32 | xxd -p -c 32";
        return Err(bad(place, "an approver without a key can approve nothing", hint));
    }
    Ok(OperatorSetting { role, user: user.transpose()?, active: entry.active, keys })
}

fn key_of(place: &str, name: &str, key: &KeyEntry) -> Result<OperatorKey, Failure> {
    let place = format!("{place}, key {name}");
    name.parse::<KeyName>().map_err(|error| bad(&place, error, "as the signer's policy names it"))?;
    let of_length = |text: &str, bytes: usize| unhex(text).is_some_and(|read| read.len() == bytes);
    match (&key.ed25519, &key.passkey) {
        (Some(public), None) if of_length(public, 32) => Ok(OperatorKey { public: public.clone(), place: None }),
        (Some(_), None) => Err(bad(&place, "ed25519 is 64 small hexadecimal digits", "as in the signer's policy")),
        (None, Some(passkey)) => {
            if !of_length(&passkey.public, 65) || !passkey.public.starts_with("04") {
                let problem = "a passkey's public key is 04 and 128 small hexadecimal digits";
                return Err(bad(&place, problem, "as in the signer's policy"));
            }
            if passkey.relying_party.is_empty() || passkey.origins.is_empty() {
                return Err(bad(&place, "a passkey has a relying party and origins", "as in the signer's policy"));
            }
            let (relying_party, origins) = (passkey.relying_party.clone(), passkey.origins.clone());
            Ok(OperatorKey { public: passkey.public.clone(), place: Some(PasskeyPlace { relying_party, origins }) })
        }
        (Some(_), Some(_)) | (None, None) => {
            Err(bad(&place, "it is one key: ed25519 or passkey", "as in the signer's policy"))
        }
    }
}
