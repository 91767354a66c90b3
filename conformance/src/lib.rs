//! One suite over every fabric, one over every engine, and what hostile peers do to either.

#![forbid(unsafe_code)]

pub mod engine;
pub mod fabric;
pub mod fuzz;
pub mod holding;
pub mod hostile;
pub mod litmus;
pub mod reference;
pub mod widths;
