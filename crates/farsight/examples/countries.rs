//! Countries of IPv4 addresses: ordered look-ups in a table of ranges, and a new version of the table swapped
//! in under readers.
//!
//!     cargo run --release --example countries -- [RANGES.csv ADDRESS...]
//!
//! A line of the CSV file is `first,last,country`: the first and the last address of a range, and two
//! letters. Ranges ascend and do not overlap. A pair of the table is a range: its first address is the key;
//! its last one and the country are the value. The range of an address is the one with the greatest first
//! address not above it, the *floor*, if its last address is not below. A hash store has no such look-up.
//!
//! A new version is loaded into a table of its own. `swap_tables` exchanges the names at one instant: readers
//! go on, each batch of theirs is of one version, and nobody sees half of one.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::Ipv4Addr;
use std::thread;

use farsight::{Client, Neighbour, Options, Pairs, Server, Session};

type Failure = Box<dyn Error + Send + Sync>;

/// The table that readers open.
const TABLE: &str = "countries";
/// Where the next version is loaded.
const NEXT: &str = "countries-next";
/// Bytes of a value: last address 4, country 2, and nothing in the rest.
const VALUE_BYTES: usize = 8;

/// Two versions of ranges set aside for documentation (RFC 5737), with codes that no country has.
const VERSIONS: [&str; 2] = [
    "192.0.2.0,192.0.2.127,XA\n192.0.2.128,192.0.2.255,XB\n198.51.100.0,198.51.100.255,XC\n",
    "192.0.2.0,192.0.2.255,XD\n198.51.100.0,198.51.100.63,XE\n203.0.113.0,203.0.113.255,XC\n",
];
const ADDRESSES: [&str; 4] = ["192.0.2.200", "198.51.100.99", "203.0.113.7", "8.8.8.8"];

/// Loads the ranges of `csv` into the table [`NEXT`], and exchanges it with [`TABLE`].
fn publish(client: &Client, csv: &str) -> Result<u64, Failure> {
    let is_first = client.describe_table(TABLE).is_err();
    let name = if is_first { TABLE } else { NEXT };
    let mut load = client.create_table::<u64>(name, VALUE_BYTES)?.bulk_load()?;
    for (number, line) in (1..).zip(csv.lines()) {
        let (first, value) = range_of(line).ok_or_else(|| format!("line {number}: no range in {line:?}"))?;
        load.push(first, &value)?;
    }
    let ranges = load.finish()?;
    if !is_first {
        client.swap_tables(TABLE, NEXT)?;
        // Its memory comes back when the last reader has gone on to the new version.
        client.drop_table(NEXT)?;
    }
    Ok(ranges)
}

/// The pair of a line.
fn range_of(line: &str) -> Option<(u64, [u8; VALUE_BYTES])> {
    let mut fields = line.split(',').map(str::trim);
    let (first, last): (Ipv4Addr, Ipv4Addr) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let country = fields.next().filter(|country| country.len() == 2)?;
    let mut value = [0; VALUE_BYTES];
    value[..4].copy_from_slice(&last.octets());
    value[4..6].copy_from_slice(country.as_bytes());
    (first <= last && fields.next().is_none()).then_some((u32::from(first).into(), value))
}

/// The countries of many addresses, in one batch.
fn countries(
    session: &mut Session<u64>,
    addresses: &[Ipv4Addr],
    ranges: &mut Pairs<u64>,
) -> Result<Vec<Option<String>>, Failure> {
    let keys: Vec<u64> = addresses.iter().map(|address| u32::from(*address).into()).collect();
    session.neighbours(Neighbour::Floor, &keys, ranges)?;
    let country = |(index, address): (usize, &Ipv4Addr)| {
        let value = ranges.scan(index).next()?.value;
        let last = Ipv4Addr::from(*value.first_chunk::<4>()?);
        (*address <= last).then(|| String::from_utf8_lossy(&value[4..6]).into_owned())
    };
    Ok(addresses.iter().enumerate().map(country).collect())
}

/// Looks addresses up, again and again, while the second version is swapped in. Counts what was seen.
fn swap_under_a_reader(client: &Client) -> Result<BTreeMap<Vec<Option<String>>, u64>, Failure> {
    let addresses = parse(&ADDRESSES.map(str::to_owned))?;
    let mut session = client.table::<u64>(TABLE)?.session(Options::default())?;
    let published = thread::spawn({
        let client = client.clone();
        move || publish(&client, VERSIONS[1])
    });
    let (mut seen, mut ranges) = (BTreeMap::new(), Pairs::default());
    loop {
        let is_published = published.is_finished();
        let found = countries(&mut session, &addresses, &mut ranges)?;
        let is_new = found[2].is_some();
        *seen.entry(found).or_default() += 1;
        if is_published && is_new {
            break;
        }
    }
    published.join().map_err(|_| "the publisher failed")??;
    Ok(seen)
}

fn parse(addresses: &[String]) -> Result<Vec<Ipv4Addr>, Failure> {
    let parse = |text: &String| text.parse().map_err(|error| format!("{text}: {error}").into());
    addresses.iter().map(parse).collect()
}

fn text(country: Option<&String>) -> &str {
    country.map_or("unknown", String::as_str)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = tempfile::tempdir()?;
    let server = Server::builder().socket(directory.path().join("s")).start()?;
    let client = farsight::connect(&server.url().to_string())?;
    let Some((file, addresses)) = arguments.split_first() else {
        publish(&client, VERSIONS[0])?;
        println!("looked up {} while a new version came:", ADDRESSES.join(", "));
        for (countries, count) in swap_under_a_reader(&client)? {
            let countries: Vec<&str> = countries.iter().map(|country| text(country.as_ref())).collect();
            println!("{count:>8} times {}", countries.join(", "));
        }
        return Ok(());
    };
    let ranges = publish(&client, &std::fs::read_to_string(file)?)?;
    println!("{ranges} ranges of {file}");
    let mut session = client.table::<u64>(TABLE)?.session(Options::default())?;
    let found = countries(&mut session, &parse(addresses)?, &mut Pairs::default())?;
    for (address, country) in addresses.iter().zip(&found) {
        println!("{address} {}", text(country.as_ref()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_one_version_or_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let server = Server::builder().socket(&socket).table_memory_bytes(16 << 20).start().unwrap();
        let client = farsight::connect(&server.url().to_string()).unwrap();
        assert_eq!(publish(&client, VERSIONS[0]).unwrap(), 3);
        let seen = swap_under_a_reader(&client).unwrap();
        let versions = [[Some("XB"), Some("XC"), None, None], [Some("XD"), None, Some("XC"), None]];
        let versions = versions.map(|version| version.map(|country| country.map(str::to_owned)).to_vec());
        assert!(seen.keys().all(|found| versions.contains(found)), "{seen:?}");
        assert!(seen.contains_key(&versions[1]));
    }

    #[test]
    fn a_line_is_a_range() {
        let (first, value) = range_of("10.0.0.0, 10.255.255.255, XX").unwrap();
        assert_eq!((first, &value), (10 << 24, b"\x0a\xff\xff\xffXX\0\0"));
        for line in ["", "10.0.0.1,10.0.0.0,XX", "10.0.0.0,10.0.0.1", "10.0.0.0,10.0.0.1,DEU", "a,b,XX"] {
            assert_eq!(range_of(line), None, "{line:?}");
        }
    }
}
