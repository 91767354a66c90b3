//! Named key sets.
//!
//! Invariant: a [`KeySet`] holds distinct keys in ascending order, and the same dataset, count and seed give
//! the same keys on every machine.
//!
//! Synthetic sets have as many keys as asked. Real sets and files have what they have: asking for fewer draws
//! a sample without replacement (which keeps the shape of the distribution), asking for more is an error. The
//! default, [`Dataset::Boundaries`], is real and comes with the build; others are fetched once into a cache
//! directory ([`fetch`]).

mod boundaries;
mod cell;
mod coordinates;
mod csv_file;
mod error;
mod fetch;
mod file;
mod places;
mod sosd;
mod synthetic;

use std::path::{Path, PathBuf};

pub use csv_file::{CSV_HEADER_NAMES, csv_records};
pub use error::DatasetError;
pub use fetch::{default_cache_directory, fetch};
pub use file::FileOptions;
pub use sosd::{read_sosd, write_sosd};

/// Keys of a synthetic set when no count is asked.
pub const SYNTHETIC_KEYS_DEFAULT: usize = 10_000_000;

/// A source of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dataset {
    /// Consecutive integers.
    Dense,
    /// One key in each of n equal strides, at a random place in its stride.
    NoisedLinear,
    /// Uniform over all 64-bit keys.
    Uniform,
    /// Normal around the middle of the key space.
    Normal,
    /// Log-normal with sigma 2.
    Lognormal,
    /// Dense islands of about a thousand keys, far apart.
    Clustered,
    /// Real, built in: points of time-zone boundaries as interleaved coordinates.
    Boundaries,
    /// Real, fetched: populated places as interleaved coordinates.
    Places,
    /// Real, fetched: distinct longitudes of time-zone boundaries in full detail.
    Longitudes,
    /// Real, fetched: distinct coordinate values, longitudes and latitudes alike, of the same boundaries.
    Coordinates,
    /// Real, fetched: points of the same boundaries as interleaved coordinates.
    OsmCells,
    /// A file of keys: SOSD binary, text (`.txt`) or CSV (`.csv`).
    File(PathBuf),
}

/// Distinct keys in ascending order, with their provenance.
#[derive(Debug, Clone)]
pub struct KeySet {
    /// The keys.
    pub keys: Vec<u64>,
    /// Keys of the source that were dropped because they repeat another.
    pub duplicates_dropped: u64,
}

impl Dataset {
    /// Every named dataset, in the order in which help texts list them.
    pub const NAMED: [Self; 11] = [
        Self::Dense,
        Self::NoisedLinear,
        Self::Uniform,
        Self::Normal,
        Self::Lognormal,
        Self::Clustered,
        Self::Boundaries,
        Self::Places,
        Self::Longitudes,
        Self::Coordinates,
        Self::OsmCells,
    ];

    /// Reads a dataset's name, or takes the text as the path of an existing file.
    ///
    /// # Errors
    /// [`DatasetError::UnknownName`] with all names, when it is neither; [`DatasetError::NoFile`] when
    /// something else is there.
    pub fn parse(text: &str) -> Result<Self, DatasetError> {
        if let Some(named) = Self::NAMED.into_iter().find(|dataset| dataset.name() == text) {
            return Ok(named);
        }
        let path = Path::new(text);
        if path.is_file() {
            return Ok(Self::File(path.to_owned()));
        }
        if path.exists() {
            return Err(DatasetError::NoFile { path: path.to_owned() });
        }
        let names: Vec<_> = Self::NAMED.iter().map(Self::name).collect();
        Err(DatasetError::UnknownName { name: text.to_owned(), names: names.join(", ") })
    }

    /// The name that [`Self::parse`] reads; a file's path.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Dense => "dense".into(),
            Self::NoisedLinear => "noised-linear".into(),
            Self::Uniform => "uniform".into(),
            Self::Normal => "normal".into(),
            Self::Lognormal => "lognormal".into(),
            Self::Clustered => "clustered".into(),
            Self::Boundaries => "boundaries".into(),
            Self::Places => "places".into(),
            Self::Longitudes => "longitudes".into(),
            Self::Coordinates => "coordinates".into(),
            Self::OsmCells => "osm-cells".into(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// One line on what the keys are.
    #[must_use]
    pub fn description(&self) -> &'static str {
        match self {
            Self::Dense => "consecutive integers",
            Self::NoisedLinear => "one key at a random place in each of n equal strides",
            Self::Uniform => "uniform over all 64-bit integers",
            Self::Normal => "normal, mean 2^63, standard deviation 2^60",
            Self::Lognormal => "log-normal, mu 0, sigma 2, in units of 2^-44",
            Self::Clustered => "islands of about 1,000 keys in windows of 2^20, placed uniformly",
            Self::Boundaries => "about 0.5 million simplified time-zone boundary points (built in)",
            Self::Places => "0.2 million populated places (fetched, 35 MB)",
            Self::Longitudes => "3.8 million longitudes of time-zone boundaries (fetched, 51 MB)",
            Self::Coordinates => "7.4 million coordinate values of the same boundaries (fetched, 51 MB)",
            Self::OsmCells => "3.9 million points of the same boundaries, interleaved (fetched, 51 MB)",
            Self::File(_) => "keys of a file",
        }
    }

    /// The credit that the data's licence asks to be shown, if the data are not ours.
    #[must_use]
    pub fn attribution(&self) -> Option<&'static str> {
        match self {
            Self::Boundaries | Self::Longitudes | Self::Coordinates | Self::OsmCells => Some(
                "Boundary data (c) OpenStreetMap contributors, ODbL 1.0, through timezone-boundary-builder",
            ),
            Self::Places => Some("Place data (c) GeoNames, CC BY 4.0"),
            _ => None,
        }
    }

    /// Whether it has as many keys as one asks for.
    #[must_use]
    pub fn is_synthetic(&self) -> bool {
        matches!(
            self,
            Self::Dense
                | Self::NoisedLinear
                | Self::Uniform
                | Self::Normal
                | Self::Lognormal
                | Self::Clustered
        )
    }

    /// Whether [`fetch`] must have run before [`Self::generate`].
    #[must_use]
    pub fn is_fetched(&self) -> bool {
        matches!(self, Self::Places | Self::Longitudes | Self::Coordinates | Self::OsmCells)
    }

    /// Produces `keys` keys; without a count, all keys of a real set or [`SYNTHETIC_KEYS_DEFAULT`] of a
    /// synthetic one. `cache_directory` is where [`fetch`] put the fetched sets.
    ///
    /// # Errors
    /// [`DatasetError`]: more keys asked than the source has or memory holds, a set not fetched, a file that
    /// cannot be read.
    pub fn generate(
        &self,
        keys: Option<usize>,
        seed: u64,
        cache_directory: &Path,
        options: FileOptions,
    ) -> Result<KeySet, DatasetError> {
        let count = keys.unwrap_or(SYNTHETIC_KEYS_DEFAULT);
        if self.is_synthetic() && Vec::<u64>::new().try_reserve_exact(count).is_err() {
            return Err(DatasetError::TooManyKeys { name: self.name(), asked: count });
        }
        let source = match self {
            Self::Dense => return Ok(KeySet::of_distinct(synthetic::dense(count))),
            Self::NoisedLinear => return Ok(KeySet::of_distinct(synthetic::noised_linear(count, seed))),
            Self::Uniform => return Ok(KeySet::of_distinct(synthetic::uniform(count, seed))),
            Self::Normal => return Ok(KeySet::of_distinct(synthetic::normal(count, seed))),
            Self::Lognormal => return Ok(KeySet::of_distinct(synthetic::lognormal(count, seed))),
            Self::Clustered => return Ok(KeySet::of_distinct(synthetic::clustered(count, seed))),
            Self::Boundaries => KeySet::of_unsorted(boundaries::cells()?),
            Self::Places => KeySet::of_unsorted(places::cells(cache_directory)?),
            Self::Longitudes => KeySet::of_unsorted(coordinates::longitudes(cache_directory)?),
            Self::Coordinates => KeySet::of_unsorted(coordinates::values(cache_directory)?),
            Self::OsmCells => KeySet::of_unsorted(coordinates::cells(cache_directory)?),
            Self::File(path) => file::read(path, options)?,
        };
        source.sample(keys, seed, &self.name())
    }
}

impl KeySet {
    fn of_distinct(keys: Vec<u64>) -> Self {
        debug_assert!(keys.is_sorted_by(|a, b| a < b), "a generator returns distinct ascending keys");
        Self { keys, duplicates_dropped: 0 }
    }

    fn of_unsorted(mut keys: Vec<u64>) -> Self {
        keys.sort_unstable();
        Self::of_sorted(keys)
    }

    fn of_sorted(mut keys: Vec<u64>) -> Self {
        let before = keys.len();
        keys.dedup();
        let duplicates_dropped = (before - keys.len()) as u64;
        Self { keys, duplicates_dropped }
    }

    /// `asked` of these keys without replacement, or all of them.
    fn sample(mut self, asked: Option<usize>, seed: u64, name: &str) -> Result<Self, DatasetError> {
        let available = self.keys.len();
        let asked = asked.unwrap_or(available);
        if asked > available {
            return Err(DatasetError::TooFewKeys { name: name.to_owned(), available, asked });
        }
        synthetic::sample_in_order(&mut self.keys, asked, seed);
        Ok(self)
    }
}
