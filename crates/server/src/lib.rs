//! The server: tables, workers, training.
