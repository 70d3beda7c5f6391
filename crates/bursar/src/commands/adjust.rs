//! `bursar adjust`: house capital in and out, and a user's money credited or debited by hand, by two people.

use domain::adjustment::{Adjustment, BadAdjustment, EngineHas, Party};
use domain::ledger::{Outcome, Reply};
use domain::{AccountKind, Amount, Approval, Asset, AssetId, ChainName, Clock, UserId};
use serde_json::json;
use store::Db;
use store::catalog::read_assets;
use store::ledger::Adjusted;
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};

use super::approval::ApprovalArguments;
use super::{Context, decimal};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Coins of the house have arrived on our addresses: from custody:CHAIN to external:CHAIN
    CapitalIn {
        #[command(flatten)]
        chain: Chain,
        #[command(flatten)]
        common: Common,
    },
    /// Coins of the house have left our addresses, at most what it put in: from external:CHAIN to custody:CHAIN
    CapitalOut {
        #[command(flatten)]
        chain: Chain,
        #[command(flatten)]
        common: Common,
    },
    /// Give money to a user
    Credit {
        #[command(flatten)]
        user: User,
        /// Where it comes from: custody:CHAIN (coins that have arrived for the user on our addresses), external:CHAIN (the
        /// house's capital), fees (what the house earned), suspense (a mismatch that is resolved)
        #[arg(long, value_name = "ACCOUNT", value_parser = kind)]
        from: AccountKind,
        #[command(flatten)]
        common: Common,
    },
    /// Take money from a user, at most what is available
    Debit {
        #[command(flatten)]
        user: User,
        /// Where it goes: custody:CHAIN (coins that have left our addresses for the user), external:CHAIN, fees, suspense
        #[arg(long, value_name = "ACCOUNT", value_parser = kind)]
        to: AccountKind,
        #[command(flatten)]
        common: Common,
    },
    /// Accept that the spot engine has more of a user's money, or less, than transfers brought there: between clearing:spot
    /// and suspense
    ///
    /// For what cannot be mended otherwise: the rest that bursar reconcile spot --accept-rest leaves, or a transfer that was
    /// resolved without proof and turned out to be otherwise. bursar audit names the user and the figures. Afterwards the
    /// engine and the books agree, and a stopped asset can be resumed; what is below zero in suspense then is a loss that the
    /// house makes good with bursar adjust house --to suspense.
    Spot {
        #[command(flatten)]
        user: User,
        /// How the engine differs from what transfers brought there
        #[arg(long, value_enum)]
        engine_has: Differs,
        #[command(flatten)]
        common: Common,
    },
    /// Move money between accounts of the house, such as a loss from suspense to fees
    House {
        #[arg(long, value_name = "ACCOUNT", value_parser = kind)]
        from: AccountKind,
        #[arg(long, value_name = "ACCOUNT", value_parser = kind)]
        to: AccountKind,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Differs {
    More,
    Less,
}

#[derive(Debug, clap::Args)]
pub struct Chain {
    /// The chain, such as tron
    #[arg(long, value_parser = chain)]
    chain: ChainName,
}

#[derive(Debug, clap::Args)]
pub struct User {
    /// The user's number
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
    user: i64,
}

#[derive(Debug, clap::Args)]
pub struct Common {
    /// The asset, such as USDT
    #[arg(long)]
    asset: String,
    /// As a decimal, such as 12.5
    #[arg(long)]
    amount: String,
    /// Your own name for this adjustment, such as the number of its case. The same command again is the same adjustment
    /// and moves nothing more; the same key with anything else is refused. There is no default: a key that were made
    /// from the rest would take a retyped reason for a second credit
    #[arg(long)]
    key: String,
    /// Say what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    people: ApprovalArguments,
}

fn kind(text: &str) -> Result<AccountKind, String> {
    text.parse().map_err(|_| "such as custody:tron, external:tron, fees or suspense".to_owned())
}

fn chain(text: &str) -> Result<ChainName, String> {
    text.parse().map_err(|_| "a chain's name, such as tron".to_owned())
}

impl User {
    fn party(&self) -> Party {
        // The command line takes no other numbers than those of users.
        UserId::new(self.user).map_or(Party::House(AccountKind::Funding), Party::User)
    }
}

impl Command {
    const fn common(&self) -> &Common {
        match self {
            Self::CapitalIn { common, .. }
            | Self::CapitalOut { common, .. }
            | Self::Credit { common, .. }
            | Self::Debit { common, .. }
            | Self::Spot { common, .. }
            | Self::House { common, .. } => common,
        }
    }

    fn adjustment(&self, asset: AssetId, amount: Amount, approval: Approval) -> Result<Adjustment, BadAdjustment> {
        let custody = |of: &Chain| Party::House(AccountKind::Custody(of.chain.clone()));
        let external = |of: &Chain| Party::House(AccountKind::External(of.chain.clone()));
        let key = &self.common().key;
        let ends = match self {
            Self::CapitalIn { chain, .. } => (custody(chain), external(chain)),
            Self::CapitalOut { chain, .. } => (external(chain), custody(chain)),
            Self::Credit { user, from, .. } => (Party::House(from.clone()), user.party()),
            Self::Debit { user, to, .. } => (user.party(), Party::House(to.clone())),
            Self::House { from, to, .. } => (Party::House(from.clone()), Party::House(to.clone())),
            Self::Spot { user, engine_has, .. } => {
                let differs = match engine_has {
                    Differs::More => EngineHas::More,
                    Differs::Less => EngineHas::Less,
                };
                let user = UserId::new(user.user).ok_or(BadAdjustment::Key)?;
                return Adjustment::of_spot(key, user, differs, asset, amount, approval);
            }
        };
        Adjustment::new(key, ends, asset, amount, approval)
    }
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let common = command.common();
    let approval = common.people.approval()?;
    let db = context.open().await?;
    let (id, asset) = known_asset(&db, &common.asset).await?;
    let amount = Amount::parse(&common.amount, asset.precision).ok().filter(|amount| amount.is_positive());
    let amount = amount.ok_or_else(|| {
        let message = format!("{:?} is no amount of {}", common.amount, asset.symbol);
        let hint = format!("a decimal greater than zero with at most {} decimals", asset.precision.decimals());
        Failure::bad_input("INVALID_AMOUNT", message, hint)
    })?;
    let wanted = command.adjustment(id, amount, approval).map_err(bad)?;
    let adjusted = db.adjust(&wanted, common.dry_run, SystemClock.now()).await?;
    db.close().await;
    let outcome = outcome(&wanted, &asset, &adjusted)?;
    let shown = decimal(i128::from(amount.units()), asset.precision);
    let body = json!({
        "key": wanted.key().as_str(), "outcome": outcome, "dry_run": common.dry_run, "from": wanted.from().to_string(),
        "to": wanted.to().to_string(), "asset": asset.symbol.as_str(), "amount": shown,
        "actor": wanted.approval().actor(), "second": wanted.approval().second(),
        "reason": wanted.approval().reason(),
    });
    context.print(&body, || {
        let how = match (outcome, common.dry_run) {
            ("replayed", _) => "moved before, nothing was done now",
            (_, true) => "would be moved (--dry-run)",
            _ => "moved",
        };
        let (from, to, key) = (wanted.from(), wanted.to(), wanted.key());
        format!("{shown} {} from {from} to {to}: {how} ({key})", asset.symbol)
    });
    Ok(())
}

/// What the ledger made of it, or why it is refused.
fn outcome(wanted: &Adjustment, asset: &Asset, adjusted: &Adjusted) -> Result<&'static str, Failure> {
    let key = wanted.key();
    match adjusted {
        Adjusted::Decided(Reply::First(Outcome::Applied)) => Ok("applied"),
        Adjusted::Decided(Reply::Replay(Outcome::Applied)) => Ok("replayed"),
        Adjusted::Decided(Reply::First(Outcome::Refused(refusal)) | Reply::Replay(Outcome::Refused(refusal))) => {
            let hint = "a refusal is kept under its key: try again under another one when the reason has gone";
            Err(Failure::bad_input(refusal.code(), format!("{key}: {refusal}"), hint))
        }
        Adjusted::Decided(Reply::Conflict(difference)) => {
            let hint = format!("bursar journal --key {key} shows the first; another adjustment needs another key");
            Err(Failure::bad_input(difference.code(), format!("{key}: {difference}"), hint))
        }
        Adjusted::NoAccount(party @ Party::User(user)) => {
            let hint = format!("bursar account open --user {} --asset {}", user.get(), asset.symbol);
            Err(Failure::bad_input("ACCOUNT_NOT_FOUND", format!("there is no {party} in {}", asset.symbol), hint))
        }
        Adjusted::NoAccount(party @ Party::House(_)) => {
            let hint = format!("bursar account --asset {} lists them", asset.symbol);
            Err(Failure::bad_input("ACCOUNT_NOT_FOUND", format!("there is no {party} in {}", asset.symbol), hint))
        }
        Adjusted::Kept(chain) => {
            let message = format!("custody:{chain} follows what the blocks of {chain} show, and is not moved by hand");
            let hint = format!(
                "what has arrived is in suspense: --from suspense, or for capital: bursar adjust house --from suspense --to external:{chain}"
            );
            Err(Failure::bad_input("CUSTODY_FOLLOWS_CHAIN", message, hint))
        }
        Adjusted::TooLow { kind, balance } => {
            let balance = decimal(*balance, asset.precision);
            let message = format!("{kind} would come to {balance} {}: the house does not have that", asset.symbol);
            let hint = match kind {
                AccountKind::Suspense => "only what is in suspense is paid out of it: bursar balances shows that",
                _ => "bursar balances shows what it has; capital comes in with bursar adjust capital-in",
            };
            Err(Failure::bad_input("HOUSE_BALANCE_TOO_LOW", message, hint))
        }
    }
}

fn bad(error: BadAdjustment) -> Failure {
    let message = error.to_string();
    match error {
        BadAdjustment::Key => Failure::bad_input("INVALID_REQUEST", message, "--key case-4711"),
        BadAdjustment::Kind(_) | BadAdjustment::TwoUsers => {
            let hint = "one of custody:CHAIN, external:CHAIN, fees, suspense";
            Failure::bad_input("INVALID_ACCOUNT_TYPE", message, hint)
        }
    }
}

pub async fn known_asset(db: &Db, text: &str) -> Result<(AssetId, Asset), Failure> {
    let assets = read_assets(&mut db.read().await?).await?;
    let symbols: Vec<String> = assets.values().map(|asset| asset.symbol.to_string()).collect();
    assets.into_iter().find(|(_, asset)| asset.symbol.as_str() == text).ok_or_else(|| {
        let hint = format!("known are: {}", symbols.join(", "));
        Failure::bad_input("INVALID_ASSET", format!("there is no asset {text:?}"), hint)
    })
}
