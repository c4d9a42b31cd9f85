//! One attempt at one exchange: the ring machine between two bulk streams.
//!
//! ```text
//!   predecessor ══► reader ─► Ring (this task) ─► writer ══► successor
//! ```
//!
//! The task owns the machine. It opens the stream to the successor first, since a member accepts a
//! plan only with an open stream; frames move once it is told to run. Reading waits for the
//! machine and writing for the stream, so a slow neighbour slows the ring down instead of filling
//! memory. At the end the result is written to disk before it is reported.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    clock::Clock,
    meter::{Meter, Spent},
    training::vectors::Shared,
};
use crate::{
    base::{Attempt, Digest, NodeId, Round, Time},
    codec::{Bits, Body, BucketSpec},
    identity::Identity,
    net::{BulkReceiver, BulkSender, BulkStream, IncomingBulk, Net},
    proto::{
        node::RingResult,
        ring::{Ring, RingConfig, RingEvent},
    },
    wire::{BulkHello, Frame, MemberSet, Plan, VERSION, blob::BlobIndex, codec},
};

/// Buckets in flight: four of 4 MiB fill a link of a gigabit and a tenth of a second.
const WINDOW: usize = 4;
/// Frames between the reader and the machine, and between the machine and the writer: one is
/// worked on while the next one moves.
const FRAMES: usize = 2;
/// How long frames that are still to be forwarded may take after the own part is finished.
const DRAIN: Duration = Duration::from_secs(30);

/// What the driver says to a running exchange.
pub(crate) enum Order {
    /// The predecessor's stream.
    Stream(IncomingBulk),
    /// Let frames move.
    Run,
}

/// What an exchange says to the driver.
pub(crate) enum Outcome {
    /// The stream to the successor is open.
    Ready,
    /// All results are on the disk.
    Finished { result: RingResult, sent: u64, received: u64 },
    /// It cannot go on.
    Failed { blame: Option<NodeId>, reason: String, sent: u64, received: u64 },
}

/// Writes the body of a round; it is on the disk when this returns.
pub(crate) type WriteBody = Arc<dyn Fn(Round, &[u8]) -> Result<(), String> + Send + Sync>;

/// Everything that an exchange needs.
pub(crate) struct Exchange {
    pub(crate) plan: Arc<Plan>,
    pub(crate) identity: Identity,
    pub(crate) specs: Arc<[BucketSpec]>,
    pub(crate) delta: Shared,
    pub(crate) net: Net,
    pub(crate) clock: Clock,
    pub(crate) stall: Duration,
    pub(crate) link_timeout: Duration,
    /// Writes the body of a round; returns once it is on the disk.
    pub(crate) store: WriteBody,
}

/// The handle of a running exchange.
pub(crate) struct Running {
    pub(crate) round: Round,
    pub(crate) attempt: Attempt,
    pub(crate) plan: Digest,
    orders: mpsc::Sender<Order>,
    cancel: CancellationToken,
    meter: Meter,
}

impl Running {
    /// Hands an order over; false when the exchange is over.
    pub(crate) fn order(&self, order: Order) -> bool {
        self.orders.try_send(order).is_ok()
    }

    /// What it has cost so far.
    pub(crate) fn spent(&self) -> Spent {
        self.meter.read()
    }

    /// Ends it.
    pub(crate) fn abort(&self) {
        self.cancel.cancel();
    }
}

impl Exchange {
    /// Starts the task; what it says comes with round and attempt.
    pub(crate) fn spawn(
        self,
        tasks: &tokio_util::task::TaskTracker,
        said: mpsc::Sender<(Round, Attempt, Outcome)>,
    ) -> Running {
        let (orders, inbox) = mpsc::channel(8);
        let cancel = CancellationToken::new();
        let meter = Meter::default();
        let (round, attempt) = (self.plan.round, self.plan.attempt);
        let running = Running {
            round,
            attempt,
            plan: self.plan.digest(),
            orders,
            cancel: cancel.clone(),
            meter: meter.clone(),
        };
        tasks.spawn(async move {
            let say = Say { said, round, attempt, meter };
            tokio::select! {
                () = cancel.cancelled() => {}
                () = run(self, inbox, &say) => {}
            }
        });
        running
    }
}

struct Say {
    said: mpsc::Sender<(Round, Attempt, Outcome)>,
    round: Round,
    attempt: Attempt,
    meter: Meter,
}

impl Say {
    async fn say(&self, outcome: Outcome) {
        let _ = self.said.send((self.round, self.attempt, outcome)).await;
    }

    async fn failed(&self, blame: Option<NodeId>, reason: String, moved: (u64, u64)) {
        let (sent, received) = moved;
        self.say(Outcome::Failed { blame, reason, sent, received }).await;
    }
}

async fn run(exchange: Exchange, mut orders: mpsc::Receiver<Order>, say: &Say) {
    let mut ring = match ring(&exchange) {
        Ok(ring) => ring,
        Err(reason) => return say.failed(None, reason, (0, 0)).await,
    };
    let successor = neighbour(&exchange, 1);
    let (mut links, mut frames) = Links::new();
    // Every member opens its stream at the same time, so the predecessor's must be accepted while
    // the successor's is still being opened.
    let opened = match successor {
        Some(node) => {
            let mut opening = std::pin::pin!(open(&exchange, node));
            loop {
                tokio::select! {
                    opened = &mut opening => break Some((node, opened)),
                    order = orders.recv() => match order {
                        Some(Order::Stream(incoming)) => links.accept(incoming).await,
                        Some(Order::Run) => {}
                        None => return,
                    },
                }
            }
        }
        None => None,
    };
    let to_writer = match opened {
        None => None,
        Some((_, Ok(stream))) => Some(links.write_to(stream.split().0)),
        Some((node, Err(reason))) => return say.failed(Some(node), reason, (0, 0)).await,
    };
    say.say(Outcome::Ready).await;
    let mut next: Option<Vec<u8>> = None;
    let mut run = false;
    let predecessor = neighbour(&exchange, exchange.plan.members.len() - 1);
    let mut finished = false;
    loop {
        while let Some(event) = if run { ring.poll_event() } else { None } {
            match event {
                RingEvent::JobFinished(_) => {}
                RingEvent::Finished(outcome) => {
                    let results = outcome.buckets.iter().map(|b| Some(b.result.clone())).collect();
                    let traffic = ring.traffic();
                    let started = Instant::now();
                    let stored = store(&exchange, Body { jobs: results }).await;
                    say.meter.stored(started);
                    match stored {
                        Ok(result) => {
                            let (sent, received) = (traffic.bytes_sent, traffic.bytes_received);
                            say.say(Outcome::Finished { result, sent, received }).await;
                            finished = true;
                        }
                        Err(reason) => return say.failed(None, reason, moved(&ring)).await,
                    }
                }
                RingEvent::Failed { peer, reason } => {
                    return say.failed(peer, reason.to_string(), moved(&ring)).await;
                }
            }
        }
        if finished && ring.is_drained() && next.is_none() {
            drop(to_writer);
            return links.close().await;
        }
        if run && next.is_none() {
            next = say.meter.call(&mut ring, |ring| Some(ring.poll_frame()?.to_bytes()));
        }
        let deadline = if run { ring.poll_timeout() } else { None };
        let now = |exchange: &Exchange| exchange.clock.now();
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Run) => run = true,
                Some(Order::Stream(incoming)) => links.accept(incoming).await,
                None => return,
            },
            frame = frames.recv(), if run => match frame {
                Some(Ok(frame)) => {
                    if let Some(from) = predecessor
                        && let Err(fault) = say.meter.call(&mut ring, |ring| {
                            ring.handle_frame(now(&exchange), from, &frame)
                        })
                    {
                        tracing::debug!("a ring frame was refused: {fault}");
                    }
                }
                Some(Err(reason)) => {
                    tracing::debug!("the stream from the predecessor broke: {reason}");
                    if let Some(from) = predecessor {
                        ring.handle_link_lost(now(&exchange), from);
                    }
                }
                None => {}
            },
            permit = reserve(to_writer.as_ref()), if next.is_some() => {
                let frame = next.take();
                match (permit, frame, successor) {
                    (Some(permit), Some(frame), _) => permit.send(frame),
                    (None, _, Some(to)) if !finished => {
                        ring.handle_link_lost(now(&exchange), to);
                    }
                    _ => return,
                }
            }
            () = exchange.clock.sleep_until(deadline), if deadline.is_some() => {
                ring.handle_timeout(now(&exchange));
            }
            () = tokio::time::sleep(DRAIN), if finished => return,
        }
    }
}

fn moved(ring: &Ring) -> (u64, u64) {
    let traffic = ring.traffic();
    (traffic.bytes_sent, traffic.bytes_received)
}

fn ring(exchange: &Exchange) -> Result<Ring, String> {
    let plan = &exchange.plan;
    let bits = Bits::try_from(plan.bits).map_err(|error| error.to_string())?;
    let config = RingConfig {
        run: plan.run,
        round: plan.round,
        attempt: plan.attempt,
        members: plan.members.to_vec(),
        me: exchange.identity.node_id(),
        bits,
        buckets: (0..exchange.specs.len() as u32).collect(),
        specs: Arc::clone(&exchange.specs),
        stall: exchange.stall,
        window: WINDOW,
    };
    let now: Time = exchange.clock.now();
    let delta = Arc::clone(&exchange.delta);
    Ring::new(config, exchange.identity.clone(), delta, now).map_err(|error| error.to_string())
}

/// The member `steps` after this one, unless it is this one.
fn neighbour(exchange: &Exchange, steps: usize) -> Option<NodeId> {
    let me = exchange.identity.node_id();
    let members = &exchange.plan.members;
    let position = exchange.plan.position(me)?;
    let node = members[(position + steps) % members.len()].node;
    (node != me).then_some(node)
}

async fn open(exchange: &Exchange, node: NodeId) -> Result<BulkStream, String> {
    let plan = &exchange.plan;
    let hello = BulkHello {
        version: VERSION,
        run: plan.run,
        round: plan.round,
        attempt: plan.attempt,
        plan: plan.digest(),
        from: exchange.identity.node_id(),
    };
    exchange
        .net
        .open_bulk(node, &codec::encode(&hello), exchange.link_timeout)
        .await
        .map_err(|error| error.to_string())
}

/// Writes the body and derives what the header says of it.
async fn store(exchange: &Exchange, body: Body) -> Result<RingResult, String> {
    let plan = Arc::clone(&exchange.plan);
    let write = Arc::clone(&exchange.store);
    let work = tokio::task::spawn_blocking(move || {
        let bytes = body.to_bytes();
        write(plan.round, &bytes)?;
        result_of(&plan, &body, &bytes)
    });
    work.await.map_err(|error| error.to_string())?
}

/// What a header says of a body.
pub(crate) fn result_of(plan: &Plan, body: &Body, bytes: &[u8]) -> Result<RingResult, String> {
    let bits = Bits::try_from(plan.bits).map_err(|error| error.to_string())?;
    let omegas: Vec<u16> = plan.members.iter().map(|member| member.omega).collect();
    let mut member_sets: Vec<MemberSet> = Vec::new();
    for job in &body.jobs {
        let members = job.as_ref().map(|job| job.members).unwrap_or_default();
        let divisor = crate::codec::divisor(members, &omegas);
        let set = MemberSet { members, divisor };
        if !member_sets.contains(&set) {
            member_sets.push(set);
        }
    }
    let leaves = body.leaves(bits, omegas.len());
    let index = BlobIndex::of(bytes).map_err(|error| error.to_string())?;
    Ok(RingResult {
        member_sets,
        jobs: u32::try_from(leaves.len()).unwrap_or(u32::MAX),
        jobs_root: crate::codec::merkle::merkle_root(&leaves),
        body_bytes: index.bytes,
        body: index.digest(),
    })
}

/// The two streams. Reading and writing are tasks of their own, so that no frame is lost when the
/// loop turns to something else.
struct Links {
    from_reader: mpsc::Sender<Incoming>,
    tasks: tokio::task::JoinSet<()>,
}

/// Encoded frames for the successor.
type Outbox = mpsc::Sender<Vec<u8>>;
/// A frame of the predecessor, or why there are no more.
type Incoming = Result<Frame, String>;

impl Links {
    fn new() -> (Self, mpsc::Receiver<Incoming>) {
        let (from_reader, frames) = mpsc::channel(FRAMES);
        (Self { from_reader, tasks: tokio::task::JoinSet::new() }, frames)
    }

    /// Starts the writer; its channel ends it.
    fn write_to(&mut self, writer: BulkSender) -> Outbox {
        let (to_writer, outbox) = mpsc::channel(FRAMES);
        self.tasks.spawn(write(writer, outbox));
        to_writer
    }

    async fn accept(&mut self, incoming: IncomingBulk) {
        match incoming.accept().await {
            Ok(stream) => {
                let (sender, receiver) = stream.split();
                self.tasks.spawn(read(sender, receiver, self.from_reader.clone()));
            }
            Err(error) => tracing::debug!("the predecessor's stream is gone: {error}"),
        }
    }

    /// Lets the writer send what it has, once its channel is closed, and ends both.
    async fn close(mut self) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN, all).await;
    }
}

/// Room for one frame at the writer; `None` when its stream is broken.
async fn reserve(writer: Option<&Outbox>) -> Option<mpsc::Permit<'_, Vec<u8>>> {
    writer?.reserve().await.ok()
}

async fn write(mut stream: BulkSender, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if let Err(error) = stream.send(&frame).await {
            tracing::debug!("the stream to the successor broke: {error}");
            return;
        }
    }
    let _ = stream.close().await;
}

/// The unused half is held so that the stream stays open.
async fn read(
    _sender: BulkSender,
    mut stream: BulkReceiver,
    frames: mpsc::Sender<Result<Frame, String>>,
) {
    let max = crate::base::limits::MAX_FRAME_WIRE_BYTES;
    loop {
        let frame = match stream.recv(max).await {
            Ok(Some(bytes)) => Frame::from_bytes(&bytes).map_err(|error| error.to_string()),
            Ok(None) => return,
            Err(error) => Err(error.to_string()),
        };
        let broken = frame.is_err();
        if frames.send(frame).await.is_err() || broken {
            return;
        }
    }
}
