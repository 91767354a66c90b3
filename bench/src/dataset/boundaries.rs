//! `boundaries`: the points of simplified time-zone boundaries, carried by the crate `tzf-rel`.
//!
//! The crate holds OpenStreetMap-derived polygons (ODbL) as a Protocol Buffers message of zones, polygons,
//! holes and points in single-precision degrees. A boundary between two zones is stored in both, so about
//! half of the points are distinct.

use prost::Message;

use super::{DatasetError, cell};

// The parts of `tzinfo.proto` (project tzf) that carry coordinates; unknown fields are skipped by the
// decoder.

#[derive(Message)]
struct Timezones {
    #[prost(message, repeated, tag = "1")]
    timezones: Vec<Timezone>,
}

#[derive(Message)]
struct Timezone {
    #[prost(message, repeated, tag = "1")]
    polygons: Vec<Polygon>,
}

#[derive(Message)]
struct Polygon {
    #[prost(message, repeated, tag = "1")]
    points: Vec<Point>,
    #[prost(message, repeated, tag = "2")]
    holes: Vec<Polygon>,
}

#[derive(Message)]
struct Point {
    #[prost(float, tag = "1")]
    longitude: f32,
    #[prost(float, tag = "2")]
    latitude: f32,
}

/// The cells of all points, in no order, with repetitions.
pub(super) fn cells() -> Result<Vec<u64>, DatasetError> {
    let message = tzf_rel::load_reduced();
    let zones = Timezones::decode(message.as_slice()).map_err(|error| DatasetError::Undecodable {
        what: "the boundary message of crate tzf-rel",
        evidence: error.to_string(),
    })?;
    let mut cells = Vec::new();
    for polygon in zones.timezones.iter().flat_map(|zone| &zone.polygons) {
        for ring in std::iter::once(polygon).chain(&polygon.holes) {
            cells.extend(ring.points.iter().map(|point| {
                let [longitude, latitude] =
                    [point.longitude, point.latitude].map(|degrees| cell::from_degrees(f64::from(degrees)));
                cell::interleaved(longitude, latitude)
            }));
        }
    }
    Ok(cells)
}
