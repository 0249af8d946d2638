//! What the fuzz target of crem-fec runs: any octets are read as a job, every engine of this processor
//! has to do the same with it, and none may panic. A test runs it on random octets.

use crem_fec::{
    DecodeError, DecodeJob, EncodeError, EncodeJob, Engine, Equation, Isa, Outcome, Payload,
    PositionSet, Row, Scheme, Scratch, Source, Symbol,
};

/// Symbols longer than this take time and find nothing new.
const MAX_T: usize = 300;
/// Unknowns that the scratch space is made for.
const MAX_UNKNOWNS: usize = 24;

/// Octets that a fuzzer gave, read from the front; behind the end there are zeros.
struct Reader<'d>(&'d [u8]);

impl<'d> Reader<'d> {
    fn octet(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&octet, rest)) => {
                self.0 = rest;
                octet
            }
            None => 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        let wide = u16::from_be_bytes([self.octet(), self.octet()]);
        usize::from(wide) % limit.max(1)
    }

    fn octets(&mut self, len: usize) -> &'d [u8] {
        let (some, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        some
    }

    fn set(&mut self) -> PositionSet {
        let octets = self.octets(4);
        let word = octets
            .iter()
            .fold(0, |word, &octet| word << 8 | u64::from(octet));
        // Mostly low positions, now and then high ones.
        PositionSet::from_words([word, 0, 0, if word & 7 == 7 { word << 40 } else { 0 }])
    }

    fn scheme(&mut self) -> Scheme {
        Scheme::from_number(self.octet() % 4).unwrap_or(Scheme::Cauchy)
    }

    /// A symbol over some of `sources`: a right one, or now and then one that is not.
    fn symbol(&mut self, t: usize, sources: &[Source<'_>]) -> (Equation, Vec<u8>) {
        let (scheme, index, mut set) = (self.scheme(), self.octet() % 64, self.set());
        if !self.octet().is_multiple_of(4) {
            set = sources.iter().map(|source| source.position).collect();
        }
        let named = |position| {
            if scheme == Scheme::Copy {
                position == index
            } else {
                set.contains(position)
            }
        };
        let named: Vec<Source<'_>> = sources
            .iter()
            .copied()
            .filter(|source| named(source.position))
            .collect();
        let mut octets = vec![0; t];
        let mut rows = [Row {
            index,
            symbol: &mut octets,
        }];
        if let Ok(job) = EncodeJob::new(scheme, &mut rows, &named, true) {
            Engine::scalar().encode(&mut [job]);
        }
        if self.octet() == 0 {
            octets.resize(self.below(MAX_T), 0);
            octets.iter_mut().for_each(|octet| *octet ^= self.octet());
        }
        (Equation { scheme, index, set }, octets)
    }

    /// Sources with payloads out of what the fuzzer gave; now and then one in pieces.
    fn sources<'p>(&mut self, t: usize, parts: &'p mut Vec<[&'d [u8]; 2]>) -> Vec<Source<'p>>
    where
        'd: 'p,
    {
        let count = self.below(20);
        let drawn: Vec<(u8, bool)> = (0..count)
            .map(|_| {
                let (position, whole) = (self.octet(), !self.octet().is_multiple_of(3));
                let len = self.below(t + 2);
                let payload = self.octets(len);
                parts.push(payload.split_at(payload.len() / 3).into());
                (position % 40, whole)
            })
            .collect();
        let parts: &'p Vec<[&'d [u8]; 2]> = parts;
        drawn
            .into_iter()
            .zip(parts)
            .map(|((position, whole), pieces)| {
                let payload = if whole {
                    Payload::Whole(pieces[1])
                } else {
                    Payload::Parts(pieces)
                };
                Source { position, payload }
            })
            .collect()
    }
}

/// What was restored, by position.
type Payloads = Vec<(u8, Option<Vec<u8>>)>;

/// One engine for each instruction set of this processor, the portable one first.
fn engines() -> impl Iterator<Item = Engine> {
    Isa::ALL
        .into_iter()
        .filter_map(|isa| Engine::with_isa(isa).ok())
}

/// Encodes what `data` describes with every engine; says whether it describes a possible job.
///
/// # Panics
/// Two engines differ: what the fuzzer is looking for.
pub fn encode(data: &[u8]) -> bool {
    let mut reader = Reader(data);
    let t = reader.below(MAX_T);
    let (scheme, first) = (reader.scheme(), reader.octet() % 2 == 0);
    let indices: Vec<u8> = (0..reader.below(12)).map(|_| reader.octet()).collect();
    let mut parts = Vec::new();
    let sources = reader.sources(t, &mut parts);
    let fill = reader.octet();
    let mut results: Vec<Result<Vec<Vec<u8>>, EncodeError>> = Vec::new();
    for engine in engines() {
        let mut symbols = vec![vec![fill; t]; indices.len()];
        let mut rows: Vec<Row<'_>> = symbols
            .iter_mut()
            .zip(&indices)
            .map(|(symbol, &index)| Row { index, symbol })
            .collect();
        let job =
            EncodeJob::new(scheme, &mut rows, &sources, first).map(|job| engine.encode(&mut [job]));
        results.push(job.map(|()| symbols));
    }
    assert!(
        results.windows(2).all(|pair| pair[0] == pair[1]),
        "engines differ"
    );
    results.first().is_some_and(Result::is_ok)
}

/// Decodes what `data` describes with every engine; says how many payloads were restored.
///
/// # Panics
/// Two engines differ: what the fuzzer is looking for.
pub fn decode(data: &[u8]) -> usize {
    let mut reader = Reader(data);
    let t = reader.below(MAX_T);
    let lost = reader.set();
    let mut parts = Vec::new();
    let all = reader.sources(t, &mut parts);
    let held: Vec<(Equation, Vec<u8>)> = (0..reader.below(12))
        .map(|_| reader.symbol(t, &all))
        .collect();
    let sources: Vec<Source<'_>> = all
        .iter()
        .copied()
        .filter(|source| !lost.contains(source.position))
        .collect();
    let unknown = if reader.octet() % 4 == 0 {
        reader.set()
    } else {
        all.iter()
            .map(|source| source.position)
            .filter(|&position| lost.contains(position))
            .collect()
    };
    let symbols: Vec<Symbol<'_>> = held
        .iter()
        .map(|(equation, octets)| Symbol {
            equation: *equation,
            octets: octets[..].into(),
        })
        .collect();
    let job = DecodeJob {
        t,
        min_payload: 16,
        sources: &sources,
        symbols: &symbols,
        unknown,
    };
    let mut scratch = Scratch::new(MAX_UNKNOWNS, MAX_T);
    let mut results: Vec<Result<Payloads, DecodeError>> = Vec::new();
    for engine in engines() {
        let decoded = engine.decode(&job, &mut scratch);
        results.push(decoded.map(|decoded| {
            let restored = |outcome| match outcome {
                Outcome::Restored(payload) => Some(payload.to_vec()),
                Outcome::Undetermined | Outcome::BadSymbol => None,
            };
            decoded
                .outcomes()
                .map(|(position, outcome)| (position, restored(outcome)))
                .collect()
        }));
    }
    assert!(
        results.windows(2).all(|pair| pair[0] == pair[1]),
        "engines differ"
    );
    let restored = |payloads: &Payloads| {
        payloads
            .iter()
            .filter(|(_, payload)| payload.is_some())
            .count()
    };
    results.iter().flatten().next().map_or(0, restored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_octets_find_nothing() {
        let mut state = 1u64;
        let (mut encoded, mut restored) = (0, 0);
        for round in 0..6000 {
            let data: Vec<u8> = (0..round % 1500)
                .map(|_| {
                    state = state
                        .wrapping_mul(0x5851_f42d_4c95_7f2d)
                        .wrapping_add(0x1405_7b7e_f767_814f);
                    (state >> 56) as u8
                })
                .collect();
            encoded += usize::from(encode(&data));
            restored += decode(&data);
        }
        assert!(
            encoded > 300 && restored > 100,
            "{encoded} jobs encoded, {restored} payloads restored"
        );
    }
}
