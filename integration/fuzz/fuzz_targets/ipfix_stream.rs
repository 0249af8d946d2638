//! Any octets as IPFIX: see `crem_integration::fuzz::ipfix`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::ipfix::stream(data);
});
