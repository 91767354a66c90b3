//! Farsight over TCP: a session on a table of a server in another process.

use anyhow::Result;
use farsight::{Answers, Pairs, Session};
use farsight_bench::driver::Load;

use super::{Contestant, Question, Work, check};

pub(super) fn contestant(work: Work, load: &Load) -> Result<Box<dyn Contestant>> {
    let session = load.table.session(load.options)?;
    Ok(match work {
        Work::Get => Box::new(Gets { session, keys: Vec::new(), answers: Answers::default() }),
        Work::Lookup => Box::new(Lookups { session, scans: Vec::new(), pairs: Pairs::default() }),
    })
}

struct Gets {
    session: Session<u64>,
    keys: Vec<u64>,
    answers: Answers,
}

impl Contestant for Gets {
    fn ask(&mut self, questions: &[Question]) -> Result<()> {
        if let [question] = questions {
            let mut value = [0; 8];
            let version = self.session.get_into(question.asked, &mut value)?;
            return check(question, question.asked, version.map(|_| u64::from_le_bytes(value)));
        }
        self.keys.clear();
        self.keys.extend(questions.iter().map(|question| question.asked));
        self.session.multi_get(&self.keys, &mut self.answers)?;
        for (index, question) in questions.iter().enumerate() {
            let value = self.answers.get(index).and_then(|(value, _)| number(value));
            check(question, question.asked, value)?;
        }
        Ok(())
    }
}

struct Lookups {
    session: Session<u64>,
    scans: Vec<(u64, usize)>,
    pairs: Pairs<u64>,
}

impl Contestant for Lookups {
    fn ask(&mut self, questions: &[Question]) -> Result<()> {
        self.scans.clear();
        self.scans.extend(questions.iter().map(|question| (question.asked, 1)));
        self.session.scan_batch(&self.scans, &mut self.pairs)?;
        for (index, question) in questions.iter().enumerate() {
            let found = self.pairs.scan(index).next();
            let (key, value) = found.map_or((question.asked, None), |pair| (pair.key, number(pair.value)));
            check(question, key, value)?;
        }
        Ok(())
    }
}

/// The number in a value of eight bytes.
fn number(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_le_bytes)
}
