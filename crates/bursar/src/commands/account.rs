//! `bursar account`: lists accounts, opens them, and freezes, disables or activates them.

use domain::ledger::{OpKey, Outcome as Decided, Reply};
use domain::{AccountId, AccountStatus, Clock, Precision, Symbol, UserId};
use serde_json::json;
use store::Db;
use store::catalog::read_assets;
use store::ledger::journal::{AccountFilter, AccountListing, list_accounts};
use store::ledger::{NewAccount, Opened, StatusChange, balances};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::table;

use super::apply::Actor;
use super::{Context, decimal};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    change: Option<Change>,
    #[command(flatten)]
    list: List,
}

/// As many accounts are listed at once, unless asked for otherwise.
const PAGE: i64 = 50;

#[derive(Debug, clap::Args)]
struct List {
    /// Only the accounts of this user (0: the house)
    #[arg(long, alias = "owner", conflicts_with = "asset")]
    user: Option<i64>,
    /// Only the accounts in this asset, such as USDT
    #[arg(long)]
    asset: Option<String>,
    /// Only ids above this one: the next page
    #[arg(long, default_value_t = i64::MIN, hide_default_value = true, allow_negative_numbers = true)]
    after: i64,
    /// How many at once
    #[arg(long, default_value_t = PAGE, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

#[derive(Debug, clap::Subcommand)]
enum Change {
    /// Open a user's funding account, or find it
    Open {
        /// The user's number
        #[arg(long, alias = "owner", allow_negative_numbers = true)]
        user: i64,
        /// The asset, such as USDT
        #[arg(long)]
        asset: String,
    },
    /// Let an account take but not give
    Freeze(StatusArguments),
    /// Let an account neither take nor give
    Disable(StatusArguments),
    /// Let an account take and give again
    Activate(StatusArguments),
}

#[derive(Debug, clap::Args)]
struct StatusArguments {
    /// The account's id
    #[arg(allow_negative_numbers = true)]
    id: i64,
    /// Why, for the history
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    actor: Actor,
}

pub async fn run(context: &Context, arguments: &Arguments) -> CommandResult {
    let db = context.open().await?;
    let done = match &arguments.change {
        None => list(context, &db, &arguments.list).await,
        Some(Change::Open { user, asset }) => open(context, &db, *user, asset).await,
        Some(Change::Freeze(change)) => set_status(context, &db, change, AccountStatus::Frozen).await,
        Some(Change::Disable(change)) => set_status(context, &db, change, AccountStatus::Disabled).await,
        Some(Change::Activate(change)) => set_status(context, &db, change, AccountStatus::Active).await,
    };
    db.close().await;
    done
}

async fn list(context: &Context, db: &Db, wanted: &List) -> CommandResult {
    let filter = match (wanted.user, &wanted.asset) {
        (Some(owner), _) => AccountFilter::Owner(owner),
        (None, Some(asset)) => AccountFilter::Asset(known_asset(db, asset).await?.1.to_string()),
        (None, None) => AccountFilter::All,
    };
    let mut tx = db.read().await?;
    // One more than is shown: only then is there a next page.
    let mut accounts = list_accounts(&mut tx, &filter, wanted.after, wanted.limit + 1).await?;
    accounts.sort_by_key(|account| account.id);
    let shown = usize::try_from(wanted.limit).unwrap_or(usize::MAX);
    let more = accounts.len() > shown;
    accounts.truncate(shown);
    let system = if accounts.iter().any(|account| account.id < 0) {
        balances::system_balances(&mut tx).await?
    } else {
        Default::default()
    };
    let available = |account: &AccountListing| match account.id {
        ..0 => system.get(&AccountId(account.id)).copied().unwrap_or(0),
        0.. => i128::from(account.available),
    };
    let rows: Vec<(AccountListing, String, String)> = accounts
        .into_iter()
        .map(|account| {
            let precision = u8::try_from(account.precision).ok().and_then(Precision::new);
            let show = |units| precision.map_or_else(|| format!("{units} units"), |one| decimal(units, one));
            let (available, frozen) = (show(available(&account)), show(i128::from(account.frozen)));
            (account, available, frozen)
        })
        .collect();
    let body: Vec<_> = rows
        .iter()
        .map(|(account, available, frozen)| {
            json!({
                "id": account.id, "owner": account.owner, "kind": account.kind, "asset": account.symbol,
                "status": account.status, "available": available, "frozen": frozen,
            })
        })
        .collect();
    let next = more.then(|| rows.last().map(|row| row.0.id)).flatten();
    context.print(&json!({ "accounts": body, "next_after": next }), || {
        let cells: Vec<Vec<String>> = rows
            .iter()
            .map(|(account, available, frozen)| {
                let owner = if account.owner == 0 { "house".to_owned() } else { account.owner.to_string() };
                let (kind, asset) = (account.kind.clone(), account.symbol.clone());
                vec![
                    account.id.to_string(),
                    owner,
                    kind,
                    asset,
                    account.status.clone(),
                    available.clone(),
                    frozen.clone(),
                ]
            })
            .collect();
        let header = ["id", "owner", "kind", "asset", "status", "available", "frozen"];
        if cells.is_empty() {
            return "no accounts".to_owned();
        }
        let filter = match (wanted.user, &wanted.asset) {
            (Some(user), _) => format!(" --user {user}"),
            (None, Some(asset)) => format!(" --asset {asset}"),
            (None, None) => String::new(),
        };
        let limit = if wanted.limit == PAGE { String::new() } else { format!(" --limit {}", wanted.limit) };
        let more = next.map_or_else(String::new, |id| format!("\nmore: bursar account{filter} --after {id}{limit}"));
        format!("{}{more}", table(&header, &[0, 1, 5, 6], &cells))
    });
    Ok(())
}

async fn known_asset(db: &Db, text: &str) -> Result<(domain::AssetId, Symbol), Failure> {
    let assets = read_assets(&mut db.read().await?).await?;
    let found = assets.iter().find(|(_, asset)| asset.symbol.as_str() == text);
    found.map(|(id, asset)| (*id, asset.symbol.clone())).ok_or_else(|| {
        let symbols: Vec<&str> = assets.values().map(|asset| asset.symbol.as_str()).collect();
        let hint = if symbols.is_empty() {
            "there are none yet: bursar apply examples/treasury.toml".to_owned()
        } else {
            format!("known are: {}", symbols.join(", "))
        };
        Failure::bad_input("INVALID_ASSET", format!("there is no asset {text:?}"), hint)
    })
}

async fn open(context: &Context, db: &Db, owner: i64, asset: &str) -> CommandResult {
    let user = UserId::new(owner).ok_or_else(|| {
        Failure::bad_input("INVALID_USER", format!("{owner} is no user"), "a user's number is 1 or more")
    })?;
    let (asset_id, symbol) = known_asset(db, asset).await?;
    let known = list_accounts(&mut db.read().await?, &AccountFilter::Owner(owner), 0, i64::MAX).await?;
    let opened = db.open(&[NewAccount::funding(user, asset_id)], SystemClock.now()).await?;
    let Some(Opened::Account(id)) = opened.first() else {
        return Err(Failure::bad_input(
            "INVALID_ASSET",
            format!("there is no asset {symbol}"),
            "list the assets again",
        ));
    };
    let before = known.iter().find(|account| account.id == id.0);
    let body = json!({
        "id": id.0, "owner": owner, "kind": "funding", "asset": symbol.as_str(), "existed": before.is_some(),
    });
    context.print(&body, || {
        let existed =
            before.map_or_else(String::new, |account| format!(", which was there already ({})", account.status));
        format!("account {id}: funding of user {owner} in {symbol}{existed}")
    });
    Ok(())
}

async fn set_status(context: &Context, db: &Db, arguments: &StatusArguments, status: AccountStatus) -> CommandResult {
    let now = SystemClock.now();
    if arguments.reason.trim().is_empty() {
        return Err(Failure::bad_input("REASON_MISSING", "a reason must say something", "--reason \"case 4711\""));
    }
    let key = OpKey::new(format!("status:{}:{}", arguments.id, now.micros()))
        .map_err(|error| Failure::bad_input("INTERNAL", error.to_string(), "this is a bug in Bursar"))?;
    let change = StatusChange {
        key,
        account: AccountId(arguments.id),
        status,
        actor: arguments.actor.name(),
        reason: arguments.reason.clone(),
    };
    match db.set_status(&[change], now).await?.first() {
        Some(Reply::First(Decided::Refused(refusal)) | Reply::Replay(Decided::Refused(refusal))) => Err(Failure {
            code: refusal.code().into(),
            messages: vec![format!("account {}: {refusal}", arguments.id)],
            hint: "bursar account lists the accounts".to_owned(),
            exit: Exit::BadInput,
        }),
        Some(Reply::Conflict(difference)) => {
            let message = format!("account {}: {difference}", arguments.id);
            Err(Failure::bad_input(difference.code(), message, "try again"))
        }
        Some(Reply::First(Decided::Applied) | Reply::Replay(Decided::Applied)) | None => {
            context.print(&json!({ "id": arguments.id, "status": status.as_str() }), || {
                format!("account {} is {}", arguments.id, status.as_str())
            });
            Ok(())
        }
    }
}
