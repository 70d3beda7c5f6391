#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tx_fuzz::within_budget(bytes, tx_fuzz::evm::unsigned));
