//! Symbols of every engine against Intel's ISA-L, which uses the same field. Needs the library, by the
//! path in `CREM_ISAL` or where the dynamic loader finds it; without one it says that it was skipped.
#![cfg(feature = "peers")]
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use crem_fec::peers::{Isal, IsalError, Variant};
use crem_fec::{EncodeJob, Engine, Isa, Row, Scheme, Source, cauchy};

/// Octets that look like nothing in particular.
fn noise(seed: usize, len: usize) -> Vec<u8> {
    let mut state = seed as u64 * 2 + 1;
    let mut next = || {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Symbols of T octets over k sources by one of our engines. ISA-L codes whole symbols, so payloads
/// fill them.
fn ours(engine: &Engine, t: usize, m: usize, symbols: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let sources: Vec<Source<'_>> = symbols
        .iter()
        .enumerate()
        .map(|(n, symbol)| Source {
            position: n as u8,
            payload: symbol[2..].into(),
        })
        .collect();
    let mut out = vec![vec![0; t]; m];
    let mut rows: Vec<Row<'_>> = out
        .iter_mut()
        .enumerate()
        .map(|(r, symbol)| Row {
            index: r as u8,
            symbol,
        })
        .collect();
    engine.encode(&mut [EncodeJob::new(Scheme::Cauchy, &mut rows, &sources, true).unwrap()]);
    out
}

#[test]
fn symbols_agree() {
    let library =
        std::env::var_os("CREM_ISAL").map_or_else(|| "libisal.so.2".into(), PathBuf::from);
    let engines: Vec<Engine> = Isa::ALL
        .into_iter()
        .filter_map(|isa| Engine::with_isa(isa).ok())
        .collect();
    let mut compared = 0;
    for t in [
        3, 33, 64, 258, 259, 320, 511, 1026, 1027, 2050, 4097, 4114, 4160, 4199,
    ] {
        for (k, m) in [
            (1, 1),
            (2, 3),
            (5, 7),
            (32, 4),
            (100, 8),
            (240, 16),
            (255, 1),
        ] {
            let symbols: Vec<Vec<u8>> = (0..k)
                .map(|n| {
                    let mut symbol = ((t - 2) as u16).to_be_bytes().to_vec();
                    symbol.extend(noise(n * 31 + t, t - 2));
                    symbol
                })
                .collect();
            let factor = |i: usize, j: usize| cauchy::coefficient(i as u8, j as u8).unwrap();
            let matrix: Vec<u8> = (0..m)
                .flat_map(|i| (0..k).map(move |j| factor(i, j)))
                .collect();
            let inputs: Vec<&[u8]> = symbols.iter().map(|symbol| &symbol[..]).collect();
            for variant in Variant::ALL {
                let isal = match Isal::new(&library, variant, &matrix, k) {
                    Ok(isal) => isal,
                    Err(IsalError::NoVariant(_)) => continue,
                    Err(error) => {
                        println!("SKIPPED: {error}");
                        return;
                    }
                };
                let mut theirs = vec![vec![0; t]; m];
                let mut rows: Vec<&mut [u8]> = theirs.iter_mut().map(|row| &mut row[..]).collect();
                assert!(isal.encode(t, &inputs, &mut rows));
                for engine in &engines {
                    assert_eq!(
                        ours(engine, t, m, &symbols),
                        theirs,
                        "{:?} {variant:?} {t} {k} {m}",
                        engine.isa()
                    );
                    compared += 1;
                }
            }
        }
    }
    println!("{compared} comparisons with {}", library.display());
    assert!(compared > 0);
}
