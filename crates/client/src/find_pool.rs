//! Some addresses to all nodes of a pool, in its order.
//!
//! Invariant: what a map says of addresses is a hint. A client that goes by it compares the epochs of all
//! nodes with their places, as it does with a list that its user gave. So a map that is old or wrong costs an
//! error, never an answer.
//!
//! Protocol (docs/protocol/cluster.md):
//! 1. Ask each node that was given what it knows of the map. Those that know a pool know the same one.
//! 2. The map with the greatest number counts. A node that was given stands where its epoch does, and is
//!    reached as its user said. The others are reached as the map says.
//! 3. Nobody knows addresses, or a node stands where the map has another: those that were given are all.
//!    Their epochs give the order, where nodes know one.

use farsight_fabric::lane::NODES_MAX;
use farsight_fabric::{Connection, FabricError};
use farsight_protocol::{ControlRequest, PoolMap, PoolPlace};

use crate::ask::Asker;
use crate::connect::scheme_of;
use crate::{CatalogueError, Dial, DialTo, PoolError};

/// The nodes of a pool.
pub struct FoundPool<C> {
    /// Connections to them in their order, or why one was not reached.
    pub reached: Vec<Result<C, FabricError>>,
    /// Ways to them.
    pub dial: Dial<C>,
    /// Addresses that were given of nodes that have no pool, and that the map does not have.
    pub strangers: Vec<String>,
}

/// An address that was given, and what answers there; that is taken once.
struct Given<C> {
    address: String,
    reached: Option<Result<C, FabricError>>,
    map: Option<PoolMap>,
}

/// Finds all nodes of the pool to which those at the `given` addresses belong: some of them, in any order.
///
/// # Errors
/// [`PoolError`]; what a node refuses. A node that is not reached is no error here.
pub fn find_pool<C: Connection>(given: Vec<String>, to: DialTo<C>) -> Result<FoundPool<C>, CatalogueError> {
    if !(1..=NODES_MAX).contains(&given.len()) {
        return Err(PoolError::Count { max: NODES_MAX, got: given.len() }.into());
    }
    let mut given: Vec<_> = given.into_iter().map(|at| Given::ask(at, &to)).collect::<Result<_, _>>()?;
    let Some(map) = newest(&given)?.cloned() else { return Ok(as_given(given, to)) };
    let places = places(&given, map.place.as_ref())?;
    let nodes = map.place.as_ref().map_or(map.addresses.0.len(), |place| place.epochs.len());
    if !map.addresses.are_known() {
        if given.len() == nodes {
            in_order(&mut given, &places);
        }
        return Ok(as_given(given, to));
    }
    let scheme = scheme_of(&given[0].address).to_owned();
    let (mut reached, mut addresses) = (Vec::new(), Vec::new());
    for place in 0..nodes {
        let at = places.iter().position(|own| *own == Some(place));
        let at_address = |address: &str| given.iter().position(|given| given.address == address);
        // Where a node is that stands elsewhere, another one was before.
        let is_its_own = |address: &&str| at_address(address).is_none_or(|at| places[at].is_none());
        let known = map.addresses.by_scheme(place, &scheme).filter(is_its_own);
        let is_free = |at: &usize| places[*at].is_none() && given[*at].reached.is_some();
        let of_all = || (0..given.len()).find(|at| given.len() == nodes && is_free(at));
        let at = at.or_else(|| known.map_or_else(of_all, at_address));
        let address = match at {
            Some(at) => given[at].address.clone(),
            None => known.ok_or_else(|| PoolError::NoAddress { place, scheme: scheme.clone() })?.to_owned(),
        };
        reached.push(at.and_then(|at| given[at].reached.take()).unwrap_or_else(|| to(&address)));
        addresses.push(address);
    }
    let is_stranger = |given: &Given<C>| {
        matches!(given.reached, Some(Ok(_))) && given.map.as_ref().is_some_and(|map| map.pool.is_none())
    };
    // Before the first table nobody is known by an epoch: another name of a node looks like another node.
    let strangers = given.into_iter().filter(|given| map.pool.is_some() && is_stranger(given));
    let strangers = strangers.map(|given| given.address).collect();
    Ok(FoundPool { reached, dial: Dial::new(addresses, to), strangers })
}

impl<C: Connection> Given<C> {
    fn ask(address: String, to: &DialTo<C>) -> Result<Self, CatalogueError> {
        let asked = to(&address).map_err(CatalogueError::from).and_then(|connection| {
            let map: PoolMap = Asker::new(&connection)?.ask(&connection, &ControlRequest::Map)?;
            Ok((connection, map))
        });
        let (reached, map) = match asked {
            Ok((_, map)) if !map.is_sound() => return Err(PoolError::UnsoundMap { peer: address }.into()),
            Ok((connection, map)) => (Ok(connection), Some(map)),
            Err(CatalogueError::Fabric(error)) => (Err(error), None),
            Err(error) => return Err(error),
        };
        Ok(Self { address, reached: Some(reached), map })
    }
}

/// The map that counts. Without one nobody knows a pool, nor addresses.
fn newest<C>(given: &[Given<C>]) -> Result<Option<&PoolMap>, PoolError> {
    let maps = || given.iter().filter_map(|given| given.map.as_ref().map(|map| (given, map)));
    let of_pools = || maps().filter(|(_, map)| map.pool.is_some());
    let Some((first, named)) = of_pools().next() else {
        return Ok(maps().map(|(_, map)| map).find(|map| map.addresses.are_known()));
    };
    if let Some((second, _)) = of_pools().find(|(_, map)| map.pool != named.pool) {
        let (first, second) = (first.address.clone(), second.address.clone());
        return Err(PoolError::TwoPools { first, second });
    }
    // Of equal ones the first that was given.
    let number = |map: &PoolMap| (map.term, map.addresses.are_known());
    let newer = |best, map| if number(map) > number(best) { map } else { best };
    Ok(Some(of_pools().map(|(_, map)| map).fold(named, newer)))
}

/// Where each of the given nodes stands in the pool's list, by their epochs.
fn places<C>(given: &[Given<C>], list: Option<&PoolPlace>) -> Result<Vec<Option<usize>>, PoolError> {
    let Some(list) = list else { return Ok(vec![None; given.len()]) };
    let place = |given: &Given<C>| {
        let epoch = given.map.as_ref()?.epoch;
        list.epochs.iter().position(|known| *known == epoch)
    };
    let places: Vec<Option<usize>> = given.iter().map(place).collect();
    for (at, place) in places.iter().enumerate().filter(|(_, place)| place.is_some()) {
        if let Some(twin) = places[..at].iter().position(|other| other == place) {
            let (first, second) = (given[twin].address.clone(), given[at].address.clone());
            return Err(PoolError::SameNode { first, second });
        }
    }
    Ok(places)
}

/// Moves nodes to their places, and the others to those that are left, in their order.
fn in_order<C>(given: &mut Vec<Given<C>>, places: &[Option<usize>]) {
    let mut free = (0..places.len()).filter(|place| !places.contains(&Some(*place)));
    let places = places.iter().map(|place| place.or_else(|| free.next()));
    let mut sorted: Vec<_> = places.zip(given.drain(..)).collect();
    sorted.sort_by_key(|(place, _)| *place);
    given.extend(sorted.into_iter().map(|(_, given)| given));
}

/// The addresses that were given are the pool's.
fn as_given<C>(given: Vec<Given<C>>, to: DialTo<C>) -> FoundPool<C> {
    let addresses = given.iter().map(|given| given.address.clone()).collect();
    let reached = given.into_iter().filter_map(|given| given.reached).collect();
    FoundPool { reached, dial: Dial::new(addresses, to), strangers: Vec::new() }
}
