#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chain_fuzz::within_budget(bytes, chain_fuzz::evm::unsigned));
