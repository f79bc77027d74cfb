#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tiergate_fuzz::original_parts::check(input));
