//! A node's way between the two keepers of its pool's map.
//!
//! Invariant: each step looks at everything anew, and leaves nothing to be remembered but the lease. So it
//! does not matter which changes were missed, by a watch that was lost or while etcd was away.
//!
//! Protocol, of one step:
//! 1. Renew the lease. There is none, or it has ended: take a new one, and register under it.
//! 2. Read all that etcd has. The node is not among it, or under another lease: register.
//! 3. Offer the node what etcd has: the addresses of its own pool's nodes.
//! 4. Offer etcd the node's map. If somebody else was first, go on at 2, a bounded number of times.
//! 5. Take the coordinator's lease, if the node is that, and nobody has it.
//! 6. Watch for changes from what was read, unless a watch goes on.

use std::sync::Arc;

use crate::{ClusterError, Etcd, Keeper, Known, Lease, Member, Offered, Watch};

/// How long a lease is good for without being renewed. etcd has a least one of about two seconds.
const LEASE_S: u32 = 5;
/// Others that are first, in one step at most: more than a pool has nodes.
const ATTEMPTS_MAX: usize = 20;

/// A node that is registered in etcd; dropping it lets its lease end by itself.
pub struct Registration {
    etcd: Etcd,
    member: Member,
    lease: Option<Lease>,
    watch: Option<Watch>,
    news: Arc<dyn Fn() + Send + Sync>,
}

/// What a step has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Both keepers have one map, as far as there is one.
    Agreed,
    /// Not yet: the node's map is older than that of etcd, or others have changed it again and again.
    Behind,
}

impl Registration {
    /// Of a node that says this of itself. `news` is called when the next step should come at once.
    ///
    /// # Errors
    /// [`ClusterError::Member`].
    pub fn new(
        etcd: Etcd,
        member: Member,
        news: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, ClusterError> {
        member.check().map_err(ClusterError::Member)?;
        Ok(Self { etcd, member, lease: None, watch: None, news: Arc::new(news) })
    }

    /// Where it is registered.
    #[must_use]
    pub fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// One step. It is repeated well within the time of a lease, whatever comes of it.
    ///
    /// # Errors
    /// [`ClusterError`]; [`ClusterError::NameTaken`] if another pool has the name.
    pub fn step(&mut self, node: &mut impl Keeper, is_coordinator: bool) -> Result<Standing, ClusterError> {
        let lease = self.leased()?;
        for _ in 0..ATTEMPTS_MAX {
            let known = self.etcd.read()?;
            if known.node(self.member.epoch).is_none_or(|node| node.lease != lease.0) {
                if !self.register(lease)? {
                    break;
                }
                continue;
            }
            let standing = match self.exchange(&known, node)? {
                Offered::Changed => continue,
                Offered::Has => Standing::Agreed,
                Offered::KeepsIts => Standing::Behind,
            };
            if is_coordinator && known.coordinator().is_none() {
                self.etcd.coordinate(self.member.epoch, lease)?;
            }
            if self.watch.as_ref().is_none_or(Watch::is_over) {
                let news = Arc::clone(&self.news);
                self.watch = Some(self.etcd.watch(&known, move || news())?);
            }
            return Ok(standing);
        }
        // Others were first each time, or the lease has ended since: the next step goes on.
        Ok(Standing::Behind)
    }

    /// Brings each keeper what the other has that is newer.
    fn exchange(&mut self, known: &Known, node: &mut impl Keeper) -> Result<Offered, ClusterError> {
        if let Some(map) = known.pool() {
            node.offer(&map.with_addresses(known.addresses(map)), known)?;
        }
        let Some(own) = node.map()? else { return Ok(Offered::Has) };
        let offered = self.etcd.offer(&own, known)?;
        match known.pool() {
            Some(map) if offered == Offered::KeepsIts && map.pool() != own.pool() => {
                let (name, pool) = (self.etcd.url().name().to_owned(), map.pool());
                Err(ClusterError::NameTaken { name, pool, own: own.pool() })
            }
            _ => Ok(offered),
        }
    }

    /// A lease that goes on.
    fn leased(&mut self) -> Result<Lease, ClusterError> {
        if let Some(lease) = self.lease
            && self.etcd.renew(lease)?
        {
            return Ok(lease);
        }
        self.lease = None;
        let lease = self.etcd.grant(LEASE_S)?;
        self.lease = Some(lease);
        self.register(lease)?;
        Ok(lease)
    }

    /// False if the lease has ended: the next step takes a new one.
    fn register(&mut self, lease: Lease) -> Result<bool, ClusterError> {
        let is_registered = self.etcd.register(&self.member, lease)?;
        if !is_registered {
            self.lease = None;
        }
        Ok(is_registered)
    }

    /// Ends the lease, so that nobody has to wait for its end.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn end(mut self) -> Result<(), ClusterError> {
        self.watch = None;
        self.lease.take().map_or(Ok(()), |lease| self.etcd.revoke(lease))
    }
}
