//! Tests of the sender function.
