//! A type name means one thing in a crate: no two types of one crate's library or program are called alike.
//!
//! Types that the compiler never sees together may share a name: those in one file of which each has a `cfg`,
//! and those in modules of tests.

use std::collections::BTreeMap;

use syn::{Attribute, Item};

use super::{Tree, Violation};

/// Types that share their name with another of their crate.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut places: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for (path, text) in tree.texts_of("rs") {
        let Some((package, _)) = path.split_once("/src/") else { continue };
        let Ok(file) = syn::parse_file(text) else { continue };
        let mut names = Vec::new();
        collect(&file.items, &mut names);
        for (name, is_conditional) in names {
            let places = places.entry((package, name)).or_default();
            if !(is_conditional && places.contains(&path)) {
                places.push(path);
            }
        }
    }
    let twice = places.into_iter().filter(|(_, places)| places.len() > 1);
    twice.map(|((_, name), places)| Violation::of_file(places[1], message(&name, &places))).collect()
}

fn message(name: &str, places: &[&str]) -> String {
    format!("type {name} has {} meanings in its crate: {}", places.len(), places.join(", "))
}

/// The names of types among `items`, tests aside, and whether each has a condition.
fn collect(items: &[Item], names: &mut Vec<(String, bool)>) {
    for item in items {
        let (name, attributes) = match item {
            Item::Struct(item) => (&item.ident, &item.attrs),
            Item::Enum(item) => (&item.ident, &item.attrs),
            Item::Trait(item) => (&item.ident, &item.attrs),
            Item::Union(item) => (&item.ident, &item.attrs),
            Item::Mod(item) if !is_conditional(&item.attrs) => {
                if let Some((_, items)) = &item.content {
                    collect(items, names);
                }
                continue;
            }
            _ => continue,
        };
        names.push((name.to_string(), is_conditional(attributes)));
    }
}

fn is_conditional(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg"))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn two_meanings_in_a_crate_are_found() {
        let said = found(
            check,
            &[
                ("crates/a/src/one.rs", "struct Place; mod inner { enum Step {} }"),
                ("crates/a/src/two.rs", "trait Place {} struct Step;"),
                ("crates/b/src/lib.rs", "pub struct Place;"),
            ],
        );
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("two.rs: type Place has 2 meanings in its crate: crates/a/src/one.rs, "));
    }

    #[test]
    fn what_the_compiler_never_sees_together_is_none() {
        let said = found(
            check,
            &[
                ("crates/a/src/one.rs", "#[cfg(x)] struct Place; #[cfg(not(x))] struct Place;"),
                ("crates/a/src/two.rs", "#[cfg(test)] mod tests { struct Place; }"),
                ("crates/a/tests/three.rs", "struct Place;"),
            ],
        );
        assert_eq!(said, Vec::<String>::new());
    }
}
