//! The repository's files, read once.
//!
//! Invariant: paths are relative to the root and use `/`. Every file of the repository is in the tree; build
//! output, version control and hidden files of editors are not. A file that is not text, or too large to be
//! anybody's prose, is in it by name alone.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::{fs, io};

use anyhow::Context;

/// Hidden directories that belong to the repository.
const HIDDEN_DIRECTORIES: &[&str] = &[".cargo", ".ci", ".github"];
/// Hidden files that belong to the repository.
const HIDDEN_FILES: &[&str] = &[".gitattributes", ".gitignore"];
/// Larger files are data, whatever their bytes say.
const TEXT_BYTES_MAX: u64 = 2 << 20;

/// Files by path; the text is `None` for a file that is not text.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Reads the repository at `root`.
    ///
    /// # Errors
    /// Names the file or directory that cannot be read, or the root that holds no workspace.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        tree.read_directory(root, "")?;
        if tree.text("Cargo.toml").is_none() {
            anyhow::bail!("{} is no workspace: it has no Cargo.toml", root.display());
        }
        Ok(tree)
    }

    /// A tree of these paths and texts.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let owned = files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned())));
        Self { files: owned.collect() }
    }

    /// All paths, ascending.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The text of the file at `path`, if there is one and it is text.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// All files that are text, with their paths.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// All texts whose file's name ends with `.extension`.
    pub fn texts_of(&self, extension: &str) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(move |(path, _)| {
            Path::new(path).extension().is_some_and(|extension_here| extension_here == extension)
        })
    }

    /// True if `path` is a file, or a directory with a file in it. The empty path is the root.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.range(prefix.clone()..).next().is_some_and(|(first, _)| first.starts_with(&prefix))
    }

    fn read_directory(&mut self, directory: &Path, prefix: &str) -> anyhow::Result<()> {
        let entries = fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("listing {}", directory.display()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().with_context(|| format!("looking at {path}"))?;
            if kind.is_dir() && belongs(&name, HIDDEN_DIRECTORIES) && !is_build_output(&path) {
                self.read_directory(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() && belongs(&name, HIDDEN_FILES) {
                let text = match read_text(&entry.path()) {
                    // Some other program's temporary file: it came and went.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    other => other.with_context(|| format!("reading {path}"))?,
                };
                self.files.insert(path, text);
            }
        }
        Ok(())
    }
}

fn belongs(name: &str, hidden: &[&str]) -> bool {
    !name.starts_with('.') || hidden.contains(&name)
}

fn is_build_output(path: &str) -> bool {
    // What cargo-fuzz leaves in its own directory.
    const FUZZ: [&str; 4] = ["fuzz/target", "fuzz/corpus", "fuzz/artifacts", "fuzz/coverage"];
    let of_other_workspaces = FUZZ.contains(&path) || path == "bench-compare/target";
    path == "target" || of_other_workspaces || path.starts_with("target-") && !path.contains('/')
}

fn read_text(path: &Path) -> io::Result<Option<String>> {
    if fs::metadata(path)?.len() > TEXT_BYTES_MAX {
        return Ok(None);
    }
    Ok(String::from_utf8(fs::read(path)?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_repository_and_nothing_else() {
        let root = std::env::temp_dir().join(format!("farsight-tidy-tree-{}", std::process::id()));
        let files = [
            "Cargo.toml",
            ".ci/run",
            ".gitignore",
            "crates/a/src/lib.rs",
            "crates/target/kept.rs",
            ".git/config",
            ".hidden",
            "target/debug/out.rs",
            "target-other/out.rs",
            "fuzz/corpus/one",
            "bench-compare/target/out.rs",
        ];
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        fs::write(root.join("picture.png"), [0xff, 0xfe, 0x00]).unwrap();
        let tree = Tree::read(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();

        let paths: Vec<&str> = tree.paths().collect();
        let expected = [
            ".ci/run",
            ".gitignore",
            "Cargo.toml",
            "crates/a/src/lib.rs",
            "crates/target/kept.rs",
            "picture.png",
        ];
        assert_eq!(paths, expected);
        assert_eq!(tree.text("crates/a/src/lib.rs"), Some("crates/a/src/lib.rs"));
        assert_eq!(tree.text("picture.png"), None);
    }

    #[test]
    fn a_root_without_a_workspace_is_named() {
        let missing = std::env::temp_dir().join(format!("farsight-tidy-none-{}", std::process::id()));
        assert!(format!("{:#}", Tree::read(&missing).unwrap_err()).contains("farsight-tidy-none"));
        fs::create_dir_all(&missing).unwrap();
        let error = Tree::read(&missing).unwrap_err().to_string();
        fs::remove_dir_all(&missing).unwrap();
        assert!(error.ends_with("is no workspace: it has no Cargo.toml"), "{error}");
    }

    #[test]
    fn directories_exist_by_their_files() {
        let tree = Tree::of(&[("docs/a.md", ""), ("docs-old.md", "")]);
        assert!(tree.exists("docs") && tree.exists("docs/a.md") && tree.exists(""));
        assert!(!tree.exists("doc") && !tree.exists("docs/a") && !tree.exists("docs-old"));
    }
}
