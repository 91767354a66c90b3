//! Remote bytes and their checked views.
