//! Reads, and a share of updates.

/// What results call workloads by their share.
const NAMES: [&str; 11] = [
    "updates:0",
    "updates:10",
    "updates:20",
    "updates:30",
    "updates:40",
    "updates:50",
    "updates:60",
    "updates:70",
    "updates:80",
    "updates:90",
    "updates:100",
];

/// The share of updates among the operations, in tenths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdateShare(u8);

impl UpdateShare {
    /// So many tenths; `None` if they are more than ten.
    #[must_use]
    pub fn of_tenths(tenths: u8) -> Option<Self> {
        (usize::from(tenths) < NAMES.len()).then_some(Self(tenths))
    }

    /// The share in percent.
    #[must_use]
    pub fn percent(self) -> u8 {
        self.0 * 10
    }

    /// What results call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_share() {
        for tenths in 0..=10 {
            let share = UpdateShare::of_tenths(tenths).expect("a share");
            assert_eq!(share.name(), format!("updates:{}", share.percent()));
        }
        assert_eq!(UpdateShare::of_tenths(11), None);
    }
}
