//! Look-ups in the distributed table under way.

use libp2p::{
    Multiaddr, PeerId,
    kad::{
        self, GetClosestPeersError, GetClosestPeersOk, GetProvidersOk, GetRecordError, GetRecordOk,
        PeerInfo, QueryId, QueryResult,
    },
};
use tokio::{sync::mpsc, time::Instant};

use super::{Owner, REPROVIDE_PAUSE};
use crate::{
    base::NodeId,
    net::{NetError, address::node_of, command::Answer},
};

/// What a look-up is for.
pub(super) enum Query {
    /// Who is listed under a key.
    Providers(mpsc::Sender<NodeId>),
    /// A small value.
    Get(Answer<Option<Vec<u8>>, NetError>),
    /// Storing a small value.
    Put(Answer<(), NetError>),
    /// A peer's addresses.
    Peer(PeerId, Answer<Vec<Multiaddr>, NetError>),
}

impl Owner {
    /// Something happened in the distributed table.
    pub(super) fn on_kad(&mut self, event: kad::Event) {
        match event {
            kad::Event::OutboundQueryProgressed { id, result, step, .. } => {
                self.on_query(id, result, step.last);
            }
            kad::Event::RoutingUpdated { is_new_peer: true, .. } if !self.provided.is_empty() => {
                self.reprovide_at.get_or_insert_with(|| Instant::now() + REPROVIDE_PAUSE);
            }
            _ => {}
        }
    }

    fn on_query(&mut self, id: QueryId, result: QueryResult, last: bool) {
        let Some(query) = self.queries.remove(&id) else { return };
        let open = match (query, result) {
            (Query::Providers(found), QueryResult::GetProviders(result)) => {
                self.on_providers(found, result)
            }
            (Query::Get(answer), QueryResult::GetRecord(result)) => on_record(answer, result),
            (Query::Put(answer), QueryResult::PutRecord(result)) => {
                let result = result.map(drop).map_err(|error| NetError::Table(error.to_string()));
                drop(answer.send(result));
                None
            }
            (Query::Peer(peer, answer), QueryResult::GetClosestPeers(result)) => {
                let (Ok(GetClosestPeersOk { peers, .. })
                | Err(GetClosestPeersError::Timeout { peers, .. })) = result;
                drop(answer.send(Ok(self.learn_peer(peer, peers))));
                None
            }
            (query, _) => Some(query),
        };
        match open {
            Some(query) if !last => drop(self.queries.insert(id, query)),
            _ => self.finish_query(id),
        }
    }

    /// Ends a look-up whose answer is known.
    fn finish_query(&mut self, id: QueryId) {
        if let Some(mut query) = self.swarm.behaviour_mut().kad.query_mut(&id) {
            query.finish();
        }
    }

    fn on_providers(
        &self,
        found: mpsc::Sender<NodeId>,
        result: kad::GetProvidersResult,
    ) -> Option<Query> {
        if let Ok(GetProvidersOk::FoundProviders { providers, .. }) = result {
            let nodes = providers.iter().filter_map(node_of);
            for node in nodes.filter(|node| *node != self.shared.me) {
                // A full channel has more finds than the caller can want.
                let _ = found.try_send(node);
            }
        }
        (!found.is_closed()).then_some(Query::Providers(found))
    }

    fn learn_peer(&mut self, peer: PeerId, peers: Vec<PeerInfo>) -> Vec<Multiaddr> {
        let addrs = peers.into_iter().find(|info| info.peer_id == peer).map(|info| info.addrs);
        let addrs = addrs.unwrap_or_default();
        let swarm = &self.swarm;
        for addr in &addrs {
            self.book.add(peer, addr.clone(), |other| swarm.is_connected(other));
        }
        addrs
    }
}

fn on_record(
    answer: Answer<Option<Vec<u8>>, NetError>,
    result: kad::GetRecordResult,
) -> Option<Query> {
    let outcome = match result {
        Ok(GetRecordOk::FoundRecord(found)) => Ok(Some(found.record.value)),
        Ok(GetRecordOk::FinishedWithNoAdditionalRecord { .. })
        | Err(GetRecordError::NotFound { .. }) => Ok(None),
        Err(error) => Err(NetError::Table(error.to_string())),
    };
    drop(answer.send(outcome));
    None
}
