//! Any octets as a job for encoding: see `crem_integration::fuzz_fec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz_fec::encode(data);
});
