//! `bursar job approve`: what a job is to do, in words; then a signature over exactly that.

use std::path::Path;

use custody::outbound::approve::intent_of;
use domain::Clock;
use serde_json::json;
use signer::names::{KeyName, SignerName};
use store::Db;
use store::outbound::{ApprovalSignature, JobApproval, JobId};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;

use super::{asked, not_found};
use crate::commands::Context;
use crate::commands::approve::{check_builds, signing_key};
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
    let (shown, ..) = db.job(id).await?.ok_or_else(|| not_found(id))?;
    let chain = row_of(db, &shown.chain.parse().map_err(|_| not_found(id))?).await?;
    let pinned = pins::pinned(&context.config, db).await?;
    pins::check(&context.config, db, &pinned).await?;
    let lane = db.lanes(Some(&shown.chain), Some(&shown.from), 0, 1).await?.pop().ok_or_else(|| not_found(id))?.lane;
    let native = chain.native().map(|one| (one.symbol.to_string(), one.form.decimals()));
    let intent = intent_of(chain, pinned, &signer, &lane, &shown.job)
        .map_err(|error| Failure::outside("CONFIG_INVALID", &error, "bursar chain check shows what there is"))?
        .map_err(|why| {
            Failure::bad_input("JOB_NOT_NOW", format!("{id} cannot be paid: {why}"), "bursar job show says more")
        })?;
    check_builds(&intent)?;
    let wanted = signer::digest::hex(&intent.digest());
    let (fee_coin, decimals) = native.unwrap_or_default();
    let job = &shown.job;
    let amount = format!("{} {}", job.amount.in_coins(shown.decimals), shown.asset);
    let fee = format!("{} {fee_coin}", job.most_fee.in_coins(decimals));
    let body = json!({
        "job_id": id.to_string(), "kind": job.kind.as_str(), "reference": job.reference, "signer": signer.to_string(),
        "chain": shown.chain, "pays": amount, "to": job.to, "from": shown.from, "group": intent.group.to_string(),
        "costs_at_most": fee, "until": job.expires.to_string(), "transactions": intent.builds.to_string(), "asked_for_by": intent.requester.to_string(),
        "slot": intent.round, "digest": wanted, "signed": digest.is_some(),
    });
    let Some(digest) = digest else {
        context.print(&body, || {
            let fields = [
                "pays",
                "to",
                "from",
                "group",
                "chain",
                "costs_at_most",
                "until",
                "transactions",
                "asked_for_by",
                "reference",
                "digest",
            ];
            let row = |name: &&str| vec![name.replace('_', " "), body[*name].as_str().unwrap_or_default().to_owned()];
            let rows: Vec<Vec<String>> = fields.iter().map(row).collect();
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
