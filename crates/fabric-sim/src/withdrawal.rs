//! Regions that a server withdraws, and numbers that it tells: who has heard of what, when.
//!
//! Invariant: each client hears within [`HEARD_BITS_MAX`] binary digits of nanoseconds, at a moment of its
//! own. Until then its READs bring the region's own bytes. [`KEPT_NS`] after the withdrawal the memory is
//! gone: a verb that executes later finds nothing, however long before it was sent.

use std::sync::Arc;

use farsight_base::RegionId;
use farsight_base::prng::mix;
use farsight_fabric::{Region as _, RegionRights};

use crate::history::History;
use crate::region::SimRegion;
use crate::state::{Event, HostState, State};
use crate::trace::{Who, Words};

/// The latest hears after so many binary digits of nanoseconds: half a second, of the second promised.
const HEARD_BITS_MAX: u64 = 29;
/// The soonest, likewise: a microsecond.
const HEARD_BITS_MIN: u64 = 10;
/// How long the memory of a withdrawn region stays.
const KEPT_NS: u64 = 1_000_000_000;
/// The number of memory that is gone: no region's.
const GONE: RegionId = RegionId(0);

/// Something that a server told all clients.
#[derive(Clone, Copy, Debug)]
struct News {
    at_ns: u64,
    /// What the clients' moments are drawn from.
    seed: u64,
}

impl News {
    /// When a client hears: most of them soon, and some late.
    fn heard_ns(self, client: usize) -> u64 {
        let drawn = mix(self.seed ^ client as u64);
        let bits = HEARD_BITS_MIN + drawn % (HEARD_BITS_MAX - HEARD_BITS_MIN + 1);
        self.at_ns + (drawn >> 8) % (1 << bits)
    }

    /// True once every client has heard.
    fn is_old(self, now_ns: u64) -> bool {
        now_ns >= self.at_ns + (1 << HEARD_BITS_MAX)
    }
}

/// What one server told.
#[derive(Default, Debug)]
pub(crate) struct Announced {
    /// Regions that are withdrawn and whose memory is still there, by index.
    withdrawn: Vec<(usize, News)>,
    /// Regions whose memory is gone.
    gone: usize,
    /// Numbers of which some clients may not have heard.
    numbers: Vec<(u64, News)>,
    /// The greatest of those that all have heard of.
    number: u64,
}

impl HostState {
    /// Regions that are neither withdrawn nor gone.
    pub(crate) fn living_regions(&self) -> usize {
        self.regions.len() - self.announced.gone - self.announced.withdrawn.len()
    }

    /// True of a region whose memory is gone.
    pub(crate) fn is_gone(&self, region: usize) -> bool {
        self.regions[region].0.id() == GONE
    }

    /// True of a region that the server no longer has.
    pub(crate) fn is_withdrawn(&self, region: usize) -> bool {
        self.is_gone(region) || self.announced.withdrawn.iter().any(|(index, _)| *index == region)
    }

    /// True once `client` has heard that the region is withdrawn.
    fn is_known_withdrawn(&self, region: usize, client: usize, now_ns: u64) -> bool {
        let heard = |(index, news): &(usize, News)| *index == region && news.heard_ns(client) <= now_ns;
        self.is_gone(region) || self.announced.withdrawn.iter().any(heard)
    }

    /// A number that a region had before; only a server with a bug gives it to another.
    #[cfg(injected)]
    pub(crate) fn take_used_number(&mut self) -> Option<usize> {
        Some(self.announced.withdrawn.pop()?.0)
    }
}

impl State {
    /// The server gives up a region; false if it has none of that number.
    pub(crate) fn withdraw_region(&mut self, host: usize, region: RegionId) -> bool {
        let index = (region.0 as usize).wrapping_sub(1);
        if index >= self.hosts[host].regions.len() || self.hosts[host].is_withdrawn(index) {
            return false;
        }
        let news = self.news();
        self.hosts[host].announced.withdrawn.push((index, news));
        self.trace.note(news.at_ns, [15, host as u64, index as u64], || {
            Words::new(Who::Host(host), format!("withdraws {region}"))
        });
        self.schedule(news.at_ns + KEPT_NS, Event::Forget { host, region: index });
        true
    }

    /// The memory of a withdrawn region goes.
    pub(crate) fn forget_region(&mut self, host: usize, region: usize) {
        let own = &mut self.hosts[host];
        let count = own.announced.withdrawn.len();
        own.announced.withdrawn.retain(|(index, _)| *index != region);
        if own.announced.withdrawn.len() == count {
            return;
        }
        own.announced.gone += 1;
        let nothing = SimRegion::new(GONE, 0, RegionRights::ReadOnly, 0);
        own.regions[region] = (Arc::new(nothing), History::default());
        self.trace.note(self.now_ns, [16, host as u64, region as u64], || {
            Words::new(Who::Host(host), format!("has lost the memory of region {}", region + 1))
        });
    }

    /// True once the client of `pair` has heard that the region is withdrawn.
    pub(crate) fn has_heard_withdrawn(&self, pair: usize, region: usize) -> bool {
        let client = self.pairs[pair].client;
        self.hosts[self.clients[client].host].is_known_withdrawn(region, client, self.now_ns)
    }

    /// The server tells all clients a number.
    pub(crate) fn notify(&mut self, host: usize, number: u64) {
        let news = self.news();
        let own = &mut self.hosts[host].announced;
        for (number, _) in own.numbers.extract_if(.., |(_, told)| told.is_old(news.at_ns)) {
            own.number = own.number.max(number);
        }
        let newest = own.numbers.last().map_or(own.number, |(number, _)| *number);
        if number > newest.max(own.number) {
            own.numbers.push((number, news));
        }
    }

    /// The greatest number of which the client of `pair` has heard.
    pub(crate) fn notice(&self, pair: usize) -> u64 {
        let client = self.pairs[pair].client;
        let own = &self.hosts[self.clients[client].host].announced;
        let heard = own.numbers.iter().filter(|(_, news)| news.heard_ns(client) <= self.now_ns);
        heard.map(|(number, _)| *number).fold(own.number, u64::max)
    }

    fn news(&mut self) -> News {
        News { at_ns: self.now_ns, seed: self.random.next_u64() }
    }
}
