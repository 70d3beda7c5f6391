//! Why a Vault gave nothing. No variant holds what it sent: that may be a secret.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    #[error("{0}")]
    Setting(&'static str),
    #[error("the Vault cannot be reached: {why}")]
    Unreachable { why: String },
    #[error("the Vault is sealed")]
    Sealed,
    #[error("the Vault does not know this role and secret id, or not from here")]
    Login,
    #[error("the Vault forbids {path} to this role")]
    Forbidden { path: String },
    #[error("the Vault has no {path}")]
    Missing { path: String },
    #[error("the Vault has {path} already")]
    Taken { path: String },
    #[error("the Vault's answer to {path} cannot be used: {why}")]
    Answer { path: String, why: &'static str },
    #[error("the Vault answers {path} with HTTP {status}")]
    Refused { path: String, status: u16 },
}

impl VaultError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Setting(_) => "SIGNER_VAULT_SETTING",
            Self::Unreachable { .. } => "SIGNER_VAULT_UNREACHABLE",
            Self::Sealed => "SIGNER_VAULT_SEALED",
            Self::Login => "SIGNER_VAULT_LOGIN",
            Self::Forbidden { .. } => "SIGNER_VAULT_FORBIDDEN",
            Self::Missing { .. } => "SIGNER_VAULT_SECRET_MISSING",
            Self::Taken { .. } => "SIGNER_VAULT_SECRET_EXISTS",
            Self::Answer { .. } | Self::Refused { .. } => "SIGNER_VAULT_ANSWER",
        }
    }

    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Setting(_) => "docs/guide/signer.md shows the settings of a Vault",
            Self::Unreachable { .. } => "does it run, and is the address and its certificate's authority right?",
            Self::Sealed => "unseal it: bao operator unseal",
            Self::Login => "write a new secret id into its file: bao write -f auth/approle/role/ROLE/secret-id",
            Self::Forbidden { .. } => "docs/guide/signer.md shows the policy that the role needs",
            Self::Missing { .. } => {
                "put the secret back: an older version of it, or from your own copy of the mnemonic"
            }
            Self::Taken { .. } => "bursar signer group adopt takes over a secret that is there",
            Self::Answer { .. } | Self::Refused { .. } => "look at the Vault's own log",
        }
    }
}
