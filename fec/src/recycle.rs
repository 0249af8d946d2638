//! Keeping the memory of a vector of borrows from one burst to the next.

use alloc::vec::Vec;

/// An empty vector in the memory of `vec`, for items that borrow something else. A worker keeps its
/// vectors of rows, sources and jobs between bursts in this way instead of allocating new ones.
///
/// The memory is reused when both items have the same size and alignment, as the same type with two
/// lifetimes has.
pub fn recycle<A, B>(mut vec: Vec<A>) -> Vec<B> {
    vec.clear();
    vec.into_iter().filter_map(|_| None).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept() {
        let mut vec: Vec<&str> = Vec::with_capacity(100);
        vec.push("a");
        let before = vec.as_ptr().cast::<u8>();
        let again: Vec<&[u8]> = recycle(vec);
        assert!(again.is_empty() && again.capacity() == 100);
        assert_eq!(again.as_ptr().cast::<u8>(), before);
    }
}
