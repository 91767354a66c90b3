//! What a client is told unasked while it goes on: regions that are withdrawn, and the newest notice.
//!
//! Invariant: a client is told of each withdrawn region that it attached, once, and of no other; of notices
//! it is told the newest. Nothing blocks, and what waits for a client that does not read is bounded: by the
//! regions that it attached, and [`UNTOLD_MAX`].
//!
//! Protocol: packets go from the server to the client alone, over a socket pair of which the client got its
//! end with the welcome. What finds no room waits until there is some.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;

use farsight_base::RegionId;
use farsight_fabric_host::REGIONS_MAX;

use crate::control::FromServer;
use crate::socket;

/// Withdrawn regions that wait to be told; a client that leaves more unread is dismissed.
const UNTOLD_MAX: usize = REGIONS_MAX;

/// What sending came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// Nothing waits.
    All,
    /// The rest waits for room.
    InPart,
}

/// One client's news.
#[derive(Debug)]
pub(crate) struct News {
    socket: OwnedFd,
    /// The regions that it was given and that are not withdrawn.
    attached: BTreeSet<RegionId>,
    untold: VecDeque<RegionId>,
    untold_notice: Option<u64>,
    /// True while the host waits for room on the socket.
    pub(crate) is_awaited: bool,
}

impl News {
    /// News, and the end that the client gets.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (socket, client_end) = socket::news_pair()?;
        let (attached, untold) = (BTreeSet::new(), VecDeque::new());
        Ok((Self { socket, attached, untold, untold_notice: None, is_awaited: false }, client_end))
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Notes that the client got a region.
    pub(crate) fn attached(&mut self, region: RegionId) {
        self.attached.insert(region);
    }

    /// A region is withdrawn. Returns whether there is something to tell.
    ///
    /// # Errors
    /// Why the client has to go.
    pub(crate) fn withdrawn(&mut self, region: RegionId) -> Result<bool, String> {
        if !self.attached.remove(&region) {
            return Ok(false);
        }
        if self.untold.len() == UNTOLD_MAX {
            return Err(format!("{UNTOLD_MAX} withdrawn regions wait for it to read of them"));
        }
        self.untold.push_back(region);
        Ok(true)
    }

    /// There is a newer notice.
    pub(crate) fn notify(&mut self, number: u64) {
        self.untold_notice = Some(number);
    }

    /// Tells what there is room for.
    pub(crate) fn tell(&mut self) -> Told {
        while let Some(message) = self.next() {
            match socket::send(&self.socket, &message.encode(), &[]) {
                Ok(()) => self.forget_next(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Told::InPart,
                // The client has gone, or has closed this socket and misses it.
                Err(_) => (self.untold, self.untold_notice) = (VecDeque::new(), None),
            }
        }
        Told::All
    }

    /// Withdrawals first: a notice may be the reason to ask for what is there instead.
    fn next(&self) -> Option<FromServer> {
        let withdrawn = self.untold.front().map(|region| FromServer::Withdrawn { region: *region });
        withdrawn.or(self.untold_notice.map(|number| FromServer::Notice { number }))
    }

    fn forget_next(&mut self) {
        if self.untold.pop_front().is_none() {
            self.untold_notice = None;
        }
    }
}
