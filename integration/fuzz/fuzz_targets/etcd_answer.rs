//! Any octets as answers of etcd: see `crem_integration::fuzz::fleet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::fleet::answers(data);
});
