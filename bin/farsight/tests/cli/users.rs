//! Whose server it is: where servers listen by default, and what clients say of another user's.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::process::{Serve, program, start, wait};

/// A user that nobody is.
const OTHER: u32 = 54_321;

/// A directory of the other user's; none, and a line that says so, for a user who cannot act as another one.
/// Under `FARSIGHT_CI` that fails.
fn others_home() -> Option<TempDir> {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("FARSIGHT_CI").is_none(), "FARSIGHT_CI forbids to skip: this needs root");
        println!("skipped: only root can act as another user");
        return None;
    }
    let home = tempfile::tempdir().expect("a temporary directory");
    chown(home.path(), Some(OTHER), Some(OTHER)).expect("root gives it away");
    Some(home)
}

/// The program as the other user runs it.
fn as_other(home: &Path) -> Command {
    let mut command = program();
    command.uid(OTHER).gid(OTHER).current_dir("/").env("HOME", home).env_remove("XDG_STATE_HOME");
    command
}

/// A server at its default socket.
fn serve(command: &mut Command, directory: TempDir) -> Serve {
    let mut child =
        command.args(["--memory", "64M"]).stdout(Stdio::piped()).spawn().expect("the server starts");
    let mut ready = String::new();
    let out = child.stdout.take().expect("stdout is piped");
    BufReader::new(out).read_line(&mut ready).expect("the server says that it is ready");
    Serve { child, directory, ready }
}

#[test]
fn the_runtime_directory_has_the_default_socket() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let runtime = directory.path().to_owned();
    let server = serve(program().arg("serve").env("XDG_RUNTIME_DIR", &runtime), directory);
    let url = format!("ready url=shm://{} ", runtime.join("farsight.sock").display());
    assert!(server.ready.starts_with(&url), "{}", server.ready);
    let listed = wait(start(program().env("XDG_RUNTIME_DIR", &runtime).arg("tables")));
    assert_eq!((listed.code, listed.error.as_str()), (Some(0), ""), "{listed:?}");
}

#[test]
fn without_a_runtime_directory_the_socket_lies_where_nobody_else_may_write() {
    let Some(home) = others_home() else { return };
    let path = home.path().to_owned();
    let open = tempfile::tempdir().expect("a temporary directory");
    std::fs::set_permissions(open.path(), PermissionsExt::from_mode(0o1777)).expect("its owner");
    chown(open.path(), Some(OTHER), Some(OTHER)).expect("root gives it away");
    let server = serve(as_other(&path).arg("serve").env("XDG_RUNTIME_DIR", open.path()), home);
    let directory = path.join(".local/state/farsight");
    let url = format!("ready url=shm://{}/farsight.sock ", directory.display());
    assert!(server.ready.starts_with(&url), "{}", server.ready);
    for made in [&directory, directory.parent().unwrap()] {
        let made = std::fs::metadata(made).expect("the server made it");
        assert_eq!((made.uid(), made.mode() & 0o777), (OTHER, 0o700));
    }
    let listed = wait(start(as_other(&path).arg("tables")));
    assert_eq!((listed.code, listed.error.as_str()), (Some(0), ""), "{listed:?}");
    drop(server);

    let text = wait(start(as_other(Path::new("nowhere")).arg("serve"))).into_error("a server without a home");
    for words in ["no default socket", "$XDG_RUNTIME_DIR is not set", "--socket", "--listen", "FARSIGHT_URL"]
    {
        assert!(text.contains(words), "{text:?} lacks {words:?}");
    }
    let text = wait(start(as_other(Path::new("nowhere")).arg("tables"))).into_error("a client without one");
    assert!(text.contains("no default socket"), "{text}");
}

#[test]
fn another_users_server_is_told_nothing_unless_its_user_is_named() {
    let Some(home) = others_home() else { return };
    let path = home.path().to_owned();
    let server = serve(as_other(&path).args(["serve", "--allow-uid", "0"]), home);
    let url = format!("shm://{}", path.join(".local/state/farsight/farsight.sock").display());
    let client = |arguments: &[&str]| {
        let mut command = program();
        command.args(arguments).args(["--connect", &url]);
        command
    };
    let text = wait(start(&mut client(&["create", "prices", "--value-size", "8"]))).into_error("a client");
    for words in [url.strip_prefix("shm://").unwrap(), "uid 54321", "uid 0 alone", "--server-uid 54321"] {
        assert!(text.contains(words), "{text:?} lacks {words:?}");
    }
    let examined = wait(start(&mut client(&["doctor"])));
    assert_eq!(examined.code, Some(1), "{examined:?}");
    let said = examined.out.lines().find(|line| line.contains("uid 54321")).expect("it names the user");
    assert!(said.starts_with("warn  server"), "{said}");

    let trusted = wait(start(&mut client(&["tables", "--server-uid", "54321"])));
    assert_eq!((trusted.code, trusted.error.as_str()), (Some(0), ""), "{trusted:?}");
    let trusted = wait(start(client(&["tables"]).env("FARSIGHT_SERVER_UID", "7,54321")));
    assert_eq!((trusted.code, trusted.error.as_str()), (Some(0), ""), "{trusted:?}");
    assert!(!trusted.out.contains("prices"), "{}", trusted.out);
    drop(server);
}
