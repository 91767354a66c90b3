//! What the engines share: slabs, answers, bounds of retry.
