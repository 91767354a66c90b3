//! Steps of taking a new node in.

use farsight_base::ClientId;
use farsight_protocol::{ReplyWriter, ServerError, TakeIn};

use super::Calls;

impl Calls {
    pub(super) fn take_in(
        &self,
        client: ClientId,
        step: TakeIn,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<(), ServerError> {
        let (state, now) = (&*self.state, self.now);
        match step {
            TakeIn::Begin { epochs, addresses } => {
                answer.push_control(&state.begin_taking_in(epochs, addresses, now)?);
            }
            TakeIn::Know { attempt } => state.know_attempt(attempt)?,
            TakeIn::Hear { attempt } => state.hear_attempt(attempt, now)?,
            TakeIn::Close { attempt } => answer.push_control(&state.close_for(attempt, now)?),
            TakeIn::EndFormer { attempt, newest } => {
                answer.push_control(&state.end_former(attempt, newest)?);
            }
            TakeIn::Register { attempt, lost } => {
                answer.push_control(&state.register_taker(client, attempt, lost, now)?);
            }
            TakeIn::Receive { attempt, place, pool, term, lost, addresses } => {
                state.receive(attempt, (place, pool, addresses), term, lost)?;
            }
            TakeIn::Table { attempt, id, layout } => {
                let table = state.receive_table(attempt, id, layout)?;
                answer.push_control(&table.info());
                state.background.raise();
            }
            TakeIn::Pieces { attempt, table, pieces } => state.receive_pieces(attempt, table, &pieces)?,
            TakeIn::Whole { attempt, newest, next_table, left } => {
                state.end_receiving(attempt, newest, next_table, &left)?;
            }
            TakeIn::Commit { attempt } => answer.push_control(&state.commit(attempt, now)?),
            TakeIn::Adopt { epochs, term, lost, by, addresses } => {
                answer.push_control(&state.adopt((epochs, addresses), term, lost, by)?);
            }
        }
        Ok(())
    }
}
