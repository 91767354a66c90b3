//! What can go wrong between two nodes, with the evidence.

use std::time::Duration;

use farsight_base::{RegionId, RemoteAddress};

/// A failure of the fabric. None of them says anything about stored data. An operation that ends in one may
/// be tried again, but for a call that was sent and not answered: its outcome is unknown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FabricError {
    /// The peer is gone: it died, stopped, or closed the connection. A server may be back at its address, in
    /// a new epoch.
    #[error(
        "the connection to {peer} is lost: {reason}. Whatever answers there from now on may be of another epoch"
    )]
    Disconnected {
        /// The peer's address, as the user gave it.
        peer: String,
        /// How that was noticed.
        reason: String,
    },
    /// The peer lives and wants nothing more of this client: it fenced it, or the client broke a rule.
    #[error("{peer} ended its connection with this client: {reason}. Only a new client can connect again")]
    Dismissed {
        /// The peer's address, as the user gave it.
        peer: String,
        /// Its words.
        reason: String,
    },
    /// The peer lives but did not answer in time.
    #[error(
        "{peer} did not answer {what} within {waited:?}. Is it overloaded or stopped, or the way there cut? \
         Outcome unknown"
    )]
    TimedOut {
        /// The peer's address.
        peer: String,
        /// What was waited for.
        what: &'static str,
        /// The bound that was reached.
        waited: Duration,
    },
    /// A verb named bytes outside a region, or one the region's rights forbid. The connection is dead
    /// afterwards, as it is on RDMA.
    #[error("{verb} of {length_bytes} B at {address} was refused: {reason}")]
    AccessDenied {
        /// The verb's name.
        verb: &'static str,
        /// Where it was aimed.
        address: RemoteAddress,
        /// How much it requested.
        length_bytes: u64,
        /// Why it was refused.
        reason: String,
    },
    /// A verb named a region that this queue pair has not attached.
    #[error("{region} is not attached to the connection with {peer}")]
    UnknownRegion {
        /// The peer's address.
        peer: String,
        /// The region named.
        region: RegionId,
    },
    /// A verb named a region that the peer has withdrawn: what was there is no more, and nothing takes its
    /// number again.
    #[error(
        "{region} is withdrawn: {peer} no longer has what was there. Ask the server for its tables again"
    )]
    RegionWithdrawn {
        /// The peer's address.
        peer: String,
        /// The region named.
        region: RegionId,
    },
    /// A request or reply larger than the fabric carries in one piece.
    #[error(
        "a message of {length_bytes} B exceeds this fabric's limit of {limit_bytes} B: send fewer operations a call"
    )]
    TooLarge {
        /// The message's size.
        length_bytes: usize,
        /// What fits.
        limit_bytes: usize,
    },
    /// The client was used in a child process after `fork`.
    #[error(
        "this client belongs to the process that connected it, not to its forked child: connect again in the child"
    )]
    Forked,
    /// The peer broke the protocol: what it sent is not what this version understands.
    #[error(
        "{peer} sent something unintelligible: {what} (expected {expected}, got {got}). Is it a farsight server of \
         the same version, at one of the URLs that it printed?"
    )]
    Protocol {
        /// The peer's address.
        peer: String,
        /// What was being read.
        what: &'static str,
        /// What was expected there.
        expected: String,
        /// What stood there.
        got: String,
    },
    /// The peer refused the connection and said why.
    #[error("{peer} refused the connection: {reason}")]
    Refused {
        /// The peer's address.
        peer: String,
        /// Its words.
        reason: String,
    },
    /// Another user's process serves there, and this client does not trust that user. Nothing was sent to it.
    #[error(
        "{peer} is served by a process of uid {uid}, and this client trusts uid {trusted} alone: does another user \
         listen there in your server's place? If not, let the client trust uid {uid}, too (ConnectOptions::server_uids, \
         farsight --server-uid {uid}, FARSIGHT_SERVER_UID={uid})",
        trusted = trusted.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    )]
    UntrustedServer {
        /// The peer's address, as the user gave it.
        peer: String,
        /// Its user, by the kernel's word.
        uid: u32,
        /// The users that this client trusts.
        trusted: Vec<u32>,
    },
    /// The process has as much memory as it may have.
    #[error(
        "the memory limit of this node is {limit_bytes} B: it has {used_bytes} B, keeps {kept_bytes} B for other uses, and \
         would need {wanted_bytes} B more. Drop tables, remove pairs, or start it with a higher limit"
    )]
    MemoryLimit {
        /// Bytes that the process may have.
        limit_bytes: u64,
        /// Bytes that it has.
        used_bytes: u64,
        /// Bytes of those that it has not, which are for something else.
        kept_bytes: u64,
        /// Bytes that it would need more.
        wanted_bytes: u64,
    },
    /// The operating system said no.
    #[error("{what} failed: {source_text}. {remedy}")]
    System {
        /// The step.
        what: String,
        /// The system's error.
        source_text: String,
        /// What to do about it.
        remedy: String,
    },
}
