//! `longitudes`, `coordinates` and `osm-cells`: time-zone boundaries in full detail, from the Python package
//! timezonefinder.
//!
//! `poly_data.bin` holds, polygon by polygon, all longitudes and then all latitudes as little-endian `i32` in
//! units of 10^-7 degrees; `poly_coord_amount.bin` holds each polygon's number of points as a little-endian
//! `i32`.

use std::path::Path;

use super::{
    DatasetError, cell,
    fetch::{self, POLYGON_COORDINATES, POLYGON_POINT_COUNTS},
};

/// Longitudes and latitudes of one polygon, in parallel.
type Polygon<'a> = (&'a [i32], &'a [i32]);

/// Every longitude, as an order-preserving integer.
pub(super) fn longitudes(cache_directory: &Path) -> Result<Vec<u64>, DatasetError> {
    collect(cache_directory, "longitudes", |(longitudes, _), keys| {
        keys.extend(longitudes.iter().map(|&value| u64::from(cell::ordered(value))));
    })
}

/// Every coordinate value, longitude or latitude, as an order-preserving integer.
pub(super) fn values(cache_directory: &Path) -> Result<Vec<u64>, DatasetError> {
    collect(cache_directory, "coordinates", |(longitudes, latitudes), keys| {
        keys.extend(longitudes.iter().chain(latitudes).map(|&value| u64::from(cell::ordered(value))));
    })
}

/// Every point, as an interleaved cell.
pub(super) fn cells(cache_directory: &Path) -> Result<Vec<u64>, DatasetError> {
    collect(cache_directory, "osm-cells", |(longitudes, latitudes), keys| {
        keys.extend(longitudes.iter().zip(latitudes).map(|(&x, &y)| cell::interleaved(x, y)));
    })
}

fn collect(
    cache_directory: &Path,
    dataset: &str,
    mut add: impl FnMut(Polygon<'_>, &mut Vec<u64>),
) -> Result<Vec<u64>, DatasetError> {
    let coordinates = integers(&fetch::cached(&POLYGON_COORDINATES, cache_directory, dataset)?);
    let point_counts = integers(&fetch::cached(&POLYGON_POINT_COUNTS, cache_directory, dataset)?);
    let mut keys = Vec::with_capacity(coordinates.len());
    for polygon in polygons(&coordinates, &point_counts)? {
        add(polygon, &mut keys);
    }
    Ok(keys)
}

fn integers(bytes: &[u8]) -> Vec<i32> {
    bytes.as_chunks::<4>().0.iter().map(|&word| i32::from_le_bytes(word)).collect()
}

/// Cuts the coordinates into polygons; every coordinate must belong to one.
fn polygons<'a>(mut rest: &'a [i32], point_counts: &[i32]) -> Result<Vec<Polygon<'a>>, DatasetError> {
    let undecodable =
        |evidence| DatasetError::Undecodable { what: "the polygons of timezonefinder", evidence };
    let mut polygons = Vec::with_capacity(point_counts.len());
    for (number, &count) in point_counts.iter().enumerate() {
        let cut = usize::try_from(count).ok().and_then(|count| {
            let (longitudes, after) = rest.split_at_checked(count)?;
            let (latitudes, after) = after.split_at_checked(count)?;
            Some((longitudes, latitudes, after))
        });
        let (longitudes, latitudes, after) = cut.ok_or_else(|| {
            undecodable(format!(
                "polygon {number} states {count} points, {} coordinates are left",
                rest.len()
            ))
        })?;
        polygons.push((longitudes, latitudes));
        rest = after;
    }
    if rest.is_empty() {
        Ok(polygons)
    } else {
        Err(undecodable(format!("{} coordinates are left after the last polygon", rest.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polygons_take_every_coordinate() {
        let coordinates = [1, 2, -1, -2, 5, -5];
        let cut = polygons(&coordinates, &[2, 1]).expect("3 points");
        assert_eq!(cut, [(&[1, 2][..], &[-1, -2][..]), (&[5][..], &[-5][..])]);
    }

    #[test]
    fn counts_that_do_not_fit_are_named() {
        for (counts, evidence) in [
            (&[2, 2][..], "polygon 1 states 2 points, 2 coordinates are left"),
            (&[-1][..], "polygon 0 states -1 points"),
            (&[2][..], "2 coordinates are left after the last polygon"),
        ] {
            let error = polygons(&[1, 2, -1, -2, 5, -5], counts).expect_err("does not fit").to_string();
            assert!(error.contains(evidence), "{error}");
        }
    }
}
