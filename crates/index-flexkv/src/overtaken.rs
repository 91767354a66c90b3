//! Writes that another write overtook: they are done.
//!
//! Invariant: an update that is done here took effect right before another write of its key, which took
//! effect while it was under way. Nobody can have seen the value between the two.
//!
//! Protocol: a writer that lost its swap looks at its key again. Two of its looks may show the key under
//! different versions. Then the later version's write took effect between them. If that one replaced a value
//! without having looked at it ([`PairVersion`]), the key was present, and an update that does not look
//! either may have come right before it. It leaves nothing behind, and its object is used again.

use farsight_index::PairVersion;
use farsight_protocol::WriteOutcome;

#[cfg(injected)]
use crate::injected;
use crate::look::Looked;
use crate::write::{Write, replaces_any_value};

/// The version under which a write has seen its key.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Watch(Option<u64>);

impl Watch {
    /// Looks at what was found since the write began. The write's outcome, if another has overtaken it.
    pub(crate) fn look(&mut self, write: &Write<'_>, looked: Looked) -> Option<WriteOutcome> {
        // The versions of writes that this one stands for are below its own: there is one alone.
        if !replaces_any_value(write.operation) || write.absorbed > 0 {
            return None;
        }
        let Looked::Present { version, .. } = looked else { return None };
        let before = self.0.replace(version)?;
        #[cfg(injected)]
        if injected::OVERTAKEN_BY_LOOKER.is_injected() && version > before {
            return Some(WriteOutcome::Replaced(version - 1));
        }
        let overtaken = PairVersion(version).overtaken()?;
        (overtaken > before).then_some(WriteOutcome::Replaced(overtaken))
    }
}
