//! The description of the interface, generated from the handlers: `docs/signer-openapi.json`, and `/openapi.json` of a running signer.

use utoipa::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, SecurityScheme};

use super::routes;
use crate::wire;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Bursar signer",
        description = "Signs what it can read, and what its own policy allows.\n\nAmounts are decimal strings in the chain's smallest unit. Bytes are \
                       hexadecimal digits. Errors have a code with a page in docs/errors.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        routes::sign, routes::addresses, routes::groups, routes::head, routes::rounds, routes::policy, routes::apply,
        routes::revoke, routes::live, routes::ready, routes::metrics,
    ),
    components(schemas(wire::RequestBody, wire::SingleAnswerBody)),
    modifiers(&Stamped),
    tags(
        (name = "signing", description = "Transactions, decided and signed"),
        (name = "keys", description = "Wallet groups and addresses: nothing secret"),
        (name = "policy", description = "What may be signed, and what people take back"),
        (name = "operations", description = "For whoever looks after the process; no key needed"),
    ),
)]
struct Description;

struct Stamped;

impl utoipa::Modify for Stamped {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let words = "Bursar key=<id>,time=<microseconds>,nonce=<16 to 64 characters>,body=<SHA-256>,mac=<HMAC-SHA256>: over the lines \
                     bursar-signer-http-v1, method, path with query, time, nonce, body";
        let scheme = ApiKey::Header(ApiKeyValue::with_description("authorization", words));
        let components = document.components.get_or_insert_default();
        components.security_schemes.insert("stamp".to_owned(), SecurityScheme::ApiKey(scheme).into());
    }
}

/// The document as it is checked in.
pub fn text() -> String {
    let mut text = Description::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}
