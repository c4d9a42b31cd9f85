//! Connections: members of a run should be linked directly, since bulk goes from one to the next.

use std::time::{Duration, Instant};

use super::Driver;
use crate::{
    base::NodeId,
    net::{Multiaddr, split_peer},
};

/// Between two tries at a peer that cannot be dialled.
const REDIAL: Duration = Duration::from_secs(10);
/// How long a look into the distributed table may take.
const LOOKUP: Duration = Duration::from_secs(8);

impl Driver {
    /// Tells others where this node can be dialled.
    pub(super) fn addresses_changed(&mut self) {
        let addresses = self.net.addresses();
        let plain = addresses.iter().filter_map(|addr| split_peer(addr).ok());
        let texts: Vec<String> = plain.map(|(_, addr)| addr.to_string()).collect();
        let now = self.clock.now();
        self.node.set_addresses(now, texts);
    }

    /// Dials a live peer at the addresses of its presence, if there is no connection.
    pub(super) fn dial_present(&mut self, node: NodeId) {
        let Some(peer) = self.node.roster().get(node) else { return };
        let recently = self.dialled.get(&node).is_some_and(|at| at.elapsed() < REDIAL);
        if self.net.is_connected(node) || recently {
            return;
        }
        let addresses: Vec<Multiaddr> = peer
            .presence
            .addresses
            .iter()
            .filter_map(|text| std::str::from_utf8(text).ok()?.parse().ok())
            .collect();
        if self.dialled.len() >= crate::base::limits::MAX_ROSTER {
            self.dialled.clear();
        }
        self.dialled.insert(node, Instant::now());
        let net = self.net.clone();
        self.tasks.spawn(async move {
            if let Err(error) = net.dial(node, addresses).await {
                tracing::debug!("{} cannot be dialled: {error}", node.short());
            }
        });
    }

    /// Looks after connections: dials live peers, and asks the table for members of the run when
    /// few are known.
    pub(super) fn upkeep(&mut self) {
        let live: Vec<NodeId> = self.node.roster().iter().map(|(node, _)| node).collect();
        for node in live {
            self.dial_present(node);
        }
        if self.node.roster().len() < 3 {
            self.look_up();
        }
        self.waiting_streams.retain(|(since, ..)| since.elapsed() < super::STREAM_PATIENCE);
        self.say_if_stuck();
    }

    /// Dials the nodes that are listed for this run in the distributed table.
    fn look_up(&mut self) {
        let (net, run) = (self.net.clone(), self.founded.run_id());
        self.tasks.spawn(async move {
            let Ok(providers) = net.find_providers(run.0, LOOKUP).await else { return };
            for node in providers {
                if node == net.node_id() || net.is_connected(node) {
                    continue;
                }
                if let Ok(addresses) = net.find_peer(node).await {
                    let _ = net.dial(node, addresses).await;
                }
            }
        });
    }
}
