//! Arithmetic in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), as CREM's FEC schemes
//! define it. Tables are built at compile time. Operations on buffers live in `arch`.

/// The field polynomial.
pub const POLYNOMIAL: u16 = 0x11d;

/// Powers of the generator 2, twice over so that a sum of two logarithms needs no reduction.
static EXP: [u8; 512] = exp_table();

/// Logarithms to the base 2; the entry of zero is meaningless.
static LOG: [u8; 256] = log_table();

/// Inverses; the entry of zero is zero and means nothing.
pub(crate) static INV: [u8; 256] = inv_table();

/// The whole multiplication table, by first factor.
pub(crate) static MUL: [[u8; 256]; 256] = mul_table();

/// For each factor its products with 0 ..= 15 and with 0, 16, ... 240: a product of octets is the sum
/// of two look-ups.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) static NIBBLES: [[u8; 32]; 256] = nibble_tables();

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const fn nibble_tables() -> [[u8; 32]; 256] {
    let mul = mul_table();
    let mut table = [[0; 32]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut half = 0;
        while half < 16 {
            table[factor][half] = mul[factor][half];
            table[factor][16 + half] = mul[factor][half << 4];
            half += 1;
        }
        factor += 1;
    }
    table
}

const fn double(a: u8) -> u8 {
    let wide = (a as u16) << 1;
    (if wide & 0x100 != 0 {
        wide ^ POLYNOMIAL
    } else {
        wide
    }) as u8
}

const fn exp_table() -> [u8; 512] {
    let mut table = [0; 512];
    let mut power = 1u8;
    let mut i = 0;
    while i < 512 {
        table[i] = power;
        power = double(power);
        i += 1;
    }
    table
}

const fn log_table() -> [u8; 256] {
    let exp = exp_table();
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[exp[i] as usize] = i as u8;
        i += 1;
    }
    table
}

const fn inv_table() -> [u8; 256] {
    let mut table = [0; 256];
    let mut a = 0;
    while a < 256 {
        table[a] = inverse(a as u8);
        a += 1;
    }
    table
}

/// The inverse from the definition of the tables, for building others; of zero it is zero.
pub(crate) const fn inverse(a: u8) -> u8 {
    if a == 0 {
        return 0;
    }
    let (exp, log) = (const { &exp_table() }, const { &log_table() });
    exp[255 - log[a as usize] as usize]
}

const fn mul_table() -> [[u8; 256]; 256] {
    let (exp, log) = (exp_table(), log_table());
    let mut table = [[0; 256]; 256];
    let mut a = 1;
    while a < 256 {
        let mut b = 1;
        while b < 256 {
            table[a][b] = exp[log[a] as usize + log[b] as usize];
            b += 1;
        }
        a += 1;
    }
    table
}

/// The product of two field elements.
///
/// By logarithms: the tables are 13 cache lines, where the whole multiplication table is 1,024.
#[inline]
pub fn mul(a: u8, b: u8) -> u8 {
    let product = if a == 0 || b == 0 {
        0
    } else {
        EXP[usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)])]
    };
    product ^ crate::mutate::gf_product()
}

/// The products of `a` with every element: for many products with one factor.
pub(crate) fn products(a: u8) -> &'static [u8; 256] {
    &MUL[usize::from(a)]
}

/// The inverse of a field element; `None` for zero.
#[inline]
pub fn inv(a: u8) -> Option<u8> {
    (a != 0).then(|| INV[usize::from(a)])
}

/// The logarithm to the base 2 of an element other than zero, 0 ..= 254; of zero it means nothing.
#[inline]
pub(crate) fn log(a: u8) -> u32 {
    u32::from(LOG[usize::from(a)])
}

/// 2 to the power `exponent`.
#[inline]
pub(crate) fn exp(exponent: u32) -> u8 {
    EXP[(exponent % 255) as usize]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use reed_solomon_erasure::galois_8;

    /// Shift and add, straight from the definition.
    fn slow(a: u8, b: u8) -> u8 {
        let (mut product, mut a, mut b) = (0, a, b);
        while b != 0 {
            if b & 1 != 0 {
                product ^= a;
            }
            a = double(a);
            b >>= 1;
        }
        product
    }

    // shows: CREM-FEC-04
    #[test]
    fn products_agree_with_the_definition_and_with_another_implementation() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                assert_eq!(mul(a, b), slow(a, b));
                assert_eq!(mul(a, b), galois_8::mul(a, b));
            }
        }
    }

    #[test]
    fn inverses() {
        assert_eq!(inv(0), None);
        for a in 1..=255u8 {
            assert_eq!(mul(a, inv(a).unwrap()), 1);
            assert_eq!(inv(a).unwrap(), galois_8::div(1, a));
        }
    }
}
