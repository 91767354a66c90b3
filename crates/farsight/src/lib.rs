//! Farsight: an ordered key-value store whose clients read the data where it lies.
