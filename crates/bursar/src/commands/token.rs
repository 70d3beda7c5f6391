//! `bursar token`: a token for a user or an operator, signed with the configured secret, to try things with.

use std::path::Path;
use std::time::Duration;

use domain::{Clock, UserId};
use serde_json::json;
use server::auth::{Claims, OperatorClaims, sign_hs256, sign_operator_hs256};
use terminal::clock::SystemClock;
use terminal::duration::parse_duration;
use terminal::failure::{CommandResult, Failure};
use terminal::files::read_secret;

use super::Context;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The user's number
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..), required_unless_present = "operator")]
    user: Option<i64>,
    /// An operator's name instead: the token opens the operators' routes, and no others
    #[arg(long, value_name = "NAME", conflicts_with = "user")]
    operator: Option<String>,
    /// How long it is good
    #[arg(long = "for", value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    good: Duration,
}

pub fn run(context: &Context, arguments: &Arguments) -> CommandResult {
    if let Some(name) = &arguments.operator {
        return for_operator(context, name, arguments.good);
    }
    let auth = &context.config.auth;
    if auth.hs256_secret_file.is_empty() {
        let hint =
            "(umask 077; head -c 48 /dev/urandom | base64 > jwt.secret); then auth.hs256_secret_file = \"jwt.secret\"";
        return Err(Failure::bad_input("AUTH_KEYS_INVALID", "auth.hs256_secret_file is not set", hint));
    }
    let secret = read_secret(Path::new(&auth.hs256_secret_file))?;
    let user = arguments
        .user
        .and_then(UserId::new)
        .ok_or_else(|| Failure::bad_input("BAD_USAGE", "a user's number is positive", "bursar token --help"))?;
    let now = SystemClock.now();
    let micros = i64::try_from(arguments.good.as_micros()).unwrap_or(i64::MAX);
    let claims = Claims {
        user,
        issuer: auth.issuer.clone(),
        audience: auth.audience.clone(),
        issued_at: now,
        expires_at: now.plus_micros(micros),
    };
    let token = sign_hs256(&secret, Some(auth.hs256_kid.as_str()).filter(|kid| !kid.is_empty()), &claims)
        .map_err(|error| Failure::bad_input("AUTH_KEYS_INVALID", error.to_string(), "use a longer secret"))?;
    context.print(&json!({ "token": token, "expires_at": claims.expires_at.to_string() }), || token.clone());
    Ok(())
}

fn for_operator(context: &Context, name: &str, good: Duration) -> CommandResult {
    let operators = &context.config.operators;
    if operators.hs256_secret_file.is_empty() {
        let hint = "(umask 077; head -c 48 /dev/urandom | base64 > operators.secret); then operators.hs256_secret_file = \"operators.secret\"";
        return Err(Failure::bad_input("AUTH_KEYS_INVALID", "operators.hs256_secret_file is not set", hint));
    }
    let operator = name.parse().map_err(|error: domain::BadName| {
        Failure::bad_input("BAD_USAGE", format!("--operator: {error}"), "bursar operator list shows them")
    })?;
    let secret = read_secret(Path::new(&operators.hs256_secret_file))?;
    let now = SystemClock.now();
    let micros = i64::try_from(good.as_micros()).unwrap_or(i64::MAX);
    let claims = OperatorClaims {
        operator,
        issuer: operators.issuer.clone(),
        audience: operators.audience.clone(),
        issued_at: now,
        expires_at: now.plus_micros(micros),
    };
    let kid = Some(operators.hs256_kid.as_str()).filter(|kid| !kid.is_empty());
    let token = sign_operator_hs256(&secret, kid, &claims)
        .map_err(|error| Failure::bad_input("AUTH_KEYS_INVALID", error.to_string(), "use a longer secret"))?;
    context.print(&json!({ "token": token, "expires_at": claims.expires_at.to_string() }), || token.clone());
    Ok(())
}
