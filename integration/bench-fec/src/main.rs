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
    Field, Schedule, decode_contender, detected_contender, isal_contender, matrix, own_contender,
    prepare, rse_contender, xor_contender,
};
use crem_fec::peers::{Isal, Variant};
use crem_fec::{Engine, Isa};
use memory::{K, Ring};
use report::{Setting, targets};
use serde_json::json;
use timing::{Contender, compete, pin};

const USAGE: &str = "usage: bench-fec [--isal LIBRARY] [--json PATH] [--rounds N] [--check]
                 [--only \"encode|decode T=… hot|memory m=…|lost=…\"] [--who NAME[,NAME…]]
--only measures the settings that have all these words; --who those whose names contain one of these (=NAME: are)";
/// Octets of the ring, far beyond any cache.
const RING: usize = 256 << 20;

struct Options {
    isal: PathBuf,
    json: PathBuf,
    rounds: usize,
    check: bool,
    /// Words that the title of a setting must have to be measured.
    only: Vec<String>,
    /// Parts of names of what is measured; empty for all.
    who: Vec<String>,
}

impl Options {
    fn wants(&self, title: &str) -> bool {
        let mut only = self.only.iter();
        only.all(|wanted| title.split(' ').any(|word| word == wanted))
    }

    fn keep_wanted(&self, contenders: &mut Vec<Contender<'_>>) {
        if !self.who.is_empty() {
            let names = |part: &str, name: &str| match part.strip_prefix('=') {
                Some(whole) => name == whole,
                None => name.contains(part),
            };
            contenders.retain(|one| self.who.iter().any(|part| names(part, &one.name)));
        }
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        isal: "libisal.so.2".into(),
        json: "target/results/bench-fec.json".into(),
        rounds: 201,
        check: false,
        only: Vec::new(),
        who: Vec::new(),
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--isal" => options.isal = words.next()?.into(),
            "--json" => options.json = words.next()?.into(),
            "--rounds" => options.rounds = words.next()?.parse().ok()?,
            "--check" => options.check = true,
            "--only" => options.only = split(&words.next()?, ' '),
            "--who" => options.who = split(&words.next()?, ','),
            _ => return None,
        }
    }
    Some(options)
}

fn split(text: &str, by: char) -> Vec<String> {
    text.split(by).map(str::to_owned).collect()
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
            let encode = [1, 2, 4, 8].map(|m| ("encode", m));
            let decode = [1, 2, 4].map(|lost| ("decode", lost));
            for (work, m) in encode.into_iter().chain(decode) {
                let setting = Setting::new(work, t, hot, m);
                if options.wants(&setting.title()) {
                    settings.push(measure(setting, &ring, options)?);
                }
            }
        }
    }
    finish(&settings, isal, gfni, options)
}

fn measure(mut setting: Setting, ring: &Ring, options: &Options) -> io::Result<Setting> {
    let field = Field::new(ring, setting.t, setting.hot)?;
    let mut contenders = if setting.work == "encode" {
        encoders(&field, setting.m, options)
    } else {
        let isas = Isa::ALL.into_iter().rev();
        isas.filter_map(|isa| decode_contender(&field, setting.m, isa))
            .collect()
    };
    options.keep_wanted(&mut contenders);
    let length = Duration::from_micros(if setting.hot { 150 } else { 300 });
    setting.samples = compete(&mut contenders, options.rounds, length);
    setting.print();
    Ok(setting)
}

fn encoders<'c>(field: &'c Field<'_>, m: usize, options: &Options) -> Vec<Contender<'c>> {
    let mut contenders: Vec<Contender<'_>> = vec![xor_contender(field)];
    let isal = Variant::ALL
        .into_iter()
        .filter_map(|v| isal_contender(field, m, &options.isal, v));
    contenders.extend(isal);
    contenders.extend(rse_contender(field, m));
    contenders.extend(detected_contender(field, m));
    for isa in Isa::ALL.into_iter().filter(|&isa| isa != Isa::Scalar) {
        contenders.extend(own_contender(field, m, isa, false, Schedule::AtClose));
        contenders.extend(own_contender(field, m, isa, true, Schedule::AtClose));
        if !field.hot {
            contenders.extend(own_contender(field, m, isa, true, Schedule::InBurst));
        }
    }
    contenders
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
