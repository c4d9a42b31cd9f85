//! What the handle, the owner task and the streams see together: counters, limits, who is connected.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use libp2p::Multiaddr;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    base::NodeId,
    net::{NetConfig, limiter::RateLimiter},
};

/// State shared by a network's handle, its owner task and its streams.
#[derive(Debug)]
pub(super) struct Shared {
    /// This node.
    pub(super) me: NodeId,
    /// Byte and drop counters.
    pub(super) counters: Counters,
    /// Bytes per second that may leave.
    pub(super) upload: RateLimiter,
    /// Bytes per second that may arrive.
    pub(super) download: RateLimiter,
    /// Injected one-way latency of bulk frames.
    pub(super) test_latency: Option<Duration>,
    /// How long a bulk sender waits without progress.
    pub(super) bulk_stall: Duration,
    /// Every task of this network.
    pub(super) tasks: TaskTracker,
    /// Cancelled at shutdown.
    pub(super) stop: CancellationToken,
    view: RwLock<View>,
}

/// What callers may look at without asking the owner task.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Connected peers, with when they last made progress on a bulk stream.
    pub(super) connected: BTreeMap<NodeId, Arc<Activity>>,
    /// Addresses listened on, with the peer id.
    pub(super) listeners: Vec<Multiaddr>,
    /// Addresses that the operator named, with the peer id.
    pub(super) external: Vec<Multiaddr>,
}

impl Shared {
    /// The state of a network that has not started.
    pub(super) fn new(config: &NetConfig) -> Self {
        Self {
            me: config.identity.node_id(),
            counters: Counters::default(),
            upload: RateLimiter::new(config.upload_limit),
            download: RateLimiter::new(config.download_limit),
            test_latency: config.test_latency,
            bulk_stall: config.limits.bulk_stall,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            view: RwLock::default(),
        }
    }

    /// The view, to read.
    pub(super) fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The view, to change; only the owner task does.
    pub(super) fn view_mut(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The activity record of a peer; a loose one if it is not connected.
    pub(super) fn activity(&self, node: NodeId) -> Arc<Activity> {
        self.view().connected.get(&node).cloned().unwrap_or_default()
    }
}

/// When bytes last moved on a peer's bulk streams, in either direction.
#[derive(Debug)]
pub(super) struct Activity {
    since: Instant,
    last_ms: AtomicU64,
}

impl Default for Activity {
    fn default() -> Self {
        Self { since: Instant::now(), last_ms: AtomicU64::new(0) }
    }
}

impl Activity {
    /// Notes that bytes moved.
    pub(super) fn touch(&self) {
        self.last_ms.store(self.now_ms(), Relaxed);
    }

    /// Whether bytes moved within the last `window`.
    pub(super) fn within(&self, window: Duration) -> bool {
        let last = self.last_ms.load(Relaxed);
        last > 0 && u128::from(self.now_ms() - last) < window.as_millis()
    }

    fn now_ms(&self) -> u64 {
        // Never 0, which stands for "no bytes yet".
        self.since.elapsed().as_millis() as u64 + 1
    }
}

/// Bytes moved and events dropped since start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of bulk frames sent, with their lengths.
    pub bulk_sent: u64,
    /// Bytes of bulk frames received, with their lengths.
    pub bulk_received: u64,
    /// Payload bytes of messages, requests, replies and gossip sent; gossip counts once, however
    /// many peers it goes to.
    pub control_sent: u64,
    /// Payload bytes of messages, requests, replies and gossip received, without gossip duplicates.
    pub control_received: u64,
    /// Bytes written to sockets: everything, with encryption, framing, duplicates and upkeep.
    pub wire_sent: u64,
    /// Bytes read from sockets.
    pub wire_received: u64,
    /// Gossip dropped because the consumer was slow.
    pub gossip_dropped: u64,
    /// Messages, requests and streams refused because the consumer was slow.
    pub refused_busy: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        /// The live counters behind [`Traffic`].
        #[derive(Debug, Default)]
        pub(super) struct Counters { $($name: AtomicU64),* }

        impl Counters {
            $(
                /// Adds to the counter of this name.
                pub(super) fn $name(&self, amount: usize) {
                    self.$name.fetch_add(amount as u64, Relaxed);
                }
            )*

            /// All counters now.
            pub(super) fn snapshot(&self) -> Traffic {
                Traffic { $($name: self.$name.load(Relaxed)),* }
            }
        }
    };
}

counters!(
    bulk_sent,
    bulk_received,
    control_sent,
    control_received,
    wire_sent,
    wire_received,
    gossip_dropped,
    refused_busy
);
