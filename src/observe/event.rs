//! What a node says about itself. `EVENTS.md` describes every field; a test holds both together.

use serde::{Deserialize, Serialize};

use crate::base::{Attempt, Digest, NodeId, Round, RunId};

/// One thing that happened. Byte counts are of the wire, real and not nominal; times are seconds
/// of the local monotonic clock; a number that is not finite is `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The process accepts peers.
    Started {
        /// The node's public key.
        node_id: NodeId,
        /// The same key as libp2p writes it.
        peer_id: String,
        /// `node` or `bootstrap`.
        role: String,
        /// The run, if it is known by then.
        run_id: Option<RunId>,
        /// Multiaddrs with peer id under which others reach the node.
        listen: Vec<String>,
        /// The command with which another machine joins.
        join_command: String,
        /// Address of the local HTTP endpoint, if there is one.
        http: Option<String>,
        /// The data directory.
        data_dir: String,
        /// The program's version.
        version: String,
    },
    /// Nothing can be done until somebody else does something.
    Waiting {
        /// What is waited for.
        what: String,
        /// Seconds since it is.
        seconds: f64,
        /// What a person can do.
        remedy: String,
    },
    /// A bootstrap peer does not answer; it is tried again.
    BootstrapUnreachable {
        /// Its multiaddr.
        address: String,
        /// The last error.
        error: String,
        /// Attempts so far.
        attempts: u32,
        /// Seconds until the next attempt.
        retry_seconds: f64,
        /// What a person can do.
        remedy: String,
    },
    /// This node has founded a run.
    Founded {
        /// The run.
        run_id: RunId,
        /// Its name.
        name: String,
        /// Parameters of its model.
        parameters: u64,
        /// Rounds in all.
        rounds: Round,
    },
    /// This node goes on with the run in its data directory.
    Resumed {
        /// The run.
        run_id: RunId,
        /// Its name.
        name: String,
        /// The newest round folded.
        round: Round,
        /// Parameters of its model.
        parameters: u64,
        /// Rounds in all.
        rounds: Round,
    },
    /// State is being fetched from peers.
    SyncProgress {
        /// The newest round folded.
        round: Round,
        /// The newest round known.
        target_round: Round,
        /// Bytes fetched.
        bytes: u64,
        /// Bytes to fetch in all, as far as known.
        total_bytes: u64,
        /// Peers that are being fetched from.
        donors: usize,
    },
    /// State and ledger are up to date: this node trains from here on.
    Joined {
        /// The run.
        run_id: RunId,
        /// Its name.
        name: String,
        /// The newest round folded.
        round: Round,
        /// Members of that round.
        members: usize,
        /// Parameters of the run's model.
        parameters: u64,
        /// Rounds in all.
        rounds: Round,
        /// Seconds since the node first asked.
        seconds: f64,
        /// Bytes fetched.
        bytes: u64,
    },
    /// One inner step. The only event that is dropped when the reader is slow.
    Step {
        /// The segment's round.
        round: Round,
        /// Steps done in this segment.
        step: u32,
        /// H of this segment.
        local_steps: u32,
        /// Mean training loss of the step, in nats a token.
        loss: f64,
        /// Norm of the gradient before clipping.
        gradient_norm: f64,
        /// Learning rate of the step.
        learning_rate: f64,
        /// Tokens trained on.
        tokens: u64,
        /// Seconds that the step took.
        seconds: f64,
    },
    /// This node's part in an exchange is over.
    Exchange {
        /// The round.
        round: Round,
        /// Members of the exchange.
        members: usize,
        /// The attempt that succeeded.
        attempt: Attempt,
        /// Bytes sent for it, over all attempts.
        bytes_sent: u64,
        /// Bytes received for it, over all attempts.
        bytes_received: u64,
        /// Bytes that one f32 ring over the same members would have sent: 8 * parameters *
        /// (members - 1) / members.
        dense_bytes: u64,
        /// Inner steps of the segment that was exchanged.
        local_steps: u32,
        /// Seconds from Ready to the last frame.
        seconds: f64,
    },
    /// A round is committed and its delta folded.
    Committed {
        /// The round.
        round: Round,
        /// Members of the round.
        members: usize,
        /// State root after the round.
        state_root: Digest,
        /// Sequences trained on in this and all earlier rounds.
        cumulative_weight: u64,
        /// Whether the fold replays what was committed before this node was there.
        replayed: bool,
    },
    /// The validation loss of an anchor; round 0 is genesis.
    Validated {
        /// The anchor's round.
        round: Round,
        /// Mean loss on held-out text, in nats a token.
        validation_loss: f64,
        /// Seconds that it took.
        seconds: f64,
    },
    /// A segment of local training is over.
    Round {
        /// The round.
        round: Round,
        /// Mean training loss of the segment, in nats a token.
        loss: f64,
        /// Loss of the newest anchor that was validated, in nats a token, if any.
        validation_loss: Option<f64>,
        /// That anchor's round.
        validated_round: Option<Round>,
        /// Inner steps done.
        local_steps: u32,
        /// Tokens trained on.
        tokens: u64,
        /// Seconds spent on training.
        train_seconds: f64,
        /// Seconds in which training waited for the network.
        stall_seconds: f64,
        /// train_seconds / (train_seconds + stall_seconds).
        utilization: f64,
    },
    /// A contribution missed its exchange; it goes into the next one.
    Missed {
        /// The round.
        round: Round,
        /// Why.
        reason: String,
    },
    /// A rule left training data unused for this epoch.
    DataSkipped {
        /// The round.
        round: Round,
        /// Sequences left out.
        sequences: u64,
        /// The rule.
        reason: String,
    },
    /// A peer of the run is alive.
    PeerJoined {
        /// Who.
        peer: NodeId,
        /// Live replicas now, this one included.
        live: usize,
    },
    /// A peer of the run is gone.
    PeerLeft {
        /// Who.
        peer: NodeId,
        /// Why: it said goodbye, its presence has expired, ...
        reason: String,
        /// Live replicas now, this one included.
        live: usize,
    },
    /// A snapshot is written.
    Snapshot {
        /// State after this round.
        round: Round,
        /// Bytes on the disk.
        bytes: u64,
        /// Seconds that it took.
        seconds: f64,
    },
    /// Text that the model wrote.
    Generated {
        /// The anchor's round.
        round: Round,
        /// What it goes on from.
        prompt: String,
        /// What it added.
        text: String,
    },
    /// Nothing has moved for longer than it should.
    Stuck {
        /// What the node is doing.
        phase: String,
        /// What is missing.
        missing: String,
        /// Seconds since something moved.
        seconds: f64,
        /// What a person can do.
        remedy: String,
    },
    /// Something is not as it should be, and the node goes on.
    Warning {
        /// What.
        what: String,
        /// What a person can do.
        remedy: String,
    },
    /// The reader of the events was too slow and some were left out.
    EventsDropped {
        /// `step` events left out since the start.
        steps: u64,
        /// Other events left out since the start.
        others: u64,
    },
    /// The run's last round is committed and this node is about to exit.
    Finished {
        /// The run.
        run_id: RunId,
        /// The last round.
        round: Round,
        /// State root after it.
        state_root: Digest,
        /// Loss of the final anchor, in nats a token, if it was validated.
        validation_loss: Option<f64>,
        /// Bytes sent to peers, in all.
        bytes_sent: u64,
        /// Bytes received from peers, in all.
        bytes_received: u64,
        /// Seconds spent on training, in all.
        train_seconds: f64,
        /// Seconds in which training waited for the network, in all.
        stall_seconds: f64,
    },
    /// The node ends before its run does.
    Stopped {
        /// Why.
        reason: String,
        /// The newest round folded.
        round: Round,
    },
    /// Only `demo`: a process was started.
    DemoStarted {
        /// The process's name in the demo.
        node: String,
        /// The system's process id.
        pid: u32,
    },
    /// Only `demo`: a process was killed on purpose.
    DemoKilled {
        /// The process's name in the demo.
        node: String,
        /// The newest committed round by then.
        round: Round,
    },
    /// Only `demo`: the last line.
    DemoResult(DemoResult),
}

/// What a demo came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DemoResult {
    /// Training nodes started, the killed and the joined one included.
    pub nodes: usize,
    /// The newest round that a node committed.
    pub rounds: Round,
    /// Validation loss of genesis, in nats a token.
    pub first_loss: Option<f64>,
    /// Validation loss of the final anchor, in nats a token.
    pub last_loss: Option<f64>,
    /// Whether all nodes had the same state root after each round.
    pub state_roots_equal: bool,
    /// (node, round) pairs that were compared with another node's.
    pub roots_compared: u64,
    /// Mean bytes that a node sent for one exchange.
    pub bytes_per_node_per_round: f64,
    /// Bytes of an f32 ring at every inner step over the bytes sent; null if none were.
    pub compression_ratio: Option<f64>,
    /// Training time over training and stall time, of all nodes.
    pub utilization: f64,
}

/// An event with the time at which it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stamped {
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
    /// Unix time in seconds. Machines' clocks differ; it is for people.
    pub time: f64,
}

impl Stamped {
    /// The event, now.
    pub fn now(event: Event) -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self { event, time: since.map_or(0.0, |since| since.as_millis() as f64 / 1e3) }
    }

    /// The event as one line of JSON, without the line's end.
    ///
    /// # Panics
    /// Never: an event is plain data.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("an event is plain data")
    }
}
