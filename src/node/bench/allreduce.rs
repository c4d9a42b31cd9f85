//! The parent of `bench allreduce`: starts the peers, lets them go round by round, sums up.

use std::{
    io,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    time::timeout,
};

use super::{
    NodeError, median, parts,
    talk::{Command, Contact, Cost, Reply, Setup, Verdict},
};
use crate::{
    base::limits,
    node::options::BenchAllreduceOptions,
    observe::{BenchPart, BenchReport},
};

/// How long a peer may take to end once its input is closed: it ends at once.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Measures the whole exchange between processes on loopback.
///
/// # Errors
/// If a process cannot be started or fails.
pub async fn bench_allreduce(options: BenchAllreduceOptions) -> Result<BenchReport, NodeError> {
    super::bits(options.bits)?;
    if !(1..=limits::MAX_MEMBERS).contains(&options.peers) || options.rounds == 0 {
        return Err(NodeError::Usage {
            what: format!("{} peers and {} rounds", options.peers, options.rounds),
            help: format!("choose 1 to {} peers and at least one round", limits::MAX_MEMBERS),
        });
    }
    let executable =
        std::env::current_exe().map_err(|error| failed("cannot find itself", error))?;
    let mut peers = Peers::start(&executable, options.peers)?;
    let (rounds, verdicts) = peers.measure(&options).await?;
    peers.end().await;
    report(&options, &rounds, &verdicts)
}

fn failed(what: &str, error: impl std::fmt::Display) -> NodeError {
    NodeError::Failed {
        what: format!("{what}: {error}"),
        help: "see the lines above; fewer --peers or --floats need less of the machine".to_owned(),
    }
}

/// The costs of all peers, round by round.
type Rounds = Vec<Vec<Cost>>;

fn report(
    options: &BenchAllreduceOptions,
    rounds: &Rounds,
    verdicts: &[Verdict],
) -> Result<BenchReport, NodeError> {
    if verdicts.iter().any(|verdict| verdict.mean != verdicts[0].mean) {
        return Err(failed("the exchange is broken", "the peers have decoded different means"));
    }
    let slowest = |peers: &Vec<Cost>| peers.iter().map(Cost::seconds).fold(0.0, f64::max);
    let most = |of: fn(&Cost) -> u64| rounds.iter().flatten().map(of).max().unwrap_or(0);
    let parts = mean_parts(rounds);
    let cpu: Option<f64> = verdicts.iter().map(|verdict| verdict.cpu_seconds).sum();
    Ok(BenchReport {
        bench: "allreduce".to_owned(),
        peers: options.peers,
        floats: options.floats,
        bits: options.bits,
        rounds: options.rounds,
        seconds: median(rounds.iter().map(slowest).collect()),
        bytes_sent_per_peer: most(|cost| cost.bytes_sent),
        payload_bytes_per_peer: most(|cost| cost.payload_sent),
        relative_error: verdicts.iter().find_map(|v| v.relative_error).unwrap_or(f64::NAN),
        shares: parts.iter().map(|part| (part.part.clone(), part.share)).collect(),
        parts,
        memcpy_gigabytes_per_second: None,
        cpu_seconds: cpu.map(|seconds| seconds / options.rounds as f64),
        peak_memory_bytes: verdicts.iter().filter_map(|v| v.peak_memory_bytes).max(),
    })
}

/// Medians over rounds of the means over peers.
fn mean_parts(rounds: &Rounds) -> Vec<BenchPart> {
    let names = Cost::default().parts();
    let median_of = |part: usize| {
        let mean = |peers: &Vec<Cost>| {
            peers.iter().map(|cost| cost.parts()[part].1).sum::<f64>() / peers.len() as f64
        };
        median(rounds.iter().map(mean).collect())
    };
    parts(names.into_iter().enumerate().map(|(part, (name, _))| (name, median_of(part))))
}

/// All peers, in ring order. They end when this is dropped, and when this process does.
struct Peers(Vec<Peer>);

impl Peers {
    fn start(executable: &Path, count: usize) -> Result<Self, NodeError> {
        let start = |position| {
            Peer::start(executable).map_err(|error| failed(&format!("peer {position}"), error))
        };
        (0..count).map(start).collect::<Result<_, _>>().map(Self)
    }

    async fn measure(
        &mut self,
        options: &BenchAllreduceOptions,
    ) -> Result<(Rounds, Vec<Verdict>), NodeError> {
        let contacts = self.set_up(options).await?;
        self.tell(|_| Command::Members(contacts.clone())).await?;
        let mut rounds = Vec::with_capacity(options.rounds);
        for round in 1..=options.rounds as u64 {
            self.tell(|_| Command::Prepare(round)).await?;
            self.hear(|reply| matches!(reply, Reply::Ready).then_some(())).await?;
            self.tell(|_| Command::Run).await?;
            let cost = |reply| if let Reply::Done(cost) = reply { Some(cost) } else { None };
            rounds.push(self.hear(cost).await?);
        }
        // They hold the same mean, so one compares it with the exact one.
        self.tell(|position| Command::Judge(position == 0)).await?;
        let verdict = |reply| if let Reply::Judged(verdict) = reply { Some(verdict) } else { None };
        Ok((rounds, self.hear(verdict).await?))
    }

    async fn set_up(&mut self, options: &BenchAllreduceOptions) -> Result<Vec<Contact>, NodeError> {
        let setup = |position| {
            Command::Setup(Setup {
                position,
                floats: options.floats,
                bits: options.bits,
                upload_limit: options.upload_limit.map(|rate| rate.bytes_per_second()),
            })
        };
        self.tell(setup).await?;
        let contact = |reply| if let Reply::Listening(it) = reply { Some(it) } else { None };
        self.hear(contact).await
    }

    async fn tell(&mut self, command: impl Fn(usize) -> Command) -> Result<(), NodeError> {
        for (position, peer) in self.0.iter_mut().enumerate() {
            let told = peer.tell(&command(position)).await;
            told.map_err(|error| failed(&format!("peer {position} is gone"), error))?;
        }
        Ok(())
    }

    /// One reply of each.
    async fn hear<T>(
        &mut self,
        expected: impl Fn(Reply) -> Option<T>,
    ) -> Result<Vec<T>, NodeError> {
        let mut heard = Vec::with_capacity(self.0.len());
        for (position, peer) in self.0.iter_mut().enumerate() {
            let reply = match peer.hear().await {
                Ok(Reply::Failed(reason)) => Err(reason),
                Ok(reply) => expected(reply).ok_or_else(|| "it answers out of turn".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            heard.push(reply.map_err(|reason| failed(&format!("peer {position}"), reason))?);
        }
        Ok(heard)
    }

    async fn end(self) {
        for (position, peer) in self.0.into_iter().enumerate() {
            match timeout(EXIT_TIMEOUT, peer.end()).await {
                Ok(Ok(_)) => {}
                outcome => tracing::warn!("peer {position} has not ended well: {outcome:?}"),
            }
        }
    }
}

/// One process.
struct Peer {
    child: Child,
    commands: ChildStdin,
    replies: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(executable: &Path) -> io::Result<Self> {
        let mut child = tokio::process::Command::new(executable)
            .args(["bench", "peer"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(commands), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        Ok(Self { child, commands, replies: BufReader::new(replies).lines() })
    }

    async fn tell(&mut self, command: &Command) -> io::Result<()> {
        let mut line = serde_json::to_string(command)?;
        line.push('\n');
        self.commands.write_all(line.as_bytes()).await?;
        self.commands.flush().await
    }

    async fn hear(&mut self) -> io::Result<Reply> {
        match self.replies.next_line().await? {
            Some(line) => Ok(serde_json::from_str(&line)?),
            None => Err(io::Error::other(format!("it has ended ({})", self.child.wait().await?))),
        }
    }

    async fn end(self) -> io::Result<ExitStatus> {
        let Self { mut child, commands, replies: _ } = self;
        drop(commands);
        child.wait().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Digest;

    fn options() -> BenchAllreduceOptions {
        BenchAllreduceOptions { peers: 2, floats: 64, bits: 4, rounds: 2, upload_limit: None }
    }

    fn verdict(mean: &[u8]) -> Verdict {
        Verdict {
            mean: Digest::of(mean),
            relative_error: None,
            cpu_seconds: Some(3.0),
            peak_memory_bytes: Some(7),
        }
    }

    #[test]
    fn a_report_takes_the_slowest_peer_and_the_median_round() {
        let cost = |wire, bytes_sent| Cost { encode: 1.0, wire, bytes_sent, ..Cost::default() };
        let rounds = vec![vec![cost(1.0, 10), cost(3.0, 11)], vec![cost(5.0, 10), cost(7.0, 9)]];
        let mut verdicts = [verdict(b"a"), verdict(b"a")];
        verdicts[0].relative_error = Some(0.25);
        let report = report(&options(), &rounds, &verdicts).unwrap();
        assert_eq!((report.seconds, report.bytes_sent_per_peer), (6.0, 11));
        assert_eq!((report.shares["encode"], report.shares["wire"]), (0.2, 0.8));
        assert_eq!((report.cpu_seconds, report.relative_error), (Some(3.0), 0.25));
        assert_eq!(report.peak_memory_bytes, Some(7));
    }

    #[test]
    fn different_means_are_no_report() {
        let rounds = vec![vec![Cost::default(); 2]];
        let error = report(&options(), &rounds, &[verdict(b"a"), verdict(b"b")]).unwrap_err();
        assert!(error.to_string().contains("different means"), "{error}");
    }
}
