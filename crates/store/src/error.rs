//! What can go wrong between us and a database, told apart by what the caller must do about it.

use crate::dialect::{self, Class};
use domain::AccountId;
use domain::ledger::BookError;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the database cannot be reached")]
    Unavailable(#[source] sqlx::Error),
    /// Look by key or id what came of it. An operation of the ledger may be sent again as it is: its key tells.
    #[error("the commit got no clear answer: it may or may not have happened")]
    CommitUnknown(#[source] sqlx::Error),
    #[error("the database's disk is full; nothing was written")]
    Full(#[source] sqlx::Error),
    #[error("the database's own files are damaged")]
    Damaged(#[source] sqlx::Error),
    #[error("other writers kept getting in the way; nothing was written")]
    Contention(#[source] sqlx::Error),
    #[error("the database refused what would break the rule {}", .0.name())]
    Violates(Constraint),
    #[error("a batch has at most {most} operations, this one {count}")]
    BatchTooLarge { count: usize, most: usize },
    #[error("the database has no Bursar schema")]
    SchemaMissing,
    #[error("the database's schema is at version {found}, this program needs {wanted}")]
    SchemaOutdated { found: i64, wanted: i64 },
    #[error("the database's schema is at version {found}, newer than the {known} that this program knows")]
    SchemaTooNew { found: i64, known: i64 },
    #[error("migration {version} was applied with another text than this program has")]
    MigrationChanged { version: i64 },
    #[error("not a database URL")]
    BadUrl(#[source] Option<sqlx::Error>),
    #[error("the books are broken: {what}")]
    Corrupt { what: String },
    #[error("the key or hold was taken in the meantime")]
    NeedsHistory,
    #[error("statement {statement} was given the wrong columns")]
    Arity { statement: &'static str },
    #[error("the database reported an error that Bursar does not expect")]
    Database(#[source] sqlx::Error),
}

impl StoreError {
    /// The name of its page in `docs/errors/`.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "DATABASE_UNAVAILABLE",
            Self::CommitUnknown(_) => "COMMIT_UNKNOWN",
            Self::Full(_) => "DATABASE_FULL",
            Self::Contention(_) | Self::NeedsHistory => "DATABASE_CONTENTION",
            Self::Violates(_) => "CONSTRAINT_VIOLATED",
            Self::BatchTooLarge { .. } => "BATCH_TOO_LARGE",
            Self::SchemaMissing => "SCHEMA_MISSING",
            Self::SchemaOutdated { .. } => "SCHEMA_OUTDATED",
            Self::SchemaTooNew { .. } => "SCHEMA_TOO_NEW",
            Self::MigrationChanged { .. } => "MIGRATION_CHANGED",
            Self::BadUrl(_) => "BAD_DATABASE_URL",
            Self::Corrupt { .. } | Self::Damaged(_) => "BOOKS_BROKEN",
            Self::Arity { .. } | Self::Database(_) => "DATABASE_ERROR",
        }
    }

    /// What the reader should do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "check database.url, and that the server runs and lets this user in",
            Self::CommitUnknown(_) => "send the same operations again with the same keys: each takes effect once",
            Self::Full(_) => "free space on the database's disk, then try again",
            Self::Contention(_) | Self::NeedsHistory => "try again; if it lasts, look for long transactions",
            Self::Violates(_) => "this is a bug in Bursar: please report it",
            Self::BatchTooLarge { .. } => "send the operations in smaller batches",
            Self::SchemaMissing | Self::SchemaOutdated { .. } => "run: bursar migrate",
            Self::SchemaTooNew { .. } => "use the newer bursar that migrated this database",
            Self::MigrationChanged { .. } => "use the bursar release that made this database; never edit a migration",
            Self::BadUrl(_) => "use sqlite://path/to/file.db or postgres://user@host/name",
            Self::Corrupt { .. } => "stop writers and run: bursar audit",
            Self::Damaged(_) => "stop writers, keep the files as they are, and restore a backup beside them",
            Self::Arity { .. } | Self::Database(_) => "this is a bug in Bursar: please report it",
        }
    }

    /// Whether the whole transaction may be tried again at once: it certainly left nothing behind.
    pub(crate) const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Contention(_)
                | Self::NeedsHistory
                | Self::Violates(
                    Constraint::MovementKey
                        | Constraint::HoldEnd
                        | Constraint::StatusChangeKey
                        | Constraint::TransferOrder
                )
        )
    }

    /// The same failure, met while committing: whatever is not a clear refusal leaves the outcome unknown.
    pub(crate) fn at_commit(error: sqlx::Error) -> Self {
        match Self::from(error) {
            Self::Unavailable(error) | Self::Database(error) => Self::CommitUnknown(error),
            refused => refused,
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match dialect::classify(&error) {
            Class::Unavailable => Self::Unavailable(error),
            Class::Full => Self::Full(error),
            Class::Damaged => Self::Damaged(error),
            Class::Contention => Self::Contention(error),
            Class::Violates(constraint) => Self::Violates(constraint),
            Class::Other => Self::Database(error),
        }
    }
}

impl From<BookError> for StoreError {
    fn from(error: BookError) -> Self {
        match error {
            BookError::NeedsHistory => Self::NeedsHistory,
            BookError::HoldExceedsFrozen(AccountId(id)) => {
                Self::Corrupt { what: format!("account {id} has less frozen than an open hold of it") }
            }
        }
    }
}

macro_rules! constraints {
    ($($Variant:ident = $name:literal, $sqlite:literal;)*) => {
        /// The rules that the database itself enforces, by their exact names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Constraint { $($Variant),* }

        impl Constraint {
            pub const ALL: &'static [Self] = &[$(Self::$Variant),*];

            /// Its name in the schema, which PostgreSQL reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Variant => $name),* }
            }

            /// What SQLite says when it is broken: it names checks, but lists columns for unique indexes.
            pub(crate) const fn sqlite_message(self) -> &'static str {
                match self { $(Self::$Variant => $sqlite),* }
            }
        }
    };
}

constraints! {
    MovementKey = "movements_key", "UNIQUE constraint failed: movements.op_key, movements.leg";
    HoldEnd = "movements_hold_end", "UNIQUE constraint failed: movements.hold_key";
    TransferId = "transfers_pkey", "UNIQUE constraint failed: transfers.id";
    TransferOrder = "transfers_client_order",
        "UNIQUE constraint failed: transfers.user_id, transfers.client_order_id";
    TransferAmountPositive = "transfers_amount_positive", "CHECK constraint failed: transfers_amount_positive";
    TransferState = "transfers_state", "CHECK constraint failed: transfers_state";
    TransferError = "transfers_error_of_failure", "CHECK constraint failed: transfers_error_of_failure";
    TransferVersion = "transfer_events_pkey",
        "UNIQUE constraint failed: transfer_events.transfer_id, transfer_events.version";
    StatusChangeKey = "account_status_changes_key", "UNIQUE constraint failed: account_status_changes.op_key";
    AmountPositive = "movements_amount_positive", "CHECK constraint failed: movements_amount_positive";
    HoldKeyByAction = "movements_hold_key_by_action", "CHECK constraint failed: movements_hold_key_by_action";
    AvailableNotNegative = "accounts_available_not_negative",
        "CHECK constraint failed: accounts_available_not_negative";
    FrozenNotNegative = "accounts_frozen_not_negative", "CHECK constraint failed: accounts_frozen_not_negative";
    HouseIsSystem = "accounts_house_is_system", "CHECK constraint failed: accounts_house_is_system";
    SystemHasNoBalance = "accounts_system_has_no_balance", "CHECK constraint failed: accounts_system_has_no_balance";
    OneAccountPerOwner = "accounts_owner_kind_asset",
        "UNIQUE constraint failed: accounts.owner, accounts.kind, accounts.asset_id";
    AssetSymbol = "assets_symbol", "UNIQUE constraint failed: assets.symbol";
    AssetLimits = "assets_limits", "CHECK constraint failed: assets_limits";
    ChainName = "chains_name", "UNIQUE constraint failed: chains.name";
    AssetOnChainPair = "asset_on_chain_pair",
        "UNIQUE constraint failed: asset_on_chain.asset_id, asset_on_chain.chain_id";
}
