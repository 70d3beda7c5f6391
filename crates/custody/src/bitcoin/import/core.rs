//! A wallet of Bitcoin Core, from what its commands print: `docs/import.md` says which.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use bitcoin::address::NetworkUnchecked;
use bitcoin::{Address, ScriptBuf};
use store::utxo::{Hash, Network, OutPoint};

use super::super::read::network_of;
use super::core_parts::{Balances, ChainInfo, Described, Descriptors, Entry, Locked, Part, Parts, Raw, Unspent};
use super::descriptor::{Addresses, BadDescriptor, Script};
use super::order::{Known, Standing, parents_first, settle, spenders};
use super::read::{Hex32, shorten, transaction};
use super::{Claim, Export, ImportError};

/// Reads the folder that the export makes, or one file with all of it.
pub fn read_core(path: &Path) -> Result<Export, ImportError> {
    let parts = Parts::read(path)?;
    let chain: ChainInfo = parts.chain.read_object()?;
    let network = network_named(&chain.chain)
        .ok_or_else(|| parts.chain.bad(format!("no chain is called {}", shorten(&chain.chain))))?;
    let history = parts.history.read_history()?;
    let unspent: Vec<Unspent> = parts.unspent.read_all()?;

    let (mut addresses, mut notes) = derive(&parts.descriptors, network)?;
    add_used(&mut addresses, &parts, network, &history, &unspent)?;
    if addresses.never_selected > 0 {
        notes.push(format!(
            "{} descriptors have addresses that are watched and counted, and never selected",
            addresses.never_selected
        ));
    }

    let mut known = known(&parts, &chain, &history)?;
    let mempool: Option<HashSet<Hash>> = match &parts.mempool {
        None => None,
        Some(part) => Some(part.read::<Vec<Hex32>>()?.into_iter().map(|Hex32(hash)| hash).collect()),
    };
    stand(&mut known, mempool.as_ref());
    let claims = claim(&parts, &known, &addresses, &unspent)?;
    let (transactions, left_out) = settle(known);
    Ok(Export {
        network,
        addresses: addresses.into_list(),
        tip: Some((chain.blocks, chain.bestblockhash.0)),
        transactions,
        unspent: claims,
        left_out,
        notes,
    })
}

/// As `getblockchaininfo` calls them.
fn network_named(chain: &str) -> Option<Network> {
    match chain {
        "main" => Some(Network::Bitcoin),
        "test" => Some(Network::Testnet),
        "testnet4" => Some(Network::Testnet4),
        "signet" => Some(Network::Signet),
        "regtest" => Some(Network::Regtest),
        _ => None,
    }
}

/// The whole range of each descriptor, so that all addresses that Core watches are watched here.
fn derive(part: &Part, network: Network) -> Result<(Addresses, Vec<String>), ImportError> {
    let mut descriptors = part.read_object::<Descriptors>()?.descriptors;
    if descriptors.is_empty() {
        return Err(part.bad("the wallet has no descriptors"));
    }
    // Active ones come first: of two descriptors with the same paths, the first keeps them.
    descriptors.sort_by_key(|described| !described.active);
    let (mut addresses, mut notes) = (Addresses::default(), Vec::new());
    for Described { desc, range, .. } in &descriptors {
        let script = match Script::parse(desc, network) {
            Ok(script) => script,
            Err(BadDescriptor::NotDerivable(reason)) => {
                let name = shorten(desc);
                notes.push(format!("of {name} only addresses that were paid are watched: {reason}"));
                continue;
            }
            // The message does not repeat the descriptor, which holds a private key.
            Err(BadDescriptor::Private) => return Err(part.bad(format!("a descriptor: {}", BadDescriptor::Private))),
            Err(error) => return Err(part.bad(format!("descriptor {}: {error}", shorten(desc)))),
        };
        let (from, to) = match range {
            Some(range) => *range,
            None if script.is_ranged() => return Err(part.bad(format!("descriptor {}: no range", shorten(desc)))),
            None => (0, 0),
        };
        let added = addresses.add(&script, from, to);
        added.map_err(|error| part.bad(format!("descriptor {}: {error}", shorten(desc))))?;
    }
    Ok((addresses, notes))
}

/// Addresses that were paid and that no descriptor gave.
fn add_used(
    addresses: &mut Addresses,
    parts: &Parts,
    network: Network,
    history: &[Entry],
    unspent: &[Unspent],
) -> Result<(), ImportError> {
    for entry in history {
        let Some(address) = &entry.address else { continue };
        let script = script_of(address, network).map_err(|reason| parts.history.bad(reason))?;
        // An entry `send` names an address of others that was paid; entries of our own addresses have other categories.
        if entry.category != "send" {
            addresses.add_script(script.as_bytes());
        }
    }
    for output in unspent {
        let script = ScriptBuf::from_bytes(output.script.0.clone());
        if let Some(address) = &output.address
            && script_of(address, network).map_err(|reason| parts.unspent.bad(reason))? != script
        {
            let reason = format!("the script of {}:{} is not that of its address", output.txid.0, output.vout);
            return Err(parts.unspent.bad(reason));
        }
        addresses.add_script(&output.script.0);
    }
    Ok(())
}

fn script_of(address: &str, network: Network) -> Result<ScriptBuf, String> {
    let parsed: Address<NetworkUnchecked> =
        address.parse().map_err(|error| format!("{} is not an address: {error}", shorten(address)))?;
    let checked = parsed.require_network(network_of(network));
    Ok(checked.map_err(|_| format!("{} is not an address of the network {network}", shorten(address)))?.script_pubkey())
}

/// The transactions with their bytes, and where the history says that they stand. Whether those in no block are valid
/// is said by [`stand`].
fn known(parts: &Parts, chain: &ChainInfo, history: &[Entry]) -> Result<HashMap<Hash, Known>, ImportError> {
    let mut bytes: HashMap<Hash, Vec<u8>> = HashMap::new();
    for Raw { txid, hex } in parts.transactions.read_all::<Raw>()? {
        let known = bytes.entry(txid.0).or_insert_with(|| hex.0.clone());
        if *known != hex.0 {
            return Err(parts.transactions.bad(format!("{} is there twice with different bytes", txid.0)));
        }
    }
    let mut blocks: BTreeMap<u32, (Hash, u32)> = BTreeMap::new();
    let mut known: HashMap<Hash, Known> = HashMap::new();
    for entry in history {
        let hash = entry.txid.0;
        let standing =
            standing(entry, chain, &mut blocks).map_err(|reason| parts.history.bad(format!("{hash}: {reason}")))?;
        if let Some(earlier) = known.get(&hash) {
            if earlier.standing != standing {
                return Err(parts.history.bad(format!("{hash} is there twice in different states")));
            }
            continue;
        }
        let raw =
            bytes.remove(&hash).ok_or_else(|| parts.transactions.bad(format!("the bytes of {hash} are missing")))?;
        let tx = transaction(hash, &raw).map_err(|reason| parts.transactions.bad(reason))?;
        let coinbase_waits = tx.coinbase && !matches!(standing, Standing::Confirmed { .. });
        let standing = if coinbase_waits { Standing::Invalid("a coinbase whose block was orphaned") } else { standing };
        known.insert(hash, Known { tx, standing, seen: entry.timereceived.unwrap_or(0) });
    }
    Ok(known)
}

fn standing(entry: &Entry, chain: &ChainInfo, blocks: &mut BTreeMap<u32, (Hash, u32)>) -> Result<Standing, String> {
    if entry.confirmations <= 0 {
        return Ok(if entry.abandoned {
            Standing::Invalid("abandoned")
        } else if entry.confirmations < 0 {
            Standing::Invalid("a transaction in a block conflicts with it")
        } else if !entry.mempoolconflicts.is_empty() {
            Standing::Invalid("a transaction in the mempool conflicts with it")
        } else {
            Standing::Unconfirmed { in_mempool: true }
        });
    }
    let (Some(height), Some(Hex32(hash)), Some(time)) = (entry.blockheight, entry.blockhash, entry.blocktime) else {
        return Err("it has confirmations, and no block height, hash and time".to_owned());
    };
    if i64::from(chain.blocks) - i64::from(height) + 1 != entry.confirmations {
        let (tip, count) = (chain.blocks, entry.confirmations);
        return Err(format!(
            "{count} confirmations at height {height} do not fit the last block, {tip}: a block came in between"
        ));
    }
    if *blocks.entry(height).or_insert((hash, time)) != (hash, time) {
        return Err(format!("there is another block at height {height}"));
    }
    Ok(Standing::Confirmed { block: (height, hash, time), position: entry.blockindex.unwrap_or(0) })
}

/// Decides which transactions in no block are valid. One that Core keeps, though no mempool has it, still spends its
/// inputs, unless a transaction in a block or in the mempool took them.
fn stand(known: &mut HashMap<Hash, Known>, mempool: Option<&HashSet<Hash>>) {
    let Some(mempool) = mempool else { return };
    let waits = |known: &Known| matches!(known.standing, Standing::Unconfirmed { .. });
    let mut order = parents_first(known, |known| std::cmp::Reverse(known.seen));
    order.retain(|hash| waits(&known[hash]) && !mempool.contains(hash));
    for hash in &order {
        if let Some(known) = known.get_mut(hash) {
            known.standing =
                Standing::Invalid("it is in no mempool, and a transaction that is there conflicts with it");
        }
    }
    let mut taken = spenders(known);
    for hash in &order {
        let free = known[hash].tx.inputs.iter().all(|input| {
            !taken.contains_key(input) && known.get(&input.hash).is_none_or(|parent| parent.standing.is_valid())
        });
        if free && let Some(known) = known.get_mut(hash) {
            known.standing = Standing::Unconfirmed { in_mempool: false };
            taken.extend(known.tx.inputs.iter().map(|input| (*input, *hash)));
        }
    }
}

/// The outputs that Core holds for unspent: those that it lists, and those that it does not list because they are
/// locked.
fn claim(
    parts: &Parts,
    known: &HashMap<Hash, Known>,
    addresses: &Addresses,
    unspent: &[Unspent],
) -> Result<BTreeMap<OutPoint, Claim>, ImportError> {
    let mut claims = BTreeMap::new();
    for output in unspent {
        let outpoint = OutPoint { hash: output.txid.0, index: output.vout };
        let (claim, script) = claim_of(known, outpoint).map_err(|reason| parts.unspent.bad(reason))?;
        if claim.amount != output.amount.0 || script != output.script.0 {
            return Err(parts.unspent.bad(format!("{outpoint} is not the output that its transaction has")));
        }
        if claims.insert(outpoint, claim).is_some() {
            return Err(parts.unspent.bad(format!("{outpoint} is there twice")));
        }
    }
    if let Some(part) = &parts.locked {
        for locked in part.read::<Vec<Locked>>()? {
            let outpoint = OutPoint { hash: locked.txid.0, index: locked.vout };
            let (claim, script) = claim_of(known, outpoint).map_err(|reason| part.bad(reason))?;
            // Core lets its user lock outputs that are not of the wallet.
            if addresses.has(script) {
                claims.insert(outpoint, claim);
            }
        }
    }
    if let Some(part) = &parts.balances {
        let listed: i64 = claims.values().map(|claim| claim.amount).sum();
        let total = part.read_object::<Balances>()?.total();
        if listed != total {
            let reason = format!("the balances come to {total} satoshi, the unspent and locked outputs to {listed}");
            return Err(part.bad(format!("{reason}: they are not of one moment")));
        }
    }
    // Core does not count the outputs of a transaction that no mempool has. It may still be mined, so they count here.
    let spent = spenders(known);
    let kept = Standing::Unconfirmed { in_mempool: false };
    for known in known.values().filter(|known| known.standing == kept) {
        for (index, output) in (0_u32..).zip(&known.tx.outputs) {
            let outpoint = OutPoint { hash: known.tx.hash, index };
            if addresses.has(&output.script) && !spent.contains_key(&outpoint) {
                claims.insert(outpoint, Claim { amount: output.amount, height: None, coinbase: false });
            }
        }
    }
    Ok(claims)
}

fn claim_of(known: &HashMap<Hash, Known>, outpoint: OutPoint) -> Result<(Claim, &[u8]), String> {
    let known =
        known.get(&outpoint.hash).ok_or_else(|| format!("{outpoint} is of a transaction that the history lacks"))?;
    let index = usize::try_from(outpoint.index).map_err(|error| error.to_string())?;
    let output = known.tx.outputs.get(index).ok_or_else(|| format!("the transaction has no output {outpoint}"))?;
    let height = match known.standing {
        Standing::Confirmed { block, .. } => Some(block.0),
        Standing::Unconfirmed { .. } => None,
        Standing::Invalid(reason) => return Err(format!("{outpoint} is of a transaction that is not valid: {reason}")),
    };
    Ok((Claim { amount: output.amount, height, coinbase: known.tx.coinbase }, &output.script))
}
