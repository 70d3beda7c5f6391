//! What bdk_wallet says is in a file. An import is verified against this.

use bdk_wallet::rusqlite::Connection;
use bdk_wallet::{KeychainKind, Wallet};
use serde_json::{Value, json};

use crate::Error;
use crate::flags::Flags;

pub fn run(flags: &mut Flags) -> Result<Value, Error> {
    let file = flags.old_file()?;
    flags.end()?;
    Ok(dump(&*crate::load(&mut Connection::open(&file)?)?))
}

pub fn dump(wallet: &Wallet) -> Value {
    let balance = wallet.balance();
    let mut outputs: Vec<_> = wallet.list_output().collect();
    outputs.sort_by_key(|output| (output.outpoint.txid.to_string(), output.outpoint.vout));
    let utxos: Vec<Value> = outputs
        .iter()
        .map(|output| {
            json!([
                output.outpoint.txid,
                output.outpoint.vout,
                output.txout.value.to_sat(),
                output.chain_position.confirmation_height_upper_bound(),
                output.is_spent
            ])
        })
        .collect();
    let mut locked: Vec<String> = wallet.list_locked_outpoints().map(|outpoint| outpoint.to_string()).collect();
    locked.sort();
    let tip = wallet.latest_checkpoint();
    json!({
        "network": wallet.network().to_string(),
        "balance": {
            "confirmed": balance.confirmed.to_sat(),
            "unconfirmed": (balance.trusted_pending + balance.untrusted_pending).to_sat(),
            "immature": balance.immature.to_sat(),
        },
        "utxos": utxos,
        "locked": locked,
        "descriptors": {
            "external": wallet.public_descriptor(KeychainKind::External).to_string(),
            "internal": wallet.public_descriptor(KeychainKind::Internal).to_string(),
        },
        "tip": {"height": tip.height(), "hash": tip.hash()},
    })
}
