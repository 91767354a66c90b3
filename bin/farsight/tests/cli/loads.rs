//! `farsight load`.

use crate::process::Serve;

/// A SOSD file of these keys that states `count` of them.
fn sosd(count: u64, keys: &[u64]) -> Vec<u8> {
    std::iter::once(&count).chain(keys).flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn sosd_files_are_loaded_with_keys_as_values() {
    let serve = Serve::start();
    let keys = [0, 5, 5, 1 << 40, u64::MAX];
    let file = serve.file("keys_uint64", &sosd(5, &keys));
    let said = serve.ok(&["load", "t", &file]);
    assert!(
        said.starts_with("4 pairs into table t in bulk") && said.contains("1 duplicates dropped"),
        "{said}"
    );
    let scanned = serve.ok(&["scan", "t", "--format", "decimal"]);
    let last = u64::MAX;
    assert_eq!(scanned, format!("0\t0\n5\t5\n1099511627776\t1099511627776\n{last}\t{last}\n"));
}

#[test]
fn a_second_load_is_put_over_the_first() {
    let serve = Serve::start();
    serve.ok(&["load", "t", &serve.file("first.csv", b"3,three\n1,one\n2,two\n")]);
    assert_eq!(serve.ok(&["scan", "t"]), "1\tone\n2\ttwo\n3\tthree\n");
    let said = serve.ok(&["load", "t", &serve.file("second.csv", b"4,four\n2,zwei\n2,deux\n")]);
    assert!(
        said.starts_with("2 pairs into table t by puts") && said.contains("1 duplicates dropped"),
        "{said}"
    );
    assert_eq!(serve.ok(&["scan", "t"]), "1\tone\n2\tdeux\n3\tthree\n4\tfour\n");
}

#[test]
fn a_table_without_order_takes_puts() {
    let serve = Serve::start();
    let file = serve.file("pairs.csv", b"3,three\n1,one\n1,eins\n");
    let said = serve.ok(&["load", "t", &file, "--engine", "flexkv"]);
    assert!(
        said.starts_with("2 pairs into table t by puts") && said.contains("1 duplicates dropped"),
        "{said}"
    );
    assert_eq!(serve.ok(&["get", "t", "3"]), "three\n");
    let said = serve.ok(&["load", "t", &serve.file("more.csv", b"3,drei\n")]);
    assert!(said.starts_with("1 pairs into table t by puts"), "{said}");
    assert_eq!(serve.ok(&["get", "t", "3"]), "drei\n");
}

#[test]
fn keys_of_any_length_are_loaded_read_and_removed() {
    let serve = Serve::start();
    let file =
        serve.file("users.csv", b"ada@example.org,Ada\n0x00ff,Zero\n,Nobody\nada@example.org,Ada Lovelace\n");
    let said = serve.ok(&["load", "users", &file, "--kind", "bytes", "--values", "blocks"]);
    assert!(
        said.starts_with("3 pairs into table users by puts") && said.contains("1 duplicates dropped"),
        "{said}"
    );
    assert!(serve.ok(&["tables"]).contains("flexkv"), "of the engine that has such keys");
    let got = serve.ok(&["get", "users", "ada@example.org", "0x00ff", ""]);
    assert_eq!(got, "ada@example.org\tAda Lovelace\n0x00ff\tZero\n\tNobody\n");
    let json = serve.ok(&["get", "users", "0x00ff", "--json"]);
    assert!(json.contains(r#""key":"0x00ff""#) && json.contains(r#""value":"Zero""#), "{json}");
    assert!(serve.ok(&["put", "users", "0x00ff", "One", "--if-value", "Zero"]).starts_with("replaced"));
    assert_eq!(serve.ok(&["delete", "users", "0x00ff", ""]), "removed 2 of 2\n");
    assert_eq!(serve.run(&["get", "users", ""]).code, Some(3), "it is gone");
    let scanned = serve.fails(&["scan", "users"]);
    assert!(scanned.contains("keys of kind bytes, which have no order: `farsight export`"), "{scanned}");
    let key = "k".repeat(16_233);
    let long = serve.fails(&["put", "users", &key, ""]);
    assert!(long.contains("16232 B together at most") && long.contains("a key of 16233 B"), "{long}");
    assert!(serve.ok(&["put", "users", &key[1..], ""]).starts_with("inserted"));
    serve.ok(&["create", "visits", "--keys", "bytes"]);
    serve.ok(&["add", "visits", "/index.html", "3"]);
    assert!(serve.ok(&["add", "visits", "/index.html", "-1"]).starts_with("2, before 3"));
    let engine = serve.fails(&["create", "ordered", "--keys", "bytes", "--engine", "xstore"]);
    assert!(
        engine.contains("keys of xstore have eight bytes") && engine.trim_end().ends_with("flexkv"),
        "{engine}"
    );
}

/// What a file says is what the table has: no digit, space or pair is lost on the way.
#[test]
fn texts_and_numbers_are_loaded_as_they_stand() {
    let serve = Serve::start();
    let long = "12345678901234567890123";
    let lines = format!("\u{feff}{{\"key\":{long},\"value\":1.10}}\n{{\"key\":1.10,\"value\":{long}}}\n");
    let file = serve.file("numbers.jsonl", lines.as_bytes());
    serve.ok(&["load", "numbers", &file, "--kind", "bytes", "--values", "blocks"]);
    assert_eq!(serve.ok(&["get", "numbers", long, "1.10"]), format!("{long}\t1.10\n1.10\t{long}\n"));
    let file = serve.file("array.jsonl", b"[7,8]\n");
    assert!(serve.fails(&["load", "numbers", &file]).contains("expected an object"));

    let file = serve.file("spaces.csv", b" 1 ,\" a \"\n2, b\n");
    serve.ok(&["load", "spaces", &file, "--values", "blocks"]);
    assert_eq!(serve.ok(&["scan", "spaces"]), "1\t a \n2\t b\n");
    let file = serve.file("words.txt", b" a\na\r\n\na \n");
    let said = serve.ok(&["load", "words", &file, "--kind", "bytes", "--values", "blocks"]);
    assert!(said.starts_with("3 pairs"), "{said}");
    assert_eq!(serve.ok(&["get", "words", " a", "a", "a "]).lines().count(), 3, "all are there");

    let file = serve.file("quote.csv", b"1,a\n2,\"b\n3,c\n");
    let error = serve.fails(&["load", "quote", &file, "--values", "blocks"]);
    assert!(error.contains("nothing of it is loaded: the record of line 2 opens a quote"), "{error}");

    let file = serve.file("nans.txt", b"NaN\n-NaN\n0x7ff0000000000001\n");
    serve.ok(&["load", "nans", &file, "--kind", "f64"]);
    let scanned = serve.ok(&["scan", "nans", "--print", "keys"]);
    assert_eq!(scanned, "-NaN\n0x7ff0000000000001\nNaN\n");
}

#[test]
fn more_keys_than_memory_holds_are_refused() {
    let serve = Serve::start();
    for count in ["99999999999999", "18446744073709551615"] {
        let error = serve.fails(&["load", "t", "uniform", "--keys", count]);
        assert!(error.contains("keys of dataset uniform") && error.contains("ask for fewer"), "{error}");
    }
}

#[test]
fn many_pairs_go_in_bulk_and_by_puts() {
    let serve = Serve::start();
    let odd: Vec<u64> = (0..50_000).map(|key| 2 * key + 1).collect();
    let even = (0..50_000).map(|key| format!("{}\n", 2 * key)).collect::<Vec<_>>().concat();
    let said = serve.ok(&["load", "t", &serve.file("odd", &sosd(50_000, &odd)), "--value-size", "20"]);
    assert!(said.starts_with("50,000 pairs into table t in bulk"), "{said}");
    let said = serve.ok(&["load", "t", &serve.file("even.txt", even.as_bytes())]);
    assert!(said.starts_with("50,000 pairs into table t by puts"), "{said}");
    let scanned = serve.ok(&["scan", "t", "--format", "hex", "--limit", "100000"]);
    for (key, line) in scanned.lines().enumerate() {
        let word = u64::swap_bytes(key as u64);
        // The key's eight bytes twice, and the first four of them again: 20 B.
        assert_eq!(line, format!("{key}\t0x{word:016x}{word:016x}{:08x}", word >> 32));
    }
    assert_eq!(scanned.lines().count(), 100_000);
}

#[test]
fn named_sets_and_other_kinds_of_keys() {
    let serve = Serve::start();
    let said = serve.ok(&["load", "places", "boundaries", "--keys", "1000"]);
    assert!(said.starts_with("1,000 pairs"), "{said}");
    let file = serve.file("t.csv", b"-1.5,cold\n21,warm\n-300,none\n");
    serve.ok(&["load", "temperatures", &file, "--kind", "f64"]);
    assert_eq!(serve.ok(&["scan", "temperatures"]), "-300\tnone\n-1.5\tcold\n21\twarm\n");
    let refused = serve.fails(&["load", "temperatures", "boundaries"]);
    assert!(refused.contains("its keys are u64, those of the table f64"), "{refused}");
}

/// A table that was emptied has had leaves, which no bulk load takes over.
#[test]
fn a_table_that_was_emptied_is_loaded_by_puts() {
    let serve = Serve::start();
    let keys: Vec<String> = (1..=40).map(|key| key.to_string()).collect();
    let file = serve.file("keys.txt", keys.join("\n").as_bytes());
    for values in ["fixed", "blocks"] {
        assert!(serve.ok(&["load", values, &file, "--values", values]).contains("in bulk"));
        let delete: Vec<&str> =
            ["delete", values].into_iter().chain(keys.iter().map(String::as_str)).collect();
        serve.ok(&delete);
        assert!(serve.ok(&["load", values, &file]).contains("by puts"));
        assert_eq!(serve.ok(&["scan", values]).lines().count(), 40);
    }
}

#[test]
fn lines_of_json_are_what_a_scan_prints() {
    let serve = Serve::start();
    let lines = b"{\"key\": 18446744073709551615, \"value\": \"last\"}\n\n\
                  {\"key\":\"0x10\",\"value\":\"a \\\"line\\\"\",\"version\":7}\n{\"value\":12,\"key\":3}\n";
    serve.ok(&["load", "t", &serve.file("t.jsonl", lines), "--values", "blocks"]);
    let scanned = serve.ok(&["scan", "t", "--json"]);
    assert!(scanned.starts_with("{\"key\":\"3\",\"value\":\"12\",\"version\":"), "{scanned}");
    serve.ok(&["load", "copy", &serve.file("again.ndjson", scanned.as_bytes()), "--values", "blocks"]);
    assert_eq!(serve.ok(&["scan", "copy", "--json"]).lines().count(), 3);
    assert_eq!(serve.ok(&["get", "copy", "16"]), "a \"line\"\n");
    assert_eq!(serve.ok(&["get", "copy", "18446744073709551615"]), "last\n");
    let keys = b"{\"key\":-2}\n{\"key\":5}\n";
    serve.ok(&["load", "keys", &serve.file("keys.jsonl", keys), "--kind", "i64"]);
    assert_eq!(serve.ok(&["scan", "keys"]).lines().count(), 2);
}

#[test]
fn broken_files_are_named_and_load_nothing() {
    let serve = Serve::start();
    serve.ok(&["create", "t"]);
    let file = |name: &str, contents: &[u8]| serve.file(name, contents);
    let check = |path: &str, parts: &[&str]| {
        let error = serve.fails(&["load", "t", path]);
        assert!(error.contains(path), "{error}");
        for part in parts {
            assert!(error.contains(part), "no {part:?} in {error}");
        }
    };
    check(&file("truncated", &sosd(4, &[1, 2, 3])), &["40", "32"]);
    check(&file("cut.jsonl", b"{\"key\": 1}\n{\"key\": "), &[":2", "expected an object with key and value"]);
    check(&file("list.jsonl", b"[1, 2]\n"), &[":1", "expected an object with key and value"]);
    check(
        &file("some.jsonl", b"{\"key\":1,\"value\":\"x\"}\n{\"key\":2}\n"),
        &[":2", "in each object or in none"],
    );
    check(&file("text.jsonl", b"{\"key\":\"one\"}\n"), &[":1", "expected a key of kind u64", "one"]);
    check(&file("long.jsonl", b"{\"key\":1,\"value\":\"longer than 8 B\"}\n"), &[":1", "8 B"]);
    check(&file("longer", &sosd(2, &[1, 2, 3])), &["24", "32"]);
    check(&file("short", b"123"), &["3"]);
    check(&file("unsorted", &sosd(3, &[1, 9, 3])), &["9", "3"]);
    check(&file("word.txt", b"1\ntwo\n"), &["word.txt:2: expected a key of kind u64, got \"two\""]);
    check(&file("word.csv", b"1,a\ntwo,b\n"), &["word.csv:2: expected a key of kind u64, got \"two\""]);
    check(&file("long.csv", b"1,a\n2,nine byte\n"), &["long.csv:2: ", "9 B", "8 B"]);
    check(&file("ragged.csv", b"1,a\n2\n"), &["ragged.csv:2: ", "1 columns"]);
    check(&file("empty.txt", b""), &["no keys"]);
    let unknown = serve.fails(&["load", "t", "no-such-set"]);
    assert!(unknown.contains("no-such-set") && unknown.contains("boundaries"), "{unknown}");
    assert_eq!(serve.ok(&["scan", "t"]), "");

    let unsorted = serve.file("unsorted", &sosd(3, &[1, 9, 3]));
    serve.ok(&["load", "t", &unsorted, "--sort"]);
    assert_eq!(serve.ok(&["scan", "t", "--format", "decimal"]), "1\t1\n3\t3\n9\t9\n");
}

#[test]
fn the_first_line_is_a_header_only_if_it_is_named_or_announced() {
    let serve = Serve::start();
    serve.ok(&["create", "t"]);
    for first in ["O1,a", "price,value", ",a"] {
        let file = serve.file("pairs.csv", format!("{first}\n2,b\n").as_bytes());
        let error = serve.fails(&["load", "t", &file]);
        let key = first.split(',').next().expect("a first field");
        for part in ["nothing of it is loaded", "pairs.csv:1: expected a key of kind u64", "--header"] {
            assert!(error.contains(part) && error.contains(&format!("got {key:?}")), "{error}");
        }
        assert_eq!(serve.ok(&["scan", "t"]), "", "{first} is left out");
    }
    let header = |arguments: &[&str]| {
        let ended = serve.run(arguments);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.error
    };
    let file = serve.file("pairs.csv", b"O1,a\n2,b\n");
    let said = header(&["load", "t", &file, "--header"]);
    assert!(said.ends_with("pairs.csv: header: O1,a\n") && said.lines().count() == 1, "{said}");
    assert_eq!(serve.ok(&["scan", "t"]), "2\tb\n");
    let said = header(&["load", "t", &serve.file("named.csv", b"ID, name\n3,c\n")]);
    assert!(said.ends_with("named.csv: header: ID,name\n") && said.lines().count() == 1, "{said}");
    assert_eq!(serve.ok(&["scan", "t"]), "2\tb\n3\tc\n");
    // Where a name is a key, it is one only if it is not among those of headers.
    let words = serve.file("words.csv", b"price,1\nkeyed,2\n");
    assert_eq!(header(&["load", "words", &words, "--kind", "bytes8"]), "");
    assert_eq!(serve.ok(&["scan", "words"]), "keyed\t2\nprice\t1\n");
    let text = serve.fails(&["load", "t", &serve.file("keys.txt", b"key\n1\n"), "--header"]);
    assert!(text.contains("--header is for .csv files only"), "{text}");
}

#[test]
fn a_load_does_not_change_what_a_table_is() {
    let serve = Serve::start();
    serve.ok(&["create", "t", "--value-size", "16"]);
    let file = serve.file("keys.txt", b"1\n");
    let error = serve.fails(&["load", "t", &file, "--value-size", "8"]);
    assert!(error.contains("exists with values of 16 B, not 8 B"), "{error}");
    let error = serve.fails(&["load", "t", &file, "--kind", "i64"]);
    assert!(error.contains("exists with keys of kind u64, not i64"), "{error}");
}

#[test]
fn sets_are_listed_and_written() {
    let serve = Serve::start();
    let listed = serve.ok(&["dataset"]);
    assert!(listed.contains("longitudes") && listed.contains("OpenStreetMap"), "{listed}");
    let file = serve.file("normal_uint64", b"");
    let said = serve.ok(&["dataset", "normal", "--keys", "5000", "--out", &file]);
    assert!(said.starts_with("5,000 keys in "), "{said}");
    let written = std::fs::read(&file).expect("the file is there");
    assert_eq!((written.len(), &written[..8]), (8 * 5001, &5000u64.to_le_bytes()[..]));
    assert!(serve.ok(&["load", "t", &file]).starts_with("5,000 pairs"));
    let more = serve.fails(&["dataset", "boundaries", "--keys", "1000000000", "--out", &file]);
    assert!(more.contains("1,000,000,000 asked"), "{more}");
    assert!(serve.fails(&["dataset", "boundaries"]).contains("built in"));
}

/// Who gives what cannot be loaded is told what was expected instead.
#[test]
fn what_is_no_source_is_named_as_what_it_is() {
    let serve = Serve::start();
    let directory = serve.directory.path().to_str().expect("text");
    for source in [directory, "/dev/null"] {
        let error = serve.fails(&["load", "t", source]);
        assert!(error.contains(&format!("{source} is no file")) && error.contains("a pipe"), "{error}");
    }
    for contents in [&b""[..], b"1\tone\n2\ttwo\n"] {
        let error = serve.fails(&["load", "t", &serve.file("pairs.tsv", contents)]);
        assert!(error.contains("it is read as a SOSD file: its name ends as no text file's does"), "{error}");
    }
}
