//! One suite over every fabric, one over every engine.
