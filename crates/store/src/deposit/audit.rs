//! Entries, balances, books and histories, held against each other.

use std::collections::{BTreeMap, HashMap};

use domain::deposit::{Cause, DepositEvent, DepositState};
use domain::{AccountId, RawAmount, RawSum};

use crate::audit::{Violation, violation};
use crate::db::Tx;
use crate::entry::write::Booked;
use crate::error::StoreError;
use crate::ledger::balances::system_balances;

/// Rows that are in memory at a time.
const PAGE: i64 = 4_096;

statements! {
    PAGE_ENTRIES = "SELECT id, listing_id, amount_raw, cause, posting FROM chain_entries WHERE id > $1 ORDER BY id LIMIT $2";
    /// An address at a time, so that one sum is in memory.
    PAGE_BY_ADDRESS = "SELECT e.id, e.address, e.chain_id, e.listing_id, e.height, e.amount_raw FROM chain_entries e
        WHERE (e.address, e.chain_id, e.listing_id, e.height, e.id) > ($1, $2, $3, $4, $5)
        ORDER BY e.address, e.chain_id, e.listing_id, e.height, e.id LIMIT $6";
    READ_BALANCE = "SELECT on_chain_balance_raw FROM wallet_balances WHERE address = $1 AND chain_id = $2 AND listing_id = $3";
    COUNT_BALANCES = "SELECT COUNT(*) FROM wallet_balances";
    READ_RESIDUES_OF_ALL = "SELECT l.id, l.asset_id, c.name, a.precision, l.decimals, COALESCE(x.residue_raw, '0'), COALESCE(x.opening, 0)
        FROM chain_cursors k JOIN asset_on_chain l ON l.chain_id = k.chain_id JOIN chains c ON c.id = l.chain_id JOIN assets a ON a.id = l.asset_id
        LEFT JOIN chain_residues x ON x.listing_id = l.id";
    READ_SYSTEM_KINDS = "SELECT id, asset_id, kind FROM accounts WHERE id < 0";
    /// A credit whose block is not proven, though its block is in the chain.
    FIND_UNPROVEN_CREDIT = "SELECT d.id FROM deposits d JOIN chain_entries e ON e.id = d.id
        LEFT JOIN chain_cursors k ON k.chain_id = d.chain_id
        WHERE d.state IN ('credited', 'final', 'unattributed') AND e.alive AND d.height > COALESCE(k.proven_height, -1)
        ORDER BY d.id LIMIT 1";
    /// A deposit whose state and whose entry tell two stories.
    FIND_TORN_DEPOSIT = "SELECT d.id FROM deposits d JOIN chain_entries e ON e.id = d.id
        WHERE (d.state IN ('credited', 'final', 'unattributed', 'reversed')) <> (e.posting IN (1, 3) AND e.cause = 'deposit')
            OR (d.state IN ('orphaned', 'reversed') AND e.alive) ORDER BY d.id LIMIT 1";
    PAGE_EVENTS = "SELECT v.deposit_id, v.version, v.state, d.state, d.version FROM deposit_events v
        JOIN deposits d ON d.id = v.deposit_id
        WHERE (v.deposit_id, v.version) > ($1, $2) ORDER BY v.deposit_id, v.version LIMIT $3";
    FIND_WITHOUT_HISTORY = "SELECT d.id FROM deposits d
        WHERE NOT EXISTS (SELECT 1 FROM deposit_events v WHERE v.deposit_id = d.id AND v.version = d.version AND v.state = d.state)
        ORDER BY d.id LIMIT 1";
}

/// Each address has what its entries add up to.
pub(crate) async fn check_balances(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    type Row = (i64, String, i64, i64, i64, String);
    let mut after: (String, i64, i64, i64, i64) = (String::new(), i64::MIN, i64::MIN, i64::MIN, i64::MIN);
    let mut open: Option<((String, i64, i64), RawSum)> = None;
    let mut groups = 0_i64;
    loop {
        let rows = fetch_all!(tx, PAGE_BY_ADDRESS => Row, after.0.as_str(), after.1, after.2, after.3, after.4, PAGE)?;
        let done = rows.is_empty();
        for (id, address, chain, listing, height, amount) in rows {
            let Ok(amount) = amount.parse::<RawSum>() else {
                return Ok(violation(format!("chain_entries id={id}"), "its amount is no number"));
            };
            after = (address.clone(), chain, listing, height, id);
            let key = (address, chain, listing);
            match &mut open {
                Some((same, sum)) if *same == key => *sum = sum.plus(amount),
                _ => {
                    let before = open.replace((key, amount));
                    groups += i64::from(before.is_some());
                    if let Some(wrong) = wrong_balance(tx, before).await? {
                        return Ok(Some(wrong));
                    }
                }
            }
        }
        if done {
            break;
        }
    }
    groups += i64::from(open.is_some());
    if let Some(wrong) = wrong_balance(tx, open).await? {
        return Ok(Some(wrong));
    }
    let rows = fetch_optional!(tx, COUNT_BALANCES => (i64,))?.map_or(0, |row| row.0);
    Ok(if rows == groups {
        None
    } else {
        violation("wallet_balances".to_owned(), "there is a balance without entries")
    })
}

async fn wrong_balance(
    tx: &mut Tx,
    group: Option<((String, i64, i64), RawSum)>,
) -> Result<Option<Violation>, StoreError> {
    let Some(((address, chain, listing), sum)) = group else { return Ok(None) };
    let row = fetch_optional!(tx, READ_BALANCE => (String,), address.as_str(), chain, listing)?;
    let balance = row.and_then(|(text,)| text.parse::<RawSum>().ok());
    Ok(if balance == Some(sum) {
        None
    } else {
        let problem = format!("its entries add up to {sum}");
        violation(format!("wallet_balances address={address} listing_id={listing}"), &problem)
    })
}

/// What is booked of each coin is what custody has, and the residue. What moves among our own addresses adds up to nothing.
pub(crate) async fn check_books(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    let (mut booked, mut inside): (BTreeMap<i64, RawSum>, BTreeMap<i64, RawSum>) = (BTreeMap::new(), BTreeMap::new());
    let mut after = i64::MIN;
    loop {
        let rows = fetch_all!(tx, PAGE_ENTRIES => (i64, i64, String, String, i64), after, PAGE)?;
        let Some(last) = rows.last().map(|row| row.0) else { break };
        after = last;
        for (id, listing, amount, cause, posting) in rows {
            let (Ok(amount), Some(cause)) = (amount.parse::<RawSum>(), Cause::parse(&cause)) else {
                return Ok(violation(format!("chain_entries id={id}"), "it makes no sense"));
            };
            let sums = if cause.is_internal() { &mut inside } else { &mut booked };
            if cause.is_internal() || posting == Booked::Done.number() {
                let sum = sums.entry(listing).or_default();
                *sum = sum.plus(amount);
            }
        }
    }
    if let Some((listing, sum)) = inside.iter().find(|(_, sum)| !sum.is_zero()) {
        let problem = format!("what moved among our own addresses adds up to {sum}, not to nothing");
        return Ok(violation(format!("asset_on_chain id={listing}"), &problem));
    }
    let balances = system_balances(tx).await?;
    let mut custody: HashMap<(i64, String), i128> = HashMap::new();
    for (id, asset, kind) in fetch_all!(tx, READ_SYSTEM_KINDS => (i64, i64, String))? {
        custody.insert((asset, kind), balances.get(&AccountId(id)).copied().unwrap_or(0));
    }
    for (listing, asset, chain, precision, decimals, residue, opening) in
        fetch_all!(tx, READ_RESIDUES_OF_ALL => (i64, i64, String, i64, i64, String, i64))?
    {
        let sum = booked.get(&listing).copied().unwrap_or_default();
        let kind = format!("custody:{chain}");
        let has = custody.get(&(asset, kind.clone())).copied().unwrap_or(0);
        let spare = usize::try_from(decimals - precision).unwrap_or(0);
        // A custody account is negative by the coins on its addresses.
        let units: RawSum = shifted(-has - i128::from(opening), spare);
        let residue: RawSum = residue.parse::<RawAmount>().map(RawSum::from).unwrap_or_default();
        if sum != units.plus(residue) {
            let problem = format!("entries of {sum} are booked, and the ledger has {units} and a residue of {residue}");
            return Ok(violation(format!("accounts kind={kind} asset_id={asset}"), &problem));
        }
    }
    Ok(None)
}

/// Ledger units as chain units.
fn shifted(units: i128, zeros: usize) -> RawSum {
    if units == 0 {
        return RawSum::ZERO;
    }
    format!("{units}{}", "0".repeat(zeros)).parse().unwrap_or_default()
}

/// Every deposit's history is a walk through the states that ends at its own, and fits its entry.
pub(crate) async fn check_deposits(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    let found = [
        (fetch_optional!(tx, FIND_UNPROVEN_CREDIT => (i64,))?, "it is in the books, and its block is not proven"),
        (fetch_optional!(tx, FIND_TORN_DEPOSIT => (i64,))?, "its state is not that of its entry"),
        (fetch_optional!(tx, FIND_WITHOUT_HISTORY => (i64,))?, "its history does not end at its state"),
    ];
    for (row, problem) in found {
        if let Some((id,)) = row {
            return Ok(violation(format!("deposits id={id}"), problem));
        }
    }
    let (mut after, mut before): ((i64, i64), Option<(i64, DepositState)>) = ((i64::MIN, i64::MIN), None);
    loop {
        let rows = fetch_all!(tx, PAGE_EVENTS => (i64, i64, String, String, i64), after.0, after.1, PAGE)?;
        let Some(last) = rows.last().map(|row| (row.0, row.1)) else { return Ok(None) };
        after = last;
        for (id, version, state, ..) in rows {
            let reached = DepositState::parse(&state);
            let start = before.filter(|(deposit, _)| *deposit == id).map(|(_, state)| state);
            let right = match (start, reached) {
                (None, Some(first)) => version == 1 && matches!(first, DepositState::Detected | DepositState::Refused),
                (Some(start), Some(next)) => EVENTS.iter().any(|event| start.next(*event) == Ok(next)),
                (_, None) => false,
            };
            if !right {
                return Ok(violation(
                    format!("deposit_events deposit_id={id} version={version}"),
                    "no rule leads there",
                ));
            }
            before = reached.map(|state| (id, state));
        }
    }
}

const EVENTS: [DepositEvent; 8] = [
    DepositEvent::Proven,
    DepositEvent::Credited,
    DepositEvent::LeftOver,
    DepositEvent::Assigned,
    DepositEvent::Settled,
    DepositEvent::Gone,
    DepositEvent::TakenBack,
    DepositEvent::Collected,
];
