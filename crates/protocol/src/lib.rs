//! Requests, replies, catalogue and error codes.
