//! Sizes of memory on the command line.

/// Reads `512M`, `4G`, `4GiB` or bytes; the letters are powers of 1024.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let letters = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(letters);
    let letter = unit.strip_suffix("iB").filter(|letter| !letter.is_empty()).unwrap_or(unit);
    let shift = match letter {
        "" | "B" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("{unit:?} is no unit; use K, M, G or T, as in 4G")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no size; write it as 512M or 4G"))?;
    number.checked_shl(shift).filter(|bytes| bytes >> shift == number).ok_or(format!("{text} is too large"))
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
        assert_eq!(parse("64K"), Ok(64 << 10));
        assert_eq!(parse("4G"), Ok(4 << 30));
        assert_eq!(parse("4GiB"), Ok(4 << 30));
        assert_eq!(parse("1T"), Ok(1 << 40));
    }

    #[test]
    fn what_is_no_size_is_named() {
        assert!(parse("4 Gb").unwrap_err().contains("unit"));
        assert!(parse("G").unwrap_err().contains("no size"));
        assert!(parse("-1G").is_err());
        assert!(parse("99999999999T").unwrap_err().contains("too large"));
    }
}
