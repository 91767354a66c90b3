//! What only shared memory between processes can show: death by signal, seals, forks, paths, hostile peers.
//!
//! Tests that count a process's own resources, or change them, run in a process of their own
//! ([`harness::isolated`]). Clients and servers that must die run in processes that play a role ([`roles`]).

mod descriptors;
mod fenced;
mod foreign;
mod fork;
mod growth;
mod harness;
mod hostile;
mod huge_pages;
mod idle;
mod killed;
mod paths;
mod roles;
mod sealing;
mod withdrawn;
