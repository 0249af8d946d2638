//! The cases of `suite` without hugepages.

mod suite;

fn main() {
    suite::main(crem_dpdk::Memory::NoHuge {
        mb: suite::NEEDED_MB,
    });
}
