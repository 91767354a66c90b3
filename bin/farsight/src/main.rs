//! The farsight program.
fn main() {}
