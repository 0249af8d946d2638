//! One fault at a time in a product function that a vector file exercises: the runner must see it. The
//! faults are process-wide, so this is one test.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use crem_integration::vectors::{Report, run_directory};
use crem_wire::mutate::Fault;

fn run() -> Report {
    run_directory(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/vectors")).unwrap()
}

fn failed(report: &Report) -> Vec<&str> {
    let with_failures = report
        .files
        .iter()
        .filter(|file| !file.tally.failures.is_empty());
    with_failures.map(|file| file.name.as_str()).collect()
}

/// Switches a fault on or off.
type Switch = Box<dyn Fn(bool)>;

#[test]
fn every_fault_is_seen() {
    assert_eq!(failed(&run()), [""; 0]);
    let wire = |fault| move |on| crem_wire::mutate::set(if on { Some(fault) } else { None });
    let ipfix = |fault| move |on| crem_ipfix::mutate::set(if on { Some(fault) } else { None });
    let core = |fault| move |on| crem_core::mutate::set(if on { Some(fault) } else { None });
    let faults: [(&str, Switch); 11] = [
        ("coding", Box::new(crem_fec::mutate::set)),
        ("plan", Box::new(core(crem_core::mutate::Fault::Response))),
        ("policy", Box::new(core(crem_core::mutate::Fault::Epsilon))),
        ("policy", Box::new(core(crem_core::mutate::Fault::Breaker))),
        ("messages", Box::new(wire(Fault::Message))),
        ("frames", Box::new(wire(Fault::Frame))),
        ("icrc", Box::new(wire(Fault::Icrc))),
        ("ecn", Box::new(wire(Fault::Ecn))),
        ("seq_traces", Box::new(crem_meter::mutate::set)),
        (
            "ipfix",
            Box::new(ipfix(crem_ipfix::mutate::Fault::FieldLength)),
        ),
        (
            "collector",
            Box::new(ipfix(crem_ipfix::mutate::Fault::ReportGap)),
        ),
    ];
    for (file, switch) in faults {
        switch(true);
        let report = run();
        switch(false);
        assert!(
            failed(&report).contains(&file),
            "{file}: {:?}",
            failed(&report)
        );
    }
    assert_eq!(failed(&run()), [""; 0]);
}
