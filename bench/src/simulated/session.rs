//! A session whose thread's work has a price.
//!
//! Of a look-up's work half is done before its READs, predicting, and half behind them, searching; the fabric
//! adds what posting, ringing and completions take.

use farsight::{Access, Answers, ReadError, WriteError, WriteOperation, WriteOutcome};
use farsight_client::{Direction, OpenError, ScanRequest, Session, Table};
use farsight_fabric::Meters;
use farsight_fabric_sim::{EnginePrices, Simulation};
use farsight_index::{Counters, Pairs};
use farsight_oracles::EightBytes;

use super::SimulatedPlan;
use crate::driver::checked_value::CheckedValue;
use crate::driver::store::{PLAIN, Store};

pub(super) struct PricedSession {
    simulation: Simulation,
    session: Session,
    prices: EnginePrices,
    /// The thread's work for a write.
    write_ps: u64,
    is_one_sided: bool,
    requests: Vec<ScanRequest>,
}

impl PricedSession {
    pub(super) fn open(
        simulation: &Simulation,
        table: &Table,
        plan: &SimulatedPlan,
    ) -> Result<Self, OpenError> {
        let prices = plan.profile.engine_prices();
        // A client that writes one-sided finds the leaf and searches it, as for a look-up, and then plans the
        // change.
        let finding_ps = if plan.engine.answers_reads { 0 } else { prices.thread_get_ps };
        Ok(Self {
            simulation: simulation.clone(),
            session: table.session(plan.access)?,
            prices,
            write_ps: prices.thread_write_entry_ps + finding_ps,
            is_one_sided: plan.access == Access::OneSided,
            requests: Vec::new(),
        })
    }

    pub(super) fn meters(&self) -> Meters {
        self.session.meters()
    }

    pub(super) fn counters(&self) -> Counters {
        self.session.counters()
    }

    /// Work on `count` things, if the client does it at all.
    fn charge(&self, count: usize, each_ps: u64) {
        if self.is_one_sided {
            self.simulation.charge(count as u64 * each_ps);
        }
    }
}

impl Store for PricedSession {
    type Embedding = EightBytes;
    const EMBEDDING: EightBytes = PLAIN;
    type Pairs = Pairs;

    fn get(&mut self, key: u64, value: &mut Vec<u8>) -> Result<Option<u64>, ReadError> {
        let half_ps = self.prices.thread_get_ps / 2;
        self.charge(1, half_ps);
        let version = self.session.get(key, value)?;
        self.charge(1, half_ps);
        Ok(version)
    }

    fn write_one(
        &mut self,
        operation: WriteOperation,
        key: u64,
        value: &CheckedValue,
    ) -> Result<WriteOutcome, WriteError> {
        self.charge(1, self.write_ps);
        self.session.write_one(operation, key, value.as_ref())
    }

    fn multi_get(&mut self, keys: &[u64], answers: &mut Answers) -> Result<(), ReadError> {
        let half_ps = self.prices.thread_get_ps / 2;
        self.charge(keys.len(), half_ps);
        self.session.multi_get(keys, answers)?;
        self.charge(keys.len(), half_ps);
        Ok(())
    }

    fn scan_batch(&mut self, scans: &[(u64, usize)], pairs: &mut Pairs) -> Result<(), ReadError> {
        self.requests.clear();
        self.requests.extend(scans.iter().map(|(from, limit)| ScanRequest { from: *from, limit: *limit }));
        self.charge(scans.len(), self.prices.thread_get_ps);
        self.session.scan_batch(Direction::Ascending, &self.requests, pairs)?;
        self.charge(pairs.len(), self.prices.thread_scan_pair_ps);
        Ok(())
    }

    fn found(pairs: &Pairs, index: usize) -> impl Iterator<Item = (u64, &[u8])> {
        pairs.scan(index).map(|pair| (pair.key, pair.value))
    }

    fn write(
        &mut self,
        operation: WriteOperation,
        pairs: &[(u64, CheckedValue)],
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        self.charge(pairs.len(), self.write_ps);
        let entries = pairs.iter().map(|(key, value)| (*key, value.as_ref()));
        self.session.write(operation, entries, outcomes)
    }
}
