//! Relative links of the documents lead to files that exist.

use super::{Tree, Violation};

/// Links in Markdown whose target is missing.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.texts_of("md") {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        for (line, target) in links(text) {
            match resolve(directory, &target) {
                Some(file) if tree.exists(&file) => {}
                Some(file) => {
                    violations.push(Violation::at(path, line, format!("links to {file}: no such file")));
                }
                None => {
                    let message = format!("links to {target}: outside the repository");
                    violations.push(Violation::at(path, line, message));
                }
            }
        }
    }
    violations
}

/// Targets of relative links with their lines, without fragments. Code is skipped.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
            let targets = inline_targets(&prose).into_iter().chain(definition_target(&prose));
            let files = targets.map(|target| target.split('#').next().unwrap_or_default());
            let relative = files.filter(|file| !file.is_empty() && !file.contains(':'));
            links.extend(relative.map(|file| (index + 1, file.to_owned())));
        }
    }
    links
}

/// `[text](target "title")`
fn inline_targets(prose: &str) -> Vec<&str> {
    let parts = prose.split("](").skip(1);
    parts.filter_map(|part| part.split(')').next()?.split_whitespace().next()).collect()
}

/// `[label]: target`
fn definition_target(prose: &str) -> Option<&str> {
    let (label, rest) = prose.trim_start().strip_prefix('[')?.split_once("]:")?;
    if label.contains(']') { None } else { rest.split_whitespace().next() }
}

/// The target as a path from the root; `None` if it leads out.
fn resolve(directory: &str, target: &str) -> Option<String> {
    let whole = match target.strip_prefix('/') {
        Some(from_root) => from_root.to_owned(),
        None => format!("{directory}/{target}"),
    };
    let mut parts = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn in_docs(text: &str) -> Vec<String> {
        found(check, &[("docs/a.md", text), ("docs/b.md", ""), ("src/lib.rs", ""), (".ci/run", "")])
    }

    #[test]
    fn links_that_lead_somewhere() {
        let good = "[b](b.md) [code](../src/lib.rs#L3) [dir](../src/) [root](/.ci/run) [here](#part) \
                    [web](https://example.org/x.md) `[not](a-link.md)` ![x](b.md \"title\") [root](..)\n\
                    ```\n[not](this.md)\n```\n[label]: b.md\n";
        assert_eq!(in_docs(good), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere() {
        assert_eq!(in_docs("x\n[c](c.md#part)"), ["docs/a.md:2: links to docs/c.md: no such file"]);
        assert_eq!(in_docs("`code` then [c](../c.md)"), ["docs/a.md:1: links to c.md: no such file"]);
        assert_eq!(in_docs("[label]: sub/c.md"), ["docs/a.md:1: links to docs/sub/c.md: no such file"]);
        assert_eq!(in_docs("[c](../../c.md)"), ["docs/a.md:1: links to ../../c.md: outside the repository"]);
    }
}
