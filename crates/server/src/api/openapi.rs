//! The description of the interface, generated from the handlers, and a page to browse it without any outside help.

use std::sync::OnceLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse, Response};
use base64::Engine;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

use super::{
    address_book, aliases, answer, assets, balances, deposit_addresses, deposits, error, health, metrics, operator,
    request, transfers, withdrawal_answer, withdrawal_terms, withdrawals,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Bursar",
        description = "A custodial exchange: deposits in, transfers between a user's funding account and spot account, \
                       withdrawals out, each unit exactly once.\n\nAmounts are decimal strings; no JSON number ever holds \
                       money. Errors have a code with a page in docs/errors.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        transfers::create, transfers::create_batch, transfers::list, transfers::read,
        aliases::create, aliases::read, assets::read, balances::read,
        deposit_addresses::give, deposit_addresses::list, deposits::list, deposits::received_inside, deposits::read,
        withdrawals::create, withdrawals::create_batch, withdrawals::list, withdrawals::read, withdrawals::cancel,
        withdrawal_terms::quote, withdrawal_terms::limits, address_book::list, address_book::add, address_book::remove,
        health::live, health::ready, metrics::metrics,
        operator::queue::list, operator::queue::read, operator::sign::intent, operator::sign::approve, operator::actions::reject,
        operator::actions::review, operator::actions::assign, operator::actions::retry, operator::figures::read, operator::log::list,
    ),
    components(schemas(
        request::TransferRequest, request::Account, request::AliasAccount, answer::TransferAnswer, answer::PublicState, deposits::DepositStateSchema,
        withdrawal_answer::WithdrawalStateSchema, error::ErrorBody, error::ErrorAnswer
    )),
    modifiers(&Token),
    tags(
        (name = "transfers", description = "Move money, and see what became of it"),
        (name = "assets", description = "What can be moved, where it lives, and every limit"),
        (name = "balances", description = "What there is"),
        (name = "deposits", description = "Where to pay to, and what became of what was paid"),
        (name = "withdrawals", description = "Pay out, and see what became of it"),
        (name = "older form", description = "The same under older names"),
        (name = "operators", description = "What waits for people, and what they say of it. At the operators' listener, with tokens of their own"),
        (name = "operations", description = "For whoever looks after the process; no token needed"),
    ),
)]
struct Description;

struct Token;

impl utoipa::Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let mut scheme = Http::new(HttpAuthScheme::Bearer);
        scheme.bearer_format = Some("JWT".to_owned());
        scheme.description =
            Some("HS256, RS256 or EdDSA. sub is the user's number; iss, aud and exp are checked.".to_owned());
        let components = document.components.get_or_insert_default();
        components.security_schemes.insert("token".to_owned(), SecurityScheme::Http(scheme).into());
        let mut operators = Http::new(HttpAuthScheme::Bearer);
        operators.bearer_format = Some("JWT".to_owned());
        operators.description =
            Some("Of an operator: sub is the operator's name, and aud another than the customers'.".to_owned());
        components.security_schemes.insert("operator".to_owned(), SecurityScheme::Http(operators).into());
    }
}

/// The document as it is checked in: `docs/openapi.json`.
pub fn text() -> String {
    let mut text = Description::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

pub async fn document() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    ([(CONTENT_TYPE, "application/json")], TEXT.get_or_init(text).as_str()).into_response()
}

const PAGE: &str = include_str!("page.html");

/// The page runs its own script and no other, loads nothing from elsewhere, and is shown in no other page.
pub async fn page() -> Response {
    static POLICY: OnceLock<String> = OnceLock::new();
    let policy = POLICY.get_or_init(|| {
        let hash = |tag: &str| {
            let (start, end) = (format!("<{tag}>"), format!("</{tag}>"));
            let inside =
                PAGE.split_once(&start).and_then(|(_, rest)| rest.split_once(&end)).map_or("", |(text, _)| text);
            let digest = ring::digest::digest(&ring::digest::SHA256, inside.as_bytes());
            format!("'sha256-{}'", base64::engine::general_purpose::STANDARD.encode(digest))
        };
        format!(
            "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
            hash("script"),
            hash("style")
        )
    });
    let headers =
        [("content-security-policy", policy.as_str()), ("x-frame-options", "DENY"), ("referrer-policy", "no-referrer")];
    (headers, Html(PAGE)).into_response()
}
