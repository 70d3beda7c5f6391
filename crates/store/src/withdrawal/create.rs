//! New withdrawals, in batches. The accounts are locked, the facts are read, `domain::withdrawal` judges each request, and what is taken is written
//! with its hold, its verdict and its first events in the same commit. What is refused leaves nothing behind.

use std::collections::{BTreeSet, HashMap};

use domain::ledger::{AccountState, Operation, Outcome, Reference, Reply};
use domain::transfer::ClientOrderId;
use domain::withdrawal::{
    Facts, FeeQuote, FeeTerms, Judgement, Request, Verdict, WithdrawalEvent, WithdrawalPolicy, WithdrawalRefusal,
    WithdrawalState,
};
use domain::{AccountId, Amount, AssetId, GroupId, Timestamp, UserId};

use super::MOST;
use super::advance::{Step, add_steps};
use super::check::{self, TravelRule};
use super::facts::{self, Coin, Destination, DestinationKey, Switches, Use, UserUse};
use super::policy::{FeeVersion, fee_versions};
use super::types::{LedgerStep, WithdrawalId, WithdrawalRow, malformed};
use crate::db::{Db, Tx};
use crate::entry::ListingId;
use crate::error::StoreError;
use crate::ledger::decide;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, Writes};
use crate::transact;
use crate::transfer::{FundingAccount, lock_funding_accounts};

/// What a user asks for. The destination is as the chain writes it: whoever hands this over has read it as an address of that chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewWithdrawal {
    /// Its number, if it is taken.
    pub id: WithdrawalId,
    pub user: UserId,
    pub client_order_id: ClientOrderId,
    pub listing: ListingId,
    pub to: String,
    pub amount: Amount,
    /// The most that the user agrees to pay on top of it.
    pub most_fee: Amount,
    /// The fee that the user was promised. It is no part of what makes a request the same: who asks again may have another.
    pub quote: Option<FeeQuote>,
    /// What the user says of where it goes. It is passed on to whoever checks the withdrawal.
    pub travel_rule: Option<TravelRule>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreatedWithdrawal {
    New(Box<WithdrawalRow>),
    /// The user asked for the same before, under the same name: this is it, as it stands now.
    Before(Box<WithdrawalRow>),
    Refused {
        refusal: WithdrawalRefusal,
        /// What it was judged on, if a policy has judged it.
        judged: Option<Box<Judgement>>,
    },
}

impl CreatedWithdrawal {
    pub fn row(&self) -> Option<&WithdrawalRow> {
        match self {
            Self::New(row) | Self::Before(row) => Some(row),
            Self::Refused { .. } => None,
        }
    }
}

static INSERT_WITHDRAWALS: RowsSql = RowsSql::new(
    "INSERT_WITHDRAWALS",
    "INSERT INTO withdrawal_requests (id, user_id, account_id, asset_id, chain_id, listing_id, client_order_id, to_address, amount, fee, most_fee,
         wallet_group, network_fee_raw, expires_at, status, version, policy_version, rule, people, inputs, jobs, payee_id, queued_at, judged, created_at,
         updated_at)
     SELECT r.id, r.user_id, r.account_id, r.asset_id, r.chain_id, r.listing_id, r.client_order_id, r.to_address, r.amount, r.fee, r.most_fee,
         r.wallet_group, r.network_fee_raw, r.expires_at, r.status, r.version, r.policy_version, r.rule, r.people, r.inputs, 0, NULL, NULL, NULL, r.at,
         r.at FROM {rows}",
    &[
        ("id", Int),
        ("user_id", Int),
        ("account_id", Int),
        ("asset_id", Int),
        ("chain_id", Int),
        ("listing_id", Int),
        ("client_order_id", Text),
        ("to_address", Text),
        ("amount", Int),
        ("fee", Int),
        ("most_fee", Int),
        ("wallet_group", Text),
        ("network_fee_raw", Text),
        ("expires_at", Int),
        ("status", Text),
        ("version", Int),
        ("policy_version", Int),
        ("rule", Text),
        ("people", Int),
        ("inputs", Text),
        ("at", Int),
    ],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&INSERT_WITHDRAWALS];

impl Db {
    /// Takes these requests, or says of each why not, in their order. Later ones see what earlier ones did. The same again gives the same answer, so
    /// a commit without an answer is simply sent again.
    pub async fn create_withdrawals(
        &self,
        new: &[NewWithdrawal],
        at: Timestamp,
    ) -> Result<Vec<CreatedWithdrawal>, StoreError> {
        if new.is_empty() {
            return Ok(Vec::new());
        }
        if new.len() > MOST {
            return Err(StoreError::BatchTooLarge { count: new.len(), most: MOST });
        }
        transact!(self, tx => create(tx, new, at).await)
    }

    /// What this would come to now. Nothing is written: it is judged in a transaction that is rolled back.
    pub async fn simulate_withdrawal(
        &self,
        new: &NewWithdrawal,
        at: Timestamp,
    ) -> Result<CreatedWithdrawal, StoreError> {
        let mut tx = self.tries().begin().await?;
        let judged = simulate(&mut tx, new, at).await;
        tx.rollback().await;
        judged
    }
}

async fn simulate(tx: &mut Tx, new: &NewWithdrawal, at: Timestamp) -> Result<CreatedWithdrawal, StoreError> {
    let mut intake = Intake::open(tx, std::slice::from_ref(new), Purpose::Simulate, at).await?;
    // Whatever name it is given here: it is not the one that was taken under that name.
    intake.earlier.clear();
    let answer = intake.take(new)?;
    Ok(answer.finish(&intake.taken))
}

async fn create(tx: &mut Tx, new: &[NewWithdrawal], at: Timestamp) -> Result<Vec<CreatedWithdrawal>, StoreError> {
    let mut intake = Intake::open(tx, new, Purpose::Take, at).await?;
    let answers = new.iter().map(|one| intake.take(one)).collect::<Result<Vec<_>, _>>()?;
    intake.write(tx).await?;
    Ok(answers.into_iter().map(|answer| answer.finish(&intake.taken)).collect())
}

/// The answer while the batch goes on.
enum Answer {
    Taken(usize),
    SameAs(usize),
    Before(Box<WithdrawalRow>),
    Refused(WithdrawalRefusal, Option<Box<Judgement>>),
}

impl Answer {
    fn finish(self, taken: &[(WithdrawalRow, Vec<Step>)]) -> CreatedWithdrawal {
        let row = |at: usize| Box::new(taken[at].0.clone());
        match self {
            Self::Taken(at) => CreatedWithdrawal::New(row(at)),
            Self::SameAs(at) => CreatedWithdrawal::Before(row(at)),
            Self::Before(row) => CreatedWithdrawal::Before(row),
            Self::Refused(refusal, judged) => CreatedWithdrawal::Refused { refusal, judged },
        }
    }
}

/// What for a batch is judged.
#[derive(Clone, Copy)]
enum Purpose {
    Take,
    /// Nothing is written, so that who may only look may ask.
    Simulate,
}

/// All that a batch is judged on. Each that is taken counts for those behind it.
struct Intake {
    at: Timestamp,
    coins: HashMap<ListingId, Coin>,
    policies: HashMap<ListingId, WithdrawalPolicy>,
    /// Of the versions that quotes name.
    fees: HashMap<(ListingId, i64), FeeVersion>,
    switches: Switches,
    /// Locked.
    accounts: HashMap<(UserId, AssetId), FundingAccount>,
    /// What is left of each account.
    left: HashMap<AccountId, Amount>,
    not_final: HashMap<(UserId, AssetId), Amount>,
    used: Use,
    /// From which amount on somebody outside is asked first.
    checks: HashMap<ListingId, Amount>,
    /// What was said of where the earlier ones go.
    said: HashMap<i64, String>,
    /// Those of the taken ones that are checked, and what is said of where they go.
    checked: Vec<WithdrawalId>,
    sayings: Vec<(WithdrawalId, String)>,
    /// Locked, where somebody counts.
    totals: HashMap<ListingId, Amount>,
    destinations: HashMap<DestinationKey, Destination>,
    earlier: HashMap<(UserId, ClientOrderId), WithdrawalRow>,
    /// Where each name of this batch is among those taken.
    names: HashMap<(UserId, ClientOrderId), usize>,
    taken: Vec<(WithdrawalRow, Vec<Step>)>,
}

impl Intake {
    async fn open(tx: &mut Tx, new: &[NewWithdrawal], purpose: Purpose, at: Timestamp) -> Result<Self, StoreError> {
        let coins = facts::coins(tx, new).await?;
        let known = || new.iter().filter_map(|one| Some((one, coins.get(&one.listing)?)));
        let pairs: BTreeSet<(UserId, AssetId)> = known().map(|(one, coin)| (one.user, coin.asset)).collect();
        let accounts = lock_funding_accounts(tx, &pairs).await?;
        // From here on nobody else moves these users' money. Settings are read now too: what was switched off while this waited is off.
        let listings: BTreeSet<ListingId> = coins.keys().copied().collect();
        let policies = super::policy::newest(tx, &listings.iter().copied().collect::<Vec<_>>()).await?;
        let quoted = known().filter_map(|(one, _)| Some((one.listing, one.quote?.version))).collect();
        let fees = fee_versions(tx, &quoted).await?;
        let switches = facts::switches(tx, listings.iter().copied()).await?;
        let windows = policies.iter().filter_map(|(listing, policy)| Some((*listing, policy.velocity?.window_us)));
        let users: BTreeSet<(UserId, ListingId)> = known().map(|(one, _)| (one.user, one.listing)).collect();
        let used = facts::used(tx, &users, &windows.collect(), at).await?;
        let not_final = facts::not_final(tx, &pairs).await?;
        let places = known().map(|(one, coin)| (one.user, coin.chain, one.to.clone())).collect();
        let destinations = facts::destinations(tx, &places).await?;
        let names = new.iter().map(|one| (one.user, one.client_order_id.as_str()));
        let earlier = facts::earlier(tx, names).await?;
        let said = check::travel_rules(tx, earlier.iter().map(|row| row.id)).await?;
        let checks = check::rules(tx, listings.iter().copied()).await?;
        let limited = policies.iter().filter(|(_, policy)| policy.daily_total.is_some()).map(|(listing, _)| *listing);
        let totals = match purpose {
            Purpose::Take => facts::lock_totals(tx, &listings, &limited.collect(), at).await?,
            Purpose::Simulate => facts::see_totals(tx, &listings, &limited.collect(), at).await?,
        };
        Ok(Self {
            at,
            left: accounts.values().map(|funding| (funding.account, funding.state.available)).collect(),
            earlier: earlier.into_iter().map(|row| ((row.user, row.client_order_id.clone()), row)).collect(),
            names: HashMap::new(),
            taken: Vec::new(),
            checks,
            said,
            checked: Vec::new(),
            sayings: Vec::new(),
            coins,
            policies,
            fees,
            switches,
            accounts,
            not_final,
            used,
            totals,
            destinations,
        })
    }

    fn take(&mut self, new: &NewWithdrawal) -> Result<Answer, StoreError> {
        let name = (new.user, new.client_order_id.clone());
        if let Some(before) = self.earlier.get(&name) {
            return Ok(if is_same(before, new) && check::says_the_same(self.said.get(&before.id.number()), new) {
                Answer::Before(Box::new(before.clone()))
            } else {
                Answer::Refused(WithdrawalRefusal::DuplicateRequest, None)
            });
        }
        if let Some(at) = self.names.get(&name) {
            let said = |row: &WithdrawalRow| self.sayings.iter().find(|(id, _)| *id == row.id).map(|(_, said)| said);
            let taken = self.taken.get(*at);
            let same = taken.is_some_and(|(row, _)| is_same(row, new) && check::says_the_same(said(row), new));
            return Ok(if same {
                Answer::SameAs(*at)
            } else {
                Answer::Refused(WithdrawalRefusal::DuplicateRequest, None)
            });
        }
        let offered = self.coins.get(&new.listing).zip(self.policies.get(&new.listing));
        let Some((coin, policy)) = offered else { return Ok(Answer::Refused(WithdrawalRefusal::NotOffered, None)) };
        let Some(funding) = self.accounts.get(&(new.user, coin.asset)) else {
            return Ok(Answer::Refused(WithdrawalRefusal::AccountNotFound, None));
        };
        let facts = self.facts(new, coin, funding)?;
        let judged =
            policy.judge(&Request { amount: new.amount, most_fee: new.most_fee, terms: self.terms(new) }, &facts);
        if let Verdict::Refused(refusal) = judged.verdict {
            return Ok(Answer::Refused(refusal, Some(Box::new(judged))));
        }
        let checked = self.checks.get(&new.listing).is_some_and(|from| new.amount >= *from);
        let expires = self.at.plus_micros(policy.life_us);
        let taken = withdrawal(new, coin, funding.account, &judged, checked, (self.at, expires))?;
        if checked {
            self.checked.push(new.id);
        }
        self.sayings.extend(new.travel_rule.as_ref().map(|said| (new.id, said.as_str().to_owned())));
        self.count(&taken.0, &facts)?;
        self.names.insert(name, self.taken.len());
        self.taken.push(taken);
        Ok(Answer::Taken(self.taken.len() - 1))
    }

    fn terms(&self, new: &NewWithdrawal) -> FeeTerms {
        let Some(quote) = new.quote else { return FeeTerms::Current };
        let fee = self.fees.get(&(new.listing, quote.version));
        match fee.filter(|fee| quote.holds(self.at, fee.quote_life_us, fee.superseded)) {
            Some(fee) => FeeTerms::Quoted(fee.rule),
            None => FeeTerms::Expired,
        }
    }

    fn facts(&self, new: &NewWithdrawal, coin: &Coin, funding: &FundingAccount) -> Result<Facts, StoreError> {
        let (chain, asset) = self.switches.get(&new.listing).copied().ok_or_else(|| malformed("coin"))?;
        let used = self.used.get(&(new.user, new.listing)).copied().unwrap_or_default();
        let place = (new.user, coin.chain, new.to.clone());
        let destination = self.destinations.get(&place).copied().ok_or_else(|| malformed("destination"))?;
        Ok(Facts {
            now: self.at,
            chain,
            asset,
            account: funding.state.status,
            available: self.left.get(&funding.account).copied().unwrap_or(Amount::ZERO),
            not_final: self.not_final.get(&(new.user, coin.asset)).copied().unwrap_or(Amount::ZERO),
            used_by_user: used.today,
            auto_approved: used.auto_approved,
            used_in_total: self.totals.get(&new.listing).copied().unwrap_or(Amount::ZERO),
            recent: used.recent,
            house_wallet: destination.house_wallet,
            own_address: destination.own_address,
            in_book_since: destination.in_book_since,
            paid_since: destination.paid_since,
        })
    }

    /// The next of the batch see it.
    fn count(&mut self, row: &WithdrawalRow, facts: &Facts) -> Result<(), StoreError> {
        let beyond = || malformed("sum");
        let left = facts.available.checked_sub(row.held()?).ok_or_else(beyond)?;
        self.left.insert(row.account, left);
        let today = facts.used_by_user.checked_add(row.amount).ok_or_else(beyond)?;
        let by_itself = if row.people == 0 { row.amount } else { Amount::ZERO };
        let auto_approved = facts.auto_approved.checked_add(by_itself).ok_or_else(beyond)?;
        let recent = facts.recent.saturating_add(1);
        self.used.insert((row.user, row.listing), UserUse { today, auto_approved, recent });
        if let Some(total) = self.totals.get_mut(&row.listing) {
            *total = total.checked_add(row.amount).ok_or_else(beyond)?;
        }
        Ok(())
    }

    async fn write(&mut self, tx: &mut Tx) -> Result<(), StoreError> {
        if self.taken.is_empty() {
            return Ok(());
        }
        let operations = self.taken.iter().map(|(row, _)| hold(row)).collect::<Result<Vec<_>, _>>()?;
        let locked: HashMap<AccountId, AccountState> =
            self.accounts.values().map(|funding| (funding.account, funding.state.clone())).collect();
        let mut writes = Writes::default();
        let replies = decide(tx, locked, None, &operations, self.at, &mut writes).await?;
        for (operation, reply) in operations.iter().zip(replies) {
            // The account was looked at under its lock, and the number is new.
            if reply != Reply::First(Outcome::Applied) {
                return Err(StoreError::Corrupt { what: format!("{}: the ledger says {reply:?}", operation.key()) });
            }
        }
        insert(&mut writes, &self.taken, self.at);
        let steps = self.taken.iter_mut().flat_map(|(_, steps)| std::mem::take(steps)).collect();
        add_steps(&mut writes, steps, self.at);
        check::add(&mut writes, &self.checked, &self.sayings, self.at);
        facts::set_totals(&mut writes, &self.totals, self.at);
        writes.run(tx).await
    }
}

/// Whether a request is the one that was taken.
fn is_same(row: &WithdrawalRow, new: &NewWithdrawal) -> bool {
    (row.listing, row.to.as_str(), row.amount, row.most_fee) == (new.listing, new.to.as_str(), new.amount, new.most_fee)
}

pub(super) fn hold(row: &WithdrawalRow) -> Result<Operation, StoreError> {
    let reference = Reference::new(format!("withdrawal {}", row.id)).map_err(|_| malformed("reference"))?;
    Ok(Operation::hold(row.key(LedgerStep::Hold)?, row.account, row.asset, row.held()?, reference))
}

/// The row as it stands after its verdict, and its history so far.
fn withdrawal(
    new: &NewWithdrawal,
    coin: &Coin,
    account: AccountId,
    judged: &Judgement,
    checked: bool,
    (at, expires): (Timestamp, Timestamp),
) -> Result<(WithdrawalRow, Vec<Step>), StoreError> {
    let inputs = serde_json::to_string(judged).map_err(|_| malformed("verdict"))?;
    let mut row = WithdrawalRow {
        id: new.id,
        user: new.user,
        account,
        asset: coin.asset,
        chain: coin.chain,
        listing: new.listing,
        client_order_id: new.client_order_id.clone(),
        to: new.to.clone(),
        amount: new.amount,
        fee: judged.fee,
        most_fee: new.most_fee,
        group: coin.group.clone(),
        network_fee: coin.network_fee,
        expires,
        state: WithdrawalState::Pending,
        version: 1,
        policy_version: judged.version,
        rule: judged.rule.to_owned(),
        people: judged.verdict.people(),
        inputs,
        jobs: 0,
        payee: None,
        queued: None,
        judged: None,
        created: at,
        updated: at,
    };
    let asked = format!("user {}", new.user.get());
    let mut steps = vec![Step::new(&row, asked, "asked for")];
    let said = match judged.verdict {
        // Not before the check has answered.
        Verdict::Approved if checked => None,
        Verdict::Approved => Some(WithdrawalEvent::Approved),
        Verdict::Review(_) => Some(WithdrawalEvent::Doubted),
        Verdict::People(_) | Verdict::Refused(_) => None,
    };
    if let Some(event) = said {
        row.state = row.state.next(event).map_err(|_| malformed("verdict"))?;
        row.version = 2;
        steps.push(Step::new(&row, format!("policy {}", judged.version), judged.rule));
    }
    Ok((row, steps))
}

pub(super) fn insert(writes: &mut Writes, taken: &[(WithdrawalRow, Vec<Step>)], at: Timestamp) {
    let ints = |each: &dyn Fn(&WithdrawalRow) -> i64| Column::Ints(taken.iter().map(|(row, _)| each(row)).collect());
    let texts =
        |each: &dyn Fn(&WithdrawalRow) -> String| Column::Strings(taken.iter().map(|(row, _)| each(row)).collect());
    let columns = vec![
        ints(&|row| row.id.number()),
        ints(&|row| row.user.get()),
        ints(&|row| row.account.0),
        ints(&|row| row.asset.0),
        ints(&|row| row.chain.0),
        ints(&|row| row.listing.0),
        texts(&|row| row.client_order_id.as_str().to_owned()),
        texts(&|row| row.to.clone()),
        ints(&|row| row.amount.units()),
        ints(&|row| row.fee.units()),
        ints(&|row| row.most_fee.units()),
        Column::OptionalStrings(taken.iter().map(|(row, _)| row.group.as_ref().map(GroupId::to_string)).collect()),
        texts(&|row| row.network_fee.to_string()),
        ints(&|row| row.expires.micros()),
        texts(&|row| row.state.as_str().to_owned()),
        ints(&|row| row.version),
        ints(&|row| row.policy_version),
        texts(&|row| row.rule.clone()),
        ints(&|row| row.people.into()),
        texts(&|row| row.inputs.clone()),
        ints(&|_| at.micros()),
    ];
    writes.add(&INSERT_WITHDRAWALS, columns, "withdrawals");
}
