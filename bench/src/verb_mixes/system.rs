//! The compared systems, and what each posts for an operation.
//!
//! Invariant: the verbs are those of the systems' papers and published programs, each with three replicas.
//! All systems have objects of the same size and the same memory for their caches, and verbs of one stage
//! share doorbells.
//!
//! *FlexKV, proxied.* SEARCH: nothing for a cached value; a READ by a cached address; else a call and a READ.
//! UPDATE: WRITEs of the object, a call; the proxy WRITEs the slot, marks the old object, calls the sharers.
//!
//! *One-sided.* SEARCH: a READ by a cached address; else READs of two buckets, and a READ. UPDATE: WRITEs of
//! the object beside READs of slot or buckets, a CAS, WRITEs of the other replicas of the slot.
//!
//! *FUSEE.* SEARCH: the object beside two buckets. UPDATE: WRITEs of the object beside these READs, CASes of
//! the backups, WRITEs of the log, a CAS of the primary.
//!
//! *Aceso.* SEARCH: the object beside its slot; else READs of two buckets, and a READ. UPDATE: these READs,
//! WRITEs of the object and two deltas, a CAS.
//!
//! *Clover.* SEARCH: a READ for each newer version, or a call of the metadata server. UPDATE: WRITEs of the
//! object beside a CAS, WRITEs of the links twice, a call.
//!
//! *FlexKV-OP.* A call of the owner, which has the value cached or READs it, or WRITEs object and slot.

mod flexkv;
mod rivals;

use std::str::FromStr;

use farsight_fabric_sim::EnginePrices;

use super::program::{Call, Machine, Stage, Verb};

/// Two combined buckets of 128 B: what a key's slot is among.
const BUCKET_BYTES: u64 = 128;
/// A slot as Aceso has it.
const SLOT_BYTES: u64 = 16;
/// A slot of 8 B.
const WORD_BYTES: u64 = 8;
/// An entry of FUSEE's log: the value before, and its checksum.
const LOG_BYTES: u64 = 16;
/// A call about a slot, and its answer, with the headers of a datagram.
const REQUEST_BYTES: u64 = 96;
const REPLY_BYTES: u64 = 72;
/// Links that Clover follows to the newest version before it calls the metadata server.
const HOPS_MAX: u32 = 7;
/// Updates that share one call of Clover for memory.
const SPACE_BATCH: u32 = 16;

/// A system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// FlexKV with the best of the compared parts of its index offloaded.
    FlexKv,
    /// FlexKV with nothing offloaded: no proxies.
    OneSided,
    /// FUSEE (FAST 2023).
    Fusee,
    /// Aceso (SOSP 2024).
    Aceso,
    /// Clover (USENIX ATC 2020).
    Clover,
    /// FlexKV whose compute nodes own keys, so that each request goes to its key's owner.
    FlexKvOp,
}

impl System {
    /// Every system, in the order of tables.
    pub const ALL: [Self; 6] =
        [Self::FlexKv, Self::OneSided, Self::Fusee, Self::Aceso, Self::Clover, Self::FlexKvOp];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FlexKv => "flexkv",
            Self::OneSided => "one-sided",
            Self::Fusee => "fusee",
            Self::Aceso => "aceso",
            Self::Clover => "clover",
            Self::FlexKvOp => "flexkv-op",
        }
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|system| system.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no system {text:?}: expected one of {names}")
        })
    }
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Search,
    Update,
    Insert,
}

/// What the issuing compute node's cache has of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cached {
    Nothing,
    /// An address which `newer` writes of other compute nodes have replaced.
    Address {
        newer: u32,
    },
    /// The value, which proxies keep coherent.
    Value,
}

/// An operation's circumstances, all of them drawn.
#[derive(Clone, Debug)]
pub(super) struct Circumstances<'a> {
    pub(super) kind: Kind,
    pub(super) cached: Cached,
    /// The memory nodes of the key's replicas, the primary first.
    pub(super) replicas: &'a [Machine],
    pub(super) lock: usize,
    pub(super) partition: usize,
    /// The compute node that owns the key, or is the partition's proxy.
    pub(super) owner: Option<Machine>,
    /// The owner has the value in its cache (FlexKV-OP).
    pub(super) is_value_at_owner: bool,
    /// Other compute nodes that have the value in their caches.
    pub(super) sharers: &'a [Machine],
    pub(super) metadata_server: Machine,
    /// A number that differs from operation to operation.
    pub(super) number: u32,
}

/// What is common to all operations of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) prices: EnginePrices,
    pub(super) object_bytes: u64,
    pub(super) client_threads: usize,
    pub(super) called_threads: usize,
    pub(super) metadata_threads: usize,
}

impl Costs {
    fn search_ps(&self) -> u64 {
        self.prices.thread_get_ps
    }

    fn write_ps(&self) -> u64 {
        self.prices.thread_get_ps + self.prices.thread_write_entry_ps
    }

    /// A client's first stage.
    fn begin(&self, kind: Kind) -> Stage {
        Stage::new(if kind == Kind::Search { self.search_ps() } else { self.write_ps() })
    }

    /// The proxy thread of a partition: one thread owns each.
    fn proxy_thread(&self, partition: usize) -> usize {
        self.client_threads + partition % self.called_threads
    }

    fn proxy_call(&self, partition: usize, work_ps: u64, stages: Vec<Stage>) -> Verb {
        Verb::Call(Call {
            thread: self.proxy_thread(partition),
            request_bytes: REQUEST_BYTES,
            reply_bytes: REPLY_BYTES,
            work_ps,
            stages,
        })
    }

    fn metadata_call(&self, number: u32) -> Verb {
        Verb::Call(Call {
            thread: number as usize % self.metadata_threads,
            request_bytes: REQUEST_BYTES,
            reply_bytes: REPLY_BYTES,
            work_ps: self.prices.core_pair_ps,
            stages: Vec::new(),
        })
    }
}

/// READs of a key's two combined buckets.
fn read_buckets(stage: Stage, primary: Machine) -> Stage {
    stage.read(primary, BUCKET_BYTES).read(primary, BUCKET_BYTES)
}

/// The stages of an operation of `system`.
pub(super) fn program(system: System, costs: &Costs, at: &Circumstances<'_>) -> Vec<Stage> {
    match system {
        System::FlexKv | System::OneSided => match at.owner {
            Some(owner) => flexkv::proxied(costs, at, owner),
            None => flexkv::one_sided(costs, at),
        },
        System::FlexKvOp => flexkv::owned(costs, at),
        System::Fusee => rivals::fusee(costs, at),
        System::Aceso => rivals::aceso(costs, at),
        System::Clover => rivals::clover(costs, at),
    }
}

#[cfg(test)]
mod tests {
    use farsight_fabric_sim::Profile;

    use super::*;
    use crate::verb_mixes::program::round_trips;

    const ALL_CACHED: [Cached; 3] = [Cached::Nothing, Cached::Address { newer: 0 }, Cached::Value];

    fn costs() -> Costs {
        let prices = Profile::load("cx3").expect("an own profile").engine_prices();
        Costs { prices, object_bytes: 192, client_threads: 2, called_threads: 2, metadata_threads: 2 }
    }

    fn at(kind: Kind, cached: Cached, owner: Option<Machine>) -> Circumstances<'static> {
        Circumstances {
            kind,
            cached,
            replicas: &[20, 21, 22],
            lock: 0,
            partition: 5,
            owner,
            is_value_at_owner: false,
            sharers: &[],
            metadata_server: 23,
            number: 1,
        }
    }

    fn trips(system: System, kind: Kind, cached: Cached, owner: Option<Machine>) -> usize {
        round_trips(&program(system, &costs(), &at(kind, cached, owner)))
    }

    #[test]
    fn round_trips_are_those_of_the_papers() {
        let [nothing, address, value] = ALL_CACHED;
        for (system, owner, kind, cached, expected) in [
            (System::FlexKv, Some(1), Kind::Search, value, 0),
            (System::FlexKv, Some(1), Kind::Search, address, 1),
            (System::FlexKv, Some(1), Kind::Search, nothing, 2),
            (System::FlexKv, Some(1), Kind::Update, address, 3),
            (System::FlexKv, Some(1), Kind::Update, nothing, 4),
            (System::OneSided, None, Kind::Search, address, 1),
            (System::OneSided, None, Kind::Search, nothing, 2),
            (System::Fusee, None, Kind::Search, address, 1),
            (System::Fusee, None, Kind::Search, nothing, 2),
            (System::Fusee, None, Kind::Update, address, 4),
            (System::Fusee, None, Kind::Update, nothing, 5),
            (System::Fusee, None, Kind::Insert, nothing, 4),
            (System::Aceso, None, Kind::Search, address, 1),
            (System::Aceso, None, Kind::Search, Cached::Address { newer: 1 }, 2),
            (System::Aceso, None, Kind::Update, address, 3),
            (System::Aceso, None, Kind::Update, nothing, 4),
            (System::Aceso, None, Kind::Insert, nothing, 3),
            (System::Clover, None, Kind::Search, address, 1),
            (System::Clover, None, Kind::Search, Cached::Address { newer: 2 }, 3),
            (System::Clover, None, Kind::Search, Cached::Address { newer: 9 }, 9),
            (System::Clover, None, Kind::Search, nothing, 2),
            (System::Clover, None, Kind::Update, address, 3),
            (System::FlexKvOp, Some(1), Kind::Search, nothing, 2),
            (System::FlexKvOp, Some(1), Kind::Update, nothing, 3),
        ] {
            let got = trips(system, kind, cached, owner);
            assert_eq!(got, expected, "{} {kind:?} {cached:?}", system.name());
        }
    }

    #[test]
    fn a_proxied_update_writes_seven_times_and_never_swaps() {
        fn count(stages: &[Stage], counts: &mut [usize; 3]) {
            for posted in stages.iter().flat_map(|stage| &stage.verbs) {
                match &posted.verb {
                    Verb::Write { .. } => counts[0] += 1,
                    Verb::Swap { .. } => counts[1] += 1,
                    Verb::Call(call) => {
                        counts[2] += 1;
                        count(&call.stages, counts);
                    }
                    Verb::Read { .. } => {}
                }
            }
        }
        let address = Cached::Address { newer: 0 };
        let mut counts = [0; 3];
        let sharers = Circumstances { sharers: &[2, 3], ..at(Kind::Update, address, Some(1)) };
        count(&program(System::FlexKv, &costs(), &sharers), &mut counts);
        assert_eq!(counts, [7, 0, 3], "WRITEs, CASes, calls");
        counts = [0; 3];
        count(&program(System::Fusee, &costs(), &at(Kind::Update, address, None)), &mut counts);
        assert_eq!(counts, [7, 3, 0]);
        counts = [0; 3];
        count(&program(System::Aceso, &costs(), &at(Kind::Update, address, None)), &mut counts);
        assert_eq!(counts, [3, 1, 0]);
    }
}
