//! How java-tron says no.

use super::state::Owner;
use super::transaction::Id;

/// Why a transaction is not taken: `code` and `message` of `protocol.Return`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TronRefusal {
    pub code: &'static str,
    pub message: String,
}

impl TronRefusal {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub fn signature(reason: &str) -> Self {
        Self::new("SIGERROR", format!("Validate signature error: {reason}"))
    }

    pub fn contract(reason: &str) -> Self {
        Self::new("CONTRACT_VALIDATE_ERROR", format!("Contract validate error : {reason}"))
    }

    pub fn several_contracts(id: &Id, count: usize) -> Self {
        let id = alloy_primitives::hex::encode(id);
        Self::contract(&format!("tx {id} contract size should be exactly 1, this is extend feature ,actual :{count}"))
    }

    pub fn no_account(owner: &Owner) -> Self {
        Self::contract(&format!("account [{}] does not exist", tx::tron::TronAddress(*owner)))
    }

    pub fn resources() -> Self {
        Self::new("BANDWITH_ERROR", "Account resource insufficient error.")
    }

    pub fn duplicate() -> Self {
        Self::new("DUP_TRANSACTION_ERROR", "Dup transaction.")
    }

    pub fn tapos() -> Self {
        Self::new("TAPOS_ERROR", "Tapos check error.")
    }

    pub fn too_big() -> Self {
        Self::new("TOO_BIG_TRANSACTION_ERROR", "Transaction size is too big.")
    }

    pub fn expired() -> Self {
        Self::new("TRANSACTION_EXPIRATION_ERROR", "Transaction expired")
    }

    pub fn other(reason: &str) -> Self {
        Self::new("OTHER_ERROR", format!("Error: {reason}"))
    }
}

/// A call that threw: `{"Error":"class … : …"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub class: &'static str,
    pub message: String,
}

impl Failed {
    pub fn new(class: &'static str, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }

    pub fn validate(message: &str) -> Self {
        Self::new("org.tron.core.exception.ContractValidateException", message)
    }
}
