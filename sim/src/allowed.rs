//! Which failures a scenario's faults may cause, and what a client makes of them.
//!
//! A lost connection is always the fabric's right. Everything else is an error that some rule has to explain:
//! one that none does is a finding.

use farsight_client::{CatalogueError, EngineError, OpenError, ReadError, WriteError};
use farsight_fabric::FabricError;
use farsight_fabric_sim::{Fault, Rule};
use farsight_index_xstore::client::XStoreError;
use farsight_protocol::ErrorCode;

/// The failures that may happen.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Allowed {
    /// Somebody stops for longer than a client waits, or a clock says so.
    timeouts: bool,
    /// Frames arrive that are none.
    broken_frames: bool,
    /// Servers die, and their tables with them.
    other_lives: bool,
}

impl Allowed {
    /// What `rules` explain.
    pub(crate) fn by(rules: &[Rule]) -> Self {
        let any = |faults: &[Fault]| rules.iter().any(|rule| faults.contains(&rule.fault));
        Self {
            timeouts: any(&[Fault::PausedServer, Fault::FrozenServer, Fault::LeapingClock]),
            broken_frames: any(&[Fault::TruncatedRequest, Fault::TruncatedReply]),
            other_lives: any(&[Fault::CrashedServer, Fault::FrozenServer]),
        }
    }

    pub(crate) fn fabric(self, error: &FabricError) -> bool {
        match error {
            FabricError::Disconnected { .. } => true,
            FabricError::TimedOut { .. } => self.timeouts,
            _ => false,
        }
    }

    fn engine(self, error: &EngineError) -> bool {
        match error {
            EngineError::Fabric(error) => self.fabric(error),
            EngineError::XStore(error) => self.xstore(error),
            _ => false,
        }
    }

    fn xstore(self, error: &XStoreError) -> bool {
        match error {
            XStoreError::Fabric(error) => self.fabric(error),
            XStoreError::Decode(_) => self.broken_frames,
            XStoreError::Server(error) => self.broken_frames && error.code == ErrorCode::BadRequest,
            _ => false,
        }
    }

    pub(crate) fn catalogue(self, error: &CatalogueError) -> bool {
        match error {
            CatalogueError::Fabric(error) => self.fabric(error),
            CatalogueError::Engine { source, .. } => self.xstore(source),
            CatalogueError::Decode { .. } => self.broken_frames,
            CatalogueError::Refused { source, .. } => match source.code {
                ErrorCode::UnknownTable => self.other_lives,
                ErrorCode::BadRequest => self.broken_frames,
                _ => false,
            },
            CatalogueError::FormatVersion { .. }
            | CatalogueError::ValueSize { .. }
            | CatalogueError::Pool(_) => false,
        }
    }

    pub(crate) fn opening(self, error: &OpenError) -> bool {
        match error {
            OpenError::Catalogue(error) => self.catalogue(error),
            OpenError::TableGone { .. } => self.other_lives,
            OpenError::OtherDefinition { .. } => false,
        }
    }

    pub(crate) fn read(self, error: &ReadError) -> bool {
        match error {
            ReadError::Engine { source, .. } => self.engine(source),
            ReadError::Reopen { source, .. } => self.opening(source),
            ReadError::WrongBufferSize { .. } | ReadError::ScanCut { .. } => false,
        }
    }

    /// Of a write that was not executed.
    pub(crate) fn unsent(self, error: &WriteError) -> bool {
        match error {
            WriteError::Engine { source, .. } => self.engine(source),
            WriteError::Reopen { source, .. } => self.opening(source),
            _ => false,
        }
    }
}
