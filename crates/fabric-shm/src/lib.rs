//! The fabric over shared memory between the processes of one host.
