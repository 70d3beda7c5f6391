//! A signer with a keystore, a signed policy and a key for whoever asks it, made by the program's own commands. The people's keys are known to
//! everybody: what they guard is worth nothing.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use signer::policy::signed::SigningKey;
use terminal::failure::Failure;

use super::{program, trouble, write_private};

/// PKCS#8 of seeds that everybody knows.
const PEOPLE: [(&str, &str); 3] = [
    ("ada", "MC4CAQAwBQYDK2VwBCIEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH"),
    ("bob", "MC4CAQAwBQYDK2VwBCIEIAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI"),
    ("carol", "MC4CAQAwBQYDK2VwBCIEIAkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJ"),
];

/// Who signs policies.
pub const ADMINISTRATOR: &str = "ada";

/// The passphrase of the keystore.
pub const PASSPHRASE: &str = "not a secret: these keys hold nothing\n";

/// A wallet group as the signer is told of it: its name, what it is for, and the family of its chain.
pub struct KeyGroup {
    pub name: String,
    pub purpose: &'static str,
    pub family: &'static str,
}

fn wrong(error: impl std::fmt::Display) -> Failure {
    trouble("the signer could not be made", std::io::Error::other(error.to_string()))
}

/// This person's key, as `openssl genpkey` would have made it.
fn pem(person: &str) -> Result<String, Failure> {
    let key = PEOPLE.iter().find(|(name, _)| *name == person).ok_or_else(|| wrong(format!("{person} has no key")))?.1;
    Ok(format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n"))
}

/// The same, to sign with.
pub fn signing_key(person: &str) -> Result<SigningKey, Failure> {
    SigningKey::read(pem(person)?.as_bytes()).ok_or_else(|| wrong(format!("the key of {person}")))
}

/// Writes this person's key to `NAME.key`. The public key, in hexadecimal digits.
pub fn write_key(folder: &Path, person: &str) -> Result<String, Failure> {
    write_private(&folder.join(format!("{person}.key")), &pem(person)?)?;
    Ok(signer::digest::hex(&signing_key(person)?.public()))
}

/// Makes it in `signer` of the folder, with the passphrase in `passphrase` and the key of whoever asks in `server.credential`. `policy` is
/// given the administrator's public key. The extended public keys of its groups.
pub async fn make_signer(
    config: &Path,
    folder: &Path,
    groups: &[KeyGroup],
    policy: impl FnOnce(&str) -> String,
) -> Result<BTreeMap<String, String>, Failure> {
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    write_private(&folder.join("passphrase"), PASSPHRASE)?;
    let administrator = write_key(folder, ADMINISTRATOR)?;
    let (home, passphrase, credential) = (at("signer"), at("passphrase"), at("server.credential"));
    let told: Vec<String> = groups.iter().map(|one| format!("{}:{}:{}", one.name, one.purpose, one.family)).collect();
    let mut init = vec!["signer", "init", "--folder", &home, "--passphrase-file", &passphrase];
    for group in &told {
        init.extend(["--group", group]);
    }
    let made = program::told(config, &init).await?;
    let may_sign = groups.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(",");
    let add = ["signer", "key", "add", "server", "--folder", &home, "--derive", "--read", "--sign", &may_sign];
    program::told(config, &[&add[..], &["--credential", &credential]].concat()).await?;
    write_private(&folder.join("policy.toml"), &policy(&administrator))?;
    let (file, key) = (at("policy.toml"), at(&format!("{ADMINISTRATOR}.key")));
    program::told(config, &["signer", "policy", "sign", &file, "--as", ADMINISTRATOR, "--key", &key]).await?;
    program::told(config, &["signer", "policy", "apply", &file, "--folder", &home]).await?;
    let field = |group: &Value, name: &str| group[name].as_str().map(str::to_owned);
    let groups = made["groups"].as_array().cloned().unwrap_or_default();
    Ok(groups.iter().filter_map(|group| Some((field(group, "id")?, field(group, "xpub")?))).collect())
}
