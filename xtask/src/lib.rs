//! The project's chores, as a library, so that `cargo xtask tidy` and `cargo test` run the same checks.

#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "a chore talks to the person who runs it")]

mod cargo;
pub mod fuzz;
pub mod models;
pub mod sanitize;
pub mod softroce;
pub mod tidy;
