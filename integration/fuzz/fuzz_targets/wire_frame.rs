//! Any octets as a frame: see `crem_integration::fuzz::wire`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::wire::frame(data);
});
