//! Which treasury file pins the wallets.

use serde::{Deserialize, Serialize};

/// The file is what `bursar apply` was given. Its wallet groups are believed, and not the database's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Treasury {
    pub file: String,
}
