//! What a call costs a server's core, from what it asks and what it got.

use farsight_base::LeafNumber;
use farsight_fabric_sim::EnginePrices;
use farsight_protocol::{CallId, Reply, Request, WriteEntries};

/// A core's time for a call, in picoseconds.
///
/// A bulk load's entries and control requests cost no more than a call: both happen before a run.
pub(super) fn core_ps(prices: &EnginePrices, request: &[u8], reply: &[u8]) -> u64 {
    let count = |number: usize| number as u64;
    let opened = CallId::open(request).and_then(|(_, request)| Request::decode(request));
    let work_ps = match opened {
        Ok(Request::Get { keys, .. }) => count(keys.len()) * (prices.core_descent_ps + prices.core_pair_ps),
        Ok(Request::Scan { .. }) => {
            let pairs = Reply::decode(reply).ok().and_then(Result::ok).map_or(0, |reply| reply.count);
            prices.core_descent_ps + u64::from(pairs) * prices.core_pair_ps
        }
        Ok(Request::Write { entries, .. }) => {
            let descents = count(descents(&entries, reply));
            count(entries.len()) * prices.core_write_entry_ps + descents * prices.core_descent_ps
        }
        Ok(Request::Delegate { entries, .. } | Request::Find { entries, .. }) => {
            count(entries.len()) * prices.core_pair_ps
        }
        Ok(Request::Lookup { .. }) => prices.core_descent_ps + prices.core_pair_ps,
        _ => 0,
    };
    prices.core_call_ps + work_ps + count(reply.len()) * prices.core_reply_byte_ps
}

/// Entries whose hint did not lead to their leaf, or that had none.
fn descents(entries: &WriteEntries<'_>, reply: &[u8]) -> usize {
    let reply = Reply::decode(reply).ok().and_then(Result::ok);
    let outcomes = reply.and_then(|reply| reply.outcomes(entries.len()).ok());
    // A call that was refused did not go down.
    let Some(outcomes) = outcomes else { return 0 };
    let is_lost = |hint: LeafNumber, is_wrong: bool| hint == LeafNumber::NONE || is_wrong;
    entries
        .iter()
        .zip(outcomes)
        .filter(|(entry, outcome)| is_lost(entry.hint, outcome.as_ref().is_ok_and(|sent| sent.is_hint_wrong)))
        .count()
}

#[cfg(test)]
mod tests {
    use farsight_fabric_sim::Profile;
    use farsight_protocol::{
        AuthorId, Direction, ReplyWriter, SentOutcome, TableId, WriteEntry, WriteOperation, WriteOutcome,
    };

    use super::*;

    fn prices() -> EnginePrices {
        EnginePrices {
            core_call_ps: 1,
            core_descent_ps: 10,
            core_pair_ps: 100,
            core_write_entry_ps: 1_000,
            core_reply_byte_ps: 0,
            ..Profile::load("cx4x2").expect("an own profile").engine_prices()
        }
    }

    #[test]
    fn a_call_costs_what_it_does() {
        let mut request = Vec::new();
        Request::get(&mut request, TableId(0), &[1, 2, 3]);
        assert_eq!(core_ps(&prices(), &request, &[]), 1 + 3 * 110);
        let mut reply = Vec::new();
        let mut writer = ReplyWriter::new(&mut reply);
        for key in 0..4 {
            writer.push_pair(key, 1, &[0; 8]);
        }
        writer.set(4, 0);
        Request::scan(&mut request, TableId(0), Direction::Ascending, 0, 9);
        assert_eq!(core_ps(&prices(), &request, &reply), 1 + 10 + 4 * 100);
        assert_eq!(core_ps(&prices(), &[], &[]), 1);
        let bytes = EnginePrices { core_reply_byte_ps: 7, ..prices() };
        assert_eq!(core_ps(&bytes, &[], &[0; 50]), 1 + 350);
    }

    #[test]
    fn only_entries_without_a_good_hint_go_down() {
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        let entries = [(LeafNumber(5), false), (LeafNumber(6), true), (LeafNumber::NONE, false)];
        Request::begin_write(&mut request, TableId(0), WriteOperation::Put, entries.len(), 8);
        let mut writer = ReplyWriter::new(&mut reply);
        for (hint, is_hint_wrong) in entries {
            WriteEntries::push(&mut request, WriteEntry { key: 1, hint, value: &[0; 8] });
            writer.push_outcome(SentOutcome { outcome: WriteOutcome::Replaced(3), is_hint_wrong });
        }
        writer.set(3, 0);
        assert_eq!(core_ps(&prices(), &request, &reply), 1 + 3 * 1_000 + 2 * 10);
        CallId { author: AuthorId(1), connection: 0, sequence: 1, unanswered: 1 }.enclose(&mut request);
        assert_eq!(core_ps(&prices(), &request, &reply), 1 + 3 * 1_000 + 2 * 10, "and in an envelope");
    }
}
