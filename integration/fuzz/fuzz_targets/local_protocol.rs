//! Any octets as lines of the local protocol: see `crem_integration::fuzz::protocol`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::protocol::line(data);
});
