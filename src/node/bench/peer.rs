//! One process of `bench allreduce`: a node's network and exchange task, driven by a parent's lines
//! in place of agreed plans.

use std::{
    fs,
    io::{self, BufRead, Write},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::{
    NodeError,
    talk::{Command, Contact, Cost, Reply, Setup, Verdict},
    vectors::{Distance, Source},
};
use crate::{
    base::{Attempt, Bitmap, Bounded, Digest, Round, RunId},
    codec::{Bits, Body, BucketSpec, OMEGA_ONE},
    identity::Identity,
    net::{IncomingBulk, Multiaddr, Net, NetEvent},
    node::{
        clock::Clock,
        exchange::{Exchange, Order, Outcome, Running},
        options::Listen,
        start::{self, NetOptions},
        training::vectors::Shared,
    },
    wire::{BulkHello, Member, Plan, codec},
};

/// How long a neighbour may be silent: many peers may share few cores.
const PATIENCE: Duration = Duration::from_secs(60);
/// The parent says one thing at a time.
const COMMANDS: usize = 4;

/// One process of `bench allreduce`, until its standard input ends.
///
/// # Errors
/// If anything fails; the parent is told too.
pub async fn bench_peer() -> Result<(), NodeError> {
    let outcome = serve(commands()).await;
    if let Err(reason) = &outcome {
        // The parent may be gone, which is then the reason.
        let _ = reply(&Reply::Failed(reason.clone()));
    }
    outcome.map_err(|what| NodeError::Failed {
        what,
        help: "this process is part of `dilocox-node bench allreduce`".to_owned(),
    })
}

/// The parent's lines. When they end, the parent is gone or done, and so is this process.
fn commands() -> mpsc::Receiver<Command> {
    let (sender, commands) = mpsc::channel(COMMANDS);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let command = serde_json::from_str::<Command>(&line);
            if command.is_ok_and(|command| sender.blocking_send(command).is_ok()) {
                continue;
            }
            std::process::exit(1);
        }
        std::process::exit(0);
    });
    commands
}

fn reply(reply: &Reply) -> Result<(), String> {
    let line = serde_json::to_string(reply).map_err(text)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn serve(mut commands: mpsc::Receiver<Command>) -> Result<(), String> {
    let Some(Command::Setup(setup)) = commands.recv().await else {
        return Err("the parent does not begin with the setup".to_owned());
    };
    let mut peer = Peer::start(&setup).await?;
    let mut running = None;
    loop {
        let command = tokio::select! {
            command = commands.recv() => command.ok_or("the parent is silent")?,
            event = peer.events.recv() => {
                peer.on_event(event, running.as_ref())?;
                continue;
            }
        };
        match command {
            Command::Setup(_) => return Err("it is set up already".to_owned()),
            Command::Members(contacts) => peer.meet(&contacts).await?,
            Command::Prepare(round) => {
                running = Some(peer.prepare(round).await?);
                reply(&Reply::Ready)?;
            }
            Command::Run => {
                let running = running.take().ok_or("no round is prepared")?;
                reply(&Reply::Done(peer.run(running).await?))?;
            }
            Command::Judge(compare) => reply(&Reply::Judged(peer.judge(compare).await?))?,
        }
    }
}

/// A round under way.
struct Trial {
    exchange: Running,
    tasks: TaskTracker,
    said: mpsc::Receiver<(Round, Attempt, Outcome)>,
    /// What the exchange handed to the store.
    body: Arc<Mutex<Vec<u8>>>,
    prepare: Duration,
}

struct Peer {
    identity: Identity,
    bits: Bits,
    specs: Arc<[BucketSpec]>,
    delta: Shared,
    clock: Clock,
    net: Net,
    events: mpsc::Receiver<NetEvent>,
    members: Vec<Member>,
    /// Streams whose exchange has not been prepared yet.
    waiting: Vec<(Digest, IncomingBulk)>,
    mean: Vec<f32>,
    /// Processor seconds before the first round.
    cpu_before: Option<f64>,
}

impl Peer {
    async fn start(setup: &Setup) -> Result<Self, String> {
        let bits = Bits::try_from(setup.bits).map_err(text)?;
        let secret = Digest::of_parts("dilocox bench", [&setup.position.to_le_bytes()[..]]);
        let identity = Identity::from_bytes(secret.as_bytes());
        let source = Source { vector: 0, member: setup.position };
        let delta = Arc::new(vec![source.values(setup.floats)]);
        let listen = Listen::Explicit(vec!["/ip4/127.0.0.1/tcp/0".to_owned()]);
        let options = NetOptions {
            listen: &listen,
            external: &[],
            bootstrap: &[],
            upload: setup.upload_limit,
            download: None,
        };
        let (net, events) = start::network(&identity, &options).await.map_err(text)?;
        start::listening(&net).await;
        let addresses = net.addresses().iter().map(Multiaddr::to_string).collect();
        reply(&Reply::Listening(Contact { node: identity.node_id(), addresses }))?;
        Ok(Self {
            identity,
            bits,
            specs: super::specs(setup.floats, bits),
            delta,
            clock: Clock::start(),
            net,
            events,
            members: Vec::new(),
            waiting: Vec::new(),
            mean: vec![0.0; setup.floats],
            cpu_before: None,
        })
    }

    /// Learns who the members are, and where.
    async fn meet(&mut self, contacts: &[Contact]) -> Result<(), String> {
        for Contact { node, addresses } in contacts {
            self.members.push(Member { node: *node, weight: 1, omega: OMEGA_ONE, lease: 0 });
            let addresses: Result<Vec<Multiaddr>, _> =
                addresses.iter().map(|address| address.parse()).collect();
            if *node != self.identity.node_id() {
                self.net.add_addresses(*node, addresses.map_err(text)?).await.map_err(text)?;
            }
        }
        self.cpu_before = cpu_seconds();
        Ok(())
    }

    /// What the members of a run would have agreed on.
    fn plan(&self, round: Round) -> Result<Plan, String> {
        let none = Digest([0; 32]);
        Ok(Plan {
            run: RunId(Digest::of(b"dilocox bench").0),
            round,
            attempt: 0,
            parent: none,
            voters: Bitmap::EMPTY,
            members: Bounded::try_from(self.members.clone()).map_err(text)?,
            guests: Bounded::new(),
            rank: 0,
            bits: self.bits.get(),
            gather_bits: 0,
            local_steps: 1,
            size: 0,
            feedback: 0,
            cursor: 0,
            root_before: none,
        })
    }

    /// Starts an exchange and waits until its stream is open.
    async fn prepare(&mut self, round: Round) -> Result<Trial, String> {
        let started = Instant::now();
        let body = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&body);
        let (says, said) = mpsc::channel(COMMANDS);
        let tasks = TaskTracker::new();
        let exchange = Exchange {
            plan: Arc::new(self.plan(round)?),
            identity: self.identity.clone(),
            specs: Arc::clone(&self.specs),
            delta: Arc::clone(&self.delta),
            net: self.net.clone(),
            clock: self.clock,
            stall: PATIENCE,
            link_timeout: PATIENCE,
            store: Arc::new(move |_, bytes: &[u8]| {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
                Ok(())
            }),
        }
        .spawn(&tasks, says);
        tasks.close();
        let mut trial = Trial { exchange, tasks, said, body, prepare: Duration::ZERO };
        self.match_streams(&trial.exchange);
        match self.outcome(&mut trial).await? {
            Outcome::Ready => {}
            _ => return Err("the exchange ended before it began".to_owned()),
        }
        trial.prepare = started.elapsed();
        Ok(trial)
    }

    /// Lets the exchange go to its end, and decodes its result.
    async fn run(&mut self, mut trial: Trial) -> Result<Cost, String> {
        let started = Instant::now();
        if !trial.exchange.order(Order::Run) {
            return Err("the exchange is gone".to_owned());
        }
        if !matches!(self.outcome(&mut trial).await?, Outcome::Finished { .. }) {
            return Err("the exchange got ready twice".to_owned());
        }
        let exchanged = started.elapsed();
        let spent = trial.exchange.spent();
        let started = Instant::now();
        self.decode(&trial.body).await?;
        let decode = started.elapsed();
        // The neighbours may still wait for frames.
        trial.tasks.wait().await;
        let traffic = trial.exchange.spent().traffic;
        let busy = spent.encode + spent.frames + spent.store;
        Ok(Cost {
            prepare: trial.prepare.as_secs_f64(),
            encode: spent.encode.as_secs_f64(),
            ring: spent.frames.as_secs_f64(),
            wire: exchanged.saturating_sub(busy).as_secs_f64(),
            store: spent.store.as_secs_f64(),
            decode: decode.as_secs_f64(),
            bytes_sent: traffic.bytes_sent,
            payload_sent: traffic.payload_sent,
        })
    }

    /// From the stored bytes to the mean, as the fold does it; streams of the others' next round
    /// do not come before everybody is done.
    async fn decode(&mut self, body: &Mutex<Vec<u8>>) -> Result<(), String> {
        let bytes = std::mem::take(&mut *body.lock().unwrap_or_else(PoisonError::into_inner));
        let (specs, bits) = (Arc::clone(&self.specs), self.bits);
        let omegas: Vec<u16> = self.members.iter().map(|member| member.omega).collect();
        let mut mean = std::mem::take(&mut self.mean);
        let work = tokio::task::spawn_blocking(move || {
            let body = Body::from_bytes(&bytes, &specs, bits, omegas.len()).map_err(text)?;
            for (spec, job) in specs.iter().zip(&body.jobs) {
                let job = job.as_ref().ok_or("a job is unfinished")?;
                let values = job.mean(bits, &omegas).map_err(text)?;
                spec.scatter(&values.ok_or("a job has no members")?, &mut mean);
            }
            Ok::<_, String>(mean)
        });
        self.mean = work.await.map_err(text)??;
        Ok(())
    }

    /// The next outcome of the exchange, which may need its predecessor's stream for it.
    async fn outcome(&mut self, trial: &mut Trial) -> Result<Outcome, String> {
        loop {
            tokio::select! {
                event = self.events.recv() => self.on_event(event, Some(trial))?,
                said = trial.said.recv() => match said {
                    Some((_, _, Outcome::Failed { blame, reason, .. })) => {
                        return Err(format!("the exchange failed: {reason} ({blame:?})"));
                    }
                    Some((_, _, outcome)) => return Ok(outcome),
                    None => return Err("the exchange ended without a word".to_owned()),
                },
            }
        }
    }

    fn on_event(&mut self, event: Option<NetEvent>, trial: Option<&Trial>) -> Result<(), String> {
        match event.ok_or("the network has ended")? {
            NetEvent::BulkStream(stream) => {
                let hello = codec::decode::<BulkHello, 1024>(stream.hello()).map_err(text)?;
                self.waiting.push((hello.plan, stream));
                if let Some(trial) = trial {
                    self.match_streams(&trial.exchange);
                }
            }
            NetEvent::DialFailed { error, .. } => tracing::warn!("a dial has failed: {error}"),
            _ => {}
        }
        Ok(())
    }

    /// Hands the exchange the streams that are its own.
    fn match_streams(&mut self, exchange: &Running) {
        for (plan, stream) in std::mem::take(&mut self.waiting) {
            if plan == exchange.plan {
                exchange.order(Order::Stream(stream));
            } else {
                self.waiting.push((plan, stream));
            }
        }
    }

    /// What all rounds took, and how far the last mean is from the exact one.
    async fn judge(&mut self, compare: bool) -> Result<Verdict, String> {
        let after = cpu_seconds();
        let cpu_seconds = after.zip(self.cpu_before).map(|(after, before)| after - before);
        let peak_memory_bytes = peak_memory();
        let members = self.members.len();
        let mean = std::mem::take(&mut self.mean);
        let work = tokio::task::spawn_blocking(move || Verdict {
            mean: digest(&mean),
            relative_error: compare.then(|| Distance::of(&mean, 0, members).relative()),
            cpu_seconds,
            peak_memory_bytes,
        });
        work.await.map_err(text)
    }
}

fn digest(values: &[f32]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for values in values.chunks(1 << 14) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        hasher.update(&bytes);
    }
    Digest(*hasher.finalize().as_bytes())
}

/// Processor seconds of this process so far; none where there is no `/proc`.
fn cpu_seconds() -> Option<f64> {
    /// Linux counts in hundredths of a second for programs, whatever its own clock does.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name before the last bracket may hold blanks; user and system time are fields 14 and 15.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / TICKS)
}

/// Peak of resident memory; none where there is no `/proc`.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_time_and_memory() {
        assert!(cpu_seconds().unwrap() >= 0.0);
        assert!(peak_memory().unwrap() > 100_000);
    }
}
