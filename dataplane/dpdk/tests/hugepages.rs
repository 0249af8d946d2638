//! The cases of `suite` on hugepages. Skipped, and said so, where fewer than the suite needs are free.

mod suite;

fn main() {
    let free = crem_dpdk::free_hugepage_mb();
    if free < suite::NEEDED_MB {
        println!(
            "skipped: hugepages: {} MB needed, {free} MB free",
            suite::NEEDED_MB
        );
        return;
    }
    suite::main(crem_dpdk::Memory::Huge {
        mb: suite::NEEDED_MB,
    });
}
