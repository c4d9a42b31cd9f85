//! Events as people read them.

use super::event::Event;
use crate::config::units::bytes_text;

/// The line that tells people of an event; none for what only a program or a bar shows.
pub fn line(event: &Event) -> Option<String> {
    life(event).or_else(|| training(event)).or_else(|| trouble(event))
}

/// Starting, joining, ending.
fn life(event: &Event) -> Option<String> {
    Some(match event {
        Event::Started { peer_id, listen, join_command, http, data_dir, .. } => {
            let mut lines = vec![format!("node {peer_id}, data in {data_dir}")];
            lines.extend(listen.iter().map(|address| format!("listening on {address}")));
            lines.extend(http.iter().map(|http| format!("status on http://{http}/")));
            lines.push(format!("another machine joins with:\n  {join_command}"));
            lines.join("\n")
        }
        Event::Founded { run_id, name, parameters, rounds } => {
            format!("founded run {name} ({parameters} parameters, {rounds} rounds)\n  {run_id}")
        }
        Event::Resumed { name, round, rounds, .. } => {
            format!("going on with run {name} after round {round}/{rounds}")
        }
        Event::Joined { name, round, rounds, members, seconds, bytes, .. } => format!(
            "joined run {name} after round {round}/{rounds} with {members} members: {} in {seconds:.1} s",
            bytes_text(*bytes)
        ),
        Event::PeerJoined { peer, live } => format!("peer {} is here, {live} live", peer.short()),
        Event::PeerLeft { peer, reason, live } => {
            format!("peer {} is gone ({reason}), {live} live", peer.short())
        }
        Event::Finished { round, validation_loss, bytes_sent, .. } => format!(
            "finished after round {round}{}, {} sent",
            validation(*validation_loss),
            bytes_text(*bytes_sent)
        ),
        Event::Stopped { reason, round } => {
            format!("stopped after round {round} ({reason}); started again, it goes on from there")
        }
        _ => return None,
    })
}

/// Rounds and their results.
fn training(event: &Event) -> Option<String> {
    Some(match event {
        Event::Round { round, loss, validation_loss, utilization, .. } => format!(
            "round {round}: training loss {loss:.3}{}, {:.0} % of the time training",
            validation(*validation_loss),
            utilization * 100.0
        ),
        Event::Exchange {
            round, members, bytes_sent, bytes_received, seconds, attempt, ..
        } => {
            let again = if *attempt > 0 { format!(", attempt {attempt}") } else { String::new() };
            format!(
                "round {round}: exchanged with {members} members in {seconds:.1} s, {} sent, {} received{again}",
                bytes_text(*bytes_sent),
                bytes_text(*bytes_received)
            )
        }
        Event::Committed { round, members, state_root, replayed: false, .. } => {
            format!("round {round}: committed by {members} members, state {}", state_root.short())
        }
        Event::Validated { round: 0, validation_loss, .. } => {
            format!("untrained: validation loss {validation_loss:.3}")
        }
        Event::Missed { round, reason } => {
            format!("round {round}: missed ({reason}); the contribution goes into the next")
        }
        Event::DataSkipped { round, sequences, reason } => {
            format!("round {round}: {sequences} sequences left out for this epoch ({reason})")
        }
        Event::SyncProgress { round, target_round, bytes, total_bytes, donors } => format!(
            "fetching: round {round} of {target_round}, {} of {} from {donors} peers",
            bytes_text(*bytes),
            bytes_text(*total_bytes)
        ),
        Event::Generated { round, prompt, text } => format!("round {round} writes: {prompt}{text}"),
        _ => return None,
    })
}

/// What a person may have to do something about.
fn trouble(event: &Event) -> Option<String> {
    Some(match event {
        Event::Waiting { what, seconds, remedy } => {
            format!("waiting for {what} ({seconds:.0} s); {remedy}")
        }
        Event::BootstrapUnreachable { address, error, attempts, retry_seconds, remedy } => format!(
            "bootstrap peer {address} unreachable ({error}), attempt {attempts}, again in {retry_seconds:.0} s; {remedy}"
        ),
        Event::Stuck { phase, missing, seconds, remedy } => {
            format!("stuck in {phase} for {seconds:.0} s, missing {missing}; {remedy}")
        }
        Event::Warning { what, remedy } => format!("warning: {what}; {remedy}"),
        _ => return None,
    })
}

fn validation(loss: Option<f64>) -> String {
    loss.map_or_else(String::new, |loss| format!(", validation loss {loss:.3}"))
}

/// The message beside a segment's bar.
pub fn step(event: &Event) -> String {
    match event {
        Event::Step { round, loss, tokens, seconds, .. } => {
            let speed = if *seconds > 0.0 { *tokens as f64 / seconds } else { 0.0 };
            format!("round {round}  loss {loss:.3}  {speed:.0} tokens/s")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::samples::samples;

    #[test]
    fn every_event_that_matters_to_people_has_a_line() {
        let silent: Vec<String> = samples()
            .iter()
            .filter(|event| line(event).is_none())
            .map(|event| serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            silent,
            ["events_dropped", "step", "snapshot", "demo_started", "demo_killed", "demo_result"]
        );
    }

    #[test]
    fn a_bar_shows_speed_and_loss() {
        let steps: Vec<String> =
            samples().iter().map(step).filter(|text| !text.is_empty()).collect();
        assert_eq!(steps, ["round 1  loss 4.200  5120 tokens/s"]);
    }
}
