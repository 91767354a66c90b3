//! The client: connections, shared caches, sessions.
