//! `bursar utxo balance`: what each account of each wallet has.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use terminal::clock::SystemClock;
use terminal::failure::CommandResult;
use terminal::output::table;

use domain::Clock;
use store::Db;
use store::utxo::{Balance, Wallet, WalletStatus};

use super::super::Context;
use super::{known_wallet, shown};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only this wallet
    wallet: Option<String>,
}

/// A line's amounts, wide enough for any sum.
#[derive(Clone, Copy, Default)]
struct Sums {
    confirmed: i128,
    unconfirmed: i128,
    immature: i128,
    leased: i128,
    outputs: i128,
}

impl Sums {
    fn add(&mut self, balance: &Balance) {
        self.confirmed += i128::from(balance.confirmed);
        self.unconfirmed += i128::from(balance.unconfirmed);
        self.immature += i128::from(balance.immature);
        self.leased += i128::from(balance.leased);
        self.outputs += i128::from(balance.outputs);
    }

    fn of(balance: &Balance) -> Self {
        let mut sums = Self::default();
        sums.add(balance);
        sums
    }

    fn json(&self) -> Value {
        json!({
            "confirmed": shown::btc(self.confirmed), "unconfirmed": shown::btc(self.unconfirmed),
            "immature": shown::btc(self.immature), "leased": shown::btc(self.leased),
            // A count, not money.
            "outputs": i64::try_from(self.outputs).unwrap_or(i64::MAX),
        })
    }

    fn cells(&self, wallet: &str, account: &str) -> Vec<String> {
        let amounts = [self.confirmed, self.unconfirmed, self.immature, self.leased].map(shown::btc);
        let named = [wallet.to_owned(), account.to_owned()];
        named.into_iter().chain(amounts).chain([self.outputs.to_string()]).collect()
    }
}

pub async fn run(context: &Context, db: &Db, arguments: &Arguments) -> CommandResult {
    let wallets = match &arguments.wallet {
        Some(name) => vec![known_wallet(db, name).await?],
        None => db.wallets().await?,
    };
    let now = SystemClock.now();
    let mut balances: Vec<(Wallet, BTreeMap<u32, Balance>)> = Vec::new();
    for wallet in wallets {
        let accounts = db.balance(wallet.id, now).await?;
        balances.push((wallet, accounts));
    }
    let tip = db.tip().await?;
    let mut total = Sums::default();
    balances.iter().flat_map(|(_, accounts)| accounts.values()).for_each(|balance| total.add(balance));
    let body = json!({
        "wallets": balances.iter().map(|(wallet, accounts)| wallet_json(wallet, accounts)).collect::<Vec<_>>(),
        "total": total.json(),
        "tip": tip.map(|(height, hash)| json!({ "height": height, "hash": hash.to_string() })),
    });
    context.print(&body, || {
        if balances.is_empty() {
            return "no wallets yet: bursar utxo create NAME --network regtest".to_owned();
        }
        let mut rows: Vec<Vec<String>> =
            balances.iter().flat_map(|(wallet, accounts)| lines(wallet, accounts)).collect();
        rows.push(total.cells("total", ""));
        let header = ["wallet", "account", "confirmed", "unconfirmed", "immature", "leased", "outputs"];
        let tip = tip.map_or_else(
            || "no block was connected yet".to_owned(),
            |(height, hash)| format!("in BTC, as of block {height} {hash}"),
        );
        format!("{}\n{tip}", table(&header, &[1, 2, 3, 4, 5, 6], &rows))
    });
    Ok(())
}

fn wallet_json(wallet: &Wallet, accounts: &BTreeMap<u32, Balance>) -> Value {
    let accounts: Vec<Value> = accounts
        .iter()
        .map(|(account, balance)| {
            let mut body = Sums::of(balance).json();
            body["account"] = json!(account);
            body
        })
        .collect();
    json!({
        "wallet": wallet.name, "network": wallet.network.name(), "status": wallet.status.text(), "accounts": accounts,
    })
}

/// A wallet without an address has a line too, because its owner expects to find it in the list.
fn lines(wallet: &Wallet, accounts: &BTreeMap<u32, Balance>) -> Vec<Vec<String>> {
    let name = match wallet.status {
        WalletStatus::Active => wallet.name.clone(),
        WalletStatus::Restoring => format!("{} (restoring)", wallet.name),
    };
    if accounts.is_empty() {
        return vec![Sums::default().cells(&name, "-")];
    }
    accounts.iter().map(|(account, balance)| Sums::of(balance).cells(&name, &account.to_string())).collect()
}
