//! (starting)
