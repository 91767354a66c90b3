//! What learned caches are compared with.
//!
//! One baseline so far, the *cached static tree*. Its client holds the leaves' fences in a search tree
//! instead of a model and a translation table, and READs the same leaves by the same verbs. So whatever
//! differs between the two is what the models are worth. The tree is exact, prefetched level by level over a
//! batch and searched by vector compares: the strongest rival known to us. It is static: what splits after
//! [`TreeClient::fetch`] is found by siblings, and nothing brings the tree up to date but a new fetch.
//!
//! Invariant: answers are proved by the lines READ, as in XStore (docs/protocol/xstore.md); the tree only
//! says where to look first.

#![forbid(unsafe_code)]

mod client;
mod error;
mod static_tree;

pub use client::{BATCH, READS_MAX, TreeClient};
pub use error::BaselineError;
pub use static_tree::StaticTree;
