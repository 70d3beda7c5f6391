//! `bursar wallet list` and `bursar wallet show`.

use std::sync::Arc;

use custody::wallet::{Difference, Pinned, compare_settings};
use serde_json::{Value, json};
use store::Db;
use store::wallet::{Place, read_wallet_settings};
use terminal::failure::CommandResult;
use terminal::output::table;

use super::super::Context;
use super::{count, difference_json, failed, group, user, verdict, wallet_json, wallet_table};

#[derive(Debug, clap::Args)]
pub struct List {
    /// Only the wallets of this group
    #[arg(long)]
    group: Option<String>,
    /// Only ids above this one: the next page
    #[arg(long, default_value_t = i64::MIN, hide_default_value = true, allow_negative_numbers = true)]
    after: i64,
    /// How many at once
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

#[derive(Debug, clap::Args)]
pub struct Show {
    /// The user's number
    #[arg(long, allow_negative_numbers = true)]
    user: Option<i64>,
}

pub async fn list(context: &Context, db: &Db, pinned: &Arc<Pinned>, wanted: &List) -> CommandResult {
    let of = wanted.group.as_deref().map(group).transpose()?;
    let asked = custody::wallet::list(db, pinned, of.as_ref(), wanted.after, wanted.limit);
    let page = asked.await.map_err(failed)?;
    let next = page.last.filter(|_| page.more);
    let body = json!({
        "wallets": page.wallets.iter().map(wallet_json).collect::<Vec<_>>(),
        "differ": page.differ.iter().map(difference_json).collect::<Vec<_>>(),
        "next_after": next,
    });
    context.print(&body, || {
        let shown = wallet_table(&page.wallets);
        next.map_or_else(|| shown.clone(), |next| format!("{shown}\nthere are more: --after {next}"))
    });
    verdict(count(page.differ.len()), page.differ.first())
}

pub async fn show(context: &Context, db: &Db, pinned: &Arc<Pinned>, wanted: &Show) -> CommandResult {
    let Some(number) = wanted.user else { return house(context, db, pinned).await };
    let found = custody::wallet::show(db, pinned, user(number)?).await.map_err(failed)?;
    let body = json!({
        "wallets": found.wallets.iter().map(wallet_json).collect::<Vec<_>>(),
        "differ": found.differ.iter().map(difference_json).collect::<Vec<_>>(),
    });
    context.print(&body, || wallet_table(&found.wallets));
    verdict(count(found.differ.len()), found.differ.first())
}

/// Groups and operation wallets as the treasury file has them. Where the database differs, that is said too.
async fn house(context: &Context, db: &Db, pinned: &Pinned) -> CommandResult {
    let rows = read_wallet_settings(&mut db.read().await?).await?;
    let differ = compare_settings(pinned, &rows);
    let groups: Vec<[String; 5]> = pinned
        .groups()
        .map(|pinned| {
            let group = &pinned.group;
            let path = format!("{}/hi/lo", group.family().account_path(group.account()));
            let (chain, purpose) = (group.family().as_str().to_owned(), group.purpose.as_str().to_owned());
            [group.id.to_string(), chain, purpose, path, pinned.active.to_string()]
        })
        .collect();
    let wallets: Vec<[String; 5]> = pinned
        .wallets()
        .map(|(chain, place, wallet)| {
            let from = match place {
                Place::Derived { group, index } => format!("{group} {index}"),
                Place::Written(_) => "the treasury file".to_owned(),
            };
            let (role, address) = (wallet.role.as_str().to_owned(), wallet.address.to_string());
            [chain.to_string(), role, from, address, wallet.active.to_string()]
        })
        .collect();
    let body = json!({
        "groups": groups.iter().map(|row| named(["id", "chain", "purpose", "path", "active"], row)).collect::<Vec<_>>(),
        "operation_wallets":
            wallets.iter().map(|row| named(["chain", "role", "from", "address", "active"], row)).collect::<Vec<_>>(),
        "differ": differ.iter().map(difference_json).collect::<Vec<_>>(),
    });
    context.print(&body, || {
        if groups.is_empty() && wallets.is_empty() {
            return "no wallet groups: treasury.file pins none".to_owned();
        }
        let cells = |rows: &[[String; 5]]| rows.iter().map(|row| row.to_vec()).collect::<Vec<_>>();
        let groups = table(&["group", "chain", "purpose", "path", "active"], &[], &cells(&groups));
        let wallets = table(&["chain", "role", "from", "address", "active"], &[], &cells(&wallets));
        format!("{groups}\n\n{wallets}")
    });
    let first: Option<&Difference> = differ.first();
    verdict(count(differ.len()), first)
}

fn named(names: [&str; 5], row: &[String; 5]) -> Value {
    let fields = names.into_iter().zip(row).map(|(name, value)| match (name, value.as_str()) {
        ("active", value) => (name.to_owned(), json!(value == "true")),
        (_, value) => (name.to_owned(), json!(value)),
    });
    Value::Object(fields.collect())
}
