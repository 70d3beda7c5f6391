//! Who is asking: the bearer token of a request, checked against the keys of the configuration.
//!
//! | file | subject |
//! |---|---|
//! | `keys` | the verification keys, and which of them a token is checked with |
//! | `jwks` | keys from a JWKS file |
//! | `jwt` | a token, checked from its length to its audience |
//! | `issue` | tokens of our own, for the command line, the demo and tests |
//! | `json` | JSON objects in which no member stands twice |
//!
//! **The key decides the algorithm, never the token.** A token only names it, and is refused when the names differ:
//! so `none`, or a public RSA key used as an HMAC secret, leads nowhere.
//!
//! **Nothing of a token is fetched or remembered.** Keys that a header carries or points to (`jwk`, `jku`, `x5u`)
//! are not looked at, and there is no cache that could outlive an expiry.

mod issue;
mod json;
mod jwks;
mod jwt;
mod keys;

pub use issue::{Claims, OperatorClaims, sign_hs256, sign_operator_hs256};
pub use jwks::Flaw;
pub use jwt::{Identity, MAX_TOKEN_BYTES, Unauthorized, Verifier};
pub use keys::{Algorithm, KeyError, Keys};
