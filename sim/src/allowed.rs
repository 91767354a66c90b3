//! Which failures a scenario's faults may cause, and what a client makes of them.
//!
//! A lost connection is always the fabric's right. Everything else is an error that some rule has to explain:
//! one that none does is a finding.

use farsight_client::{CatalogueError, EngineError, OpenError, PoolError, ReadError, WriteError};
use farsight_fabric::FabricError;
use farsight_fabric_sim::{Fault, Rule};
use farsight_index_flexkv::FlexError;
use farsight_index_rolex::{LearnedError, LinesError, RolexError, TrainError};
use farsight_index_xstore::client::XStoreError;
use farsight_protocol::{ErrorCode, ServerError};

/// What a failure means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    /// The faults at work explain it: try again.
    Explained,
    /// The peers took this program for dead: only another connection is let in.
    Fenced,
    /// Nothing explains it.
    Wrong,
}

/// The failures that may happen.
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own, and any may be true")]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Allowed {
    /// Somebody stops for longer than a client waits, or a clock says so.
    timeouts: bool,
    /// Frames arrive that are none.
    broken_frames: bool,
    /// Servers die, and their tables with them.
    other_lives: bool,
    /// Tables are dropped and renamed.
    names: bool,
    /// A node that was lost comes back empty, and is taken in.
    repairs: bool,
    /// Tables are on disks, which fail, or are full, or slow.
    disks: bool,
    /// A program of a pool may stop or die under a lock, or seem to: its verbs come late, its queues break.
    fences: bool,
}

fn explained_if(is_explained: bool) -> Meaning {
    if is_explained { Meaning::Explained } else { Meaning::Wrong }
}

impl Allowed {
    /// What `rules` explain; of ROLEX, where programs wait for each other's locks, and may take each other
    /// for dead.
    pub(crate) fn by(rules: &[Rule], is_rolex: bool, names: bool) -> Self {
        let any = |faults: &[Fault]| rules.iter().any(|rule| faults.contains(&rule.fault));
        Self {
            timeouts: any(&[Fault::PausedServer, Fault::FrozenServer, Fault::LeapingClock])
                || is_rolex && any(&[Fault::PausedClient]),
            broken_frames: any(&[Fault::TruncatedRequest, Fault::TruncatedReply]),
            other_lives: any(&[Fault::CrashedServer, Fault::FrozenServer]),
            names,
            repairs: false,
            disks: false,
            fences: is_rolex && !rules.is_empty(),
        }
    }

    /// The same where tables are on disks.
    pub(crate) fn with_disks(self) -> Self {
        Self { disks: true, timeouts: true, ..self }
    }

    /// Whether the next server has the tables of the one before. Then a full disk may refuse a write.
    pub(crate) fn keeps_tables(self) -> bool {
        self.disks
    }

    /// The same where pairs have replicas: a pool goes on without a node that one of its programs does not
    /// reach, and ends the connections of all.
    pub(crate) fn with_losses(self, repairs: bool) -> Self {
        Self { fences: true, timeouts: true, repairs, ..self }
    }

    pub(crate) fn fabric(self, error: &FabricError) -> Meaning {
        match error {
            FabricError::Disconnected { .. } => Meaning::Explained,
            FabricError::TimedOut { .. } => explained_if(self.timeouts),
            FabricError::RegionWithdrawn { .. } | FabricError::UnknownRegion { .. } => {
                explained_if(self.names)
            }
            FabricError::Dismissed { .. } if self.fences => Meaning::Fenced,
            _ => Meaning::Wrong,
        }
    }

    pub(crate) fn engine(self, error: &EngineError) -> Meaning {
        match error {
            EngineError::Fabric(error) => self.fabric(error),
            EngineError::Engine(_) | EngineError::Indeterminate(_) => {
                match (error.of(), error.of(), error.of()) {
                    (Some(error), _, _) => self.xstore(error),
                    (_, Some(error), _) => self.rolex(error),
                    (_, _, Some(error)) => self.flexkv(error),
                    _ => Meaning::Wrong,
                }
            }
        }
    }

    /// A leaf that stayed busy for longer than a write waits.
    pub(crate) fn contention(self) -> Meaning {
        explained_if(self.timeouts)
    }

    fn rolex(self, error: &RolexError) -> Meaning {
        match error {
            RolexError::Fabric(error)
            | RolexError::Indeterminate { source: error, .. }
            | RolexError::Learned(LearnedError::Fabric(error)) => self.fabric(error),
            RolexError::Contended { .. } => self.contention(),
            RolexError::Call { source, .. } => {
                let known = source.downcast_ref::<CatalogueError>();
                known.map_or(Meaning::Wrong, |error| self.catalogue(error))
            }
            RolexError::Learned(_) | RolexError::Astray { .. } => Meaning::Wrong,
        }
    }

    fn flexkv(self, error: &FlexError) -> Meaning {
        match error.failed_in() {
            FlexError::Fabric(error) | FlexError::Indeterminate { source: error, .. } => self.fabric(error),
            FlexError::Contended { .. } => self.contention(),
            FlexError::Call { source } => {
                let known = source.downcast_ref::<CatalogueError>();
                known.map_or(Meaning::Wrong, |error| self.catalogue(error))
            }
            _ => Meaning::Wrong,
        }
    }

    fn xstore(self, error: &XStoreError) -> Meaning {
        match error {
            XStoreError::Fabric(error) => self.fabric(error),
            XStoreError::Decode(_) => explained_if(self.broken_frames),
            XStoreError::Server(error) => explained_if(
                self.broken_frames && error.code == ErrorCode::BadRequest
                    || self.names && error.code == ErrorCode::UnknownTable
                    || self.disks && error.code == ErrorCode::OutOfResources,
            ),
            _ => Meaning::Wrong,
        }
    }

    fn refusal(self, error: &ServerError) -> Meaning {
        match error.code {
            ErrorCode::UnknownTable => explained_if(self.other_lives || self.names),
            ErrorCode::OtherPool => explained_if(self.other_lives),
            // A change of names whose answer was lost is done again.
            ErrorCode::TableExists => explained_if(self.names),
            ErrorCode::BadRequest => explained_if(self.broken_frames),
            ErrorCode::OutOfResources => explained_if(self.disks),
            ErrorCode::Fenced if self.fences => Meaning::Fenced,
            ErrorCode::TakingIn => explained_if(self.repairs),
            _ => Meaning::Wrong,
        }
    }

    pub(crate) fn catalogue(self, error: &CatalogueError) -> Meaning {
        match error {
            CatalogueError::Fabric(error) => self.fabric(error),
            CatalogueError::Engine { source, .. } => self.engine(source),
            CatalogueError::Decode { .. } => explained_if(self.broken_frames),
            CatalogueError::Refused { source, .. } => self.refusal(source),
            CatalogueError::Pool(PoolError::NodeRestarted { .. } | PoolError::OtherList { .. }) => {
                explained_if(self.other_lives || self.repairs)
            }
            // It came back, and the pool has not gone on without it yet, or with it.
            CatalogueError::Pool(PoolError::NotOfPool { .. }) => explained_if(self.repairs),
            CatalogueError::FormatVersion { .. }
            | CatalogueError::Unfit { .. }
            | CatalogueError::UnknownEngine { .. }
            | CatalogueError::Pool(_) => Meaning::Wrong,
        }
    }

    /// Whether a table may be found dropped.
    pub(crate) fn opening_of_dropped(self) -> bool {
        self.names
    }

    pub(crate) fn opening(self, error: &OpenError) -> Meaning {
        match error {
            OpenError::Catalogue(error) => self.catalogue(error),
            OpenError::TableGone { was, is, .. } if was == is => explained_if(self.names),
            OpenError::TableGone { .. } => explained_if(self.other_lives),
            OpenError::OtherDefinition { .. } => Meaning::Wrong,
        }
    }

    pub(crate) fn read(self, error: &ReadError) -> Meaning {
        match error {
            ReadError::Engine { source, .. } => self.engine(source),
            ReadError::Reopen { source, .. } => self.opening(source),
            ReadError::WrongBufferSize { .. } | ReadError::ScanCut { .. } | ReadError::ScanMoved { .. } => {
                Meaning::Wrong
            }
        }
    }

    /// Of a write that was not executed.
    pub(crate) fn unsent(self, error: &WriteError) -> Meaning {
        match error {
            WriteError::Engine { source, .. } => self.engine(source),
            WriteError::Reopen { source, .. } => self.opening(source),
            _ => Meaning::Wrong,
        }
    }

    /// Of a step of training.
    pub(crate) fn training(self, error: &TrainError<LinesError>) -> Meaning {
        match error {
            TrainError::Learned(LearnedError::Fabric(error))
            | TrainError::Lines(LinesError::Fabric(error)) => self.fabric(error),
            TrainError::Lines(LinesError::Refused(error)) => self.refusal(error),
            TrainError::Lines(LinesError::Decode(_)) => explained_if(self.broken_frames),
            // Images are replaced by others, and a leaf whose writer stopped does not come to rest for a
            // while.
            TrainError::Learned(LearnedError::Stale(_))
            | TrainError::Session(
                RolexError::Learned(LearnedError::Stale(_)) | RolexError::Contended { .. },
            ) => explained_if(self.fences),
            // Without lines a step goes on, and counts that.
            TrainError::Learned(LearnedError::Unsettled { .. }) | TrainError::Full { .. } => Meaning::Wrong,
            TrainError::Session(error) => self.rolex(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_absorbed_write_is_explained_as_the_write_that_failed() {
        let source = ServerError::new(ErrorCode::UnknownTable, "no table has number 0");
        let call = FlexError::Call {
            source: Box::new(CatalogueError::Refused { peer: "sim://a".to_owned(), source }),
        };
        let absorbed = EngineError::Engine(Arc::new(FlexError::Absorbed(Arc::new(call))));
        let of_names = Allowed { names: true, ..Allowed::default() };
        assert_eq!(of_names.engine(&absorbed), Meaning::Explained);
        assert_eq!(Allowed::default().engine(&absorbed), Meaning::Wrong);
    }
}
