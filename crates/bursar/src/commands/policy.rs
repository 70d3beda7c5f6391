//! `bursar policy …`: what holds for withdrawals, what a request would come to, and whether the signer would sign what the server lets out.

use std::path::PathBuf;

use custody::withdrawal::narrower::{
    KeyDifference, KeyGap, PolicyCoin, PolicyGap, PolicyLimit, PolicyWord, gaps, key_gaps,
};
use domain::transfer::ClientOrderId;
use domain::withdrawal::WithdrawalPolicy;
use domain::{Amount, AmountError, ChainName, Clock, Symbol, UserId};
use serde_json::{Value, json};
use server::api::withdrawal_request::parse_quote;
use server::coins::{CoinOnChain, Coins};
use store::Db;
use store::withdrawal::{CreatedWithdrawal, NewWithdrawal, PolicyRow, WithdrawalId};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::table;

use super::Context;
use super::wallet::signer as wallet_signer;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the policies that hold, with who made each and why
    ///
    /// They stand in the treasury file under [[withdrawals]], and bursar apply makes a new version of what changed.
    Show(ShowArguments),
    /// What a request would come to now, by which rule and on which facts; nothing is written
    Simulate(SimulateArguments),
    /// Compare with the signer's policy file: the server may let out less than the signer signs, never more
    ///
    /// Keys of operators that the signer's policy has not, or has otherwise, are named too: what was signed with one is refused with the good signatures
    /// beside it. Ends with 1 if the server lets out more, or there is such a key. Is a signer configured, it is also asked whether the file is the policy that it has in force.
    Check {
        /// The signer's policy (TOML), as its administrators signed it
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub struct ShowArguments {
    /// Only of this asset
    #[arg(long)]
    asset: Option<String>,
    /// Only on this chain
    #[arg(long)]
    chain: Option<String>,
    /// All versions of one, the oldest first
    #[arg(long, requires = "asset", requires = "chain")]
    history: bool,
}

#[derive(Debug, clap::Args)]
pub struct SimulateArguments {
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
    user: i64,
    #[arg(long)]
    asset: String,
    #[arg(long)]
    chain: String,
    /// What the destination would get, such as 12.5
    #[arg(long)]
    amount: String,
    /// Where to
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// The most that the user agrees to pay on top of it [default: any]
    #[arg(long, value_name = "AMOUNT")]
    max_fee: Option<String>,
    /// A fee that was quoted, by its id
    #[arg(long, value_name = "QUOTE_ID")]
    quote: Option<String>,
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let db = context.open().await?;
    let done = match command {
        Command::Show(arguments) => show(context, &db, arguments).await,
        Command::Simulate(arguments) => simulate(context, &db, arguments).await,
        Command::Check { file } => check(context, &db, file).await,
    };
    db.close().await;
    done
}

fn shown(coin: &CoinOnChain, row: &PolicyRow) -> Value {
    let amount = |amount: Amount| amount.display(coin.asset.precision).to_string();
    let WithdrawalPolicy {
        version,
        enabled,
        incident,
        min,
        max,
        fee,
        auto_approve,
        auto_approve_daily,
        two_above,
        many_above,
        many,
        daily_user,
        daily_total,
        velocity,
        cooling_off_us,
        book_only,
        quote_life_us,
        when_short,
        life_us,
    } = &row.policy;
    json!({
        "asset": coin.asset.symbol.to_string(), "chain": coin.chain.name.to_string(), "version": version, "enabled": enabled,
        "incident": incident, "min": amount(*min), "max": amount(*max), "fee": amount(fee.fixed), "fee_share_bps": fee.share_bps,
        "fee_least": amount(fee.least), "quote_s": quote_life_us / 1_000_000, "auto_approve": amount(*auto_approve),
        "auto_approve_daily": auto_approve_daily.map(amount), "when_short": when_short.as_str(), "life_s": life_us / 1_000_000,
        "two_above": amount(*two_above), "many_above": amount(*many_above), "many": many, "daily_user": daily_user.map(amount),
        "daily_total": daily_total.map(amount), "requests": velocity.map(|velocity| velocity.count),
        "requests_s": velocity.map(|velocity| velocity.window_us / 1_000_000), "cooling_off_s": cooling_off_us / 1_000_000,
        "book_only": book_only, "actor": row.actor, "reason": row.reason, "at": row.at.to_string(),
    })
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        value => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    }
}

async fn show(context: &Context, db: &Db, arguments: &ShowArguments) -> CommandResult {
    let coins = Coins::load(db).await?.all();
    let newest = db.newest_withdrawal_policies().await?;
    let wanted = |coin: &&CoinOnChain| {
        arguments.asset.as_ref().is_none_or(|asset| asset == coin.asset.symbol.as_str())
            && arguments.chain.as_ref().is_none_or(|chain| chain == coin.chain.name.as_str())
    };
    let mut policies: Vec<Value> =
        coins.values().filter(wanted).filter_map(|coin| Some(shown(coin, newest.get(&coin.listing)?))).collect();
    if let Some(coin) = coins.values().find(wanted).filter(|_| arguments.history) {
        policies = db.withdrawal_policies(coin.listing).await?.iter().map(|row| shown(coin, row)).collect();
    }
    context.print(&json!({ "policies": policies }), || {
        if policies.is_empty() {
            return "nothing can be withdrawn: no policy says so ([[withdrawals]] in the treasury file)".to_owned();
        }
        let blocks = policies.iter().map(|policy| {
            let fields = policy.as_object().into_iter().flatten();
            let head = ["asset", "chain"].map(|name| text(&policy[name])).join(" on ");
            let rows: Vec<Vec<String>> = FIELDS
                .iter()
                .filter(|name| fields.clone().any(|(known, _)| known == *name))
                .map(|name| vec![(*name).to_owned(), text(&policy[*name])])
                .collect();
            format!("{head}, version {}\n{}", policy["version"], table(&["", ""], &[], &rows))
        });
        blocks.collect::<Vec<_>>().join("\n\n")
    });
    Ok(())
}

/// As people read them.
const FIELDS: [&str; 24] = [
    "enabled",
    "incident",
    "min",
    "max",
    "fee",
    "fee_share_bps",
    "fee_least",
    "quote_s",
    "auto_approve",
    "auto_approve_daily",
    "two_above",
    "many_above",
    "many",
    "daily_user",
    "daily_total",
    "requests",
    "requests_s",
    "cooling_off_s",
    "book_only",
    "when_short",
    "life_s",
    "actor",
    "reason",
    "at",
];

/// The asset on the chain, by its names.
fn coin(coins: &Coins, asset: &str, chain: &str) -> Result<CoinOnChain, Failure> {
    let missing = || {
        let message = format!("{asset} does not live on {chain}");
        Failure::bad_input("WITHDRAWAL_NOT_OFFERED", message, "bursar policy show lists what can be withdrawn")
    };
    let names: Option<(Symbol, ChainName)> = asset.parse().ok().zip(chain.parse().ok());
    names.and_then(|(asset, chain)| coins.by_name(&asset, &chain)).ok_or_else(missing)
}

fn amount(text: &str, coin: &CoinOnChain) -> Result<Amount, Failure> {
    Amount::parse(text, coin.asset.precision).map_err(|error| {
        let code = match error {
            AmountError::Malformed => "INVALID_AMOUNT",
            AmountError::TooPrecise(_) => "PRECISION_OVERFLOW",
            AmountError::TooLarge => "OVERFLOW",
        };
        let message = format!("{text:?} is no amount of {}", coin.asset.symbol);
        Failure::bad_input(code, message, "write it like 12.5")
    })
}

async fn simulate(context: &Context, db: &Db, arguments: &SimulateArguments) -> CommandResult {
    let coins = Coins::load(db).await?;
    let coin = coin(&coins, &arguments.asset, &arguments.chain)?;
    let user = UserId::new(arguments.user).ok_or_else(|| {
        Failure::bad_input("INVALID_USER", format!("{} is no user", arguments.user), "users have positive numbers")
    })?;
    let unknown = || {
        let message = format!("there are no addresses of {} that are known here", coin.chain.name);
        Failure::bad_input("CHAIN_WRONG_NETWORK", message, "bursar chain check shows the chain's network")
    };
    let to = coin.family.ok_or_else(unknown)?.parse_address(&arguments.to).map_err(|error| {
        let hint = "copy the address once more from where it was made";
        Failure::bad_input(error.code(), format!("{}: {error}", arguments.to), hint)
    })?;
    let quote = arguments.quote.as_deref().map(parse_quote).transpose();
    let quote =
        quote.map_err(|error| Failure::bad_input("INVALID_REQUEST", error.message, "such as fq-3-1763301600000000"))?;
    let broken = |_| Failure::bad_input("INTERNAL", "a name or number of the simulation", "this is a bug in Bursar");
    let new = NewWithdrawal {
        id: WithdrawalId::new(1).map_err(broken)?,
        user,
        client_order_id: ClientOrderId::new("simulated").map_err(|_| broken(domain::id::BadId("wr")))?,
        listing: coin.listing,
        to: to.to_string(),
        amount: amount(&arguments.amount, &coin)?,
        most_fee: arguments.max_fee.as_deref().map_or(Ok(Amount::MAX), |text| amount(text, &coin))?,
        quote,
        travel_rule: None,
    };
    let shown = |amount: Amount| amount.display(coin.asset.precision).to_string();
    let body = match db.simulate_withdrawal(&new, SystemClock.now()).await? {
        CreatedWithdrawal::New(row) | CreatedWithdrawal::Before(row) => json!({
            "verdict": row.state.as_str(), "rule": row.rule, "people": row.people, "fee": shown(row.fee), "policy_version": row.policy_version,
            "facts": inputs(&row.inputs),
        }),
        CreatedWithdrawal::Refused { refusal, judged } => json!({
            "verdict": "refused", "rule": refusal.code(), "message": refusal.to_string(),
            "policy_version": judged.as_ref().map(|judged| judged.version),
            "facts": judged.map_or(Value::Null, |judged| json!(judged)["facts"].clone()),
        }),
    };
    context.print(&body, || {
        let mut rows: Vec<Vec<String>> = ["verdict", "rule", "message", "people", "fee", "policy_version"]
            .iter()
            .filter(|name| !body[**name].is_null())
            .map(|name| vec![(*name).to_owned(), text(&body[*name])])
            .collect();
        let facts = body["facts"].as_object().into_iter().flatten();
        rows.extend(facts.map(|(name, fact)| vec![format!("fact {name}"), text(fact)]));
        format!("{}\nnothing was written; facts are in ledger units", table(&["", ""], &[], &rows))
    });
    Ok(())
}

fn inputs(text: &str) -> Value {
    serde_json::from_str::<Value>(text).map_or(Value::Null, |judged| judged["facts"].clone())
}

async fn check(context: &Context, db: &Db, file: &PathBuf) -> CommandResult {
    let bytes = std::fs::read(file).map_err(|error| {
        let hint = format!("is {} there?", file.display());
        Failure { exit: Exit::BadInput, ..Failure::outside("FILE_NOT_READABLE", &error, hint) }
    })?;
    let signer = signer::policy::file::parse(&bytes).map_err(|error| {
        Failure::bad_input("SIGNER_POLICY_INVALID", error.to_string(), "bursar signer policy check says more of it")
    })?;
    let is_in_force = match wallet_signer::configured(&context.config)? {
        Some(watch) => {
            let answer = watch.client().policy().await.map_err(|error| {
                let hint = "start it, or leave signer.socket and signer.url out of the configuration to compare with the file alone";
                Failure::outside("SIGNER_UNAVAILABLE", &error, hint)
            })?;
            Some(answer.in_force.is_some_and(|one| one.sha256.0 == signer.hash))
        }
        None => None,
    };
    let coins = Coins::load(db).await?.all();
    let mut found: Vec<(&CoinOnChain, PolicyGap)> = Vec::new();
    for coin in coins.values() {
        let Some((policy, family)) = coin.policy.as_ref().zip(coin.family) else { continue };
        let fee_cap = coin.chain.outbound.fee_cap;
        let compared = PolicyCoin { chain: &coin.chain.name, family, form: &coin.form.form, policy, fee_cap };
        found.extend(gaps(&compared, &signer).into_iter().map(|gap| (coin, gap)));
    }
    let differences: Vec<Value> = found.iter().map(|(coin, gap)| difference(coin, gap)).collect();
    let wider = found.iter().filter(|(_, gap)| gap.wider).count();
    let strange = key_gaps(&db.operators().await?, &signer);
    let keys: Vec<Value> = strange.iter().map(strange_key).collect();
    let body = json!({
        "signer": signer.signer.to_string(), "signer_version": signer.version, "in_force": is_in_force, "wider": wider,
        "differences": differences, "keys": keys,
    });
    context.print(&body, || {
        let force = match is_in_force {
            Some(true) => ", which the signer has in force",
            Some(false) => ", which is NOT the one that the signer has in force",
            None => "",
        };
        let head = format!("policy {} of {}{force}", signer.version, signer.signer);
        let shown = |columns: &[&str], values: &[Value]| {
            let cells = |one: &Value| columns.iter().map(|name| text(&one[*name])).collect();
            table(columns, &[], &values.iter().map(cells).collect::<Vec<Vec<String>>>())
        };
        let limits = if differences.is_empty() {
            "no differences: what the server lets out is what the signer signs".to_owned()
        } else {
            shown(&["asset", "chain", "group", "what", "server", "signer", "verdict"], &differences)
        };
        if keys.is_empty() {
            return format!("{head}\n{limits}");
        }
        format!("{head}\n{limits}\n\n{}", shown(&["operator", "key", "verdict"], &keys))
    });
    let found = |code, message: String, hint: &str| {
        Err(Failure { exit: Exit::Found, ..Failure::bad_input(code, message, hint) })
    };
    if wider > 0 {
        let message = format!("the server lets out what the signer does not sign: {wider} of its limits are wider");
        return found("POLICY_WIDER", message, "make the server's policy narrower in the treasury file, and apply it");
    }
    if !strange.is_empty() {
        let count = strange.len();
        let message =
            format!("the signer refuses what is signed with {count} of the operators' keys, and all beside it");
        let hint = "have the signer's administrators name them as approvers, or take them out of the treasury file";
        return found("POLICY_WIDER", message, hint);
    }
    if is_in_force == Some(false) {
        let message = format!("{} is not the policy that the signer has in force", file.display());
        return found(
            "POLICY_NOT_IN_FORCE",
            message,
            "compare with the file that is: bursar signer policy apply says which",
        );
    }
    Ok(())
}

fn strange_key(gap: &KeyGap) -> Value {
    let verdict = match gap.what {
        KeyDifference::Missing => "the signer's policy has no such key",
        KeyDifference::Other => "it is another key in the signer's policy",
    };
    json!({ "operator": gap.operator, "key": gap.key, "verdict": verdict })
}

fn difference(coin: &CoinOnChain, gap: &PolicyGap) -> Value {
    let what = match gap.what {
        PolicyLimit::Coin => "whether it is sent".to_owned(),
        PolicyLimit::Destinations => "where to".to_owned(),
        PolicyLimit::WithoutPeople => "largest without people".to_owned(),
        PolicyLimit::InAnHour => "in an hour without people".to_owned(),
        PolicyLimit::InADay => "in a day without people".to_owned(),
        PolicyLimit::People(amount) => format!("people for {}", amount.display(coin.asset.precision)),
        PolicyLimit::Largest => "largest at all".to_owned(),
        PolicyLimit::Life => "how long it may be signed".to_owned(),
        PolicyLimit::Cost => "cost of one".to_owned(),
        PolicyLimit::CostOfADay => "cost of one, in a day".to_owned(),
    };
    let word = |word: PolicyWord| match word {
        PolicyWord::Amount(raw) => raw.in_coins(coin.form.form.decimals()),
        PolicyWord::Cost(raw) => raw.to_string(),
        PolicyWord::People(count) => count.to_string(),
        PolicyWord::Seconds(seconds) => format!("{seconds} s"),
        PolicyWord::Any => "any".to_owned(),
        PolicyWord::Listed(count) => format!("a list of {count}"),
        PolicyWord::Nothing => "not at all".to_owned(),
    };
    let verdict = match (gap.wider, gap.what) {
        (true, _) => "WIDER",
        (false, PolicyLimit::InAnHour) => "later",
        (
            false,
            PolicyLimit::Coin
            | PolicyLimit::Destinations
            | PolicyLimit::WithoutPeople
            | PolicyLimit::InADay
            | PolicyLimit::People(_)
            | PolicyLimit::Largest
            | PolicyLimit::Life
            | PolicyLimit::Cost
            | PolicyLimit::CostOfADay,
        ) => "narrower",
    };
    json!({
        "asset": coin.asset.symbol.to_string(), "chain": coin.chain.name.to_string(), "group": gap.group, "what": what,
        "server": word(gap.server), "signer": word(gap.signer), "verdict": verdict,
    })
}
