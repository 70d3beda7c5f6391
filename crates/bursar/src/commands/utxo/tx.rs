//! `bursar utxo tx`: one transaction with all that is known of it.

use domain::Clock;
use serde_json::{Value, json};
use store::Db;
use store::utxo::{Hash, Network, TransactionDetail, UtxoError, UtxoRefusal, Wallet};
use terminal::clock::SystemClock;
use terminal::failure::CommandResult;
use terminal::output::{plain, table};

use super::super::Context;
use super::{input, known_wallet, shown};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The wallet's name
    wallet: String,
    /// The transaction's hash, as a node prints it
    #[arg(value_parser = input::hash)]
    hash: Hash,
}

pub async fn run(context: &Context, db: &Db, arguments: &Arguments) -> CommandResult {
    let wallet = known_wallet(db, &arguments.wallet).await?;
    let hash = arguments.hash;
    let Some(detail) = db.transaction(wallet.id, hash, SystemClock.now()).await? else {
        return show_pruned(context, db, &wallet, hash).await;
    };
    let tip = db.tip().await?.map(|(height, _)| height);
    context.print(&json(&detail, wallet.network), || text(&detail, wallet.network, tip));
    Ok(())
}

/// The history outlives the transaction.
async fn show_pruned(context: &Context, db: &Db, wallet: &Wallet, hash: Hash) -> CommandResult {
    let events = db.transaction_events(wallet.id, hash).await?;
    if events.is_empty() {
        return Err(UtxoError::Refused(UtxoRefusal::UnknownTransaction(hash)).into());
    }
    let history: Vec<Value> = events.iter().map(shown::event_json).collect();
    context.print(&json!({ "hash": hash.to_string(), "pruned": true, "history": history }), || {
        format!("transaction  {hash}\nstatus       pruned: this is all that is left\n\n{}", shown::events(&events))
    });
    Ok(())
}

fn json(detail: &TransactionDetail, network: Network) -> Value {
    let inputs = detail.inputs.iter().map(|input| {
        json!({
            "outpoint": input.outpoint.to_string(), "ours": input.ours.is_some(),
            "account": input.ours.map(|(account, _)| account), "amount": input.ours.map(|(_, amount)| shown::btc(amount)),
        })
    });
    let texts = |hashes: &[Hash]| hashes.iter().map(Hash::to_string).collect::<Vec<_>>();
    json!({
        "hash": detail.hash.to_string(), "pruned": false, "status": detail.status.text(), "height": detail.height,
        "received_at": detail.received.to_string(), "coinbase": detail.coinbase, "own": detail.own,
        "given_up": detail.given_up, "label": detail.label, "raw": shown::hex(&detail.raw), "inputs": inputs.collect::<Vec<_>>(),
        "outputs": detail.outputs.iter().map(|row| shown::output_json(row, network)).collect::<Vec<_>>(),
        "replaced": texts(&detail.replaced), "replaced_by": texts(&detail.replaced_by),
        "history": detail.events.iter().map(shown::event_json).collect::<Vec<_>>(),
    })
}

fn text(detail: &TransactionDetail, network: Network, tip: Option<u32>) -> String {
    let status = match detail.height {
        Some(height) => format!("{}, in block {height}", detail.status),
        None => detail.status.to_string(),
    };
    let mut lines = vec![
        format!("transaction  {}", detail.hash),
        format!("status       {status}"),
        format!("received     {}", detail.received),
        format!("size         {} bytes", detail.raw.len()),
    ];
    if detail.coinbase {
        lines.push("coinbase     yes".to_owned());
    }
    if detail.own {
        lines.push("own          yes: all that it spends was ours".to_owned());
    }
    if detail.given_up {
        lines.push("given up     yes: by two people; a node that shows it brings it back".to_owned());
    }
    lines.extend(detail.label.as_deref().map(|label| format!("label        {}", plain(label))));
    lines.extend(detail.replaced.iter().map(|hash| format!("replaced     {hash}")));
    lines.extend(detail.replaced_by.iter().map(|hash| format!("replaced by  {hash}")));
    let mut text = lines.join("\n");
    for (title, part) in [
        ("inputs", (!detail.inputs.is_empty()).then(|| inputs(detail))),
        ("outputs of ours", (!detail.outputs.is_empty()).then(|| shown::outputs(&detail.outputs, network, tip))),
        ("history", Some(shown::events(&detail.events))),
    ] {
        if let Some(part) = part {
            text.push_str(&format!("\n\n{title}\n\n{part}"));
        }
    }
    text
}

fn inputs(detail: &TransactionDetail) -> String {
    let cells: Vec<Vec<String>> = detail
        .inputs
        .iter()
        .map(|input| match input.ours {
            Some((account, amount)) => vec![input.outpoint.to_string(), shown::btc(amount), account.to_string()],
            None => vec![input.outpoint.to_string(), "not ours".to_owned(), "-".to_owned()],
        })
        .collect();
    table(&["outpoint", "amount", "account"], &[1, 2], &cells)
}
