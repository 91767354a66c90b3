//! What compute nodes of a pool ask: their numbers, blocks, objects, and fences.

use farsight_base::{ClientId, Epoch};
use farsight_protocol::{ComputeNode, ControlRequest, ErrorCode, LostNodes, ReplyWriter, ServerError, Space};

use super::Calls;
use crate::compute_nodes::Identity;

impl Calls {
    pub(super) fn pool(
        &self,
        client: ClientId,
        request: ControlRequest,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<(), ServerError> {
        let state = &*self.state;
        let hosted = |id| self.view.get(id)?.blocks();
        let owner = || state.owner(client);
        match request {
            ControlRequest::Register { lost } => {
                let mut view = state.pool_view();
                view.check(lost)?;
                view.taking_in.check_open(self.now)?;
                let pool = state.tables.pool().unwrap_or(state.tables.epoch());
                answer.push_control(&state.compute_nodes().register(pool, client)?);
            }
            ControlRequest::Announce { coordinator, compute_node, lost } => {
                let identity = Identity { coordinator: Epoch(coordinator), compute_node };
                state.check_coordinator(identity.coordinator)?;
                let is_coordinator = state.is_coordinator();
                let view = state.pool_view();
                view.check(lost)?;
                view.taking_in.check_whole()?;
                state.compute_nodes().announce(client, identity, is_coordinator)?;
            }
            ControlRequest::RegisterAgain { lost } => {
                answer.push_control(&self.register_again(client, lost)?);
            }
            ControlRequest::AnnounceAgain { coordinator, compute_node, lost } => {
                let identity = Identity { coordinator: Epoch(coordinator), compute_node };
                self.announce_again(client, identity, lost)?;
            }
            ControlRequest::Allocate { table, space, count } => {
                answer.push_control(&hosted(table)?.allocate(owner()?, space, count)?);
                if space == Space::Leaves {
                    // Its table grows.
                    state.own_pool.raise();
                }
            }
            ControlRequest::Free { table, space, claim, blocks } => {
                answer.push_control(&hosted(table)?.free((owner()?, claim), space, &blocks)?);
            }
            ControlRequest::Adopt { table, space, known, blocks } => {
                answer.push_control(&hosted(table)?.adopt((owner()?, known), space, &blocks)?);
            }
            ControlRequest::Pin { table, space, claim, blocks } => {
                hosted(table)?.pin((owner()?, claim), space, &blocks)?;
            }
            ControlRequest::Ended { table, space } => {
                answer.push_control(&hosted(table)?.ended(space)?);
            }
            ControlRequest::TakeOrphans { table, space, of } => {
                answer.push_control(&hosted(table)?.take_orphans(owner()?, space, of)?);
            }
            ControlRequest::Fence { coordinator, compute_node, seen } => {
                let identity = Identity { coordinator: Epoch(coordinator), compute_node };
                if state.compute_nodes().has(client, identity)? {
                    let text = format!("{compute_node} asks to be fenced itself: it need only disconnect");
                    return Err(ServerError::new(ErrorCode::BadRequest, text));
                }
                answer.push_control(&state.fence(identity, seen, self.now)?);
            }
            ControlRequest::Renew { lost, is_whole } => {
                owner()?;
                answer.push_control(&state.renew(lost, is_whole, self.now));
            }
            ControlRequest::LeaveOut { lost, term } => {
                answer.push_control(&state.leave_out(lost, term, self.now)?);
            }
            ControlRequest::TakeIn(step) => self.take_in(client, step, answer)?,
            of_objects => self.objects(client, of_objects, answer)?,
        }
        Ok(())
    }

    /// Another number for this client's compute node.
    fn register_again(&self, client: ClientId, lost: LostNodes) -> Result<ComputeNode, ServerError> {
        let mut view = self.state.pool_view();
        view.check(lost)?;
        view.taking_in.check_open(self.now)?;
        self.state.owner(client)?;
        self.state.compute_nodes().register_again(client)
    }

    /// Another number of this client's compute node, which the coordinator gave.
    fn announce_again(
        &self,
        client: ClientId,
        identity: Identity,
        lost: LostNodes,
    ) -> Result<(), ServerError> {
        let view = self.state.pool_view();
        view.check(lost)?;
        view.taking_in.check_whole()?;
        self.state.owner(client)?;
        self.state.compute_nodes().announce_again(client, identity)
    }

    /// What compute nodes request of a hash table.
    fn objects(
        &self,
        client: ClientId,
        request: ControlRequest,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<(), ServerError> {
        let state = &*self.state;
        let owner = || state.owner(client);
        match request {
            ControlRequest::ExchangeObjects { table, shard, lines, count, published, freed } => {
                let objects = self.view.get(table)?.objects()?;
                let who = (owner()?, state.who_may_read(self.now));
                let (wanted, what) = ((lines, count), (&published[..], &freed[..]));
                let given = objects.exchange(shard.into(), who, wanted, what, self.now)?;
                answer.push_control(&given);
            }
            ControlRequest::Settled { table, shard, number } => {
                owner()?;
                self.view.get(table)?.objects()?.settled(shard.into(), number)?;
            }
            ControlRequest::FencedOwners { table, shard, owners } => {
                owner()?;
                self.view.get(table)?.objects()?.fenced(shard.into(), &owners)?;
            }
            ControlRequest::BeginSplit { table, partition, subtable } => {
                let objects = self.view.get(table)?.objects()?;
                let who = (owner()?, state.who_may_read(self.now));
                let which = (usize::from(partition), u32::from(subtable));
                answer.push_control(&objects.begin_split(who, which, self.now)?);
            }
            ControlRequest::EndSplit { table, shard, units } => {
                self.view.get(table)?.objects()?.end_split(shard.into(), owner()?, units)?;
            }
            ControlRequest::KeepValues { table } => {
                self.view.get(table)?.objects()?.keep_values(owner()?);
            }
            ControlRequest::OfferProxy(offer) => {
                let objects = self.view.get(offer.table)?.objects()?;
                answer.push_control(&objects.lease_partitions(owner()?, offer, self.now)?);
            }
            ControlRequest::Proxies { table, load } => {
                answer.push_control(&self.view.get(table)?.objects()?.who_proxies(self.now, &load));
            }
            _ => unreachable!("the catalogue's requests are executed before"),
        }
        Ok(())
    }
}
