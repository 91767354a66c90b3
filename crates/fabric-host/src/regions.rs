//! The regions that a host serves, by number.
//!
//! Invariant: numbers begin at one and only grow, so a number names one region for ever. A region is here
//! from its creation until it is withdrawn. A number that is not in the table, and is no greater than the
//! last, was withdrawn.

use std::collections::BTreeMap;
use std::io;

use farsight_base::RegionId;
use farsight_fabric::FabricError;

use crate::os;

/// Regions that a host has at a time. Their numbers go on for ever.
pub const REGIONS_MAX: usize = 8192;

/// All of them.
#[derive(Debug)]
pub struct RegionTable<R> {
    by_id: BTreeMap<RegionId, R>,
    last: u32,
}

impl<R> Default for RegionTable<R> {
    fn default() -> Self {
        Self { by_id: BTreeMap::new(), last: 0 }
    }
}

impl<R> RegionTable<R> {
    /// The number of the region that is created next.
    ///
    /// # Errors
    /// [`FabricError::System`] if there are too many regions, or no numbers left.
    pub fn next_id(&self) -> Result<RegionId, FabricError> {
        self.check_room("creating a region")?;
        self.last.checked_add(1).map(RegionId).ok_or_else(|| {
            let error = io::Error::other("all numbers of regions have been used");
            os::system_error("creating a region", &error, "Start the server again")
        })
    }

    /// Whether a region of another host can be served here under its number there.
    ///
    /// # Errors
    /// [`FabricError::System`] if there are too many regions, or one of that number.
    pub fn check_export(&self, id: RegionId) -> Result<(), FabricError> {
        let what = format!("exporting {id}");
        self.check_room(&what)?;
        if !self.by_id.contains_key(&id) {
            return Ok(());
        }
        let error = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(os::system_error(what, &error, "Let one host create all regions, and export each once"))
    }

    fn check_room(&self, what: &str) -> Result<(), FabricError> {
        if self.by_id.len() < REGIONS_MAX {
            return Ok(());
        }
        let error = io::Error::other(format!("there are {REGIONS_MAX} already"));
        Err(os::system_error(what, &error, "Make fewer, larger regions"))
    }

    /// Takes in a region under a number of [`RegionTable::next_id`] or [`RegionTable::check_export`].
    pub fn insert(&mut self, id: RegionId, region: R) {
        self.by_id.insert(id, region);
        self.last = self.last.max(id.0);
    }

    /// The region of that number.
    #[must_use]
    pub fn get(&self, id: RegionId) -> Option<&R> {
        self.by_id.get(&id)
    }

    /// Forgets the region of that number, for good.
    ///
    /// # Errors
    /// [`FabricError::UnknownRegion`] of the host at `address` if there is none.
    pub fn withdraw(&mut self, id: RegionId, address: impl FnOnce() -> String) -> Result<R, FabricError> {
        let withdrawn = self.by_id.remove(&id);
        withdrawn.ok_or_else(|| FabricError::UnknownRegion { peer: address(), region: id })
    }

    /// True of a number that had a region and has none any more.
    #[must_use]
    pub fn is_withdrawn(&self, id: RegionId) -> bool {
        (1..=self.last).contains(&id.0) && !self.by_id.contains_key(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_one_region_for_ever() {
        let mut table = RegionTable::default();
        for expected in 1..=3 {
            let id = table.next_id().expect("a number");
            assert_eq!(id, RegionId(expected));
            assert!(!table.is_withdrawn(id), "{id} has not been used");
            table.insert(id, expected);
        }
        let last = RegionId(3);
        assert_eq!(table.withdraw(last, String::new).ok(), Some(3));
        assert!(table.is_withdrawn(last) && table.get(last).is_none());
        assert!(!table.is_withdrawn(RegionId(0)) && !table.is_withdrawn(RegionId(4)));
        assert_eq!(table.next_id().ok(), Some(RegionId(4)));
        let unknown = table.withdraw(last, || "here".to_owned()).expect_err("it is gone");
        assert!(
            matches!(unknown, FabricError::UnknownRegion { peer, region } if peer == "here" && region == last)
        );
    }

    #[test]
    fn an_exported_region_keeps_its_number_and_later_ones_get_greater() {
        let mut table = RegionTable::default();
        table.check_export(RegionId(7)).expect("a vacant number");
        table.insert(RegionId(7), ());
        let twice = table.check_export(RegionId(7)).expect_err("it has a region").to_string();
        assert!(twice.contains(&format!("exporting {}", RegionId(7))), "{twice}");
        assert_eq!(table.next_id().ok(), Some(RegionId(8)));
        table.insert(RegionId(u32::MAX), ());
        assert!(table.next_id().expect_err("none is left").to_string().contains("Start the server again"));
    }

    #[test]
    fn a_full_table_refuses_and_one_withdrawal_makes_room() {
        let mut table = RegionTable::default();
        for number in 1..=REGIONS_MAX as u32 {
            table.insert(RegionId(number), ());
        }
        let full = table.next_id().expect_err("it is full").to_string();
        assert!(full.contains("there are 8192 already"), "{full}");
        assert!(table.check_export(RegionId(u32::MAX)).is_err());
        table.withdraw(RegionId(5), String::new).expect("it is there");
        assert!(table.next_id().is_ok());
    }
}
