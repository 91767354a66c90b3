//! Coordinates as keys: a longitude as an order-preserving integer, a point as an interleaved (Morton) cell.
//!
//! Coordinates are integers in units of 10^-7 degrees, OpenStreetMap's own resolution. Adding 2^31 maps an
//! `i32` to a `u32` of the same order. A cell interleaves the bits of both, longitude in the odd (higher)
//! places. So points near each other tend to have near keys.

/// Units of a degree.
const UNITS_PER_DEGREE: f64 = 1e7;

/// A coordinate in degrees as an integer of 10^-7 degrees.
pub(super) fn from_degrees(degrees: f64) -> i32 {
    (degrees * UNITS_PER_DEGREE).round() as i32
}

/// The order-preserving unsigned form of a coordinate.
pub(super) fn ordered(coordinate: i32) -> u32 {
    (coordinate as u32) ^ (1 << 31)
}

/// The cell of a point.
pub(super) fn interleaved(longitude: i32, latitude: i32) -> u64 {
    (spread(ordered(longitude)) << 1) | spread(ordered(latitude))
}

/// Moves bit i to bit 2i.
fn spread(value: u32) -> u64 {
    let mut bits = u64::from(value);
    bits = (bits | (bits << 16)) & 0x0000_ffff_0000_ffff;
    bits = (bits | (bits << 8)) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | (bits << 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | (bits << 2)) & 0x3333_3333_3333_3333;
    (bits | (bits << 1)) & 0x5555_5555_5555_5555
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_preserved() {
        let coordinates = [i32::MIN, -1_800_000_000, -1, 0, 1, 1_800_000_000, i32::MAX];
        let keys = coordinates.map(ordered);
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert_eq!((keys[0], keys[6]), (0, u32::MAX));
    }

    #[test]
    fn cells_interleave_bit_by_bit() {
        for (longitude, latitude) in [(0, 0), (-1, 1), (123_456_789, -987_654_321), (i32::MIN, i32::MAX)] {
            let cell = interleaved(longitude, latitude);
            for bit in 0..32 {
                assert_eq!((cell >> (2 * bit + 1)) & 1, u64::from(ordered(longitude) >> bit & 1));
                assert_eq!((cell >> (2 * bit)) & 1, u64::from(ordered(latitude) >> bit & 1));
            }
        }
        assert_eq!(from_degrees(-180.0), -1_800_000_000);
    }
}
