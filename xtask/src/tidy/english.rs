//! Plain English: how many sentences are too long, and how often words stand that the project has retired.
//!
//! Invariant: the counts only fall. Each is a constant here. A change that adds to one fails, and so does a
//! change that takes away without lowering the constant: what was won stays won.
//!
//! What counts is prose: comments of Rust sources, and Markdown without its tables, code and headings.

use super::source::word_places;
use super::{Tree, Violation};

/// Words of a sentence at most.
const WORDS_MAX: usize = 30;
/// Sentences with more words, in the whole tree.
const LONG_SENTENCES: usize = 0;
/// Places of [`RETIRED`] words, in the whole tree.
const RETIRED_WORDS: usize = 0;
/// Home-made terms, each with the field's.
const RETIRED: &[(&str, &str)] = &[
    ("whoever", "the one who acts, by name"),
    ("sieve", "filter"),
    ("sieved", "filtered"),
    ("Patience", "adaptive spin"),
    ("Manners", "handshake"),
    ("Greeting", "handshake"),
    ("greeting", "handshake"),
    ("Complaints", "disconnect queue"),
    ("Approach", "connector"),
    ("beginnings", "attempts"),
    ("given up", "poisoned"),
    ("GivenUp", "poisoned"),
    ("excuse", "expected failure"),
    ("at rest", "consistent"),
    ("irregular", "slow path"),
    ("asked for", "requested"),
    ("fall-back", "fallback"),
    ("fall-backs", "fallbacks"),
    ("planted", "injected"),
    ("mend", "scrub, or repair"),
    ("mended", "scrubbed, or repaired"),
    ("Peers", "backend"),
    ("Life", "epoch"),
];
/// Files whose words are history, made by commands, or this list.
const EXEMPT: &[&str] = &["CHANGELOG.md", "docs/proof.md", "xtask/src/tidy/english.rs"];
/// The files with the most of what a count counts, as many as a message names.
const NAMED_FILES: usize = 5;

/// Counts that have grown, or have fallen and not been lowered.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    compare(tree, LONG_SENTENCES, RETIRED_WORDS)
}

fn compare(tree: &Tree, long_sentences: usize, retired_words: usize) -> Vec<Violation> {
    let long = tally(tree, |is_rust, text| {
        let paragraphs = prose(is_rust, text);
        let sentences = paragraphs.iter().flat_map(|paragraph| sentences(paragraph));
        sentences.filter(|sentence| is_long(sentence)).count()
    });
    let retired =
        tally(tree, |_, text| RETIRED.iter().map(|(word, _)| word_places(text, word).count()).sum());
    let what = format!("sentences of more than {WORDS_MAX} words");
    let counts = [
        ("LONG_SENTENCES", what.as_str(), long, long_sentences),
        ("RETIRED_WORDS", "retired words (RETIRED has better ones)", retired, retired_words),
    ];
    counts
        .into_iter()
        .filter_map(|(name, what, found, expected)| found.differs(name, what, expected))
        .collect()
}

/// What was counted, by file.
struct Tally(Vec<(String, usize)>);

/// Counts in every file; `count` is told whether it is Rust, and not Markdown.
fn tally(tree: &Tree, count: impl Fn(bool, &str) -> usize) -> Tally {
    let kinds = [("rs", true), ("md", false)].into_iter();
    let texts = kinds.flat_map(|(kind, is_rust)| tree.texts_of(kind).map(move |text| (is_rust, text)));
    let counted = texts.filter(|(_, (path, _))| !EXEMPT.contains(path));
    Tally(counted.map(|(is_rust, (path, text))| (path.to_owned(), count(is_rust, text))).collect())
}

impl Tally {
    fn differs(mut self, name: &str, what: &str, expected: usize) -> Option<Violation> {
        let found: usize = self.0.iter().map(|(_, count)| count).sum();
        if found == expected {
            return None;
        }
        let file = "xtask/src/tidy/english.rs";
        if found < expected {
            let message = format!("{found} {what}, fewer than the {expected} there were: lower {name}");
            return Some(Violation::of_file(file, message));
        }
        self.0.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let most = self.0.iter().take(NAMED_FILES).filter(|(_, count)| *count > 0);
        let most: Vec<String> = most.map(|(path, count)| format!("{path} {count}")).collect();
        let message = format!("{found} {what}, at most {expected}: most in {}", most.join(", "));
        Some(Violation::of_file(file, message))
    }
}

/// The paragraphs of a file's prose, each without line breaks.
fn prose(is_rust: bool, text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut is_code = false;
    for line in text.lines() {
        let line = if is_rust { comment(line) } else { line };
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let is_prose = !is_code && !line.starts_with(['|', '#', '<', '`']);
        if line.is_empty() || !is_prose || begins_item(line) {
            paragraphs.push(String::new());
        }
        if is_prose {
            let paragraph = paragraphs.last_mut().expect("there is always one");
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    paragraphs
}

/// What a line of Rust comments, or nothing.
fn comment(line: &str) -> &str {
    let line = line.trim_start();
    ["//!", "///", "//"].iter().find_map(|marker| line.strip_prefix(marker)).unwrap_or_default()
}

fn begins_item(line: &str) -> bool {
    let behind_number = line.trim_start_matches(|character: char| character.is_ascii_digit());
    line.starts_with("- ") || behind_number.len() < line.len() && behind_number.starts_with(". ")
}

/// The sentences of a paragraph: each ends with a full stop before a capital, a quote, code, or a link.
fn sentences(paragraph: &str) -> Vec<String> {
    let mut sentences = vec![String::new()];
    for word in paragraph.split_whitespace() {
        let before = sentences.last_mut().expect("there is always one");
        let opens = word.starts_with(|first: char| first.is_uppercase() || "`[*\"(_".contains(first));
        let is_end =
            before.ends_with(['.', '?', '!']) || [".)", ".\"", ".*"].iter().any(|end| before.ends_with(end));
        if opens && is_end {
            sentences.push(word.to_owned());
        } else {
            before.push(' ');
            before.push_str(word);
        }
    }
    sentences
}

fn is_long(sentence: &str) -> bool {
    let is_word = |word: &&str| word.contains(char::is_alphanumeric);
    sentence.split_whitespace().filter(is_word).count() > WORDS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], long: usize, retired: usize) -> Vec<String> {
        compare(&Tree::of(files), long, retired).iter().map(ToString::to_string).collect()
    }

    fn words(count: usize) -> String {
        vec!["word"; count].join(" ")
    }

    #[test]
    fn long_sentences_are_counted_in_prose_alone() {
        let (short, long) = (words(30), words(31));
        let comment = format!("/// {}\n/// {}. {short}.\nfn f() {{}}\n", words(20), words(11));
        let markdown = format!(
            "# {long}\n\n{short}. *{short}*.\n\n| {long} |\n```\n{long}\n```\n- {short}\n- {short}\n"
        );
        assert_eq!(found(&[("a.rs", &comment), ("a.md", &markdown)], 1, 0), [""; 0]);
        let more = format!("{markdown}\n{long}.\n");
        let expected =
            "xtask/src/tidy/english.rs: 2 sentences of more than 30 words, at most 1: most in a.rs 1, a.md 1";
        assert_eq!(found(&[("a.rs", &comment), ("a.md", &more)], 1, 0), [expected]);
    }

    #[test]
    fn retired_words_are_whole_words() {
        let text = "// a sieve, and given up\nstruct Life;\nlet sieves = forgiven_up;\n";
        assert_eq!(found(&[("a.rs", text), ("CHANGELOG.md", "whoever")], 0, 3), [""; 0]);
        let more = found(&[("a.rs", text)], 0, 2);
        assert!(more[0].contains("3 retired words") && more[0].ends_with("most in a.rs 3"), "{more:?}");
    }

    #[test]
    fn what_has_fallen_stays_fallen() {
        let expected = "xtask/src/tidy/english.rs: 0 sentences of more than 30 words, fewer than the 1 there were: \
                        lower LONG_SENTENCES";
        assert_eq!(found(&[("a.rs", "// Short.\n")], 1, 0), [expected]);
    }
}
