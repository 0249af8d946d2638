//! (starting)
fn main() {}
