//! What can go wrong between us and a database, told apart by what the caller must do about it.

use crate::dialect::{self, Class};
use domain::AccountId;
use domain::ledger::BookError;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the database cannot be reached")]
    Unavailable(#[source] sqlx::Error),
    /// Look it up by its key or id. An operation of the ledger may be sent again as it is: its key lets it happen once.
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
    #[error("the database takes no writes: it is a standby, or default_transaction_read_only is on")]
    ReadOnly,
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
            Self::Unavailable(_) | Self::ReadOnly => "DATABASE_UNAVAILABLE",
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
            Self::Unavailable(_) => {
                "check database.url; of SQLite: the file, which bursar migrate makes; else: that the server runs and lets this user in"
            }
            Self::ReadOnly => "name the primary in database.url, or let it take writes again",
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
                        | Constraint::WithdrawalOrder
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

/// An error and its causes in one line, for events: what was said of it, and never a driver's own structures. Some errors
/// end with the words of their cause; those are not said again.
pub struct Causes<'a>(pub &'a (dyn std::error::Error + 'static));

impl std::fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        for cause in std::iter::successors(self.0.source(), |error| error.source()) {
            let words = cause.to_string();
            if !said.ends_with(&words) {
                write!(f, ": {words}")?;
            }
            said = words;
        }
        Ok(())
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

            /// What SQLite says when it is broken: it names checks and triggers, but lists columns for unique indexes.
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
    WithdrawalOrder = "withdrawal_requests_client_order",
        "UNIQUE constraint failed: withdrawal_requests.user_id, withdrawal_requests.client_order_id";
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
    // The Bitcoin wallet. In SQLite an id alone is the key, so that its message names no wallet.
    Network = "valid_network", "CHECK constraint failed: valid_network";
    WalletStatus = "valid_wallet_status", "CHECK constraint failed: valid_wallet_status";
    WalletUnread = "check_unread", "CHECK constraint failed: check_unread";
    BlockHeight = "check_height", "CHECK constraint failed: check_height";
    BlockHash = "check_block_hash", "CHECK constraint failed: check_block_hash";
    AddressAccount = "check_account", "CHECK constraint failed: check_account";
    AddressBranch = "check_branch", "CHECK constraint failed: check_branch";
    AddressChildIndex = "check_child_index", "CHECK constraint failed: check_child_index";
    AddressPathPair = "check_path", "CHECK constraint failed: check_path";
    AddressKind = "valid_kind", "CHECK constraint failed: valid_kind";
    AddressScript = "check_script", "CHECK constraint failed: check_script";
    TxHash = "check_tx_hash", "CHECK constraint failed: check_tx_hash";
    TxStatus = "valid_status", "CHECK constraint failed: valid_status";
    TxCoinbaseFlag = "check_is_coinbase_flag", "CHECK constraint failed: check_is_coinbase_flag";
    TxOwnFlag = "check_is_own_flag", "CHECK constraint failed: check_is_own_flag";
    ConfirmedIsPublished = "check_confirmed_published", "CHECK constraint failed: check_confirmed_published";
    CoinbaseNotPending = "check_coinbase_not_pending", "CHECK constraint failed: check_coinbase_not_pending";
    CoinbaseConfirmation = "check_coinbase_confirmation_state",
        "CHECK constraint failed: check_coinbase_confirmation_state";
    GivenUpHasEnded = "check_given_up", "CHECK constraint failed: check_given_up";
    OrphanedIsCoinbase = "check_orphaned_coinbase", "CHECK constraint failed: check_orphaned_coinbase";
    InputIndex = "check_input_index", "CHECK constraint failed: check_input_index";
    InputPrevHash = "check_prev_hash", "CHECK constraint failed: check_prev_hash";
    InputPrevIndex = "check_prev_index", "CHECK constraint failed: check_prev_index";
    InputActiveFlag = "check_active_flag", "CHECK constraint failed: check_active_flag";
    OutputIndex = "check_output_index", "CHECK constraint failed: check_output_index";
    OutputAmount = "check_utxo_amount", "CHECK constraint failed: check_utxo_amount";
    OutputValidFlag = "check_valid_flag", "CHECK constraint failed: check_valid_flag";
    BlockConnectedFlag = "check_connected_flag", "CHECK constraint failed: check_connected_flag";
    SpentInputIndex = "check_spent_input_index", "CHECK constraint failed: check_spent_input_index";
    SpentPair = "check_spent_tx_and_index_pair", "CHECK constraint failed: check_spent_tx_and_index_pair";
    NotSelfSpent = "check_not_self_spent", "CHECK constraint failed: check_not_self_spent";
    ConfirmedTotal = "check_confirmed_total", "CHECK constraint failed: check_confirmed_total";
    ConfirmedCount = "check_confirmed_count", "CHECK constraint failed: check_confirmed_count";
    UnconfirmedTotal = "check_unconfirmed_total", "CHECK constraint failed: check_unconfirmed_total";
    UnconfirmedCount = "check_unconfirmed_count", "CHECK constraint failed: check_unconfirmed_count";
    NotSelfReplacement = "check_not_self_replacement", "CHECK constraint failed: check_not_self_replacement";
    LockId = "check_lock_id", "CHECK constraint failed: check_lock_id";
    TransactionLabel = "check_transaction_label", "CHECK constraint failed: check_transaction_label";
    AddressLabel = "check_address_label", "CHECK constraint failed: check_address_label";
    EventStatus = "valid_event_status", "CHECK constraint failed: valid_event_status";
    WalletName = "uidx_wallets_name", "UNIQUE constraint failed: wallets.name";
    BlockId = "pidx_blocks", "UNIQUE constraint failed: blocks.block_height";
    OneBlockPerHash = "uidx_blocks_hash", "UNIQUE constraint failed: blocks.block_hash";
    AddressId = "pidx_addresses", "UNIQUE constraint failed: addresses.id";
    OneOwnerPerScript = "uidx_addresses_script", "UNIQUE constraint failed: addresses.script_pub_key";
    OneAddressPerPath = "uidx_addresses_path",
        "UNIQUE constraint failed: addresses.wallet_id, addresses.account, addresses.kind, addresses.branch, addresses.child_index";
    TxId = "pidx_transactions", "UNIQUE constraint failed: transactions.id";
    OneRowPerTx = "uidx_transactions_hash", "UNIQUE constraint failed: transactions.tx_hash, transactions.wallet_id";
    InputId = "pidx_tx_inputs",
        "UNIQUE constraint failed: tx_inputs.wallet_id, tx_inputs.tx_id, tx_inputs.input_index";
    OneValidSpender = "uidx_tx_inputs_active",
        "UNIQUE constraint failed: tx_inputs.prev_hash, tx_inputs.prev_index, tx_inputs.wallet_id";
    OutputId = "pidx_utxos", "UNIQUE constraint failed: utxos.id";
    OneRowPerOutput = "uidx_utxos_outpoint",
        "UNIQUE constraint failed: utxos.wallet_id, utxos.tx_id, utxos.output_index";
    AccountTotal = "pidx_account_totals", "UNIQUE constraint failed: account_totals.wallet_id, account_totals.account";
    ReplacementId = "pidx_tx_replacements", "UNIQUE constraint failed: tx_replacements.id";
    OneEdgePerPair = "uidx_tx_replacements_edge",
        "UNIQUE constraint failed: tx_replacements.wallet_id, tx_replacements.replaced_tx_id, tx_replacements.replacement_tx_id";
    OneLeasePerOutput = "pidx_utxo_leases", "UNIQUE constraint failed: utxo_leases.wallet_id, utxo_leases.utxo_id";
    Claimant = "check_claimant", "CHECK constraint failed: check_claimant";
    OneClaimPerOutput = "pidx_utxo_claims", "UNIQUE constraint failed: utxo_claims.wallet_id, utxo_claims.utxo_id";
    OneLabelPerTx = "pidx_transaction_labels",
        "UNIQUE constraint failed: transaction_labels.wallet_id, transaction_labels.tx_id";
    OneLabelPerAddress = "pidx_address_labels",
        "UNIQUE constraint failed: address_labels.wallet_id, address_labels.address_id";
    EventId = "pidx_transaction_events", "UNIQUE constraint failed: transaction_events.id";
    WalletsOnOneNetwork = "trg_wallet_network", "trg_wallet_network";
    OutputValid = "trg_utxo_valid", "trg_utxo_valid";
    OutputSpender = "trg_utxo_spender", "trg_utxo_spender";
    InputActive = "trg_input_active", "trg_input_active";
    TransactionFixed = "trg_transaction_fixed", "trg_transaction_fixed";
    InputFixed = "trg_input_fixed", "trg_input_fixed";
    OutputFixed = "trg_output_fixed", "trg_output_fixed";
    OutputKept = "trg_output_kept", "trg_output_kept";
    EventFixed = "trg_event_fixed", "trg_event_fixed";
    // Wallet groups, operation wallets, users' wallets.
    GroupName = "wallet_groups_name", "UNIQUE constraint failed: wallet_groups.name";
    GroupXpub = "wallet_groups_xpub", "UNIQUE constraint failed: wallet_groups.xpub";
    GroupFamily = "wallet_groups_family", "CHECK constraint failed: wallet_groups_family";
    GroupPurpose = "wallet_groups_purpose", "CHECK constraint failed: wallet_groups_purpose";
    GroupActiveFlag = "wallet_groups_active_flag", "CHECK constraint failed: wallet_groups_active_flag";
    OperationWalletAddress = "operation_wallets_address",
        "UNIQUE constraint failed: operation_wallet_addresses.chain_id, operation_wallet_addresses.address";
    OperationWalletIndex = "operation_wallets_index",
        "UNIQUE constraint failed: operation_wallet_addresses.wallet_group_id, operation_wallet_addresses.derivation_index, operation_wallet_addresses.chain_id";
    OperationWalletIndexRange = "operation_wallets_index_range",
        "CHECK constraint failed: operation_wallets_index_range";
    OperationWalletAddressLength = "operation_wallets_address_length",
        "CHECK constraint failed: operation_wallets_address_length";
    OperationWalletRole = "operation_wallets_role", "CHECK constraint failed: operation_wallets_role";
    OperationWalletCold = "operation_wallets_cold", "CHECK constraint failed: operation_wallets_cold";
    OperationWalletActiveFlag = "operation_wallets_active_flag",
        "CHECK constraint failed: operation_wallets_active_flag";
    UserWalletOwner = "user_wallets_user",
        "UNIQUE constraint failed: user_wallets.user_id, user_wallets.wallet_group_id";
    UserWalletAddress = "user_wallets_address", "UNIQUE constraint failed: user_wallets.address";
    UserWalletUserRange = "user_wallets_user_range", "CHECK constraint failed: user_wallets_user_range";
    UserWalletIndex = "user_wallets_index_is_user", "CHECK constraint failed: user_wallets_index_is_user";
    UserWalletAddressLength = "user_wallets_address_length", "CHECK constraint failed: user_wallets_address_length";
    GroupFixed = "trg_wallet_group_fixed", "trg_wallet_group_fixed";
    GroupKept = "trg_wallet_group_kept", "trg_wallet_group_kept";
    OperationWalletFixed = "trg_operation_wallet_fixed", "trg_operation_wallet_fixed";
    OperationWalletKept = "trg_operation_wallet_kept", "trg_operation_wallet_kept";
    UserWalletFixed = "trg_user_wallet_fixed", "trg_user_wallet_fixed";
}
