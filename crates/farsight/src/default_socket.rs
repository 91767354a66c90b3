//! The socket at which servers listen and programs connect unless they are told otherwise.
//!
//! Invariant: its directory belongs to this user and nobody else may write it. Where others may, any of them
//! could listen there first, and would be told what clients write.
//!
//! Candidates, in this order; server and client take the first that is fit:
//! 1. `$XDG_RUNTIME_DIR`;
//! 2. `/run/user/UID`, the same for a process without that variable (cron, `su`);
//! 3. for root `/run/farsight`;
//! 4. `$XDG_STATE_HOME/farsight`, by default `$HOME/.local/state/farsight`: where the XDG base directories
//!    have what one user's programs keep between runs. Temporary and cache directories are cleaned up
//!    meanwhile, by programs that do not know that somebody listens there.
//!
//! The system makes the first two; a server makes the others, for this user alone.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

const FILE: &str = "farsight.sock";
const ROOTS_DIRECTORY: &str = "/run/farsight";
/// Permission bits by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// The mode of directories that a server makes.
const OWNER_ALONE: u32 = 0o700;

/// Why there is no default socket.
#[derive(Debug, thiserror::Error)]
pub enum DefaultSocketError {
    /// No directory is this user's alone.
    #[error(
        "there is no default socket, which must lie where nobody but uid {uid} may write: {reasons}. Name a place: \
         serve with --socket PATH or --listen URL, connect with --connect URL or FARSIGHT_URL"
    )]
    NoDirectory {
        /// This process's user.
        uid: u32,
        /// Each candidate, and what is wrong with it.
        reasons: String,
    },
    /// The server cannot make the directory.
    #[error(
        "the directory of the default socket, {directory}, cannot be made: {source}. Serve with --socket PATH or \
         --listen URL instead, and connect with FARSIGHT_URL"
    )]
    Make {
        /// The directory.
        directory: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Where servers listen and programs connect unless they are told otherwise. It is `farsight.sock` in the
/// first of these directories that belongs to this user and that nobody else may write: `$XDG_RUNTIME_DIR`,
/// `/run/user/UID`, `/run/farsight` for root, or `$XDG_STATE_HOME/farsight`.
///
/// # Errors
/// [`DefaultSocketError::NoDirectory`].
pub fn default_socket() -> Result<PathBuf, DefaultSocketError> {
    Ok(choose(&Surroundings::own(), look_at)?.directory.join(FILE))
}

/// [`default_socket`] whose directory is there.
pub(crate) fn make() -> Result<PathBuf, DefaultSocketError> {
    let surroundings = Surroundings::own();
    let chosen = choose(&surroundings, look_at)?;
    if chosen.is_missing {
        let made = fs::DirBuilder::new().recursive(true).mode(OWNER_ALONE).create(&chosen.directory);
        made.map_err(|source| DefaultSocketError::Make {
            directory: chosen.directory.display().to_string(),
            source,
        })?;
        // Somebody else may have made it in between.
        if let Err(reason) = check(&look_at(&chosen.directory), surroundings.uid) {
            let reasons = format!("{} {reason}", chosen.directory.display());
            return Err(DefaultSocketError::NoDirectory { uid: surroundings.uid, reasons });
        }
    }
    Ok(chosen.directory.join(FILE))
}

/// What a process knows of itself.
struct Surroundings {
    uid: u32,
    /// `$XDG_RUNTIME_DIR`.
    runtime: Option<PathBuf>,
    /// `$XDG_STATE_HOME`.
    state: Option<PathBuf>,
    home: Option<PathBuf>,
}

impl Surroundings {
    fn own() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            uid: rustix::process::geteuid().as_raw(),
            runtime: variable("XDG_RUNTIME_DIR"),
            state: variable("XDG_STATE_HOME"),
            home: std::env::home_dir(),
        }
    }

    /// The directory in which the user's programs keep what they are in the midst of.
    fn state_home(&self) -> Option<PathBuf> {
        let state = self.state.clone().or_else(|| Some(self.home.as_ref()?.join(".local/state")));
        // The specification of these directories has relative ones ignored.
        state.filter(|state| state.is_absolute())
    }
}

/// What stands at a path.
enum Found {
    Nothing,
    Directory { uid: u32, mode: u32 },
    Other,
    Unknown(io::Error),
}

fn look_at(path: &Path) -> Found {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Found::Directory { uid: found.uid(), mode: found.mode() },
        Ok(_) => Found::Other,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Nothing,
        Err(error) => Found::Unknown(error),
    }
}

/// The directory to be used.
#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    directory: PathBuf,
    /// True for one that a server has to make first.
    is_missing: bool,
}

fn choose(
    surroundings: &Surroundings,
    look_at: impl Fn(&Path) -> Found,
) -> Result<Chosen, DefaultSocketError> {
    let uid = surroundings.uid;
    let mut reasons = Vec::new();
    if surroundings.runtime.is_none() {
        reasons.push("$XDG_RUNTIME_DIR is not set".to_owned());
    }
    let of_system = [surroundings.runtime.clone(), Some(PathBuf::from(format!("/run/user/{uid}")))];
    let root = (uid == 0).then(|| PathBuf::from(ROOTS_DIRECTORY));
    let state = surroundings.state_home().map(|state| state.join("farsight"));
    if state.is_none() {
        reasons.push("$HOME is not set, or no absolute path".to_owned());
    }
    let candidates = of_system.map(|directory| (directory, false)).into_iter();
    for (directory, is_made_here) in candidates.chain([(root, true), (state, true)]) {
        let Some(directory) = directory else { continue };
        let found = look_at(&directory);
        let is_missing = matches!(found, Found::Nothing);
        match check(&found, uid) {
            Err(reason) if !(is_missing && is_made_here) => {
                reasons.push(format!("{} {reason}", directory.display()));
            }
            _ => return Ok(Chosen { directory, is_missing }),
        }
    }
    Err(DefaultSocketError::NoDirectory { uid, reasons: reasons.join("; ") })
}

/// What is wrong with a directory.
fn check(found: &Found, uid: u32) -> Result<(), String> {
    match found {
        Found::Nothing => Err("is not there".to_owned()),
        Found::Other => Err("is no directory".to_owned()),
        Found::Unknown(error) => Err(format!("cannot be looked at: {error}")),
        Found::Directory { uid: owner, .. } if *owner != uid => Err(format!("belongs to uid {owner}")),
        Found::Directory { mode, .. } if mode & OTHERS_WRITE != 0 => {
            Err(format!("may be written by others (mode {:04o})", mode & 0o7777))
        }
        Found::Directory { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u32 = 1000;

    fn user() -> Surroundings {
        let runtime = Some(PathBuf::from("/runtime"));
        Surroundings { uid: USER, runtime, state: None, home: Some(PathBuf::from("/home/user")) }
    }

    fn directory(uid: u32, mode: u32) -> Found {
        Found::Directory { uid, mode: 0o040_000 | mode }
    }

    /// Chooses where `there` are all the files that there are.
    fn chosen(surroundings: &Surroundings, there: &[(&str, u32, u32)]) -> Result<(String, bool), String> {
        let look_at = |path: &Path| {
            let found = there.iter().find(|(name, ..)| Path::new(name) == path);
            found.map_or(Found::Nothing, |(_, uid, mode)| directory(*uid, *mode))
        };
        choose(surroundings, look_at)
            .map(|chosen| (chosen.directory.to_str().unwrap().to_owned(), chosen.is_missing))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_directory_that_is_the_users_alone_is_taken() {
        let (runtime, of_system) = (("/runtime", USER, 0o700), ("/run/user/1000", USER, 0o755));
        let taken = |there: &[_]| chosen(&user(), there).unwrap();
        assert_eq!(taken(&[runtime, of_system]), ("/runtime".to_owned(), false));
        assert_eq!(taken(&[of_system]), ("/run/user/1000".to_owned(), false));
        for (owner, mode) in [(USER, 0o1777), (USER, 0o770), (USER, 0o702), (0, 0o700), (1001, 0o700)] {
            let unfit = ("/runtime", owner, mode);
            assert_eq!(taken(&[unfit, of_system]), ("/run/user/1000".to_owned(), false), "{owner} {mode:o}");
        }
        let at_home = "/home/user/.local/state/farsight";
        assert_eq!(taken(&[]), (at_home.to_owned(), true));
        assert_eq!(taken(&[(at_home, USER, 0o700)]), (at_home.to_owned(), false));
    }

    #[test]
    fn root_has_a_directory_of_its_own() {
        let root =
            Surroundings { uid: 0, runtime: None, state: None, home: Some(PathBuf::from("/home/root")) };
        assert_eq!(chosen(&root, &[]), Ok(("/run/farsight".to_owned(), true)));
        assert_eq!(chosen(&root, &[("/run/user/0", 0, 0o700)]), Ok(("/run/user/0".to_owned(), false)));
        let open = ("/run/farsight", 0, 0o777);
        assert_eq!(chosen(&root, &[open]), Ok(("/home/root/.local/state/farsight".to_owned(), true)));
    }

    #[test]
    fn the_state_directory_is_the_one_that_is_set() {
        let elsewhere = Surroundings { state: Some(PathBuf::from("/state")), ..user() };
        assert_eq!(chosen(&elsewhere, &[]), Ok(("/state/farsight".to_owned(), true)));
        let relative = Surroundings { state: Some(PathBuf::from("state")), ..user() };
        assert!(chosen(&relative, &[]).is_err());
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        let homeless = Surroundings { runtime: None, home: None, ..user() };
        let error = chosen(&homeless, &[("/run/user/1000", 7, 0o700)]).unwrap_err();
        for words in
            ["uid 1000", "$XDG_RUNTIME_DIR is not set", "$HOME is not set", "/run/user/1000 belongs to uid 7"]
        {
            assert!(error.contains(words), "{error:?} lacks {words:?}");
        }
        let unfit = "/home/user/.local/state/farsight";
        let error = chosen(&user(), &[("/runtime", USER, 0o1777), (unfit, USER, 0o770)]).unwrap_err();
        for words in [
            "/runtime may be written by others (mode 1777)",
            "/run/user/1000 is not there",
            "state/farsight may be written by others (mode 0770)",
            "--socket",
            "--listen",
            "FARSIGHT_URL",
        ] {
            assert!(error.contains(words), "{error:?} lacks {words:?}");
        }
    }
}
