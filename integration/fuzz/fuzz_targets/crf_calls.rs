//! Any octets as calls of the receiver function: see `crem_integration::fuzz::receiver`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::receiver::calls(data);
});
