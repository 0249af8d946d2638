//! What we are measured and checked against, for tests and benchmarks only (feature `peers`): Intel's
//! ISA-L, loaded at run time, and a plain XOR of many streams as the bound that memory sets. It lives
//! here because calling a C library and its instructions is unsafe.

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use core::fmt;
use std::path::Path;

type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type EncodeData = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    *const c_uchar,
    *const *const c_uchar,
    *const *mut c_uchar,
);

// The two functions of the dynamic loader that every libc of Linux has.
unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

/// RTLD_NOW | RTLD_LOCAL.
const NOW: c_int = 2;

/// Which of ISA-L's functions to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// What ISA-L itself chooses for this processor.
    Dispatched,
    /// Its AVX2 functions.
    Avx2,
    /// Its AVX-512 functions.
    Avx512,
    /// Its AVX2 and GFNI functions, from release 2.31 on.
    Avx2Gfni,
    /// Its AVX-512 and GFNI functions, from release 2.31 on.
    Avx512Gfni,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Dispatched,
        Self::Avx2,
        Self::Avx512,
        Self::Avx2Gfni,
        Self::Avx512Gfni,
    ];

    const fn symbols(self) -> (&'static CStr, &'static CStr) {
        match self {
            Self::Dispatched => (c"ec_init_tables", c"ec_encode_data"),
            Self::Avx2 => (c"ec_init_tables_base", c"ec_encode_data_avx2"),
            Self::Avx512 => (c"ec_init_tables_base", c"ec_encode_data_avx512"),
            Self::Avx2Gfni => (c"ec_init_tables_gfni", c"ec_encode_data_avx2_gfni"),
            Self::Avx512Gfni => (c"ec_init_tables_gfni", c"ec_encode_data_avx512_gfni"),
        }
    }

    /// Whether this processor has the instructions.
    fn available(self) -> bool {
        let isa = match self {
            Self::Dispatched => return true,
            Self::Avx2 => crate::Isa::Avx2,
            Self::Avx512 => crate::Isa::Avx512Bw,
            Self::Avx2Gfni => crate::Isa::Avx2Gfni,
            Self::Avx512Gfni => crate::Isa::Avx512Gfni,
        };
        // Its AVX-512 functions use VL, DQ and others besides; processors have them together or not.
        crate::Engine::with_isa(isa).is_ok()
    }
}

/// Why ISA-L cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IsalError {
    /// The library cannot be loaded.
    NotLoaded(String),
    /// It has no such functions, or this processor cannot run them.
    NoVariant(Variant),
}

impl fmt::Display for IsalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded(path) => write!(f, "{path} cannot be loaded"),
            Self::NoVariant(variant) => write!(f, "{variant:?} is not there"),
        }
    }
}

impl core::error::Error for IsalError {}

/// An encoder of ISA-L for one matrix.
#[derive(Clone, Debug)]
pub struct Isal {
    encode: EncodeData,
    tables: Vec<u8>,
    rows: usize,
    sources: usize,
}

impl Isal {
    /// An encoder with functions of the library at `path` for the factors of `matrix`, row after row.
    ///
    /// The library must be ISA-L: what its functions do is taken on trust, which is why this is for
    /// tests and benchmarks.
    ///
    /// # Errors
    /// See [`IsalError`].
    pub fn new(
        path: &Path,
        variant: Variant,
        matrix: &[u8],
        sources: usize,
    ) -> Result<Self, IsalError> {
        let shown = path.display();
        let failed = || IsalError::NotLoaded(alloc::format!("{shown}"));
        let name = path
            .to_str()
            .and_then(|path| CString::new(path).ok())
            .ok_or_else(failed)?;
        // SAFETY: `name` is a string that ends in a zero and lives across the call.
        let library = unsafe { dlopen(name.as_ptr(), NOW) };
        if library.is_null() {
            return Err(failed());
        }
        let find = |symbol: &CStr| {
            // SAFETY: `library` is a handle that dlopen gave and nobody closes; `symbol` ends in zero.
            let address = unsafe { dlsym(library, symbol.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        let (init, encode) = variant.symbols();
        // ec_init_tables of releases before 2.31 is what newer ones call ec_init_tables_base.
        let init = find(init).or_else(|| {
            find(c"ec_init_tables_gfni")
                .is_none()
                .then(|| find(c"ec_init_tables"))
                .flatten()
        });
        let (Some(init), Some(encode), true) = (init, find(encode), variant.available()) else {
            return Err(IsalError::NoVariant(variant));
        };
        let rows = matrix.len() / sources.max(1);
        let mut tables = vec![0; 32 * rows * sources];
        // SAFETY: erasure_code.h of ISA-L gives these functions these types since its first release.
        let (init, encode) = unsafe {
            (
                core::mem::transmute::<*mut c_void, InitTables>(init),
                core::mem::transmute::<*mut c_void, EncodeData>(encode),
            )
        };
        // SAFETY: the function reads rows * sources octets of `matrix`, which has at least as many, and
        // writes at most 32 octets for each of them to `tables`, which has so many.
        unsafe {
            init(
                sources as c_int,
                rows as c_int,
                matrix.as_ptr(),
                tables.as_mut_ptr(),
            )
        };
        Ok(Self {
            encode,
            tables,
            rows,
            sources,
        })
    }

    /// Encodes over the first `len` octets of each buffer; `false` if there are too few buffers or one
    /// is shorter.
    pub fn encode(&self, len: usize, sources: &[&[u8]], rows: &mut [&mut [u8]]) -> bool {
        let enough = sources.len() == self.sources && rows.len() == self.rows && self.rows <= 32;
        let long = sources.iter().all(|s| s.len() >= len) && rows.iter().all(|r| r.len() >= len);
        let Ok(octets) = c_int::try_from(len) else {
            return false;
        };
        if !enough || !long || self.sources > 255 {
            return false;
        }
        let mut inputs = [core::ptr::null(); 255];
        inputs
            .iter_mut()
            .zip(sources)
            .for_each(|(pointer, source)| *pointer = source.as_ptr());
        let mut outputs = [core::ptr::null_mut(); 32];
        outputs
            .iter_mut()
            .zip(rows)
            .for_each(|(pointer, row)| *pointer = row.as_mut_ptr());
        // SAFETY: the function reads `len` octets of each of the `sources` inputs and writes `len` of
        // each of the `rows` outputs; lengths and counts were checked, outputs are exclusive borrows,
        // and the tables are those that the library made for these counts.
        unsafe {
            (self.encode)(
                octets,
                self.sources as c_int,
                self.rows as c_int,
                self.tables.as_ptr(),
                inputs.as_ptr(),
                outputs.as_ptr(),
            );
        }
        true
    }
}

/// out = XOR of the first `out.len()` octets of all sources, column by column: one pass over as many
/// streams as there are sources, which is what a code with one symbol cannot beat. `false` if a source
/// is shorter or this processor has no AVX2.
pub fn xor_streams(sources: &[&[u8]], out: &mut [u8]) -> bool {
    if sources.iter().any(|source| source.len() < out.len()) {
        return false;
    }
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512f") {
            // SAFETY: AVX-512 F is there, and every source has at least as many octets as `out`.
            unsafe { xor_512(sources, out) };
            return true;
        }
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2 is there.
            unsafe { xor_256(sources, out) };
            return true;
        }
    }
    false
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn xor_512(sources: &[&[u8]], out: &mut [u8]) {
    xor_columns::<256>(sources, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn xor_256(sources: &[&[u8]], out: &mut [u8]) {
    xor_columns::<128>(sources, out);
}

/// Columns of `WIDTH` octets, which the compiler keeps in four registers.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn xor_columns<const WIDTH: usize>(sources: &[&[u8]], out: &mut [u8]) {
    let whole = out.len() / WIDTH * WIDTH;
    for at in (0..whole).step_by(WIDTH) {
        let mut sum = [0u8; WIDTH];
        for source in sources {
            let Some(column) = source[at..].first_chunk::<WIDTH>() else {
                return;
            };
            sum.iter_mut()
                .zip(column)
                .for_each(|(sum, octet)| *sum ^= octet);
        }
        out[at..at + WIDTH].copy_from_slice(&sum);
    }
    for at in whole..out.len() {
        out[at] = sources.iter().fold(0, |sum, source| sum ^ source[at]);
    }
}
