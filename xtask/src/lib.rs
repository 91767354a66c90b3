//! The project's chores, as a library, so that `cargo xtask tidy` and `cargo test` run the same checks.

#![forbid(unsafe_code)]

pub mod fuzz;
pub mod tidy;
