#![no_main]

// This is no target: it writes a corpus into the folders beside `chain` and `devnet`. It is built like a target, because
// all of this workspace is instrumented.
libfuzzer_sys::fuzz_target!(init: chain_fuzz::record::all(), |_bytes: &[u8]| ());
