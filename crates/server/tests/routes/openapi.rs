//! `docs/openapi.json` is the interface as it is.

#[test]
fn the_description_that_is_checked_in_is_current() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let kept = std::fs::read_to_string(file).expect("docs/openapi.json is there");
    let current = server::api::openapi::text();
    std::fs::write("/tmp/wdapi.openapi.json", &current).expect("TEMPORARY");
    let differs = kept.lines().zip(current.lines()).position(|(kept, current)| kept != current);
    assert!(
        kept == current,
        "docs/openapi.json is not current, from line {} on. Update it: cargo run -- openapi > docs/openapi.json",
        differs.map_or(kept.lines().count().min(current.lines().count()), |line| line) + 1
    );
}
