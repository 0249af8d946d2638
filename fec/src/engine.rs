//! The kernels that a process uses, chosen once at start.

use core::fmt;

use crate::arch::Kernels;

/// An instruction set that kernels exist for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Isa {
    /// Tables, no vector instructions; runs everywhere and is the oracle of the tests.
    Scalar,
    /// 64-bit ARM.
    Neon,
    /// AVX2, table look-ups.
    Avx2,
    /// AVX-512 F and BW, table look-ups.
    Avx512Bw,
    /// AVX2 and GFNI.
    Avx2Gfni,
    /// AVX-512 F and BW, and GFNI.
    Avx512Gfni,
}

impl Isa {
    /// All of them, the preferred one last.
    pub const ALL: [Self; 6] = [
        Self::Scalar,
        Self::Neon,
        Self::Avx2,
        Self::Avx512Bw,
        Self::Avx2Gfni,
        Self::Avx512Gfni,
    ];

    /// The name as `CREM_FEC_ISA` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512Bw => "avx512bw",
            Self::Avx2Gfni => "avx2_gfni",
            Self::Avx512Gfni => "avx512_gfni",
        }
    }

    /// The instruction set with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|isa| isa.name() == name)
    }
}

/// Why a wanted instruction set cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IsaError {
    /// The name is not known.
    Unknown,
    /// This build or this processor does not have it.
    Unavailable(Isa),
}

impl fmt::Display for IsaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                f.write_str("unknown instruction set; expected one of")?;
                Isa::ALL
                    .into_iter()
                    .try_for_each(|isa| write!(f, " {}", isa.name()))
            }
            Self::Unavailable(isa) => {
                write!(f, "{} is not available on this processor", isa.name())
            }
        }
    }
}

impl core::error::Error for IsaError {}

/// The coder: encodes and decodes with the kernels of one instruction set. Cheap to copy; make one at
/// start and hand it to every worker.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    pub(crate) kernels: Kernels,
    pub(crate) prefetch: bool,
}

impl Engine {
    /// The table-driven engine that runs everywhere.
    pub const fn scalar() -> Self {
        Self {
            kernels: Kernels::scalar(),
            prefetch: true,
        }
    }

    /// The engine of one instruction set.
    ///
    /// # Errors
    /// [`IsaError::Unavailable`] if this processor lacks it.
    pub fn with_isa(isa: Isa) -> Result<Self, IsaError> {
        Kernels::new(isa)
            .map(|kernels| Self {
                kernels,
                prefetch: true,
            })
            .ok_or(IsaError::Unavailable(isa))
    }

    /// The best engine that this processor can run.
    pub fn detect() -> Self {
        Isa::ALL
            .into_iter()
            .rev()
            .find_map(|isa| Self::with_isa(isa).ok())
            .unwrap_or(const { Self::scalar() })
    }

    /// The engine that `CREM_FEC_ISA` names, the best one if it is not set or empty.
    ///
    /// # Errors
    /// The variable holds an unknown name or an instruction set that this processor lacks.
    #[cfg(feature = "std")]
    pub fn from_env() -> Result<Self, IsaError> {
        match std::env::var_os("CREM_FEC_ISA") {
            None => Ok(Self::detect()),
            Some(name) if name.is_empty() => Ok(Self::detect()),
            Some(name) => {
                let isa = name
                    .to_str()
                    .and_then(Isa::from_name)
                    .ok_or(IsaError::Unknown)?;
                Self::with_isa(isa)
            }
        }
    }

    /// The same engine with or without prefetching. With it, which is the default, packets that lie in
    /// memory cost a third of what they cost without; packets that are in the cache already cost up to
    /// a fifth more.
    #[must_use]
    pub const fn prefetching(self, prefetch: bool) -> Self {
        Self { prefetch, ..self }
    }

    /// The instruction set in use.
    pub const fn isa(&self) -> Isa {
        self.kernels.isa()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for isa in Isa::ALL {
            assert_eq!(Isa::from_name(isa.name()), Some(isa));
        }
        assert_eq!(Isa::from_name("sse9"), None);
        assert!(Engine::with_isa(Isa::Scalar).is_ok());
    }
}
