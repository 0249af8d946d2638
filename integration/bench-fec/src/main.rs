//! `bench-fec`: encoding and decoding in one process against ISA-L, reed-solomon-erasure and the XOR
//! bound, with data in the cache and from memory. Prints a table and the targets, writes JSON.
#![forbid(unsafe_code)]

mod contenders;
mod memory;
mod report;
mod timing;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, io};

use contenders::{
    Field, Schedule, decode_contender, isal_contender, matrix, own_contender, prepare,
    rse_contender, xor_contender,
};
use crem_fec::peers::{Isal, Variant};
use crem_fec::{Engine, Isa};
use memory::{K, Ring};
use report::{Setting, targets};
use serde_json::json;
use timing::{Contender, compete, pin};

const USAGE: &str = "usage: bench-fec [--isal LIBRARY] [--json PATH] [--rounds N] [--check]";
/// Octets of the ring, far beyond any cache.
const RING: usize = 256 << 20;

struct Options {
    isal: PathBuf,
    json: PathBuf,
    rounds: usize,
    check: bool,
}

fn options(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        isal: "libisal.so.2".into(),
        json: "target/results/bench-fec.json".into(),
        rounds: 201,
        check: false,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--isal" => options.isal = words.next()?.into(),
            "--json" => options.json = words.next()?.into(),
            "--rounds" => options.rounds = words.next()?.parse().ok()?,
            "--check" => options.check = true,
            _ => return None,
        }
    }
    Some(options)
}

fn main() -> ExitCode {
    let Some(options) = options(env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-fec: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> io::Result<bool> {
    pin().map_err(io::Error::from)?;
    let has = |variant| Isal::new(&options.isal, variant, &matrix(1), K).is_ok();
    let gfni = has(Variant::Avx512Gfni) || has(Variant::Avx2Gfni);
    let isal = match (has(Variant::Dispatched), gfni) {
        (false, _) => "ISA-L not found",
        (true, true) => "ISA-L 2.31 or newer (has GFNI)",
        (true, false) => "ISA-L before 2.31 (no GFNI): the higher targets hold",
    };
    println!("{isal}: {}", options.isal.display());
    println!("processor: {}", processor());
    let mut settings = Vec::new();
    for t in [4114, 1026] {
        let mut ring = Ring::new(RING, t)?;
        println!(
            "ring of {} blocks of {K} packets, T={t}, pages {:?}",
            ring.blocks(),
            ring.pages
        );
        prepare(&mut ring, t);
        for hot in [true, false] {
            for m in [1, 2, 4, 8] {
                settings.push(encode(&Field::new(&ring, t, hot)?, m, options));
            }
            for lost in [1, 2, 4] {
                settings.push(decode(&Field::new(&ring, t, hot)?, lost, options));
            }
        }
    }
    finish(&settings, isal, gfni, options)
}

fn length(hot: bool) -> Duration {
    Duration::from_micros(if hot { 150 } else { 300 })
}

fn encode(field: &Field<'_>, m: usize, options: &Options) -> Setting {
    let mut contenders: Vec<Contender<'_>> = vec![xor_contender(field)];
    let isal = Variant::ALL
        .into_iter()
        .filter_map(|v| isal_contender(field, m, &options.isal, v));
    contenders.extend(isal);
    contenders.extend(rse_contender(field, m));
    for isa in Isa::ALL.into_iter().filter(|&isa| isa != Isa::Scalar) {
        contenders.extend(own_contender(field, m, isa, false, Schedule::AtClose));
        contenders.extend(own_contender(field, m, isa, true, Schedule::AtClose));
        if !field.hot {
            contenders.extend(own_contender(field, m, isa, true, Schedule::InBurst));
        }
    }
    let samples = compete(&mut contenders, options.rounds, length(field.hot));
    let setting = Setting {
        work: "encode",
        t: field.t,
        hot: field.hot,
        m,
        samples,
    };
    setting.print();
    setting
}

fn decode(field: &Field<'_>, lost: usize, options: &Options) -> Setting {
    let mut contenders: Vec<Contender<'_>> = Isa::ALL
        .into_iter()
        .rev()
        .filter_map(|isa| decode_contender(field, lost, isa))
        .collect();
    let samples = compete(&mut contenders, options.rounds, length(field.hot));
    let setting = Setting {
        work: "decode",
        t: field.t,
        hot: field.hot,
        m: lost,
        samples,
    };
    setting.print();
    setting
}

fn finish(settings: &[Setting], isal: &str, gfni: bool, options: &Options) -> io::Result<bool> {
    let targets = if Engine::detect().isa() == Isa::Avx512Gfni {
        targets(settings, gfni)
    } else {
        Vec::new()
    };
    println!();
    targets.iter().for_each(|target| target.print());
    let missed = targets.iter().filter(|target| !target.met()).count();
    let word = if missed == 0 { "ok" } else { "short" };
    let all = targets.len();
    println!("bench-fec: {word} targets={all} missed={missed}");
    let report = json!({
        "processor": processor(),
        "isal": isal,
        "settings": settings.iter().map(Setting::to_json).collect::<Vec<_>>(),
        "targets": targets.iter().map(report::Target::to_json).collect::<Vec<_>>(),
    });
    write(&options.json, &report)?;
    Ok(missed == 0 || !options.check)
}

fn write(path: &Path, report: &serde_json::Value) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, format!("{report:#}\n"))
}

/// What the system says the processor is.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split_once(':'))
            .map_or("?", |(_, value)| value.trim())
            .to_owned()
    };
    format!(
        "{}, family {}, model {}",
        value("model name"),
        value("cpu family"),
        value("model\t")
    )
}
