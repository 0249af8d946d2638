//! Any octets as a CREM message: see `crem_integration::fuzz::wire`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::wire::message(data);
});
