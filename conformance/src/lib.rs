//! One suite over every fabric, one over every engine.

#![forbid(unsafe_code)]

pub mod engine;
pub mod fabric;
