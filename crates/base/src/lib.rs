//! Shared words, stamped lines, addresses, clock, random numbers.
