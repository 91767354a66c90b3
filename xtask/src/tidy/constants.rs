//! docs/format.md and the code give every constant of the format the same value.
//!
//! Invariant: a row ``| `NAME` | value | ... |`` of the document names a public constant of [`SOURCES`], and
//! its value is that constant's.

use std::collections::BTreeMap;

use syn::{BinOp, Expr, Item, Lit, UnOp, Visibility};

use super::{Tree, Violation};

const DOCUMENT: &str = "docs/format.md";
/// Files and directories whose public constants belong to the format.
const SOURCES: &[&str] =
    &["crates/base/src/words.rs", "crates/durability/src/", "crates/layout/src/", "crates/protocol/src/"];

/// A constant may name another; more of them in a chain than this is a cycle.
const CHAIN_MAX: usize = 32;

/// Rows of the document that the code contradicts or does not know.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let (constants, mut violations) = Constants::read(tree);
    let Some(document) = tree.text(DOCUMENT) else {
        if let Some((path, name)) = constants.first_public() {
            let message = format!("does not exist, but {path} has public constants of the format: {name}");
            violations.push(Violation::of_file(DOCUMENT, message));
        }
        return violations;
    };
    for row in rows(document) {
        violations.extend(row.contradictions(&constants));
    }
    violations
}

#[derive(Debug, PartialEq, Eq)]
enum Constant {
    Integer(i128),
    Text(String),
}

/// One definition.
struct Definition {
    path: String,
    public: bool,
    value: Expr,
}

/// All constants of the sources, by name.
#[derive(Default)]
struct Constants(BTreeMap<String, Vec<Definition>>);

impl Constants {
    fn read(tree: &Tree) -> (Self, Vec<Violation>) {
        let mut constants = Self::default();
        let mut violations = Vec::new();
        let is_source = |path: &str| SOURCES.iter().any(|source| path.starts_with(source));
        for (path, text) in tree.texts_of("rs").filter(|(path, _)| is_source(path)) {
            match syn::parse_file(text) {
                Ok(file) => constants.add(path, file.items),
                Err(error) => violations.push(Violation::of_file(path, format!("does not parse: {error}"))),
            }
        }
        (constants, violations)
    }

    fn add(&mut self, path: &str, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Const(item) => {
                    let public = matches!(item.vis, Visibility::Public(_));
                    let definition = Definition { path: path.to_owned(), public, value: *item.expr };
                    self.0.entry(item.ident.to_string()).or_default().push(definition);
                }
                Item::Mod(module) => {
                    self.add(path, module.content.map(|(_, items)| items).unwrap_or_default());
                }
                _ => {}
            }
        }
    }

    fn first_public(&self) -> Option<(&str, &str)> {
        let mut all =
            self.0.iter().flat_map(|(name, found)| found.iter().map(move |one| (one, name.as_str())));
        all.find(|(one, _)| one.public).map(|(one, name)| (one.path.as_str(), name))
    }

    fn public(&self, name: &str) -> Vec<&Definition> {
        self.0.get(name).into_iter().flatten().filter(|definition| definition.public).collect()
    }

    /// The value of an expression of literals and these constants; `None` for anything else. Names are looked
    /// up in the file at `path` first.
    fn value(&self, expression: &Expr, path: &str, chain: usize) -> Option<Constant> {
        use Constant::{Integer, Text};
        let integer = |operand: &Expr| match self.value(operand, path, chain)? {
            Integer(value) => Some(value),
            Text(_) => None,
        };
        match expression {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(value) => value.base10_parse().ok().map(Integer),
                Lit::Str(value) => Some(Text(value.value())),
                Lit::ByteStr(value) => String::from_utf8(value.value()).ok().map(Text),
                _ => None,
            },
            Expr::Paren(inner) => self.value(&inner.expr, path, chain),
            Expr::Group(inner) => self.value(&inner.expr, path, chain),
            // No constant of the format is cut by its cast.
            Expr::Cast(cast) => self.value(&cast.expr, path, chain),
            Expr::Reference(inner) => self.value(&inner.expr, path, chain),
            Expr::Unary(unary) => match unary.op {
                UnOp::Neg(_) => integer(&unary.expr)?.checked_neg().map(Integer),
                UnOp::Deref(_) => self.value(&unary.expr, path, chain),
                _ => None,
            },
            Expr::Binary(binary) => {
                combine(&binary.op, integer(&binary.left)?, integer(&binary.right)?).map(Integer)
            }
            Expr::Path(name) => {
                let segments: Vec<String> =
                    name.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
                if let [of, limit] = segments.as_slice()
                    && let Some(value) = limit_of_type(of, limit)
                {
                    return Some(Integer(value));
                }
                self.named(segments.last()?, path, chain + 1)
            }
            _ => None,
        }
    }

    fn named(&self, name: &str, path: &str, chain: usize) -> Option<Constant> {
        let definitions = self.0.get(name)?;
        let here = definitions.iter().find(|definition| definition.path == path);
        let definition = here.or(definitions.first())?;
        if chain > CHAIN_MAX { None } else { self.value(&definition.value, &definition.path, chain) }
    }
}

fn combine(operator: &BinOp, left: i128, right: i128) -> Option<i128> {
    match operator {
        BinOp::Add(_) => left.checked_add(right),
        BinOp::Sub(_) => left.checked_sub(right),
        BinOp::Mul(_) => left.checked_mul(right),
        BinOp::Div(_) => left.checked_div(right),
        BinOp::Rem(_) => left.checked_rem(right),
        BinOp::BitAnd(_) => Some(left & right),
        BinOp::BitOr(_) => Some(left | right),
        BinOp::BitXor(_) => Some(left ^ right),
        BinOp::Shl(_) => left.checked_shl(u32::try_from(right).ok()?),
        BinOp::Shr(_) => left.checked_shr(u32::try_from(right).ok()?),
        _ => None,
    }
}

fn limit_of_type(name: &str, limit: &str) -> Option<i128> {
    let bits: u32 = match name {
        "u8" => 8,
        "u16" => 16,
        "u32" => 32,
        "u64" => 64,
        _ => return None,
    };
    match limit {
        "BITS" => Some(i128::from(bits)),
        "MAX" => Some((1 << bits) - 1),
        _ => None,
    }
}

/// One row of the document.
struct Row<'a> {
    line: usize,
    name: &'a str,
    value: &'a str,
}

fn rows(document: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (index, line) in document.lines().enumerate() {
        let Some(cells) = line.trim().strip_prefix('|') else { continue };
        let mut cells = cells.split('|').map(str::trim);
        let (Some(name), Some(value)) = (cells.next(), cells.next()) else { continue };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else { continue };
        if is_constant_name(name) {
            rows.push(Row { line: index + 1, name, value: value.trim_matches('`') });
        }
    }
    rows
}

fn is_constant_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() > 1 && name.bytes().all(allowed) && name.starts_with(|first: char| first.is_ascii_uppercase())
}

impl Row<'_> {
    fn contradictions(&self, constants: &Constants) -> Vec<Violation> {
        let fault = |message: String| Violation::at(DOCUMENT, self.line, message);
        let definitions = constants.public(self.name);
        if definitions.is_empty() {
            let sources = SOURCES.join(", ");
            return vec![fault(format!("{} is no public constant of {sources}", self.name))];
        }
        let Some(said) = self.said(constants) else {
            return vec![fault(format!("the value of {} cannot be read: {}", self.name, self.value))];
        };
        let wrong = definitions.into_iter().filter_map(|definition| {
            let path = &definition.path;
            match constants.value(&definition.value, path, 0) {
                Some(value) if value == said => None,
                Some(value) => Some(fault(format!("{} is {said} here, {value} in {path}", self.name))),
                None => Some(fault(format!("{} cannot be evaluated in {path}: use literals", self.name))),
            }
        });
        wrong.collect()
    }

    /// The cell's value: an expression, or a number before its unit.
    fn said(&self, constants: &Constants) -> Option<Constant> {
        let value = |text: &str| constants.value(&syn::parse_str::<Expr>(text).ok()?, DOCUMENT, 0);
        value(self.value).or_else(|| value(self.value.split_whitespace().next()?))
    }
}

impl std::fmt::Display for Constant {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(value) => write!(out, "{value}"),
            Self::Text(text) => write!(out, "{text:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const CODE: &str = "
        pub const SLOTS: usize = 16;
        pub const LINE_BYTES: usize = 8 * WORDS;
        const WORDS: usize = 8;
        pub const MASK: u64 = (1 << SLOTS) - 1;
        pub const ALL: u64 = u64::MAX;
        pub const BITS: u32 = u32::BITS;
        pub const FLAG: u32 = 0x8000_0000;
        pub const MAGIC: [u8; 8] = *b\"farsight\";
        pub const LIVE: usize = size();
        pub mod code { pub const UNKNOWN_TABLE: u16 = 3; }
    ";

    fn with(document: &str) -> Vec<String> {
        found(check, &[("crates/layout/src/lib.rs", CODE), (DOCUMENT, document)])
    }

    #[test]
    fn equal_values_pass_however_they_are_written() {
        let document = "# Format\n| name | value | |\n|---|---|---|\n| `SLOTS` | 16 | per leaf |\n\
            | `LINE_BYTES` | 64 B | x |\n| `LINE_BYTES` | `8 * WORDS` | x |\n| `MASK` | 0xffff |\n\
            | `ALL` | `u64::MAX` |\n| `BITS` | 32 |\n| `FLAG` | 1 << 31 |\n| `MAGIC` | `\"farsight\"` |\n\
            | `UNKNOWN_TABLE` | 3 | x |\n| `leaf` | 5 | a field |\n| SLOTS | 5 | no code |\n";
        assert_eq!(with(document), [""; 0]);
    }

    #[test]
    fn other_values_are_found() {
        let code = "crates/layout/src/lib.rs";
        assert_eq!(
            with("x\n| `SLOTS` | 17 |"),
            [format!("docs/format.md:2: SLOTS is 17 here, 16 in {code}")]
        );
        assert_eq!(
            with("| `MASK` | 0xfffe |"),
            [format!("docs/format.md:1: MASK is 65534 here, 65535 in {code}")]
        );
        let magic = format!("docs/format.md:1: MAGIC is \"nearsight\" here, \"farsight\" in {code}");
        assert_eq!(with("| `MAGIC` | \"nearsight\" |"), [magic]);
        let live = format!("docs/format.md:1: LIVE cannot be evaluated in {code}: use literals");
        assert_eq!(with("| `LIVE` | 4 |"), [live]);
        assert_eq!(with("| `SLOTS` | many |"), ["docs/format.md:1: the value of SLOTS cannot be read: many"]);
    }

    #[test]
    fn names_without_a_public_constant_are_found() {
        for name in ["GONE", "WORDS"] {
            let found = with(&format!("| `{name}` | 8 | x |"));
            assert_eq!(found.len(), 1);
            assert!(
                found[0].starts_with(&format!("docs/format.md:1: {name} is no public constant of ")),
                "{found:?}"
            );
        }
    }

    #[test]
    fn two_definitions_must_both_agree() {
        let files = [
            ("crates/base/src/words.rs", "pub const SLOTS: usize = 16;"),
            ("crates/protocol/src/lib.rs", "pub const SLOTS: usize = 8;"),
            (DOCUMENT, "| `SLOTS` | 16 |"),
        ];
        assert_eq!(
            found(check, &files),
            ["docs/format.md:1: SLOTS is 16 here, 8 in crates/protocol/src/lib.rs"]
        );
    }

    #[test]
    fn the_document_must_exist_once_there_is_a_format() {
        let expected = "docs/format.md: does not exist, but crates/layout/src/lib.rs has public constants of the \
                        format: ALL";
        assert_eq!(found(check, &[("crates/layout/src/lib.rs", CODE)]), [expected]);
        assert_eq!(found(check, &[("crates/base/src/clock.rs", CODE)]), [""; 0]);
    }

    #[test]
    fn a_cycle_ends() {
        let files = [
            ("crates/layout/src/lib.rs", "pub const A1: u8 = A2; const A2: u8 = A1;"),
            (DOCUMENT, "| `A1` | 1 |"),
        ];
        let expected = "docs/format.md:1: A1 cannot be evaluated in crates/layout/src/lib.rs: use literals";
        assert_eq!(found(check, &files), [expected]);
    }
}
