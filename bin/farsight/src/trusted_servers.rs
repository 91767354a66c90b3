//! Whose servers a client trusts, from the command line.

use clap::Args;

/// Users besides this one and root.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TrustedServers {
    /// A user, by number, whose servers at shm:// addresses are trusted besides this user's own and root's;
    /// repeatable, or with commas between
    #[arg(long = "server-uid", value_name = "UID", env = "FARSIGHT_SERVER_UID", value_delimiter = ',')]
    pub(crate) uids: Vec<u32>,
}
