//! Withdrawals as their rows have them.

use std::collections::BTreeSet;

use domain::id::{self, Id};
use domain::ledger::OpKey;
use domain::transfer::ClientOrderId;
use domain::withdrawal::WithdrawalState;
use domain::{AccountId, Amount, AssetId, GroupId, RawAmount, Timestamp, UserId};

use crate::db::Tx;
use crate::dialect::Many;
use crate::entry::{ChainId, ListingId};
use crate::error::StoreError;

pub type WithdrawalId = Id<id::Withdrawal>;

/// What a customer wants paid out, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawalRow {
    pub id: WithdrawalId,
    pub user: UserId,
    pub account: AccountId,
    pub asset: AssetId,
    pub chain: ChainId,
    pub listing: ListingId,
    pub client_order_id: ClientOrderId,
    pub to: String,
    /// What the destination gets.
    pub amount: Amount,
    /// What the customer pays on top of it.
    pub fee: Amount,
    pub most_fee: Amount,
    /// Which of the house's wallets pay it: fixed before there is a job, so that people can sign. `None`: the chain had no hot wallet yet.
    pub group: Option<GroupId>,
    /// The most that its payment may cost, in the chain's own coin.
    pub network_fee: RawAmount,
    /// Until when it may be signed.
    pub expires: Timestamp,
    pub state: WithdrawalState,
    pub version: i64,
    pub policy_version: i64,
    pub rule: String,
    /// How many people have to agree.
    pub people: u32,
    /// What it was judged on, as JSON.
    pub inputs: String,
    pub jobs: i64,
    pub payee: Option<UserId>,
    pub queued: Option<Timestamp>,
    /// What two people have said of it, where the signer knew more than this database.
    pub judged: Option<String>,
    pub created: Timestamp,
    pub updated: Timestamp,
}

/// The rule of one that another program may have paid: only two people say what becomes of its money.
pub(crate) const MAY_BE_PAID: &str = "imported_may_be_paid";

/// The names of its operations in the ledger: each happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LedgerStep {
    Hold,
    Settle,
    Release,
    GiveBack,
}

impl WithdrawalRow {
    /// Amount and fee.
    pub fn held(&self) -> Result<Amount, StoreError> {
        self.amount.checked_add(self.fee).ok_or_else(|| malformed("amount"))
    }

    /// Another program may have paid it: only two people say what becomes of its money.
    pub fn may_be_paid_elsewhere(&self) -> bool {
        self.rule == MAY_BE_PAID
    }

    /// The name under which the signer knows whoever asked for it.
    pub fn requester(&self) -> String {
        format!("user-{}", self.user.get())
    }

    pub(crate) fn key(&self, step: LedgerStep) -> Result<OpKey, StoreError> {
        let name = match step {
            LedgerStep::Hold => "hold",
            LedgerStep::Settle => "settle",
            LedgerStep::Release => "release",
            LedgerStep::GiveBack => "give_back",
        };
        OpKey::new(format!("{}:{name}", self.id)).map_err(|_| malformed("number"))
    }
}

pub(crate) fn malformed(what: &str) -> StoreError {
    StoreError::Corrupt { what: format!("the withdrawals have a malformed {what}") }
}

pub(crate) const COLUMNS: &str = "id, user_id, account_id, asset_id, chain_id, listing_id, client_order_id, to_address, amount, fee, most_fee, wallet_group, \
    network_fee_raw, expires_at, status, version, policy_version, rule, people, inputs, jobs, payee_id, queued_at, judged, created_at, updated_at";

statements! {
    /// In the order of their ids: two that want the same ones wait for each other, they never deadlock.
    LOCK_WITHDRAWALS(COLUMNS) = "SELECT {columns} FROM withdrawal_requests WHERE id {in $1} ORDER BY id {FOR UPDATE}";
    READ_WITHDRAWALS(COLUMNS) = "SELECT {columns} FROM withdrawal_requests WHERE id {in $1} ORDER BY id";
}

/// More columns than a tuple can have.
pub(crate) struct Columns {
    id: i64,
    user: i64,
    account: i64,
    asset: i64,
    chain: i64,
    listing: i64,
    client_order_id: String,
    to: String,
    amount: i64,
    fee: i64,
    most_fee: i64,
    group: Option<String>,
    network_fee: String,
    expires: i64,
    status: String,
    version: i64,
    policy_version: i64,
    rule: String,
    people: i64,
    inputs: String,
    jobs: i64,
    payee: Option<i64>,
    queued: Option<i64>,
    judged: Option<String>,
    created: i64,
    updated: i64,
}

from_row!(Columns {
    id = "id",
    user = "user_id",
    account = "account_id",
    asset = "asset_id",
    chain = "chain_id",
    listing = "listing_id",
    client_order_id = "client_order_id",
    to = "to_address",
    amount = "amount",
    fee = "fee",
    most_fee = "most_fee",
    group = "wallet_group",
    network_fee = "network_fee_raw",
    expires = "expires_at",
    status = "status",
    version = "version",
    policy_version = "policy_version",
    rule = "rule",
    people = "people",
    inputs = "inputs",
    jobs = "jobs",
    payee = "payee_id",
    queued = "queued_at",
    judged = "judged",
    created = "created_at",
    updated = "updated_at",
});

pub(crate) fn withdrawal_row(row: Columns) -> Result<WithdrawalRow, StoreError> {
    let user = |number: i64| UserId::new(number).ok_or_else(|| malformed("user"));
    Ok(WithdrawalRow {
        id: withdrawal_id(row.id)?,
        user: user(row.user)?,
        account: AccountId(row.account),
        asset: AssetId(row.asset),
        chain: ChainId(row.chain),
        listing: ListingId(row.listing),
        client_order_id: ClientOrderId::new(row.client_order_id).map_err(|_| malformed("client_order_id"))?,
        to: row.to,
        amount: Amount::from_units(row.amount),
        fee: Amount::from_units(row.fee),
        most_fee: Amount::from_units(row.most_fee),
        group: row.group.map(|name| name.parse().map_err(|_| malformed("wallet group"))).transpose()?,
        network_fee: row.network_fee.parse().map_err(|_| malformed("fee"))?,
        expires: Timestamp::from_micros(row.expires),
        state: WithdrawalState::parse(&row.status).ok_or_else(|| malformed("status"))?,
        version: row.version,
        policy_version: row.policy_version,
        rule: row.rule,
        people: u32::try_from(row.people).map_err(|_| malformed("number of people"))?,
        inputs: row.inputs,
        jobs: row.jobs,
        payee: row.payee.map(user).transpose()?,
        queued: row.queued.map(Timestamp::from_micros),
        judged: row.judged,
        created: Timestamp::from_micros(row.created),
        updated: Timestamp::from_micros(row.updated),
    })
}

pub(crate) fn withdrawal_rows(rows: Vec<Columns>) -> Result<Vec<WithdrawalRow>, StoreError> {
    rows.into_iter().map(withdrawal_row).collect()
}

pub(crate) fn withdrawal_id(number: i64) -> Result<WithdrawalId, StoreError> {
    WithdrawalId::new(number).map_err(|_| malformed("number"))
}

pub(crate) fn numbers(ids: impl Iterator<Item = WithdrawalId>) -> Many<i64> {
    let distinct: BTreeSet<i64> = ids.map(Id::number).collect();
    Many(distinct.into_iter().collect())
}

/// Locks these, as far as they exist, in the order of their ids.
pub(crate) async fn lock(
    tx: &mut Tx,
    ids: impl Iterator<Item = WithdrawalId>,
) -> Result<Vec<WithdrawalRow>, StoreError> {
    withdrawal_rows(fetch_all!(tx, LOCK_WITHDRAWALS => Columns, numbers(ids))?)
}

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// The day of UTC.
pub(crate) fn day_of(at: Timestamp) -> i64 {
    at.micros().div_euclid(MICROS_PER_DAY)
}

/// When it began.
pub(crate) fn day_start(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(at.micros() - at.micros().rem_euclid(MICROS_PER_DAY))
}
