//! Seeded storms are short in `./test`; `BURSAR_TEST_ROUNDS=1000 cargo test -p transfer --test it whatever` runs them for longer.

pub fn rounds(short: u64) -> u64 {
    std::env::var("BURSAR_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}
