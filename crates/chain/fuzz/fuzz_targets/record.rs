#![no_main]

// No target: it writes a corpus into the folder CORPUS. It is built like one, as all here is instrumented.
libfuzzer_sys::fuzz_target!(init: chain_fuzz::record::all(), |_bytes: &[u8]| ());
