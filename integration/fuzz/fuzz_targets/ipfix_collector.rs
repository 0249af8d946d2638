//! A damaged IPFIX session at a collector: see `crem_integration::fuzz::collect`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::collect::session(data);
});
