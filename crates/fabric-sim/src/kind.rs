//! What kind of network card the simulated nodes have: the promises, as types.
//!
//! A queue pair's guarantees are constants of its type, so a kind is one too. A kind promises what its card
//! is known to keep; the simulator then keeps exactly that and breaks everything else whenever it can.

use std::fmt::Debug;

use farsight_fabric::{AtomicUnit, CostClass, Guarantees};

/// A kind of card.
pub trait Kind: Debug + Send + Sync + 'static {
    /// What it promises.
    const GUARANTEES: Guarantees;
}

/// The least that the verb contract allows: words, no order at all.
#[derive(Debug)]
pub enum Weakest {}

impl Kind for Weakest {
    const GUARANTEES: Guarantees = Guarantees {
        name: "sim",
        atomic_unit: AtomicUnit::Word,
        read_lines_in_order: false,
        writes_in_order: false,
        atomic_after_write: false,
        read_after_atomic: false,
        write_after_read: false,
        read_before_completion: false,
        atomics_coherent_with_cpu: false,
        one_sided: true,
        read_only_regions: true,
        revocable: true,
        tells_unasked: true,
        connections_break: true,
        cost_class: CostClass::Nic,
    };
}

/// As little as a memory pool gets by with: words, but WRITEs in order and READs behind atomics.
#[derive(Debug)]
pub enum Ordered {}

impl Kind for Ordered {
    const GUARANTEES: Guarantees = Guarantees {
        name: "sim-ordered",
        writes_in_order: true,
        read_after_atomic: true,
        ..Weakest::GUARANTEES
    };
}

/// A reliable connection of an InfiniBand card. Lines arrive whole, WRITEs in order and atomics behind them,
/// and a READ sees the atomics before it. A WRITE may overtake a READ unless fenced, and atomics hold against
/// other verbs only.
#[derive(Debug)]
pub enum ReliableConnection {}

impl Kind for ReliableConnection {
    const GUARANTEES: Guarantees = Guarantees {
        name: "sim-rc",
        atomic_unit: AtomicUnit::Line,
        writes_in_order: true,
        atomic_after_write: true,
        read_after_atomic: true,
        read_before_completion: true,
        ..Weakest::GUARANTEES
    };
}
