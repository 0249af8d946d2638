//! The figures as a table and as JSON, and what they have to reach.

use serde_json::{Value, json};

use crate::memory::K;
use crate::timing::Sample;

/// One row of the table: a setting and what was measured there.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Encoding or decoding.
    pub(crate) work: &'static str,
    /// Symbol length in octets.
    pub(crate) t: usize,
    /// Data in the cache.
    pub(crate) hot: bool,
    /// Symbols, or packets lost.
    pub(crate) m: usize,
    /// Measured.
    pub(crate) samples: Vec<Sample>,
}

impl Setting {
    /// A setting with nothing measured yet.
    pub(crate) const fn new(work: &'static str, t: usize, hot: bool, m: usize) -> Self {
        Self {
            work,
            t,
            hot,
            m,
            samples: Vec::new(),
        }
    }

    /// The setting in words.
    pub(crate) fn title(&self) -> String {
        format!(
            "{} T={} {} {}={}",
            self.work,
            self.t,
            self.place(),
            self.count_name(),
            self.m
        )
    }

    /// Source octets per second, in units of 10^9.
    pub(crate) fn gigabytes(&self, sample: &Sample) -> f64 {
        (K * self.t) as f64 / sample.median
    }

    /// The best of those whose name `wanted` takes.
    fn best(&self, wanted: impl Fn(&str) -> bool) -> Option<f64> {
        let found = self.samples.iter().filter(|sample| wanted(&sample.name));
        found
            .map(|sample| self.gigabytes(sample))
            .max_by(f64::total_cmp)
    }

    fn place(&self) -> &'static str {
        if self.hot { "hot" } else { "memory" }
    }

    /// The table's lines.
    pub(crate) fn print(&self) {
        println!("{}", self.title());
        let isal = self.best(|name| name.starts_with("isal"));
        let bound = self.best(|name| name == "xor bound");
        for sample in &self.samples {
            let speed = self.gigabytes(sample);
            let ratio =
                |to: Option<f64>| to.map_or("-".to_owned(), |to| format!("{:.2}", speed / to));
            println!(
                "  {:28} {:8.1} GB/s {:9.2} us/block  best {:8.1}  to ISA-L {:>5}  to XOR {:>5}  ({} batches, {} dropped)",
                sample.name,
                speed,
                sample.median / 1e3,
                (K * self.t) as f64 / sample.best,
                ratio(isal),
                ratio(bound),
                sample.batches,
                sample.dropped,
            );
        }
    }

    fn count_name(&self) -> &'static str {
        if self.work == "decode" { "lost" } else { "m" }
    }

    /// As JSON.
    pub(crate) fn to_json(&self) -> Value {
        let isal = self.best(|name| name.starts_with("isal"));
        let bound = self.best(|name| name == "xor bound");
        let samples: Vec<Value> = self
            .samples
            .iter()
            .map(|sample| {
                let speed = self.gigabytes(sample);
                json!({
                    "name": sample.name,
                    "gigabytes_per_second": speed,
                    "microseconds_per_block": sample.median / 1e3,
                    "best_microseconds_per_block": sample.best / 1e3,
                    "ratio_to_isal": isal.map(|isal| speed / isal),
                    "ratio_to_xor": bound.map(|bound| speed / bound),
                    "batches": sample.batches,
                    "dropped": sample.dropped,
                })
            })
            .collect();
        json!({
            "work": self.work, "symbol_octets": self.t, "data": self.place(), self.count_name(): self.m,
            "samples": samples,
        })
    }
}

/// A figure that has to be reached.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// What it is.
    pub(crate) what: String,
    /// Measured.
    pub(crate) found: f64,
    /// To be reached.
    pub(crate) wanted: f64,
    /// Measured has to be at least, else at most, the wanted.
    pub(crate) at_least: bool,
}

impl Target {
    /// Whether it is reached.
    pub(crate) fn met(&self) -> bool {
        if self.at_least {
            self.found >= self.wanted
        } else {
            self.found <= self.wanted
        }
    }

    /// A line of the summary.
    pub(crate) fn print(&self) {
        let (verdict, sign) = (
            if self.met() { "met" } else { "missed" },
            if self.at_least { ">=" } else { "<=" },
        );
        println!(
            "{verdict:6} {:44} {:6.2} {sign} {:.2}",
            self.what, self.found, self.wanted
        );
    }

    /// As JSON.
    pub(crate) fn to_json(&self) -> Value {
        json!({"what": self.what, "found": self.found, "wanted": self.wanted, "met": self.met()})
    }
}

/// The targets of this project, for a processor with AVX-512 and GFNI. ISA-L before 2.31 does not use
/// GFNI, so against it the ratios have to be higher.
pub(crate) fn targets(settings: &[Setting], isal_has_gfni: bool) -> Vec<Target> {
    let ratios = if isal_has_gfni {
        [1.5, 1.7, 2.2, 2.8]
    } else {
        [2.4, 2.8, 3.8, 4.5]
    };
    let own = |name: &str| name.starts_with("own avx512_gfni");
    let mut all = Vec::new();
    let mut push = |what: String, found: Option<f64>, wanted: f64, at_least: bool| {
        let found = found.unwrap_or(f64::NAN);
        all.push(Target {
            what,
            found,
            wanted,
            at_least,
        });
    };
    for setting in settings {
        let (t, m) = (setting.t, setting.m);
        let ratio = |ours: Option<f64>, theirs: Option<f64>| Some(ours? / theirs?);
        let isal = setting.best(|name| name.starts_with("isal"));
        let place = if setting.hot { "hot" } else { "memory" };
        match (setting.work, setting.hot, t) {
            ("encode", true, _) => {
                push(
                    format!("{place} T={t} m={m}: to ISA-L"),
                    ratio(setting.best(own), isal),
                    1.0,
                    true,
                );
            }
            ("encode", false, 4114) => {
                let wanted = ratios[m.ilog2().min(3) as usize];
                push(
                    format!("{place} T={t} m={m}: to ISA-L"),
                    ratio(setting.best(own), isal),
                    wanted,
                    true,
                );
                let avx2 = setting.best(|name| name.starts_with("own avx2 "));
                let theirs = setting.best(|name| name == "isal avx2");
                push(
                    format!("{place} T={t} m={m}: AVX2 to ISA-L's"),
                    ratio(avx2, theirs),
                    1.0,
                    true,
                );
                if m == 1 {
                    let bound = setting.best(|name| name == "xor bound");
                    push(
                        format!("{place} T={t} m=1: to XOR"),
                        ratio(setting.best(own), bound),
                        0.75,
                        true,
                    );
                }
            }
            ("decode", hot, 4114) if m == 1 => {
                let time = setting.samples.iter().find(|sample| own(&sample.name));
                let wanted = if hot { 1.5 } else { 7.0 };
                push(
                    format!("{place} T={t}: decode 1 of 32, us"),
                    time.map(|s| s.median / 1e3),
                    wanted,
                    false,
                );
            }
            _ => {}
        }
    }
    all
}
