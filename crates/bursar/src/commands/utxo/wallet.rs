//! `bursar utxo create`, `bursar utxo address add` and `list`: a wallet, and what is paid to it.

use custody::bitcoin::kind_of_script;
use domain::Clock;
use serde_json::{Value, json};
use store::Db;
use store::utxo::{Added, AddressKind, AddressRow, Network, NewAddress, Path, Paths};
use terminal::clock::SystemClock;
use terminal::failure::CommandResult;
use terminal::output::plain;

use super::super::Context;
use super::{input, known_wallet, shown};

#[derive(Debug, clap::Args)]
pub struct CreateArguments {
    /// The wallet's name, for people and for the other commands
    #[arg(value_parser = input::name)]
    name: String,
    /// bitcoin, testnet, testnet4, signet or regtest
    #[arg(long, value_parser = input::network)]
    network: Network,
}

#[derive(Debug, clap::Subcommand)]
pub enum AddressCommand {
    /// Add an address: what pays it from now on is the wallet's
    ///
    /// What has paid it before is found when the chain is read again. Outputs of P2WPKH and P2TR
    /// can be selected, if the path to their key is given; others are counted and listed. Adding one
    /// again changes nothing, but gives it its path if that was missing.
    ///
    /// Examples:
    ///   bursar utxo address add hot --account 0 --address bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj
    ///   bursar utxo address add hot --account 0 --branch 1 --index 7 --script 001428b120f4…
    #[command(verbatim_doc_comment)]
    Add(AddArguments),
    /// List a wallet's addresses in the order in which they were added
    ///
    /// Examples:
    ///   bursar utxo address list hot
    ///   bursar utxo address list hot --account 1 --after 4711 --json
    #[command(verbatim_doc_comment)]
    List(ListArguments),
}

#[derive(Debug, clap::Args)]
pub struct ListArguments {
    /// The wallet's name
    wallet: String,
    /// Only the addresses of this account
    #[arg(long)]
    account: Option<u32>,
    /// Only ids above this one: the next page
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    after: Option<i64>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("place").required(true).args(["script", "address"]))]
pub struct AddArguments {
    /// The wallet's name
    wallet: String,
    /// The account of BIP 44; balances and selections are by account
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=0x7fff_ffff))]
    account: u32,
    /// The output script
    #[arg(long, value_name = "HEX", value_parser = input::script)]
    script: Option<std::vec::Vec<u8>>,
    /// The address, of the wallet's network
    #[arg(long)]
    address: Option<String>,
    /// 0 for receiving, 1 for change: with --index the end of the derivation path
    #[arg(long, requires = "index", value_parser = clap::value_parser!(u8).range(0..=1))]
    branch: Option<u8>,
    /// The last number of the path
    #[arg(long, requires = "branch", value_parser = clap::value_parser!(u32).range(..=0x7fff_ffff))]
    index: Option<u32>,
}

pub async fn create(context: &Context, db: &Db, arguments: &CreateArguments) -> CommandResult {
    let (name, network) = (&arguments.name, arguments.network);
    let id = db.create_wallet(name, network, SystemClock.now()).await?;
    context.print(&json!({ "id": id.0, "wallet": name, "network": network.name() }), || {
        let network = network.name();
        format!("wallet {name} is on {network}\nnext: bursar utxo address add {name} --address ADDRESS")
    });
    Ok(())
}

pub async fn address(context: &Context, db: &Db, command: &AddressCommand) -> CommandResult {
    match command {
        AddressCommand::Add(arguments) => add(context, db, arguments).await,
        AddressCommand::List(arguments) => list(context, db, arguments).await,
    }
}

async fn list(context: &Context, db: &Db, arguments: &ListArguments) -> CommandResult {
    let wallet = known_wallet(db, &arguments.wallet).await?;
    let rows = db.addresses(wallet.id, arguments.account, arguments.after, arguments.limit).await?;
    let full = rows.len() == usize::try_from(arguments.limit).unwrap_or(0);
    let next = rows.last().filter(|_| full).map(|row| row.id);
    let path = |row: &AddressRow| row.path.map(|path| format!("{}/{}", path.branch, path.index));
    let body: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "id": row.id, "account": row.account, "kind": row.kind.text(), "path": path(row),
                "script": shown::hex(&row.script), "address": shown::address(&row.script, wallet.network),
                "label": row.label, "paid": row.paid, "added_at": row.added.to_string(),
            })
        })
        .collect();
    context.print(&json!({ "wallet": wallet.name, "addresses": body, "next_after": next }), || {
        if rows.is_empty() {
            return "no addresses".to_owned();
        }
        let cells: Vec<Vec<String>> = rows
            .iter()
            .map(|row| {
                vec![
                    row.id.to_string(),
                    row.account.to_string(),
                    path(row).unwrap_or_default(),
                    row.kind.text().to_owned(),
                    if row.paid { "paid" } else { "" }.to_owned(),
                    row.label.as_deref().map_or_else(String::new, plain),
                    shown::address(&row.script, wallet.network)
                        .unwrap_or_else(|| format!("script {}", shown::hex(&row.script))),
                ]
            })
            .collect();
        let more = next.map_or_else(String::new, |id| format!("\nmore: --after {id}"));
        let header = ["id", "account", "path", "kind", "paid", "label", "address"];
        format!("{}{more}", shown::narrow_table(&header, &[0, 1], &cells))
    });
    Ok(())
}

async fn add(context: &Context, db: &Db, arguments: &AddArguments) -> CommandResult {
    let wallet = known_wallet(db, &arguments.wallet).await?;
    let script = match (&arguments.script, &arguments.address) {
        (Some(script), _) => script.clone(),
        (None, text) => input::script_of(text.as_deref().unwrap_or_default(), wallet.network)?,
    };
    let path = arguments.branch.zip(arguments.index).map(|(branch, index)| Path { branch, index });
    // Without its path no signer finds the key: it is watched, and nothing is spent from it.
    let kind = if path.is_some() { kind_of_script(&script) } else { AddressKind::Other };
    let new = NewAddress { account: arguments.account, path, kind, script };
    let added = db.add_addresses(wallet.id, std::slice::from_ref(&new), Paths::Exact, SystemClock.now()).await?;
    let address = shown::address(&new.script, wallet.network);
    let body = json!({
        "wallet": wallet.name, "account": new.account, "script": shown::hex(&new.script), "address": address,
        "kind": (added != Added::default()).then(|| kind.text()),
        "added": added.new == 1, "learned_path": added.learned == 1,
    });
    context.print(&body, || {
        let place = address.unwrap_or_else(|| format!("script {}", shown::hex(&new.script)));
        let kind = match kind {
            AddressKind::P2wpkh | AddressKind::P2tr => kind.text(),
            AddressKind::Other if path.is_none() && kind_of_script(&new.script) != AddressKind::Other => {
                "only watched: --branch and --index say which key can spend from it"
            }
            AddressKind::Other => "only watched",
        };
        let whose = format!("wallet {}, account {}", wallet.name, new.account);
        match added {
            Added { new: 1, .. } => format!(
                "{place} ({kind}) added to {whose}\n\
                 if it was paid before: bursar utxo follow --node URL --rescan-from HEIGHT"
            ),
            Added { learned: 1, .. } => format!("{place} of {whose} has its path now ({kind})"),
            Added { .. } => format!("{place} was already in {whose}"),
        }
    });
    Ok(())
}
