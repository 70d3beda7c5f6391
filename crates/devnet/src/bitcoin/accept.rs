//! May this transaction wait in the pool? Core's ladder of rules, in Core's order.

use std::collections::BTreeSet;

use ::bitcoin::{Amount, OutPoint, Transaction, Txid};

use super::chain::{Chain, Coin};
use super::pool::{Entry, Pool, improves};
use super::reject::Reject;
use super::{consensus, policy, script};

const CLUSTER_COUNT: usize = 64;
const CLUSTER_VBYTES: u64 = 101_000;
const REPLACED_CLUSTERS: usize = 100;
/// Core evicts what pays least; this pool, which nobody fills by accident, takes no more.
const POOL_VBYTES: u64 = 100_000_000;
const TRUC: i32 = 3;
const TRUC_VSIZE: u64 = 10_000;
const TRUC_CHILD_VSIZE: u64 = 1_000;

/// What is asked of a transaction beyond the rules of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Alone,
    /// One of a package that is only tested: it replaces nothing.
    Tested,
    /// One of a package that pays together.
    Together,
    /// It was in a block that is no longer, or in the pool under another tip: only the rules of blocks, and no scripts,
    /// which ran before.
    Again,
}

pub(super) struct Accepted {
    pub entry: Entry,
    pub replaced: BTreeSet<Txid>,
}

/// The coins of the inputs, from the chain or from the pool.
pub(super) fn coins_of(chain: &Chain, pool: &Pool, transaction: &Transaction) -> Option<Vec<Coin>> {
    let next = chain.height().saturating_add(1);
    let coin = |outpoint: &OutPoint| {
        let waiting = || pool.output(outpoint).map(|out| Coin { out: out.clone(), height: next, coinbase: false });
        chain.coin(outpoint).cloned().or_else(waiting)
    };
    transaction.input.iter().map(|input| coin(&input.previous_output)).collect()
}

fn is_known(chain: &Chain, transaction: &Transaction, txid: Txid) -> bool {
    (0_u32..).take(transaction.output.len()).any(|vout| chain.coin(&OutPoint { txid, vout }).is_some())
}

pub(super) fn check(
    chain: &Chain,
    pool: &Pool,
    transaction: &Transaction,
    mode: Mode,
    time: i64,
) -> Result<Accepted, Reject> {
    consensus::check_alone(transaction)?;
    if transaction.is_coinbase() {
        return Err(Reject::rule("coinbase"));
    }
    let relayed = mode != Mode::Again;
    if relayed {
        policy::check_standard(transaction)?;
        if transaction.base_size() < 65 {
            return Err(Reject::rule("tx-size-small"));
        }
    }
    if !consensus::is_final(chain, transaction) {
        return Err(Reject::rule("non-final"));
    }
    let (txid, wtxid) = (transaction.compute_txid(), transaction.compute_wtxid());
    if let Some(waiting) = pool.get(&txid) {
        let same = waiting.wtxid == wtxid;
        return Err(Reject::rule(if same { "txn-already-in-mempool" } else { "txn-same-nonwitness-data-in-mempool" }));
    }
    let conflicts: BTreeSet<Txid> =
        transaction.input.iter().filter_map(|input| pool.spender(&input.previous_output)).collect();
    if !conflicts.is_empty() && matches!(mode, Mode::Tested | Mode::Again) {
        return Err(Reject::rule("bip125-replacement-disallowed"));
    }
    let Some(coins) = coins_of(chain, pool, transaction) else {
        let known = is_known(chain, transaction, txid);
        return Err(if known { Reject::rule("txn-already-known") } else { Reject::missing() });
    };
    if !consensus::is_sequence_final(chain, transaction, &coins) {
        return Err(Reject::rule("non-BIP68-final"));
    }
    let fee = consensus::check_inputs(chain, transaction, &coins)?;
    if relayed {
        policy::check_inputs(transaction, &coins)?;
        policy::check_witnesses(transaction, &coins)?;
    }
    let sigops = transaction.total_sigop_cost(|outpoint| {
        let at = transaction.input.iter().position(|input| input.previous_output == *outpoint)?;
        coins.get(at).map(|coin| coin.out.clone())
    });
    let entry = Entry {
        txid,
        wtxid,
        fee: fee.to_sat(),
        weight: transaction.weight().to_wu(),
        sigops: u64::try_from(sigops).unwrap_or(u64::MAX),
        time,
        height: chain.height(),
        not_before: 0,
        sequence: 0,
        transaction: transaction.clone(),
    };
    if !relayed {
        return Ok(Accepted { entry, replaced: BTreeSet::new() });
    }
    if fee != Amount::ZERO && policy::dust_outputs(transaction) > 0 {
        return Err(Reject::rule("dust").because("tx with dust output must be 0-fee"));
    }
    policy::check_sigops(entry.sigops)?;
    if mode != Mode::Together {
        policy::check_fee(entry.fee, entry.vsize())?;
    }
    check_truc(pool, &entry, &conflicts)?;
    let replaced = check_cluster(pool, &entry, &conflicts)?;
    check_ephemeral(pool, &entry)?;
    if pool.bytes.saturating_add(entry.vsize()) > POOL_VBYTES {
        return Err(Reject::fee("mempool full", String::new()));
    }
    script::verify_standard(transaction, &coins).map_err(|(at, why)| {
        let spent = transaction.input[at].previous_output;
        Reject::rule(format!("mempool-script-verify-flag-failed ({why})"))
            .because(format!("input {at} of {txid} (wtxid {wtxid}), spending {}:{}", spent.txid, spent.vout))
    })?;
    Ok(Accepted { entry, replaced })
}

/// What it replaces, if its fee, its rate and the size of its cluster allow it.
fn check_cluster(pool: &Pool, entry: &Entry, conflicts: &BTreeSet<Txid>) -> Result<BTreeSet<Txid>, Reject> {
    let txid = entry.txid;
    let replaced: BTreeSet<Txid> = conflicts.iter().flat_map(|conflict| pool.descendants(conflict)).collect();
    if !conflicts.is_empty() {
        let mut clusters: Vec<BTreeSet<Txid>> = Vec::new();
        for conflict in conflicts {
            if !clusters.iter().any(|cluster| cluster.contains(conflict)) {
                clusters.push(pool.cluster([*conflict]));
            }
        }
        if clusters.len() > REPLACED_CLUSTERS {
            return Err(Reject::rule("too many potential replacements").because(format!(
                "rejecting replacement {txid}; too many conflicting clusters ({} > {REPLACED_CLUSTERS})",
                clusters.len()
            )));
        }
        check_replacement_fee(pool, entry, &replaced)?;
    }
    let parents = pool.parents(&entry.transaction);
    let around = pool.cluster(parents.union(conflicts).copied());
    // With the replaced ones gone, what was one cluster may be several; only that of the new one counts.
    let mut without = pool.clone_part(&around);
    for gone in &replaced {
        without.remove(gone);
    }
    let mut tied = without.cluster(parents.iter().copied());
    let vbytes =
        tied.iter().filter_map(|txid| without.get(txid)).map(Entry::vsize).fold(entry.vsize(), u64::saturating_add);
    if tied.len() >= CLUSTER_COUNT || vbytes > CLUSTER_VBYTES {
        return Err(Reject::rule("too-large-cluster"));
    }
    if !conflicts.is_empty() {
        let old = pool.graph(&around).chunks();
        tied.extend(around.difference(&replaced));
        let mut graph = without.graph(&tied);
        graph.add(entry);
        if !improves(&graph.chunks(), &old) {
            let details = "insufficient feerate: does not improve feerate diagram".to_owned();
            return Err(Reject::fee("replacement-failed", details));
        }
        let ancestors: BTreeSet<Txid> = parents.iter().flat_map(|parent| pool.ancestors(parent)).collect();
        if let Some(both) = ancestors.intersection(conflicts).next() {
            return Err(Reject::rule("bad-txns-spends-conflicting-tx")
                .because(format!("{txid} spends conflicting transaction {both}")));
        }
    }
    Ok(replaced)
}

/// Rules 3 and 4 of BIP125.
fn check_replacement_fee(pool: &Pool, entry: &Entry, replaced: &BTreeSet<Txid>) -> Result<(), Reject> {
    let (txid, fee) = (entry.txid, entry.fee);
    let show = |sat: u64| consensus::money(Amount::from_sat(sat));
    let before = replaced.iter().filter_map(|txid| pool.get(txid)).map(|old| old.fee).fold(0, u64::saturating_add);
    let Some(more) = fee.checked_sub(before) else {
        let details =
            format!("rejecting replacement {txid}, less fees than conflicting txs; {} < {}", show(fee), show(before));
        return Err(Reject::fee("insufficient fee", details));
    };
    let least = policy::fee_at(policy::INCREMENTAL, entry.vsize());
    if more < least {
        let details = format!(
            "rejecting replacement {txid}, not enough additional fees to relay; {} < {}",
            show(more),
            show(least)
        );
        return Err(Reject::fee("insufficient fee", details));
    }
    Ok(())
}

/// BIP431: a version 3 transaction has at most one unconfirmed parent or child, and that of its own kind. Core may drop
/// a sibling in favour of a better one; here the sibling stays.
fn check_truc(pool: &Pool, entry: &Entry, conflicts: &BTreeSet<Txid>) -> Result<(), Reject> {
    let violation = |details: String| Err(Reject::rule("TRUC-violation").because(details));
    let (version, me) = (entry.transaction.version.0, format!("tx {} (wtxid={})", entry.txid, entry.wtxid));
    let parents = pool.parents(&entry.transaction);
    for parent in parents.iter().filter_map(|parent| pool.get(parent)) {
        let other = format!("tx {} (wtxid={})", parent.txid, parent.wtxid);
        match (version == TRUC, parent.transaction.version.0 == TRUC) {
            (false, true) => return violation(format!("non-version=3 {me} cannot spend from version=3 {other}")),
            (true, false) => return violation(format!("version=3 {me} cannot spend from non-version=3 {other}")),
            _ => {}
        }
    }
    if version != TRUC {
        return Ok(());
    }
    let vsize = entry.vsize();
    if vsize > TRUC_VSIZE {
        return violation(format!("version=3 {me} is too big: {vsize} > {TRUC_VSIZE} virtual bytes"));
    }
    let Some(parent) = parents.first() else { return Ok(()) };
    if parents.len() > 1 || pool.ancestors(parent).len() > 1 {
        return violation(format!("{me} would have too many ancestors"));
    }
    if vsize > TRUC_CHILD_VSIZE {
        return violation(format!("version=3 child {me} is too big: {vsize} > {TRUC_CHILD_VSIZE} virtual bytes"));
    }
    let siblings = pool.children(parent);
    if !siblings.is_empty() && siblings.is_disjoint(conflicts) {
        let wtxid = pool.get(parent).map(|parent| parent.wtxid.to_string()).unwrap_or_default();
        return violation(format!("tx {parent} (wtxid={wtxid}) would exceed descendant count limit"));
    }
    Ok(())
}

/// Dust may be made only by who pays nothing, for a child that takes it away at once.
fn check_ephemeral(pool: &Pool, entry: &Entry) -> Result<(), Reject> {
    let spent: BTreeSet<OutPoint> = entry.transaction.input.iter().map(|input| input.previous_output).collect();
    for parent in pool.parents(&entry.transaction).iter().filter_map(|parent| pool.get(parent)) {
        let left = (0_u32..).zip(&parent.transaction.output).any(|(vout, output)| {
            output.value < policy::dust_limit(output) && !spent.contains(&OutPoint { txid: parent.txid, vout })
        });
        if left {
            return Err(Reject::rule("missing-ephemeral-spends")
                .because(format!("tx {} (wtxid={}) did not spend parent's ephemeral dust", entry.txid, entry.wtxid)));
        }
    }
    Ok(())
}
