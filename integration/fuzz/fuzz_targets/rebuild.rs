//! Any octets as the neighbours of a lost packet: see `crem_integration::fuzz::wire`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::wire::rebuild(data);
});
