//! What a provider promises beyond the contract. A protocol states which of these it needs; an engine chooses
//! by
//! [`CostClass`] between one large READ and two small ones.

/// The piece of memory that a READ or WRITE moves without tearing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicUnit {
    /// Aligned eight-byte words; a line may tear between them.
    Word,
    /// Aligned 64 B lines.
    Line,
}

/// What a round trip costs against what bytes cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CostClass {
    /// A round trip costs about a cache miss: read few bytes, in as many steps as it takes.
    Memory,
    /// A round trip costs microseconds, bytes little: one READ a step, small.
    Nic,
    /// A round trip costs tens of microseconds of both processors: one round trip, whatever its size.
    Socket,
}

/// One provider's promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent promises, each with a name")]
pub struct Guarantees {
    /// The provider's name, as in URLs.
    pub name: &'static str,
    /// What a READ or WRITE moves whole, before any check of stamps.
    pub atomic_unit: AtomicUnit,
    /// The lines of one READ are taken in ascending order.
    pub read_lines_in_order: bool,
    /// Two WRITEs of one queue pair become visible in posting order.
    pub writes_in_order: bool,
    /// An atomic posted after a WRITE in one batch executes after it, and not if that WRITE was refused.
    pub atomic_after_write: bool,
    /// A READ posted after a `compare_swap` in one batch executes after it.
    pub read_after_atomic: bool,
    /// A WRITE posted after a READ in one batch cannot change what that READ returns.
    pub write_after_read: bool,
    /// A READ executes before it is complete; else as late as when it is taken.
    pub read_before_completion: bool,
    /// `compare_swap` is atomic against the server processor's own atomics.
    pub atomics_coherent_with_cpu: bool,
    /// READs complete while the target process is stopped.
    pub one_sided: bool,
    /// A region can be given to clients that cannot write it, whatever they do.
    pub read_only_regions: bool,
    /// One client's access can be taken away while others keep theirs.
    pub revocable: bool,
    /// Notices come while nothing is under way; else with the answers to a batch.
    pub tells_unasked: bool,
    /// A connection may be lost while both processes live, and what was sent may still arrive then.
    pub connections_break: bool,
    /// What a round trip costs.
    pub cost_class: CostClass,
}
