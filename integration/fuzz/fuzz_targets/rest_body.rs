//! Any octets as a body of a request: see `crem_integration::fuzz::rest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::rest::body(data);
});
