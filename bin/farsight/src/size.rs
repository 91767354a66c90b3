//! Sizes of memory on the command line.

/// What a node takes for a table at the least, whatever it is told.
const TABLE_BYTES_MIN: u64 = 2 << 20;

/// Reads `512M`, `4G`, `4GiB` or bytes; the letters are powers of 1024.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let letters = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(letters);
    let shift = match unit {
        "" | "B" => 0,
        "K" | "k" | "KiB" | "kiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return Err(format!("{unit:?} is no unit; use K, M, G or T, as in 4G")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no size; write it as 512M or 4G"))?;
    number.checked_shl(shift).filter(|bytes| bytes >> shift == number).ok_or(format!("{text} is too large"))
}

/// [`parse`] of the most memory that a table takes.
pub(crate) fn parse_table(text: &str) -> Result<u64, String> {
    let bytes = parse(text)?;
    if bytes < TABLE_BYTES_MIN {
        return Err(format!(
            "a table takes {TABLE_BYTES_MIN} B at least, got {bytes} B: write it as 512M or 4G"
        ));
    }
    Ok(bytes)
}

/// `bytes` for people.
pub(crate) fn text(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("0T"), Ok(0));
        assert_eq!(parse("7B"), Ok(7));
        assert_eq!(parse("64K"), Ok(64 << 10));
        assert_eq!(parse("4G"), Ok(4 << 30));
        assert_eq!(parse("4GiB"), Ok(4 << 30));
        assert_eq!(parse("1T"), Ok(1 << 40));
        assert_eq!(parse("16777215T"), Ok(0xff_ffff << 40));
        assert_eq!(parse("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn a_table_has_a_least_size() {
        assert_eq!(parse_table("2M"), Ok(2 << 20));
        for text in ["0", "1", "2097151"] {
            assert!(parse_table(text).is_err_and(|error| error.contains("2097152 B at least")), "{text:?}");
        }
        assert!(parse_table("4X").is_err_and(|error| error.contains("is no unit")));
    }

    #[test]
    fn what_is_no_size_is_named() {
        for text in
            ["0BiB", "4 Gb", "4iB", "4GiBiB", "4GG", "1e3", "1.5G", "1_000", "4G ", " 4G", "-1G", "-0", "+4G"]
        {
            assert!(parse(text).is_err_and(|error| error.contains("is no unit")), "{text:?}");
        }
        for text in ["", "G", "GiB", "99999999999999999999"] {
            assert!(parse(text).is_err_and(|error| error.contains("is no size")), "{text:?}");
        }
        for text in ["16777216T", "99999999T", "99999999999T", "18446744073709551615K"] {
            assert!(parse(text).is_err_and(|error| error.contains("too large")), "{text:?}");
        }
    }
}
