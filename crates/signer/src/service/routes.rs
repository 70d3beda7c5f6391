//! What can be asked. **There is no path that signs a bare hash, and none that gives a private key or a mnemonic away.**

use std::sync::OnceLock;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tx::DerivationError;

use super::admit::{Caller, Failed, busy, stopped, unknown};
use super::decider::{Call, Decided, Reply, SignCall, Unanswered, shown};
use super::{Service, Shared, openapi};
use crate::approved::{Signed, SignerChain};
use crate::authorizer::{ApplyError, RevokeError};
use crate::digest::hex;
use crate::keys::{AddressPath, KeyError};
use crate::names::{GroupId, RequestId};
use crate::verdict::Verdict;
use crate::wire::{
    AddressesAnswerBody, AddressesBody, AnswerBody, BatchAnswerBody, BatchBody, DoneBody, ErrorBody, ErrorWords,
    GroupBody, GroupsAnswerBody, HeadQuestionBody, MOST_ADDRESSES, MOST_ROUNDS, PolicyAnswerBody, PolicyBody,
    RefusedBody, RevokeBody, RoundsAnswerBody, RoundsBody, SignBody, SingleAnswerBody, read,
};

pub(super) type Answer = Response<Full<Bytes>>;

/// Every path, as metrics name it, and the methods that it takes.
const PATHS: [(&str, &str); 11] = [
    ("/v1/sign", "POST"),
    ("/v1/addresses", "POST"),
    ("/v1/groups", "GET"),
    ("/v1/head", "POST"),
    ("/v1/rounds", "POST"),
    ("/v1/revoke", "POST"),
    ("/v1/policy", "GET, POST"),
    ("/health/live", "GET"),
    ("/health/ready", "GET"),
    ("/metrics", "GET"),
    ("/openapi.json", "GET"),
];

fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    match serde_json::to_vec(body) {
        Ok(bytes) => respond(status, "application/json", bytes),
        Err(_) => respond(StatusCode::INTERNAL_SERVER_ERROR, "application/json", b"{}".to_vec()),
    }
}

fn respond(status: StatusCode, kind: &'static str, bytes: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(bytes.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

impl Service {
    /// Answers one request.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Answer {
        let shared = &*self.0;
        let known = PATHS.iter().find(|(path, _)| *path == request.uri().path());
        let (path, methods) = known.copied().unwrap_or(("other", ""));
        let answer = match shared.route(path, methods, request).await {
            Ok(answer) => answer,
            Err(failed) => shared.fail(&failed, methods),
        };
        shared.counts.answer(path, answer.status().as_u16());
        answer
    }
}

impl Shared {
    fn fail(&self, failed: &Failed, methods: &'static str) -> Answer {
        self.counts.turn_away(failed.code);
        // A stranger learns nothing of the log.
        let known = failed.status != StatusCode::UNAUTHORIZED && failed.status != StatusCode::NOT_FOUND;
        let body = ErrorBody {
            error: ErrorWords {
                code: failed.code.to_owned(),
                message: failed.message.clone(),
                docs: format!("docs/errors/{}.md", failed.code),
            },
            head: known.then(|| self.shown_head()),
        };
        let mut answer = json(failed.status, &body);
        if failed.status == StatusCode::METHOD_NOT_ALLOWED {
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
        }
        // What is left of its body is not waited for.
        if matches!(
            failed.status,
            StatusCode::UNAUTHORIZED | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT
        ) {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }

    async fn route(&self, path: &str, methods: &str, request: Request<Incoming>) -> Result<Answer, Failed> {
        if methods.is_empty() {
            return Err(Failed::new(StatusCode::NOT_FOUND, "PATH_NOT_FOUND", "there is nothing at this path"));
        }
        if !methods.split(", ").any(|method| method == request.method().as_str()) {
            let message = "this path does not take this method";
            return Err(Failed::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", message));
        }
        match path {
            "/health/live" => return Ok(live().await),
            "/health/ready" => return Ok(ready(self).await),
            "/metrics" => return Ok(metrics(self).await),
            "/openapi.json" => return Ok(document()),
            _ => {}
        }
        let (parts, body) = request.into_parts();
        let caller = self.admit(&parts)?;
        let writes = parts.method != Method::GET;
        let rights = &caller.rights;
        let (allowed, what) = match path {
            "/v1/sign" => (!rights.sign.is_empty(), "sign"),
            "/v1/addresses" => (rights.derive, "ask for addresses"),
            "/v1/groups" => (rights.derive || rights.read, "ask for groups"),
            // Every key: it says nothing but whether the asker knows this log.
            "/v1/head" => (true, "ask for the head"),
            // Whether a payment was signed is nothing that whoever derives addresses for its payer must not know.
            "/v1/rounds" => (rights.derive || rights.read || !rights.sign.is_empty(), "ask what was signed"),
            "/v1/policy" if !writes => (rights.read, "ask for the policy"),
            _ => (rights.administer, "administer"),
        };
        if !allowed {
            tracing::warn!(key = %caller.key, what, "a key asked for what it may not do");
            return Err(Failed::forbidden(what));
        }
        let body = self.body(&caller, Request::from_parts(parts, body)).await?;
        match path {
            "/v1/sign" => sign(self, &caller, &body).await,
            "/v1/addresses" => addresses(self, &body).await,
            "/v1/groups" => Ok(groups(self).await),
            "/v1/head" => head(self, &body).await,
            "/v1/rounds" => rounds(self, &body).await,
            "/v1/policy" if !writes => policy(self).await,
            "/v1/policy" => apply(self, &caller, &body).await,
            _ => revoke(self, &body).await,
        }
    }

    /// Hands a call to the thread that decides.
    async fn ask<T>(&self, call: impl FnOnce(Reply<T>) -> Call) -> Result<T, Failed> {
        if self.trouble().is_some() {
            return Err(stopped());
        }
        let (reply, answer) = oneshot::channel();
        self.calls.try_send(call(reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => busy("too many calls wait for a decision"),
            mpsc::error::TrySendError::Closed(_) => stopped(),
        })?;
        match answer.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Unanswered::Stopped)) => Err(stopped()),
            Ok(Err(Unanswered::Busy)) => Err(busy("an old head is being looked for")),
            Ok(Err(Unanswered::RolledBack)) => {
                let message = "the log does not contain the head that was sent: nothing is signed on it";
                Err(Failed::new(StatusCode::CONFLICT, "SIGNER_LOG_ROLLED_BACK", message))
            }
            // The thread is gone: it may have decided.
            Ok(Err(Unanswered::Unknown)) | Err(_) => Err(unknown()),
        }
    }
}

/// Sign transactions
///
/// Takes a batch, `{"requests": […]}`, or one request by itself. Each is read, compared with its intents and held against the policy; what was decided is
/// durable before this answers. The same id with the same content gets the same bytes. One request by itself that is refused is answered with 422.
#[utoipa::path(post, path = "/v1/sign", tag = "signing", operation_id = "sign",
    request_body = BatchBody,
    responses(
        (status = 200, description = "What became of each, in the order of the batch. One by itself: SingleAnswerBody", body = BatchAnswerBody),
        (status = 400, description = "SIGNER_REQUEST_MALFORMED: nothing was decided", body = ErrorBody),
        (status = 401, description = "SIGNER_UNAUTHORIZED, SIGNER_STAMP_STALE, SIGNER_STAMP_REPLAYED", body = ErrorBody),
        (status = 403, description = "SIGNER_FORBIDDEN: the key may not sign, or not for this group", body = ErrorBody),
        (status = 409, description = "SIGNER_LOG_ROLLED_BACK: the log does not contain the pinned head", body = ErrorBody),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = ErrorBody),
        (status = 422, description = "One by itself was refused", body = SingleAnswerBody),
        (status = 503, description = "SIGNER_BUSY, SIGNER_STOPPED: nothing was decided. SIGNER_OUTCOME_UNKNOWN: ask again with the same ids", body = ErrorBody),
    ), security(("stamp" = [])))]
async fn sign(shared: &Shared, caller: &Caller, body: &[u8]) -> Result<Answer, Failed> {
    let may = |group: &GroupId| caller.rights.sign.contains(group);
    let asked = match SignBody::read(body, may).map_err(Failed::malformed)? {
        Ok(asked) => asked,
        Err(group) => {
            tracing::warn!(key = %caller.key, %group, "a key asked for a group that it may not sign for");
            return Err(Failed::forbidden(&format!("sign for the group {group}")));
        }
    };
    let SignBody { requests, pinned, single } = asked;
    let ids: Vec<RequestId> = requests.iter().map(|request| request.id.clone()).collect();
    let decided = shared.ask(|reply| Call::Sign(SignCall { requests, pinned, reply })).await?;
    let head = shown(&shared.keyring, decided.head);
    let mut answers = answers(shared, ids, decided).await;
    if !single {
        return Ok(json(StatusCode::OK, &BatchAnswerBody { answers, head }));
    }
    // There is one answer for the one request.
    let answer = answers.pop().ok_or_else(unknown)?;
    let status = if answer.refused.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    Ok(json(status, &SingleAnswerBody { answer, head }))
}

async fn answers(shared: &Shared, ids: Vec<RequestId>, decided: Decided) -> Vec<AnswerBody> {
    let approved = decided.verdicts.iter().filter_map(|verdict| verdict.approved().cloned()).collect();
    let mut signed = shared.sign(approved).await.into_iter();
    let mut answers = Vec::with_capacity(ids.len());
    for ((id, verdict), remembered) in ids.into_iter().zip(decided.verdicts).zip(decided.remembered) {
        let (policy, rule, done) = match verdict {
            Verdict::Approved { approved, policy, rule } => {
                let done = signed.next().unwrap_or_else(|| Err(DerivationError::NoSuchKey.into()));
                let done = done.map_err(|error| cannot(&id, &error, rule == "replay"));
                (policy, rule, done.map(|one| (approved.protocol(), one)))
            }
            Verdict::Refused { refusal, policy, rule } => {
                let (code, message) = (refusal.code().to_owned(), refusal.to_string());
                let holder = refusal.holder();
                (policy, rule, Err(RefusedBody { code, message, signed_before: remembered, holder }))
            }
        };
        let (signed_tx, tx_hash, refused) = match done {
            Ok((chain, Signed { bytes, hash })) => {
                let zero_x = if matches!(chain, SignerChain::Evm { .. }) { "0x" } else { "" };
                (Some(format!("{zero_x}{}", hex(&bytes))), Some(format!("{zero_x}{hash}")), None)
            }
            Err(refused) => (None, None, Some(refused)),
        };
        answers.push(AnswerBody { id, signed_tx, tx_hash, refused, policy, rule });
    }
    answers
}

/// Approved, and the keys cannot: the policy speaks of a wallet that they are not of. What was approved before may have been signed then, with other keys.
fn cannot(id: &RequestId, error: &KeyError, signed_before: bool) -> RefusedBody {
    tracing::error!(request = %id, code = error.code(), %error, "what was approved could not be signed");
    RefusedBody { code: error.code().to_owned(), message: error.to_string(), signed_before, holder: None }
}

/// Derive addresses, for comparison
///
/// Users' numbers, or the indexes of operation wallets.
#[utoipa::path(post, path = "/v1/addresses", tag = "keys", operation_id = "addresses",
    request_body = AddressesBody,
    responses(
        (status = 200, description = "The addresses in the order of the numbers", body = AddressesAnswerBody),
        (status = 400, description = "SIGNER_REQUEST_MALFORMED, SIGNER_GROUP_UNKNOWN, SIGNER_PATH_INVALID", body = ErrorBody),
        (status = 401, description = "SIGNER_UNAUTHORIZED, SIGNER_STAMP_STALE, SIGNER_STAMP_REPLAYED", body = ErrorBody),
        (status = 403, description = "SIGNER_FORBIDDEN", body = ErrorBody),
    ), security(("stamp" = [])))]
async fn addresses(shared: &Shared, body: &[u8]) -> Result<Answer, Failed> {
    let asked: AddressesBody = read(body).map_err(Failed::malformed)?;
    if asked.derivation_indexes.len() > MOST_ADDRESSES {
        return Err(Failed::malformed(format!("at most {MOST_ADDRESSES} addresses at a time")));
    }
    let keyring = std::sync::Arc::clone(&shared.keyring);
    let derive = move || {
        let one = |index: &u64| {
            let address = keyring.address(&asked.wallet_group_id, AddressPath::of_number(*index)?)?;
            Ok::<String, KeyError>(address.to_string())
        };
        asked.derivation_indexes.iter().map(one).collect::<Result<Vec<_>, _>>()
    };
    // It is never closed.
    let permit = std::sync::Arc::clone(&shared.signing).acquire_owned().await;
    let derived = tokio::task::spawn_blocking(derive).await;
    drop(permit);
    let wrong = |error: KeyError| Failed::new(StatusCode::BAD_REQUEST, error.code(), error.to_string());
    let addresses = derived.map_err(|_| stopped())?.map_err(wrong)?;
    Ok(json(StatusCode::OK, &AddressesAnswerBody { addresses, head: shared.shown_head() }))
}

/// The wallet groups and their extended public keys
#[utoipa::path(get, path = "/v1/groups", tag = "keys", operation_id = "groups",
    responses(
        (status = 200, description = "All groups", body = GroupsAnswerBody),
        (status = 401, description = "SIGNER_UNAUTHORIZED, SIGNER_STAMP_STALE, SIGNER_STAMP_REPLAYED", body = ErrorBody),
        (status = 403, description = "SIGNER_FORBIDDEN", body = ErrorBody),
    ), security(("stamp" = [])))]
async fn groups(shared: &Shared) -> Answer {
    let shown = |group: &crate::keys::Group| GroupBody {
        id: group.id.to_string(),
        purpose: group.purpose.as_str().to_owned(),
        chain: group.family().as_str().to_owned(),
        account: group.account(),
        path: group.family().account_path(group.account()),
        xpub: group.key.to_string(),
    };
    let groups = shared.keyring.groups().map(shown).collect();
    json(StatusCode::OK, &GroupsAnswerBody { groups, head: shared.shown_head() })
}

/// Whether the log contains a head
///
/// Ask with the newest head that you were given, and its proof. A signer whose log does not contain it runs on an old copy, signs nothing more and ends.
/// Without the proof it only refuses.
#[utoipa::path(post, path = "/v1/head", tag = "signing", operation_id = "head",
    request_body = HeadQuestionBody,
    responses(
        (status = 200, description = "It does, and goes on to this one", body = DoneBody),
        (status = 400, description = "SIGNER_REQUEST_MALFORMED", body = ErrorBody),
        (status = 401, description = "SIGNER_UNAUTHORIZED, SIGNER_STAMP_STALE, SIGNER_STAMP_REPLAYED", body = ErrorBody),
        (status = 409, description = "SIGNER_LOG_ROLLED_BACK: the log does not contain it", body = ErrorBody),
        (status = 503, description = "SIGNER_BUSY, SIGNER_STOPPED", body = ErrorBody),
    ), security(("stamp" = [])))]
async fn head(shared: &Shared, body: &[u8]) -> Result<Answer, Failed> {
    let HeadQuestionBody { pinned } = read(body).map_err(Failed::malformed)?;
    let head = shared.ask(|reply| Call::Head { pinned, reply }).await?;
    Ok(json(StatusCode::OK, &DoneBody { head: shown(&shared.keyring, head) }))
}

/// In how many slots jobs were signed
///
/// A database that was put back from a backup has forgotten payments, and asks before it gives their money back or makes jobs for them.
#[utoipa::path(post, path = "/v1/rounds", tag = "signing", operation_id = "rounds",
    request_body = RoundsBody,
    responses(
        (status = 200, description = "In the order of the jobs", body = RoundsAnswerBody),
        (status = 400, description = "SIGNER_REQUEST_MALFORMED", body = ErrorBody),
        (status = 401, description = "SIGNER_UNAUTHORIZED, SIGNER_STAMP_STALE, SIGNER_STAMP_REPLAYED", body = ErrorBody),
        (status = 403, description = "SIGNER_FORBIDDEN", body = ErrorBody),
        (status = 503, description = "SIGNER_BUSY, SIGNER_STOPPED", body = ErrorBody),
    ), security(("stamp" = [])))]
async fn rounds(shared: &Shared, body: &[u8]) -> Result<Answer, Failed> {
    let RoundsBody { jobs } = read(body).map_err(Failed::malformed)?;
    if jobs.len() > MOST_ROUNDS {
        return Err(Failed::malformed(format!("at most {MOST_ROUNDS} jobs at a time")));
    }
    let (rounds, head) = shared.ask(|reply| Call::Rounds { jobs, reply }).await?;
    Ok(json(StatusCode::OK, &RoundsAnswerBody { rounds, head: shown(&shared.keyring, head) }))
}

/// Which policy holds, and which one waits
#[utoipa::path(get, path = "/v1/policy", tag = "policy", operation_id = "policy",
    responses(
        (status = 200, description = "Versions, and from when they hold", body = PolicyAnswerBody),
        (status = 401, description = "SIGNER_UNAUTHORIZED, SIGNER_STAMP_STALE, SIGNER_STAMP_REPLAYED", body = ErrorBody),
        (status = 403, description = "SIGNER_FORBIDDEN", body = ErrorBody),
    ), security(("stamp" = [])))]
async fn policy(shared: &Shared) -> Result<Answer, Failed> {
    Ok(json(StatusCode::OK, &shared.ask(|reply| Call::Policy { reply }).await?))
}

/// Put a policy in force
///
/// With its administrators' signatures. Tighter holds at once, looser after the cooling-off time. The one in force again changes nothing.
#[utoipa::path(post, path = "/v1/policy", tag = "policy", operation_id = "applyPolicy",
    request_body = PolicyBody,
    responses(
        (status = 200, description = "Taken", body = PolicyAnswerBody),
        (status = 400, description = "SIGNER_REQUEST_MALFORMED", body = ErrorBody),
        (status = 401, description = "SIGNER_UNAUTHORIZED, SIGNER_STAMP_STALE, SIGNER_STAMP_REPLAYED", body = ErrorBody),
        (status = 403, description = "SIGNER_FORBIDDEN", body = ErrorBody),
        (status = 422, description = "SIGNER_POLICY_INVALID, SIGNER_POLICY_UNSIGNED, SIGNER_POLICY_OLD, SIGNER_CLOCK_DISAGREES", body = ErrorBody),
        (status = 503, description = "SIGNER_BUSY, SIGNER_STOPPED, SIGNER_OUTCOME_UNKNOWN", body = ErrorBody),
    ), security(("stamp" = [])))]
async fn apply(shared: &Shared, caller: &Caller, body: &[u8]) -> Result<Answer, Failed> {
    let asked: PolicyBody = read(body).map_err(Failed::malformed)?;
    let signatures = asked.signatures.into_iter().map(Into::into).collect();
    let text = asked.text.into_bytes();
    let applied = shared.ask(|reply| Call::Apply { text, signatures, reply }).await?;
    let refused = |code, message: String| Failed::new(StatusCode::UNPROCESSABLE_ENTITY, code, message);
    match applied {
        Ok(answer) => {
            tracing::info!(key = %caller.key, version = answer.in_force.as_ref().map(|one| one.version), "a policy came");
            Ok(json(StatusCode::OK, &answer))
        }
        Err(ApplyError::Policy(error)) => Err(refused(error.code(), error.to_string())),
        Err(ApplyError::Clock) => Err(refused("SIGNER_CLOCK_DISAGREES", ApplyError::Clock.to_string())),
        Err(ApplyError::Log(_)) => Err(unknown()),
    }
}

/// Take an approval back
///
/// The person who gave it signs the revocation.
#[utoipa::path(post, path = "/v1/revoke", tag = "policy", operation_id = "revoke",
    request_body = RevokeBody,
    responses(
        (status = 200, description = "It counts no more", body = DoneBody),
        (status = 400, description = "SIGNER_REQUEST_MALFORMED", body = ErrorBody),
        (status = 401, description = "SIGNER_UNAUTHORIZED, SIGNER_STAMP_STALE, SIGNER_STAMP_REPLAYED", body = ErrorBody),
        (status = 403, description = "SIGNER_FORBIDDEN", body = ErrorBody),
        (status = 422, description = "SIGNER_APPROVAL_BAD", body = ErrorBody),
        (status = 503, description = "SIGNER_BUSY, SIGNER_STOPPED, SIGNER_OUTCOME_UNKNOWN", body = ErrorBody),
    ), security(("stamp" = [])))]
async fn revoke(shared: &Shared, body: &[u8]) -> Result<Answer, Failed> {
    let asked: RevokeBody = read(body).map_err(Failed::malformed)?;
    let (approved, given) = (asked.approved, asked.revocation.given().map_err(Failed::malformed)?);
    match shared.ask(|reply| Call::Revoke { approved, given, reply }).await? {
        Ok(head) => Ok(json(StatusCode::OK, &DoneBody { head: shown(&shared.keyring, head) })),
        Err(RevokeError::Bad(why)) => {
            let message = format!("the revocation is not good: {why}");
            Err(Failed::new(StatusCode::UNPROCESSABLE_ENTITY, "SIGNER_APPROVAL_BAD", message))
        }
        Err(RevokeError::Log(_)) => Err(unknown()),
    }
}

#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Health {
    /// ok, or the code of what is wrong.
    status: &'static str,
}

/// The process runs
#[utoipa::path(get, path = "/health/live", tag = "operations", operation_id = "live",
    responses((status = 200, description = "It runs", body = Health)))]
async fn live() -> Answer {
    json(StatusCode::OK, &Health { status: "ok" })
}

/// It decides and signs
#[utoipa::path(get, path = "/health/ready", tag = "operations", operation_id = "ready",
    responses(
        (status = 200, description = "Send requests", body = Health),
        (status = 503, description = "It is stopping, or its log has failed", body = Health),
    ))]
async fn ready(shared: &Shared) -> Answer {
    match shared.trouble() {
        None => json(StatusCode::OK, &Health { status: "ok" }),
        Some(status) => json(StatusCode::SERVICE_UNAVAILABLE, &Health { status }),
    }
}

/// Counters and gauges in Prometheus' text form
#[utoipa::path(get, path = "/metrics", tag = "operations", operation_id = "metrics",
    responses((status = 200, description = "Counters", body = String, content_type = "text/plain")))]
async fn metrics(shared: &Shared) -> Answer {
    let text = shared.counts.text(*shared.head.borrow(), shared.trouble().is_none());
    respond(StatusCode::OK, "text/plain; version=0.0.4", text.into_bytes())
}

fn document() -> Answer {
    static TEXT: OnceLock<String> = OnceLock::new();
    respond(StatusCode::OK, "application/json", TEXT.get_or_init(openapi::text).as_bytes())
}
