//! Which bytes of a Rust source are code, which comment, which literal.
//!
//! Invariant: a byte's kind depends on the text before it alone, so one pass decides it. Masks keep every
//! line break, so a place in a mask is the same line and column in the text.

/// What a byte belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// A Rust source and its parts.
pub(super) struct Source<'a> {
    text: &'a str,
    kinds: Vec<Kind>,
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut scanner = Scanner { text, at: 0, kinds: Vec::with_capacity(text.len()) };
        while scanner.at < text.len() {
            scanner.step();
        }
        Self { text, kinds: scanner.kinds }
    }

    /// The text with a space for each byte of a comment or literal.
    pub(super) fn code(&self) -> String {
        let bytes = self.text.bytes().zip(&self.kinds);
        let masked = bytes.map(|(byte, kind)| match kind {
            _ if byte == b'\n' => '\n',
            Kind::Code if byte.is_ascii() => char::from(byte),
            _ => ' ',
        });
        masked.collect()
    }

    /// The text without its literals.
    pub(super) fn without_literals(&self) -> String {
        let characters = self.text.char_indices();
        let kept = characters.filter(|&(at, character)| character == '\n' || self.kinds[at] != Kind::Literal);
        kept.map(|(_, character)| character).collect()
    }
}

/// Places in `code` where `word` stands as a whole word, in bytes.
pub(super) fn word_places<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let places = code.match_indices(word).map(|(at, _)| at);
    places.filter(move |&at| {
        !code[..at].ends_with(is_word_character) && !code[at + word.len()..].starts_with(is_word_character)
    })
}

/// The line of a place, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn is_word_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    kinds: Vec<Kind>,
}

impl Scanner<'_> {
    fn step(&mut self) {
        let rest = &self.text[self.at..];
        if rest.starts_with("//") {
            self.take(rest.find('\n').unwrap_or(rest.len()), Kind::Comment);
        } else if rest.starts_with("/*") {
            self.take(block_comment_bytes(rest), Kind::Comment);
        } else if rest.starts_with('"') {
            self.take(string_bytes(rest), Kind::Literal);
        } else if let Some(bytes) = character_bytes(rest) {
            self.take(bytes, Kind::Literal);
        } else if rest.starts_with(is_word_character) {
            let word_bytes = rest.find(|character| !is_word_character(character)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(word_bytes);
            self.take(word_bytes, Kind::Code);
            if let Some(bytes) = raw_string_bytes(word, after) {
                self.take(bytes, Kind::Literal);
            }
        } else {
            self.take(rest.chars().next().map_or(1, char::len_utf8), Kind::Code);
        }
    }

    fn take(&mut self, bytes: usize, kind: Kind) {
        self.kinds.extend(std::iter::repeat_n(kind, bytes));
        self.at += bytes;
    }
}

/// Block comments nest.
fn block_comment_bytes(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        match text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_bytes(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The bytes of a character literal; `None` for a lifetime and for anything else.
fn character_bytes(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    if first == '\\' {
        // The escaped character may itself be a quote.
        let end = inside.get(2..)?.find('\'')?;
        return Some(1 + 2 + end + 1);
    }
    inside[first.len_utf8()..].starts_with('\'').then_some(first.len_utf8() + 2)
}

/// The bytes of a raw string whose prefix is `word` and which goes on with `after`.
fn raw_string_bytes(word: &str, after: &str) -> Option<usize> {
    if !matches!(word, "r" | "br" | "cr") {
        return None;
    }
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    let inside = after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = inside.find(&close).map_or(inside.len(), |end| end + close.len());
    Some(hashes + 1 + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        let masked = Source::new(text).code();
        assert_eq!(masked.len(), text.len(), "a mask keeps every place");
        masked.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_masked() {
        assert_eq!(code("a // unsafe\nb /* x /* y */ z */ c"), "a b c");
        assert_eq!(code(r#"f("un\"safe", b"x") + g"#), "f( , b ) + g");
        assert_eq!(code(r##"r#"quote " inside"# + br"\" + r#type"##), "r + br + r#type");
        assert_eq!(code(r"('\'', 'a', 'é', '\u{1f600}', b'\\')"), "( , , , , b )");
        assert_eq!(code("struct A<'a>(&'a str); 'outer: loop {}"), "struct A<'a>(&'a str); 'outer: loop {}");
        assert_eq!(code("\"open"), "");
        assert_eq!(code("/* open"), "");
    }

    #[test]
    fn literals_alone_are_dropped() {
        assert_eq!(Source::new("a(\"b\", 'c'); // \"d\"").without_literals(), "a(, ); // \"d\"");
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(
            word_places("unsafe unsafe_code an_unsafe (unsafe)", "unsafe").collect::<Vec<_>>(),
            [0, 30]
        );
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
