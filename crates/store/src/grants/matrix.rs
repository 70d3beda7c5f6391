//! Which table a role reads, adds to, changes and removes from. What is not said here is refused by the server.
//!
//! A row is locked (`FOR UPDATE`) only by who may change a column of it; a row of history has none that anybody may change. Triggers run with
//! the rights of who writes, so what they change stands here too; foreign keys are looked up with the owner's, and need nothing. A number that the
//! database itself gives to a row needs no right to its counter.

use std::collections::{BTreeMap, BTreeSet};

/// Who logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DatabaseRole {
    /// `bursar serve --only-api`: customers' requests and internal transfers.
    Api,
    /// `bursar run deposits`.
    Deposits,
    /// `bursar run balance-sync`.
    BalanceSync,
    /// `bursar run rules`.
    Rules,
    /// `bursar run outbound`.
    Outbound,
    /// `bursar run confirm`.
    Confirm,
    /// `bursar run withdrawals`.
    Withdrawals,
    /// `bursar run checks`.
    Checks,
    /// `bursar utxo follow`: Bitcoin's blocks.
    Follower,
    /// `bursar serve`: all of the above but the balance sync and the follower, in one process and with one log-in.
    Serve,
    /// People: jobs, lanes, deposits, transfers, wallets.
    Operator,
    /// People who change what holds: the treasury file, policies, prices, adjustments by hand.
    Administrator,
    /// Reads everything: the audit, lists, and the views of the sources.
    Monitor,
}

impl DatabaseRole {
    pub const ALL: [Self; 13] = [
        Self::Api,
        Self::Deposits,
        Self::BalanceSync,
        Self::Rules,
        Self::Outbound,
        Self::Confirm,
        Self::Withdrawals,
        Self::Checks,
        Self::Follower,
        Self::Serve,
        Self::Operator,
        Self::Administrator,
        Self::Monitor,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Deposits => "deposits",
            Self::BalanceSync => "balance_sync",
            Self::Rules => "rules",
            Self::Outbound => "outbound",
            Self::Confirm => "confirm",
            Self::Withdrawals => "withdrawals",
            Self::Checks => "checks",
            Self::Follower => "follower",
            Self::Serve => "serve",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
            Self::Monitor => "monitor",
        }
    }

    /// What the server calls it.
    pub fn login(self, prefix: &str) -> String {
        format!("{prefix}{}", self.name())
    }

    /// The lines of the matrix that are its own.
    const fn lines(self) -> &'static [&'static [Line]] {
        match self {
            Self::Api => &[COMMON, NUMBERS, SIGNER, POSTING, OPENING, USER_WALLETS, API],
            Self::Deposits => &[COMMON, POSTING, OPENING, ENTRIES, DEPOSITS],
            Self::BalanceSync => &[COMMON, BALANCE_SYNC],
            Self::Rules => &[COMMON, NUMBERS, JOBS, RULES],
            Self::Outbound => &[COMMON, NUMBERS, SIGNER, LANES, OUTBOUND, COINS],
            Self::Confirm => &[COMMON, NUMBERS, SIGNER, LANES, CONFIRM],
            Self::Withdrawals => &[COMMON, NUMBERS, SIGNER, POSTING, OPENING, JOBS, WITHDRAWALS],
            Self::Checks => &[COMMON, SIGNER, POSTING, CHECKS],
            Self::Follower => &[COMMON, ENTRIES, COINS, FOLLOWER],
            Self::Serve => &[],
            Self::Operator => &[ALL, NUMBERS, SIGNER, POSTING, OPENING, ENTRIES, JOBS, COINS, USER_WALLETS, OPERATOR],
            Self::Administrator => {
                &[ALL, NUMBERS, SIGNER, POSTING, OPENING, ENTRIES, JOBS, COINS, USER_WALLETS, OPERATOR, ADMINISTRATOR]
            }
            Self::Monitor => &[ALL, MONITOR],
        }
    }

    /// The roles whose work it does.
    const fn parts(self) -> &'static [Self] {
        match self {
            Self::Serve => &[
                Self::Api,
                Self::Deposits,
                Self::Rules,
                Self::Outbound,
                Self::Confirm,
                Self::Withdrawals,
                Self::Checks,
            ],
            Self::Api
            | Self::Deposits
            | Self::BalanceSync
            | Self::Rules
            | Self::Outbound
            | Self::Confirm
            | Self::Withdrawals
            | Self::Checks
            | Self::Follower
            | Self::Operator
            | Self::Administrator
            | Self::Monitor => &[],
        }
    }
}

/// What a role may do with one table or view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRights {
    pub read: bool,
    pub add: bool,
    /// Which columns. Never a whole table: a column that comes later is nobody's until it stands here.
    pub change: BTreeSet<&'static str>,
    pub remove: bool,
}

/// Tables of which whoever adds a row names these columns and no other. The rest is the row's number, which the database gives: whoever could choose it
/// would choose the place of the row in a history that is read by its numbers.
const ADDED_COLUMNS: [(&str, &[&str]); 3] = [
    ("operator_log", &["operator", "door", "action", "subject", "reason", "request_id", "outcome", "at"]),
    ("withdrawal_assignments", &["withdrawal_id", "operator_id", "actor", "reason", "at"]),
    ("withdrawal_addresses", &["user_id", "chain_id", "address", "label", "added_at", "removed_at"]),
];

/// `None`: whoever adds a row may name all of its columns.
pub fn added_columns(table: &str) -> Option<&'static [&'static str]> {
    ADDED_COLUMNS.iter().find(|(name, _)| *name == table).map(|(_, columns)| *columns)
}

enum Line {
    Read(&'static [&'static str]),
    Add(&'static [&'static str]),
    Change(&'static str, &'static [&'static str]),
    /// Only what is no history: leases that have ended, and blocks that the chain has left.
    Remove(&'static [&'static str]),
}
use Line::{Add, Change, Read, Remove};

/// Every table and view that the role may do something with.
pub fn rights_of(role: DatabaseRole) -> BTreeMap<&'static str, TableRights> {
    let mut all: BTreeMap<&'static str, TableRights> = BTreeMap::new();
    let parts = role.parts().iter().flat_map(|part| part.lines());
    for line in role.lines().iter().chain(parts).copied().flatten() {
        match line {
            Read(tables) => tables.iter().copied().for_each(|table| all.entry(table).or_default().read = true),
            Add(tables) => tables.iter().copied().for_each(|table| all.entry(table).or_default().add = true),
            Remove(tables) => tables.iter().copied().for_each(|table| all.entry(table).or_default().remove = true),
            Change(table, columns) => all.entry(*table).or_default().change.extend(columns.iter().copied()),
        }
    }
    all
}

/// The matrix as docs/guide/roles.md has it: r reads, a adds, c changes columns, x removes; then which columns.
pub fn markdown() -> String {
    let all: Vec<(DatabaseRole, BTreeMap<&str, TableRights>)> =
        DatabaseRole::ALL.iter().map(|role| (*role, rights_of(*role))).collect();
    let names: Vec<&str> = all.iter().map(|(role, _)| role.name()).collect();
    let mut lines = vec![format!("| | {} |", names.join(" | ")), format!("|---|{}", "---|".repeat(names.len()))];
    for table in TABLES.iter().chain(VIEWS) {
        let cell = |rights: &BTreeMap<&str, TableRights>| {
            let rights = rights.get(table).cloned().unwrap_or_default();
            let letters =
                [(rights.read, 'r'), (rights.add, 'a'), (!rights.change.is_empty(), 'c'), (rights.remove, 'x')];
            letters.into_iter().filter(|(has, _)| *has).map(|(_, letter)| letter).collect::<String>()
        };
        let cells: Vec<String> = all.iter().map(|(_, rights)| cell(rights)).collect();
        lines.push(format!("| `{table}` | {} |", cells.join(" | ")));
    }
    lines.extend(["".to_owned(), "| changes | in | who |".to_owned(), "|---|---|---|".to_owned()]);
    for table in TABLES {
        let mut by_columns: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (role, rights) in &all {
            for column in rights.get(table).map(|rights| &rights.change).into_iter().flatten() {
                by_columns.entry(column).or_default().push(role.name());
            }
        }
        let mut groups: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
        for (column, roles) in by_columns {
            groups.entry(roles).or_default().push(column);
        }
        let mut rows: Vec<(String, String)> =
            groups.into_iter().map(|(roles, columns)| (columns.join(", "), roles.join(", "))).collect();
        rows.sort();
        lines.extend(rows.into_iter().map(|(columns, roles)| format!("| `{table}` | {columns} | {roles} |")));
    }
    lines.join("\n")
}

// ---- the tables --------------------------------------------------------------------------------------------

/// Every table, in the order in which the migrations made them. A test compares them with the schema: a table that is not here has no rights, and
/// nobody would notice.
pub const TABLES: &[&str] = &[
    "schema_migrations",
    "assets",
    "chains",
    "asset_on_chain",
    "setting_changes",
    "accounts",
    "account_status_changes",
    "movements",
    "checkpoints",
    "journal_marks",
    "transfers",
    "transfer_events",
    "transfer_days",
    "nodes",
    "wallets",
    "blocks",
    "addresses",
    "transactions",
    "tx_inputs",
    "utxos",
    "account_totals",
    "tx_replacements",
    "utxo_leases",
    "transaction_labels",
    "address_labels",
    "transaction_events",
    "unproven_transfers",
    "spot_pair",
    "spot_pair_events",
    "spot_pair_accepted",
    "transfer_stops",
    "utxo_followed",
    "utxo_claims",
    "wallet_groups",
    "operation_wallet_addresses",
    "user_wallets",
    "address_texts",
    "chain_cursors",
    "chain_blocks",
    "chain_entries",
    "wallet_balances",
    "chain_residues",
    "deposits",
    "deposit_events",
    "chain_findings",
    "signer_heads",
    "outbound_lanes",
    "outbound_leases",
    "outbound_slots",
    "outbound_jobs",
    "outbound_job_events",
    "outbound_slot_jobs",
    "outbound_attempts",
    "gas_topup_rules",
    "consolidation_rules",
    "hot_bands",
    "asset_prices",
    "rule_cursors",
    "treasury_jobs",
    "outbound_approvals",
    "withdrawal_policies",
    "withdrawal_requests",
    "withdrawal_events",
    "withdrawal_jobs",
    "withdrawal_days",
    "withdrawal_addresses",
    "outbound_job_coins",
    "withdrawal_approvals",
    "operators",
    "operator_keys",
    "operator_log",
    "withdrawal_assignments",
    "withdrawal_check_rules",
    "withdrawal_travel_rules",
    "withdrawal_checks",
    "withdrawal_imports",
];

/// Every view: the sources' own names.
pub const VIEWS: &[&str] = &[
    "spendable_utxos",
    "sources.jobs",
    "gas_topup_queue",
    "consolidation_queue",
    "withdrawal_queue",
    "sources.wallet_groups",
    "sources.operation_wallet_addresses",
    "sources.wallet_balances",
    "sources.chains",
    "sources.assets",
    "sources.asset_on_chain",
    "sources.gas_topup_rules",
    "sources.consolidation_rules",
    "sources.withdrawal_requests",
];

/// Where the sources' views and their functions are.
pub(super) const FUNCTIONS_SCHEMA: &str = "sources";

// ---- what several do ---------------------------------------------------------------------------------------

/// What holds: the schema's version, chains, coins, and the house's wallets.
const COMMON: &[Line] = &[Read(&[
    "schema_migrations",
    "assets",
    "chains",
    "asset_on_chain",
    "wallet_groups",
    "operation_wallet_addresses",
    "user_wallets",
    // Every process reads the settings as a whole when it starts.
    "gas_topup_rules",
    "consolidation_rules",
    "hot_bands",
    "withdrawal_policies",
])];

/// A number to make ids with.
const NUMBERS: &[Line] = &[Read(&["nodes"]), Add(&["nodes"]), Change("nodes", &["holder", "expires_at"])];

/// How far a signer's log was when it last answered.
const SIGNER: &[Line] = &[
    Read(&["signer_heads"]),
    Add(&["signer_heads"]),
    Change("signer_heads", &["entries", "hash", "proof", "updated_at"]),
];

/// Operations of the ledger.
const POSTING: &[Line] =
    &[Read(&["accounts", "movements"]), Add(&["movements"]), Change("accounts", &["available", "frozen"])];

/// Accounts are made when they are first needed.
const OPENING: &[Line] = &[Add(&["accounts"])];

/// What a chain shows: entries, balances, deposits that are detected or taken back, and what people should know.
const ENTRIES: &[Line] = &[
    Read(&[
        "address_texts",
        "chain_cursors",
        "chain_blocks",
        "chain_entries",
        "wallet_balances",
        "deposits",
        "chain_findings",
        // Whether a spend is a payment of ours.
        "outbound_lanes",
        "outbound_slots",
        "outbound_attempts",
        "outbound_slot_jobs",
        "outbound_jobs",
    ]),
    Add(&["chain_entries", "wallet_balances", "deposits", "deposit_events", "chain_findings"]),
    Change("chain_entries", &["alive", "posting"]),
    Change("wallet_balances", &["on_chain_balance_raw", "changed_height", "checked_height", "updated_at"]),
    Change(
        "deposits",
        &["state", "version", "user_id", "reason", "amount", "repaid", "left_over", "receivable", "updated_at"],
    ),
    // Coins left that nothing of ours explains: the group sends nothing more.
    Change("wallet_groups", &["outbound_stopped", "updated_at"]),
];

/// What changes in a withdrawal when it goes on. What was asked for is none of it.
const REQUEST_STEPS: &[&str] =
    &["status", "version", "jobs", "payee_id", "queued_at", "judged", "wallet_group", "updated_at"];

/// New jobs, each with the wallet that pays.
const JOBS: &[Line] = &[
    // Slots: whether a lane waits for what another program has sent.
    Read(&["outbound_lanes", "outbound_leases", "outbound_jobs", "outbound_slots"]),
    Add(&["outbound_lanes", "outbound_leases", "outbound_jobs", "outbound_job_events", "outbound_job_coins"]),
    Change("operation_wallet_addresses", &["last_used_at"]),
];

/// Lanes are held, and jobs go on to their next states.
const LANES: &[Line] = &[
    Read(&[
        "outbound_lanes",
        "outbound_leases",
        "outbound_slots",
        "outbound_jobs",
        "outbound_slot_jobs",
        "outbound_attempts",
        "chain_cursors",
    ]),
    Add(&["outbound_job_events", "chain_findings"]),
    Change("outbound_lanes", &["stopped", "updated_at"]),
    Change("outbound_leases", &["worker", "fence", "lease_until"]),
    Change(
        "outbound_jobs",
        &["state", "version", "tries", "rounds", "slot_id", "bump", "short", "reason", "due_at", "updated_at"],
    ),
    Change("outbound_slots", &["state", "reason", "updated_at"]),
    // Bitcoin: what a slot held is free when the slot is over.
    Read(&["blocks", "utxos", "transactions", "utxo_leases"]),
    Remove(&["utxo_leases"]),
];

/// Bitcoin's coins: leased, spent, and what becomes of the transactions that spend them.
const COINS: &[Line] = &[
    Read(&[
        "wallets",
        "blocks",
        "addresses",
        "transactions",
        "tx_inputs",
        "utxos",
        "account_totals",
        "tx_replacements",
        "utxo_leases",
        "transaction_events",
        "utxo_followed",
        "utxo_claims",
    ]),
    Add(&["transactions", "tx_inputs", "utxos", "tx_replacements", "utxo_leases", "transaction_events", "utxo_claims"]),
    Change("transactions", &["status", "block_height", "is_own", "given_up"]),
    // By a trigger, with the transaction that they belong to.
    Change("tx_inputs", &["active"]),
    Change("utxos", &["valid", "spent_by_tx_id", "spent_input_index"]),
    Change("account_totals", &["confirmed", "confirmed_count", "unconfirmed", "unconfirmed_count"]),
    Change("utxo_leases", &["external_lock_id", "expires_at"]),
    Change("utxo_claims", &["claimant"]),
    Remove(&["utxo_leases", "utxo_claims"]),
];

/// A user gets a wallet, and Bitcoin's follower watches its script.
const USER_WALLETS: &[Line] = &[
    Read(&["address_texts", "addresses", "account_totals", "wallets", "utxo_followed"]),
    Add(&["user_wallets", "address_texts", "addresses", "account_totals", "wallets"]),
    Change("addresses", &["kind", "branch", "child_index"]),
    Change("utxo_followed", &["addresses"]),
];

// ---- one by one --------------------------------------------------------------------------------------------

/// Customers: transfers, balances, addresses, deposits, withdrawals asked for. It makes no job and touches no chain's books.
const API: &[Line] = &[
    Read(&[
        "transfers",
        "transfer_events",
        "transfer_days",
        "transfer_stops",
        "unproven_transfers",
        "spot_pair",
        "spot_pair_accepted",
        "checkpoints",
        "chain_cursors",
        "chain_findings",
        // What has left its chain and is not taken back yet.
        "chain_entries",
        "deposits",
        "deposit_events",
        "withdrawal_policies",
        "withdrawal_requests",
        "withdrawal_events",
        "withdrawal_days",
        "withdrawal_addresses",
        "withdrawal_approvals",
        "withdrawal_jobs",
        "withdrawal_checks",
        "withdrawal_check_rules",
        "withdrawal_travel_rules",
        // Operators, who come through the same door.
        "operators",
        "operator_keys",
        "operator_log",
        "withdrawal_assignments",
        "outbound_job_events",
        // What operators watch: the costs of the house, and the Bitcoin wallets' leases.
        "wallet_balances",
        "asset_prices",
        "treasury_jobs",
        "outbound_lanes",
        "outbound_jobs",
        "outbound_slots",
        "outbound_slot_jobs",
        "outbound_attempts",
        "utxos",
        "transactions",
        "utxo_leases",
        "utxo_claims",
        "blocks",
    ]),
    Add(&[
        "transfers",
        "transfer_events",
        "transfer_days",
        "transfer_stops",
        "spot_pair_events",
        "spot_pair_accepted",
        "unproven_transfers",
        "withdrawal_requests",
        "withdrawal_events",
        "withdrawal_days",
        "withdrawal_addresses",
        "withdrawal_approvals",
        "withdrawal_checks",
        "withdrawal_travel_rules",
        "withdrawal_assignments",
        "operator_log",
    ]),
    // An operator's row is only locked, so that nobody acts who is being switched off.
    Change("operators", &["updated_at"]),
    Change("withdrawal_checks", &["state", "due_at", "updated_at"]),
    // What was signed is tried now. A lane's row is only locked, so that nothing is signed meanwhile.
    Change("outbound_jobs", &["due_at", "updated_at"]),
    Change("outbound_lanes", &["updated_at"]),
    Change("transfers", &["state", "error", "tries", "due_at", "alerted_at", "version", "updated_at"]),
    Change("transfer_days", &["used"]),
    Change("spot_pair", &["engine_id", "told", "heard", "sequence"]),
    Change("withdrawal_requests", REQUEST_STEPS),
    Change("withdrawal_days", &["used"]),
    Change("withdrawal_addresses", &["removed_at"]),
    // Ended leases of the Bitcoin wallets are swept by whoever serves.
    Change("utxo_leases", &["expires_at"]),
    Change("wallets", &["most_chained", "most_chained_bytes"]),
    Remove(&["utxo_leases"]),
];

/// It reads a chain, proves its blocks, and credits what is deep enough.
const DEPOSITS: &[Line] = &[
    // Checkpoints: what the house has when it begins a chain.
    Read(&["chain_residues", "deposit_events", "rule_cursors", "checkpoints"]),
    Add(&["chain_cursors", "chain_blocks", "chain_residues"]),
    Change(
        "chain_cursors",
        &[
            "proven_height",
            "worker",
            "fence",
            "lease_until",
            "halted",
            "looked_after",
            "rescan_from",
            "rescan_to",
            "updated_at",
        ],
    ),
    Change("chain_residues", &["residue_raw", "opening"]),
    // What it brings back into the past, rules look at again.
    Change("rule_cursors", &["passed_address", "passed_at"]),
    Remove(&["chain_blocks"]),
    // Who has spent what a chain takes back is frozen.
    Read(&["account_status_changes"]),
    Add(&["account_status_changes"]),
    Change("accounts", &["status"]),
    // Bitcoin: what was stored before the chain's books began.
    Read(&["wallets", "blocks", "addresses", "transactions", "utxos", "transaction_events"]),
];

/// It looks at balances, and writes down what no block explains; an earlier look that has come true ends. A deposit it can only doubt (`reason`), or no
/// longer doubt: it makes none, and says neither whose one is nor how far it is. So what it writes credits no customer: an entry waits for the deposit
/// worker, which books a payment to a customer only with a deposit. What the ledger has made of an entry (`posting`) follows from `alive` by a trigger.
const BALANCE_SYNC: &[Line] = &[
    Read(&["address_texts", "chain_cursors", "chain_blocks", "chain_entries", "wallet_balances", "deposits"]),
    Add(&["chain_entries", "wallet_balances", "chain_findings"]),
    Change("chain_entries", &["alive"]),
    Change("wallet_balances", &["on_chain_balance_raw", "changed_height", "checked_height", "updated_at"]),
    Change("deposits", &["reason"]),
    Change("chain_cursors", &["looked_after", "updated_at"]),
];

/// It asks for gas and sweeps, and keeps why an address waits.
const RULES: &[Line] = &[
    Read(&[
        "chain_cursors",
        "chain_blocks",
        "chain_entries",
        "wallet_balances",
        "gas_topup_rules",
        "consolidation_rules",
        "hot_bands",
        "asset_prices",
        "rule_cursors",
        "treasury_jobs",
        "outbound_slots",
        "outbound_slot_jobs",
        "outbound_attempts",
        "outbound_job_coins",
        // Bitcoin's coins, which rules only look at.
        "wallets",
        "blocks",
        "addresses",
        "transactions",
        "utxos",
        "account_totals",
        "utxo_leases",
        "utxo_claims",
    ]),
    Add(&["rule_cursors", "treasury_jobs"]),
    Change(
        "rule_cursors",
        &["worker", "fence", "lease_until", "passed_address", "passed_at", "evaluated_height", "updated_at"],
    ),
    Change("wallet_balances", &["needs_gas", "needs_consolidation", "waits"]),
    // A job of its own that nothing was signed for is taken back.
    Change(
        "outbound_jobs",
        &["state", "version", "tries", "rounds", "slot_id", "bump", "short", "reason", "due_at", "updated_at"],
    ),
    Change("outbound_lanes", &["updated_at"]),
];

/// It gives jobs their slots, has them signed, and tells the nodes.
const OUTBOUND: &[Line] = &[
    // Treasury's jobs: of which rule a top-up is, which may have come to its end meanwhile.
    Read(&["outbound_approvals", "outbound_job_coins", "chain_blocks", "treasury_jobs"]),
    Add(&["outbound_slots", "outbound_slot_jobs", "outbound_attempts"]),
    Change("outbound_lanes", &["known_nonce"]),
    // Whose a nonce is by the signer's log.
    Change("outbound_slots", &["holder"]),
    Change("outbound_attempts", &["signed", "tx_hash", "refused", "told_at", "said", "updated_at"]),
    Change("outbound_approvals", &["refused"]),
];

/// It asks the chain what became of what was sent.
const CONFIRM: &[Line] =
    &[Change("outbound_attempts", &["mined_height", "mined_block", "paid", "fee_raw", "told_at", "updated_at"])];

/// What is approved gets a job or is settled inside; what became of jobs is settled or given back.
const WITHDRAWALS: &[Line] = &[
    Read(&[
        "withdrawal_policies",
        "withdrawal_requests",
        "withdrawal_events",
        "withdrawal_jobs",
        "withdrawal_days",
        "withdrawal_approvals",
        "withdrawal_checks",
        // Whose key was switched off: that signature goes to no signer.
        "operators",
        "operator_keys",
        // What is there already is not copied again.
        "outbound_approvals",
        "chain_findings",
    ]),
    // Who ends has no question open.
    Change("withdrawal_checks", &["state", "updated_at"]),
    // What people have signed for a withdrawal travels with its job.
    Add(&["withdrawal_events", "withdrawal_jobs", "outbound_approvals", "chain_findings"]),
    Change("withdrawal_requests", REQUEST_STEPS),
    Change("withdrawal_days", &["used"]),
];

/// It asks outside about withdrawals, and refuses what is refused there.
const CHECKS: &[Line] = &[
    Read(&[
        "withdrawal_requests",
        "withdrawal_policies",
        "withdrawal_checks",
        "withdrawal_check_rules",
        "withdrawal_travel_rules",
        "withdrawal_jobs",
        "withdrawal_days",
        "outbound_jobs",
    ]),
    Add(&["withdrawal_events"]),
    Change(
        "withdrawal_checks",
        &["state", "tries", "due_at", "claimed_until", "trouble", "reason", "digest", "answered_at", "updated_at"],
    ),
    Change("withdrawal_requests", REQUEST_STEPS),
    Change("withdrawal_days", &["used"]),
];

/// It reads Bitcoin's blocks into the wallets and the chain's books.
const FOLLOWER: &[Line] = &[
    Read(&["spot_pair"]),
    Add(&["blocks"]),
    Change("blocks", &["connected"]),
    Change("wallets", &["status", "unread_from", "most_chained", "most_chained_bytes"]),
    Change("utxo_followed", &["rescan_next", "mark"]),
    Change("chain_cursors", &["proven_height", "updated_at"]),
    Remove(&["blocks"]),
];

const ALL: &[Line] = &[Read(TABLES)];

const MONITOR: &[Line] = &[Read(VIEWS)];

/// What people do with `bursar job`, `lane`, `rule`, `deposit`, `transfer`, `account`, `wallet`, `chain`, `utxo` and `reconcile`.
const OPERATOR: &[Line] = &[
    Read(VIEWS),
    Add(&[
        "account_status_changes",
        "transfer_events",
        "transfer_stops",
        "unproven_transfers",
        "spot_pair_events",
        "spot_pair_accepted",
        "blocks",
        "transaction_labels",
        "address_labels",
        "outbound_approvals",
        "withdrawal_events",
        "withdrawal_approvals",
        "withdrawal_assignments",
        "operator_log",
        "treasury_jobs",
        "rule_cursors",
        "chain_blocks",
    ]),
    Change("accounts", &["status"]),
    Change("transfers", &["state", "error", "tries", "due_at", "alerted_at", "version", "updated_at"]),
    Change("transfer_stops", &["resumed_at", "resumed_by", "second", "resume_reason"]),
    Change("spot_pair", &["engine_id", "told", "heard", "sequence"]),
    Change(
        "chain_cursors",
        &["proven_height", "fence", "lease_until", "halted", "rescan_from", "rescan_to", "updated_at"],
    ),
    Change("chain_findings", &["resolved_by", "resolved_at"]),
    Change("chain_residues", &["residue_raw", "opening"]),
    // `bursar rule eval` does what rules do.
    Change(
        "rule_cursors",
        &["worker", "fence", "lease_until", "passed_address", "passed_at", "evaluated_height", "updated_at"],
    ),
    Change("wallet_balances", &["needs_gas", "needs_consolidation", "waits"]),
    Change("outbound_lanes", &["stopped", "known_nonce", "updated_at"]),
    // Who has a lane whose job people judge writes nothing more.
    Change("outbound_leases", &["worker", "fence", "lease_until"]),
    Change(
        "outbound_jobs",
        &[
            "state",
            "version",
            "tries",
            "rounds",
            "slot_id",
            "bump",
            "short",
            "give_up",
            "judged",
            "reason",
            "due_at",
            "updated_at",
        ],
    ),
    Change("outbound_slots", &["state", "reason", "updated_at"]),
    Change("outbound_attempts", &["refused", "updated_at"]),
    Change("wallets", &["status", "unread_from"]),
    Change("utxo_followed", &["rescan_next", "mark"]),
    Change("transaction_labels", &["label", "actor", "updated_at"]),
    Change("address_labels", &["label", "actor", "updated_at"]),
    Change("withdrawal_requests", REQUEST_STEPS),
    Change("withdrawal_days", &["used"]),
    Change("withdrawal_checks", &["state", "due_at", "updated_at"]),
    Change("operators", &["updated_at"]),
    Remove(&["transaction_labels", "address_labels", "chain_blocks"]),
];

/// What `bursar apply`, `adjust` and `treasury price` do beside that, and policies.
const ADMINISTRATOR: &[Line] = &[
    Add(&[
        "assets",
        "chains",
        "asset_on_chain",
        "setting_changes",
        "wallet_groups",
        "operation_wallet_addresses",
        "gas_topup_rules",
        "consolidation_rules",
        "hot_bands",
        "asset_prices",
        "withdrawal_policies",
        "withdrawal_check_rules",
        "operators",
        "operator_keys",
        // Another program's withdrawals are taken over.
        "withdrawal_imports",
        "withdrawal_requests",
        "withdrawal_checks",
        "withdrawal_days",
        "withdrawal_jobs",
        "outbound_slots",
        "outbound_slot_jobs",
        "outbound_attempts",
    ]),
    Change(
        "assets",
        &[
            "precision",
            "status",
            "internal_transfer_enabled",
            "min_transfer_amount",
            "max_transfer_amount",
            "daily_transfer_amount",
            "updated_at",
        ],
    ),
    Change(
        "chains",
        &[
            "kind",
            "network",
            "confirmations",
            "final_confirmations",
            "status",
            "fee_price_cap",
            "fee_cap",
            "in_flight",
            "stuck_after_s",
            "gather_s",
            "gather_most",
            "join_below",
            "updated_at",
        ],
    ),
    Change("asset_on_chain", &["contract", "decimals", "min_deposit_amount", "status", "updated_at"]),
    Change("wallet_groups", &["is_active", "updated_at"]),
    Change("operation_wallet_addresses", &["is_active", "updated_at"]),
    Change(
        "gas_topup_rules",
        &["operator", "threshold", "amount", "priority", "cool_down_s", "most_per_hour", "is_active", "updated_at"],
    ),
    Change(
        "consolidation_rules",
        &[
            "operator",
            "threshold",
            "most_cost_bps",
            "priority",
            "cool_down_s",
            "most_per_hour",
            "is_active",
            "updated_at",
        ],
    ),
    Change("hot_bands", &["floor_amount", "target_amount", "ceiling_amount", "is_active", "updated_at"]),
    Change("operators", &["role", "user_id", "is_active", "updated_at"]),
    Change("operator_keys", &["is_active", "updated_at"]),
    // What another program has gone on with since it was taken over waits for two people.
    Change("withdrawal_requests", &["rule", "people"]),
];
