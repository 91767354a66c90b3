//! The script that a virtual machine runs: its network, its RDMA device, the command.

use std::fmt::Write as _;
use std::path::Path;

/// Which machine this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The only one.
    Alone,
    /// The first of two.
    Server,
    /// The second of two, whose end ends the run.
    Client,
}

/// Addresses of the two, by which the commands know them.
const SERVER_ADDRESS: &str = "10.77.0.1";
const CLIENT_ADDRESS: &str = "10.77.0.2";
/// The card of each.
const CABLE: &str = "eth0";

impl Role {
    /// Stands before its lines of output.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Alone => "",
            Self::Server => "server| ",
            Self::Client => "client| ",
        }
    }

    /// QEMU's arguments for the network: two machines meet at the abstract socket `name`.
    pub(super) fn network(self, name: &str) -> Vec<String> {
        let (listens, last) = match self {
            Self::Alone => return vec!["-nic".to_owned(), "none".to_owned()],
            Self::Server => ("on", 1),
            Self::Client => ("off", 2),
        };
        let socket = format!("addr.type=unix,addr.path={name},addr.abstract=on");
        vec![
            "-netdev".to_owned(),
            format!("stream,id=net,server={listens},{socket}"),
            "-device".to_owned(),
            // Without the card's own start-up code, which comes in a package of its own.
            format!("virtio-net-pci,netdev=net,romfile=,mac=52:54:00:77:00:0{last}"),
        ]
    }

    /// Commands that bring up the network and its RDMA device.
    fn devices(self, loss_percent: Option<f32>) -> String {
        let (interface, address) = match self {
            Self::Alone => ("dummy0", SERVER_ADDRESS),
            Self::Server => (CABLE, SERVER_ADDRESS),
            Self::Client => (CABLE, CLIENT_ADDRESS),
        };
        let mut script = String::from("ip link set lo up\n");
        if self == Self::Alone {
            script.push_str("ip link show dummy0 >/dev/null 2>&1 || ip link add dummy0 type dummy\n");
        }
        let _ = write!(
            script,
            "ip address add {address}/24 dev {interface}\nip link set {interface} up\n\
             rdma link add rxe0 type rxe netdev {interface}\n"
        );
        if self == Self::Alone {
            script.push_str("rdma link add rxe1 type rxe netdev lo\n");
        }
        if let Some(percent) = loss_percent {
            let _ = writeln!(script, "tc qdisc add dev {interface} root netem loss {percent}%");
        }
        script
    }
}

/// What a command runs with.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) role: Role,
    pub(super) loss_percent: Option<f32>,
    pub(super) directory: &'a Path,
    /// Variables of the environment.
    pub(super) variables: &'a [(String, String)],
    pub(super) command: &'a [String],
    /// By which the machine's own reports are known.
    pub(super) token: &'a str,
}

impl Job<'_> {
    /// The script, for bash.
    pub(super) fn script(&self) -> String {
        let mut script = String::from("set -e\n");
        for (name, value) in self.variables {
            let _ = writeln!(script, "export {name}={}", quoted(value));
        }
        // The port takes one opener: a process of its own holds it, so that the command may open its output
        // anew, and leave others behind that hold it open.
        script.push_str("exec 4<>/dev/vport0p1\nexec 3> >(exec cat >&4) </dev/null >&3 2>&1\n");
        script.push_str("PATH=$PATH:/usr/sbin:/sbin\n");
        script.push_str(&self.role.devices(self.loss_percent));
        let _ = writeln!(script, "export SOFTROCE_SERVER={SERVER_ADDRESS} FARSIGHT_VERBS=1");
        if self.role != Role::Alone {
            let _ = writeln!(script, "export SOFTROCE_CLIENT={CLIENT_ADDRESS} FARSIGHT_VERBS_CABLE={CABLE}");
        }
        let _ = writeln!(script, "ulimit -l unlimited\ncd {}", quoted(&self.directory.to_string_lossy()));
        let _ = writeln!(script, "printf '%s ready\\n' {}\nread -r go <&4\nset +e", self.token);
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        let _ = writeln!(script, "{} 4>&-", words.join(" "));
        let _ = writeln!(script, "printf '%s %d\\n' {} $?\nsleep infinity", self.token);
        script
    }
}

/// `word` as the shell reads it back, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_shell_reads_back_what_was_quoted() {
        for word in ["plain", "", "two words", "it's", "a\nb", "$HOME `x` \"y\" \\ *"] {
            let printed = Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output();
            assert_eq!(String::from_utf8_lossy(&printed.unwrap().stdout), word);
        }
    }

    #[test]
    fn a_script_has_the_command_between_its_reports() {
        let job = Job {
            role: Role::Client,
            loss_percent: Some(2.5),
            directory: Path::new("/some where"),
            variables: &[("RUST_BACKTRACE".to_owned(), "1".to_owned())],
            command: &["echo".to_owned(), "a b".to_owned()],
            token: "x",
        };
        let script = job.script();
        let places: Vec<usize> = [
            "export RUST_BACKTRACE='1'\n",
            "ip address add 10.77.0.2/24 dev eth0\n",
            "netem loss 2.5%\n",
            "cd '/some where'\n",
            "printf '%s ready\\n' x\n",
            "'echo' 'a b' 4>&-\n",
            "printf '%s %d\\n' x $?\n",
        ]
        .iter()
        .map(|part| script.find(part).unwrap_or_else(|| panic!("{part} in {script}")))
        .collect();
        assert!(places.is_sorted(), "{script}");
    }

    #[test]
    fn two_machines_meet_at_one_socket() {
        let network = |role: Role| role.network("name").join(" ");
        assert!(network(Role::Server).contains("server=on,addr.type=unix,addr.path=name,"));
        assert!(network(Role::Client).contains("server=off,addr.type=unix,addr.path=name,"));
        assert_eq!(network(Role::Alone), "-nic none");
    }
}
