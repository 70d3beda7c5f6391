//! `bursar job approve`: what a job is to do, in words that are made from what is signed; then a signature over exactly that.

use std::path::Path;

use custody::outbound::approve::intent_of;
use domain::Clock;
use serde_json::Value;
use signer::Intent;
use signer::names::{KeyName, SignerName};
use store::Db;
use store::catalog::Catalog;
use store::outbound::{ApprovalSignature, JobApproval, JobId, ShownJob};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;

use super::{asked, not_found};
use crate::commands::Context;
use crate::commands::approve::{check_builds, coin_of, pinned_coins, signing_key, words};
use crate::pins;
use crate::roles::row_of;

pub async fn run(
    context: &Context,
    db: &Db,
    id: JobId,
    (name, key, digest): (&str, &Path, Option<&str>),
) -> CommandResult {
    let bad_name = |error: domain::BadName| {
        Failure::bad_input("BAD_USAGE", format!("--as: {error}"), "as the signer's policy names your key")
    };
    let name: KeyName = name.parse().map_err(bad_name)?;
    let signer: SignerName = context.config.signer.name.parse().map_err(|error: domain::BadName| {
        Failure::bad_input("CONFIG_INVALID", format!("signer.name: {error}"), "it is the name that its policy has")
    })?;
    let key = signing_key(key)?;
    let coins = pinned_coins(context)?.ok_or_else(|| {
        let hint = "name the treasury file that bursar apply was given: treasury.file in the configuration";
        Failure::bad_input("CONFIG_INVALID", "without a treasury file nobody here knows what is paid", hint)
    })?;
    let (shown, ..) = db.job(id).await?.ok_or_else(|| not_found(id))?;
    let chain = row_of(db, &shown.chain.parse().map_err(|_| not_found(id))?).await?;
    let pinned = pins::pinned(&context.config, db).await?;
    pins::check(&context.config, db, &pinned).await?;
    let lane = db.lanes(Some(&shown.chain), Some(&shown.from), 0, 1).await?.pop().ok_or_else(|| not_found(id))?.lane;
    let intent = intent_of(chain, pinned, &signer, &lane, &shown.job)
        .map_err(|error| Failure::outside("CONFIG_INVALID", &error, "bursar chain check shows what there is"))?
        .map_err(|why| {
            Failure::bad_input("JOB_NOT_NOW", format!("{id} cannot be paid: {why}"), "bursar job show says more")
        })?;
    check_builds(&intent)?;
    let mut rows = words(Some(&coins), &intent)?;
    check_listing(&coins, &intent, &shown)?;
    let wanted = signer::digest::hex(&intent.digest());
    let Some(digest) = digest else {
        let mut body: serde_json::Map<String, Value> =
            rows.iter().map(|(name, text)| (name.replace(' ', "_"), text.as_str().into())).collect();
        body.extend([
            ("job_id".to_owned(), id.to_string().into()),
            ("kind".to_owned(), shown.job.kind.as_str().into()),
            ("reference".to_owned(), shown.job.reference.as_str().into()),
            ("from".to_owned(), shown.from.as_str().into()),
            ("signed".to_owned(), false.into()),
        ]);
        // The rest is not signed.
        rows.extend([
            ("from, says the database", shown.from.clone()),
            ("kind, says the database", shown.job.kind.as_str().to_owned()),
            ("reference, says the database", shown.job.reference.clone()),
        ]);
        context.print(&Value::Object(body), || {
            let rows: Vec<Vec<String>> =
                rows.iter().map(|(name, text)| vec![(*name).to_owned(), text.clone()]).collect();
            let words = table(&["", ""], &[], &rows);
            format!("{words}\n\nnothing is signed yet. If this is what you want, type the same with --digest {wanted}")
        });
        return Ok(());
    };
    if digest != wanted {
        let hint = "read it again without --digest: the job, or its slot, is another by now";
        return Err(Failure::bad_input("JOB_NOT_NOW", format!("{id} has the digest {wanted}"), hint));
    }
    let approval = JobApproval {
        job: id,
        digest: intent.digest(),
        key: name.to_string(),
        signature: ApprovalSignature::Ed25519(key.sign_approval(&intent.digest())),
    };
    let reply = db.approve_job(&approval, SystemClock.now()).await?;
    asked(context, id, "is approved; the signer is asked again now", reply)
}

/// What the database calls the coin and how many decimals it says that it has is not signed, and people have typed amounts by it.
fn check_listing(coins: &Catalog, intent: &Intent, shown: &ShownJob) -> CommandResult {
    let coin = intent.payment().map(|payment| signer::intent::coin_text(&payment.coin));
    let listed = coin.and_then(|coin| coin_of(coins, intent, &coin));
    if listed.as_ref().is_some_and(|(asset, decimals)| *asset == shown.asset && *decimals == shown.decimals) {
        return Ok(());
    }
    let (asset, decimals) = listed.unwrap_or_default();
    let message = format!(
        "the database calls the coin {} with {} decimals, and the treasury file {asset} with {decimals}",
        shown.asset, shown.decimals
    );
    Err(Failure::bad_input("APPROVAL_OTHER_DIGEST", message, "do not sign, and look who has changed the database"))
}
