//! Stamps that memory has lost a bit of.
//!
//! Invariant: while nobody holds the latch all lines of a leaf are even and of one incarnation, and those of
//! a value of one version. A latch holder that sees anything else before it has written has found damage. No
//! writer leaves a leaf so, and one that dies in the middle takes the memory with it.

use farsight_base::Stamp;
use farsight_base::words::{end_write, next_incarnation};

use super::LeafWriter;
use crate::LeafSlot;

impl LeafWriter<'_> {
    /// True if a stamp is not as the last holder of the latch left it, as far as stamps show that.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        let first = self.stamp(0);
        let differs = |stamp: Stamp| stamp.is_changing() || stamp.incarnation() != first.incarnation();
        let values_differ = || {
            let lines = self.geometry.lines_per_value();
            LeafSlot::all().any(|slot| {
                let place = self.geometry.value_place(slot).line;
                (place..place + lines).any(|line| self.stamp(line).version() != self.stamp(place).version())
            })
        };
        (0..self.geometry.leaf_lines()).any(|line| differs(self.stamp(line))) || values_differ()
    }

    /// Gives all lines one version, newer than that of any, and one incarnation, the one behind that of most.
    /// What they hold stays.
    pub fn scrub(&mut self) {
        let stamps = || (0..self.geometry.leaf_lines()).map(|line| self.stamp(line));
        let votes = |own: &u32| stamps().filter(|stamp| stamp.incarnation() == *own).count();
        let most = stamps().map(Stamp::incarnation).max_by_key(votes).unwrap_or_default();
        let newest = stamps().map(Stamp::version).max().unwrap_or_default();
        self.begin_lines();
        for index in 0..self.geometry.leaf_lines() {
            let occupancy = self.stamp(index).occupancy();
            end_write(self.line(index), Stamp::new(newest, next_incarnation(most), occupancy));
        }
    }
}
