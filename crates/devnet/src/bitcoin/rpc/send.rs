//! Transactions on their way into the pool.

use std::collections::{BTreeMap, BTreeSet};

use ::bitcoin::script::Instruction;
use ::bitcoin::{Amount, OutPoint, Script, Transaction, Txid};
use serde_json::Value;

use super::super::accept::{self, Accepted, Mode};
use super::super::chain::is_unspendable;
use super::super::json::{Json, object};
use super::super::policy;
use super::super::pool::{Entry, Pool};
use super::super::reject::{Cause, Reject};
use super::super::seconds;
use super::transactions::decoded;
use super::{ALREADY_MINED, BAD_PARAMETER, Call, Failure, REJECTED, RpcResult, UNDECODABLE, VERIFY};

const PACKAGE: usize = 25;

fn burns(transaction: &Transaction, most: Amount) -> Result<(), Failure> {
    let broken = |script: &Script| script.instructions().any(|found: Result<Instruction<'_>, _>| found.is_err());
    let burnt = |script: &Script| is_unspendable(script) || broken(script);
    if transaction.output.iter().any(|output| burnt(&output.script_pubkey) && output.value > most) {
        let message = "Unspendable output exceeds maximum configured by user (maxburnamount)";
        return Err(Failure::new(VERIFY, message));
    }
    Ok(())
}

fn refused(reject: &Reject) -> Failure {
    let code = if reject.cause == Cause::MissingInputs { VERIFY } else { REJECTED };
    Failure::new(code, reject.to_string())
}

pub(super) fn send(call: &mut Call<'_>) -> RpcResult {
    let transaction = decoded(call.arguments.text(0))
        .ok_or_else(|| Failure::new(UNDECODABLE, "TX decode failed. Make sure the tx has at least one input."))?;
    burns(&transaction, call.arguments.amount(2)?.unwrap_or(Amount::ZERO))?;
    let rate = call.arguments.fee_rate(1)?.to_sat();
    let txid = transaction.compute_txid();
    let net = &mut *call.net;
    let mut outputs = (0_u32..).take(transaction.output.len());
    if outputs.any(|vout| net.chain.coin(&OutPoint { txid, vout }).is_some()) {
        return Err(Failure::new(ALREADY_MINED, "Transaction outputs already in utxo set"));
    }
    if net.pool.get(&txid).is_some() {
        return Ok(txid.into());
    }
    let accepted = accept::check(&net.chain, &net.pool, &transaction, Mode::Alone, seconds(call.now));
    let accepted = accepted.map_err(|reject| refused(&reject))?;
    let most = policy::fee_at(rate, transaction.weight().to_vbytes_ceil());
    if most > 0 && accepted.entry.fee > most {
        let message = "Fee exceeds maximum configured by user (e.g. -maxtxfee, maxfeerate)";
        return Err(Failure::new(VERIFY, message));
    }
    net.deliver(accepted);
    Ok(txid.into())
}

fn package_of(values: &[Value]) -> Result<Vec<Transaction>, Failure> {
    if values.is_empty() || values.len() > PACKAGE {
        let message = format!("Array must contain between 1 and {PACKAGE} transactions.");
        return Err(Failure::new(BAD_PARAMETER, message));
    }
    let one = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        decoded(text).ok_or_else(|| {
            let message = format!("TX decode failed: {text} Make sure the tx has at least one input.");
            Failure::new(UNDECODABLE, message)
        })
    };
    values.iter().map(one).collect()
}

/// What is wrong with several transactions, whatever each of them is.
fn package_fault(transactions: &[Transaction]) -> Option<&'static str> {
    let (mut seen, mut spent) = (BTreeSet::new(), BTreeSet::new());
    let txids: BTreeSet<Txid> = transactions.iter().map(Transaction::compute_txid).collect();
    if txids.len() < transactions.len() {
        return Some("package-contains-duplicates");
    }
    for transaction in transactions {
        let later = |txid: &Txid| txids.contains(txid) && !seen.contains(txid);
        if transaction.input.iter().any(|input| later(&input.previous_output.txid)) {
            return Some("package-not-sorted");
        }
        seen.insert(transaction.compute_txid());
    }
    for transaction in transactions {
        if transaction.input.iter().any(|input| spent.contains(&input.previous_output)) {
            return Some("conflict-in-package");
        }
        spent.extend(transaction.input.iter().map(|input| input.previous_output));
    }
    None
}

/// In satoshi for a thousand virtual bytes.
fn rate(fee: u64, vsize: u64) -> u64 {
    fee.saturating_mul(1_000) / vsize.max(1)
}

fn fees(entry: &Entry, fee: u64, vsize: u64, together: &[String]) -> Json {
    object! {
        "base" => Json::amount(entry.fee),
        "effective-feerate" => Json::amount(rate(fee, vsize)),
        "effective-includes" => together.iter().map(|wtxid| Json::from(wtxid.as_str())).collect::<Vec<_>>(),
    }
}

pub(super) fn test(call: &mut Call<'_>) -> RpcResult {
    let transactions = package_of(call.arguments.list(0))?;
    let limit = call.arguments.fee_rate(1)?.to_sat();
    let mode = if transactions.len() > 1 { Mode::Tested } else { Mode::Alone };
    let fault = package_fault(&transactions);
    // The pool may be large, and the usual question is about one transaction.
    let mut copy = (transactions.len() > 1).then(|| call.net.pool.clone());
    let (mut stopped, mut results, mut tried) = (fault.is_some(), Vec::new(), Vec::new());
    for transaction in &transactions {
        let result = if stopped {
            None
        } else {
            let pool = copy.as_ref().unwrap_or(&call.net.pool);
            Some(accept::check(&call.net.chain, pool, transaction, mode, seconds(call.now)))
        };
        match (&result, &mut copy) {
            (Some(Ok(accepted)), Some(pool)) => pool.insert(accepted.entry.clone()),
            (Some(Err(_)), _) => stopped = true,
            (Some(Ok(_)), None) | (None, _) => {}
        }
        tried.push(result);
    }
    // Core says nothing of the others when one of several fails.
    let failed = transactions.len() > 1 && stopped;
    for (transaction, result) in transactions.iter().zip(tried) {
        let wtxid = transaction.compute_wtxid();
        let mut json = object! { "txid" => transaction.compute_txid(), "wtxid" => wtxid };
        if let Some(fault) = fault {
            json.push("package-error", fault);
        }
        match result {
            Some(Ok(_)) if failed => {}
            None => {}
            Some(Ok(Accepted { entry, .. })) => {
                let vsize = entry.vsize();
                let most = policy::fee_at(limit, vsize);
                let fine = most == 0 || entry.fee <= most;
                json.push("allowed", fine);
                if fine {
                    json.push("vsize", vsize);
                    json.push("fees", fees(&entry, entry.fee, vsize, &[wtxid.to_string()]));
                } else {
                    json.push("reject-reason", "max-fee-exceeded");
                }
            }
            Some(Err(reject)) => {
                json.push("allowed", false);
                if reject.cause == Cause::MissingInputs {
                    json.push("reject-reason", "missing-inputs");
                } else {
                    json.push("reject-reason", reject.reason.clone());
                    json.push("reject-details", reject.to_string());
                }
            }
        }
        results.push(json);
    }
    Ok(Json::Array(results))
}

/// The last spends outputs of all the others, which spend none of each other's.
fn is_child_with_parents(transactions: &[Transaction]) -> bool {
    let Some((child, parents)) = transactions.split_last() else { return false };
    let txids: BTreeSet<Txid> = parents.iter().map(Transaction::compute_txid).collect();
    let spends: BTreeSet<Txid> = child.input.iter().map(|input| input.previous_output.txid).collect();
    let apart = |parent: &Transaction| parent.input.iter().all(|input| !txids.contains(&input.previous_output.txid));
    txids.is_subset(&spends) && parents.iter().all(apart)
}

/// One by one as far as each pays for itself; the rest together, if the sum pays for all of it.
pub(super) fn package(call: &mut Call<'_>) -> RpcResult {
    let transactions = package_of(call.arguments.list(0))?;
    let limit = call.arguments.fee_rate(1)?.to_sat();
    let burnable = call.arguments.amount(2)?.unwrap_or(Amount::ZERO);
    for transaction in &transactions {
        burns(transaction, burnable)?;
    }
    if transactions.len() > 1 && !is_child_with_parents(&transactions) {
        let message = "package topology disallowed. not child-with-parents or parents depend on each other.";
        return Err(Failure::new(VERIFY, message));
    }
    let time = seconds(call.now);
    let (mut results, mut replaced, mut message) = (BTreeMap::new(), BTreeSet::<Txid>::new(), "success".to_owned());
    if let Some(fault) = package_fault(&transactions) {
        message = fault.to_owned();
        for transaction in &transactions {
            results.insert(transaction.compute_txid(), object! { "error" => "package-not-validated" });
        }
    }
    let mut deferred = Vec::new();
    let sound = results.is_empty();
    for transaction in transactions.iter().filter(|_| sound) {
        let txid = transaction.compute_txid();
        if let Some(entry) = call.net.pool.get(&txid) {
            let known = object! { "vsize" => entry.vsize(), "fees" => object! { "base" => Json::amount(entry.fee) } };
            results.insert(txid, known);
            continue;
        }
        let waits = transaction.input.iter().any(|input| {
            deferred.iter().any(|(_, parent, _): &(&Transaction, Txid, Reject)| *parent == input.previous_output.txid)
        });
        match accept::check(&call.net.chain, &call.net.pool, transaction, Mode::Alone, time) {
            Ok(Accepted { entry, .. }) if limit > 0 && rate(entry.fee, entry.vsize()) > limit => {
                message = "transaction failed".to_owned();
                results.insert(txid, object! { "error" => "max feerate exceeded" });
            }
            Ok(accepted) => {
                let entry = &accepted.entry;
                let (vsize, own) = (entry.vsize(), [entry.wtxid.to_string()]);
                results.insert(txid, object! { "vsize" => vsize, "fees" => fees(entry, entry.fee, vsize, &own) });
                replaced.extend(&accepted.replaced);
                call.net.deliver(accepted);
            }
            Err(reject) if reject.cause == Cause::Fee || (reject.cause == Cause::MissingInputs && waits) => {
                deferred.push((transaction, txid, reject));
            }
            Err(reject) => {
                message = "transaction failed".to_owned();
                results.insert(txid, object! { "error" => reject.to_string() });
            }
        }
    }
    if !deferred.is_empty() {
        match together(call, &deferred, time) {
            Ok(accepted) => {
                let fee = accepted.iter().map(|one| one.entry.fee).fold(0, u64::saturating_add);
                let vsize = accepted.iter().map(|one| one.entry.vsize()).fold(0, u64::saturating_add);
                let wtxids: Vec<String> = accepted.iter().map(|one| one.entry.wtxid.to_string()).collect();
                for one in accepted {
                    replaced.extend(&one.replaced);
                    let facts = fees(&one.entry, fee, vsize, &wtxids);
                    results.insert(one.entry.txid, object! { "vsize" => one.entry.vsize(), "fees" => facts });
                    call.net.deliver(one);
                }
            }
            Err(rejects) => {
                let dust = rejects.iter().any(|reject| reject.reason == "missing-ephemeral-spends");
                message = if dust { "unspent-dust" } else { "transaction failed" }.to_owned();
                for ((_, txid, _), reject) in deferred.iter().zip(rejects) {
                    results.insert(*txid, object! { "error" => reject.to_string() });
                }
            }
        }
    }
    let mut by_wtxid = object! {};
    for transaction in &transactions {
        let txid = transaction.compute_txid();
        let mut json = object! { "txid" => txid };
        if let (Json::Object(fields), Some(Json::Object(more))) = (&mut json, results.remove(&txid)) {
            fields.extend(more);
        }
        by_wtxid.push(transaction.compute_wtxid().to_string(), json);
    }
    Ok(object! {
        "package_msg" => message,
        "tx-results" => by_wtxid,
        "replaced-transactions" => replaced.into_iter().map(Json::from).collect::<Vec<_>>(),
    })
}

/// All of them, or for each why not. Each must pay itself for what it replaces; Core lets the package do so.
fn together(
    call: &Call<'_>,
    deferred: &[(&Transaction, Txid, Reject)],
    time: i64,
) -> Result<Vec<Accepted>, Vec<Reject>> {
    let mut pool: Pool = call.net.pool.clone();
    let mut accepted = Vec::new();
    let own = |at: usize, reject: Reject| {
        let mut rejects: Vec<Reject> = deferred.iter().map(|(_, _, reject)| reject.clone()).collect();
        rejects[at] = reject;
        rejects
    };
    for (at, (transaction, _, _)) in deferred.iter().enumerate() {
        let one = accept::check(&call.net.chain, &pool, transaction, Mode::Together, time);
        let one = one.map_err(|reject| own(at, reject))?;
        for txid in &one.replaced {
            pool.remove(txid);
        }
        pool.insert(one.entry.clone());
        accepted.push(one);
    }
    let fee = accepted.iter().map(|one| one.entry.fee).fold(0, u64::saturating_add);
    let vsize = accepted.iter().map(|one| one.entry.vsize()).fold(0, u64::saturating_add);
    policy::check_fee(fee, vsize).map_err(|reject| own(deferred.len() - 1, reject))?;
    Ok(accepted)
}
