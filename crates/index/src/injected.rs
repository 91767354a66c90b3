//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A conditional write stores, or removes, whatever version it finds.
    VERSION_NOT_COMPARED = "VersionNotCompared";
}
