//! Any octets as calls of the sender function: see `crem_integration::fuzz::sender`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::sender::calls(data);
});
