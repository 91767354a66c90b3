//! Keys to half-open ranges of leaves, with a promise.
