//! Any octets as a job for decoding: see `crem_integration::fuzz_fec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz_fec::decode(data);
});
