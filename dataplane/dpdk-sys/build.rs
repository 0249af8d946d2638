//! Builds the bindings and the C shim against the libdpdk that the system has.
//!
//! The flags come from `pkg-config --cflags libdpdk` as it prints them: DPDK needs its
//! `-include rte_config.h` and `-march`, without which structures and inline code would not match
//! the library.

use std::path::PathBuf;
use std::process::{Command, exit};

/// The shared libraries that the bound functions live in, as far as this release has them: logging
/// left EAL for a library of its own after 22.11. Drivers are not among them: EAL loads them at run
/// time from the directory that the package fixes.
const LIBS: &[&str] = &[
    "rte_ethdev",
    "rte_mbuf",
    "rte_mempool",
    "rte_ring",
    "rte_eal",
    "rte_kvargs",
    "rte_net",
    "rte_log",
];

/// Functions bound as they are; everything inline goes through the shim.
const FUNCTIONS: &[&str] = &[
    "shim_.*",
    "rte_eal_(init|cleanup|process_type|has_hugepages)",
    "rte_strerror",
    "rte_version",
    "rte_log_(set_global_level|get_global_level|cur_msg_loglevel)",
    "rte_thread_(register|unregister)",
    "rte_socket_id",
    "rte_eth_dev_(get_port_by_name|get_name_by_port|count_avail|info_get|configure)",
    "rte_eth_dev_(start|stop|close|socket_id|adjust_nb_rx_tx_desc)",
    "rte_eth_(rx|tx)_queue_setup",
    "rte_eth_promiscuous_(enable|disable|get)",
    "rte_eth_macaddr_get",
    "rte_eth_dev_(set|get)_mtu",
    "rte_eth_dev_set_link_(up|down)",
    "rte_eth_stats_(get|reset)",
    "rte_eth_speed_bitflag",
    "rte_eth_dev_(rx|tx)_offload_name",
    "rte_pktmbuf_(pool_create|clone|free_bulk)",
    "rte_mempool_(free|avail_count|in_use_count)",
];

fn main() {
    println!("cargo:rerun-if-changed=src/shim.h");
    println!("cargo:rerun-if-changed=src/shim.c");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_LIBDIR");

    let version = pkg_config("--modversion");
    println!("cargo:rustc-env=DPDK_SYS_BUILT_AGAINST={}", version.trim());
    let cflags = pkg_config("--cflags");
    let flags: Vec<&str> = cflags.split_whitespace().collect();

    bindings(&flags);
    shim(&flags);
    for dir in pkg_config("--libs-only-L").split_whitespace() {
        println!(
            "cargo:rustc-link-search=native={}",
            dir.trim_start_matches("-L")
        );
    }
    let all = pkg_config("--libs-only-l");
    let has = |lib: &str| {
        all.split_whitespace()
            .any(|l| l.strip_prefix("-l") == Some(lib))
    };
    for lib in LIBS.iter().filter(|lib| has(lib)) {
        println!("cargo:rustc-link-lib=dylib={lib}");
    }
}

fn pkg_config(what: &str) -> String {
    match Command::new("pkg-config").args([what, "libdpdk"]).output() {
        Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).into_owned(),
        Ok(out) => fail(&format!(
            "`pkg-config {what} libdpdk` failed: {}\n\
             DPDK's headers are needed. Debian and Ubuntu: apt-get install libdpdk-dev",
            String::from_utf8_lossy(&out.stderr).trim()
        )),
        Err(e) => fail(&format!(
            "cannot run pkg-config: {e}\n\
             Debian and Ubuntu: apt-get install pkg-config libdpdk-dev"
        )),
    }
}

fn bindings(flags: &[&str]) {
    let mut builder = bindgen::Builder::default()
        .header("src/shim.h")
        .clang_args(flags)
        .allowlist_var("SHIM_.*")
        // Only offsets are taken of these, see shim.h.
        .opaque_type("rte_mbuf")
        .opaque_type("rte_mempool")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .generate_comments(false)
        .use_core();
    for f in FUNCTIONS {
        builder = builder.allowlist_function(f);
    }
    let out = PathBuf::from(env("OUT_DIR")).join("bindings.rs");
    let done = builder
        .generate()
        .map_err(|e| e.to_string())
        .and_then(|b| b.write_to_file(&out).map_err(|e| e.to_string()));
    if let Err(e) = done {
        fail(&format!(
            "no bindings to libdpdk: {e}\n\
             bindgen needs libclang. Debian and Ubuntu: apt-get install libclang-dev"
        ));
    }
}

fn shim(flags: &[&str]) {
    let mut build = cc::Build::new();
    build.file("src/shim.c").opt_level(3);
    // Debian's headers warn under -Wall -Wextra in places that are not ours to mend.
    build.warnings(false);
    for f in flags {
        build.flag(f);
    }
    if let Err(e) = build.try_compile("crem_dpdk_shim") {
        fail(&format!(
            "the C shim does not compile: {e}\n\
             A C compiler is needed. Debian and Ubuntu: apt-get install gcc libc6-dev"
        ));
    }
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|e| fail(&format!("{name}: {e}")))
}

fn fail(why: &str) -> ! {
    for line in why.lines() {
        println!("cargo:warning={line}");
    }
    eprintln!("dpdk-sys: {why}");
    exit(1)
}
