//! Where a Vault is: the flags of `bursar signer init`, and the file `vault.toml` that they become.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use signer::keys::vault::{SETTINGS, Vault, VaultSettings};
use terminal::clock::SystemClock;
use terminal::failure::Failure;
use terminal::files::{check_secret, read_text};

use super::failed;

/// For each call.
const DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub struct Place {
    /// Keep mnemonics in this OpenBao or Vault instead of a keystore: https://host:8200
    #[arg(long, value_name = "URL", requires_all = ["vault_role_id", "vault_secret_id_file"])]
    vault_address: Option<String>,
    /// The id of the AppRole that the signer logs in with
    #[arg(long, value_name = "ID", requires = "vault_address")]
    vault_role_id: Option<String>,
    /// The file with the secret id of the AppRole, which only its owner may read
    #[arg(long, value_name = "FILE", requires = "vault_address")]
    vault_secret_id_file: Option<PathBuf>,
    /// Where the KV store of version 2 is mounted
    #[arg(long, value_name = "PATH", default_value = "secret")]
    vault_mount: String,
    /// The folder in it that has the groups' secrets
    #[arg(long, value_name = "PATH", default_value = "bursar")]
    vault_prefix: String,
    /// Where AppRole is mounted
    #[arg(long, value_name = "PATH", default_value = "approle")]
    vault_approle: String,
    /// The namespace
    #[arg(long, value_name = "NAME", requires = "vault_address")]
    vault_namespace: Option<String>,
    /// The authority that issued its certificate, in PEM form, instead of the public ones
    #[arg(long, value_name = "FILE", requires = "vault_address")]
    vault_ca: Option<PathBuf>,
}

/// `vault.toml`. It holds no secret.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaultFile {
    address: String,
    role_id: String,
    /// Relative to the folder of this file.
    secret_id_file: PathBuf,
    mount: String,
    prefix: String,
    approle: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
}

impl Place {
    /// `None`: a keystore is meant.
    pub fn read(&self) -> Result<Option<VaultFile>, Failure> {
        let (Some(address), Some(role_id), Some(secret_id)) =
            (&self.vault_address, &self.vault_role_id, &self.vault_secret_id_file)
        else {
            return Ok(None);
        };
        check_secret(secret_id)?;
        Ok(Some(VaultFile {
            address: address.clone(),
            role_id: role_id.clone(),
            secret_id_file: absolute(secret_id)?,
            mount: self.vault_mount.clone(),
            prefix: self.vault_prefix.clone(),
            approle: self.vault_approle.clone(),
            namespace: self.vault_namespace.clone(),
            ca_file: self.vault_ca.as_deref().map(absolute).transpose()?,
        }))
    }
}

fn absolute(file: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(file).map_err(|error| {
        let message = format!("{} cannot be read: {error}", file.display());
        Failure::bad_input("FILE_NOT_READABLE", message, "check the path and its permissions")
    })
}

impl VaultFile {
    pub fn in_folder(folder: &Path) -> Result<Self, Failure> {
        let file = folder.join(SETTINGS);
        toml::from_str(&read_text(&file)?).map_err(|error| {
            let message = format!("{}: {}", file.display(), error.message());
            Failure::bad_input("SIGNER_VAULT_SETTING", message, "docs/guide/signer.md shows the settings of a Vault")
        })
    }

    pub fn text(&self) -> Result<String, Failure> {
        toml::to_string(self)
            .map_err(|error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar: please report it"))
    }

    pub fn vault(&self, folder: &Path) -> Result<Vault, Failure> {
        let ca = self.ca_file.as_ref().map(|file| folder.join(file));
        let settings = VaultSettings {
            address: self.address.clone(),
            mount: self.mount.clone(),
            prefix: self.prefix.clone(),
            approle: self.approle.clone(),
            namespace: self.namespace.clone(),
            authorities: ca.map(|file| read_text(&file)).transpose()?.map(String::into_bytes),
            role_id: self.role_id.clone(),
            secret_id_file: folder.join(&self.secret_id_file),
            deadline: DEADLINE,
        };
        Vault::new(folder, settings, Arc::new(SystemClock)).map_err(failed)
    }
}
