//! Any octets as frames of LLDP: see `crem_integration::fuzz::lldp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::lldp::frame(data);
});
