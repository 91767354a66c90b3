//! GETs with which another compute node helps: it says where a key stands, or what it holds.
//!
//! Invariant: an *address* that another compute node says is a hint, as one that is remembered
//! ([`crate::recall`]): the READ of the slot decides. Nobody uses it for anything before that READ. That a
//! key is *absent*, or what it *holds*, is the other one's answer. It READ that itself, behind the call and
//! before its reply.
//!
//! Protocol: of the keys of a stage that no kept value and no address answers, those go to other compute
//! nodes whose partitions they have, one call each. What is answered is done, or has an address. All else is
//! looked up here. So is what was refused or lost: a read that is executed twice changes nothing.

use farsight_fabric::QueuePair;
use farsight_index::{Answers, Key, ReadsByOthers};
use farsight_layout::hash_index::{BUCKET_SLOTS, COMBINED_BUCKETS, HashSlot, SlotPlace};
use farsight_protocol::{
    DELEGATE_BYTES, DelegatedEntries, DelegatedEntry, FindWanted, HEADER_BYTES, PairsReader, Reply,
    ReplyWriter, Request, SentAddress,
};

use crate::addresses::Address;
use crate::get::{Answering, StagedGet};
#[cfg(injected)]
use crate::injected;
use crate::proxied::{ProxyCall, ProxyCalls};
use crate::table::KeyLines;
use crate::{FlexError, FlexSession};

/// The version of an address that another compute node said. No pair has it.
pub(crate) const VERSION_UNSAID: u64 = 0;

/// The keys of a stage that one compute node is to find, by their numbers there.
struct Asked {
    proxy: usize,
    indexes: Vec<usize>,
}

impl FlexSession {
    /// Who helps with GETs, and how; none if nobody does.
    pub(crate) fn helpers(&self) -> Option<(&dyn ProxyCalls, FindWanted)> {
        let proxies = self.proxies.as_deref()?;
        let wanted = match proxies.reads() {
            ReadsByOthers::None => return None,
            ReadsByOthers::Addresses => FindWanted::Addresses,
            ReadsByOthers::Values => FindWanted::Values,
        };
        proxies.refresh()?;
        Some((proxies, wanted))
    }

    /// Asks other compute nodes for keys of a stage, of which the first has the number `first` in its batch.
    pub(crate) fn ask_helpers(
        &self,
        (proxies, wanted): (&dyn ProxyCalls, FindWanted),
        (first, keys): (usize, &[Key<'_>]),
        staged: &mut [StagedGet],
        answering: &mut Answering<'_>,
    ) {
        let mut asked: Vec<Asked> = Vec::new();
        for (index, staged) in staged.iter().enumerate() {
            let of = staged.of();
            if !staged.is_open() || wanted == FindWanted::Addresses && self.known_address(of).is_some() {
                continue;
            }
            let Some(proxy) = proxies.helper_of(of.hash.partition()) else { continue };
            match asked.iter_mut().find(|asked| asked.proxy == proxy) {
                Some(asked) => asked.indexes.push(index),
                None => asked.push(Asked { proxy, indexes: vec![index] }),
            }
        }
        let room_bytes = proxies.message_bytes_max();
        let (mut frame, mut reply) = (Vec::new(), Vec::new());
        let answers_max = (room_bytes - HEADER_BYTES) / self.answer_bytes_max(wanted);
        asked.retain_mut(|asked| {
            asked.fit(keys, (room_bytes, answers_max));
            !asked.indexes.is_empty() && asked.send(proxies, (wanted, keys), &mut frame)
        });
        // Each answer is received, whatever the others are: a way has one call under way.
        for asked in &asked {
            self.count(|counters| counters.calls_to_others += 1);
            let is_received = proxies.receive(asked.proxy, &mut reply, ProxyCall::Look).is_ok();
            let found = if is_received { Reply::decode(&reply).ok().and_then(Result::ok) } else { None };
            let found = found.and_then(|answer| match wanted {
                FindWanted::Addresses => self.take_addresses(asked, &answer, staged),
                FindWanted::Values => Self::take_values(asked, &answer, (first, keys), staged, answering),
            });
            match found {
                Some(found) => self.count(|counters| counters.found_by_others += found),
                // It failed, refused, or said what is no answer.
                None => proxies.leave_out(asked.proxy),
            }
        }
    }

    /// Bytes of the answer to one key at most.
    fn answer_bytes_max(&self, wanted: FindWanted) -> usize {
        match wanted {
            FindWanted::Addresses => SentAddress::WORDS * size_of::<u64>(),
            FindWanted::Values => {
                let values = self.table.values();
                ReplyWriter::exchanged_value_bytes(values.deadline_bytes() + values.bytes_max())
            }
        }
    }

    /// Takes addresses that a compute node said: of how many keys it knew something; `None` if that is no
    /// answer. Of the other keys the buckets tell.
    fn take_addresses(&self, asked: &Asked, answer: &Reply<'_>, staged: &mut [StagedGet]) -> Option<u64> {
        let mut found = 0;
        for (index, address) in asked.indexes.iter().zip(answer.addresses(asked.indexes.len()).ok()?) {
            let of = staged[*index].of();
            match address {
                SentAddress::Absent => staged[*index].set_answered(),
                SentAddress::At { line, slot, word } => {
                    let line = self.table.shape(of.shard).line_in(of.subtable, line);
                    let (place, word, version) = (SlotPlace { line, slot }, HashSlot(word), VERSION_UNSAID);
                    if !is_of_key(of, place) {
                        continue;
                    }
                    staged[*index].set_said(Address { place, word, version });
                }
                SentAddress::Unknown => continue,
            }
            found += 1;
        }
        Some(found)
    }

    /// Takes values that a compute node said: of how many keys; `None` if that is no answer. All behind one
    /// that is none are looked up here.
    fn take_values(
        asked: &Asked,
        answer: &Reply<'_>,
        (first, keys): (usize, &[Key<'_>]),
        staged: &mut [StagedGet],
        answering: &mut Answering<'_>,
    ) -> Option<u64> {
        let mut values = PairsReader::of_any_length(answer.words().ok()?);
        for index in &asked.indexes {
            let (version, value) = values.value().ok()?;
            if version > 0 {
                answering.answer(first + index, keys[*index], version, value).ok()?;
            }
            staged[*index].set_answered();
        }
        Some(asked.indexes.len() as u64)
    }

    /// Where keys stand, for another compute node: as is remembered, or READ now.
    pub(crate) fn locate<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        keys: &[Key<'_>],
        found: &mut Vec<SentAddress>,
    ) -> Result<(), FlexError> {
        self.addresses.borrow_mut().refresh();
        let remembered = |key: &Key<'_>| self.known_address(self.table.lines_of(*key));
        let unknown: Vec<usize> =
            (0..keys.len()).filter(|index| remembered(&keys[*index]).is_none()).collect();
        let wanted: Vec<Key<'_>> = unknown.iter().map(|index| keys[*index]).collect();
        let mut answers = Answers::default();
        #[cfg(injected)]
        if injected::ABSENT_UNREAD.is_injected() {
            found.extend(keys.iter().map(|key| match remembered(key) {
                None => SentAddress::Absent,
                Some(_) => SentAddress::Unknown,
            }));
            return Ok(());
        }
        if !wanted.is_empty() {
            self.multi_get(queues, &wanted, &mut answers)?;
        }
        let is_absent =
            |index: usize| unknown.binary_search(&index).is_ok_and(|number| answers.get(number).is_none());
        found.extend(keys.iter().enumerate().map(|(index, key)| match remembered(key) {
            _ if is_absent(index) => SentAddress::Absent,
            None => SentAddress::Unknown,
            Some(Address { place: SlotPlace { line, slot }, word, .. }) => {
                SentAddress::At { line, slot, word: word.0 }
            }
        }));
        Ok(())
    }
}

/// True if the key may stand there.
fn is_of_key(of: KeyLines, place: SlotPlace) -> bool {
    let is_in = |first: u32| (first..first + COMBINED_BUCKETS as u32).contains(&place.line);
    usize::from(place.slot) < BUCKET_SLOTS && of.first_lines.into_iter().any(is_in)
}

impl Asked {
    /// Keeps the first keys that a message carries, and whose answers one does.
    fn fit(&mut self, keys: &[Key<'_>], (mut room_bytes, answers_max): (usize, usize)) {
        room_bytes -= DELEGATE_BYTES;
        let fits = |index: &&usize| {
            let bytes = DelegatedEntries::entry_bytes(keys[**index].as_bytes().len(), 0);
            let fits = bytes <= room_bytes;
            room_bytes = room_bytes.saturating_sub(bytes);
            fits
        };
        let count = self.indexes.iter().take(answers_max).take_while(fits).count();
        self.indexes.truncate(count);
    }

    /// Sends the call. False if the compute node was not reached.
    fn send(
        &self,
        proxies: &dyn ProxyCalls,
        (wanted, keys): (FindWanted, &[Key<'_>]),
        frame: &mut Vec<u8>,
    ) -> bool {
        Request::begin_find(frame, proxies.table(), wanted, self.indexes.len());
        for index in &self.indexes {
            DelegatedEntries::push(frame, DelegatedEntry { key: keys[*index].as_bytes(), operand: &[] });
        }
        let is_sent = proxies.send(self.proxy, frame, ProxyCall::Look).is_ok();
        if !is_sent {
            proxies.leave_out(self.proxy);
        }
        is_sent
    }
}
