//! `docs/signer-openapi.json` is the interface as it is.

#[test]
fn the_description_that_is_checked_in_is_current() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/signer-openapi.json");
    let kept = std::fs::read_to_string(file).expect("docs/signer-openapi.json is there");
    let current = signer::service::openapi::text();
    let line = 1 + kept.lines().zip(current.lines()).take_while(|(kept, current)| kept == current).count();
    let remedy = "cargo run -- signer openapi > docs/signer-openapi.json";
    assert!(kept == current, "docs/signer-openapi.json is not current, from line {line} on. Update it: {remedy}");
    for path in ["/v1/sign", "/v1/addresses", "/v1/groups", "/v1/policy", "/v1/revoke", "/health/live", "/metrics"] {
        assert!(current.contains(&format!("\"{path}\"")), "{path}");
    }
}
