//! Any octets as a datagram of the connection manager: see `crem_integration::fuzz::wire`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crem_integration::fuzz::wire::management(data);
});
