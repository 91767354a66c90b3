//! The network between programs and servers: whole, cut both ways or one, for a while.
//!
//! Invariant: what is sent arrives, late if need be, or its connection is lost. A card repeats what is not
//! acknowledged for [`Timing::repeats_ns`](crate::Timing::repeats_ns) and then gives up. Verbs that were sent
//! into a cut did not execute, verbs whose completions were cut off did. Where WRITEs keep their order, no
//! WRITE behind an abandoned one executes.

use std::ops::Range;

use crate::fault::Fault;
use crate::state::{Event, State};

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    ToServer,
    ToProgram,
}

/// A cut.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    host: usize,
    /// The program that is cut off; `None`: every one.
    group: Option<usize>,
    /// The way that is cut; `None`: both.
    way: Option<Way>,
    during_ns: Range<u64>,
}

/// The most cuts of a link that flaps: each lasts up to such a part of all.
const FLAPS_MAX: u64 = 6;

/// What may strike the network.
const NETWORK_FAULTS: u64 = Fault::CutServer.bit()
    | Fault::CutProgram.bit()
    | Fault::CutToServer.bit()
    | Fault::CutToProgram.bit()
    | Fault::FlappingLink.bit()
    | Fault::GrayServer.bit();

/// Times that a gray server takes for everything.
pub(crate) const GRAY_TIMES: u64 = 100;

impl State {
    /// When what leaves at `leaves_ns` arrives; `None` if the card gives up, which loses the connection.
    pub(crate) fn crossing_ns(&mut self, client: usize, way: Way, leaves_ns: u64) -> Option<u64> {
        let host = self.clients[client].host;
        let travels_ns = self.way_ns() * self.slowness(host);
        if self.cuts.is_empty() {
            return Some(leaves_ns + travels_ns);
        }
        let group = self.clients[client].group;
        let mut sent_ns = leaves_ns;
        // Cuts may overlap: each is left once.
        while let Some(until_ns) = self.cut_until(host, group, way, sent_ns) {
            sent_ns = until_ns;
        }
        if sent_ns - leaves_ns <= self.timing.repeats_ns {
            return Some(sent_ns + travels_ns);
        }
        let why = "the network was cut for longer than a card repeats";
        self.schedule(leaves_ns + self.timing.repeats_ns, Event::Lose { client, why });
        None
    }

    /// The end of a cut that stops what is sent at `at_ns`.
    fn cut_until(&self, host: usize, group: Option<usize>, way: Way, at_ns: u64) -> Option<u64> {
        let stops = |cut: &&Cut| {
            cut.host == host
                && cut.during_ns.contains(&at_ns)
                && cut.way.is_none_or(|cut| cut == way)
                && cut.group.is_none_or(|cut| group == Some(cut))
        };
        self.cuts.iter().find(stops).map(|cut| cut.during_ns.end)
    }

    /// True if no connection can be made now.
    pub(crate) fn is_cut(&self, host: usize, group: Option<usize>) -> bool {
        [Way::ToServer, Way::ToProgram]
            .into_iter()
            .any(|way| self.cut_until(host, group, way, self.now_ns).is_some())
    }

    /// How many times as long everything takes at `host` now.
    pub(crate) fn slowness(&self, host: usize) -> u64 {
        if self.hosts[host].gray_until_ns > self.now_ns { GRAY_TIMES } else { 1 }
    }

    /// A program is about to send something: the moment at which the network may fail it.
    pub(crate) fn tempt_network(&mut self, client: usize) {
        if !self.may_strike(NETWORK_FAULTS) {
            return;
        }
        let (host, group) = (self.clients[client].host, self.clients[client].group);
        let kinds = [
            (Fault::CutServer, None, None),
            (Fault::CutProgram, group, None),
            (Fault::CutToServer, group, Some(Way::ToServer)),
            (Fault::CutToProgram, group, Some(Way::ToProgram)),
        ];
        for (fault, group, way) in kinds {
            if let Some(lasts_ns) = self.strike(fault) {
                self.cut(Cut { host, group, way, during_ns: self.now_ns..self.now_ns + lasts_ns });
            }
        }
        if let Some(lasts_ns) = self.strike(Fault::FlappingLink) {
            let flap_ns = lasts_ns / FLAPS_MAX;
            let mut at_ns = self.now_ns;
            for _ in 0..=self.random.below(FLAPS_MAX) {
                let until_ns = at_ns + self.random.below(flap_ns.max(1));
                self.cut(Cut { host, group, way: None, during_ns: at_ns..until_ns });
                at_ns = until_ns + self.random.below(flap_ns.max(1));
            }
        }
        if let Some(lasts_ns) = self.strike(Fault::GrayServer) {
            let own = &mut self.hosts[host];
            own.gray_until_ns = own.gray_until_ns.max(self.now_ns + lasts_ns);
        }
    }

    fn cut(&mut self, cut: Cut) {
        let now_ns = self.now_ns;
        self.cuts.retain(|cut| cut.during_ns.end > now_ns);
        self.cuts.push(cut);
    }
}
