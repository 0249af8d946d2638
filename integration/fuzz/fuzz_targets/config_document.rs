//! Any octets as a config document: see `crem_integration::fuzz::document`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::document::text(data);
});
